"""The port of Spark: the interfaces that run transforms, and the values they exchange.

place.open() ──▶ Gateway ──submit(step, tables, batch)──▶ Ticket: done? result
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A table to join with: an Arrow table, a Parquet path, or a function of the session.
Static: TypeAlias = "pa.Table | str | PurePath | Callable[[SparkSession], DataFrame]"
# (DataFrame for each input …, BatchInfo) → DataFrame; with a state: (DataFrame for each input …,
# state, BatchInfo) → (DataFrame, state)
Transform: TypeAlias = Callable[..., Any]
Writer: TypeAlias = Callable[["DataFrame", "BatchInfo"], Any]


@dataclass(frozen=True)
class Publication:
    """Publish the batches before `current`, which are committed. `batches` identifies the numbering
    of the txids."""

    batches: str
    current: int


@dataclass(frozen=True)
class BatchInfo:
    """Describes the batch that a transform is called for.

    `id` is unique: in Trident the txid, the same in every attempt; elsewhere a new id per batch.
    `run` counts how often Spark died during this attempt. `tables` are the step's static tables as
    DataFrames. Each topology is a FAIR scheduler pool, and within it batches run in FIFO order.
    `task` is the component and index of the task that submitted it. A job with `publish` has no
    input and calls no transform: see PublishingWriter. `state` is the folder of the state that the
    batch begins with; None if it is empty.
    """

    id: str
    rows: int
    attempt: int = 0
    txid: int | None = None
    tables: Mapping[str, Any] = field(default_factory=dict)
    topology: str = ""
    task: str = ""
    run: int = 0
    publish: Publication | None = None
    state: str | None = None


@runtime_checkable
class PublishingWriter(Protocol):
    """A writer that stages each attempt. A later job, with `BatchInfo.publish`, publishes the
    committed ones; SparkOperator submits it."""

    @property
    def place(self) -> str:
        """What identifies the table."""

    def __call__(self, result: DataFrame, batch: BatchInfo) -> None:
        """Stage an attempt."""

    def publish(self, session: SparkSession, batch: BatchInfo) -> None:
        """Publish what is committed. A repeat changes nothing."""


class StepState(Protocol):
    """The state of a step, as SparkState keeps it: a version for each committed batch."""

    @property
    def folder(self) -> Path:
        """Where its versions are."""

    @property
    def columns(self) -> str:
        """Names and types of its columns, which must stay the same."""

    def before(self, session: SparkSession, batch: BatchInfo) -> DataFrame:
        """The state that the batch before this one has left."""

    def __call__(self, state: DataFrame, batch: BatchInfo) -> None:
        """Stage the new state of an attempt. Raises ResultMismatch, WriteFailed."""


class Reads(Protocol):
    """Creates a DataFrame from rows that only say what to read, as `kafka_rows.py` does."""

    def check(self, columns: pa.Schema) -> None:
        """Raise RecordMismatch for columns that do not say what to read."""

    def __call__(self, session: SparkSession, table: pa.Table) -> DataFrame:
        """The DataFrame that the rows of a batch refer to."""


@dataclass
class Readers:
    """How many steps read the same rows of a stream. The steps of a program share one of it, which
    counts them while they are declared."""

    count: int = 0

    def __deepcopy__(self, memo: Any) -> Readers:
        return self


@dataclass(frozen=True)
class SparkStep:
    """What a gateway needs to know of a transform: a value that can be pickled."""

    transform: Transform
    out: Any = None  # a record type; None if no rows come back
    tables: Mapping[str, Static] = field(default_factory=dict)
    writers: tuple[Writer, ...] = ()
    timeout_s: float = 600.0
    reads: Reads | None = None  # converts the first input; None: its rows are used as they are
    readers: Readers | None = None  # the steps that read what this one reads; None: it alone
    state: StepState | None = None

    def __str__(self) -> str:
        return getattr(self.transform, "__name__", type(self.transform).__name__)


@dataclass(frozen=True)
class JobReport:
    """Cost of one batch: wall-clock seconds, and rows and bytes of Arrow tables. `rows_out` and
    `bytes_out` count what came back, not what Spark wrote."""

    batch: str  # BatchInfo.id
    attempt: int
    wait_s: float  # for a slot, and in the first job for the session
    hand_over_s: float  # until the tables were DataFrames
    job_s: float  # the transform, the writers, and fetching the rows
    rows_in: int
    rows_out: int
    bytes_in: int
    bytes_out: int
    spilled_bytes: int = 0  # to disk, by Spark's tasks
    jobs: tuple[int, ...] = ()  # Spark's job ids
    ui: str | None = None  # Spark's UI address, if `spark.ui.enabled` is true


class Ticket(Protocol):
    """A submitted job."""

    def done(self) -> bool:
        """Whether `result` returns without waiting."""

    def result(self) -> pa.Table | None:
        """Wait for the job. Returns its rows as `RecordColumns.conform` does; None without `out`.
        Raises SparkUnavailable, SparkLost, SparkTimeout, TransformFailed, ResultMismatch,
        WriteFailed."""

    def report(self) -> JobReport | None:
        """The cost of the job, after `result` has returned."""

    def cancel(self) -> None:
        """Give the job up. It may still run to its end."""


class Gateway(Protocol):
    """Runs as many jobs concurrently as its place allows; the others wait."""

    def start(self) -> None:
        """Open and warm the session in the background; otherwise the first job does it."""

    def submit(self, step: SparkStep, tables: Sequence[pa.Table], batch: BatchInfo) -> Ticket:
        """Submit a batch: one normalised table for each input of the transform."""

    def close(self) -> None:
        """Accept no more jobs. The last gateway of a session in this process ends the JVM."""


class SparkPlace(Protocol):
    """Where Spark runs: a value that can be pickled and compared, opened in each task."""

    def open(self) -> Gateway:
        """A gateway to the session, which is not started yet. Raises ConfigError."""
