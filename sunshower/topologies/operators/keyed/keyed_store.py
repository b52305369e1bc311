"""A keyed store: the values of one task, written batch by batch before the batch is acked.

    store.fetch(keys)                       one read of the keys of a batch
    store.get(key) · put · remove           what is put is seen by `get`, and is not stored yet
    store.commit()                          all of it is stored now, or commit has raised

It is opened from a StateFactory, or lives in the memory of its task. Opening it writes, so a former
life of the task, which may still run somewhere, can store nothing afterwards.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from datetime import date
from itertools import chain, islice, takewhile
from threading import get_ident
from typing import Any, Generic, Self, TypeAlias, TypeVar

from sunshower.clock import Clock, SystemClock
from sunshower.errors import (
    BadEmit,
    FailedBatch,
    ProtocolError,
    StaleAttempt,
    StateMismatch,
    StoreUnreachable,
    TopologyError,
    Unserialisable,
)
from sunshower.records import Schema, key_of
from sunshower.topologies.components import Context
from sunshower.topologies.operators.aggregating import group_keys
from sunshower.topologies.operators.keyed.stored_values import StoredValues, as_fields, byte_size
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import (
    ABOUT,
    FoundPart,
    Key,
    MapState,
    Moving,
    Place,
    Spread,
    StateFactory,
    StateKind,
    count_of,
    is_own,
    joined,
)
from sunshower.topologies.operators.steps import FunctionOperator, RowOperator, check_rows
from sunshower.topologies.operators.totals import TaskMemory, check_factory
from sunshower.topologies.operators.windows.event_times import Time, TimeReader

CACHE_BYTES = 64 << 20  # of each task
Migration: TypeAlias = Callable[[int, Any], Any]  # of (the version of a value, the value)
_TICK_MAX_S = 60.0
_NOT_OPEN = "a keyed store that is not open"


# ---- recent --------------------------------------------------------------------------------------
# A cache of recently used values of a state, so that they need not be read again.
#
# It has two generations: values go to the young one; when that is full it becomes the old one, and
# the old one is dropped. Storm: org.apache.storm.trident.state.map.CachedMap (an LRU).

RecentKey = TypeVar("RecentKey", bound=Hashable)
T = TypeVar("T")
_MISSING: Any = object()


class Recent(Generic[RecentKey, T]):
    """Caches values of at most `size_max` in all; valid while there is no other writer. `size_of`:
    the size of a key and its value; None: each counts as 1."""

    def __init__(self, size_max: int, size_of: Callable[[RecentKey, T], int] | None = None) -> None:
        self._room = max(1, size_max // 2)
        self._size_of = size_of
        self._young: dict[RecentKey, T] = {}
        self._old: dict[RecentKey, T] = {}
        self._size = 0  # of the young generation, or more

    def find(self, keys: Iterable[RecentKey]) -> dict[RecentKey, T]:
        """The cached values of these keys."""
        young, old, missing = self._young, self._old, _MISSING
        found = {}
        for key in keys:
            value = young.get(key, missing)
            if value is missing:
                value = old.get(key, missing)
            if value is not missing:
                found[key] = value
        return found

    def keep(self, used: Mapping[RecentKey, T], changed: Iterable[RecentKey] = ()) -> None:
        """Cache what was just read or written, and drop other keys that have changed."""
        for key in changed:
            self._young.pop(key, None)
            self._old.pop(key, None)
        self._young.update(used)
        if self._size_of is None:
            self._size = len(self._young)
        else:
            self._size += sum(map(self._size_of, used.keys(), used.values()))
        if self._size > self._room:
            self._old = self._young if self._size <= 2 * self._room else {}
            self._young, self._size = {}, 0

    def clear(self) -> None:
        """Drop everything."""
        self._young, self._old, self._size = {}, {}, 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)


# ---- ages ----------------------------------------------------------------------------------------

_AT_ONCE = 10_000  # keys that one commit removes


class Ages:
    """When each key was written, the oldest first. It is in memory: about 200 bytes a key."""

    def __init__(self, ttl_s: float) -> None:
        self.ttl_s = ttl_s
        self._written: OrderedDict[Key, float] = OrderedDict()

    def is_over(self, at: float, now: float) -> bool:
        """Whether a value that was written `at` is too old."""
        return at + self.ttl_s <= now

    def expired(self, now: float) -> list[Key]:
        """Keys whose values are too old; some of them, if there are many."""
        old = takewhile(lambda one: self.is_over(one[1], now), self._written.items())
        return [key for key, _ in islice(old, _AT_ONCE)]

    def note(self, stored: Iterable[tuple[Key, Any]], now: float) -> None:
        """Note what was just stored; a value without a time counts from `now`."""
        for key, at in sorted(_times(stored, now), key=lambda one: one[1]):
            self._written.pop(key, None)
            if at >= 0:
                self._written[key] = at

    def clear(self) -> None:
        """Forget all keys."""
        self._written.clear()


def stamped(plain: Any, now: float) -> Any:
    """A converted value with its time, as it is stored."""
    return {"(at)": [now, plain]}


def unstamped(stored: Any) -> tuple[float | None, Any]:
    """The time of a stored value, None without one, and the value."""
    match stored:
        case {"(at)": [int() | float() as at, plain], **others} if not others:
            return float(at), plain
    return None, stored


def _times(pairs: Iterable[tuple[Key, Any]], now: float) -> Iterator[tuple[Key, float]]:
    for key, stored in pairs:
        at, plain = unstamped(stored)
        yield key, -1.0 if plain is None else now if at is None else at


# ---- keyed store ---------------------------------------------------------------------------------


class KeyedStore:
    """Values under keys of one task. A key is a value of a record's field, or a tuple of several; a
    value is of any type that travels between workers, and None stands for none.

    Values are copied: changing one that `get` returned, or that was put, changes nothing. Methods
    that read or write the store may raise StoreUnreachable.
    """

    def __init__(
        self,
        factory: StateFactory | None,
        name: str,
        where: str,
        classes: Iterable[type[Any]] = (),
        *,
        ttl_s: float | None = None,
        version: int = 1,
        migrate: Migration | None = None,
        spread: Spread = Spread.BY_KEY,
        has_panes: bool = False,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        """`name`: by which a later run finds it. `classes`: the Enums and record types in values,
        as Schema.classes. `ttl_s`: values that were put longer ago are absent, and are removed by a
        later commit; the time of each key is kept in memory. `migrate` makes values of `version` of
        those of earlier versions when the store is opened. `spread`: by which another number of
        tasks finds its keys. `has_panes`: see states.joined. Raises TopologyError
        for a value that is not a state factory, and RecordMismatch for two classes of one name."""
        check_factory(factory, where)
        self.name, self._where = name, where
        self._version, self._migrate = version, migrate
        self._ages = None if ttl_s is None else Ages(ttl_s)
        self.tick_s = None if ttl_s is None else min(ttl_s, _TICK_MAX_S)  # to remove old values
        self._factory = None if factory is None else _of_values_alone(factory)
        self._values = StoredValues(classes, where)
        self._spread, self._has_panes = spread, has_panes
        self._was_open = False
        self._opened: MapState | None = None
        self._found: dict[Key, Any] = {}  # what this batch has read, converted
        self._written: dict[Key, Any] = {}  # None: removed
        self._cache: Recent[Key, Any] = Recent(cache_bytes, _size_of_both)
        self._epoch = self._number = 0  # of this opening, and of its last write
        self._taken: BaseException | None = None
        self._clock: Clock = SystemClock()  # that of the task, once it is open

    def open(self, context: Context) -> None:
        """Open the store. Raises what the factory raises, such as StoreUnreachable, and
        StateMismatch for values of another version without `migrate`."""
        self.close()
        self._clock, self._taken = context.clock, None
        if self._factory is None:
            self._opened = TaskMemory()
            return
        moving = Moving(self._spread, self._joined, not self._was_open)
        place = Place(
            context.topology, self.name, context.index, context.parallelism, moving=moving
        )
        self._opened = self._factory.make(place)
        last: Attempt | None = getattr(self._opened, "last_attempt", None)
        self._epoch, self._number = int(context.clock.now() * 1e6), 0
        if last is not None:
            self._epoch, self._number = max(self._epoch, last.epoch + 1), last.txid
        try:
            (about,) = self._opened.multi_get([ABOUT])
            self._write({**self._migrated(about, self._opened.items), ABOUT: self._about})
            self._read_ages()
        except BaseException:
            self.close()
            raise
        self._was_open = True

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
        return self._values.value(self._plain(key_of(key)))

    def put(self, key: Any, value: Any, *, changed: bool = True) -> None:
        """Change the value of a key; `changed` False: if it differs from the one there is. Raises
        Unserialisable, and changes nothing then."""
        self.put_all({key_of(key): value}, [key_of(key)] if changed else ())

    def put_all(self, values: Mapping[Key, Any], changed: Collection[Key]) -> None:
        """Change the values of `changed` keys, and of others if they differ from those there are.
        Raises Unserialisable, and changes nothing then."""
        converted = [(key, self._values.plain(value)) for key, value in values.items()]
        for key, plain in converted:
            if key not in changed and self._plain(key) == plain:
                continue
            if self._ages is not None and plain is not None and not is_own(key):
                plain = stamped(plain, self._clock.now())  # noqa: PLW2901
            self._written[key] = plain

    def check(self, value: Any) -> None:
        """Raise Unserialisable for a value that cannot be stored."""
        self._values.plain(value)

    def remove(self, key: Any) -> None:
        """Remove a key, if it is there."""
        self._written[key_of(key)] = None

    def commit(self) -> None:
        """Store what was put and removed since the last commit, all or nothing. If it raises, that
        is forgotten; after StoreUnreachable it may be stored nevertheless."""
        written, ages = self._written, self._ages
        if ages is not None:
            for key in ages.expired(self._clock.now()):
                written.setdefault(key, None)
        if written:
            self._write(written)
            if ages is not None:
                self._note_ages(written.items())
        if self._factory is not None:
            self._cache.keep(self._found | written)
        self._found, self._written = {}, {}

    def discard(self) -> None:
        """Forget what was put and removed since the last commit."""
        self._found, self._written = {}, {}

    def read_from(self, state: MapState | None) -> None:
        """Continue with a state that another one opens, writes and closes; None: with none. What
        was put is forgotten."""
        self._forget()
        self._opened = state

    @property
    def changed(self) -> dict[Key, Any]:
        """What was put and removed since the last commit, as it is stored; None: removed."""
        return dict(self._written)

    def read(self, stored: Any) -> Any:
        """The value that is stored so. Raises StateMismatch as `get` does."""
        return self._values.value(stored)

    def items(self, *, own: bool = False) -> Iterator[tuple[Any, Any]]:
        """All keys and values, in no order, with what was not committed. Reads the whole store.
        `own`: also what operators keep beside the values of keys, such as timers."""
        return self._items_with(self._written, own=own)

    def _items_with(
        self, written: dict[Key, Any], *, own: bool = False
    ) -> Iterator[tuple[Any, Any]]:
        there = (one for one in self._state.items() if one[0] not in written)
        for key, stored in chain(there, written.items()):
            plain = self._fresh(stored)
            if plain is not None and key != ABOUT and (own or not is_own(key)):
                yield key, self._values.value(plain)

    def stored(self, keys: Iterable[Any]) -> list[Any]:
        """The committed values of keys; None where there is none."""
        keys = list(map(key_of, keys))
        found = self._cache.find(keys)
        missing = [key for key in keys if key not in found]
        found |= zip(missing, self._state.multi_get(missing), strict=True) if missing else ()
        return [self._values.value(self._fresh(found[key])) for key in keys]

    def stored_items(self) -> Iterator[tuple[Any, Any]]:
        """All keys and committed values, in no order."""
        return self._items_with({})

    def entry_count(self) -> int | None:
        """How many entries are stored, those that operators keep beside the values included; None:
        not known."""
        found = count_of(self._opened)
        return found if found is None or self._factory is None else max(found - 1, 0)  # ABOUT

    @property
    def is_open(self) -> bool:
        """Whether it is open, no later life of the task has opened it since, and the last write has
        not failed with an unknown outcome. If not, open it again."""
        return self._opened is not None and self._taken is None

    @property
    def is_stored(self) -> bool:
        """Whether its values outlive the process of the task."""
        return self._factory is not None

    @property
    def shape(self) -> tuple[StateFactory | None, int, dict[str, Any]]:
        """Where it is stored, the version of its values, and the fields of their record types."""
        return self._factory, self._version, self._values.shapes()

    def snapshot(self) -> dict[Key, Any] | None:
        """What is in the memory of the task, for another process; None if nothing is."""
        memory = self._opened
        return dict(memory.values) if isinstance(memory, TaskMemory) else None

    def restore(self, state: dict[Key, Any] | None) -> None:
        """Continue with what `snapshot` returned. Called after `open`."""
        if isinstance(self._opened, TaskMemory) and state is not None:
            self._opened.values = dict(state)
            self._read_ages()

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

    @property
    def _about(self) -> dict[str, Any]:
        return {"version": self._version, "records": self._values.shapes()}

    def _plain(self, key: Key) -> Any:
        if key in self._written:
            return self._fresh(self._written[key])
        if key not in self._found:
            self.fetch([key])
        return self._fresh(self._found[key])

    def _fresh(self, stored: Any) -> Any:
        """The converted value; None if it is too old."""
        at, plain = unstamped(stored)
        if self._ages is None or at is None:
            return plain
        return None if self._ages.is_over(at, self._clock.now()) else plain

    def _joined(self, parts: Sequence[FoundPart]) -> dict[Key, Any]:
        """What this task has of those of another number of tasks, of one version each."""
        changes = joined(parts, has_panes=self._has_panes)
        for part in parts:
            changes |= self._migrated(part.beside.get(ABOUT), part.items)
        return {**changes, ABOUT: self._about}

    def _migrated(
        self, about: Any, items: Callable[[], Iterable[tuple[Key, Any]]]
    ) -> dict[Key, Any]:
        """What opening changes: all values, if they are of an earlier version. `about`: what is
        stored of them."""
        if about is None:
            return {}
        match about:
            case {"version": int() as found, "records": dict() as records}:
                version = self._version
            case _:
                raise StateMismatch(
                    f"{self._where}: {about!r:.100} is not what a state says of itself: somebody "
                    "else has written there; give the state another name=, and it begins empty"
                )
        if found == version:
            if how := self._values.changed(records):
                raise StateMismatch(
                    f"{self._where}: {how}. Give new fields a default; or give version="
                    f"{version + 1} and migrate=, a function (version, value) that makes new "
                    "values; or give the state another name=, under which it begins empty"
                )
            return {}
        if found > version or self._migrate is None:
            raise StateMismatch(
                f"{self._where}: the stored values are of version {found}, and this is version "
                f"{version}: give migrate=, a function (version, value) that makes new values, use "
                "the program that wrote them, or give the state another name="
            )
        changes: dict[Key, Any] = {}
        for key, stored in items():
            if not is_own(key):
                at, plain = unstamped(stored)
                made = self._values.plain(self._migrate(found, as_fields(plain)))
                changes[key] = made if at is None or made is None else stamped(made, at)
        return changes

    def _read_ages(self) -> None:
        if self._ages is not None:
            self._ages.clear()
            self._note_ages(self._state.items())

    def _note_ages(self, stored: Iterable[tuple[Key, Any]]) -> None:
        assert self._ages is not None
        self._ages.note((one for one in stored if not is_own(one[0])), self._clock.now())

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
            if isinstance(error, FailedBatch | StaleAttempt | StoreUnreachable):
                self._taken = error
            if isinstance(error, FailedBatch | StaleAttempt):
                raise self._refused(error) from error
            raise  # the write may happen later: opening again keeps it out, before anything is read

    def _refused(self, error: BaseException) -> StoreUnreachable:
        """An outage: it ends when the task opens the store again."""
        return StoreUnreachable(
            f"a later life of this task has opened the store {self.name!r}, or a write that was "
            f"given up has arrived late; this one writes nothing more: {error}"
        )

    def _forget(self) -> None:
        self.discard()
        self._cache.clear()


def check_key(key: Any) -> None:
    """Raise BadEmit for the key of a record that would be one of the store's own."""
    if type(key) is not str and is_own(key_of(key)):
        raise BadEmit(f"{key!r:.200} cannot be the key of a state: it is reserved")


def as_read(stored: Any) -> Any:
    """A value of a keyed store for those who do not have its classes."""
    return as_fields(unstamped(stored)[1])


def _of_values_alone(factory: Any) -> StateFactory:
    """The factory for states without txids, which belong to batches; itself if it has no choice."""
    if "kind" in getattr(factory, "__dataclass_fields__", ()):
        factory = replace(factory, kind=StateKind.NON_TRANSACTIONAL)
    found: StateFactory = factory
    return found


def _size_of_both(key: Key, plain: Any) -> int:
    return byte_size(key) + byte_size(plain) + 64  # and the entry


# ---- keyed process -------------------------------------------------------------------------------
# Processing with a state for each key: a function of a record and the state of its key.
#
#     def sessions(click: Click, visit: KeyState[Visit]) -> Iterator[Session]:
#
# States are read once for each batch of a task, and written once before the acks of the batch
# leave. Storm: org.apache.storm.topology.IStatefulBolt, org.apache.storm.state.KeyValueState.

V = TypeVar("V")
_TIMERS = TimeReader("the timer of a state", lambda value: value, None)


class KeyState(Generic[V]):
    """The state of one key, in one call of a function: `value` is what the last call has left
    there, and None at first. Assign to it, or change it in place; None removes the key. If the call
    raises, nothing has changed.

    `time` is the time of the call: the event time of the record, or when its batch began by the
    clock; of a timer, its own. `timer` is when `on_timer` is called for the key, None: never.
    `ended` is True while timers fire because all sources have ended: all that are set fire then, so
    a timer that is always set again stops there.
    """

    __slots__ = ("_reader", "_timer", "_value", "assigned", "ended", "time")

    def __init__(
        self,
        value: V | None,
        time: Any = 0.0,
        timer: Time | None = None,
        *,
        ended: bool = False,
        reader: TimeReader = _TIMERS,
    ) -> None:
        """`reader`: reads the times that the timer is set to."""
        self._value, self._reader = value, reader
        self.assigned, self.ended = False, ended
        self.time: float = time
        self._timer: Any = timer

    @property
    def value(self) -> V | None:
        """The state of the key."""
        return self._value

    @value.setter
    def value(self, value: V | None) -> None:
        self._value, self.assigned = value, True

    @property
    def timer(self) -> float | None:
        """The time at which `on_timer` is called for the key. A key has one timer."""
        timer: float | None = self._timer
        return timer

    @timer.setter
    def timer(self, time: Time | date | None) -> None:
        self._timer = None if time is None else self._reader.of_value(time)


class KeyedProcess(FunctionOperator, RowOperator):
    """Calls a function with each record and the state of its key.

    The runtime calls `announce(rows)`, `expand` for each row, and then `flush`. The state of a row
    is changed at the end of `expand`, when the following steps have processed what it makes: an
    exception of theirs ends the generator before.
    """

    by_row = False
    has_timers = False

    def __init__(
        self,
        function: Callable[..., Any],
        by: Sequence[str],
        reads: Schema,
        makes: Schema,
        store: KeyedStore,
    ) -> None:
        super().__init__(function)
        self.by, self.reads, self.schema, self.store = tuple(by), reads, makes, store
        self.tick_s = store.tick_s
        self._announced: Sequence[Any] = ()
        self._now = 0.0  # when this batch began

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self._context = context
        self._key = self.reads.key(self.by)
        self.open(context)

    def open(self, context: Context) -> None:
        """Open the store."""
        self.store.open(context)

    def announce(self, rows: Sequence[Any]) -> None:
        """These rows are the next: their states are read at once, when the first is processed."""
        self._announced = rows

    def expand(self, row: Any) -> Iterator[Any]:
        if len(self._announced):
            self._read()
        key = self._key(row)
        state = self.state_of(key, row)
        kind, width = self.schema.type, len(self.schema.fields)
        for made in self.function(row, state) or ():
            if type(made) is not kind or (kind is tuple and len(made) != width):
                check_rows([made], self.schema, self.function)
            yield made
        self.keep(key, state)

    def state_of(self, key: Any, row: Any) -> KeyState[Any]:
        """The state of a key for the call with a row. Raises BadEmit for a reserved key."""
        check_key(key)
        return KeyState(self.store.get(key), self._now)

    def keep(self, key: Any, state: KeyState[Any]) -> None:
        """Put what a call has left. Raises Unserialisable."""
        if state.timer is not None and not self.has_timers:
            raise TopologyError(
                "there is no on_timer= for the timer of a state; give one to .process(…): a "
                "function (key, state)"
            )
        self.store.put(key, state.value, changed=state.assigned)

    def needed(self, keys: Iterable[Any]) -> Iterable[Any]:
        """What to read for the calls with these keys."""
        return keys

    def make_ready(self) -> None:
        """Open the store if another process has opened it, or it could not be opened again."""
        if not self.store.is_open:
            self.store.open(self._context)

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

    def stored(self, keys: Sequence[Any]) -> list[Any]:
        """The committed states of keys; None where there is none."""
        return self.store.stored(keys)

    def stored_items(self) -> Iterator[tuple[Any, Any]]:
        """All keys and their committed states, in no order."""
        return self.store.stored_items()

    def cleanup(self) -> None:
        try:
            super().cleanup()
        finally:
            self.store.close()

    def __deepcopy__(self, memo: Any) -> Self:
        made = super().__deepcopy__(memo)
        made.store = deepcopy(self.store, memo)
        return made

    def _read(self) -> None:
        rows, self._now = self._announced, self._context.clock.now()
        self.make_ready()
        try:
            self.store.fetch(self.needed(group_keys(self.reads, self.by, rows)))
        except Unserialisable:
            """The record whose key it is fails when its own state is read."""
        self._announced = ()


# ---- key value state -----------------------------------------------------------------------------
# The keyed state of a bolt: a mapping in a keyed store. Its class has the annotation
# `state: KeyValueState[str, Visit]`. Storm: org.apache.storm.state.KeyValueState.

K = TypeVar("K")


class KeyValueState(MutableMapping[K, V]):
    """The states of the keys of one task, by key. Assign to one, or change it in place; None and
    `del` remove it. If the call of `process` or `execute` raises, nothing has changed.

    A key is the value of the field that the bolt's input is grouped by, or a tuple of several.
    Iterating reads the whole state of the task.

    It belongs to the call that runs, and so to its thread: in another thread, reading a key that
    the call has not read, and every change, raise ProtocolError.
    """

    def __init__(self, store: KeyedStore) -> None:
        self._store = store
        self._thread = get_ident()
        self.drop()

    def __getitem__(self, key: K) -> V:
        known = key_of(key)
        if known not in self._held:
            self._check_thread()
            self._held[known] = self._store.get(known)
        if (value := self._held[known]) is None:
            raise KeyError(key)
        found: V = value
        return found

    def __setitem__(self, key: K, value: V | None) -> None:
        self._check_thread()
        check_key(key)
        known = key_of(key)
        self._held[known] = value
        self._assigned.add(known)

    def __delitem__(self, key: K) -> None:
        self[key]  # raises KeyError
        self[key] = None

    def __iter__(self) -> Iterator[K]:
        self._check_thread()
        held = self._held
        stored = [key for key, _ in self._store.items() if key not in held]
        self._store.fetch(stored)
        yield from [*stored, *(key for key, value in held.items() if value is not None)]

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def enter(self) -> None:
        """The calls from now on are in this thread."""
        self._thread = get_ident()

    def drop(self) -> None:
        """Forget what this call has read and changed."""
        self._held: dict[Key, Any] = {}
        self._assigned: set[Key] = set()

    def keep(self) -> None:
        """Put what this call has changed into the store. Raises Unserialisable."""
        self._store.put_all(self._held, self._assigned)
        self.drop()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Another call, between two parts of one that yields; its changes are kept at its end."""
        self.enter()
        outer = self._held, self._assigned
        self.drop()
        try:
            yield
            self.keep()
        finally:
            self._held, self._assigned = outer

    def _check_thread(self) -> None:
        if get_ident() != self._thread:
            raise ProtocolError(
                "a thread other than the task's uses self.state, which belongs to the call that "
                "runs: its change would be lost, or kept with another record. Let the thread "
                "return its result, and use self.state in process, execute or tick"
            )
