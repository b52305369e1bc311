"""A keyed store: the values of one task, written batch by batch before the batch is acked.

    store.fetch(keys)                       one read of the keys of a batch
    store.get(key) · put · remove           what is put is seen by `get`, and is not stored yet
    store.commit()                          all of it is stored now, or commit has raised

It is opened from a StateFactory, or lives in the memory of its task. Opening it writes, so a former
life of the task, which may still run somewhere, can store nothing afterwards.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, islice, takewhile
from math import inf
from threading import get_ident
from typing import Any, TypeVar

from sunshower.clock import Clock, SystemClock
from sunshower.errors import (
    ProtocolError,
)
from sunshower.json_values import Renamed, StoredValues, are_flat, as_fields, byte_size
from sunshower.records import key_of
from sunshower.topologies.components import Context
from sunshower.topologies.operators.keyed import long_values
from sunshower.topologies.operators.keyed.key_states import content_of, rows_of
from sunshower.topologies.operators.keyed.long_values import (
    Call,
    LongValue,
    Version,
    cannot_change,
    flat_length,
    rebuilt,
)
from sunshower.topologies.operators.state_slot import (
    Migration,
    RecentValues,
    StateSlot,
    ValuesVersion,
    stamped,
    unstamped,
)
from sunshower.topologies.operators.states import (
    ABOUT,
    Key,
    Spread,
    StateFactory,
    StateKind,
    check_key,
    is_own,
    joined,
    numbers_of,
)
from sunshower.topologies.operators.windows.event_times import (
    Time,
    excess,
    is_before,
    length_of,
)

CACHE_BYTES = 64 << 20  # of each task
_TICK_MAX_S = 60.0


# ---- ages ----------------------------------------------------------------------------------------

_AT_ONCE = 10_000  # keys that one commit removes


class Ages:
    """When each key was written, the oldest first. It is in memory: about 200 bytes a key."""

    def __init__(self, ttl_s: float) -> None:
        length = length_of(ttl_s)
        self._length = int(length) if length == int(length) else length  # exact with whole times
        self._written: OrderedDict[Key, Time] = OrderedDict()

    def is_over(self, at: Time, now: Time) -> bool:
        return now > -inf and excess(at, now, self._length) >= 0

    def expired(self, now: Time) -> list[Key]:
        """Keys whose values are too old; some of them, if there are many."""
        old = takewhile(lambda item: self.is_over(item[1], now), self._written.items())
        return [key for key, _ in islice(old, _AT_ONCE)]

    def note(self, stored: Iterable[tuple[Key, Any]], now: Time) -> None:
        """Note what was just stored; a value without a time counts from `now`."""
        times = list[tuple[Key, Time]]()
        for key, value in stored:
            at, plain = unstamped(value)
            self._written.pop(key, None)
            if plain is not None:
                times.append((key, now if at is None else at))
        self._written.update(sorted(times, key=lambda item: item[1]))

    def clear(self) -> None:
        self._written.clear()


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
        renamed: Renamed | None = None,
        spread: Spread = Spread.BY_KEY,
        has_panes: bool = False,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        """`name`: by which a later run finds it. `classes`: the Enums and record types in values,
        as Schema.classes. `ttl_s`: values that were put longer ago are absent, and are removed by a
        later commit; the time of each key is kept in memory. `migrate` makes values of `version` of
        those of earlier versions when the store is opened. `renamed`: as of StoredValues. `spread`:
        by which another number of tasks finds its keys. `has_panes`: see states.joined. Raises
        TopologyError for a value that is not a state factory, and RecordMismatch for two classes of
        one name."""
        self.name, self._where = name, where
        self.has_rows = False  # whether keys have lists or maps, see key_states
        self.ttl_s = ttl_s
        self.time: Time | None = None  # in batches: by which values expire; None: the clock
        self.expired = 0  # how many keys were removed because they were too old
        self.value_type: Any = Any  # the annotation of a key's value
        self.values = StoredValues(classes, where, renamed)
        self.slot = StateSlot(
            None if factory is None else _of_values_alone(factory),
            name,
            where,
            partial(joined, has_panes=has_panes),
            spread=spread,
            version=ValuesVersion(self.values, version, migrate, where),
        )
        self._ages = None if ttl_s is None else Ages(ttl_s)
        self.tick_s = None if ttl_s is None else min(ttl_s, _TICK_MAX_S)  # to remove old values
        self._batch: RecentValues[Key, Any] = RecentValues(cache_bytes, _size_of_both)  # converted
        self.lends = False  # whether calls may change long values in place
        self.long: set[Key] = set()  # keys whose values were long when they were put
        # Values that are lent to calls; what is found or written of their keys is of before.
        self._lent: dict[Key, LongValue] = {}
        self._used: set[Key] = set()  # keys that this batch has lent
        self._taken_back: dict[Key, Version] = {}  # in this batch; as they were committed
        self._clock: Clock = SystemClock()  # that of the task, once it is open

    def open(self, context: Context) -> None:
        """Open the store, unless it is open. Raises as StateSlot.open."""
        self._clock = context.clock
        if self.is_open:
            return
        self.close()
        self.slot.open(context)
        try:
            self.read_ages()
        except BaseException:
            self.close()
            raise

    def fetch(self, keys: Iterable[Any]) -> None:
        """Read many keys at once, before `get` is called for each."""
        self._fetch(map(key_of, keys))

    def _fetch(self, keys: Iterable[Key]) -> None:
        self._batch.fetch(keys, self.slot.state.multi_get)

    def get(self, key: Any) -> Any:
        """The value of a key, as it was put last; None if there is none. Raises StateMismatch for a
        stored value whose class has changed."""
        return self.values.value(self._plain(key_of(key)))

    def get_all(self, keys: Sequence[Key]) -> list[Any]:
        """The values of keys that are like those of `key_of`."""
        self._fetch(keys)
        return [self.values.value(self._plain(key)) for key in keys]

    def view(self, keys: Sequence[Key], depth: int = 1) -> list[Any]:
        """As `get_all`, for those who change nothing of it: lists of immutable values, at most
        `depth` in each other, are those of the store."""
        if self._lent or self._ages is not None:
            return self.get_all(keys)
        written, fetched, read = self._batch.written, self._batch.found, self.read
        if self.slot.memory is not None and not written:
            values = self.slot.state.multi_get(keys)
        else:
            self._fetch(keys)
            values = [written[key] if key in written else fetched[key] for key in keys]
        if are_flat(values, depth):
            return values
        return [value if are_flat([value], depth) else read(value) for value in values]

    def put(self, key: Any, value: Any, *, changed: bool = True) -> None:
        """Change the value of a key; `changed` False: if it differs from the one there is. Raises
        Unserialisable, and changes nothing then."""
        self.put_all({key_of(key): value}, [key_of(key)] if changed else ())

    def put_all(self, values: Mapping[Key, Any], changed: Collection[Key]) -> None:
        """Change the values of `changed` keys, and of others if they differ from those there are.
        Raises Unserialisable, and changes nothing then."""
        converted = [(key, self.values.plain(value)) for key, value in values.items()]
        for key, plain in converted:
            if self.lends and self._long_length(plain):
                self.long.add(key)
            if key in changed or self._plain(key) != plain:
                if self._lent or self._ages is not None:
                    self._put(key, plain)
                else:
                    self._batch.written[key] = plain

    def replace(self, values: Mapping[Key, Any], depth: int = 1) -> None:
        """Change the values of keys that are like those of `key_of`; None: removed. Lists of
        immutable values, at most `depth` in each other, are not copied: nobody may change them any
        more. Raises Unserialisable, and changes nothing then."""
        if not are_flat(values.values(), depth):
            convert = self.values.plain
            values = {
                key: value if are_flat([value], depth) else convert(value)
                for key, value in values.items()
            }
        self.put_stored(values)

    def put_stored(self, changes: Mapping[Key, Any]) -> None:
        """Change the values of keys that are like those of `key_of`; the values are converted."""
        if self._lent or self._ages is not None:
            for key, plain in changes.items():
                self._put(key, plain)
        else:
            self._batch.written.update(changes)

    def _put(self, key: Key, plain: Any) -> None:
        if self._lent:
            self._take_back(key)
        if self._ages is not None and plain is not None and not is_own(key):
            at = self._now_s
            if self.time is not None:  # rows of batches need not be in the order of their times
                batch = self._batch
                before, _ = unstamped(batch.written.get(key, batch.found.get(key)))
                at = at if before is None or is_before(before, at) else before
            plain = stamped(plain, at) if at > -inf else plain
        self._batch.written[key] = plain

    def convert(self, value: Any) -> Any:
        """A value as it is stored. Raises Unserialisable for one that cannot be."""
        return self.values.plain(value)

    def remove(self, key: Any) -> None:
        self._put(key_of(key), None)

    # ---- long values -----------------------------------------------------------------------------

    def lend(self, key: Key) -> LongValue | None:
        """The value of a key for a call that may change it in place, if it is long, and its
        elements cannot change. The call then returns it, or its value becomes None."""
        lent = self._lent.get(key)
        if lent is None:
            plain = self._plain(key)
            if not (length := self._long_length(plain)):
                self.long.discard(key)
                return None
            lent = self._lent[key] = LongValue(plain, length)
        self._used.add(key)
        self._now(lent)
        return lent

    def _long_length(self, plain: Any) -> int:
        """The length of a converted value that is long, and can be lent; 0 for another one."""
        if type(plain) is not list and type(plain) is not dict:
            return 0
        if type(plain) is list and len(plain) < long_values.LONG:  # most values
            return 0
        length = flat_length(plain, self.values.unchanging)
        return length if length >= long_values.LONG else 0

    def is_unchanging(self, plain: Any) -> bool:
        """Whether a converted value is of a type whose objects cannot change."""
        return cannot_change(plain, self.values.unchanging)

    def give_back(self, key: Key, lent: LongValue, call: Call) -> None:
        """A call has changed a value that was lent. Raises Unserialisable when the value is copied,
        and changes nothing then."""
        if len(lent.calls) + 1 < lent.length:
            lent.calls.append(call)
            return
        plain = self.values.plain(lent.value)
        if not (length := self._long_length(plain)):
            self.put_stored({key: plain})
        else:
            lent.copy, lent.length, lent.calls = plain, length, []

    def reclaim(self, key: Key) -> None:
        """Copy a value that was lent, because something else may have a part of it. Raises
        Unserialisable."""
        plain = self._plain(key)
        self._take_back(key)
        if plain != self._batch.written.get(key, self._batch.found.get(key)):
            self._batch.written[key] = plain

    def _now(self, lent: LongValue) -> Any:
        """The value as the last call has left it."""
        if lent.value is None:
            lent.value = rebuilt(lent.now(), self.values.value, self._where)
        return lent.value

    def _take_back(self, key: Key) -> None:
        """Another value is put in place of one that was lent."""
        if (lent := self._lent.pop(key, None)) is not None and lent.committed is not None:
            self._taken_back[key] = lent.committed

    def _committed_now(self, key: Key) -> Any:
        """The committed value, converted, of a key that was lent; None: it was not at the time."""
        lent = self._lent.get(key)
        version = lent.committed if lent is not None else self._taken_back.get(key)
        if version is None:
            return None
        is_now = lent is not None and lent.is_at(version)
        return self.values.plain(
            lent.value if lent and is_now else rebuilt(version, self.values.value, self._where)
        )

    @property
    def _committed_lent(self) -> dict[Key, Any]:
        keys = [*self._lent, *self._taken_back]
        plain_values = {key: self._committed_now(key) for key in keys}
        return {key: plain for key, plain in plain_values.items() if plain is not None}

    def _settle(self) -> None:
        """Put what calls have changed in place, where values are not in the memory of the task."""
        if self.slot.memory is not None:
            return
        batch = self._batch
        for key, lent in [*self._lent.items()]:
            plain = self.values.plain(self._now(lent))
            before = batch.written[key] if key in batch.written else batch.found[key]
            if plain != before:
                self._batch.written[key] = plain
        self._lent, self._used = {}, set()

    def _commit_lent(self) -> None:
        """What is lent in the memory of the task is committed as it is."""
        if (memory := self.slot.memory) is not None:
            for key in self._used & self._lent.keys():
                lent = self._lent[key]
                lent.committed = lent.now()
                memory.values[key] = lent.copy
        self._used, self._taken_back = set(), {}

    # ---- batches ---------------------------------------------------------------------------------

    def commit(self) -> None:
        """Store what was put and removed since the last commit, all or nothing. If it raises, that
        is forgotten; after StoreUnreachable it may be stored nevertheless. In an exactly-once
        batch, it is stored with the batch."""
        self._settle()
        found, written, ages = self._batch.found, self._batch.written, self._ages
        if ages is not None and self.time is None:
            expired = [key for key in ages.expired(self._now_s) if key not in written]
            self._expire(expired)
        changes = self._without_absent() if None in written.values() else written
        if changes:
            try:
                self.slot.write(changes)
            except BaseException:
                self.discard()
                self._batch.clear()
                raise
            if ages is not None and self.time is None:
                self._note_ages(changes.items())
        if self.is_stored:
            self._batch.keep(found | written)
        self._commit_lent()
        self._batch.discard()

    def _without_absent(self) -> dict[Key, Any]:
        """What was put and removed, without removed keys that were not there: nothing is stored of
        them, unless an earlier attempt of the batch may have put them."""
        found, written = self._batch.found, self._batch.written
        if self.slot.must_undo:
            return written
        if not self.slot.undoes_attempts:  # a state of a user, which may keep what is removed
            unread = [key for key, value in written.items() if value is None and key not in found]
            found.update(zip(unread, self.slot.state.multi_get(unread), strict=True))
        return {
            key: value
            for key, value in written.items()
            if value is not None or found.get(key, True) is not None
        }

    def _expire(self, keys: Sequence[Key]) -> None:
        """Remove keys that are too old, with their rows."""
        for key in keys if self.has_rows else ():
            head, _ = self.head(key)
            self._batch.written |= dict.fromkeys(rows_of(key, head, self.fetch, self.get))
        self._batch.written |= dict.fromkeys(keys)
        self.expired += len(keys)

    # ---- exactly-once batches --------------------------------------------------------------------

    def expire_in_batches(self) -> None:
        """Let values expire by `time`, which the caller sets: event times may be any numbers."""
        if self._ages is not None:
            self.time = -inf
            self.read_ages()

    def expire_in_batch(self, again: Iterable[Key]) -> None:
        """Remove the keys that are too old at `time`. An earlier attempt of the batch, also of a
        former life of the task, may have changed keys, `again`, that are as before it now."""
        if (ages := self._ages) is None:
            return
        written = self._batch.written
        again = (key for key in again if not is_own(key))
        keys = dict.fromkeys([*again, *ages.expired(self._now_s)]).keys() - written.keys()
        self._fetch(keys)
        stored_now = {key: self._batch.found[key] for key in sorted(keys, key=repr)}
        # What an attempt has written may have been undone: the state says when a key was written.
        ages.note(stored_now.items(), self._now_s)
        for key, stored in stored_now.items():
            if stored is not None and unstamped(stored)[0] is None:  # it was there before `ttl_s`
                self._put(key, stored)
        self._expire(
            [
                key
                for key in stored_now
                if stored_now[key] is not None and self._fresh(stored_now[key]) is None
            ]
        )
        self._note_ages(written.items())

    # ---- what is stored --------------------------------------------------------------------------

    @property
    def _now_s(self) -> Time:
        return self._clock.wall() if self.time is None else self.time

    def discard(self) -> None:
        self._batch.discard()
        back = {key: self._lent[key].committed for key in self._used & self._lent.keys()}
        for key, version in (back | self._taken_back).items():
            self._lent.pop(key, None)
            if version is not None:
                lent = self._lent[key] = LongValue(version.copy, self._long_length(version.copy))
                lent.back_to(version)
                lent.committed = lent.now()
        self._used, self._taken_back = set(), {}

    def forget(self) -> None:
        """Forget all that was read, also of earlier batches, and what was put."""
        self.discard()
        self._batch.clear()
        self._lent, self.long = {}, set()

    @property
    def changed(self) -> dict[Key, Any]:
        """What was put and removed since the last commit, as it is stored; None: removed. Of an
        exactly-once batch, what was not handed to its state yet."""
        self._settle()
        return dict(self._batch.written)

    def read(self, stored: Any) -> Any:
        """The value that is stored so. Raises StateMismatch as `get` does."""
        return self.values.value(unstamped(stored)[1])

    def head(self, key: Any) -> tuple[Any, bool]:
        """What is stored under a key, and whether it is too old."""
        fresh = self._plain(key := key_of(key))
        if key in self._lent:
            return fresh, False
        written, found = self._batch.written, self._batch.found
        stored = written[key] if key in written else found[key]
        return unstamped(stored)[1], fresh is None

    def items(self) -> Iterator[tuple[Any, Any]]:
        """All keys and values, in no order, with what was not committed. Reads the whole store."""
        for key, plain in self.entries():
            if not is_own(key):
                is_head = numbers_of(plain)
                value = content_of(key, plain, self.fetch, self.get) if is_head else None
                yield key, value if is_head else self.values.value(plain)

    def entries(self) -> Iterator[tuple[Any, Any]]:
        """All keys, in no order, and what is stored under them, also what operators keep beside
        the values, such as timers. With what was not committed."""
        return self._entries_with(
            {**self._batch.written, **{key: self._plain(key) for key in self._lent}}
        )

    def _entries_with(self, written: dict[Key, Any]) -> Iterator[tuple[Any, Any]]:
        committed = (item for item in self.slot.items() if item[0] not in written)
        for key, stored in chain(committed, [*written.items()]):
            plain = self._fresh(stored)
            if plain is not None and key != ABOUT:
                yield key, plain

    def stored(self, keys: Iterable[Any]) -> list[Any]:
        """The committed values of keys; None where there is none."""
        keys = list(map(key_of, keys))
        committed = self._committed(keys)
        return [self._whole(key, self._fresh(committed[key])) for key in keys]

    def stored_items(self) -> Iterator[tuple[Any, Any]]:
        for key, plain in self._entries_with(self._committed_lent):
            if not is_own(key):
                yield key, self._whole(key, plain)

    def _committed(self, keys: Sequence[Key]) -> dict[Key, Any]:
        committed = self._batch.recent(keys)
        missing = [key for key in keys if key not in committed]
        committed |= (
            zip(missing, self.slot.state.multi_get(missing), strict=True) if missing else ()
        )
        for key in keys if self._lent or self._taken_back else ():
            if (plain := self._committed_now(key)) is not None:
                committed[key] = plain
        return committed

    def _whole(self, key: Key, plain: Any) -> Any:
        """The committed value of a key; of a list or a map all that is in it."""
        if not numbers_of(plain):
            return self.values.value(plain)
        parts: dict[Key, Any] = {}
        return content_of(
            key,
            plain,
            lambda rows: parts.update(self._committed(rows)),
            lambda row: self.values.value(parts[row]),
        )

    def entry_count(self) -> int | None:
        """How many entries are stored, those that operators keep beside the values included; None:
        not known."""
        return self.slot.entry_count()

    @property
    def classes(self) -> tuple[type[Any], ...]:
        """The Enums and record types that values may have."""
        return self.values.classes

    @property
    def keeps_ages(self) -> bool:
        """Whether the time of each write is stored."""
        return self._ages is not None

    @property
    def is_open(self) -> bool:
        """Whether it is open, no later life of the task has opened it since, and the last write has
        not failed with an unknown outcome. If not, open it again."""
        return self.slot.is_open

    @property
    def is_stored(self) -> bool:
        """Whether its values outlive the process of the task."""
        return self.slot.factory is not None

    @property
    def shape(self) -> tuple[StateFactory | None, int]:
        """Where it is stored, and the version of its values."""
        version = self.slot.version
        return self.slot.factory, 1 if version is None else version.version

    def snapshot(self) -> dict[Key, Any] | None:
        """What is in the memory of the task, for another process; None if nothing is."""
        memory = self.slot.memory
        return None if memory is None else memory.values | self._committed_lent

    def restore(self, state: dict[Key, Any] | None) -> None:
        """Continue with what `snapshot` returned. Called after `open`."""
        if (memory := self.slot.memory) is not None and state is not None:
            memory.values, self._lent = dict(state), {}
            self.read_ages()

    def close(self) -> None:
        self.forget()
        self.slot.close()

    def _plain(self, key: Key) -> Any:
        if self._lent and (lent := self._lent.get(key)) is not None:
            return self.values.plain(self._now(lent))
        batch = self._batch
        if key in batch.written:
            return self._fresh(batch.written[key])
        if key not in batch.found:
            self._fetch([key])
        return self._fresh(batch.found[key])

    def _fresh(self, stored: Any) -> Any:
        at, plain = unstamped(stored)
        if self._ages is None or at is None:
            return plain
        return None if self._ages.is_over(at, self._now_s) else plain

    def read_ages(self) -> None:
        """Read when each key was written, from the open state."""
        if self._ages is not None:
            self._ages.clear()
            self._note_ages(self.slot.state.items())

    def _note_ages(self, stored: Iterable[tuple[Key, Any]]) -> None:
        assert self._ages is not None
        self._ages.note((item for item in stored if not is_own(item[0])), self._now_s)


def as_read(stored: Any) -> Any:
    """A value of a keyed store for those who do not have its classes."""
    return as_fields(unstamped(stored)[1])


def _of_values_alone(factory: Any) -> StateFactory:
    """The factory for states without txids, which belong to batches; itself if it has no choice."""
    if "kind" in getattr(factory, "__dataclass_fields__", ()) and not isinstance(factory, type):
        factory = replace(factory, kind=StateKind.NON_TRANSACTIONAL)
    checked: StateFactory = factory
    return checked


def _size_of_both(key: Key, plain: Any) -> int:
    return byte_size(key) + byte_size(plain) + 64  # and the entry


# ---- key value state -----------------------------------------------------------------------------
# The keyed state of a bolt: a mapping in a keyed store. Its class has the annotation
# `state: KeyValueState[str, Visit]`. Storm: org.apache.storm.state.KeyValueState.

K = TypeVar("K")
V = TypeVar("V")


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
        value: V | None = self._held[known]
        if value is None:
            raise KeyError(key)
        return value

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
