"""States of a stream program: how they are written and queried, and the stream of new values.

Storm: org.apache.storm.trident.TridentState.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sunshower.arguments import Instance
from sunshower.errors import RecordMismatch, TopologyError
from sunshower.records import Schema
from sunshower.topologies.outputs import Columns
from sunshower.topologies.signatures import name_of
from sunshower.trident.declaration.declaring import (
    code_name,
    columns_schema,
    persisted_schema,
    state_code_returns,
)
from sunshower.trident.declaration.drafts import Made, Tip, before, is_uneven, same_group, send
from sunshower.trident.stages.persisting import Lookup, PersistPartition, Query, Slot
from sunshower.trident.stages.sharing import ByFields, ToFirst
from sunshower.trident.stages.windowing import Windows
from sunshower.trident.states.guarantee import check, check_sharing
from sunshower.trident.states.port import StateFactory, StateKind

if TYPE_CHECKING:
    from sunshower.trident.declaration.streams import BatchStream

R_co = TypeVar("R_co", covariant=True)


_FIELDS = Instance((str, Iterable), "the name of a field, several, or a record type")


class BatchState(Generic[R_co]):
    """A state that a stream is written to."""

    def __init__(
        self,
        made: BatchStream[R_co],
        slot: Slot,
        by: Sequence[str] | None,
        result: Callable[[Any], Any] | None,
    ) -> None:
        self._made, self.slot, self.result = made, slot, result
        self.by = by  # the fields of its keys; None: the user's code chooses them

    @property
    def new_values(self) -> BatchStream[R_co]:
        """What each batch changed, after it is written: (fields of the group, new value)."""
        return self._made

    @property
    def tip(self) -> Tip:
        """Where it is written."""
        return self._made.tip

    def named(self, id: str) -> BatchState[R_co]:
        """Set the id of the bolt that writes the state."""
        self._made.named(id)
        return self


def new_state(
    factory: StateFactory, name: str, tip: Tip, where: str, not_exactly_once: bool
) -> Slot:
    """Register a state and return its slot. Raises TopologyError for a value that is not a state
    factory, a duplicate name, or a kind that is not exactly once with the spouts."""
    if not is_factory(factory):
        raise TopologyError(
            f'{where}: {name_of(factory)} is no state; give one like SqliteState("counts.db")'
        )
    program = tip.stage.group.program
    program.check_open(where)
    if not isinstance(factory.kind, StateKind):
        raise TopologyError(f"{where}: kind is {factory.kind!r}; give one of StateKind")
    check_pairs(factory.kind, tip, where, not_exactly_once)
    if factory.kind is StateKind.TRANSACTIONAL and is_uneven(tip):
        check_sharing(where, accept=not_exactly_once)
    program.keep_state(getattr(factory, "name", None) or name, where)
    return Slot(factory, name, exactly_once=not not_exactly_once)


def check_pairs(kind: StateKind, tip: Tip, where: str, not_exactly_once: bool) -> None:
    """Raise TopologyError, or only warn, if the spouts and a state of this kind are not exactly
    once."""
    for spout in {stage.spout.kind for stage in before(tip) if stage.spout is not None}:
        check(spout, kind, where, not_exactly_once)


def is_factory(state: Any) -> bool:
    """Whether it is a state factory."""
    return not isinstance(state, type) and hasattr(state, "make") and hasattr(state, "kind")


def persist_partition(
    stream: BatchStream[Any],
    factory: StateFactory,
    updater: Any,
    fields: Columns | None,
    name: str | None,
    where: str,
    not_exactly_once: bool,
) -> BatchState[Any]:
    """Implements BatchStream.partition_persist."""
    emits = state_code_returns(updater, stream.schema, where)
    out = persisted_schema(emits, updater, fields, where)
    slot = new_state(factory, name or code_name(updater), stream.tip, where, not_exactly_once)
    made = stream.then(PersistPartition(slot, updater, out), out or Schema(("nothing",)))
    return BatchState(made, slot, None, None)


def query(
    stream: BatchStream[Any],
    by: Sequence[str],
    state: BatchState[Any] | StateFactory,
    function: Any,
    fields: str | Columns,
    where: str,
    parallelism: int = 1,
) -> BatchStream[Any]:
    """Implements BatchStream.state_query and GroupedBatches.state_query."""
    schema = stream.schema
    if not isinstance(state, BatchState) and not is_factory(state):
        raise TopologyError(
            f"{where}: {name_of(state)} is no state; give what persistent_aggregate or "
            "partition_persist has returned, or StaticState(…)"
        )
    if function is not None:
        state_code_returns(function, schema, where)
    out = _with_answer(schema, fields, where)
    if not isinstance(state, BatchState):
        ask = function or Lookup(schema, by)
        operator = Query(Slot(state, "static"), ask, schema, out, commits=False)
        here = stream.shared(ByFields(schema, tuple(by)), parallelism) if by else stream
        return here.then(operator, out)
    same_group([stream.tip, state.tip], where)
    _check_keys(by, state, function, where)
    ask = function or Lookup(schema, by, state.result)
    operator = Query(state.slot, ask, schema, out, commits=True)
    return type(stream)(_at_state(stream.tip, by, state, where)).then(operator, out)


def _at_state(tip: Tip, by: Sequence[str], state: BatchState[Any], where: str) -> Tip:
    """Send the rows to the stage that writes the state."""
    stage = state.tip.stage
    if stage is tip.stage and not by:
        return tip
    if stage in before(tip):
        raise TopologyError(
            f"{where}: these rows come out of the state's own stage, and would have to go back to "
            "it within a batch; ask a stream that does not come from new_values"
        )
    if not by and stage.parallelism > 1:
        raise TopologyError(
            f"{where}: the state has {stage.parallelism} tasks; say which of them has what a row "
            "asks for: .group_by(…).state_query(…)"
        )
    return send(tip, ByFields(tip.schema, tuple(by)) if by else ToFirst(), stage)


def _check_keys(by: Sequence[str], state: BatchState[Any], function: Any, where: str) -> None:
    if function is None and isinstance(state.tip, Made) and isinstance(state.tip.operator, Windows):
        raise TopologyError(
            f"{where}: a state of windows has no value for each group; give a function(state, rows)"
        )
    if function is None and state.by is not None and len(by) != len(state.by):
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
        return whole
    _FIELDS.check(f"{where}: fields", fields, TopologyError)
    names = (fields,) if isinstance(fields, str) else tuple(fields)
    return columns_schema((*schema.fields, *names), where)
