"""Declares what has an opaque state in batches: process, in_order, match, and what is delivered.

The keyed operators are those of ordinary streams, which `KeyedInBatches` runs in the commit phase.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Required

from sunshower.arguments import check_names
from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.topologies.operators.keyed.keyed_process import KeyedProcess
from sunshower.topologies.operators.keyed.process_settings import (
    EventOrder,
    ProcessSettings,
    keyed_process,
    match_process,
    time_of_states,
)
from sunshower.topologies.operators.record_operators import PAIRS
from sunshower.topologies.operators.schemas import code_name
from sunshower.topologies.operators.stages import StageRows
from sunshower.topologies.operators.states import Spread, StateFactory, StateKind, joined
from sunshower.topologies.operators.updates import INSTEAD_IN_BATCHES, refuse_updates
from sunshower.topologies.operators.windows.event_times import Ahead, TimeField, Unit
from sunshower.topologies.operators.windows.ordered_process import OrderedProcess
from sunshower.topologies.operators.windows.window_operator import TimedProcess
from sunshower.topologies.outputs import Columns
from sunshower.trident.declaration.stateful import (
    AnyBatches,
    WrittenState,
    follow_times,
    new_state,
)
from sunshower.trident.stages.keyed_operators import KeyedInBatches
from sunshower.trident.stages.outbox import Delivery, Outbox
from sunshower.trident.stages.persisting import BatchSlot
from sunshower.trident.stages.plan import TaskSettings, ToFirst

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
    - `late`: timers are due when the watermark is so far behind them, 0
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
    given = settings.get("name")
    id = code_name(function) if given is None else given
    has_times = on_timer is not None or order is not None or "late" in settings
    own = {*TaskSettings.__annotations__, "state", "name"}
    of_time = {"event_time", "zone", "ahead", "unit"} if not has_times else set[str]()
    shared: Any = {name: settings[name] for name in settings.keys() - own - of_time}
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
    return stream.send(ToFirst(), {}).then(Outbox(slot, delivery), Schema(("nothing",)))
