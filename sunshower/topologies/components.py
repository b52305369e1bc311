"""What a user writes: spouts and bolts, and what they are handed while they run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, cast

from sunshower.clock import Clock, SystemClock
from sunshower.failures import Failure
from sunshower.records import Schema

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

R = TypeVar("R")
In = TypeVar("In")
Out = TypeVar("Out")
In_contra = TypeVar("In_contra", contravariant=True)
Out_co = TypeVar("Out_co", covariant=True)
DEFAULT = "default"


def tell_nobody(key: Any, value: Any) -> None:
    """There is no history: nothing happens."""


@dataclass(frozen=True)
class Context:
    """Where a task finds itself. `index` counts the tasks of one component from 0.

    `clock` is the one that the topology runs by: what looks at the time there, and not at the
    machine's, runs unchanged in a simulator, where hours pass in a second.
    """

    topology: str
    component: str
    task: int
    index: int
    parallelism: int
    tasks: Mapping[str, Sequence[int]] = field(default_factory=dict)  # component id → task ids
    committed: int = 0  # of records() and tables(): settled in former lives; they are passed over
    clock: Clock = field(default_factory=SystemClock, compare=False, repr=False)
    tell: Callable[[Any, Any], None] = field(default=tell_nobody, compare=False, repr=False)
    note: Callable[[Any, Any], None] = field(default=tell_nobody, compare=False, repr=False)

    def wrote(self, key: Any, value: Any = None) -> None:
        """Say that this task has just written something out: a file, a database, a counter.

        An experiment keeps it in its history, at once and in order, to judge by it whether anything
        is missing there or came twice; without one this does nothing. Both are plain values, such
        as an id and a count.
        """
        self.tell(key, value)

    def noted(self, event: str, **facts: Any) -> None:
        """Say that something has happened here that is worth a line in the history of an experiment
        and is no write: nobody is judged by it. Facts are plain values."""
        self.note(event, facts)


@dataclass(frozen=True, slots=True)
class OnStream:
    """A record for another stream than the default one: `yield OnStream("errors", record)`."""

    stream: str
    record: Any


class Tuple(Protocol[Out_co]):
    """One input of a manual bolt. Storm: org.apache.storm.tuple.Tuple."""

    @property
    def record(self) -> Out_co: ...
    @property
    def component(self) -> str: ...
    @property
    def task(self) -> int: ...
    @property
    def stream(self) -> str: ...


class Collector(Protocol[In_contra]):
    """A manual bolt's hands. Storm: org.apache.storm.task.OutputCollector.

    A second ack or fail of one tuple, and an emit anchored to a settled tuple, raise
    AlreadySettled at once (Storm unbalances the tree in silence until the timeout).
    """

    def emit(
        self,
        record: In_contra,
        anchors: Tuple[Any] | Sequence[Tuple[Any]] = (),
        *,
        stream: str = DEFAULT,
    ) -> None:
        """Send `record` to the stream's subscribers, as part of the trees of all `anchors`.

        Without anchors nobody follows it. The same tuple may stand in `anchors` twice.
        Raises BadEmit for a record that does not fit or a stream that is not declared.
        """

    def emit_direct(
        self,
        task: int,
        record: In_contra,
        anchors: Tuple[Any] | Sequence[Tuple[Any]] = (),
        *,
        stream: str = DEFAULT,
    ) -> None:
        """Send to one task of a direct stream. Raises BadEmit if it does not subscribe."""

    def ack(self, tuple: Tuple[Any]) -> None:
        """This bolt is done with `tuple`."""

    def fail(self, tuple: Tuple[Any], reason: str | BaseException = "") -> None:
        """`tuple` cannot be processed: its spout hears why and where, at once.

        An exception is told as if the `execute` of this tuple had raised it.
        """

    def reset_timeout(self, tuple: Tuple[Any]) -> None:
        """Give the trees of `tuple` a full timeout again, from when the spout hears of it."""


class SpoutCollector(Protocol[In_contra]):
    """A manual spout's hands. Storm: org.apache.storm.spout.SpoutOutputCollector."""

    def emit(self, record: In_contra, message_id: Any = None, *, stream: str = DEFAULT) -> None:
        """Send `record`. With a message id its tree is tracked, and ack or fail follows."""

    def emit_direct(
        self, task: int, record: In_contra, message_id: Any = None, *, stream: str = DEFAULT
    ) -> None:
        """Send to one task of a direct stream. Raises BadEmit if it does not subscribe."""

    def finish(self) -> None:
        """There will never be another record: the topology may end once all is acked."""


class Spout(Generic[Out_co]):
    """A source: write `records` (simple), `tables` (columns) or `next_tuple` (manual).

    For logs with offsets there is LogSpout.

    What one of them raises, or `open`, stops this task alone: it is tried again after a back-off,
    and quarantined in the end. What `ack`, `fail` and `close` raise is told, and the task goes on.
    Nothing here may block. Of `records` and `tables` the framework names, keeps and replays each
    record; `next_tuple` emits with message ids of its own, and may say `replay = False`.
    Storm: org.apache.storm.spout.ISpout.
    """

    emits: Any = None  # record type or field names, when only the instance knows, not its class
    streams: ClassVar[Mapping[str, Any]] = {}  # further streams: id → record type or field names
    tick_s: float | None = None  # as Bolt.tick_s
    replay: bool = True  # False is for `next_tuple` and `poll`: they emit again what failed, or not

    def open(self, context: Context) -> None:
        """Called once per task, before the first record."""

    def records(self) -> Iterator[Out_co | None]:
        """Yield record after record; None for "nothing now"; return when there is no more.

        Message ids are 0, 1, 2 … in the order of the records. A task that is started again, or
        whose source has raised, goes on after the records that are settled, in an iterator that is
        asked for anew and passed over so far: it must give the same records in the same order.
        """
        raise NotImplementedError

    def tables(self) -> Iterator[pa.Table | None]:
        """As `records`, many at a time: an Arrow table with the fields as columns.

        Each row is a record with a tree of its own; message ids count rows, also where a task that
        is started again goes on.
        """
        raise NotImplementedError

    def next_tuple(self, out: SpoutCollector[Any]) -> None:
        """Emit what is there now, if anything, and return. Asked again while room is left.

        If it raises, what it has emitted is sent, and the same spout is asked again later. Where a
        task that is started again begins is up to `open`: keep what `ack` says where the source is
        (offsets, rows marked as done). What was open when it died is not emitted again.
        """
        raise NotImplementedError

    def tick(self) -> None:
        """Called every `tick_s` of the declaration; nothing can be emitted here.

        The times are exact: the first one `tick_s` after the start, each next one `tick_s` later,
        however late this one was. What was missed meanwhile is left out, not made up for.
        """

    def ack(self, message_id: Any) -> None:
        """All that came of the record is processed, or it is safely among the dead letters."""

    def fail(self, message_id: Any, failure: Failure) -> None:
        """The record's tree failed.

        It is in line to be emitted again, by the spout's Retry, whose attempts `failure.attempt`
        may exceed: deaths do not count. With `next_tuple` and `replay = False` that is up to you.
        """

    def activate(self) -> None:
        """Called after `open`, and when a topology that was deactivated is activated again."""

    def deactivate(self) -> None:
        """Called when the topology is deactivated: nothing is asked until `activate`.

        ack and fail go on. Storm: org.apache.storm.spout.ISpout.
        """

    def snapshot(self) -> Any:
        """Optional, of `next_tuple`: all that this task must know to go on in another process.

        Called before `close` when a rebalance moves the task; any value that pickle can carry.
        """
        raise NotImplementedError

    def restore(self, state: Any) -> None:
        """What `snapshot` has returned elsewhere. Called after `open`."""
        raise NotImplementedError

    def close(self) -> None:
        """Called when the topology stops. Not called when the process is killed."""

    def figures(self) -> Mapping[str, float]:
        """What else there is to see of this task, by name; asked a few times a second.

        Names with a slash, such as `topic[3]/lag`, are details: they stand in `--json` alone.
        """
        return {}

    def result(self) -> Any:
        """What `Run.results(component)` returns for this task, asked before the topology stops."""
        return None


class Bolt(Generic[In_contra, Out_co]):
    """A processing step with state. Write `process` (automatic) or `execute` (manual).

    Storm: org.apache.storm.task.IBolt, org.apache.storm.topology.IBasicBolt.
    """

    emits: Any = None  # record type or field names, when only the instance knows, not its class
    streams: ClassVar[Mapping[str, Any]] = {}  # further streams: id → record type or field names
    tick_s: float | None = None  # how often `tick` is called where the declaration does not say

    def check_input(self, schema: Schema) -> None:
        """Called at the declaration of an instance, for each of its inputs.

        Raise RecordMismatch for records that this bolt can never use.
        """

    def prepare(self, context: Context) -> None:
        """Called before the first record. If it raises, a new bolt is made and asked later; its
        records wait. After `task_errors_max` times in a row the task is quarantined: they fail."""

    def process(self, record: In_contra) -> Iterable[Out_co | OnStream] | None:
        """Yield = emit, anchored to `record`; return = ack; raise = fail with the reason.

        What was yielded before an exception is not sent.
        """
        raise NotImplementedError

    def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
        """Storm's own control: emit with anchors; ack or fail each tuple once, now or later.

        An exception fails `tuple`, even if this call has acked it; a fail before it stands. What
        was emitted by then is sent all the same.
        """
        raise NotImplementedError

    def tick(self) -> Iterable[Out_co | OnStream] | None:
        """Called every `tick_s` of the declaration, between two batches; times as in Spout.tick.

        What it yields is sent without anchors: nobody follows it (nor Storm's tick tuples). A
        manual bolt may also use the collector that `execute` was handed: emit with anchors it
        holds, ack, fail. While a receiver has no room the tick waits, `tick_s` at most.
        Storm: topology.tick.tuple.freq.secs, in whole seconds.
        """
        return None

    def flush(self) -> None:
        """Called after each batch of inputs, before their acks leave: make durable what you wrote.

        If it raises nothing is sent, and the whole batch fails, with all that it has emitted for.
        """

    def snapshot(self) -> Any:
        """Optional: all that this task must know to go on in another process.

        Called before `cleanup` when a rebalance moves the task; any value that pickle can carry.
        A class without it stays where it is.
        """
        raise NotImplementedError

    def restore(self, state: Any) -> None:
        """What `snapshot` has returned elsewhere. Called after `prepare`."""
        raise NotImplementedError

    def cleanup(self) -> None:
        """Called when the topology stops. Not called when the process is killed."""

    def figures(self) -> Mapping[str, float]:
        """As Spout.figures."""
        return {}

    def result(self) -> Any:
        """What `Run.results(component)` returns for this task, asked before the topology stops."""
        return None


@dataclass(frozen=True)
class Derived:
    """What a batch bolt makes of a table: output rows and, for each, the input row it came from.

    `rows` has m rows; `parents` has shape (m,), integers in [0, number of input rows).
    """

    rows: pa.Table
    parents: np.ndarray[Any, Any]


class BatchBolt(Generic[In_contra, Out_co]):
    """A step on Arrow columns: Arrow speed, still tracked per tuple. One table per call."""

    tick_s: float | None = None  # as Bolt.tick_s

    def prepare(self, context: Context) -> None:
        """Called once per task, before the first table."""

    @abstractmethod
    def process(self, table: pa.Table) -> Derived | None:
        """Make rows of rows: `table` has the input's fields as columns.

        None: all rows are done and made nothing. If it raises, every row of the table fails.
        """

    def tick(self) -> pa.Table | None:
        """As Bolt.tick; a table goes out without anchors."""
        return None

    def flush(self) -> None:
        """As Bolt.flush."""

    def snapshot(self) -> Any:
        """As Bolt.snapshot."""
        raise NotImplementedError

    def restore(self, state: Any) -> None:
        """As Bolt.restore."""
        raise NotImplementedError

    def cleanup(self) -> None:
        """As Bolt.cleanup."""

    def result(self) -> Any:
        """As Bolt.result."""
        return None


class BatchFunction(Protocol):
    """What `@batch` makes of a function; a plain function of a record has no such mark."""

    __sunshower_batch__: bool

    def __call__(self, table: pa.Table, /) -> Derived | None: ...


def batch(function: Callable[[pa.Table], Derived | None]) -> BatchFunction:
    """Mark a function `pa.Table → Derived | None` as a batch bolt."""
    function.__sunshower_batch__ = True  # type: ignore[attr-defined]
    return cast("BatchFunction", function)
