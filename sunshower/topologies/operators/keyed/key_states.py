"""What a function of `process` is handed for a key: its value, or a list or a map of rows.

    KeyState   the value is stored as a whole
    KeyList    (head) → first and end;  (ROW, key, number) → [element]
    KeyMap     (head) → first, end and count;  (ROW, key, number) → [name of an entry], in order;
               (ENTRY, key, name) → [number, value]

A head is stored under the key itself, so it has the age of the list. What a call changes waits in
`KeyRows` until the call has ended, so nothing has to be undone if it raises.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSequence,
    Sequence,
)
from datetime import date
from typing import Any, Generic, TypeVar, overload

from sunshower.errors import StateMismatch
from sunshower.records import key_of
from sunshower.topologies.operators.states import ENTRY, ROW, Key, numbers_of
from sunshower.topologies.operators.windows.event_times import Time, TimeReader

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
TIMERS = TimeReader("the timer of a state", lambda value: value, None)
_LIST, _MAP = "(list)", "(map)"  # marks of heads; values that are dictionaries never have them
_AT_ONCE = 1_000  # rows that are read together
_HOLES_MAX = 16  # that every map may have in the order of its entries


class Timers:
    """The timers of a key besides `state.timer`: each has a name, or is known by its time.

    `timers["reminder"] = state.time + 30` sets one or moves it, None removes it; reading it returns
    its time, None without one. `timers.add(time)` sets one without a name, of which there is one
    for each time, and `timers.remove(time)` removes it.
    """

    def __init__(self, reader: TimeReader, stored: Callable[[Any], Any] | None) -> None:
        """`stored`: the time of a timer in the store, by its name; None: there is no store."""
        self._reader, self._stored = reader, stored
        self.changed: dict[Any, Time | None] = {}  # name, or time → time
        self.was_read = False  # whether a call depends on what is stored

    def __getitem__(self, name: str) -> float | None:
        known: Any = None
        if name in self.changed:
            known = self.changed[name]
        elif self._stored is not None:
            self.was_read = True
            known = self._stored(name)
        time: float | None = known
        return time

    def __setitem__(self, name: str, time: Time | date | None) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{name!r:.100} names no timer; a text does, and .add(time) needs none")
        self.changed[name] = None if time is None else self._reader.of_value(time)

    def add(self, time: Time | date) -> None:
        """Set a timer without a name."""
        at = self._reader.of_value(time)
        self.changed[at] = at

    def remove(self, time: Time | date) -> None:
        """Remove the timer of this time that has no name, if it is set."""
        self.changed[self._reader.of_value(time)] = None


class StateOfKey:
    """What is known of one key in one call of a function.

    `time` is the time of the call: the event time of the record, or when its batch began by the
    clock; of a timer, its own. `timer` is when `on_timer` is called for the key, None: never;
    `timers` are further ones, and `fired` is which of them has called. `ended` is True while timers
    fire because all sources have ended: all that are set fire then, so a timer that is always set
    again stops there.
    """

    __slots__ = ("_fired", "_reader", "_stored_timer", "_timer", "_timers", "ended", "time")

    def __init__(self, time: Any, timer: Time | None, ended: bool, reader: TimeReader) -> None:
        self._reader, self.ended = reader, ended
        self.time: float = time
        self._timer: Any = timer

    @property
    def timer(self) -> float | None:
        """The time at which `on_timer` is called for the key."""
        timer: float | None = self._timer
        return timer

    @timer.setter
    def timer(self, time: Time | date | None) -> None:
        self._timer = None if time is None else self._reader.of_value(time)

    @property
    def timers(self) -> Timers:
        """Further timers, as many as you like."""
        try:
            return self._timers
        except AttributeError:
            self._timers: Timers = Timers(self._reader, getattr(self, "_stored_timer", None))
            return self._timers

    @property
    def fired(self) -> str | float | None:
        """In `on_timer`: the name of the timer that has fired, or of one without a name its time;
        None of `timer`."""
        fired: str | float | None = getattr(self, "_fired", None)
        return fired

    def about_timers(self, stored: Callable[[Any], Any], fired: Any) -> None:
        """Tell it how to read timers, and which one has fired."""
        self._stored_timer: Callable[[Any], Any] = stored
        self._fired: Any = fired

    @property
    def used_timers(self) -> Timers | None:
        """`timers`, if the call has used them."""
        return getattr(self, "_timers", None)


class KeyState(StateOfKey, Generic[V]):
    """The state of one key, in one call of a function: `value` is what the last call has left
    there, and None at first. Assign to it, or change it in place; None removes the key. If the call
    raises, nothing has changed. `time`, `timer` and `ended`: see StateOfKey.
    """

    __slots__ = ("_value", "assigned")

    def __init__(
        self,
        value: V | None,
        time: Any = 0.0,
        timer: Time | None = None,
        *,
        ended: bool = False,
        reader: TimeReader = TIMERS,
    ) -> None:
        """`reader`: reads the times that the timer is set to."""
        self._value, self._reader = value, reader  # without super(), which takes as long as this
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


# ---- rows of a key -------------------------------------------------------------------------------


class KeyRows:
    """The head and the rows of one key, with what a call has changed."""

    def __init__(self, store: Any, key: Key) -> None:
        """`store`: a KeyedStore; None, as in tests of a function: the rows are only here."""
        self._store, self.key = store, key
        self._changed: dict[Key, Any] = {}  # as it is stored; None: removed

    def fetch(self, rows: Iterable[Key]) -> None:
        if self._store is not None:
            self._store.fetch([row for row in rows if row not in self._changed])

    def get(self, row: Key) -> Any:
        """A row, as a value of its own; None: it is not there."""
        if self._store is None:
            return self._changed.get(row)
        if row in self._changed:
            return self._store.read(self._changed[row])
        return self._store.get(row)

    def put(self, row: Key, value: Any) -> None:
        """Change a row. Raises Unserialisable, and changes nothing then."""
        self._changed[row] = value if self._store is None else self._store.convert(value)

    def check(self, value: Any) -> None:
        if self._store is not None:
            self._store.convert(value)

    def remove(self, row: Key) -> None:
        self._changed[row] = None

    def keep(self, head: Any) -> None:
        """Put all changes, with the head; None: the key has no rows now."""
        if self._store is not None:
            self._store.put_stored({**self._changed, self.key: head})
            self._changed = {}

    def head(self, mark: str, width: int, whole: tuple[type[Any], ...]) -> tuple[list[int], Any]:
        """The numbers in the head, zeros without one, and the value that a KeyState has stored in
        its place, of one of the types `whole`; None: there is none. The rows of a head that is too
        old are removed. Raises StateMismatch for another value."""
        if self._store is None:
            return [0] * width, None
        stored, is_over = self._store.head(self.key)
        numbers = numbers_of(stored)
        if is_over:
            for row in rows_of(self.key, stored, self.fetch, self.get):
                self.remove(row)
        elif numbers and mark in stored:
            return numbers, None
        elif stored is not None:
            value = None if numbers else self._store.read(stored)
            if not isinstance(value, whole):
                was = next(iter(stored))[1:-1] if numbers else type(value).__name__
                raise StateMismatch(
                    f"the state of key {self.key!r} was stored as a {was}, and is read as a "
                    f"{mark[1:-1]}: give the state another name="
                )
            return [0] * width, value
        return [0] * width, None


def rows_of(
    key: Key, head: Any, fetch: Callable[[Sequence[Key]], Any], get: Callable[[Key], Any]
) -> Iterator[Key]:
    """The keys of all rows of a list or a map; a value that is no head has none."""
    for rows in _in_parts(_numbered(key, head)):
        if _MAP in head:
            fetch(rows)
            names = [name for row in rows for name in get(row) or ()]
            yield from ((ENTRY, key, key_of(name)) for name in names)
        yield from rows


def content_of(
    key: Key, head: Any, fetch: Callable[[Sequence[Key]], Any], get: Callable[[Key], Any]
) -> Any:
    """The list or the dictionary of a head."""
    if _LIST in head:
        listed: list[Any] = []
        for rows in _in_parts([*rows_of(key, head, fetch, get)]):
            fetch(rows)
            listed += [element for row in rows for element in get(row) or ()]
        return listed
    content: dict[Any, Any] = {}
    for rows in _in_parts(_numbered(key, head)):
        fetch(rows)
        names = [name for row in rows for name in get(row) or ()]
        entries = [(ENTRY, key, key_of(name)) for name in names]
        fetch(entries)
        for name, entry in zip(names, map(get, entries), strict=True):
            if entry is not None:
                content[name] = entry[1]
    return content


def as_seen(head: Any, rows: Mapping[int, Any], entries: Mapping[Any, Any]) -> Any:
    """The list or the dictionary of a head for those who do not have the classes of its names: they
    are like keys of a state. `entries`: name → [number, value]."""
    if _LIST in head:
        first, end = numbers_of(head)
        return [rows[number][0] for number in range(first, end) if number in rows]
    in_order = sorted(entries.items(), key=lambda entry: entry[1][0])
    return {name: value for name, (_, value) in in_order}


def _numbered(key: Key, head: Any) -> list[Key]:
    first, end = numbers_of(head)[:2] or (0, 0)
    return [(ROW, key, number) for number in range(first, end)]


def _in_parts(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    return (rows[first : first + _AT_ONCE] for first in range(0, len(rows), _AT_ONCE))


# ---- list ----------------------------------------------------------------------------------------


class KeyList(StateOfKey, MutableSequence[T]):
    """The list of one key, in one call of a function; its elements are stored one by one. What
    `append`, `pop`, `list[0]` and `del list[0]` cost does not depend on its length; an element that
    is inserted or removed elsewhere moves those on its shorter side. An empty list removes the key.

    An element is a copy: assign it again after changing it. If the call raises, nothing has
    changed. `time`, `timer` and `ended`: see StateOfKey.
    """

    __slots__ = ("_end", "_first", "_is_changed", "_rows")
    __hash__ = None  # type: ignore[assignment]  # it is equal to a list

    def __init__(
        self,
        values: Iterable[T] = (),
        time: Any = 0.0,
        timer: Time | None = None,
        *,
        ended: bool = False,
        reader: TimeReader = TIMERS,
        rows: KeyRows | None = None,
    ) -> None:
        """`rows`: of the key in a store; None: `values` are not stored, as in tests."""
        super().__init__(time, timer, ended, reader)
        self._rows = rows or KeyRows(None, None)
        (self._first, self._end), before = self._rows.head(_LIST, 2, (list, tuple))
        self._is_changed = False
        self.extend(values if before is None else before)

    def keep(self) -> None:
        """Put what has changed into the store."""
        if self._is_changed:
            head = {_LIST: [self._first, self._end]} if len(self) else None
            self._rows.keep(head)
            self._is_changed = False

    def __len__(self) -> int:
        return self._end - self._first

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            places = range(self._first, self._end)[index]
            self._rows.fetch(map(self._row, places))
            return [self._at(place) for place in places]
        return self._at(self._place(index))

    @overload
    def __setitem__(self, index: int, value: T) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[T]) -> None: ...
    def __setitem__(self, index: int | slice, value: Any) -> None:
        if isinstance(index, slice):
            values = list(self)
            values[index] = value
            self._replace(values)
        else:
            self._put(self._place(index), value)

    def __delitem__(self, index: int | slice) -> None:
        if isinstance(index, slice):
            values = list(self)
            del values[index]
            self._replace(values)
            return
        place = self._place(index)
        if place - self._first < self._end - 1 - place:
            self._move(range(place - 1, self._first - 1, -1), 1)
            self._rows.remove(self._row(self._first))
            self._first += 1
        else:
            self._move(range(place + 1, self._end), -1)
            self._rows.remove(self._row(self._end - 1))
            self._end -= 1
        self._is_changed = True

    def insert(self, index: int, value: T) -> None:
        """Insert before an index, as a list does."""
        size = len(self)
        index = max(0, index + size) if index < 0 else min(index, size)
        self._rows.check([value])  # before elements are moved
        if index < size - index:
            self._move(range(self._first, self._first + index), -1)
            self._put(self._first + index - 1, value)
            self._first -= 1
        else:
            self._move(range(self._end - 1, self._first + index - 1, -1), 1)
            self._put(self._first + index, value)
            self._end += 1

    def clear(self) -> None:
        """Remove all elements, and the key."""
        for number in range(self._first, self._end):
            self._rows.remove(self._row(number))
        self._first, self._is_changed = self._end, True

    def __iter__(self) -> Iterator[T]:
        index = 0
        while index < len(self):
            if index % _AT_ONCE == 0:
                last = min(self._first + index + _AT_ONCE, self._end)
                self._rows.fetch(map(self._row, range(self._first + index, last)))
            yield self._at(self._first + index)
            index += 1

    def __reversed__(self) -> Iterator[T]:
        return iter(self[::-1])

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, KeyList) else other)

    def __repr__(self) -> str:
        return f"KeyList({list(self)!r})"

    def _row(self, number: int) -> Key:
        return (ROW, self._rows.key, number)

    def _place(self, index: int) -> int:
        size = len(self)
        if not -size <= index < size:
            raise IndexError(f"index {index} of a list of {size} elements")
        return (self._first if index >= 0 else self._end) + index

    def _at(self, number: int) -> T:
        row = self._rows.get(self._row(number))
        if row is None:
            raise StateMismatch(f"element {number} of the list of key {self._rows.key!r} is lost")
        element: T = row[0]
        return element

    def _put(self, number: int, value: Any) -> None:
        self._rows.put(self._row(number), [value])
        self._is_changed = True

    def _move(self, numbers: Iterable[int], by: int) -> None:
        """Move elements to places beside theirs."""
        for number in numbers:
            self._put(number + by, self._at(number))

    def _replace(self, values: Sequence[T]) -> None:
        self.clear()
        self.extend(values)


# ---- map -----------------------------------------------------------------------------------------


class KeyMap(StateOfKey, MutableMapping[K, V]):
    """The map of one key, in one call of a function; its entries are stored one by one, in the
    order in which they were added. What reading, setting and removing one costs does not depend on
    how many there are. An empty map removes the key.

    A value is a copy: assign it again after changing it. If the call raises, nothing has changed.
    `time`, `timer` and `ended`: see StateOfKey.
    """

    __slots__ = ("_end", "_first", "_is_changed", "_rows", "_size")

    def __init__(
        self,
        values: Mapping[K, V] | Iterable[tuple[K, V]] = (),
        time: Any = 0.0,
        timer: Time | None = None,
        *,
        ended: bool = False,
        reader: TimeReader = TIMERS,
        rows: KeyRows | None = None,
    ) -> None:
        """`rows`: of the key in a store; None: `values` are not stored, as in tests."""
        super().__init__(time, timer, ended, reader)
        self._rows = rows or KeyRows(None, None)
        (self._first, self._end, self._size), before = self._rows.head(_MAP, 3, (dict,))
        self._is_changed = False
        self.update(values if before is None else before)

    def keep(self) -> None:
        """Put what has changed into the store."""
        if not self._is_changed:
            return
        if self._end - self._first > 2 * self._size + _HOLES_MAX:
            self._close_holes()
        head = {_MAP: [self._first, self._end, self._size]} if self._size else None
        self._rows.keep(head)
        self._is_changed = False

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, name: K) -> V:
        entry = self._rows.get(self._entry(name))
        if entry is None:
            raise KeyError(name)
        value: V = entry[1]
        return value

    def __setitem__(self, name: K, value: V) -> None:
        row = self._entry(name)
        entry = self._rows.get(row)
        if entry is not None:
            self._rows.put(row, [entry[0], value])
        else:
            self._rows.put(row, [self._end, value])
            try:
                self._rows.put(self._number(self._end), [name])
            except BaseException:
                self._rows.remove(row)
                raise
            self._end += 1
            self._size += 1
        self._is_changed = True

    def __delitem__(self, name: K) -> None:
        entry = self._rows.get(row := self._entry(name))
        if entry is None:
            raise KeyError(name)
        self._rows.remove(row)
        self._rows.remove(self._number(entry[0]))
        self._size -= 1
        self._is_changed = True
        if not self._size:
            self._first = self._end

    def popitem(self) -> tuple[K, V]:
        """Remove the entry that was added last, and return it. Raises KeyError without one."""
        for number in range(self._end - 1, self._first - 1, -1):
            for name in self._rows.get(self._number(number)) or ():
                self._end = number + 1
                return name, self.pop(name)
        raise KeyError("the map is empty")

    def clear(self) -> None:
        """Remove all entries, and the key."""
        for name in list(self):
            del self[name]

    def __iter__(self) -> Iterator[K]:
        size = self._size
        for numbers in _in_parts(range(self._first, self._end)):
            rows = list(map(self._number, numbers))
            self._rows.fetch(rows)
            for row in rows:
                if self._size != size:
                    raise RuntimeError("the map has changed its size during iteration")
                yield from self._rows.get(row) or ()

    def __contains__(self, name: object) -> bool:
        return self._rows.get(self._entry(name)) is not None

    def __repr__(self) -> str:
        return f"KeyMap({dict(self)!r})"

    def _entry(self, name: Any) -> Key:
        return (ENTRY, self._rows.key, key_of(name))

    def _number(self, number: int) -> Key:
        return (ROW, self._rows.key, number)

    def _close_holes(self) -> None:
        """Number all entries again."""
        names = list(self)
        self._rows.fetch(map(self._entry, names))
        for number in range(self._first, self._end):
            self._rows.remove(self._number(number))
        for number, name in enumerate(names):
            self._rows.put(self._number(number), [name])
            self._rows.put(row := self._entry(name), [number, self._rows.get(row)[1]])
        self._first, self._end = 0, len(names)
