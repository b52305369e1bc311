"""Stages while they are declared: rows, the operators that read them, and the nodes they become.

A repartitioning begins a stage. `StageBuilder` is what ordinary streams (`RecordStage`) and streams
of batches (`BatchStage` in `sunshower/trident/declaration/stage_builder.py`) have in common. Storm:
org.apache.storm.trident.planner.GraphGrouper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Protocol, Self, TypedDict, TypeVar

from sunshower.arguments import check_names
from sunshower.config import NOTHING, Resources
from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.topologies.async_functions import check_call_time, limits_of
from sunshower.topologies.graph import Component, Graph, StreamSpec
from sunshower.topologies.operators.aggregators import (
    AnyAggregator,
    CombinerAggregator,
    ReducerAggregator,
)
from sunshower.topologies.operators.compiled_stage import OperatorBolt
from sunshower.topologies.operators.generated_stages import Feed, StageNode
from sunshower.topologies.operators.joins.stream_join import JoinInput
from sunshower.topologies.operators.keyed.keyed_process import KeyedProcess
from sunshower.topologies.operators.port import Operator, Passing
from sunshower.topologies.operators.record_operators import PAIRS
from sunshower.topologies.operators.schemas import bound_aggregators, code_name
from sunshower.topologies.operators.state_slot import StateSlot
from sunshower.topologies.operators.states import StateFactory
from sunshower.topologies.operators.steps import FunctionOperator, RowFunction, TakeBranch
from sunshower.topologies.operators.totals import Persist, single, totals_operators
from sunshower.topologies.operators.updates import (
    Lineage,
    PlainRows,
    UpdatedTotals,
    check_replaces,
    merged_lineage,
    moved_origins,
    of_updates,
    totals_lineage,
    update_schema,
    updated_operators,
)
from sunshower.topologies.operators.windows.event_times import TimeField
from sunshower.topologies.operators.windows.ordered_process import OrderedProcess
from sunshower.topologies.operators.windows.window_operator import TimedProcess, WindowOperator
from sunshower.topologies.outputs import Columns

# ---- rows ----------------------------------------------------------------------------------------

B = TypeVar("B", bound="StageBuilder")


@dataclass(eq=False)
class StageRows(Generic[B]):
    """Rows that operators of `stage` can read, and what they make of them."""

    stage: B
    schema: Schema
    operator: Operator | None = None  # that emits them; None: a spout, or other stages
    origins: tuple[StageRows[B], ...] = ()  # what that operator reads, or what other stages send
    readers: list[tuple[StageRows[B], int]] = field(default_factory=list)  # and which input it is
    arrivals: list[StageRows[B]] = field(default_factory=list)  # in other stages
    lineage: Lineage | None = None  # if they follow from running totals
    updates: bool = False  # whether something reads them as updates
    # what lets its operator make updates of rows that are none; None: it needs those of its origins
    on_updates: Callable[[], None] | None = None
    # Of ordinary streams: the streams that they leave on, once something outside reads them.
    stream: str | None = None
    updates_stream: str | None = None
    # Of batches: how other stages distribute them, and whether another attempt may have other rows,
    # all tasks together.
    sharing: Any = None
    varies: bool = False

    @property
    def has_columns(self) -> bool:
        return self.operator is not None and self.operator.makes_tables

    def then(self, operator: Operator, schema: Schema) -> StageRows[B]:
        return self.stage.add(operator, schema, [self])

    def derivation(self) -> Iterator[StageRows[B]]:
        """These rows, and all that they are made of."""
        seen: dict[StageRows[B], None] = {}
        frontier = [self]
        while frontier:
            if (rows := frontier.pop()) not in seen:
                seen[rows] = None
                frontier += rows.origins
                yield rows

    def operators(self) -> Iterator[Operator]:
        """What emits these rows, and all operators of the stage that they reach."""
        if self.operator is not None:
            yield self.operator
        for reader, _ in self.readers:
            yield from reader.operators()

    def need_updates(self) -> None:
        """Let these rows, which follow from running totals, be updates."""
        if self.updates:
            return
        self.updates = True
        if self.on_updates is not None:
            self.on_updates()
        elif not isinstance(self.operator, Persist):
            for origin in self.origins:
                origin.need_updates()

    @property
    def reads_updates(self) -> bool:
        """Whether the operator that emits these rows reads updates, if there are any."""
        return self.updates or (self.operator is not None and self.operator.reads_updates)

    @property
    def shows(self) -> bool:
        """Whether something reads plain rows of these, if they are updates."""
        return (
            not self.updates
            or self.stream in self.stage.subscribed
            or any(rows.shows for rows in self.arrivals)
            or any(rows.shows if rows.updates else _shows(rows) for rows, _ in self.readers)
        )

    @property
    def is_read_plain(self) -> bool:
        """Whether something reads plain rows, or may do so."""
        return (
            self.stream is not None
            or any(not rows.updates for rows in self.arrivals)
            or any(not rows.reads_updates for rows, _ in self.readers)
        )


def _shows(rows: StageRows[Any]) -> bool:
    """Whether an operator makes plain rows of updates, or may let others do it."""
    if isinstance(rows.operator, JoinInput):
        return rows.operator.number > 0
    return not rows.reads_updates


# ---- builder -------------------------------------------------------------------------------------


@dataclass(eq=False)
class StageBuilder:
    """A stage that will be a bolt."""

    nodes: list[StageRows[Any]] = field(default_factory=list, init=False)  # that operators emit
    arrivals: list[StageRows[Any]] = field(default_factory=list, init=False)  # that none emits
    subscribed: frozenset[str | None] = field(default=frozenset(), init=False)  # streams of readers

    def add(
        self, operator: Operator, schema: Schema, *inputs: Sequence[StageRows[Self]]
    ) -> StageRows[Self]:
        """Add an operator that reads `inputs[i]` as its input i. Returns what it emits."""
        origins = tuple(rows for several in inputs for rows in several)
        lineage = merged_lineage([rows.lineage for rows in origins])
        emitted = StageRows(self, schema, operator, origins)
        emitted.lineage = lineage and lineage.behind(operator, schema)
        for number, several in enumerate(inputs):
            for rows in several:
                rows.readers.append((emitted, number))
        self.nodes.append(emitted)
        return emitted

    def add_input(
        self, emitted: StageRows[Self], number: int, several: Sequence[StageRows[Self]]
    ) -> None:
        """Let an operator that was added read further rows as its input `number`."""
        emitted.origins += tuple(several)
        for rows in several:
            rows.readers.append((emitted, number))


def drop_unread(stages: Sequence[StageBuilder], read: Iterable[StageRows[Any]]) -> None:
    """Remove from stages the rows, and the operators that emit them, of which nothing of `read` is
    made."""
    used = {rows for needed in read for rows in needed.derivation()}
    for stage in stages:
        stage.nodes = [rows for rows in stage.nodes if rows in used]
        stage.arrivals = [rows for rows in stage.arrivals if rows in used]
    for rows in used:
        rows.readers = [(reader, number) for reader, number in rows.readers if reader in used]
        rows.arrivals = [arrival for arrival in rows.arrivals if arrival in used]


class FrozenNodes:
    """The nodes of a stage as they will run, with those that make plain rows of updates."""

    def __init__(self, stage: StageBuilder) -> None:
        self._places: dict[tuple[int, bool], int] = {}  # (id of rows, as updates) → node
        emitted: list[tuple[Operator, StageRows[Any], bool]] = []

        def place(operator: Operator, rows: StageRows[Any], *, updates: bool) -> None:
            self._places[id(rows), updates] = len(emitted)
            emitted.append((operator, rows, updates))

        for rows in [*stage.arrivals, *stage.nodes]:
            if rows.operator is not None:
                place(_with_updates(rows.operator, rows), rows, updates=rows.updates)
            if rows.updates and rows.is_read_plain:
                place(PlainRows(), rows, updates=False)
        self.nodes = tuple(self._node(*node) for node in emitted)

    def feeds(self, rows: StageRows[Any]) -> tuple[Feed, ...]:
        """The inputs that read what arrives, or what an operator emits."""
        feeds, plain = self._readers(rows, updates=rows.updates), None
        if rows.updates:
            plain = self._places.get((id(rows), False))
        return feeds if plain is None else (*feeds, Feed(plain, 0))

    def place(self, rows: StageRows[Any], *, updates: bool = False) -> int | None:
        """The node that emits rows; None: no operator does."""
        return None if rows.operator is None else self._places[id(rows), updates]

    def _node(self, operator: Operator, rows: StageRows[Any], updates: bool) -> StageNode:
        if updates:
            schema = update_schema(rows.schema)
            return StageNode(operator, self.feeds(rows), schema, rows.updates_stream)
        feeds = self._readers(rows, updates=False)
        return StageNode(operator, feeds, rows.schema, rows.stream)

    def _readers(self, rows: StageRows[Any], *, updates: bool) -> tuple[Feed, ...]:
        return tuple(
            Feed(self._places[id(reader), reader.updates], number)
            for reader, number in rows.readers
            if updates == (rows.updates and reader.reads_updates)
        )


def _with_updates(operator: Operator, rows: StageRows[Any]) -> Operator:
    """An operator, or what does the same with updates if these are what it emits."""
    if not rows.updates or rows.on_updates is not None:
        return operator
    if isinstance(operator, Persist):
        operator.emits_updates, operator.shows = True, rows.shows
        return operator
    return of_updates(operator, rows.schema, shows=rows.shows)


# ---- ordinary stages -----------------------------------------------------------------------------


class Declarations(Protocol):
    """What a stream needs of its topology."""

    id: str

    @property
    def bolt(self) -> Callable[..., Any]: ...
    def component(self, id: str) -> Component: ...
    def unused_id(self, wish: str) -> str: ...
    def check_new(self, id: str, parallelism: int, where: str) -> None: ...
    def begin_stage(
        self,
        id: str,
        inputs: Sequence[Any],
        parallelism: int,
        resources: Resources = NOTHING,
    ) -> StageRows[RecordStage]: ...
    def declare_stream(self, component: str, spec: StreamSpec) -> None: ...
    def add_input(self, bolt: str, grouped: Any) -> None: ...
    def answer(self, stream: Any) -> None: ...


@dataclass
class WindowDraft:
    """What makes a stage a window: `operator` adds rows to it, and watermarks bring `ended`."""

    fields: Sequence[TimeField | None]  # of each input: its event time; None: the clock
    operator: WindowOperator
    ended: StageRows[RecordStage]
    take_late: Callable[[], StageRows[RecordStage]] | None = None  # None: there are none


class RecordStage(StageBuilder):
    """A stage of an ordinary stream, which will be the bolt `id`."""

    def __init__(self, id: str, schema: Schema, *, has_columns: bool) -> None:
        super().__init__()
        self.id = id
        self.input = self.add(Passing(tables=has_columns), schema)
        self.window: WindowDraft | None = None  # if the stage is one
        self.silent_inputs = 0  # the first ones, if no rows are made of their records
        self.is_awaited = False  # whether records of other inputs wait until these are read
        self.is_in_memory = False  # of a table: whether it is lost with its process
        self._words: Counter[str] = Counter()

    def end_by(
        self,
        field: TimeField | None,
        operator: WindowOperator,
        schema: Schema,
        late_schema: Schema | None = None,
    ) -> StageRows[RecordStage]:
        """Make this stage a window. Returns the rows of windows that have ended. `late_schema`: of
        late rows, if that is another one."""
        late = self.input.then(operator, late_schema or schema)
        ended = self.add(Passing(), schema)
        self.window = WindowDraft([field], operator, ended, lambda: late)
        return ended

    def join_by(
        self, fields: Sequence[TimeField | None], operator: WindowOperator, schema: Schema
    ) -> StageRows[RecordStage]:
        """Make this stage a join, whose operator makes (branch, record) of its rows: 0 for the
        joined ones, which watermarks bring, too, and 1 for the late ones. Returns the joined."""
        pairs = self.input.then(operator, PAIRS)
        joined = pairs.then(TakeBranch(0), schema)
        late = lambda: pairs.then(TakeBranch(1), schema)  # noqa: E731
        self.window = WindowDraft(fields, operator, pairs, late)
        return joined

    def process_by(self, operator: KeyedProcess) -> StageRows[RecordStage]:
        """Make this stage a process. Returns its rows, which watermarks bring, too, if it has
        timers. Those of records in order are brought by watermarks alone."""
        if isinstance(operator, OrderedProcess):
            return self.end_by(operator.event_time, operator, operator.schema, operator.reads)
        rows = self.input.then(operator, operator.schema)
        if isinstance(operator, TimedProcess):
            self.window = WindowDraft([operator.event_time], operator, rows)
        return rows

    @cached_property
    def late(self) -> StageRows[RecordStage]:
        """Of a window or a join: rows that came too late. Unless it is asked for, nothing reads
        them."""
        assert self.window is not None
        assert self.window.take_late is not None
        return self.window.take_late()

    def new_stream(self, word: str) -> str:
        """A stream id for what an operator emits: its word, numbered from the second."""
        self._words[word] += 1
        return word if self._words[word] == 1 else f"{word}-{self._words[word]}"

    def drop_unread(self) -> None:
        """Remove the functions whose rows no `subscribed` stream needs. What has a state may change
        that of another operator, so it stays."""
        streams = self.subscribed
        drop_unread(
            [self],
            [
                rows
                for rows in self.nodes
                if rows is self.input
                or rows.stream in streams - {None}
                or rows.updates_stream in streams - {None}
                or not isinstance(rows.operator, FunctionOperator)
            ],
        )

    def compiled(self) -> OperatorBolt:
        frozen, window = FrozenNodes(self), self.window
        if window is None:
            bolt = OperatorBolt(frozen.nodes)
        else:
            ended = frozen.place(window.ended, updates=window.ended.updates)
            bolt = OperatorBolt(frozen.nodes, window.operator, ended)
        self._check_calls(bolt)
        return bolt

    def _check_calls(self, bolt: OperatorBolt) -> None:
        """Raise TopologyError for calls without order which the stage would make for all rows of a
        batch, or whose failure would find a state changed."""
        for operator in self.input.operators():
            if not isinstance(operator, RowFunction) or operator.ordered:
                continue
            if bolt.keeps_state or operator not in bolt.steps:
                raise TopologyError(
                    f"stage {self.id!r}: {code_name(operator.function)} is "
                    "asynchronous(ordered=False), so it is the first function of a stage that "
                    "nothing else reads, or follows plain functions: put "
                    '.local_or_shuffle().stage("calls") before it'
                )


def check_call_times(graph: Graph) -> None:
    """Raise TopologyError for calls in order that may take longer than a task may be within one."""
    for bolt in graph.bolts:
        code, where = bolt.implementation, f"topology {graph.id!r}, bolt {bolt.id!r}"
        limits = code.call_limits if isinstance(code, OperatorBolt) else [limits_of(code)]
        for limit in limits:
            if limit is not None and limit.ordered:
                check_call_time(limit, graph.config.block_max_s, where)


# ---- totals stage --------------------------------------------------------------------------------


class TotalsSettings(TypedDict, total=False):
    """The settings of `aggregate` and `window`: where values are kept, and by how many tasks.

    - `state`: where they are; None: in the memory of their task, lost with its process
    - `parallelism`: the number of tasks, 1; another one takes a stored state over
    - `name`: of the bolt and of the state, by which a later run finds it
    - `resources`: what each task requests of its node
    """

    state: StateFactory | None
    parallelism: int
    name: str | None
    resources: Resources


class AnyStream(Protocol):
    """What a stage needs of the stream that it reads."""

    topology: Declarations
    component: str
    id: str

    @property
    def schema(self) -> Schema: ...
    @property
    def lineage(self) -> Lineage | None: ...
    def need_updates(self) -> None: ...
    def then(self, word: str, operator: Operator, schema: Schema) -> Any: ...
    def fields(self, *fields: str) -> Any: ...
    def global_(self) -> Any: ...


def totals_of(
    stream: AnyStream,
    by: Sequence[str],
    aggregators: Sequence[AnyAggregator],
    fields: Columns | None,
    settings: TotalsSettings,
) -> StageRows[RecordStage]:
    """Declare the totals of a stream, grouped by the fields `by`. Raises TopologyError."""
    where = location(stream, by, "aggregate")
    check_names(settings, TotalsSettings.__annotations__, where, TopologyError)
    bound, out = bound_aggregators(aggregators, stream.schema, by, fields, where)
    aggregator = single(bound, by, settings.get("parallelism", 1), where)
    id = free_id(stream.topology, settings, "-".join(aggregator.emits), where)
    if (lineage := stream.lineage) is not None:
        check_replaces(lineage, where)
        return _updated_totals(stream, by, aggregator, out, id, settings, where)
    slot = StateSlot(settings.get("state"), id, where)
    slot.by = by
    combine, operator = totals_operators(slot, stream.schema, by, aggregator, out)
    combined = None if combine is None else (combine, Schema((*by, "value-0")))
    rows = grouped_stage(stream, by, id, settings, where, combined=combined).then(operator, out)
    rows.lineage = totals_lineage(by)
    return rows


def _updated_totals(
    stream: AnyStream,
    by: Sequence[str],
    aggregator: CombinerAggregator[Any, Any] | ReducerAggregator[Any, Any],
    out: Schema,
    id: str,
    settings: TotalsSettings,
    where: str,
) -> StageRows[RecordStage]:
    """The totals of rows that follow from other totals: of the last row of each of their groups."""
    lineage = stream.lineage
    assert lineage is not None
    stream.topology.check_new(id, settings.get("parallelism", 1), where)
    slot = StateSlot(settings.get("state"), id, where, moved_origins)
    slot.by = by
    combiner, divide = updated_operators(stream.schema, by, aggregator, lineage)
    stream.need_updates()
    if divide.places is not None:
        parts = stream.then("parts", divide, divide.out)
        inputs = [parts.fields("key") if by else parts.global_()]
    else:
        pairs = stream.then("parts", divide, PAIRS)
        parts, groups = (pairs.then("parts", TakeBranch(n), divide.out) for n in (0, 1))
        inputs = [parts.fields("key"), groups.all()]
    rows = begin_stage(stream.topology, id, inputs, settings)
    totals = rows.then(UpdatedTotals(slot, len(by), combiner, out), out)
    totals.lineage = totals_lineage(by)
    return totals


def free_id(topology: Declarations, settings: Mapping[str, Any], wish: str, where: str) -> str:
    """The id of a bolt and of its state: its `name`, or one like `wish`. Raises TopologyError for a
    stored state whose name would depend on others."""
    name = settings.get("name")
    id: str = topology.unused_id(wish) if name is None else name
    if settings.get("state") is not None and settings.get("name") is None and id != wish:
        raise TopologyError(f"{where}: there is a {wish!r} already; give this state a name=")
    return id


def grouped_stage(
    stream: AnyStream,
    by: Sequence[str],
    id: str,
    settings: TotalsSettings,
    where: str,
    *,
    combined: tuple[Operator, Schema] | None = None,
) -> StageRows[RecordStage]:
    """The rows of a stream in a new stage, each in the task of its group; `combined`: what combines
    them before they travel, and the schema of its rows. Raises TopologyError."""
    stream.topology.check_new(id, settings.get("parallelism", 1), where)
    rows = stream if combined is None else stream.then("combine", *combined)
    grouped = rows.fields(*by) if by else rows.global_()
    return begin_stage(stream.topology, id, [grouped], settings)


def begin_stage(
    topology: Declarations, id: str, inputs: Sequence[Any], settings: Mapping[str, Any]
) -> StageRows[RecordStage]:
    """The rows of `inputs` in a new stage, with the tasks of `settings`. Raises TopologyError."""
    tasks, resources = settings.get("parallelism", 1), settings.get("resources", NOTHING)
    return topology.begin_stage(id, inputs, tasks, resources)


def location(stream: object, by: Sequence[str], word: str) -> str:
    """The place of a declaration, for errors."""
    return f"{stream}, " + (f"group_by({', '.join(by)}), " if by else "") + word
