"""States of a stream program: declares how they are written and queried, and checks it.

Storm: org.apache.storm.trident.TridentState.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Required

from sunshower.arguments import FLAG, Instance, check_names
from sunshower.errors import RecordMismatch, TopologyError
from sunshower.field_types import classes_in, hints_of
from sunshower.records import Schema
from sunshower.topologies.operators.keyed.process_settings import ProcessSettings, keyed_process
from sunshower.topologies.operators.schemas import (
    check_makes,
    code_name,
    columns_schema,
    state_code_returns,
)
from sunshower.topologies.operators.states import StateFactory, StateKind
from sunshower.topologies.operators.updates.update_rows import INSTEAD_IN_BATCHES, refuse_updates
from sunshower.topologies.outputs import Columns
from sunshower.topologies.signatures import name_of
from sunshower.trident.declaration.row_stream import RowStream, check_group
from sunshower.trident.declaration.stage_builder import RowSource, TaskSettings
from sunshower.trident.stages.persisting import Lookup, ProcessByKey, QueryState, StateSlot
from sunshower.trident.stages.sharing import ByFields, ToFirst
from sunshower.trident.stages.windowing import Windows
from sunshower.trident.states.guarantee import check_kinds, check_sharing

_FIELDS = Instance((str, Iterable), "the name of a field, several, or a record type")


@dataclass(eq=False, frozen=True)
class WrittenState:
    """A state that a stream is written to, and `rows`: what its stage emits then."""

    rows: RowSource
    slot: StateSlot
    by: Sequence[str] | None  # the fields of its keys; None: the user's code chooses them
    result: Callable[[Any], Any] | None = None  # makes the answer of a query from a stored value


def new_state(
    factory: StateFactory,
    name: str,
    stream: RowStream[Any],
    where: str,
    not_exactly_once: bool,
    *,
    by: Sequence[str] = (),
    in_place: bool = False,
) -> StateSlot:
    """Register a state and return its slot. `by`: the fields of its keys. `in_place`: the rows are
    written in the tasks in which they are; otherwise they are first sent to the task of their
    group, or to a single one. Raises TopologyError for a value that is not a state factory, a
    duplicate name, or a kind that is not exactly once with the spouts; RecordMismatch for keys that
    are Enums."""
    if not is_factory(factory):
        raise TopologyError(
            f'{where}: {name_of(factory)} is no state; give one like SqliteState("counts.db")'
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
    return StateSlot(factory, name, exactly_once=not not_exactly_once)


class BatchProcessSettings(TaskSettings, total=False):
    """The settings of `process` in batches.

    state           where states are, of kind opaque; it must be given
    name            of the bolt and of the state, by which a later run finds it; default: that of
                    the function
    parallelism     the number of tasks, 1; that of a stored state cannot change
    resources       what each task requests of its node
    """

    state: Required[StateFactory]
    name: str


def processed(
    stream: RowStream[Any],
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
                "have neither timers nor states of several ages or versions; leave it out"
            )
    check_names(settings, BatchProcessSettings.__annotations__, where, TopologyError)
    refuse_updates(stream.lineage, where, "process", INSTEAD_IN_BATCHES)
    given = settings.get("name")
    id = code_name(function) if given is None else given
    calls = keyed_process(
        function,
        None,
        id=id,
        reads=stream.schema,
        by=by,
        fields=fields,
        settings={},
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
    made = rows.then(ProcessByKey(slot, calls), out)
    made.varies = True  # with the order in which rows of several tasks come
    return WrittenState(made, slot, by, calls.store.read)


def _refuse_enums(schema: Schema, by: Sequence[str], where: str) -> None:
    hints = hints_of(schema.type)
    for name in by:
        for kind in classes_in(hints.get(name, Any), name):
            if issubclass(kind, Enum) and not issubclass(kind, str | int | float):
                raise RecordMismatch(
                    f"{where}: field {name!r} is the Enum {kind.__name__}, which a state cannot "
                    "have in its keys; add a field with its value before, and group by that"
                )


def check_pairs(
    kind: StateKind, stream: RowStream[Any], where: str, not_exactly_once: bool
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
    stream: RowStream[Any],
    by: Sequence[str],
    state: WrittenState | StateFactory,
    function: Any,
    fields: str | Columns,
    where: str,
    tasks: TaskSettings,
) -> RowSource:
    """Each row with an answer of the state; `tasks` are for a static state with groups."""
    schema = stream.schema
    if not isinstance(state, WrittenState) and not is_factory(state):
        raise TopologyError(
            f"{where}: {name_of(state)} is no state; give what aggregate(…, state=…) or "
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
        operator = QueryState(StateSlot(state, "static"), ask, schema, out, commits=False)
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
    stream: RowStream[Any], by: Sequence[str], state: WrittenState, where: str
) -> Sequence[RowSource]:
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
    node = state.rows.node
    if node is not None and isinstance(state.rows.stage.nodes[node][0], Windows):
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
