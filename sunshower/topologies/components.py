"""The classes a user writes, spouts and bolts, and the objects that their methods receive."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, cast

from sunshower.arguments import FUNCTION, checked
from sunshower.clock import Clock, SystemClock
from sunshower.errors import TopologyError
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
    """Do nothing: the run has no event log."""


def ask_nothing(at_s: float) -> None:
    """Do nothing: this is not the context of a spout."""


@dataclass(frozen=True)
class Context:
    """The position of a task in its topology. `index` counts the tasks of one component from 0.

    `clock` is the clock of the topology: code that uses it instead of the machine's runs unchanged
    in a simulator, where hours pass in a second.
    """

    topology: str
    component: str
    task: int
    index: int
    parallelism: int
    tasks: Mapping[str, Sequence[int]] = field(default_factory=dict)  #: component id → task ids
    committed: int = 0  #: records settled before a restart, which the task skips
    clock: Clock = field(default_factory=SystemClock, compare=False, repr=False)
    generated_stages: bool = field(default=True, compare=False, repr=False)
    tell: Callable[[Any, Any], None] = field(default=tell_nobody, compare=False, repr=False)
    note: Callable[[Any, Any], None] = field(default=tell_nobody, compare=False, repr=False)
    ask: Callable[[float], None] = field(default=ask_nothing, compare=False, repr=False)

    def wake(self, after_s: float = 0.0) -> None:
        """Let the spout of this task be asked for records at once, instead of at its next poll.

        Any thread may call it, such as one that waits for a connection. With `after_s`, which only
        the spout's own code may give while it is asked, it is asked again after so many seconds at
        the latest: for a source that knows when its next record is due.
        """
        self.ask(self.clock.now() + after_s if after_s > 0 else -inf)

    def wrote(self, key: Any, value: Any = None) -> None:
        """Report that this task has just written to a file, a database or a counter.

        The event log of an experiment keeps it, at once and in order, to check that no write is
        missing or duplicated; without an event log this does nothing. Both are plain values, such
        as an id and a count.
        """
        self.tell(key, value)

    def noted(self, event: str, **facts: Any) -> None:
        """Add an event that is no write to the event log of an experiment. No check uses it. Facts
        are plain values."""
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
    """The output of a manual bolt. Storm: org.apache.storm.task.OutputCollector.

    A second ack or fail of one tuple, and an emit anchored to a settled tuple, raise AlreadySettled
    at once (Storm corrupts the XOR of the tree, which then times out).

    Any thread may call it. A call of another thread than the task's is checked at once, and carried
    out by the task's thread, after all calls that have returned before. It raises ProtocolError
    once the task is closed, and in virtual time unless the task's code waits for the thread.
    """

    def emit(
        self,
        record: In_contra,
        anchors: Tuple[Any] | Sequence[Tuple[Any]] = (),
        *,
        stream: str = DEFAULT,
    ) -> None:
        """Send `record` to the stream's subscribers, as part of the trees of all `anchors`.

        Without anchors it is untracked. The same tuple may be in `anchors` twice. Raises BadEmit
        for a record that does not fit or a stream that is not declared.
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
        """This bolt has processed `tuple`."""

    def fail(self, tuple: Tuple[Any], reason: str | BaseException = "") -> None:
        """`tuple` cannot be processed: its spout gets the reason and the place at once.

        An exception is reported as if the `execute` of this tuple had raised it.
        """

    def reset_timeout(self, tuple: Tuple[Any]) -> None:
        """Give the trees of `tuple` a full timeout again, once the spout gets the request."""


class SpoutCollector(Protocol[In_contra]):
    """The output of a manual spout. Storm: org.apache.storm.spout.SpoutOutputCollector.

    Any thread may call it, as a Collector. Other threads than the task's get BadEmit for an emit
    after `finish`, or when the topology drains.
    """

    def emit(self, record: In_contra, message_id: Any = None, *, stream: str = DEFAULT) -> None:
        """Send `record`. With a message id its tree is tracked, and ack or fail follows."""

    def emit_direct(
        self, task: int, record: In_contra, message_id: Any = None, *, stream: str = DEFAULT
    ) -> None:
        """Send to one task of a direct stream. Raises BadEmit if it does not subscribe."""

    def finish(self) -> None:
        """Declare that no record will follow: the topology may end once all are acked."""


class Spout(Generic[Out_co]):
    """A source: write `records` (simple), `tables` (columns) or `next_tuple` (manual).

    For logs with offsets there is LogSpout.

    An error of these methods, or of `open`, affects this task alone: it is retried after a
    back-off, and finally quarantined. Errors of `ack`, `fail` and `close` are reported, and the
    task continues. No method may block. The framework numbers, keeps and replays each record of
    `records` and `tables`; `next_tuple` emits with its own message ids, and may set
    `replay = False`. Storm: org.apache.storm.spout.ISpout.
    """

    emits: Any = None  #: record type or field names, if only the instance knows them
    streams: ClassVar[Mapping[str, Any]] = {}  #: further streams: id → record type or field names
    tick_s: float | None = None  #: as Bolt.tick_s
    replay: bool = True  #: False: `next_tuple` or `poll` decides itself what to replay
    event_time: Any = None  #: or a method: the event time of a record, for windows; None: its field

    def open(self, context: Context) -> None:
        """Called once per task, before the first record."""

    def records(self) -> Iterator[Out_co | None]:
        """Yield record after record; None for "nothing now"; return when there is no more.

        Message ids are 0, 1, 2 … in the order of the records. After a restart of the task, or an
        error of the source, the framework calls this again and skips the records that are settled:
        it must yield the same records in the same order.
        """
        raise NotImplementedError

    def tables(self) -> Iterator[pa.Table | None]:
        """As `records`, many at a time: an Arrow table with the fields as columns.

        Each row is a record with a tree of its own; message ids count rows, also after a restart.
        """
        raise NotImplementedError

    def next_tuple(self, out: SpoutCollector[Any]) -> None:
        """Emit what is available now, if anything, and return. Called again while credit is left.

        If it raises, what it has emitted is sent, and the same spout is called again later. `open`
        decides where a restarted task begins: store what `ack` reports at the source (offsets, rows
        marked as done). Records that were pending at a crash are not emitted again.
        """
        raise NotImplementedError

    def tick(self) -> None:
        """Called every `tick_s` of the declaration; nothing can be emitted here.

        The times are exact: the first one `tick_s` after the start, each next one `tick_s` later,
        however late this one was. Ticks that were missed meanwhile are skipped.
        """

    def ack(self, message_id: Any) -> None:
        """The whole tree of the record is processed, or the record is stored as a dead letter."""

    def fail(self, message_id: Any, failure: Failure) -> None:
        """The record's tree failed.

        The spout's Retry schedules the replay. `failure.attempt` may exceed its attempts, because
        crashes do not count. With `next_tuple` and `replay = False` the replay is up to you.
        """

    def activate(self) -> None:
        """Called after `open`, and when a topology that was deactivated is activated again."""

    def deactivate(self) -> None:
        """Called when the topology is deactivated: no record is requested until `activate`.

        ack and fail continue. Storm: org.apache.storm.spout.ISpout.
        """

    def drain(self) -> None:
        """Optional, for `next_tuple`: called when the topology drains, once, after `open`.

        No further record is requested. ack, fail and replays continue, and `close` follows.
        """

    def snapshot(self) -> Any:
        """Optional, for `next_tuple`: return the state that this task needs in another process.

        Called before `close` when a rebalance moves the task; any value that can be pickled.
        """
        raise NotImplementedError

    def restore(self, state: Any) -> None:
        """Receive what `snapshot` returned in another process. Called after `open`."""
        raise NotImplementedError

    def close(self) -> None:
        """Called when the topology stops. Not called when the process is killed."""

    def figures(self) -> Mapping[str, float]:
        """Return further figures of this task by name; called a few times a second.

        Names with a slash, such as `topic[3]/lag`, are details: only `--json` shows them.
        """
        return {}

    def result(self) -> Any:
        """Return this task's part of `Run.results(component)`; called before the topology stops."""
        return None


class Bolt(Generic[In_contra, Out_co]):
    """A processing step with state. Write `process` (automatic) or `execute` (manual).

    Storm: org.apache.storm.task.IBolt, org.apache.storm.topology.IBasicBolt.
    """

    emits: Any = None  #: record type or field names, if only the instance knows them
    streams: ClassVar[Mapping[str, Any]] = {}  #: further streams: id → record type or field names
    tick_s: float | None = None  #: seconds between ticks, unless the declaration has tick_s
    writes_outside = False  #: whether it writes outside the topology, so that no preview may run it

    def check_input(self, schema: Schema) -> None:
        """Called at the declaration, for each input, on the component's own copy of the instance.

        Raise RecordMismatch for records that this bolt can never process.
        """

    def prepare(self, context: Context) -> None:
        """Called before the first record. If it raises, it is called again later on a new bolt, and
        records wait. After `task_errors_max` errors in a row the task is quarantined: they fail."""

    def process(self, record: In_contra) -> Iterable[Out_co | OnStream] | None:
        """Yield = emit, anchored to `record`; return = ack; raise = fail with the reason.

        What was yielded before an exception is not sent.
        """
        raise NotImplementedError

    def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
        """Manual control as in Storm: emit with anchors; ack or fail each tuple once, now or later.

        An exception fails `tuple`, even if this call has acked it; an earlier fail keeps its
        reason. What was emitted before is sent.
        """
        raise NotImplementedError

    def tick(self) -> Iterable[Out_co | OnStream] | None:
        """Called every `tick_s` of the declaration, between two batches; times as in Spout.tick.

        What it yields is sent untracked, without anchors (like Storm's tick tuples). A manual bolt
        may also use the collector that `execute` received: emit with anchors it holds, ack, fail.
        While a receiver has no credit the tick waits, `tick_s` at most. Storm:
        topology.tick.tuple.freq.secs, in whole seconds.
        """
        return None

    def flush(self) -> None:
        """Called after each batch of inputs, before their acks are sent: make your writes durable.

        If it raises, nothing is sent, and the whole batch fails.
        """

    def snapshot(self) -> Any:
        """Optional: return the state that this task needs to continue in another process.

        Called before `cleanup` when a rebalance moves the task; any value that can be pickled. A
        class without it stays on its worker.
        """
        raise NotImplementedError

    def restore(self, state: Any) -> None:
        """Receive what `snapshot` returned in another process. Called after `prepare`."""
        raise NotImplementedError

    def cleanup(self) -> None:
        """Called when the topology stops. Not called when the process is killed."""

    def figures(self) -> Mapping[str, float]:
        """As Spout.figures."""
        return {}

    def result(self) -> Any:
        """Return this task's part of `Run.results(component)`; called before the topology stops."""
        return None


class Stateless:
    """A second base class of bolts and spouts without state that must move with their tasks. The
    spout emits tuples again that are unsettled when a task moves."""

    def snapshot(self) -> None:
        """Return nothing."""

    def restore(self, state: Any) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Derived:
    """The result of a batch bolt: output rows and, for each, the input row it came from.

    `rows` has m rows; `parents` has shape (m,), integers in [0, number of input rows).
    """

    rows: pa.Table
    parents: np.ndarray[Any, Any]


class BatchBolt(Generic[In_contra, Out_co]):
    """A bolt on Arrow columns, still tracked per tuple. One table per call."""

    tick_s: float | None = None  #: as Bolt.tick_s

    def prepare(self, context: Context) -> None:
        """Called once per task, before the first table."""

    @abstractmethod
    def process(self, table: pa.Table) -> Derived | None:
        """Compute output rows: `table` has the input's fields as columns.

        None: all rows are processed and emitted nothing. If it raises, all rows of the table fail.
        """

    def tick(self) -> pa.Table | None:
        """As Bolt.tick; a returned table is sent without anchors."""
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
    """The result of `@batch`: a function with a mark that plain functions do not have."""

    __sunshower_batch__: bool

    def __call__(self, table: pa.Table, /) -> Derived | None: ...


@checked(TopologyError, function=FUNCTION)
def batch(function: Callable[[pa.Table], Derived | None]) -> BatchFunction:
    """Mark a function `pa.Table → Derived | None` as a batch bolt."""
    try:
        function.__sunshower_batch__ = True  # type: ignore[attr-defined]
    except AttributeError:  # a builtin
        text = f"batch: {function!r:.200} cannot be marked; define a function"
        raise TopologyError(text) from None
    return cast("BatchFunction", function)
