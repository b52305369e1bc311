"""The settings of `process`, and what they are checked against when it is declared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict, TypeVar, get_args, get_origin

from sunshower.arguments import SECONDS, Values
from sunshower.errors import RecordMismatch, TopologyError
from sunshower.field_types import classes_in
from sunshower.records import Schema
from sunshower.topologies.operators.keyed.keyed_process import KeyedProcess, KeyState
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore, Migration
from sunshower.topologies.operators.schemas import code_name, keyed_schema
from sunshower.topologies.operators.states import StateFactory
from sunshower.topologies.outputs import Columns
from sunshower.topologies.signatures import name_of

_VERSION = Values(int, "a whole number", least=1)


class ProcessSettings(TypedDict, total=False):
    """The settings of `process`.

    state           where states are; None: in the memory of the task, lost with its process
    name            of the bolt and of the state, by which a later run finds it; default: that of
                    the function
    parallelism     the number of tasks, 1; that of a stored state cannot change
    ttl_s           a state that was not written for so many seconds is absent, and is removed
    version         of the states, 1; a state of another version is refused, or migrated
    migrate         a function (version, value) that makes a state of one of an earlier version, in
                    which a record is a dictionary of its fields; called when a task opens its state
    """

    state: StateFactory | None
    name: str | None
    parallelism: int
    ttl_s: float | None
    version: int
    migrate: Migration | None


def free_name(
    function: Any, settings: ProcessSettings, unused: Callable[[str], str], where: str
) -> str:
    """The id of the bolt and the state of a function. Raises TopologyError for a stored state whose
    name would depend on others."""
    name, found = settings.get("name"), code_name(function)
    wish = "process" if found == "lambda" else found
    id = name or unused(wish)
    if settings.get("state") is not None and name is None and id != wish:
        raise TopologyError(f"{where}: there is a {wish!r} already; give this state a name=")
    return id


def keyed_process(
    function: Any,
    id: str,
    reads: Schema,
    by: Sequence[str],
    fields: Columns | None,
    settings: ProcessSettings,
    where: str,
) -> KeyedProcess:
    """The operator that calls a function of a record and the state of its key. Raises TopologyError
    for settings that cannot be, and RecordMismatch for annotations that do not fit."""
    if wrong := settings.keys() - ProcessSettings.__annotations__.keys():
        raise TopologyError(
            f"{where}: there is no setting {min(wrong)!r}; the settings are: fields, "
            f"{', '.join(ProcessSettings.__annotations__)}"
        )
    annotation, makes = keyed_schema(function, reads, fields, where)
    ttl_s, version = settings.get("ttl_s"), settings.get("version", 1)
    migrate = settings.get("migrate")
    SECONDS.or_else("none", None).check(f"{where}: ttl_s", ttl_s, TopologyError)
    _VERSION.check(f"{where}: version", version, TopologyError)
    if migrate is not None and not callable(migrate):
        raise TopologyError(f"{where}: migrate is {migrate!r}; it is a function (version, value)")
    store = KeyedStore(
        settings.get("state"),
        id,
        where,
        _classes(annotation, where),
        ttl_s=ttl_s,
        version=version,
        migrate=migrate,
    )
    return KeyedProcess(function, by, reads, makes, store, ttl_s)


def _classes(annotation: Any, where: str) -> tuple[type[Any], ...]:
    """The Enums and record types in the states of keys."""
    if annotation is Any or annotation is KeyState:
        return ()
    if get_origin(annotation) is not KeyState:
        raise RecordMismatch(
            f"{where}: its second parameter is {name_of(annotation)}; it is the state of a key: "
            f"KeyState[{name_of(annotation)}]"
        )
    (kept,) = get_args(annotation)
    return () if isinstance(kept, TypeVar) else classes_in(kept, f"{where}: its state")
