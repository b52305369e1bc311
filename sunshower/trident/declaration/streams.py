"""Streams of batches, and the methods that declare how their rows are processed.

    words = batches(topology, "lines", spout).flat_map(split)
    counts = words.group_by("word").aggregate(count(), state=SqliteState("counts.db"))

Each declaration is checked when it is made. Storm: org.apache.storm.trident.Stream, TridentState,
org.apache.storm.trident.fluent.GroupedStream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    Never,
    Required,
    Self,
    TypeVar,
    Unpack,
    overload,
)

from sunshower.arguments import FLAG, Instance, check_names
from sunshower.config import NOTHING, Resources
from sunshower.errors import RecordMismatch, TopologyError
from sunshower.field_types import classes_in
from sunshower.records import Schema
from sunshower.topologies.components import BatchFunction, Out
from sunshower.topologies.groupings import CustomGrouping
from sunshower.topologies.operators import steps
from sunshower.topologies.operators.aggregating import Aggregate, Combine, CombineFurther, Empty
from sunshower.topologies.operators.aggregators import AnyAggregator, CombinerAggregator
from sunshower.topologies.operators.joins.as_of_join import AsOfSettings
from sunshower.topologies.operators.joins.joined_streams import BoundedSettings
from sunshower.topologies.operators.keyed.distinct import first_in_batches
from sunshower.topologies.operators.keyed.key_states import StateOfKey
from sunshower.topologies.operators.keyed.process_settings import (
    ProcessSettings,
    keyed_process,
    time_of_states,
)
from sunshower.topologies.operators.port import Operator, Passing
from sunshower.topologies.operators.ranking import ExtremeRow
from sunshower.topologies.operators.record_operators import PAIRS, RecordOperators
from sunshower.topologies.operators.schemas import (
    bound_aggregators,
    check_fields,
    check_makes,
    code_name,
    columns_schema,
    joined_schema,
    persisted_schema,
    state_code_returns,
)
from sunshower.topologies.operators.stages import StageRows
from sunshower.topologies.operators.state_slot import Join as StateJoin
from sunshower.topologies.operators.state_slot import nothing_else
from sunshower.topologies.operators.states import Spread, StateFactory, StateKind
from sunshower.topologies.operators.totals import (
    Persist,
    PersistCombined,
    PersistReduced,
    check_one_task,
    single,
)
from sunshower.topologies.operators.updates import (
    INSTEAD_IN_BATCHES,
    INSTEAD_OF_WINDOW,
    Lineage,
    PartsOfUpdates,
    UpdatedTotals,
    check_replaces,
    merged_lineage,
    moved_origins,
    refuse_updates,
    totals_lineage,
    updated_operators,
)
from sunshower.topologies.operators.windows.declaring import check_time
from sunshower.topologies.operators.windows.event_times import Ahead, TimeField, Unit
from sunshower.topologies.operators.windows.window_kinds import Window, type_of_end
from sunshower.topologies.outputs import Columns, Row, check_id
from sunshower.topologies.signatures import Many, name_of
from sunshower.topologies.streams import Stream
from sunshower.trident.declaration.guarantee import check_kinds, check_sharing
from sunshower.trident.declaration.stage_builder import BatchStage, TaskSettings, is_uneven
from sunshower.trident.stages.persisting import (
    LATE,
    ON_TIME,
    BatchSlot,
    Lookup,
    PersistPartition,
    ProcessByKey,
    QueryState,
    Windows,
    moved_windows,
)
from sunshower.trident.stages.plan import (
    ByBatch,
    ByFields,
    ByGrouping,
    Join,
    RoundRobin,
    Sharing,
    ToAll,
    ToFirst,
    publishing,
)
from sunshower.trident.tasks.stage_bolt import RecordsBolt

R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S", bound=StateOfKey)
T = TypeVar("T")
_FIELDS = Instance((str, Iterable), "the name of a field, several, or a record type")


# ---- group ---------------------------------------------------------------------------------------


def check_streams(streams: Sequence[Any], where: str) -> None:
    """Raise TopologyError for a value that is not a stream of batches, or is of another group."""
    for stream in streams:
        if not isinstance(stream, BatchStream):
            raise TopologyError(f"{where}: {stream!r:.200} is not a stream of batches")
    check_group([stream.stage for stream in streams], where)


def check_group(stages: Sequence[BatchStage], where: str) -> None:
    """Raise TopologyError for stages of several groups."""
    groups = {stage.group: stage.root for stage in stages}
    if len(groups) > 1:
        raise TopologyError(
            f"{where}: {' and '.join(map(repr, groups.values()))} are of different groups, whose "
            "batches have nothing to do with each other; declare them with the same group, as in "
            'batches(…, group="orders")'
        )


# ---- states --------------------------------------------------------------------------------------


@dataclass(eq=False, frozen=True)
class WrittenState:
    """A state that a stream is written to, and `rows`: what its stage emits then."""

    rows: StageRows[BatchStage]
    slot: BatchSlot
    by: Sequence[str] | None  # the fields of its keys; None: the user's code chooses them
    result: Callable[[Any], Any] | None = None  # makes the answer of a query from a stored value


def new_state(
    factory: StateFactory,
    name: str,
    stream: BatchStream[Any],
    where: str,
    not_exactly_once: bool,
    *,
    by: Sequence[str] = (),
    in_place: bool = False,
    join: StateJoin = nothing_else,
    spread: Spread = Spread.BY_KEY,
) -> BatchSlot:
    """Register a state and return its slot. `by`: the fields of its keys. `in_place`: the rows are
    written in the tasks in which they are; otherwise they are first sent to the task of their
    group, or to a single one. `join` and `spread`: as of StateSlot. Raises TopologyError for a
    value that is not a state factory, a duplicate name, or a kind that is not exactly once with the
    spouts; RecordMismatch for keys that are Enums."""
    if not is_factory(factory):
        raise TopologyError(
            f'{where}: {name_of(factory)} is not a state; give one like SqliteState("counts.db")'
        )
    _refuse_enums(stream.schema, by, where)
    program = stream.stage.group.program
    program.check_open(where)
    if not isinstance(factory.kind, StateKind):
        raise TopologyError(f"{where}: kind is {factory.kind!r}; give one of StateKind")
    check_pairs(factory.kind, stream, where, not_exactly_once)
    if factory.kind is StateKind.TRANSACTIONAL and (
        stream.varies or (in_place and stream.is_uneven)
    ):
        check_sharing(where, accept=not_exactly_once, varies=stream.varies)
    program.keep_state(getattr(factory, "name", None) or name, where)
    return BatchSlot(
        factory,
        name,
        join,
        spread=spread,
        by=by,
        exactly_once=not not_exactly_once,
        can_move=not in_place,
    )


class BatchProcessSettings(TaskSettings, total=False):
    """The settings of `process` in batches.

    - `state`: where states are, of kind opaque; it must be given
    - `name`: of the bolt and of the state, by which a later run finds it; default: that of the
      function
    - `ttl_s`: a state that was not written for so many seconds is absent, and is removed: by
      `event_time`, in whose unit it is for numbers, or by the clock, as it was when the batch began
    - `event_time`, `zone`, `ahead`, `unit`: as of a window; for `ttl_s`
    - `renamed`: {"former field": "field"} of the record types in states, as of ordinary streams
    """

    state: Required[StateFactory]
    name: str
    ttl_s: float
    renamed: Mapping[str, str | None]
    event_time: str
    zone: str
    ahead: Ahead
    unit: Unit


def processed(
    stream: BatchStream[Any],
    by: tuple[str, ...],
    function: Any,
    fields: Columns | None,
    settings: Mapping[str, Any],
    where: str,
) -> WrittenState:
    """Declare the calls of a function of a row and the state of its key. Raises as process_of, and
    TopologyError for a state that does not keep the values from before a batch."""
    for setting in settings.keys() & {"on_timer", *ProcessSettings.__annotations__}:
        if setting not in BatchProcessSettings.__annotations__:
            raise TopologyError(
                f"{where}: {setting}= is for ordinary streams: batches, which are exactly once, "
                "have neither timers nor states of several versions; leave it out"
            )
    check_names(settings, BatchProcessSettings.__annotations__, where, TopologyError)
    refuse_updates(stream.lineage, where, "process", INSTEAD_IN_BATCHES)
    given = settings.get("name")
    id = code_name(function) if given is None else given
    ttl_s = settings.get("ttl_s")
    time = time_of_states(stream.schema, settings, where)
    shared: Any = {name: settings[name] for name in ("ttl_s", "renamed") if name in settings}
    calls = keyed_process(
        function,
        None,
        id=id,
        reads=stream.schema,
        by=by,
        fields=fields,
        settings=shared,
        where=where,
    )
    state: Any = settings.get("state")
    kind = getattr(state, "kind", None)
    if isinstance(kind, StateKind) and kind is not StateKind.OPAQUE:
        raise TopologyError(
            f"{where}: a state of kind {kind.value} has lost the values from before a batch "
            "that is repeated, which the function is called with again; take one of kind opaque"
        )
    slot = new_state(state, id, stream, where, not_exactly_once=False, by=by)
    tasks: Any = {name: settings[name] for name in TaskSettings.__annotations__ if name in settings}
    rows = stream.send_groups(by, tasks)
    out = calls.schema if calls.schema.fields else Schema(("nothing",))
    sources = () if ttl_s is None else _sources_of(stream, time, where)
    ids = [source.root for source in sources]
    outputs = rows.then(ProcessByKey(slot, calls, ids, time), out)
    _need_times(sources, time)
    outputs.varies = True  # with the order in which rows of several tasks come
    return WrittenState(outputs, slot, by, calls.store.read)


def _refuse_enums(schema: Schema, by: Sequence[str], where: str) -> None:
    for name in by:
        for kind in classes_in(schema.kind(name), name):
            if issubclass(kind, Enum) and not issubclass(kind, str | int | float):
                raise RecordMismatch(
                    f"{where}: field {name!r} is the Enum {kind.__name__}, which a state cannot "
                    "have in its keys; add a field with its value before, and group by that"
                )


def check_pairs(
    kind: StateKind, stream: BatchStream[Any], where: str, not_exactly_once: bool
) -> None:
    """Raise TopologyError, or only warn, if the spouts and a state of this kind are not exactly
    once."""
    FLAG.check(f"{where}: not_exactly_once", not_exactly_once, TopologyError)
    for spout in {stage.spout.kind for stage in stream.upstream() if stage.spout is not None}:
        check_kinds(spout, kind, where, not_exactly_once)


def is_factory(state: Any) -> bool:
    """Whether it is a state factory."""
    return not isinstance(state, type) and hasattr(state, "make") and hasattr(state, "kind")


def declare_query(
    stream: BatchStream[Any],
    by: Sequence[str],
    state: WrittenState | StateFactory,
    function: Any,
    fields: str | Columns,
    where: str,
    tasks: TaskSettings,
) -> StageRows[BatchStage]:
    """Each row with an answer of the state; `tasks` are for a static state with groups."""
    schema = stream.schema
    if not isinstance(state, WrittenState) and not is_factory(state):
        raise TopologyError(
            f"{where}: {name_of(state)} is not a state; give what aggregate(…, state=…) or "
            "partition_persist has returned, or StaticState(…)"
        )
    if tasks and (isinstance(state, WrittenState) or not by):
        raise TopologyError(
            f"{where}: the query begins no stage, so it has no {'= and '.join(tasks)}=; give that "
            "where its stage begins: that of the state, or for a static state that of the rows"
        )
    if function is not None:
        state_code_returns(function, schema, where)
    out = _with_answer(schema, fields, where)
    if not isinstance(state, WrittenState):
        ask = function or Lookup(schema, by)
        slot = BatchSlot(state, "static", can_move=False)
        operator = QueryState(slot, ask, schema, out, commits=False)
        if not by:
            return stream.add(operator, out)
        return stream.send(ByFields(schema, tuple(by)), tasks).then(operator, out)
    check_group([stream.stage, state.rows.stage], where)
    if function is None:
        _check_keys(by, state, where)
    sources = _at_state(stream, by, state, where)
    ask = function or Lookup(schema, by, state.result)
    operator = QueryState(state.slot, ask, schema, out, commits=True)
    return state.rows.stage.add(operator, out, sources)


def _at_state(
    stream: BatchStream[Any], by: Sequence[str], state: WrittenState, where: str
) -> Sequence[StageRows[BatchStage]]:
    """The rows in the stage that writes the state."""
    stage = state.rows.stage
    if not by and {source.stage for source in stream.sources} == {stage}:
        return stream.sources
    if stage in stream.upstream():
        raise TopologyError(
            f"{where}: these rows come out of the state's own stage, and would have to go back to "
            "it within a batch; ask a stream that does not come from the state"
        )
    if not by and stage.parallelism > 1:
        raise TopologyError(
            f"{where}: the state has {stage.parallelism} tasks; say which of them has what a row "
            "asks for: .group_by(…).state_query(…)"
        )
    sharing = ByFields(stream.schema, tuple(by)) if by else ToFirst()
    return [stage.receive(stream.sources, sharing)]


def _check_keys(by: Sequence[str], state: WrittenState, where: str) -> None:
    """Raise TopologyError if groups of the fields `by` cannot be keys of the state."""
    if isinstance(state.rows.operator, Windows):
        raise TopologyError(
            f"{where}: a state of windows has no value for each group; give a function(state, rows)"
        )
    if state.by is not None and len(by) != len(state.by):
        keys = ", ".join(state.by) or "nothing, for it is not grouped"
        raise TopologyError(
            f"{where}: the keys of the state are made of {keys}; group by as many fields in that "
            "order, or give a function(state, rows)"
        )


def _with_answer(schema: Schema, fields: str | Columns, where: str) -> Schema:
    """The fields of a row and its answer."""
    if isinstance(fields, type):
        whole = columns_schema(fields, where)
        if whole.fields[: len(schema.fields)] != schema.fields or len(whole.fields) == len(
            schema.fields
        ):
            raise RecordMismatch(
                f"{where}: fields= is {whole.name}, but a row is ({', '.join(schema.fields)}) and "
                "its answer after it"
            )
        check_makes(whole, where)
        return whole
    _FIELDS.check(f"{where}: fields", fields, TopologyError)
    names = (fields,) if isinstance(fields, str) else tuple(fields)
    if not names:
        raise TopologyError(f'{where}: fields= is empty; name the answer, as in fields="value"')
    return columns_schema((*schema.fields, *names), where)


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
        given, out = bound_aggregators(aggregators, stream.schema, by, fields, where)
        empty = Empty.NOBODY if by else Empty.EACH
        return BatchStream(stream.add(Aggregate(stream.schema, by, given, out, empty), out))

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
        given, out = bound_aggregators(aggregators, stream.schema, by, fields, where)
        totals = (
            self._aggregated(given, out, tasks)
            if state is None
            else self._kept(given, out, state, tasks, name, where, not_exactly_once)
        )
        return totals if name is None else totals.named(name)

    def _aggregated(
        self, given: Sequence[AnyAggregator], out: Schema, tasks: TaskSettings
    ) -> BatchStream[Any]:
        """The aggregates of each batch by itself."""
        stream, by = self._grouped()
        empty = Empty.NOBODY if by else Empty.ONE
        if all(isinstance(aggregator, CombinerAggregator) for aggregator in given):
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
        aggregator = single(given, by, tasks.get("parallelism", 1), where)
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
        open windows; the commit phase of a batch writes those of its groups.

        Raises TopologyError if a spout upstream does not know the event time of its rows, and for a
        window of event time behind another window.
        """
        stream, by = self._grouped()
        where = self._location("window")
        if not isinstance(window, Window):
            raise TopologyError(f"{where}: {window!r} is no window; give tumbling(…) or sliding(…)")
        refuse_updates(stream.lineage, where, "A window", INSTEAD_OF_WINDOW)
        if window.repeated is not None or window.until is not None:
            raise TopologyError(
                f"{where}: early=, allowed= and until= are for windows of ordinary streams; leave "
                "them out"
            )
        if window.field is not None:
            stream.schema.check_field(window.field, where)
        more = {"window": type_of_end(window, stream.schema, where)}
        given, out = bound_aggregators(aggregators, stream.schema, by, fields, where, more)
        check_one_task(by, tasks.get("parallelism", 1), where)
        sources = [] if window.by_count else _sources_of(stream, window.time, where)
        kind: Any = getattr(state, "kind", None)
        join = partial(moved_windows, width=len(by), window=window, kind=kind)
        slot = new_state(
            state, name, stream, where, not_exactly_once, by=by, join=join, spread=Spread.BY_GROUP
        )
        ids = [source.root for source in sources]
        operator = Windows(slot, window, stream.schema, by, given, out, ids)
        pairs = stream.send_groups(by, tasks).then(operator, PAIRS)
        _need_times(sources, window.time)
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

    def __init__(self, stream: BatchStream[R_co], by: Sequence[str]) -> None:
        self.stream, self.by = stream, tuple(by)

    def _grouped(self) -> tuple[BatchStream[R_co], tuple[str, ...]]:
        return self.stream, self.by

    if not TYPE_CHECKING:  # hidden from mypy

        def in_order(self, *_: object, **__: object) -> Never:
            """Raise TopologyError: it is for ordinary streams."""
            raise TopologyError(
                f"{self._location('in_order')}: records in the order of event time, and patterns "
                "in them, are for ordinary streams. Rows of a batch come in the order of their "
                "sources: use .process(…), or read the source by Topology.spout"
            )

    def process(
        self,
        function: Callable[[R_co, S], Iterable[Out] | None],
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
        outputs = BatchStream[Out](state.rows)
        outputs.written = state
        return outputs.named(state.slot.name)


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
        stage.add(Passing(), schema, [stage.receive(self.sources, RoundRobin())])
        if (lineage := self.lineage) is not None:
            stream._lineage = replace(lineage, blocked=lineage.blocked or "records(…)")
        return stream

    def send_groups(self, by: tuple[str, ...], tasks: TaskSettings) -> StageRows[BatchStage]:
        """These rows in the tasks that have the state of their group; without groups it is one."""
        return self.send(ByFields(self.schema, by) if by else ToFirst(), tasks)

    def combined(self, given: Sequence[AnyAggregator], by: Sequence[str]) -> BatchStream[Any]:
        """Combined rows (fields of the group, a value for each combiner), still in their tasks."""
        schema = Schema((*by, *(f"value-{number}" for number in range(len(given)))))
        return BatchStream[Any](*self.add_to_each(lambda: Combine(self.schema, by, given), schema))

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
            most = max(stage.parallelism for stage in stages)
            self._gathered = self.send(RoundRobin(), {"parallelism": most})
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
        given: Any = {"name": "distinct", **settings}
        columns = self.schema.fields if self.schema.type is tuple else self.schema.type
        return self.group_by(*fields).process(first_in_batches, fields=columns, **given)

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
        across = {*BoundedSettings.__annotations__, *AsOfSettings.__annotations__}
        if wrong := (tasks.keys() & across) - TaskSettings.__annotations__.keys():
            raise TopologyError(
                f"{where}: it pairs the rows of one batch, and {min(wrong)}= is for records that "
                "wait for each other: join ordinary streams, which is at least once, or give "
                "what is joined in one batch"
            )
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

    def _grouped(self) -> tuple[BatchStream[R_co], tuple[str, ...]]:
        return self, ()


class WindowBatches(BatchStream[R_co]):
    """The rows of windows that have ended, in batches."""

    pairs: StageRows[BatchStage]  # (branch, row): with the late ones

    @property
    def late(self) -> BatchStream[R_co]:
        """Rows that came too late for their window, aggregated in the same way. One that is late
        for several windows counts in the last of them."""
        return BatchStream(self.pairs.then(steps.TakeBranch(LATE), self.schema))

    def _of(self, *sources: StageRows[BatchStage]) -> Any:
        return BatchStream(*sources)


def _sources_of(stream: BatchStream[Any], time: TimeField | None, where: str) -> list[BatchStage]:
    """The stages of the spouts whose rows reach a window of time, or states that expire. Raises
    TopologyError if one of them does not know event times, and for these behind a window."""
    stages: dict[BatchStage, None] = {}
    for rows in (rows for source in stream.sources for rows in source.derivation()):
        stage, operator = rows.stage, rows.operator
        if time is not None and isinstance(operator, Windows):
            raise TopologyError(
                f"{where}: it is downstream of window {operator.slot.name!r}, and in exactly-once "
                "batches the rows of a window leave after their event time has passed; aggregate "
                "them without a window of event time, or use ordinary streams, where windows may "
                "follow each other"
            )
        if rows is stage.spout_rows:
            stages[stage] = None
            if time is not None:
                spout = f"spout {stage.root!r}"
                check_time(time, stage.time, spout, rows.schema, stage.spout, where)
    return [*stages]


def _need_times(sources: Iterable[BatchStage], time: TimeField | None) -> None:
    """Let spouts send the times of their batches, and of their rows if `time` is given."""
    for source in sources:
        source.ends_windows = True
        source.time = source.time or time


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
