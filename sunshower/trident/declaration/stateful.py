"""Declares what has a state or follows event time in batches; separate because streams are long.

A window of event time follows what sends it times: the spouts whose rows reach it, and the windows
on the way, see `Timed` in `trident/stages/plan.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sunshower.arguments import FLAG, Instance
from sunshower.errors import RecordMismatch, TopologyError
from sunshower.field_types import classes_in
from sunshower.records import Schema
from sunshower.topologies.operators.aggregators import AnyAggregator
from sunshower.topologies.operators.port import Operator
from sunshower.topologies.operators.record_operators import PAIRS
from sunshower.topologies.operators.schemas import check_makes, columns_schema, state_code_returns
from sunshower.topologies.operators.stages import StageRows
from sunshower.topologies.operators.state_slot import Join as StateJoin
from sunshower.topologies.operators.state_slot import nothing_else
from sunshower.topologies.operators.states import Spread, StateFactory, StateKind
from sunshower.topologies.operators.steps import TakeBranch
from sunshower.topologies.operators.totals import check_one_task
from sunshower.topologies.operators.updates import INSTEAD_OF_WINDOW, Lineage, refuse_updates
from sunshower.topologies.operators.windows.aggregated_windows import CombinePanes
from sunshower.topologies.operators.windows.declaring import (
    Origin,
    check_follows,
    check_time,
    combiner_of,
    end_field,
    let_replace,
    window_operator,
    window_schema,
)
from sunshower.topologies.operators.windows.event_times import TimeField
from sunshower.topologies.operators.windows.window_kinds import AnyWindow, Window
from sunshower.topologies.outputs import Columns
from sunshower.topologies.signatures import name_of
from sunshower.trident.spouts.port import SpoutKind
from sunshower.trident.stages.batch_windows import ON_TIME, CountedWindows, Windows, moved_windows
from sunshower.trident.stages.keyed_operators import KeyedInBatches
from sunshower.trident.stages.persisting import BatchSlot, Lookup, QueryState
from sunshower.trident.stages.plan import ByFields, Sharing, TaskSettings, Timed, ToFirst

if TYPE_CHECKING:
    from sunshower.trident.declaration.stage_builder import BatchStage

# ---- which pairs of spout and state are exactly once ---------------------------------------------

# Other pairs raise, or warn if they are accepted.
#
#                     state: non-transactional   transactional   opaque
# spout: transactional       no                  yes             yes
#        opaque              no                  no              yes
#        non-transactional   no                  no              no
#
# Storm: docs/Trident-state.md (it leaves the check to the reader).


def why_not(spout: SpoutKind, state: StateKind) -> str:
    """Why a pair of kinds is not exactly once; empty if it is."""
    match spout, state:
        case SpoutKind.NON_TRANSACTIONAL, _:
            return "a batch that is repeated has other rows, some of them never again"
        case _, StateKind.NON_TRANSACTIONAL:
            return "the state does not know that it has had a batch: it counts twice"
        case SpoutKind.OPAQUE, StateKind.TRANSACTIONAL:
            return (
                "a batch may be repeated with other rows, and the state keeps those of the first "
                "attempt: some would count twice, others never"
            )
    return ""


def check_kinds(spout: SpoutKind, state: StateKind, where: str, accept: bool = False) -> None:
    """Raise TopologyError if rows would not count exactly once; only warn with `accept`. `where`
    names the state and the stream; users accept with `not_exactly_once=True`."""
    if not (reason := why_not(spout, state)):
        return
    kinds = " or ".join(kind.value for kind in StateKind if not why_not(spout, kind))
    _refuse(
        f"{where}: from a spout of kind {spout.value} into a state of kind {state.value}, rows do "
        f"not count exactly once: {reason}",
        f"Take a state of kind {kinds}" if kinds else "Take a spout that can emit a batch again",
        accept,
    )


def check_sharing(where: str, accept: bool = False, *, varies: bool = False) -> None:
    """The same check for a transactional state whose tasks may get other rows in each attempt;
    `varies`: because the rows themselves were made of those that had come to one task."""
    problem = (
        "after a shuffle or a merge, what is made of several rows of a task (partition_aggregate, "
        "top, an operator of your own) differs from attempt to attempt"
        if varies
        else "after a shuffle or a merge which task gets which rows differs from attempt to attempt"
    )
    _refuse(
        f"{where}: into a state of kind transactional, rows do not count exactly once: {problem}, "
        "and what a task has written stays",
        "Say before who gets which by partition_by or global_, take a state of kind opaque",
        accept,
    )


def _refuse(problem: str, remedy: str, accept: bool) -> None:
    if not accept:
        raise TopologyError(f"{problem}. {remedy}, or accept it by not_exactly_once=True")
    warnings.warn(problem, stacklevel=4)


# ---- states --------------------------------------------------------------------------------------

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
    def new_stage(self, tasks: TaskSettings) -> BatchStage: ...
    def add_to_each(
        self, operator: Callable[[], Operator], schema: Schema
    ) -> list[StageRows[BatchStage]]: ...
    def add(self, operator: Operator, schema: Schema) -> StageRows[BatchStage]: ...
    def send(self, sharing: Sharing, tasks: TaskSettings) -> StageRows[BatchStage]: ...
    def send_groups(self, by: tuple[str, ...], tasks: TaskSettings) -> StageRows[BatchStage]: ...


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


def _refuse_enums(schema: Schema, by: Sequence[str], where: str) -> None:
    for name in by:
        for kind in classes_in(schema.kind(name), name):
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
    bound, out = window_schema(window, aggregators, stream.schema, by, fields, where)
    check_one_task(by, tasks.get("parallelism", 1), where)
    by_count = isinstance(window, Window) and window.by_count
    senders = [] if by_count else follow_times(stream, window.time, where)
    kind: Any = getattr(state, "kind", None)
    join = partial(moved_windows, width=len(by), window=window, kind=kind)
    about: Any = {"by": by, "join": join, "spread": Spread.BY_GROUP}
    slot = new_state(state, name, stream, where, not_exactly_once, **about)
    if isinstance(window, Window) and window.by_count:
        counted = CountedWindows(slot, window, stream.schema, by, bound, out)
        pairs = stream.send_groups(by, tasks).then(counted, PAIRS)
        ended = pairs.then(TakeBranch(ON_TIME), out)
        return DeclaredWindow(pairs, ended, WrittenState(pairs, slot, by))
    are_ends = window.field is not None and end_field(origins_of(stream), window.field)
    operator = window_operator(
        window, bound, stream.schema, by, out, None, name, where, are_ends=are_ends
    )
    windows = Windows(slot, operator, senders)

    schema, parts = stream.schema, [*stream.sources]
    if (combined := combiner_of(operator, bound, are_ends=are_ends)) is not None:
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
    senders: dict[str, None] = {}
    spouts: list[StageRows[BatchStage]] = []
    for rows in _up_to(stream, lambda rows: _sends(rows) is not None):
        operator = rows.operator
        if (name := _sends(rows)) is not None:
            assert isinstance(operator, Timed)
            senders[name] = None
            if time is not None and not operator.has_times:
                raise TopologyError(
                    f"{where}: it is downstream of {name} without a limit, whose rows may be of "
                    "any event time; give that join field= and within=, or aggregate without a "
                    "window of event time"
                )
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


def origins_of(stream: AnyBatches) -> Iterator[Origin]:
    """The spouts and the nearest windows of time upstream, also those of a table."""
    for rows in _up_to(stream, lambda rows: isinstance(rows.operator, Windows), _made_of):
        operator = rows.operator
        if isinstance(operator, Windows):
            yield operator.out.fields, len(operator.by)
        elif rows is rows.stage.spout_rows:
            yield rows.schema.fields, None


def _read_by(rows: StageRows[BatchStage]) -> Iterator[StageRows[BatchStage]]:
    """What rows are made of: without the inputs that only change a table."""
    silent = rows.operator.silent_inputs if isinstance(rows.operator, Timed) else 0
    for origin in rows.origins:
        if silent == 0 or any(
            reader is rows and number >= silent for reader, number in origin.readers
        ):
            yield origin


def _made_of(rows: StageRows[BatchStage]) -> Sequence[StageRows[BatchStage]]:
    """What rows have fields of: also of a table, and of a semi or an anti join its left side."""
    timed = rows.operator.timed if isinstance(rows.operator, KeyedInBatches) else None
    return rows.origins[: None if timed is None else timed.passes]


def _up_to(
    stream: AnyBatches,
    is_last: Callable[[StageRows[BatchStage]], bool],
    read_by: Callable[[StageRows[BatchStage]], Iterable[StageRows[BatchStage]]] = _read_by,
) -> Iterator[StageRows[BatchStage]]:
    """The rows of a stream, and what they are made of, up to those that are the last."""
    seen: dict[StageRows[BatchStage], None] = {}
    frontier = [*stream.sources]
    while frontier:
        if (rows := frontier.pop()) not in seen:
            seen[rows] = None
            frontier += () if is_last(rows) else read_by(rows)
            yield rows


def _sends(rows: StageRows[BatchStage]) -> str | None:
    """The name under which the operator of rows sends times to what is behind it."""
    return rows.operator.sends if isinstance(rows.operator, Timed) else None
