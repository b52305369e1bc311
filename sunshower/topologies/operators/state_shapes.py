"""The stored states of a topology, and how they differ from those of an earlier version of it.

Compared is what is declared: where a state is stored, the fields of its key, its version, the
fields of the record types that it is annotated with (which may change as `FieldChanges` says), and
its operator with its settings, and what its values are, as its store has it. The types of the
key's fields are not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from sunshower.errors import TopologyError
from sunshower.topologies.groupings import Fields
from sunshower.topologies.operators.aggregators import described
from sunshower.topologies.operators.keyed.key_states import KeyState
from sunshower.topologies.operators.keyed.keyed_process import KeyedProcess
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.state_slot import HeldState, held_states
from sunshower.topologies.operators.totals import Persist

if TYPE_CHECKING:
    from sunshower.json_values import StoredValues
    from sunshower.topologies.graph import Component, Graph
    from sunshower.topologies.operators.state_slot import StateSlot

_CODE = (  # may change
    *("function", "reads", "schema", "out", "store", "slot", "calls", "limits"),
    *("emits_updates", "senders", "sends", "marks", "is_repeated", "allowed"),
)
_OF_BATCHES = ("combiner", "reducer", "window", "sources")  # may not


COMPARED = ("store", "key", "operator", "version")


@dataclass(frozen=True)
class StateShape:
    """What must be the same where a state continues."""

    store: object  # where it is
    key: object  # its fields
    operator: object  # with its settings
    version: object = 1
    values: StoredValues | None = None  # of keyed states
    described: str = ""  # what its values are, as of `Place.values`

    @property
    def compared(self) -> tuple[object, ...]:
        """What must be equal, beside `described`; the names are COMPARED."""
        return self.store, self.key, self.operator, self.version

    def differences(self, other: StateShape) -> list[str]:
        """What differs, so that the values of this one are not those of the `other`, later one."""
        pairs = zip(COMPARED, self.compared, other.compared, strict=True)
        names = [name for name, ours, theirs in pairs if ours != theirs]
        if self.described != other.described:
            names = names or ["values"]
        if self.values is None or names:
            return names
        return other.different_records(self.values.shapes())

    def different_records(self, stored: Mapping[str, list[str]]) -> list[str]:
        """How its record types differ from `stored` shapes, so that records cannot be read; those
        that an operator stores have to be equal."""
        if self.values is None or (not self.values.may_drop and stored == self.values.shapes()):
            return []
        how = self.values.changed(stored) if self.values.may_drop else "of its rows"
        return [f"records ({how})"] if how else []

    def migrations(self, other: StateShape) -> list[str]:
        """How stored records become those of the `other`, later state; a line for each type."""
        if self.values is None or other.values is None:
            return []
        shapes = self.values.shapes().items()
        changes = [(name, other.values.changes(name, had)) for name, had in shapes]
        return [f"{name}: {change}" for name, change in changes if str(change)]


def states_of(component: Component) -> dict[str, StateShape]:
    """Name → shape, of the states that a bolt declares. Their functions may change."""
    keys = sorted(
        read.grouping.fields for read in component.inputs if type(read.grouping) is Fields
    )
    if component.store is not None:
        return {component.store.name: _of_store(component.store, keys, "a bolt")}
    shapes: dict[str, StateShape] = {}
    if component.is_of_batches:
        return _of_batches(component.operators)
    for step in component.operators:
        if hasattr(step, "snapshot"):
            by = (keys, tuple(getattr(step, "by", ())))
            attributes = getattr(step, "declared", None) or {
                name: value for name, value in vars(step).items() if name not in _CODE
            }
            if isinstance(step, KeyedProcess):  # all else belongs to its function
                declared = getattr(step, "declared", None) or {}
                attributes = {"has_timers": getattr(step, "has_timers", None), **declared}
                if step.kind is not KeyState:
                    attributes["kind"] = step.kind
            operator = type(step).__name__, shape_of(attributes)
            if (store := getattr(step, "store", None)) is not None:
                shapes[store.name] = _of_store(store, by, operator)
            else:
                shapes[step.slot.name] = StateShape(
                    shape_of(step.slot.factory), by, operator, described=step.slot.values
                )
    return shapes


def check_states(graph: Graph) -> None:
    """Let each state know what its values are. Raise TopologyError for two states that are one in
    their store. SQL takes names that differ only in case for one. Queries of a state of batches
    only read it."""
    owners: dict[tuple[object, ...], tuple[str, StateSlot]] = {}
    for component in graph.bolts:
        for held in held_states(component):
            slot, factory = held.slot, held.slot.factory
            slot.values = _values_of(held)
            if (store := getattr(factory, "where", None)) is None:
                continue  # in the memory of a task, or of a factory of the user's own
            if (file := getattr(factory, "file", None)) is not None:
                store = str(Path(file).resolve())
            name = getattr(factory, "name", None) or slot.name
            place = store, id(getattr(factory, "shelf", None)), name.lower()
            owner, other = owners.setdefault(place, (component.id, slot))
            if other is not slot:
                raise TopologyError(
                    f"topology {graph.id!r}: {owner!r} and {component.id!r} have one state, "
                    f"{name!r} in {store}, and each would undo what the other has written; give "
                    "one of the two states another name=, or none"
                )


def _values_of(held: HeldState) -> str:
    """What the values of a state are, and their keys, as a text that its store has, such as
    `totals: count by word`. Empty: a function of the user's says that. What may change is not in
    it: names of what is emitted, functions, and how late records may be."""
    operator: Any = held.operator
    text: str = operator.described_values if hasattr(type(operator), "described_values") else ""
    if (window := getattr(operator, "window", None)) is not None:
        contents = operator.contents
        values = ", ".join(aggregator.described_values for aggregator in contents.aggregators)
        rows = "" if contents.combines else f" over rows {described(contents.schema.fields)}"
        text = f"{window.described_values}: {values}{rows}"
    by = held.slot.by or getattr(operator, "by", ())
    return f"{text} by {', '.join(by)}" if text and by else text


def _of_batches(operators: Iterable[Any]) -> dict[str, StateShape]:
    """The states of a stage of batches."""
    shapes: dict[str, StateShape] = {}
    for node in operators:
        if not isinstance(node, Persist):
            continue
        calls, contents = getattr(node, "calls", None), getattr(node, "contents", None)
        by = getattr(node.slot, "by", ())
        attributes = {name: vars(node)[name] for name in _OF_BATCHES if name in vars(node)}
        if contents is not None:
            attributes["aggregators"] = contents.aggregators
        operator = type(node).__name__, shape_of(attributes)
        store = getattr(node, "store", None) if calls is None else calls.store
        values = None if store is None else store.values
        shapes[node.slot.name] = StateShape(
            shape_of(node.slot.factory), by, operator, 1, values, node.slot.values
        )
    return shapes


def _of_store(store: KeyedStore, key: object, operator: object) -> StateShape:
    where, version = store.shape
    return StateShape(shape_of(where), key, operator, version, store.values, store.slot.values)


def shape_of(value: Any, inside: tuple[int, ...] = ()) -> object:
    """What a declaration says, without its identity: equal for two runs of the same code."""
    if isinstance(value, Enum | FunctionType | MethodType | type):
        return getattr(value, "__qualname__", repr(value))
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if id(value) in inside:
        return "itself"
    inside = (*inside, id(value))
    if isinstance(value, tuple):
        value = getattr(value, "declared_shape", value)
    if isinstance(value, dict):
        return tuple((shape_of(k, inside), shape_of(v, inside)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return tuple(shape_of(element, inside) for element in value)
    if isinstance(value, set | frozenset):
        return tuple(sorted(repr(shape_of(element, inside)) for element in value))
    if is_dataclass(value):
        parts = {part.name: getattr(value, part.name) for part in fields(value) if part.compare}
    elif hasattr(value, "__dict__"):
        parts = getattr(value, "declared_shape", None) or vars(value)
    else:  # such as a Path
        return type(value).__qualname__, repr(value)
    return type(value).__qualname__, shape_of(parts, inside)
