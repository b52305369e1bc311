"""Declares what has an opaque state in batches; separate because streams are long.

Keyed operators, joins and tables are those of ordinary streams, which `KeyedInBatches` runs in the
commit phase.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Required

from sunshower.arguments import check_names
from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.topologies.operators.joins.joined_streams import (
    BoundedSettings,
    DeclaredJoin,
    JoinSettings,
    declared_as_of,
    declared_join,
    state_beside,
)
from sunshower.topologies.operators.joins.keyed_tables import AnyTable, table_store
from sunshower.topologies.operators.joins.stream_join import JoinInput, key_names
from sunshower.topologies.operators.keyed.keyed_process import KeyedProcess, first_in_batches
from sunshower.topologies.operators.keyed.process_settings import (
    EventOrder,
    Input,
    ProcessSettings,
    declared_connection,
    keyed_process,
    match_process,
    time_of_states,
    times_of,
)
from sunshower.topologies.operators.port import Operator
from sunshower.topologies.operators.record_operators import PAIRS
from sunshower.topologies.operators.schemas import code_name, joined_schema
from sunshower.topologies.operators.stages import StageRows
from sunshower.topologies.operators.states import Spread, StateFactory, StateKind, joined
from sunshower.topologies.operators.steps import TakeBranch
from sunshower.topologies.operators.updates import INSTEAD_IN_BATCHES, refuse_updates
from sunshower.topologies.operators.windows.event_times import (
    Ahead,
    TimeField,
    Unit,
    length_of,
)
from sunshower.topologies.operators.windows.ordered_process import OrderedProcess
from sunshower.topologies.operators.windows.window_operator import TimedProcess
from sunshower.topologies.outputs import Columns
from sunshower.trident.declaration.stateful import (
    AnyBatches,
    WrittenState,
    check_pairs,
    follow_times,
    new_state,
)
from sunshower.trident.stages.keyed_operators import KeyedInBatches
from sunshower.trident.stages.outbox import Delivery, Outbox
from sunshower.trident.stages.persisting import BatchSlot
from sunshower.trident.stages.plan import (
    ByFields,
    Join,
    RoundRobin,
    Sharing,
    TaskSettings,
    ToAll,
    ToFirst,
)

if TYPE_CHECKING:
    from sunshower.trident.declaration.stage_builder import BatchStage


class KeyedBatchSettings(TaskSettings, total=False):
    """The settings of `match` in batches.

    - `state`: where states are, of kind opaque; it must be given
    - `name`: of the bolt and of the state, by which a later run finds it; "match"
    """

    state: Required[StateFactory]
    name: str


class OrderedBatchSettings(KeyedBatchSettings, total=False):
    """The settings of `process` behind `in_order`, in batches: those of KeyedBatchSettings, whose
    `name` is that of the function, and those of its states.

    - `ttl_s`: a state that was not written for so many seconds is absent, and is removed: by the
      clock, as it was when the batch began
    - `renamed`: {"former field": "field"} of the record types in states, as of ordinary streams
    """

    ttl_s: float
    renamed: Mapping[str, str | None]


class BatchProcessSettings(OrderedBatchSettings, total=False):
    """The settings of `process` in batches: those of OrderedBatchSettings, and those of time.

    - `event_time`: the field with the time of a row, for timers and for `ttl_s`, in whose unit that
      is for numbers; without it they are by the clock, as it was when the batch began
    - `late`: timers are due when the watermark is so far behind them, 0; what is behind such a
      stage, or behind `distinct`, follows a watermark that is so far back
    - `zone`, `ahead`, `unit`: as of a window
    """

    event_time: str
    late: float
    zone: str
    ahead: Ahead
    unit: Unit


def processed(
    stream: AnyBatches,
    by: tuple[str, ...],
    function: Any,
    on_timer: Any,
    fields: Columns | None,
    settings: Mapping[str, Any],
    where: str,
    order: EventOrder | None = None,
) -> WrittenState:
    """Declare the calls of a function of a row and the state of its key, and of `on_timer`, if any.
    `order`: in which rows are handed on; None: as they arrive. Raises as process_of, and
    TopologyError for a state that does not keep the values from before a batch."""
    known = BatchProcessSettings if order is None else OrderedBatchSettings
    for setting in settings.keys() & ProcessSettings.__annotations__.keys():
        if setting not in BatchProcessSettings.__annotations__:
            raise TopologyError(
                f"{where}: {setting}= is for ordinary streams: the states of batches have no "
                "versions; leave it out"
            )
    names = {*ProcessSettings.__annotations__, *known.__annotations__}
    check_names(settings, names, where, TopologyError)
    refuse_updates(stream.lineage, where, "process", INSTEAD_IN_BATCHES)
    name_set = settings.get("name")
    id = code_name(function) if name_set is None else name_set
    has_times = on_timer is not None or order is not None or "late" in settings
    own_settings = {*TaskSettings.__annotations__, "state", "name"}
    of_time = {"event_time", "zone", "ahead", "unit"} if not has_times else set[str]()
    shared: Any = {name: settings[name] for name in settings.keys() - own_settings - of_time}
    calls = keyed_process(
        function,
        on_timer,
        id=id,
        reads=stream.schema,
        by=by,
        fields=fields,
        settings=shared,
        where=where,
        order=order,
    )
    time = None if has_times else time_of_states(stream.schema, settings, where)
    if isinstance(calls, TimedProcess) and order is None and calls.store.keeps_ages:
        time = calls.event_time
    return _in_batches(stream, by, calls, id, settings, where, time)


def first_rows(
    stream: AnyBatches, by: tuple[str, ...], settings: Mapping[str, Any], where: str
) -> WrittenState:
    """Declare `distinct`. Raises as `processed`."""
    all_settings: dict[str, Any] = {"name": "distinct", **settings}
    times = times_of(stream.schema, all_settings, where, timed=True)
    late = all_settings.pop("late", 0)
    if all_settings.get("ttl_s") is None:  # nothing expires
        for name in ("ttl_s", "event_time", "zone", "ahead", "unit"):
            all_settings.pop(name, None)
    columns: Any = stream.schema.fields if stream.schema.type is tuple else stream.schema.type
    written = processed(stream, by, first_in_batches, None, columns, all_settings, where)
    if late:
        operator = written.rows.operator
        assert isinstance(operator, KeyedInBatches)
        senders = follow_times(stream, times["event_time"], where)
        operator.follow(senders, times["event_time"], length_of(late))
    return written


def matched(
    stream: AnyBatches,
    by: tuple[str, ...],
    order: EventOrder,
    pattern: tuple[Sequence[Any], Any, Any],
    select: Any,
    fields: Columns | None,
    settings: Mapping[str, Any],
    where: str,
) -> WrittenState:
    """Declare the matches of a pattern, of its (steps, within, skip). Raises as `processed`."""
    check_names(settings, KeyedBatchSettings.__annotations__, where, TopologyError)
    id = settings.get("name") or "match"
    calls = match_process(stream.schema, by, order, pattern, select, fields, None, id, where)
    return _in_batches(stream, by, calls, id, settings, where, None)


def _in_batches(
    stream: AnyBatches,
    by: tuple[str, ...],
    calls: KeyedProcess,
    id: str,
    settings: Mapping[str, Any],
    where: str,
    ages: TimeField | None,
) -> WrittenState:
    """Declare an operator of one stream, with its state. `ages`: the event time by which states
    expire. Of records in order, the rows are (branch, row)."""
    slot = opaque_state(stream, by, id, settings, where)
    tasks: Any = {name: settings[name] for name in TaskSettings.__annotations__ if name in settings}
    rows = stream.send_groups(by, tasks)
    is_timed = isinstance(calls, TimedProcess)
    time = calls.event_time if isinstance(calls, TimedProcess) else ages
    senders = follow_times(stream, time, where) if is_timed or calls.store.keeps_ages else ()
    operator = KeyedInBatches(slot, calls, senders, ages)
    emits = PAIRS if isinstance(calls, OrderedProcess) else operator.makes
    outputs = rows.then(operator, emits)
    outputs.varies = True  # with the order in which rows of several tasks come
    return WrittenState(outputs, slot, by, calls.store.read)


def opaque_state(
    stream: AnyBatches,
    by: Sequence[str],
    id: str,
    settings: Mapping[str, Any],
    where: str,
    spread: Spread = Spread.BY_KEY,
    *,
    in_place: bool = False,
) -> BatchSlot:
    """Register the state of a keyed operator. Raises as new_state, and TopologyError for a state
    that does not keep the values from before a batch."""
    state: Any = settings.get("state")
    kind = getattr(state, "kind", None)
    if isinstance(kind, StateKind) and kind is not StateKind.OPAQUE:
        raise TopologyError(
            f"{where}: a state of kind {kind.value} has lost the values from before a batch "
            "that is repeated, which the function is called with again; take one of kind opaque"
        )
    join = partial(joined, has_panes=False)
    about: Any = {"by": by, "join": join, "spread": spread, "in_place": in_place}
    return new_state(state, id, stream, where, not_exactly_once=False, **about)


def delivered(
    stream: AnyBatches, delivery: Delivery, state: StateFactory, name: str, where: str
) -> StageRows[BatchStage]:
    """Deliver the rows of committed batches, see Outbox; it emits none. Raises as opaque_state."""
    slot = opaque_state(stream, (), name, {"state": state}, where, in_place=True)
    outbox = Outbox(slot, delivery, where)
    return stream.send(ToFirst(), {}).then(outbox, Schema(("nothing",)))


# ---- joins and tables ----------------------------------------------------------------------------

# The join of the rows of one batch (`Join` in `trident/stages/plan.py`) keeps nothing.

_ACROSS = {*BoundedSettings.__annotations__} - {*TaskSettings.__annotations__, "other_on"}
_OF_TABLES = "a join with a table"


def joined_within(
    left: AnyBatches,
    right: AnyBatches,
    on: str | Sequence[str] | None,
    fields: Columns | None,
    settings: Mapping[str, Any],
    where: str,
) -> StageRows[BatchStage]:
    """The join of the rows of one batch. Raises TopologyError."""
    if "as_of" in settings:
        raise TopologyError(
            f"{where}: it pairs the rows of one batch, and as_of= is for a join with a table: "
            'other.group_by("key").table(field="changed", state=…)'
        )
    check_names(settings, ("how", "other_on", *TaskSettings.__annotations__), where, TopologyError)
    how = settings.get("how", "inner")
    if how in ("outer", "semi", "anti"):
        raise TopologyError(
            f'{where}: how="{how}" is for a join across batches: give within= and field=, or '
            'keep_s=, and a state=. Within a batch it is "inner" or "left"'
        )
    ours, theirs, out = joined_schema(
        (left.schema, on),
        (right.schema, settings.get("other_on")),
        how=how,
        kinds=("inner", "left"),
        fields=fields,
        where=where,
    )
    stage = left.new_stage(_tasks_of(settings))
    inputs = [
        [stage.receive(stream.sources, ByFields(stream.schema, names))]
        for stream, names in ((left, ours), (right, theirs))
    ]
    operator = Join((left.schema, ours), (right.schema, theirs), out, keep_left=how == "left")
    return stage.add(operator, out, *inputs)


def is_across(settings: Mapping[str, Any]) -> bool:
    """Whether a join with these settings pairs rows of several batches."""
    return bool(_ACROSS & settings.keys())


def joined_across(
    left: AnyBatches,
    right: AnyBatches,
    on: str | Sequence[str] | None,
    fields: Columns | None,
    settings: JoinSettings,
    where: str,
) -> StageRows[BatchStage]:
    """The join of two streams across batches: rows (branch, joined row). Raises TopologyError."""
    return _joined(declared_join(left, right, on, fields, settings, where), settings, where)


def _joined(join: DeclaredJoin, settings: Mapping[str, Any], where: str) -> StageRows[BatchStage]:
    left, right = join.left.stream, join.right.stream
    slot = opaque_state(left, join.left.key, join.name, settings, where, Spread.BY_GROUP)
    check_pairs(StateKind.OPAQUE, right, where, not_exactly_once=False)
    senders: dict[str, None] = {}
    for side in (join.left, join.right):
        senders |= dict.fromkeys(follow_times(side.stream, side.time, where))
    stage = left.new_stage(_tasks_of(settings))
    arrivals = [
        stage.receive(*_divided(side.stream, side.divide, side.rows, key_names(side.key)))
        for side in (join.left, join.right)
    ]
    operator = KeyedInBatches(slot, join.operator, senders)
    operator.time = join.left.time
    return _named(stage.add(operator, PAIRS, arrivals), join.name)


def _divided(
    stream: AnyBatches, divide: Callable[[], Operator], rows: Schema, key: Sequence[str]
) -> tuple[Sequence[StageRows[BatchStage]], Sharing]:
    """The rows of a stream as `divide` makes them, and how they go to the tasks of their keys."""
    return stream.add_to_each(divide, rows), ByFields(rows, tuple(key))


def _named(rows: StageRows[BatchStage], name: str) -> StageRows[BatchStage]:
    """The rows of a keyed operator, whose stage has its name."""
    rows.varies = True  # with the order in which rows of several tasks come
    rows.stage.name = name
    return rows


def _tasks_of(settings: Mapping[str, Any]) -> Any:
    return {name: settings[name] for name in TaskSettings.__annotations__ if name in settings}


# ---- tables --------------------------------------------------------------------------------------


class BatchTableSettings(TaskSettings, total=False):
    """The settings of `table` in batches.

    - `state`: where the table is, of kind opaque; it must be given
    - `field`: the time of a change, or another number that grows: a change with a lower one than
      that of the row in the table changes nothing
    - `broadcast`: each task has the whole table, so the streams are not distributed by key
    - `name`: of the bolt and of the state, by which a later run finds it; "table"
    """

    state: Required[StateFactory]
    field: str | None
    broadcast: bool
    name: str


class BatchTable(AnyTable):
    """The latest row of each key of a stream of batches. `stream.join(table)` joins rows with it:
    those of a batch with what the table has after the changes of this batch."""

    changes: AnyBatches

    def __init__(
        self, changes: AnyBatches, by: tuple[str, ...], settings: BatchTableSettings, where: str
    ) -> None:
        check_names(settings, BatchTableSettings.__annotations__, where, TopologyError)
        refuse_updates(changes.lineage, where, "A table", INSTEAD_IN_BATCHES)
        store = table_store(changes.schema, by, settings, where)
        super().__init__(changes, by, store, settings)
        spread = Spread.EVERYWHERE if self._broadcast else Spread.BY_KEY
        slot = opaque_state(changes, by, self.name, settings, where, spread)
        rows, key = self._operator.reads, key_names(by)
        stage = changes.new_stage(_tasks_of(settings))
        divided, sharing = _divided(changes, self.divided_changes, rows, key)
        arrival = stage.receive(divided, ToAll() if self._broadcast else sharing)
        operator = KeyedInBatches(slot, self._operator, order=_ChangesFirst(len(by)))
        operator.silent_inputs = 1
        self._pairs = _named(stage.add(operator, PAIRS, [arrival]), self.name)

    def join(
        self,
        stream: AnyBatches,
        on: str | Sequence[str] | None,
        fields: Columns | None,
        settings: Mapping[str, Any],
        where: str,
    ) -> StageRows[BatchStage]:
        """The rows of a stream, joined with the table; `as_of`: rows (branch, joined row). Raises
        TopologyError."""
        if "as_of" in settings:
            all_settings: Any = {**_inherited(self.settings), **settings}
            return _joined(
                declared_as_of(stream, self, on, fields, all_settings, where), all_settings, where
            )
        refuse_updates(stream.lineage, where, "A join with a table", INSTEAD_IN_BATCHES)
        check_pairs(StateKind.OPAQUE, stream, where, not_exactly_once=False)
        stage = self._pairs.stage
        if stage in stream.upstream():
            raise TopologyError(
                f"{where}: these rows come out of the table's own stage, and would have to go back "
                "to it within a batch; join a stream that does not come from the table"
            )
        number, ours, out = self.add_join(stream.schema, on, fields, settings, where)
        rows = self._operator.reads

        def divide() -> JoinInput:
            return JoinInput(stream.schema, ours, number, None)

        divided, sharing = _divided(stream, divide, rows, key_names(ours))
        arrival = stage.receive(divided, RoundRobin() if self._broadcast else sharing)
        stage.add_input(self._pairs, 1, [arrival])
        return self._pairs.then(TakeBranch(number), out)


class _ChangesFirst:
    """The order of the rows of a batch: those of input 0, which change the table, first."""

    def __init__(self, width: int) -> None:
        self._place = width

    def __call__(self, row: Sequence[Any]) -> bool:
        return bool(row[self._place])


def _inherited(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a table that an as-of join has, too."""
    names = ("state", *TaskSettings.__annotations__)
    inherited = {name: settings[name] for name in names if name in settings}
    return {**inherited, "state": state_beside(settings["state"])}


# ---- connected streams ---------------------------------------------------------------------------


class ConnectedBatchSettings(BatchProcessSettings, total=False):
    """The settings of `process` behind `connect`: those of BatchProcessSettings, with one
    difference.

    - `event_time`: the field with the time of a row, or a list of those of all streams, in their
      order; without it timers are by the clock
    """

    event_time: str | Sequence[str]  # type: ignore[misc]


def connected(
    inputs: Sequence[tuple[AnyBatches, tuple[str, ...]]],
    function: Any,
    on_timer: Any,
    fields: Columns | None,
    settings: Mapping[str, Any],
    where: str,
) -> StageRows[BatchStage]:
    """The calls of a function with the rows of several streams. Raises as `processed`."""
    check_names(settings, BatchProcessSettings.__annotations__, where, TopologyError)
    first, by = inputs[0]
    id = settings.get("name") or code_name(function)
    own_settings = {*TaskSettings.__annotations__, "state", "name"}
    shared: Any = {name: settings[name] for name in settings.keys() - own_settings}
    both = [Input(*each) for each in inputs]
    connection = declared_connection(both, function, on_timer, fields, shared, id, where)
    slot = opaque_state(first, by, id, settings, where)
    senders: dict[str, None] = {}
    times: Sequence[TimeField | None] = connection.times or [None] * len(inputs)
    for (stream, _), time in zip(inputs, times, strict=True):
        check_pairs(StateKind.OPAQUE, stream, where, not_exactly_once=False)
        senders |= dict.fromkeys(follow_times(stream, time, where))
    stage, rows = first.new_stage(_tasks_of(settings)), connection.operator.reads
    arrivals = [
        stage.receive(*_divided(stream, divide, rows, connection.keys))
        for (stream, _), divide in zip(inputs, connection.divides, strict=True)
    ]
    process = connection.operator
    ages = process.event_time if isinstance(process, TimedProcess) else None
    ages = ages if process.store.keeps_ages else None
    operator = KeyedInBatches(slot, process, senders, ages)
    return _named(stage.add(operator, operator.makes, arrivals), id)
