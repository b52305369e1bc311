"""Streams of batches, and the methods that declare how their rows are processed.

    words = batches(topology, "lines", spout).flat_map(split)
    counts = words.group_by("word").aggregate(count(), state=SqliteState("counts.db"))

Each declaration is checked when it is made. Storm: org.apache.storm.trident.Stream, TridentState,
org.apache.storm.trident.fluent.GroupedStream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Generic, Literal, TypeVar, Unpack, overload

from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.topologies.components import BatchFunction, Out
from sunshower.topologies.operators import steps
from sunshower.topologies.operators.aggregating import Aggregate, CombineFurther, Empty
from sunshower.topologies.operators.aggregators import AnyAggregator, CombinerAggregator
from sunshower.topologies.operators.keyed.keyed_process import KeyState
from sunshower.topologies.operators.persisting import Persist, PersistCombined, PersistReduced
from sunshower.topologies.operators.port import Operator
from sunshower.topologies.operators.record_operators import PAIRS
from sunshower.topologies.operators.schemas import (
    bound_aggregators,
    code_name,
    columns_schema,
    each_schema,
    joined_schema,
    map_schema,
    persisted_schema,
    state_code_returns,
)
from sunshower.topologies.operators.states import StateFactory, StateKind
from sunshower.topologies.operators.totals import check_one_task, single
from sunshower.topologies.operators.updates import (
    INSTEAD_OF_WINDOW,
    PartsOfUpdates,
    UpdatedTotals,
    check_replaces,
    refuse_updates,
    totals_lineage,
    updated_operators,
)
from sunshower.topologies.operators.windows.declaring import behind_window, check_time
from sunshower.topologies.operators.windows.window_kinds import Window, type_of_end
from sunshower.topologies.outputs import Columns
from sunshower.topologies.signatures import Many
from sunshower.trident.declaration.persisted import (
    BatchProcessSettings,
    RowStream,
    WrittenState,
    check_pairs,
    check_streams,
    declare_query,
    new_state,
    processed,
)
from sunshower.trident.declaration.stage_builder import RowSource, StageBuilder, TaskSettings
from sunshower.trident.stages.persisting import PersistPartition, StateSlot
from sunshower.trident.stages.plan import publishing
from sunshower.trident.stages.sharing import ByBatch, ByFields, Join, ToAll, ToFirst
from sunshower.trident.stages.windowing import LATE, ON_TIME, Windows

R_co = TypeVar("R_co", covariant=True)


class Aggregations(Generic[R_co]):
    """What a stream and a grouped stream have in common. The rows are aggregated by group, or all
    together; emitted are plain tuples of the fields of the group and of what the aggregators emit.
    `fields` may give a record type or other names. The methods raise as those of BatchStream."""

    def _grouped(self) -> tuple[RowStream[R_co], tuple[str, ...]]:
        """The rows, and the fields that they are grouped by."""
        raise NotImplementedError

    def partition_aggregate(
        self, *aggregators: AnyAggregator, fields: Columns | None = None
    ) -> BatchStream[Any]:
        """Aggregate within each task, without repartitioning. Without groups: one row per task."""
        stream, by = self._grouped()
        where = self._location("partition_aggregate")
        given, out = bound_aggregators(aggregators, stream.schema, by, fields, where)
        empty = Empty.NOBODY if by else Empty.EACH
        return BatchStream(stream.add(Aggregate(stream.schema, by, given, out, empty), out))

    @overload
    def aggregate(
        self,
        *aggregators: AnyAggregator,
        fields: type[Out],
        state: StateFactory | None = None,
        name: str | None = None,
        not_exactly_once: bool = False,
        **tasks: Unpack[TaskSettings],
    ) -> BatchStream[Out]: ...
    @overload
    def aggregate(
        self,
        *aggregators: AnyAggregator,
        fields: Sequence[str] | None = None,
        state: StateFactory | None = None,
        name: str | None = None,
        not_exactly_once: bool = False,
        **tasks: Unpack[TaskSettings],
    ) -> BatchStream[tuple[Any, ...]]: ...
    def aggregate(
        self,
        *aggregators: AnyAggregator,
        fields: Columns | None = None,
        state: StateFactory | None = None,
        name: str | None = None,
        not_exactly_once: bool = False,
        **tasks: Unpack[TaskSettings],
    ) -> BatchStream[Any]:
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
        given, out = bound_aggregators(aggregators, stream.schema, by, fields, where)
        made = (
            self._aggregated(given, out, tasks)
            if state is None
            else self._kept(given, out, state, tasks, name, where, not_exactly_once)
        )
        return made if name is None else made.named(name)

    def _aggregated(
        self, given: Sequence[AnyAggregator], out: Schema, tasks: TaskSettings
    ) -> BatchStream[Any]:
        """The aggregates of each batch by itself."""
        stream, by = self._grouped()
        empty = Empty.NOBODY if by else Empty.ONE
        if all(isinstance(one, CombinerAggregator) for one in given):
            stream = stream.combined(given, by)
            last: Aggregate = CombineFurther(stream.schema, by, given, out, empty)
        else:
            last = Aggregate(stream.schema, by, given, out, empty)
        sharing = ByFields(stream.schema, by) if by else ByBatch()
        return BatchStream(stream.send(sharing, tasks).then(last, out))

    def _kept(
        self,
        given: Sequence[AnyAggregator],
        out: Schema,
        state: StateFactory,
        tasks: TaskSettings,
        name: str | None,
        where: str,
        not_exactly_once: bool,
    ) -> BatchStream[Any]:
        """What each batch changes in the aggregates of all batches."""
        stream, by = self._grouped()
        one = single(given, by, tasks.get("parallelism", 1), where)
        result: Callable[[Any], Any] | None
        id = "-".join(one.emits) if name is None else name
        slot = new_state(state, id, stream, where, not_exactly_once, by=by)
        if stream.lineage is not None:
            check_replaces(stream.lineage, where)
            combiner, divide = updated_operators(stream.schema, by, one, stream.lineage)
            operator: Persist = UpdatedTotals(slot, len(by), combiner, out)
            rows, result = _parts_of_updates(stream, divide, by, tasks), combiner.result
        elif isinstance(one, CombinerAggregator):
            operator = PersistCombined(slot, len(by), one, out)
            rows, result = stream.combined([one], by).send_groups(by, tasks), one.result
        else:
            operator = PersistReduced(slot, stream.schema, by, one, out)
            rows, result = stream.send_groups(by, tasks), None
        totals = rows.then(operator, out)
        totals.lineage = totals_lineage(by)
        return _written(totals, slot, by, result)

    def window(
        self,
        window: Window,
        *aggregators: AnyAggregator,
        state: StateFactory,
        fields: Columns | None = None,
        name: str = "windows",
        not_exactly_once: bool = False,
        **tasks: Unpack[TaskSettings],
    ) -> WindowBatches[Any]:
        """Aggregate each group in each window: (group, window, aggregated values). `window` is the
        end of a time window or the number of a count window. The state `name` holds the contents of
        open windows and is written as a whole in the commit phase of each batch.

        Raises TopologyError if a spout upstream does not know the event time of its rows, and for a
        window of event time behind another window.
        """
        stream, by = self._grouped()
        where = self._location("window")
        if not isinstance(window, Window):
            raise TopologyError(f"{where}: {window!r} is no window; give tumbling(…) or sliding(…)")
        refuse_updates(stream.lineage, where, "A window", INSTEAD_OF_WINDOW)
        if window.field is not None:
            stream.schema.check_field(window.field, where)
        more = {"window": type_of_end(window, stream.schema)}
        given, out = bound_aggregators(aggregators, stream.schema, by, fields, where, more)
        check_one_task(by, tasks.get("parallelism", 1), where)
        sources = [] if window.by_count else _sources_of(stream, window, where)
        slot = new_state(state, name, stream, where, not_exactly_once, by=by)
        ids = [source.root for source in sources]
        operator = Windows(slot, window, stream.schema, by, given, out, ids)
        pairs = stream.send_groups(by, tasks).then(operator, PAIRS)
        for source in sources:
            source.ends_windows = True
            if window.field is not None:
                source.time = source.time or window.time
        rows = WindowBatches[Any](pairs.then(steps.TakeBranch(ON_TIME), out))
        rows.pairs, rows.written = pairs, WrittenState(pairs, slot, by)
        return rows

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


class GroupedBatches(Aggregations[R_co]):
    """Rows of batches, grouped by the values of the fields `by`."""

    def __init__(self, stream: RowStream[R_co], by: Sequence[str]) -> None:
        self.stream, self.by = stream, tuple(by)

    def _grouped(self) -> tuple[RowStream[R_co], tuple[str, ...]]:
        return self.stream, self.by

    def process(
        self,
        function: Callable[[R_co, KeyState[Any]], Iterable[Out] | None],
        *,
        fields: Columns | None = None,
        **settings: Unpack[BatchProcessSettings],
    ) -> BatchStream[Out]:
        """What `function(row, state)` yields, or returns in a list, for each row and the state of
        its key, which the function reads and changes: `state.value`.

        It is called in the commit phase, in txid order, and states are written once for each batch.
        A batch that is repeated finds them as they were before it. If the function raises, nothing
        of the batch is written. Settings: BatchProcessSettings.
        """
        where = self._location(f"process({code_name(function)})")
        state = processed(*self._grouped(), function, fields, settings, where)
        made = BatchStream[Out](state.rows)
        made.written = state
        return made.named(state.slot.name)


class BatchStream(RowStream[R_co], Aggregations[R_co]):
    """A stream of rows in batches. The methods raise TopologyError or a subclass for a declaration
    that cannot work: UnknownField, RecordMismatch for annotations that do not fit,
    DuplicateComponent."""

    written: WrittenState | None = None  # the state whose changes its rows are

    @overload
    def flat_map(self, function: BatchFunction, *, fields: type[Out]) -> BatchStream[Out]: ...
    @overload
    def flat_map(
        self, function: BatchFunction, *, fields: Sequence[str]
    ) -> BatchStream[tuple[Any, ...]]: ...
    @overload
    def flat_map(
        self, function: Callable[[R_co], Many[Out]], *, fields: Columns | None = None
    ) -> BatchStream[Out]: ...
    def flat_map(self, function: Any, *, fields: Columns | None = None) -> BatchStream[Any]:
        """What `function` yields, or returns in a list, for each row, as a bolt function does.

        A function marked with `@batch` gets many rows as an Arrow table and returns Derived, a
        table or None; `fields` gives its record type or columns. A callable object may have
        `prepare(context)` and `cleanup()`. Storm: each with a Function, flatMap.
        """
        where = self._where("flat_map", function)
        schema = each_schema(function, self.schema, fields, where)
        if getattr(function, "__sunshower_batch__", False):
            return self._each(lambda: steps.EachTable(function, self.schema, schema), schema)
        return self._each(lambda: steps.EachRow(function, schema), schema)

    @overload
    def map(
        self, function: Callable[[R_co], Awaitable[Out]], *, fields: Columns | None = None
    ) -> BatchStream[Out]: ...
    @overload
    def map(
        self, function: Callable[[R_co], Out], *, fields: Columns | None = None
    ) -> BatchStream[Out]: ...
    def map(self, function: Any, *, fields: Columns | None = None) -> BatchStream[Any]:
        """What `function` returns for each row."""
        schema = map_schema(function, self.schema, fields, self._where("map", function))
        return self._each(lambda: steps.Map(function, schema), schema)

    def project(self, *fields: str) -> BatchStream[tuple[Any, ...]]:
        """Some fields of each row, as plain tuples."""
        self._check_fields("project", fields)
        schema = columns_schema(fields, self._where("project"))
        return self._each(lambda: steps.Project(self.schema, fields), schema)

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

    def join(
        self,
        other: BatchStream[Any],
        on: str | Sequence[str],
        other_on: str | Sequence[str] | None = None,
        *,
        how: Literal["inner", "left"] = "inner",
        fields: Columns | None = None,
        **tasks: Unpack[TaskSettings],
    ) -> BatchStream[Any]:
        """Join rows with equal values of `on` within a batch: (key, other fields of self, of
        `other`). A left join keeps rows without a match, with None for the missing fields."""
        where = self._where("join")
        check_streams([self, other], where)
        ours, theirs, out = joined_schema(
            (self.schema, on),
            (other.schema, other_on),
            how=how,
            kinds=("inner", "left"),
            fields=fields,
            where=where,
        )
        stage = self.new_stage(tasks)
        inputs = [
            [stage.receive(stream.sources, ByFields(stream.schema, names))]
            for stream, names in ((self, ours), (other, theirs))
        ]
        sides = (self.schema, ours), (other.schema, theirs)
        operator = Join(*sides, out, keep_left=how == "left")
        return BatchStream(stage.add(operator, out, *inputs))

    def _each(self, operator: Callable[[], Operator], schema: Schema) -> BatchStream[Any]:
        return BatchStream(*self.add_to_each(operator, schema))

    def _grouped(self) -> tuple[RowStream[R_co], tuple[str, ...]]:
        return self, ()


class WindowBatches(BatchStream[R_co]):
    """The rows of windows that have ended, in batches."""

    pairs: RowSource  # (branch, row): with the late ones

    @property
    def late(self) -> BatchStream[R_co]:
        """Rows that came too late for their window, aggregated in the same way. One that is late
        for several windows counts in the last of them."""
        return BatchStream(self.pairs.then(steps.TakeBranch(LATE), self.schema))

    def _of(self, *sources: RowSource) -> Any:
        return BatchStream(*sources)


def _sources_of(stream: RowStream[Any], window: Window, where: str) -> list[StageBuilder]:
    """The stages of the spouts whose rows reach a window of time. Raises TopologyError if one of
    them does not know their event time, and for a window of event time behind another one."""
    found: dict[StageBuilder, None] = {}
    for rows in (one for source in stream.sources for one in source.derivation()):
        stage = rows.stage
        operator = None if rows.node is None else stage.nodes[rows.node][0]
        if window.field is not None and isinstance(operator, Windows):
            raise behind_window(where, f"window {operator.slot.name!r}")
        if rows is stage.spout_rows:
            found[stage] = None
            if window.time is not None:
                told = f"spout {stage.root!r}"
                check_time(window.time, stage.time, told, rows.schema, stage.spout, where)
    return [*found]


def _parts_of_updates(
    stream: RowStream[Any], divide: PartsOfUpdates, by: tuple[str, ...], tasks: TaskSettings
) -> RowSource:
    """The parts of the updates of a stream, in a new stage with the tasks of their groups."""
    for source in stream.sources:
        source.need_updates()
    schema = divide.out
    sharing = ByFields(schema, ("key",)) if by else ToFirst()
    if divide.places is not None:
        return RowStream(*stream.add_to_each(lambda: divide, schema)).send(sharing, tasks)
    pairs = RowStream[Any](*stream.add_to_each(lambda: divide, PAIRS))
    stage = stream.new_stage(tasks)
    parts, groups = (pairs.add_to_each(partial(steps.TakeBranch, n), schema) for n in (0, 1))
    arrivals = [stage.receive(parts, sharing), stage.receive(groups, ToAll())]
    return stage.add(Operator(), schema, arrivals)


def _written(
    rows: RowSource,
    slot: StateSlot,
    by: Sequence[str] | None,
    result: Callable[[Any], Any] | None = None,
) -> BatchStream[Any]:
    """What each batch changed in a state, after it is written."""
    stream = BatchStream[Any](rows)
    stream.written = WrittenState(rows, slot, by, result)
    return stream
