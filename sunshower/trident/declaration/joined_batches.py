"""Declares joins and tables of batches; separate because streams are long.

They are those of ordinary streams, and run in the commit phase: see `KeyedInBatches`. The join of
the rows of one batch (`Join` in `trident/stages/plan.py`) keeps nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Required

from sunshower.arguments import check_names
from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.topologies.operators.joins.as_of_join import declared_as_of, state_beside
from sunshower.topologies.operators.joins.joined_streams import (
    BoundedSettings,
    DeclaredJoin,
    JoinSettings,
    declared_join,
    key_names,
)
from sunshower.topologies.operators.joins.keyed_tables import AnyTable, table_store
from sunshower.topologies.operators.joins.stream_join import JoinInput
from sunshower.topologies.operators.keyed.connected import Input, declared_connection
from sunshower.topologies.operators.port import Operator
from sunshower.topologies.operators.record_operators import PAIRS
from sunshower.topologies.operators.schemas import code_name, joined_schema
from sunshower.topologies.operators.stages import StageRows
from sunshower.topologies.operators.states import Spread, StateFactory, StateKind
from sunshower.topologies.operators.steps import TakeBranch
from sunshower.topologies.operators.updates import INSTEAD_IN_BATCHES, refuse_updates
from sunshower.topologies.operators.windows.event_times import TimeField
from sunshower.topologies.operators.windows.window_operator import TimedProcess
from sunshower.topologies.outputs import Columns
from sunshower.trident.declaration.keyed_batches import BatchProcessSettings, opaque_state
from sunshower.trident.declaration.stateful import (
    AnyBatches,
    check_pairs,
    follow_times,
)
from sunshower.trident.stages.keyed_operators import KeyedInBatches
from sunshower.trident.stages.plan import ByFields, Join, RoundRobin, Sharing, TaskSettings, ToAll

if TYPE_CHECKING:
    from sunshower.trident.declaration.stage_builder import BatchStage

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
            given: Any = {**_inherited(self.settings), **settings}
            return _joined(declared_as_of(stream, self, on, fields, given, where), given, where)
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
    own = {*TaskSettings.__annotations__, "state", "name"}
    shared: Any = {name: settings[name] for name in settings.keys() - own}
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
