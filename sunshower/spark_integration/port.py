"""The port of Spark: who runs transforms for us, and what it is handed.

    place.open() ──▶ Gateway ──submit(step, tables, batch)──▶ Ticket: done? result
                        └── close

Its bodies are `local.py`, a session in this process, and `on_ray.py`, one on the Ray cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A table to join with: columns, a Parquet file or folder, or what makes it of a session.
Static: TypeAlias = "pa.Table | str | PurePath | Callable[[SparkSession], DataFrame]"
Transform: TypeAlias = Callable[..., Any]  # (DataFrame for each input …, BatchInfo) → DataFrame
Writer: TypeAlias = Callable[["DataFrame", "BatchInfo"], Any]


@dataclass(frozen=True)
class BatchInfo:
    """Which batch a transform is called for.

    `id` is unique: of a Trident batch its txid, the same in every attempt; of any other a new one
    in each. `run`: how often Spark has died of it, or beside it, in this attempt. `tables` are the
    static ones of the step, as DataFrames. Topologies share Spark's processors fairly: each is a
    pool of its own, in which batches go one after the other. `task` has handed it over: a
    component, and the index of its task.
    """

    id: str
    rows: int
    attempt: int = 0
    txid: int | None = None
    tables: Mapping[str, Any] = field(default_factory=dict)
    topology: str = ""
    task: str = ""
    run: int = 0


class Reads(Protocol):
    """Makes a DataFrame of rows that only say what is to be read, as `kafka_rows.py` does."""

    def check(self, columns: pa.Schema) -> None:
        """Raise RecordMismatch for rows that do not say it."""

    def __call__(self, session: SparkSession, table: pa.Table) -> DataFrame:
        """What a batch of such rows stands for."""


@dataclass(frozen=True)
class Step:
    """What a gateway needs to know of a transform. It is a value: pickled where it travels."""

    transform: Transform
    out: Any = None  # a record type; None: nothing comes back
    tables: Mapping[str, Static] = field(default_factory=dict)
    writers: tuple[Writer, ...] = ()
    timeout_s: float = 600.0
    reads: Reads | None = None  # what the rows of the first input stand for; None: for themselves

    def __str__(self) -> str:
        return getattr(self.transform, "__name__", type(self.transform).__name__)


@dataclass(frozen=True)
class JobReport:
    """What a batch has taken. Seconds are of the wall; rows and bytes are those of Arrow tables,
    and `out` is what has come back, not what Spark has written."""

    batch: str  # BatchInfo.id
    attempt: int
    wait_s: float  # for a slot, and at first for the session
    hand_over_s: float  # until Spark had it as DataFrames
    job_s: float  # the transform, the writers, the rows that came back
    rows_in: int
    rows_out: int
    bytes_in: int
    bytes_out: int
    spilled_bytes: int = 0  # to disk, by Spark's tasks
    jobs: tuple[int, ...] = ()  # Spark's own ids of them
    ui: str | None = None  # where Spark shows them, if `spark.ui.enabled` is true


class Ticket(Protocol):
    """A job that was handed over."""

    def done(self) -> bool:
        """Whether `result` would answer at once."""

    def result(self) -> pa.Table | None:
        """Wait for the job: its rows, as `Columns.conform` makes them; None of a step without
        `out`. Raises SparkUnavailable, SparkLost, SparkTimeout, TransformFailed, ResultMismatch,
        WriteFailed.
        """

    def report(self) -> JobReport | None:
        """After `result` has answered: what it took."""

    def cancel(self) -> None:
        """Nobody waits for it any more. It may run to its end all the same."""


class Gateway(Protocol):
    """Who runs jobs. As many at a time as its place says, the others wait in their order."""

    def start(self) -> None:
        """Open the session and warm it, beside other work; the first job does so by itself."""

    def submit(self, step: Step, tables: Sequence[pa.Table], batch: BatchInfo) -> Ticket:
        """Hand over a batch: one normal table for each input of the transform."""

    def close(self) -> None:
        """No more jobs from here. Who was alone here leaves no Java behind."""


class Place(Protocol):
    """Where Spark is. It is a value: pickled, compared, and opened in each task."""

    def open(self) -> Gateway:
        """A way to the session; nothing is started yet. Raises ConfigError."""
