"""Streams of batches, and the methods that declare how their rows are processed.

    words = batches(topology, "lines", spout).flat_map(split)
    counts = words.group_by("word").aggregate(count(), state=SqliteState("counts.db"))

Each declaration is checked when it is made. Storm: org.apache.storm.trident.Stream, TridentState,
org.apache.storm.trident.fluent.GroupedStream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, Unpack, cast, overload

from sunshower.arguments import Instance, check_names
from sunshower.config import NOTHING, Resources
from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.topologies.components import BatchFunction, Out
from sunshower.topologies.groupings import CustomGrouping
from sunshower.topologies.operators import steps
from sunshower.topologies.operators.aggregating import Aggregate, Combine, CombineFurther, Empty
from sunshower.topologies.operators.aggregators import AnyAggregator, CombinerAggregator
from sunshower.topologies.operators.joins.joined_streams import (
    AsOfSettings,
    BoundedSettings,
    JoinSettings,
)
from sunshower.topologies.operators.keyed.key_states import StateOfKey
from sunshower.topologies.operators.keyed.patterns import Match, PatternStep, Skip
from sunshower.topologies.operators.keyed.process_settings import (
    EventOrder,
    OrderSettings,
    event_order,
)
from sunshower.topologies.operators.port import Operator, Passing
from sunshower.topologies.operators.ranking import ExtremeRow
from sunshower.topologies.operators.record_operators import (
    CONNECTED,
    IN_ORDER,
    PAIRS,
    GroupedStream,
    RecordOperators,
)
from sunshower.topologies.operators.schemas import (
    bound_aggregators,
    check_fields,
    code_name,
    columns_schema,
    persisted_schema,
    state_code_returns,
)
from sunshower.topologies.operators.stages import StageRows
from sunshower.topologies.operators.state_slot import nothing_else
from sunshower.topologies.operators.states import StateFactory, StateKind
from sunshower.topologies.operators.totals import Persist, PersistCombined, PersistReduced, single
from sunshower.topologies.operators.updates import (
    Lineage,
    PartsOfUpdates,
    UpdatedTotals,
    check_replaces,
    merged_lineage,
    moved_origins,
    totals_lineage,
    updated_operators,
)
from sunshower.topologies.operators.windows.window_kinds import AnyWindow
from sunshower.topologies.outputs import Columns, Row, check_id
from sunshower.topologies.signatures import Many
from sunshower.topologies.streams import GroupedRecords, Stream
from sunshower.trident.declaration.keyed_batches import (
    BatchProcessSettings,
    BatchTable,
    BatchTableSettings,
    ConnectedBatchSettings,
    KeyedBatchSettings,
    OrderedBatchSettings,
    connected,
    first_rows,
    is_across,
    joined_across,
    joined_within,
    matched,
    processed,
)
from sunshower.trident.declaration.stage_builder import BatchStage, is_uneven
from sunshower.trident.declaration.stateful import (
    DeclaredWindow,
    WrittenState,
    check_group,
    check_pairs,
    declare_query,
    new_state,
    windowed,
)
from sunshower.trident.stages.batch_windows import LATE, ON_TIME
from sunshower.trident.stages.keyed_operators import KeyedInBatches
from sunshower.trident.stages.persisting import BatchSlot, PersistPartition
from sunshower.trident.stages.plan import (
    ByBatch,
    ByFields,
    ByGrouping,
    InPairs,
    RoundRobin,
    Sharing,
    TaskSettings,
    ToAll,
    ToFirst,
    publishing,
)
from sunshower.trident.tasks.stage_bolt import RecordsBolt

R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S", bound=StateOfKey)
T = TypeVar("T")
Other = TypeVar("Other")
_FIELDS = Instance((str, Iterable), "the name of a field, several, or a record type")


# ---- group ---------------------------------------------------------------------------------------


def check_streams(streams: Sequence[Any], where: str) -> None:
    """Raise TopologyError for a value that is not a stream of batches, or is of another group."""
    for stream in streams:
        if not isinstance(stream, BatchStream):
            raise TopologyError(_no_batches(stream, where, ""))
    check_group([stream.stage for stream in streams], where)


def _no_batches(value: Any, where: str, more: str) -> str:
    """The error for a value that is not a stream of batches; `more`: what it must be as well."""
    if isinstance(value, BatchStream):
        return f"{where}: the stream is not{more}"
    if isinstance(value, Stream | GroupedRecords):
        return (
            f"{where}: an ordinary stream is not a stream of batches{more}; declare batches(…) of "
            "the spout that it comes from, in the same group"
        )
    return f"{where}: {value!r:.200} is not a stream of batches{more}"


# ---- streams -------------------------------------------------------------------------------------


class Aggregations(Generic[R_co]):
    """What a stream and a grouped stream have in common. The rows are aggregated by group, or all
    together; emitted are plain tuples of the fields of the group and of what the aggregators emit.
    `fields` may give a record type or other names. The methods raise as those of BatchStream."""

    def _grouped(self) -> tuple[BatchStream[R_co], tuple[str, ...]]:
        raise NotImplementedError

    def partition_aggregate(
        self, *aggregators: AnyAggregator, fields: Columns | None = None
    ) -> BatchStream[Any]:
        """Aggregate within each task, without repartitioning. Without groups: one row per task."""
        stream, by = self._grouped()
        where = self._location("partition_aggregate")
        bound, out = bound_aggregators(aggregators, stream.schema, by, fields, where)
        empty = Empty.NOBODY if by else Empty.EACH
        return BatchStream(stream.add(Aggregate(stream.schema, by, bound, out, empty), out))

    def aggregate(
        self,
        *aggregators: AnyAggregator,
        fields: type[Row] | Sequence[str] | None = None,
        state: StateFactory | None = None,
        name: str | None = None,
        not_exactly_once: bool = False,
        **tasks: Unpack[TaskSettings],
    ) -> BatchStream[Row]:
        """The totals of each group, or of all rows together. Combiners first combine the rows
        within their task.

        `state` None: of each batch by itself, one row for each group; without groups one row, also
        for an empty batch. With a state: of all batches. It is written in the commit phase, in txid
        order, and the groups that a batch changed are emitted then. Its keys are the values of the
        single field `by`, tuples of several, or "$GLOBAL$" without a grouping; without groups one
        task has the state. Storm: persistentAggregate, newValuesStream.

        `name` is the id of the bolt and of the state, which a later run finds by it (default: of
        the bolt as for any other, of the state the aggregators' fields). `tasks`: see TaskSettings.
        Raises TopologyError
        unless a state is given one ReducerAggregator, or CombinerAggregators, and if spout and
        state together are not exactly once, unless `not_exactly_once` accepts that.
        """
        stream, by = self._grouped()
        where = self._location("aggregate")
        bound, out = bound_aggregators(aggregators, stream.schema, by, fields, where)
        totals = (
            self._aggregated(bound, out, tasks)
            if state is None
            else self._kept(bound, out, state, tasks, name, where, not_exactly_once)
        )
        return totals if name is None else totals.named(name)

    def _aggregated(
        self, aggregators: Sequence[AnyAggregator], out: Schema, tasks: TaskSettings
    ) -> BatchStream[Any]:
        """The aggregates of each batch by itself."""
        stream, by = self._grouped()
        empty = Empty.NOBODY if by else Empty.ONE
        if all(isinstance(aggregator, CombinerAggregator) for aggregator in aggregators):
            stream = stream.combined(aggregators, by)
            last: Aggregate = CombineFurther(stream.schema, by, aggregators, out, empty)
        else:
            last = Aggregate(stream.schema, by, aggregators, out, empty)
        sharing = ByFields(stream.schema, by) if by else ByBatch()
        return BatchStream(stream.send(sharing, tasks).then(last, out))

    def _kept(
        self,
        aggregators: Sequence[AnyAggregator],
        out: Schema,
        state: StateFactory,
        tasks: TaskSettings,
        name: str | None,
        where: str,
        not_exactly_once: bool,
    ) -> BatchStream[Any]:
        """What each batch changes in the aggregates of all batches."""
        stream, by = self._grouped()
        aggregator = single(aggregators, by, tasks.get("parallelism", 1), where)
        result: Callable[[Any], Any] | None
        id = "-".join(aggregator.emits) if name is None else name
        join = nothing_else if stream.lineage is None else moved_origins
        slot = new_state(state, id, stream, where, not_exactly_once, by=by, join=join)
        if stream.lineage is not None:
            check_replaces(stream.lineage, where)
            combiner, divide = updated_operators(stream.schema, by, aggregator, stream.lineage)
            operator: Persist = UpdatedTotals(slot, len(by), combiner, out)
            rows, result = _parts_of_updates(stream, divide, by, tasks), combiner.result
        elif isinstance(aggregator, CombinerAggregator):
            operator = PersistCombined(slot, len(by), aggregator, out)
            combined, result = stream.combined([aggregator], by), aggregator.result
            rows = combined.send_groups(by, tasks)
        else:
            operator = PersistReduced(slot, stream.schema, by, aggregator, out)
            rows, result = stream.send_groups(by, tasks), None
        totals = rows.then(operator, out)
        totals.lineage = totals_lineage(by)
        return _written(totals, slot, by, result)

    def window(
        self,
        window: AnyWindow,
        *aggregators: AnyAggregator,
        state: StateFactory | None = None,
        fields: Columns | None = None,
        name: str = "windows",
        not_exactly_once: bool = False,
        **tasks: Unpack[TaskSettings],
    ) -> WindowBatches[Any]:
        """Aggregate each group in each window: (group, window, aggregated values). `window` is the
        end of a time window or of a session, or the number of a count window. The state `name`
        holds the contents of open windows; the commit phase of a batch writes those of its groups.

        Raises TopologyError without a state, and if a spout upstream does not know the event time
        of its rows.
        """
        stream, by = self._grouped()
        about: Any = {"not_exactly_once": not_exactly_once, "where": self._location("window")}
        arguments: Any = (window, aggregators, fields, state, name, tasks)
        return WindowBatches(windowed(stream, by, *arguments, **about))

    def state_query(
        self,
        state: BatchStream[Any] | StateFactory,
        function: Callable[..., Any] | None = None,
        *,
        fields: str | Columns = "value",
        **tasks: Unpack[TaskSettings],
    ) -> BatchStream[Any]:
        """Each row with an answer of a state: the value of its group (without groups: the single
        value), or what `function(state, rows)` returns, which is one answer per row.

        `state`: `StaticState(…)`, or what `aggregate` with a state, `window` or `partition_persist`
        has returned. `fields` names the answer's fields, or is a record type for row and answer
        together. A state of this program is queried by the tasks that write it, in the commit
        phase. Grouped rows go to the task of their group, others where they are: choose the task of
        each row before. `tasks` are for grouped rows and a static state.
        """
        stream, by = self._grouped()
        where = self._location("state_query")
        asked: Any = (state.written or state) if isinstance(state, BatchStream) else state
        return BatchStream(declare_query(stream, by, asked, function, fields, where, tasks))

    def _location(self, word: str) -> str:
        stream, by = self._grouped()
        return stream.stage.where((f"group_by({', '.join(by)}), " if by else "") + word)


class GroupedBatches(GroupedStream, Aggregations[R_co]):
    """Rows of batches, grouped by the values of the fields `by`."""

    call_it = "before group_by, or in new tasks: .partition_by(field, parallelism=2).{name}(…)"

    def __init__(self, stream: BatchStream[R_co], by: Sequence[str]) -> None:
        self.stream, self.by = stream, tuple(by)

    def _grouped(self) -> tuple[BatchStream[R_co], tuple[str, ...]]:
        return self.stream, self.by

    def process(
        self,
        function: Callable[[R_co, S], Iterable[Out] | None],
        *,
        on_timer: Callable[[Any, S], Iterable[Out] | None] | None = None,
        fields: Columns | None = None,
        **settings: Unpack[BatchProcessSettings],
    ) -> BatchStream[Out]:
        """What `function(row, state)` yields, or returns in a list, for each row and the state of
        its key, which the function reads and changes: `state.value`.

        It is called in the commit phase, in txid order, and states are written once for each batch.
        A batch that is repeated finds them as they were before it. If the function raises, nothing
        of the batch is written. Settings: BatchProcessSettings.

        `on_timer(key, state)` is called in the batch with which the time has come that a timer of
        the key was set to, after the rows of the batch; and with the last batch of all sources
        until no timer is set: `state.ended` is True there.
        """
        where = self._location(f"process({code_name(function)})")
        state = processed(*self._grouped(), function, on_timer, fields, settings, where)
        outputs = BatchStream[Out](state.rows)
        outputs.written = state
        return outputs.named(state.slot.name)

    def connect(self, other: GroupedBatches[Other]) -> ConnectedBatches[R_co | Other]:
        """The rows of both streams, for one function and one state of each key; the two keys have
        as many fields, in the same order."""
        return ConnectedBatches[R_co]([self]).connect(other)

    def table(self, **settings: Unpack[BatchTableSettings]) -> BatchTable:
        """The latest row of each key, with which streams are joined: `stream.join(table)`. One
        whose other fields are all None removes its key. Settings: BatchTableSettings."""
        stream, by = self._grouped()
        return BatchTable(stream, by, settings, self._location("table"))

    def in_order(
        self, field: str, late: float = 0.0, **settings: Unpack[OrderSettings]
    ) -> OrderedGroups[R_co]:
        """The rows of each key in the order of their event time, which is in `field`: each is
        handed on with the batch whose watermark has passed it. Rows of equal time keep the order in
        which they arrived. One may come `late` after a row with a higher time; what comes later is
        in the result's stream `late`. Settings: OrderSettings."""
        stream, by = self._grouped()
        where = self._location("in_order")
        return OrderedGroups(stream, by, event_order(stream, field, late, settings, where))


class OrderedGroups(GroupedStream, Generic[R_co]):
    """The rows of each key in the order of their event time, for one operator. They wait in its
    state, from which they are removed together with the changes that they cause."""

    call_it = IN_ORDER

    def __init__(self, stream: BatchStream[R_co], by: tuple[str, ...], order: EventOrder) -> None:
        self.stream, self._by, self._order = stream, by, order

    def process(
        self,
        function: Callable[[R_co, S], Iterable[Out] | None],
        *,
        on_timer: Callable[[Any, S], Iterable[Out] | None] | None = None,
        fields: Columns | None = None,
        **settings: Unpack[OrderedBatchSettings],
    ) -> TimedBatches[Out, R_co]:
        """What `function(row, state)` yields, as of `group_by(…).process`, but called with rows in
        their order, and between them with timers: one that is due at the time of a row is first.
        `state.time` is the time of the row. Settings: OrderedBatchSettings."""
        where = self._where(f"process({code_name(function)})")
        about = self.stream, self._by, function, on_timer, fields, settings, where, self._order
        return self._outputs(processed(*about))

    def match(
        self,
        *steps: PatternStep[R_co],
        within: float,
        select: Callable[[Match[R_co]], Out],
        skip: Skip = "past_last",
        fields: Columns | None = None,
        **settings: Unpack[KeyedBatchSettings],
    ) -> TimedBatches[Out, R_co]:
        """What `select` makes of each match of a pattern in the rows of a key, as on ordinary
        streams. Settings: KeyedBatchSettings."""
        pattern, about = (steps, within, skip), (select, fields, settings, self._where("match"))
        return self._outputs(matched(self.stream, self._by, self._order, pattern, *about))

    def _where(self, word: str) -> str:
        return self.stream.stage.where(f"group_by({', '.join(self._by)}), {word}")

    def _outputs(self, state: WrittenState) -> TimedBatches[Any, Any]:
        outputs = TimedBatches[Any, Any](state.rows, self.stream.schema)
        outputs.written = state
        outputs.named(state.slot.name)
        return outputs


class ConnectedBatches(GroupedStream, Generic[R_co]):
    """The rows of several streams, each grouped by its key, whose states they share."""

    call_it = CONNECTED

    def __init__(self, grouped: Sequence[GroupedBatches[Any]]) -> None:
        self._grouped, self.stream = tuple(grouped), grouped[0].stream

    def connect(self, other: GroupedBatches[Other]) -> ConnectedBatches[R_co | Other]:
        """The rows of a further stream, too."""
        where = self._grouped[0]._location("connect")
        if not isinstance(other, GroupedBatches):
            raise TopologyError(
                _no_batches(
                    other, where, ' grouped by its key, as in .connect(payments.group_by("order"))'
                )
            )
        check_group([self._grouped[0].stream.stage, other.stream.stage], where)
        return ConnectedBatches([*self._grouped, other])

    def process(
        self,
        function: Callable[[R_co, S], Iterable[Out] | None],
        *,
        on_timer: Callable[[Any, S], Iterable[Out] | None] | None = None,
        fields: Columns | None = None,
        **settings: Unpack[ConnectedBatchSettings],
    ) -> BatchStream[Out]:
        """What `function(row, state)` makes of each row of all streams, as `process` of one stream:
        the annotation of its first parameter is `Order | Payment`. A timer is due when all streams
        have passed its time. Settings: ConnectedBatchSettings."""
        inputs = [grouped._grouped() for grouped in self._grouped]
        where = self._grouped[0]._location(f"connect, process({code_name(function)})")
        return BatchStream(connected(inputs, function, on_timer, fields, settings, where))


class BatchStream(RecordOperators[R_co], Aggregations[R_co]):
    """A stream of rows in batches. The methods raise TopologyError or a subclass for a declaration
    that cannot work: UnknownField, RecordMismatch for annotations that do not fit,
    DuplicateComponent."""

    written: WrittenState | None = None  # the state whose changes its rows are

    input_hint = 'let its rows leave their batches first: .records("rows").shuffle()'

    def __init__(self, *sources: StageRows[BatchStage]) -> None:
        self.sources = sources
        self._gathered: StageRows[BatchStage] | None = None

    @property
    def schema(self) -> Schema:
        return self.sources[0].schema

    @property
    def stage(self) -> BatchStage:
        """The stage of its rows, or the first of several."""
        return self.sources[0].stage

    @property
    def is_uneven(self) -> bool:
        """As is_uneven of each. Rows of several stages are gathered round-robin."""
        several = len({source.stage for source in self.sources}) > 1
        return several or any(map(is_uneven, self.sources))

    @property
    def varies(self) -> bool:
        """Whether another attempt may have other rows, all tasks together."""
        return any(source.varies for source in self.sources)

    @property
    def lineage(self) -> Lineage | None:
        return merged_lineage([source.lineage for source in self.sources])

    def min_by(self, field: str) -> Self:
        """The row of each batch with the least value of `field`, the first of equal ones."""
        return self._extreme(field, "min_by", greatest=False)

    def max_by(self, field: str) -> Self:
        """The row of each batch with the greatest value of `field`."""
        return self._extreme(field, "max_by", greatest=True)

    def named(self, id: str) -> Self:
        """Set the id of the bolt that processes these rows."""
        where = self._where("named")
        check_id(id, where)
        stage = self._gather()[0].stage
        if stage.spout is not None:
            raise TopologyError(
                f"{where}: these rows are still in the bolt of the spout {stage.root!r}, which has "
                "its name; a repartitioning begins a new one"
            )
        stage.group.program.check_open(where)
        stage.name = id
        return self

    def shuffle(self, **tasks: Unpack[TaskSettings]) -> Self:
        """Distribute rows evenly over `parallelism` tasks. `tasks`: see TaskSettings."""
        return self._of(self.send(RoundRobin(), tasks))

    def partition_by(self, *fields: str, **tasks: Unpack[TaskSettings]) -> Self:
        """Send equal values of `fields` to the same of `parallelism` tasks."""
        self._check_fields("partition_by", fields)
        return self._of(self.send(ByFields(self.schema, fields), tasks))

    def broadcast(self, **tasks: Unpack[TaskSettings]) -> Self:
        """Send all rows to each of `parallelism` tasks."""
        return self._of(self.send(ToAll(), tasks))

    def global_(self, *, resources: Resources = NOTHING) -> Self:
        """Send all rows to one task, which requests `resources` of its node."""
        return self._of(self.send(ToFirst(), {"resources": resources}))

    def batch_global(self, **tasks: Unpack[TaskSettings]) -> Self:
        """Send all rows of a batch to one of `parallelism` tasks, chosen round-robin by txid."""
        return self._of(self.send(ByBatch(), tasks))

    def partition(self, grouping: CustomGrouping, **tasks: Unpack[TaskSettings]) -> Self:
        """Distribute rows as `grouping` chooses; it numbers the tasks 0, 1, 2 and so on. A
        transactional state behind it is exact only if `choose` depends on nothing but the row."""
        if not (hasattr(grouping, "prepare") and hasattr(grouping, "choose")):
            raise TopologyError(
                f"{self._where('partition')} needs an object with prepare(targets) and "
                "choose(record), as in CustomGrouping"
            )
        return self._of(self.send(ByGrouping(grouping), tasks))

    def add(self, operator: Operator, schema: Schema) -> StageRows[BatchStage]:
        """What `operator` emits for these rows, in the stage where they are. Rows of several
        stages are sent to a new one first."""
        sources = self._gather()
        return sources[0].stage.add(operator, schema, sources)

    def add_to_each(
        self, operator: Callable[[], Operator], schema: Schema
    ) -> list[StageRows[BatchStage]]:
        """The same for an operator that needs no other rows: one in each stage that has rows."""
        stages: dict[BatchStage, list[StageRows[BatchStage]]] = {}
        for source in self.sources:
            stages.setdefault(source.stage, []).append(source)
        return [stage.add(operator(), schema, sources) for stage, sources in stages.items()]

    def send(self, sharing: Sharing, tasks: TaskSettings) -> StageRows[BatchStage]:
        """These rows in a new stage."""
        return self.new_stage(tasks).receive(self.sources, sharing)

    def records(self, id: str, **tasks: Unpack[TaskSettings]) -> Stream[R_co]:
        """These rows as ordinary tuples for ordinary bolts, at least once. A batch is done when its
        rows are acked; a repeated batch emits them again. `id` names the bolt that emits them.
        Raises as Topology.bolt does."""
        group, schema = self.stage.group, self.schema
        group.program.check_open(self._where(f"records({id!r})"))
        fields = schema.fields if schema.type is tuple else schema.type
        bolt = RecordsBolt(schema)
        stream = group.program.topology.bolt(id, bolt, fields=fields, **tasks)
        stage = self.new_stage(tasks)
        stage.name, stage.leaves = id, True
        stage.add(Passing(), schema, [stage.receive(self.sources, InPairs())])
        if (lineage := self.lineage) is not None:
            stream._lineage = replace(lineage, blocked=lineage.blocked or "records(…)")
        return stream

    @property
    def program(self) -> Any:
        return self.stage.group.program.topology

    leave = records  # of a preview

    def send_groups(self, by: tuple[str, ...], tasks: TaskSettings) -> StageRows[BatchStage]:
        """These rows in the tasks that have the state of their group; without groups it is one."""
        return self.send(ByFields(self.schema, by) if by else ToFirst(), tasks)

    def combined(self, aggregators: Sequence[AnyAggregator], by: Sequence[str]) -> BatchStream[Any]:
        """Combined rows (fields of the group, a value for each combiner), still in their tasks."""
        schema = Schema((*by, *(f"value-{number}" for number in range(len(aggregators)))))
        return BatchStream[Any](
            *self.add_to_each(lambda: Combine(self.schema, by, aggregators), schema)
        )

    def upstream(self) -> set[BatchStage]:
        """All stages that these rows depend on, those they are in included."""
        return {stage for source in self.sources for stage in source.stage.upstream()}

    def new_stage(self, tasks: TaskSettings) -> BatchStage:
        """A new stage of the same group."""
        check_names(tasks, TaskSettings.__annotations__, self._where(""), TopologyError)
        return BatchStage(self.stage.group, self.stage.root, **tasks)

    def _gather(self) -> tuple[StageRows[BatchStage], ...]:
        stages = {source.stage for source in self.sources}
        if len(stages) == 1:
            return self.sources
        if self._gathered is None:
            parallelism = max(stage.parallelism for stage in stages)
            self._gathered = self.send(RoundRobin(), {"parallelism": parallelism})
        return (self._gathered,)

    def _with(
        self, word: str, operator: Callable[[], Operator], schema: Schema, code: Any = None
    ) -> Self:
        return self._of(*self.add_to_each(operator, schema))

    def _made(
        self, word: str, operator: Callable[[], Operator], schema: Schema, code: Any = None
    ) -> BatchStream[Any]:
        return BatchStream(*self.add_to_each(operator, schema))

    def _check_streams(self, streams: Sequence[Any], where: str) -> None:
        check_streams(streams, where)

    def _merged(self, streams: Sequence[Self]) -> Self:
        return self._of(*(source for stream in streams for source in stream.sources))

    def _of(self, *sources: StageRows[BatchStage]) -> Self:
        return type(self)(*sources)

    def _extreme(self, field: str, word: str, *, greatest: bool) -> Self:
        self._check_fields(word, [field])

        def extreme() -> ExtremeRow:
            return ExtremeRow(self.schema, field, greatest=greatest)

        best = self._of(*self.add_to_each(extreme, self.schema)).global_()
        return self._of(best.add(extreme(), self.schema))

    def _check_fields(self, word: str, fields: Sequence[str]) -> None:
        check_fields(self.schema, fields, self._where(word))

    def _where(self, word: str, code: Any = None) -> str:
        return self.stage.where(word if code is None else f"{word}({code_name(code)})")

    # ---- operators -------------------------------------------------------------------------------

    if TYPE_CHECKING:  # the types of what the methods of RecordOperators return

        @overload
        def flat_map(
            self, function: BatchFunction, *, fields: type[Row] | Sequence[str]
        ) -> BatchStream[Row]: ...
        @overload
        def flat_map(
            self, function: Callable[[R_co], Many[Out]], *, fields: Columns | None = None
        ) -> BatchStream[Out]: ...
        def flat_map(self, function: Any, *, fields: Any = None) -> BatchStream[Any]: ...

        @overload
        def map(
            self, function: Callable[[R_co], Awaitable[Out]], *, fields: Columns | None = None
        ) -> BatchStream[Out]: ...
        @overload
        def map(
            self, function: Callable[[R_co], Out], *, fields: Columns | None = None
        ) -> BatchStream[Out]: ...
        def map(self, function: Any, *, fields: Any = None) -> BatchStream[Any]: ...

        def project(self, *fields: str) -> BatchStream[tuple[Any, ...]]: ...
        def merge(self, *others: BatchStream[R_co]) -> Self: ...

    def operate(
        self,
        operator: Operator,
        *others: BatchStream[Any],
        fields: Columns,
        not_exactly_once: bool = False,
    ) -> BatchStream[Any]:
        """Run your own operator, an instance of a subclass of `Operator`, in the stage of the rows.

        With `others`, one task gets all rows of a batch: this stream is input 0, the others are 1,
        2 …. `fields` is () if it emits nothing. An operator that `commits` or `publishes` must undo
        what an earlier attempt has written, as an opaque state does.
        """
        where = self._where("operate", operator)
        if not isinstance(operator, Operator):
            raise TopologyError(f"{where}: {operator!r} is no Operator of sunshower.trident")
        streams = [self, *others]
        check_streams(streams, where)
        if operator.commits or publishing(operator):
            for stream in streams:
                check_pairs(StateKind.OPAQUE, stream, where, not_exactly_once)
        schema = Schema(("nothing",)) if fields == () else columns_schema(fields, where)
        if not others:
            return BatchStream(self.add(operator, schema))
        stage = self.new_stage({})
        inputs = [[stage.receive(stream.sources, ToFirst())] for stream in streams]
        return BatchStream(stage.add(operator, schema, *inputs))

    def group_by(self, *fields: str) -> GroupedBatches[R_co]:
        """Group rows with equal values of `fields`."""
        self._check_fields("group_by", fields)
        return GroupedBatches(self, fields)

    def distinct(
        self, on: str | Sequence[str], **settings: Unpack[BatchProcessSettings]
    ) -> BatchStream[R_co]:
        """The first row of each value of the fields `on`; `ttl_s` after it, the next one is new
        again. Rows leave in the commit phase. Settings: BatchProcessSettings; the state must be
        given, and its name is "distinct"."""
        fields = (on,) if isinstance(on, str) else tuple(on)
        self._check_fields("distinct", fields)
        where = self._where(f"distinct({', '.join(map(str, fields))})")
        state = first_rows(self, fields, settings, where)
        outputs = BatchStream[R_co](state.rows)
        outputs.written = state
        return outputs.named(state.slot.name)

    def partition_persist(
        self,
        state: StateFactory,
        updater: Callable[..., Any],
        *,
        fields: Columns | None = None,
        name: str | None = None,
        not_exactly_once: bool = False,
    ) -> BatchStream[Any]:
        """Call `updater(state, rows)` in each task with the rows of a batch, when it commits. What
        the updater yields is emitted. `name` (default: the function's name) identifies the
        state. Choose the task of each row before: `partition_by`, or `global_`."""
        where = self._where("partition_persist", updater)
        out = persisted_schema(
            state_code_returns(updater, self.schema, where), updater, fields, where
        )
        name = code_name(updater) if name is None else name
        slot = new_state(state, name, self, where, not_exactly_once, in_place=True)
        operator = PersistPartition(slot, updater, out)
        return _written(self.add(operator, out or Schema(("nothing",))), slot, None)

    @overload
    def join(  # type: ignore[overload-overlap]  # also without settings
        self,
        other: BatchStream[Any],
        on: str | Sequence[str],
        other_on: str | Sequence[str] | None = None,
        *,
        how: Literal["inner", "left"] = "inner",
        fields: type[Row] | Sequence[str] | None = None,
        **tasks: Unpack[TaskSettings],
    ) -> BatchStream[Row]: ...
    @overload
    def join(
        self,
        other: BatchStream[Any],
        on: str | Sequence[str],
        *,
        fields: type[Row] | Sequence[str] | None = None,
        **settings: Unpack[JoinSettings],
    ) -> TimedBatches[Row, Row]: ...
    @overload
    def join(
        self,
        other: BatchStream[Any],
        on: str | Sequence[str],
        *,
        how: Literal["semi", "anti"],
        **settings: Unpack[BoundedSettings],
    ) -> TimedBatches[R_co, R_co]: ...
    @overload
    def join(
        self,
        other: BatchTable,
        on: str | Sequence[str] | None = None,
        *,
        how: Literal["inner", "left"] = "inner",
        fields: type[Row] | Sequence[str] | None = None,
    ) -> BatchStream[Row]: ...
    @overload
    def join(
        self,
        other: BatchTable,
        on: str | Sequence[str] | None = None,
        *,
        fields: type[Row] | Sequence[str] | None = None,
        **settings: Unpack[AsOfSettings],
    ) -> TimedBatches[Row, Row]: ...
    def join(
        self,
        other: BatchStream[Any] | BatchTable,
        on: str | Sequence[str] | None = None,
        other_on: str | Sequence[str] | None = None,
        *,
        fields: Columns | None = None,
        **settings: Any,
    ) -> BatchStream[Any]:
        """Join rows with equal values of `on`: (key, other fields of self, of `other`).

        With a stream, within a batch; a left join keeps rows without a match, with None for the
        missing fields. With `within=` or `keep_s=`, and a `state=`, across batches, as on ordinary
        streams: pairs leave in the commit phase, those of a left, outer or anti join that had no
        partner with the batch whose watermark has passed all partners. Settings:
        TaskSettings, JoinSettings. With a table: what it has after the changes of this
        batch; with `as_of="at"` the version that was valid at that time. Settings: AsOfSettings.
        """
        if other_on is not None:
            settings["other_on"] = other_on
        where, given = self._where("join"), cast("Any", settings)
        if isinstance(other, BatchTable):
            check_streams([self, other.changes], where)
            rows = other.join(self, on, fields, settings, where)
            return TimedBatches(rows) if "as_of" in settings else BatchStream(rows)
        check_streams([self, other], where)
        if not is_across(settings):
            return BatchStream(joined_within(self, other, on, fields, given, where))
        return TimedBatches(joined_across(self, other, on, fields, given, where))

    def _grouped(self) -> tuple[BatchStream[R_co], tuple[str, ...]]:
        return self, ()


L_co = TypeVar("L_co", covariant=True)


class TimedBatches(BatchStream[R_co], Generic[R_co, L_co]):
    """What `in_order`, `match` or a join has made of rows by their event time, in batches."""

    def __init__(self, pairs: StageRows[BatchStage], late: Schema | None = None) -> None:
        """`pairs`: (branch, row); `late`: the schema of the late rows, if it is another one."""
        assert isinstance(pairs.operator, KeyedInBatches)
        schema = pairs.operator.makes
        super().__init__(pairs.then(steps.TakeBranch(ON_TIME), schema))
        self._pairs, self._late_schema = pairs, late or schema

    @property
    def late(self) -> BatchStream[L_co]:
        """The rows that came too late: as they are; of a join with None for the other side."""
        return BatchStream(self._pairs.then(steps.TakeBranch(LATE), self._late_schema))

    def _of(self, *sources: StageRows[BatchStage]) -> Any:
        return BatchStream(*sources)


class WindowBatches(BatchStream[R_co]):
    """The rows of windows that have ended, in batches."""

    def __init__(self, declared: DeclaredWindow) -> None:
        super().__init__(declared.ended)
        self.pairs, self.written = declared.pairs, declared.state

    @property
    def late(self) -> BatchStream[R_co]:
        """Rows that came too late for their window, aggregated in the same way. One that is late
        for several windows counts in the last of them."""
        return BatchStream(self.pairs.then(steps.TakeBranch(LATE), self.schema))

    def _of(self, *sources: StageRows[BatchStage]) -> Any:
        return BatchStream(*sources)


def _parts_of_updates(
    stream: BatchStream[Any], divide: PartsOfUpdates, by: tuple[str, ...], tasks: TaskSettings
) -> StageRows[BatchStage]:
    """The parts of the updates of a stream, in a new stage with the tasks of their groups."""
    for source in stream.sources:
        source.need_updates()
    schema = divide.out
    sharing = ByFields(schema, ("key",)) if by else ToFirst()
    if divide.places is not None:
        return BatchStream[Any](*stream.add_to_each(lambda: divide, schema)).send(sharing, tasks)
    pairs = BatchStream[Any](*stream.add_to_each(lambda: divide, PAIRS))
    stage = stream.new_stage(tasks)
    parts, groups = (pairs.add_to_each(partial(steps.TakeBranch, n), schema) for n in (0, 1))
    arrivals = [stage.receive(parts, sharing), stage.receive(groups, ToAll())]
    return stage.add(Passing(), schema, arrivals)


def _written(
    rows: StageRows[BatchStage],
    slot: BatchSlot,
    by: Sequence[str] | None,
    result: Callable[[Any], Any] | None = None,
) -> BatchStream[Any]:
    """What each batch changed in a state, after it is written."""
    stream = BatchStream[Any](rows)
    stream.written = WrittenState(rows, slot, by, result)
    return stream
