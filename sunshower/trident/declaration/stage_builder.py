"""Stages under construction: methods of streams fill them, `GroupBuilder.freeze` finishes them.

A repartitioning begins a stage. Rows that no operator of a stage emits come from its spout or from
other stages.
Storm: org.apache.storm.trident.planner.GraphGrouper, TridentTopology.build.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

from sunshower.arguments import TASKS, check_all
from sunshower.config import NOTHING, RESOURCES, Resources
from sunshower.errors import ConfigError, DuplicateComponent, TopologyError
from sunshower.records import Schema
from sunshower.state.sqlite import SqliteFile
from sunshower.state.tree import MemoryForest, MemoryTree, Tree
from sunshower.state.zookeeper_client import ZooKeeperAccess
from sunshower.topologies.async_functions import check_call_time
from sunshower.topologies.operators.port import Operator, Passing
from sunshower.topologies.operators.stages import (
    FrozenNodes,
    StageBuilder,
    StageRows,
    drop_unread,
)
from sunshower.topologies.operators.states import StateKind
from sunshower.topologies.operators.steps import FunctionOperator
from sunshower.topologies.operators.totals import Persist
from sunshower.topologies.operators.updates import merged_lineage, update_schema
from sunshower.topologies.operators.windows.event_times import TimeField
from sunshower.topologies.outputs import DirectStream, Streams, check_id
from sunshower.topologies.retry import DEAD_LETTERS, DeadLetter
from sunshower.topologies.sinks import JsonLines
from sunshower.topologies.streams import Stream
from sunshower.topologies.topology import Topology
from sunshower.trident.coordination.attempts import (
    BATCH,
    COMMIT,
    SUCCESS,
    Count,
    Part,
    counts_stream,
    letters_id,
    master_id,
)
from sunshower.trident.coordination.master_batch_coordinator import (
    GroupPlan,
    MasterBatchCoordinator,
)
from sunshower.trident.coordination.transactional_log import coordinator_path
from sunshower.trident.spouts.port import TridentSpout
from sunshower.trident.stages.persisting import BatchSlot
from sunshower.trident.stages.plan import (
    ByFields,
    ByGrouping,
    Group,
    RoundRobin,
    Sharing,
    Skip,
    Source,
    Stage,
    StageInput,
    StageOutput,
    ToAll,
    ToFirst,
    publishing,
)
from sunshower.trident.states.stored_map import CountedIn
from sunshower.trident.tasks.emitter_runner import EmitterRunner
from sunshower.trident.tasks.stage_bolt import StageBolt, WaitingStageBolt, phases

# ---- assemble ------------------------------------------------------------------------------------
# Assembles a batch group from ordinary components: one spout, and bolts.
#
#   $mastercoord-G ─$batch▶ the stage of each spout ─parts, $coord-G▶ further stages
#                  ─$commit▶ stages that commit     ─$success▶ stages of spouts, and that publish
#
# As in Storm: see org.apache.storm.trident.topology.TridentTopologyBuilder


def assemble(topology: Topology, group: Group) -> None:
    """Declare the components of a group. Raises TopologyError for a group without a spout, for
    stages that form a cycle, and for an untracked topology."""
    sources = [stage.source for stage in group.stages if stage.source is not None]
    where = f"topology {topology.id!r}, batch group {group.id!r}"
    if not sources:
        raise TopologyError(f"{where}: it has no spout; begin a stream with one")
    if not topology.config.tracked:
        raise TopologyError(f"{where}: with ackers=0 batches cannot be tracked; remove ackers=0")
    spouts = {source.id: source.spout for source in sources}
    own_bolts = {stage.id for stage in group.stages if not stage.leaves}
    plan = GroupPlan(
        group.id,
        spouts,
        group.store,
        group.root,
        max_batches=group.max_batches,
        interval_s=group.interval_s,
        skip=group.skip,
        bolts=frozenset(own_bolts),
        ends_windows=frozenset(source.id for source in sources if source.ends_windows),
    )
    master = topology.spout(master_id(group.id), MasterBatchCoordinator(plan), fields=())
    phases_of = phases(group.stages)
    waits = any(stage.waits for stage in group.stages)
    config = topology.config
    timeout_s = None if waits else min(config.message_timeout_s, config.block_max_s)
    for stage in group.stages:
        if stage.leaves:
            continue
        for node in stage.nodes:
            if isinstance(node.operator, FunctionOperator) and node.operator.limits is not None:
                limit_s = topology.config.block_max_s
                check_call_time(node.operator.limits, limit_s, f"{where}, stage {stage.id!r}")
        begin, emitter = stage.source, None
        if begin is not None:
            emitter = EmitterRunner(begin, group.store, group.root, timeout_s, group.interval_s)
        kind = WaitingStageBolt if stage.waits else StageBolt
        single = _is_single(group, stage)
        executor = kind(group.id, stage, phases_of[stage.id], group.max_batches, emitter, single)
        topology.bolt(
            stage.id,
            executor,
            (),
            stage.parallelism,
            fields=(),
            streams=_streams(group, stage),
            resources=stage.resources,
        )
    for stage in group.stages:
        _connect(topology, group, stage, master)
    if group.skip.dead_letters is not None:
        letters = [Stream[Any](topology, source.id, DEAD_LETTERS).shuffle() for source in sources]
        topology.bolt(letters_id(group.id), JsonLines(group.skip.dead_letters), letters)


def _is_single(group: Group, stage: Stage) -> bool:
    """Whether all rows of a stage go to its first task."""
    outputs = [output for other in group.stages for output in other.outputs]
    return any(
        output.target == stage.id and isinstance(output.sharing, ToFirst) for output in outputs
    )


def _streams(group: Group, stage: Stage) -> Streams:
    parts = replace(Schema.of(Part), classes=group.classes)
    streams: dict[str, Any] = {output.stream: DirectStream(parts) for output in stage.outputs}
    if any(output.counted for output in stage.outputs):
        streams[counts_stream(group.id)] = DirectStream(Count)
    if stage.source is not None and group.skip.dead_letters is not None:
        streams[DEAD_LETTERS] = DeadLetter
    return streams


def _connect(topology: Topology, group: Group, stage: Stage, master: Stream[Any]) -> None:
    if stage.source is not None:
        master.stream(BATCH).all().into(stage.id)
    if stage.receives_success:
        master.stream(SUCCESS).all().into(stage.id)
    if stage.commits:
        master.stream(COMMIT).all().into(stage.id)
    for arriving in stage.inputs:
        Stream[Any](topology, arriving.stage, arriving.stream).direct().into(stage.id)
    if stage.leaves:
        return
    for feeder in dict.fromkeys(arriving.stage for arriving in stage.inputs):
        Stream[Any](topology, feeder, counts_stream(group.id)).direct().into(stage.id)


# ---- store places --------------------------------------------------------------------------------
# Where a batch group stores its progress: values that open a store in each task.
#
# Calling one opens a client; it raises StoreUnreachable if it cannot connect.
#
# Storm: org.apache.storm.trident.topology.state.TransactionalState (only in ZooKeeper).


@dataclass(frozen=True)
class InSqlite(SqliteFile):
    """Stores progress in a SQLite file, which all processes of the topology must share. Opening it
    on another machine than the one where it was declared raises ConfigError."""

    instead = "give InZooKeeper"

    @property
    def continues(self) -> bool:
        return self.path.exists()

    def __call__(self) -> Tree:
        from sunshower.state.sqlite_tree import SqliteTree

        return SqliteTree(str(self.path))


@dataclass(frozen=True)
class InZooKeeper(ZooKeeperAccess):
    """Stores progress in ZooKeeper. See ZooKeeperAccess for `digest` and `tls`."""

    def __call__(self) -> Tree:
        from sunshower.state.zookeeper_tree import ZooKeeperTree

        return ZooKeeperTree.of(self)


@dataclass(frozen=True)
class InMemory:
    """Stores progress in this process, for topologies that run in it alone, as in the simulator."""

    forest: MemoryForest = field(default_factory=MemoryForest, compare=False)

    def __post_init__(self) -> None:
        check_all(self, {}, "InMemory: ")

    @property
    def continues(self) -> bool:
        return bool(self.forest.nodes)

    def __call__(self) -> Tree:
        return MemoryTree(self.forest)

    def __deepcopy__(self, memo: Any) -> InMemory:
        return self  # copies of a declaration share their store

    def __reduce__(self) -> Any:
        raise ConfigError(
            "a store in memory cannot be shared by several processes: give "
            'store=InSqlite("batches.db") or InZooKeeper("zk:2181")'
        )


# ---- stage builder -------------------------------------------------------------------------------


class StreamProgram:
    """All batch groups of one topology. It declares their components when the topology is built."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.groups: dict[str, GroupBuilder] = {}
        self.states: dict[str, str] = {}  # name → the declaration that writes it
        self.built = False

    def finish(self) -> None:
        """Build the components of all groups; called by the topology."""
        self.built = True
        for group in self.groups.values():
            assemble(self.topology, group.freeze())

    def reopen(self) -> None:
        self.built = False

    def reduce_to(self, components: Collection[str]) -> None:
        """Leave out what no stage of these bolts depends on, and where progress and dead letters
        are stored."""
        stages = [stage for group in self.groups.values() for stage in group.stages]
        leaving = [stage for stage in stages if stage.leaves and stage.name in components]
        drop_unread(stages, [rows for stage in leaving for rows in stage.nodes])
        for id, group in [*self.groups.items()]:
            group.stages = [stage for stage in group.stages if stage.nodes or stage.arrivals]
            group.store, group.skip = InMemory(), Skip(attempts=1)
            if not group.stages:
                del self.groups[id]

    def check_open(self, where: str) -> None:
        if self.built:
            raise TopologyError(
                f"{where}: this stream is used after its topology was built; declare all of it "
                "before the topology is run, described or submitted"
            )

    def keep_state(self, name: str, where: str) -> None:
        """Register a state's name. Raises DuplicateComponent if it is taken, TopologyError if
        invalid. Names that differ only in case are equal, as for tables in SQLite."""
        check_id(name, where)
        known = next((state for state in self.states if state.lower() == name.lower()), None)
        if known is not None:
            raise DuplicateComponent(
                f"{where}: there is a state {known!r} already, of {self.states[known]}; a state "
                "has one place that writes it: give this one another name= (not in case alone), or "
                "merge the streams"
            )
        self.states[name] = where


def is_uneven(rows: StageRows[BatchStage]) -> bool:
    """Whether another attempt may send these rows to other tasks: they were distributed
    round-robin in arrival order."""
    if rows.sharing is not None:
        return isinstance(rows.sharing, RoundRobin)
    return any(map(is_uneven, rows.origins))


@dataclass(eq=False)
class BatchStage(StageBuilder):
    """A stage of batches; `root` is the spout that its first rows come from."""

    group: GroupBuilder
    root: str
    parallelism: int = 1
    resources: Resources = NOTHING  # of each task
    spout: TridentSpout | None = None
    name: str | None = None
    leaves: bool = False  # as Stage.leaves
    spout_rows: StageRows[BatchStage] | None = None
    ends_windows: bool = False  # as Source.ends_windows
    time: TimeField | None = None  # as Source.time

    def __post_init__(self) -> None:
        TASKS.check(f"{self.where('')}: parallelism", self.parallelism, TopologyError)
        RESOURCES.check(f"{self.where('')}: resources", self.resources, TopologyError)
        self.group.program.check_open(self.where(""))
        self.group.stages.append(self)

    def where(self, word: str) -> str:
        """The location of a declaration, for error messages."""
        topology = self.group.program.topology.id
        return f"topology {topology!r}, batches {self.root!r}" + (f", {word}" if word else "")

    def emit(self, schema: Schema) -> StageRows[BatchStage]:
        """The rows of the spout of this stage."""
        self.spout_rows = StageRows(self, schema)
        self.arrivals.append(self.spout_rows)
        return self.spout_rows

    def add(
        self, operator: Operator, schema: Schema, *inputs: Sequence[StageRows[BatchStage]]
    ) -> StageRows[BatchStage]:
        """As StageBuilder.add. What it emits varies if the operator depends on which rows come to
        one task, and that may vary."""
        self.group.program.check_open(self.where(type(operator).__name__.lower()))
        emitted = super().add(operator, schema, *inputs)
        emitted.varies = any(
            rows.varies or (is_uneven(rows) and not operator.by_row) for rows in emitted.origins
        )
        return emitted

    def receive(
        self, rows: Sequence[StageRows[BatchStage]], sharing: Sharing
    ) -> StageRows[BatchStage]:
        """Let other stages send rows to this one."""
        origins = tuple(
            origin.stage.add(Passing(), origin.schema, [origin])
            if origin.sharing is not None
            else origin
            for origin in rows
        )
        varies = any(origin.varies for origin in origins)
        arrival = StageRows(self, rows[0].schema, None, origins, sharing=sharing, varies=varies)
        arrival.lineage = merged_lineage([origin.lineage for origin in origins])
        if arrival.lineage is not None and isinstance(sharing, ToAll | ByGrouping):
            word = "broadcast" if isinstance(sharing, ToAll) else "partition"
            arrival.lineage = replace(arrival.lineage, blocked=f"{word}(…)")
        self.arrivals.append(arrival)
        for origin in origins:
            origin.arrivals.append(arrival)
        return arrival

    def feeders(self) -> Iterator[BatchStage]:
        """The stages that feed this one directly; a stage may occur several times."""
        return (origin.stage for arrival in self.arrivals for origin in arrival.origins)

    def classes(self) -> Iterator[type]:
        """The Enums and record types that its rows may hold."""
        for rows in [*self.arrivals, *self.nodes]:
            yield from rows.schema.classes

    def upstream(self) -> set[BatchStage]:
        """All stages that feed this one, directly or not, and itself."""
        stages: set[BatchStage] = set()
        frontier = [self]
        while frontier:
            if (stage := frontier.pop()) not in stages:
                stages.add(stage)
                frontier += stage.feeders()
        return stages


class _Connection(NamedTuple):
    """The stream of one origin to another stage."""

    origin: StageRows[BatchStage]
    arrival: StageRows[BatchStage]
    stream: str


@dataclass(eq=False)
class GroupBuilder:
    """Spouts and stages whose batches have the same txids. None: the option was not given."""

    program: StreamProgram
    id: str
    store: Callable[[], Tree] | None = None
    max_batches: int | None = None
    interval_s: float | None = None
    skip: Skip | None = None
    stages: list[BatchStage] = field(default_factory=list)

    def freeze(self) -> Group:
        """The plan that `assemble` builds. Raises DuplicateComponent for names that are used
        twice, TopologyError for a state that cannot undo a skipped batch."""
        used = [stage for stage in self.stages if stage.nodes or stage.spout is not None]
        feeders = {stage: dict.fromkeys(stage.feeders()) for stage in used}
        stages = list(TopologicalSorter(feeders).static_order())
        ids = self._ids(used)
        connections = _connections(stages, ids)
        file = Path(f"{self.program.topology.id}.batches.db").absolute()
        group = Group(
            self.id,
            tuple(_frozen(stage, ids, connections) for stage in stages),
            self.store or InSqlite(file),
            max_batches=self.max_batches or 1,
            interval_s=self.interval_s or 0.0,
            skip=self.skip or Skip(),
            classes=tuple(dict.fromkeys(kind for stage in used for kind in stage.classes())),
        )
        spouts = [stage.id for stage in group.stages if stage.source is not None]
        counted = CountedIn(group.store, tuple(coordinator_path(group.root, id) for id in spouts))
        for operator in (node.operator for stage in group.stages for node in stage.nodes):
            if (publisher := publishing(operator)) is not None:
                publisher.counted = counted
            if isinstance(operator, Persist):
                slot = operator.slot
                assert isinstance(slot, BatchSlot), f"{slot!r} is no state of batches"
                slot.counted = counted
                self._check_skip(group.skip, slot)
        return group

    def _check_skip(self, skip: Skip, slot: BatchSlot) -> None:
        """Raise TopologyError for a state that would keep what a skipped batch has written."""
        kind, puts_aside = slot.factory.kind, skip.dead_letters is not None
        if puts_aside and slot.exactly_once and kind is not StateKind.OPAQUE:
            raise TopologyError(
                f"topology {self.program.topology.id!r}, batches {self.id!r}: state {slot.name!r} "
                f"is of kind {kind.value}, so what an attempt has written stays, also when the "
                "batch is skipped after all: its rows would count and be dead letters. Take a "
                "state of kind opaque, or leave dead_letters out of Skip"
            )

    def _ids(self, stages: Sequence[BatchStage]) -> dict[BatchStage, str]:
        """Stage ids: the spout's id, the user's name, or the root's id with a number."""
        ids: dict[BatchStage, str] = {}
        numbers: Counter[str] = Counter()
        for stage in stages:
            numbers[stage.root] += 1
            numbered = stage.root if stage.spout else f"{stage.root}-{numbers[stage.root]}"
            ids[stage] = stage.name or numbered
        twice = [id for id, times in Counter(ids.values()).items() if times > 1]
        if twice:
            raise DuplicateComponent(
                f"topology {self.program.topology.id!r}: several stages are called {twice[0]!r}; "
                'give them different names, as in .named("totals")'
            )
        return ids


def _connections(stages: Sequence[BatchStage], ids: dict[BatchStage, str]) -> list[_Connection]:
    """A stream for each connection of two stages: `to-<target>`, numbered from the second."""
    connections: list[_Connection] = []
    numbers: Counter[tuple[BatchStage, BatchStage]] = Counter()
    for stage in stages:
        for arrival in (rows for rows in stage.arrivals if rows.readers):
            for origin in arrival.origins:
                numbers[origin.stage, stage] += 1
                number = numbers[origin.stage, stage]
                suffix = "" if number == 1 else f"-{number}"
                connections.append(_Connection(origin, arrival, f"to-{ids[stage]}{suffix}"))
    return connections


def _of_updates(sharing: Sharing, schema: Schema) -> Sharing:
    """How updates are distributed instead of their rows, on the way to the tasks of their
    groups."""
    return ByFields(schema, ("origin",)) if isinstance(sharing, ByFields) else copy(sharing)


def _frozen(
    stage: BatchStage, ids: dict[BatchStage, str], connections: Sequence[_Connection]
) -> Stage:
    source, nodes = None, FrozenNodes(stage)
    if stage.spout is not None and (rows := stage.spout_rows) is not None:
        feeds, about = nodes.feeds(rows), (stage.ends_windows, stage.time)
        source = Source(ids[stage], stage.spout, rows.schema, feeds, *about)
    inputs, outputs = list[StageInput](), list[StageOutput]()
    for origin, arrival, stream in connections:
        updates = arrival.updates
        if arrival.stage is stage:
            schema = update_schema(arrival.schema) if updates else arrival.schema
            feeds = nodes.feeds(arrival)
            inputs.append(StageInput(ids[origin.stage], stream, schema, feeds))
        if origin.stage is stage and arrival.sharing is not None:
            schema = update_schema(origin.schema) if updates else origin.schema
            sharing = _of_updates(arrival.sharing, schema) if updates else copy(arrival.sharing)
            outputs.append(
                StageOutput(
                    nodes.place(origin, updates=updates),
                    stream,
                    target=ids[arrival.stage],
                    schema=schema,
                    sharing=sharing,  # each output distributes its rows by itself
                    counted=not arrival.stage.leaves,
                )
            )
    return Stage(
        ids[stage],
        stage.parallelism,
        nodes.nodes,
        source,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        leaves=stage.leaves,
        resources=stage.resources,
    )
