"""The plan of a batch group: stages, and the streams between them.

`declaration/stage_builder.py` makes it, and declares an ordinary spout and ordinary bolts for it.
Storm: org.apache.storm.trident.topology.TridentTopologyBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import PurePath
from typing import Any, Protocol, TypedDict, runtime_checkable

from sunshower.arguments import COUNT, check_all
from sunshower.config import NOTHING, Resources
from sunshower.errors import BadEmit
from sunshower.records import Schema
from sunshower.state.tree import Tree
from sunshower.topologies.graph import own_copy
from sunshower.topologies.groupings import CustomGrouping
from sunshower.topologies.operators.generated_stages import Feed, StageNode, row_chains
from sunshower.topologies.operators.port import Attempt, Emit, Operator, Rows
from sunshower.topologies.operators.schemas import rest_of
from sunshower.topologies.operators.steps import keys_of
from sunshower.topologies.operators.windows.event_times import TimeField
from sunshower.trident.coordination.attempts import SourceTime
from sunshower.trident.spouts.port import TridentSpout
from sunshower.trident.states.stored_map import CountedIn

# ---- port ----------------------------------------------------------------------------------------
# Operators of exactly-once batches that publish, or wait for work outside their task.
#
# The port of all operators is `sunshower/topologies/operators/port.py`.


class Publishing(Operator):
    """An operator that stages its output by txid and publishes it once the batch is committed.
    `succeeded` follows soon after the commit, but a crash may prevent the call. A later call then
    covers the batch, and a new task can ask `counted`, which `GroupBuilder.freeze` sets."""

    publishes: bool = True  # False: this one has nothing to publish
    writes_outside = True
    counted: CountedIn | None = None

    def succeeded(self, txid: int) -> None:
        """The batches up to `txid` are committed."""
        raise NotImplementedError


def publishing(operator: Operator) -> Publishing | None:
    """The operator, if it publishes."""
    return operator if isinstance(operator, Publishing) and operator.publishes else None


class Timed(Operator):
    """An operator that needs to know how far in event time what is upstream is at the end of the
    batch. If it holds rows back, it says how far it is itself: operators behind it follow that."""

    sends: str | None = None  # the name of its own time; None: its rows have the times upstream
    time: TimeField | None = None  # that of its rows, if it sends times; None: the clock
    has_times = True  # whether its rows may have event times
    silent_inputs = 0  # the first ones, if no rows are made of what they get

    def note_times(self, batch: Any, times: Mapping[str, SourceTime]) -> None:
        """Called before `finish`: those of all sources, and of operators upstream that send their
        own."""
        raise NotImplementedError

    def sent_time(self, batch: Any) -> SourceTime:
        """Called after `finish`, if it `sends`: how far it is in this task. What it emits in later
        batches is not before that; it has emitted all that is."""
        raise NotImplementedError


@runtime_checkable
class Waiting(Protocol):
    """An operator whose results come from outside its task, such as Spark. The task polls `ready`
    several times a second and processes other batches meanwhile. It resets the timeout of the
    batch's tree."""

    def ready(self, batch: Any, attempt: Attempt) -> bool:
        """Whether `finish` would return at once. Called repeatedly once `finish` may run; the first
        call starts the work. An exception fails the batch."""

    def give_up(self, batch: Any) -> None:
        """The attempt is over, finished or not: stop the work that was started for it."""


# ---- plan ----------------------------------------------------------------------------------------


Shares = list[tuple[int, Sequence[Any]]]  # index of a receiving task, its rows


class Sharing:
    """How the rows of an output are distributed among the tasks of the receiving stage."""

    def prepare(self, targets: int, index: int, senders: int) -> None:
        """Set the numbers of receiving and of sending tasks, and the index of the sending one."""
        self._targets = targets

    def split(self, txid: int, rows: Sequence[Any]) -> Shares:
        """The shares of tasks that get rows."""
        raise NotImplementedError


@dataclass(frozen=True)
class StageInput:
    """A stream of parts from another stage, and the nodes that read its rows."""

    stage: str
    stream: str
    schema: Schema
    feeds: tuple[Feed, ...]


@dataclass(frozen=True)
class StageOutput:
    """What one node (None: the stage's spout) sends to another stage, on its own stream."""

    node: int | None
    stream: str
    target: str
    schema: Schema
    sharing: Sharing
    counted: bool = True  # the target gets the number of parts; not where rows leave their batches


@dataclass(frozen=True)
class Source:
    """A batch spout, whose emitters are the first step of their stage."""

    id: str  # its name in the store, by which a later run continues; also its stage's id
    spout: TridentSpout
    schema: Schema
    feeds: tuple[Feed, ...]
    ends_windows: bool = False  # windows of time are downstream, which its end may end
    time: TimeField | None = None  # the event time of its rows, if these windows use it


@dataclass(frozen=True)
class Stage:
    """One bolt; in `nodes` each node comes after those it reads."""

    id: str
    parallelism: int
    nodes: tuple[StageNode, ...] = ()
    source: Source | None = None
    inputs: tuple[StageInput, ...] = ()
    outputs: tuple[StageOutput, ...] = ()
    leaves: bool = False  # an ordinary bolt, declared already, that takes rows out of batches
    resources: Resources = NOTHING  # of each task

    @property
    def commits(self) -> bool:
        """Whether the stage itself takes part in the commit phase."""
        source_commits = self.source is not None and self.source.spout.commits
        return source_commits or any(node.operator.commits for node in self.nodes)

    @property
    def receives_success(self) -> bool:
        """Whether it receives `$success`."""
        return self.source is not None or any(publishing(node.operator) for node in self.nodes)

    @property
    def row_chains(self) -> list[list[int]]:
        """The nodes whose functions become one."""
        feeds = [feed for arriving in self.inputs for feed in arriving.feeds]
        feeds += () if self.source is None else self.source.feeds
        return row_chains(self.nodes, feeds, [output.node for output in self.outputs])

    @property
    def waits(self) -> bool:
        """Whether one of its operators waits for work outside its task."""
        return any(isinstance(node.operator, Waiting) for node in self.nodes)


@dataclass(frozen=True)
class Skip:
    """What to do with a batch that has failed `attempts` times.

    With `dead_letters` None the topology halts with the cause. Otherwise the rows and the cause go
    to that file as JSON lines, and the batch is empty for all other components. States must then be
    opaque, to undo what an earlier attempt has written.
    """

    attempts: int = 5
    dead_letters: str | PurePath | None = None

    def __post_init__(self) -> None:
        check_all(self, {"attempts": COUNT}, "Skip: ")


@dataclass(frozen=True)
class Group:
    """Stages whose batches have the same txids, and the master that coordinates them."""

    id: str
    stages: tuple[Stage, ...]
    store: Callable[[], Tree]  # opens the store of the coordinator's and the spouts' progress
    root: str = "/transactional"  # a node for each spout. Storm: transactional.zookeeper.root
    max_batches: int = 1  # batches in progress. Storm: topology.max.spout.pending
    interval_s: float = 0.0  # least time between the beginnings of two batches
    skip: Skip = Skip()
    classes: tuple[type, ...] = ()  # the Enums and record types that the rows may hold


class TaskSettings(TypedDict, total=False):
    """The settings of the tasks of a stage, where a repartitioning begins it.

    - `parallelism`: the number of tasks, 1
    - `resources`: what each task requests of its node
    """

    parallelism: int
    resources: Resources


# ---- sharing -------------------------------------------------------------------------------------
# Repartitionings: how rows are distributed among the tasks of the next stage.
#
# Each sending task has its own object for each output. With `RoundRobin` the task of a row depends
# on the arrival order and may differ between attempts, so a transactional state behind it is
# refused. By fields it never differs; with a custom grouping that is up to the user. Storm:
# org.apache.storm.trident.Stream, its repartitioning operations.


class RoundRobin(Sharing):
    """Round-robin by row: no task ever gets more than one row more than another."""

    def prepare(self, targets: int, index: int, senders: int) -> None:
        self._targets, self._next = targets, index % targets

    def split(self, txid: int, rows: Sequence[Any]) -> Shares:
        targets, first = self._targets, self._next
        self._next = (first + len(rows)) % targets
        shares = (((first + turn) % targets, rows[turn::targets]) for turn in range(targets))
        return [share for share in shares if share[1]]


class InPairs(RoundRobin):
    """To the task of the same index, which is often in the same worker, if there are as many tasks
    as those that send; else round-robin."""

    def prepare(self, targets: int, index: int, senders: int) -> None:
        super().prepare(targets, index, senders)
        self._partner = index if targets == senders else None

    def split(self, txid: int, rows: Sequence[Any]) -> Shares:
        if self._partner is None:
            return super().split(txid, rows)
        return [(self._partner, rows)] if rows else []


@dataclass
class ByFields(Sharing):
    """Equal values of `fields` go to the same task, in every process and after every restart."""

    schema: Schema
    fields: tuple[str, ...]
    _find_all: Callable[[Any], list[int]] = field(init=False, repr=False, compare=False)

    def prepare(self, targets: int, index: int, senders: int) -> None:
        from sunshower.runtime.transport.routing import KeyTable

        self._targets = targets
        table = KeyTable(targets)
        self._find_all = table.find_all
        places = [self.schema.fields.index(name) for name in self.fields]
        self._of_tuple, self._of_object = itemgetter(*places), self.schema.key(self.fields)

    def split(self, txid: int, rows: Sequence[Any]) -> Shares:
        if self._targets == 1 or not rows:
            return [(0, rows)] if rows else []
        key = self._of_tuple if isinstance(rows[0], tuple | list) else self._of_object
        shares: list[list[Any]] = [[] for _ in range(self._targets)]
        for row, index in zip(rows, self._find_all(list(map(key, rows))), strict=True):
            shares[index].append(row)
        return [share for share in enumerate(shares) if share[1]]


class ToAll(Sharing):
    """All rows go to every task."""

    def split(self, txid: int, rows: Sequence[Any]) -> Shares:
        return [(index, rows) for index in range(self._targets)] if rows else []


class ToFirst(Sharing):
    """All rows go to the first task."""

    def split(self, txid: int, rows: Sequence[Any]) -> Shares:
        return [(0, rows)] if rows else []


class ByBatch(Sharing):
    """All rows of a batch go to one task, chosen round-robin by txid."""

    def split(self, txid: int, rows: Sequence[Any]) -> Shares:
        return [(txid % self._targets, rows)] if rows else []


@dataclass
class ByGrouping(Sharing):
    """A CustomGrouping chooses; it numbers the tasks 0, 1, 2 and so on."""

    grouping: CustomGrouping
    _chosen: CustomGrouping = field(init=False, repr=False, compare=False)

    def prepare(self, targets: int, index: int, senders: int) -> None:
        self._targets = targets
        self._chosen = own_copy(self.grouping, "a custom grouping")
        self._chosen.prepare(range(targets))

    def split(self, txid: int, rows: Sequence[Any]) -> Shares:
        shares: list[list[Any]] = [[] for _ in range(self._targets)]
        for row in rows:
            for index in self._chosen.choose(row):
                if not 0 <= index < self._targets:
                    raise BadEmit(
                        f"{type(self.grouping).__name__}.choose named task {index!r}; the tasks "
                        f"are 0 … {self._targets - 1}"
                    )
                shares[index].append(row)
        return [share for share in enumerate(shares) if share[1]]


# ---- joining -------------------------------------------------------------------------------------
# The join of two streams within a batch: rows with equal values of their key fields.
#
# Storm: org.apache.storm.trident.operation.impl.JoinerMultiReducer, with
# JoinOutFieldsMode.COMPACT.

Side = dict[tuple[Any, ...], list[tuple[Any, ...]]]  # key → the other values of its rows


class Join(Operator):
    """Emits rows (key, other fields of the left, other fields of the right). `left` is source 0 and
    `right` source 1. A left join emits left rows without a match, with None for each field of the
    right."""

    blocks_lineage = "a join within a batch"

    def __init__(
        self,
        left: tuple[Schema, Sequence[str]],
        right: tuple[Schema, Sequence[str]],
        out: Schema,
        *,
        keep_left: bool,
    ) -> None:
        self.sides = [(schema, tuple(on), rest_of(schema, on)) for schema, on in (left, right)]
        self.out, self.keep_left = out, keep_left

    def start(self, attempt: Attempt) -> tuple[Side, Side]:
        return {}, {}

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        schema, on, rest = self.sides[source]
        side: Side = batch[source]
        others = keys_of(schema, rest, rows) if rest else [()] * len(rows)
        keys = schema.keys(on, rows)
        for key, other in zip(keys if len(on) > 1 else zip(keys), others, strict=True):
            side.setdefault(key, []).append(other)

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        left, right = batch
        nothing = [(None,) * len(self.sides[1][2])] if self.keep_left else []
        joined = [
            (*key, *row, *other)
            for key, ones in left.items()
            for other in right.get(key, nothing)
            for row in ones
        ]
        if joined:
            emit(self.out.make(joined))
