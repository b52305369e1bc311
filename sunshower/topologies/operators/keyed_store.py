"""A keyed store: the values of one task, written batch by batch before the acks of the batch leave.

    store.fetch(keys)                       one read of the keys of a batch
    store.get(key) · put · remove           what is put is seen by `get`, and is not stored yet
    store.commit()                          all of it is stored now, or commit has raised

It is opened from a StateFactory, or lives in the memory of its task. Opening it writes, so a former
life of the task, which may still run somewhere, can store nothing afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from sunshower.errors import FailedBatch, StaleAttempt, StoreUnreachable
from sunshower.records import DictKey, key_of
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.recent import Recent
from sunshower.topologies.operators.states import Key, MapState, Place, StateFactory, StateKind
from sunshower.topologies.operators.stored_values import StoredValues, size_of
from sunshower.topologies.operators.totals import TaskMemory, check_factory

CACHE_BYTES = 64 << 20  # of each task
ABOUT = DictKey(sunshower="about")  # the key of what the store says of itself
_NOT_OPEN = "a keyed store that is not open"


class KeyedStore:
    """Values under keys of one task. A key is a value of a record's field, or a tuple of several; a
    value is of any type that travels between workers, and None stands for none.

    Values are copied: changing one that `get` returned, or that was put, changes nothing. All
    methods but `put` and `remove` may raise StoreUnreachable; what was put is then forgotten.
    """

    def __init__(
        self,
        factory: StateFactory | None,
        name: str,
        where: str,
        classes: Iterable[type[Any]] = (),
        *,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        """`name`: by which a later run finds it. `classes`: the Enums and record types in values,
        as Schema.classes. Raises TopologyError for a value that is no state factory, and
        RecordMismatch for two classes of one name."""
        check_factory(factory, where)
        self.name = name
        self._factory = None if factory is None else _of_values_alone(factory)
        self._values = StoredValues(classes, where)
        self._opened: MapState | None = None
        self._found: dict[Key, Any] = {}  # what this batch has read, converted
        self._written: dict[Key, Any] = {}  # None: removed
        self._cache: Recent[Key, Any] = Recent(cache_bytes, _size_of_both)
        self._epoch = self._number = 0  # of this opening, and of its last write
        self._taken: Exception | None = None

    def open(self, context: Context) -> None:
        """Open the store. Raises what the factory raises, such as StoreUnreachable."""
        if self._factory is None:
            self._opened = TaskMemory()
            return
        place = Place(context.topology, self.name, context.index, context.parallelism)
        self._opened = self._factory.make(place)
        last: Attempt | None = getattr(self._opened, "last_attempt", None)
        self._epoch, self._number = int(context.clock.now() * 1e6), 0
        if last is not None:
            self._epoch, self._number = max(self._epoch, last.epoch + 1), last.txid
        try:
            self._write({ABOUT: {"version": 1}})
        except BaseException:
            self.close()
            raise

    def fetch(self, keys: Iterable[Any]) -> None:
        """Read many keys at once, before `get` is called for each."""
        found, written = self._found, self._written
        missing = [
            key
            for key in dict.fromkeys(map(key_of, keys))
            if key not in found and key not in written
        ]
        if not missing:
            return
        found.update(self._cache.find(missing))
        missing = [key for key in missing if key not in found]
        if missing:
            found.update(zip(missing, self._state.multi_get(missing), strict=True))

    def get(self, key: Any) -> Any:
        """The value of a key, as it was put last; None if there is none. Raises StateMismatch for a
        stored value whose class has changed."""
        key = key_of(key)
        if key in self._written:
            return self._values.value(self._written[key])
        if key not in self._found:
            self.fetch([key])
        return self._values.value(self._found[key])

    def put(self, key: Any, value: Any) -> None:
        """Change the value of a key. Raises Unserialisable, and changes nothing then."""
        self._written[key_of(key)] = self._values.plain(value)

    def remove(self, key: Any) -> None:
        """Remove a key, if it is there."""
        self._written[key_of(key)] = None

    def commit(self) -> None:
        """Store what was put and removed since the last commit, all or nothing. If it raises, that
        is forgotten; after StoreUnreachable it may be stored nevertheless."""
        written = self._written
        if written:
            self._write(written)
        if self._factory is not None:
            self._cache.keep(self._found | written)
        self._found, self._written = {}, {}

    def discard(self) -> None:
        """Forget what was put and removed since the last commit."""
        self._found, self._written = {}, {}

    def items(self) -> Iterator[tuple[Any, Any]]:
        """All keys and values, in no order, with what was not committed. Reads the whole store."""
        for key, plain in self._state.items():
            if key not in self._written and key != ABOUT:
                yield key, self._values.value(plain)
        for key, plain in self._written.items():
            if plain is not None:
                yield key, self._values.value(plain)

    def snapshot(self) -> dict[Key, Any] | None:
        """What is in the memory of the task, for another process; None if nothing is."""
        memory = self._opened
        return dict(memory.values) if isinstance(memory, TaskMemory) else None

    def restore(self, state: dict[Key, Any] | None) -> None:
        """Continue with what `snapshot` returned. Called after `open`."""
        if isinstance(self._opened, TaskMemory) and state is not None:
            self._opened.values = dict(state)

    def close(self) -> None:
        """Close connections; what was not committed is forgotten."""
        self._forget()
        if self._opened is not None:
            self._opened.close()
        self._opened = None

    @property
    def _state(self) -> MapState:
        if self._opened is None:
            raise RuntimeError(f"{_NOT_OPEN}: {self.name}")
        return self._opened

    def _write(self, changes: dict[Key, Any]) -> None:
        """Write changes under the next number; each number is used once."""
        state = self._state
        if self._taken is not None:
            raise self._refused(self._taken)
        self._number += 1
        attempt = Attempt(self._number, 0, self._epoch)
        try:
            state.begin_commit(attempt)
            state.multi_put(list(changes), list(changes.values()))
            state.commit(attempt)
        except BaseException as error:
            state.abort()
            self._forget()
            if isinstance(error, FailedBatch | StaleAttempt):
                self._taken = error
                raise self._refused(error) from error
            raise

    def _refused(self, error: Exception) -> StoreUnreachable:
        """An outage: it ends when the task opens the store again."""
        return StoreUnreachable(
            f"a later life of this task has opened the store {self.name!r}, or a write that was "
            f"given up has arrived late; this one writes nothing more: {error}"
        )

    def _forget(self) -> None:
        self.discard()
        self._cache.clear()


def _of_values_alone(factory: Any) -> StateFactory:
    """The factory for states without txids, which belong to batches; itself if it has no choice."""
    if "kind" in getattr(factory, "__dataclass_fields__", ()):
        factory = replace(factory, kind=StateKind.NON_TRANSACTIONAL)
    found: StateFactory = factory
    return found


def _size_of_both(key: Key, plain: Any) -> int:
    return size_of(key) + size_of(plain) + 64  # and the entry
