"""Declares what has a state or follows event time in batches; separate because streams are long.

A window of event time follows what sends it times: the spouts whose rows reach it, and the windows
on the way, see `Timed` in `trident/stages/plan.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, Protocol, Required

from sunshower.arguments import FLAG, Instance, check_names
from sunshower.errors import RecordMismatch, TopologyError
from sunshower.field_types import classes_in, hints_of
from sunshower.records import Schema
from sunshower.topologies.operators.aggregators import AnyAggregator
from sunshower.topologies.operators.keyed.process_settings import (
    ProcessSettings,
    keyed_process,
    time_of_states,
)
from sunshower.topologies.operators.port import Operator
from sunshower.topologies.operators.record_operators import PAIRS
from sunshower.topologies.operators.schemas import (
    check_makes,
    code_name,
    columns_schema,
    state_code_returns,
)
from sunshower.topologies.operators.stages import StageRows
from sunshower.topologies.operators.state_slot import Join as StateJoin
from sunshower.topologies.operators.state_slot import nothing_else
from sunshower.topologies.operators.states import Spread, StateFactory, StateKind
from sunshower.topologies.operators.steps import TakeBranch
from sunshower.topologies.operators.totals import check_one_task
from sunshower.topologies.operators.updates import (
    INSTEAD_IN_BATCHES,
    INSTEAD_OF_WINDOW,
    Lineage,
    refuse_updates,
)
from sunshower.topologies.operators.windows.aggregated_windows import CombinePanes
from sunshower.topologies.operators.windows.declaring import (
    check_follows,
    check_time,
    combiner_of,
    let_replace,
    window_operator,
    window_schema,
)
from sunshower.topologies.operators.windows.event_times import Ahead, TimeField, Unit
from sunshower.topologies.operators.windows.window_kinds import AnyWindow, Window
from sunshower.topologies.outputs import Columns
from sunshower.topologies.signatures import name_of
from sunshower.trident.declaration.guarantee import check_kinds, check_sharing
from sunshower.trident.declaration.stage_builder import BatchStage, TaskSettings
from sunshower.trident.stages.batch_windows import (
    ON_TIME,
    CountedWindows,
    Windows,
    moved_windows,
)
from sunshower.trident.stages.persisting import (
    BatchSlot,
    Lookup,
    ProcessByKey,
    QueryState,
)
from sunshower.trident.stages.plan import ByFields, Sharing, Timed, ToFirst

_FIELDS = Instance((str, Iterable), "the name of a field, several, or a record type")


class AnyBatches(Protocol):
    """What a declaration needs of the stream of batches that it reads."""

    sources: tuple[StageRows[BatchStage], ...]

    @property
    def schema(self) -> Schema: ...
    @property
    def stage(self) -> BatchStage: ...
    @property
    def is_uneven(self) -> bool: ...
    @property
    def varies(self) -> bool: ...
    @property
    def lineage(self) -> Lineage | None: ...
    def upstream(self) -> set[BatchStage]: ...
    def add(self, operator: Operator, schema: Schema) -> StageRows[BatchStage]: ...
    def send(self, sharing: Sharing, tasks: TaskSettings) -> StageRows[BatchStage]: ...
    def send_groups(self, by: tuple[str, ...], tasks: TaskSettings) -> StageRows[BatchStage]: ...
    def add_to_each(
        self, operator: Callable[[], Operator], schema: Schema
    ) -> list[StageRows[BatchStage]]: ...
    def new_stage(self, tasks: TaskSettings) -> BatchStage: ...


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
    stream: AnyBatches,
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
    stream: AnyBatches,
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
    senders = () if ttl_s is None else follow_times(stream, time, where)
    outputs = rows.then(ProcessByKey(slot, calls, senders, time), out)
    outputs.varies = True  # with the order in which rows of several tasks come
    return WrittenState(outputs, slot, by, calls.store.read)


def _refuse_enums(schema: Schema, by: Sequence[str], where: str) -> None:
    hints = hints_of(schema.type)
    for name in by:
        for kind in classes_in(hints.get(name, Any), name):
            if issubclass(kind, Enum) and not issubclass(kind, str | int | float):
                raise RecordMismatch(
                    f"{where}: field {name!r} is the Enum {kind.__name__}, which a state cannot "
                    "have in its keys; add a field with its value before, and group by that"
                )


def check_pairs(kind: StateKind, stream: AnyBatches, where: str, not_exactly_once: bool) -> None:
    """Raise TopologyError, or only warn, if the spouts and a state of this kind are not exactly
    once."""
    FLAG.check(f"{where}: not_exactly_once", not_exactly_once, TopologyError)
    for spout in {stage.spout.kind for stage in stream.upstream() if stage.spout is not None}:
        check_kinds(spout, kind, where, not_exactly_once)


def is_factory(state: Any) -> bool:
    """Whether it is a state factory."""
    return not isinstance(state, type) and hasattr(state, "make") and hasattr(state, "kind")


def declare_query(
    stream: AnyBatches,
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
    stream: AnyBatches, by: Sequence[str], state: WrittenState, where: str
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
    if isinstance(state.rows.operator, Windows | CountedWindows):
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


# ---- windows -------------------------------------------------------------------------------------


class DeclaredWindow(NamedTuple):
    """The rows of windows."""

    pairs: StageRows[BatchStage]  # (branch, row): with the late ones
    ended: StageRows[BatchStage]
    state: WrittenState


def windowed(
    stream: AnyBatches,
    by: tuple[str, ...],
    window: AnyWindow,
    aggregators: Sequence[AnyAggregator],
    fields: Columns | None,
    state: StateFactory,
    name: str,
    tasks: TaskSettings,
    *,
    not_exactly_once: bool,
    where: str,
) -> DeclaredWindow:
    """Declare the windows of a stream, grouped by the fields `by`. Raises TopologyError."""
    refuse_updates(stream.lineage, where, "A window", INSTEAD_OF_WINDOW)
    given, out = window_schema(window, aggregators, stream.schema, by, fields, where)
    check_one_task(by, tasks.get("parallelism", 1), where)
    by_count = isinstance(window, Window) and window.by_count
    senders = [] if by_count else follow_times(stream, window.time, where)
    kind: Any = getattr(state, "kind", None)
    join = partial(moved_windows, width=len(by), window=window, kind=kind)
    about: Any = {"by": by, "join": join, "spread": Spread.BY_GROUP}
    slot = new_state(state, name, stream, where, not_exactly_once, **about)
    if isinstance(window, Window) and window.by_count:
        counted = CountedWindows(slot, window, stream.schema, by, given, out)
        pairs = stream.send_groups(by, tasks).then(counted, PAIRS)
        ended = pairs.then(TakeBranch(ON_TIME), out)
        return DeclaredWindow(pairs, ended, WrittenState(pairs, slot, by))
    are_ends = window.field is not None and end_field(stream, window.field)
    operator = window_operator(
        window, given, stream.schema, by, out, None, name, where, are_ends=are_ends
    )
    windows = Windows(slot, operator, senders)

    schema, parts = stream.schema, [*stream.sources]
    if (combined := combiner_of(operator, given, are_ends=are_ends)) is not None:
        combine, schema = combined
        if isinstance(combine, CombinePanes):
            combine.reader.what += windows.whose
        parts = stream.add_to_each(lambda: deepcopy(combine), schema)
    sharing = ByFields(schema, by) if by else ToFirst()
    pairs = stream.new_stage(tasks).receive(parts, sharing).then(windows, PAIRS)
    pairs.varies |= window.repeated is not None and window.repeated.early is not None
    ended = let_replace(pairs.then(TakeBranch(ON_TIME), out), operator)
    return DeclaredWindow(pairs, ended, WrittenState(pairs, slot, by))


# ---- event times ---------------------------------------------------------------------------------


def follow_times(stream: AnyBatches, time: TimeField | None, where: str) -> list[str]:
    """The names under which a window of time, or states that expire, behind a stream get the times
    of what is upstream; it sends them from now on. `time` None: by the clock. Raises TopologyError
    for a spout that does not know the event times of its rows."""
    senders, spouts = dict[str, None](), list[StageRows[BatchStage]]()
    for rows in _up_to(stream, lambda rows: _sends(rows) is not None):
        operator = rows.operator
        if (name := _sends(rows)) is not None:
            assert isinstance(operator, Timed)
            senders[name] = None
            if time is not None:
                check_follows(time, operator.time, getattr(operator, "window", None), name, where)
        elif rows is rows.stage.spout_rows:
            spouts.append(rows)
    for rows in spouts:
        stage = rows.stage
        senders[stage.root] = None
        if time is not None:
            check_time(time, stage.time, f"spout {stage.root!r}", rows.schema, stage.spout, where)
    for stage in (rows.stage for rows in spouts):
        stage.ends_windows = True
        stage.time = stage.time.read_as(time) if stage.time else time
    return [*senders]


def end_field(stream: AnyBatches, name: str) -> bool:
    """Whether a field of a stream has the ends of windows upstream: it has the name of their field,
    and no other row upstream has a field of that name."""
    is_end = False
    for rows in _up_to(stream, lambda rows: isinstance(rows.operator, Windows)):
        operator = rows.operator
        if isinstance(operator, Windows):
            end = operator.out.fields[len(operator.by)]
            is_end |= name == end
            if name in operator.out.fields and name != end:
                return False
        elif rows is rows.stage.spout_rows and name in rows.schema.fields:
            return False
    return is_end


def _up_to(
    stream: AnyBatches, is_last: Callable[[StageRows[BatchStage]], bool]
) -> Iterator[StageRows[BatchStage]]:
    """The rows of a stream, and what they are made of, up to those that are the last."""
    seen: dict[StageRows[BatchStage], None] = {}
    frontier = [*stream.sources]
    while frontier:
        if (rows := frontier.pop()) not in seen:
            seen[rows] = None
            frontier += () if is_last(rows) else rows.origins
            yield rows


def _sends(rows: StageRows[BatchStage]) -> str | None:
    """The name under which the operator of rows sends times to what is behind it."""
    return rows.operator.sends if isinstance(rows.operator, Timed) else None
