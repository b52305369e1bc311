"""Processing with a state for each key: a function of a record and the state of its key.

    def sessions(click: Click, visit: KeyState[Visit]) -> Iterator[Session]:

States are read once for each batch of a task, and written once before the acks of the batch leave.
Storm: org.apache.storm.topology.IStatefulBolt, org.apache.storm.state.KeyValueState.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any, Generic, Self, TypedDict, TypeVar, get_args, get_origin

from sunshower.arguments import SECONDS, Values
from sunshower.errors import RecordMismatch, TopologyError, Unserialisable
from sunshower.field_types import classes_in
from sunshower.records import Schema
from sunshower.topologies.components import Context
from sunshower.topologies.operators.grouping import group_keys
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore, Migration
from sunshower.topologies.operators.schemas import code_name
from sunshower.topologies.operators.states import StateFactory
from sunshower.topologies.operators.steps import FunctionOperator, RowOperator, check_rows
from sunshower.topologies.signatures import name_of

V = TypeVar("V")
_TICK_MAX_S = 60.0
_VERSION = Values(int, "a whole number", least=1)


class KeyState(Generic[V]):
    """The state of one key, in one call of a function: `value` is what the last call has left
    there, and None at first. Assign to it, or change it in place; None removes the key. If the call
    raises, nothing has changed."""

    __slots__ = ("_value", "assigned")

    def __init__(self, value: V | None) -> None:
        self._value = value
        self.assigned = False

    @property
    def value(self) -> V | None:
        """The state of the key."""
        return self._value

    @value.setter
    def value(self, value: V | None) -> None:
        self._value, self.assigned = value, True


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


class KeyedProcess(FunctionOperator, RowOperator):
    """Calls a function with each record and the state of its key.

    The runtime calls `announce(rows)`, for each row `expand` and, if everything that is made of the
    row in this stage is right, `keep`; then `flush`.
    """

    by_row = False

    def __init__(
        self,
        function: Callable[..., Any],
        by: Sequence[str],
        reads: Schema,
        makes: Schema,
        store: KeyedStore,
        ttl_s: float | None,
    ) -> None:
        super().__init__(function)
        self.by, self.reads, self.schema, self.store = tuple(by), reads, makes, store
        self.tick_s = None if ttl_s is None else min(ttl_s, _TICK_MAX_S)
        self._announced: Sequence[Any] = ()
        self._pending: tuple[Any, KeyState[Any]] | None = None

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self._context = context
        self._key = self.reads.key(self.by)
        self.store.open(context)
        self.generator = self._run

    def announce(self, rows: Sequence[Any]) -> None:
        """These rows are the next: their states are read at once, when the first is processed."""
        self._announced = rows

    def expand(self, row: Any) -> Iterator[Any]:
        self._pending = None
        if len(self._announced):
            self._read()
        key = self._key(row)
        state = KeyState(self.store.get(key))
        kind, width = self.schema.type, len(self.schema.fields)
        for made in self.function(row, state) or ():
            if type(made) is not kind or (kind is tuple and len(made) != width):
                check_rows([made], self.schema, self.function)
            yield made
        self._pending = key, state

    def keep(self) -> None:
        """The last row is processed: its state is what the function has left."""
        if self._pending is not None:
            key, state = self._pending
            self._pending = None
            self.store.put(key, state.value, changed=state.assigned)

    def flush(self) -> None:
        """Write the states of the batch. Raises StoreUnreachable."""
        if self.store.is_open:
            self.store.commit()

    def discard(self) -> None:
        """Forget the states of the batch."""
        self.store.discard()

    def tick(self) -> None:
        """Remove states that are too old."""
        self.flush()

    def snapshot(self) -> Any:
        """The states, for another process, if they are in memory."""
        return self.store.snapshot()

    def restore(self, state: Any) -> None:
        """Continue with what `snapshot` returned."""
        self.store.restore(state)

    def result(self) -> Any:
        """The states, if they are in memory: key → value."""
        return None if self.store.snapshot() is None else dict(self.store.items())

    def cleanup(self) -> None:
        super().cleanup()
        self.store.close()

    def __deepcopy__(self, memo: Any) -> Self:
        made = super().__deepcopy__(memo)
        made.store = deepcopy(self.store, memo)
        return made

    def _run(self, row: Any) -> Iterator[Any]:
        yield from self.expand(row)
        self.keep()

    def _read(self) -> None:
        rows = self._announced
        if not self.store.is_open:  # another process has opened it, or it could not be opened again
            self.store.open(self._context)
        try:
            self.store.fetch(group_keys(self.reads, self.by, rows))
        except Unserialisable:
            """The record whose key it is fails when its own state is read."""
        self._announced = ()


def keyed_store(
    annotation: Any,
    settings: ProcessSettings,
    unused: Callable[[str], str],
    function: Any,
    where: str,
) -> tuple[KeyedStore, float | None]:
    """The store of the states of a function, and their `ttl_s`. `annotation`: of its second
    parameter. Raises TopologyError for settings that cannot be, and RecordMismatch for another
    annotation than KeyState and for types that cannot be stored."""
    if wrong := settings.keys() - ProcessSettings.__annotations__.keys():
        raise TopologyError(
            f"{where}: there is no setting {min(wrong)!r}; the settings are: fields, "
            f"{', '.join(ProcessSettings.__annotations__)}"
        )
    ttl_s, version = settings.get("ttl_s"), settings.get("version", 1)
    migrate, state, name = settings.get("migrate"), settings.get("state"), settings.get("name")
    SECONDS.or_else("none", None).check(f"{where}: ttl_s", ttl_s, TopologyError)
    _VERSION.check(f"{where}: version", version, TopologyError)
    if migrate is not None and not callable(migrate):
        raise TopologyError(f"{where}: migrate is {migrate!r}; it is a function (version, value)")
    wish = code_name(function) if code_name(function) != "lambda" else "process"
    id = name or unused(wish)
    if state is not None and name is None and id != wish:
        raise TopologyError(f"{where}: there is a {wish!r} already; give this state a name=")
    classes = _classes(annotation, where)
    store = KeyedStore(state, id, where, classes, ttl_s=ttl_s, version=version, migrate=migrate)
    return store, ttl_s


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
