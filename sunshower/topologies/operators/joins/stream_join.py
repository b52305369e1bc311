"""The join of two ordinary streams: records with equal keys whose event times are close.

    a record    ──▶ joined with those of the other side that are there ──▶ part of its tree
                ──▶ kept, until the watermark has passed all that it may be joined with
    a watermark ──▶ kept records that had no partner ──▶ part of its tree (left and outer joins)

Storm: org.apache.storm.bolt.JoinBolt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from math import inf, nextafter
from types import NoneType
from typing import Any

from sunshower.errors import Unserialisable
from sunshower.records import Schema
from sunshower.topologies.operators.aggregating import keys_of_partial, values_of_key
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.port import Emit, Rows
from sunshower.topologies.operators.schemas import rest_of
from sunshower.topologies.operators.states import TIME, Key
from sunshower.topologies.operators.steps import RowOperator
from sunshower.topologies.operators.updates import SHOWN, key_of_origin
from sunshower.topologies.operators.windows.event_times import (
    Panes,
    Time,
    TimeReader,
    excess,
    highest,
    is_before,
    length_of,
    lowest,
    minus,
)
from sunshower.topologies.operators.windows.watermarks import ReachedTime, Watermark
from sunshower.topologies.operators.windows.window_operator import WindowOperator

_BUCKET, _RECORD = "bucket", "record"
# In buckets: how much farther away a partner's bucket may be than `within`, because former versions
# computed it with rounding.
_SLACK = 0.001
_JOINED, _LATE = 0, 1
_SAME = {str, int, bool, bytes, NoneType}  # types of values that are their own keys
_BUCKETS_AT_ONCE = 100  # of an earlier release, whose records get rows in one write
_EMPTY = (0, 0)
# (_RECORD, group, number, side, index): [event time, other values, had a partner, values of the key
# if they are not in it]. Releases before stored all records of a bucket as one value:
# (_BUCKET, group, number): [records of the left side, of the right side].
Place = tuple[Any, int, int]  # group, number of the bucket, side
Record = list[Any]


class JoinInput(RowOperator):
    """Emits (fields of the key, number of the input, event time, other values) of each record. The
    time is None without a reader for it.

    Once `read_updates` was called, it reads updates, with their key in the group, and emits (fields
    of the key, number of the input, None, [origin, number, other values of each row])."""

    ends_lineage = True

    def __init__(
        self, schema: Schema, on: Sequence[str], number: int, reader: TimeReader | None
    ) -> None:
        self._width, self._places = 0, list[int]()
        rest = rest_of(schema, on)
        self.number, self.reader = number, reader
        self._key = [schema.key([name]) for name in on]
        self._rest = [schema.key([name]) for name in rest]

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        emit([made for row in rows for made in self.expand(row)])

    def read_updates(self, width: int, places: Sequence[int]) -> None:
        """Read updates, whose groups have `width` values in their key, and the fields of the key of
        the join at `places`."""
        self.reads_updates, self._width, self._places = True, width, list(places)

    def expand(self, row: Any) -> Iterable[Any]:
        if self.reads_updates:
            origin, number, rows = row
            if number == SHOWN and not self.number:
                return ()  # a table has no record of it
            key = key_of_origin(origin, self._width, self._places)
            others = [[get(one) for get in self._rest] for one in rows]
            return ((*key, self.number, None, [origin, number, others]),)
        time = None if self.reader is None else self.reader.time(row)
        key, rest = [get(row) for get in self._key], [get(row) for get in self._rest]
        return ((*key, self.number, time, rest),)


class StreamJoin(WindowOperator, RowOperator):
    """Makes (0, joined record) and (1, late record) of the rows of two JoinInputs.

    The records of a key are kept in buckets of event time, as long as `within`, so a record has its
    partners in three of them; each record is an entry of the store. A bucket is removed when the
    watermark has passed the next one. An exception in what follows ends the generator of a row
    before the row is kept, except one of an async function.
    """

    by_row = False
    word = "join"

    def __init__(
        self,
        store: KeyedStore,
        by: Sequence[str],
        out: Schema,
        *,
        within: float,
        late: float,
        keeps: tuple[bool, bool],
        widths: tuple[int, int],
    ) -> None:
        """`keeps`: whether records of either side are emitted without a partner; `widths`: how many
        values they have beside the key."""
        super().__init__(store, by, out)
        self.within, self.late, self.keeps = length_of(within), length_of(late), keeps
        self._nothing = [(None,) * width for width in widths]
        self._buckets_of = Panes(within or 1)
        self._announced: Sequence[Any] = ()
        self._latest: Time = -inf  # a time after that of all records that were removed
        # What a batch has read, and the records of whose first partner it has. Savepoints have the
        # names of what is here: further attributes are those of `_drop`.
        self._buckets: dict[Place, list[Record]] = {}
        self._changed: dict[Key, None] = {}

    # ---- records ---------------------------------------------------------------------------------

    def announce(self, rows: Sequence[Any]) -> None:
        self._announced = rows

    def expand(self, row: Any) -> Iterator[tuple[int, Any]]:
        if len(self._announced):
            self._read()
        own_key, (side, time, values) = row[: self.width], row[self.width :]
        (group,) = keys_of_partial(self.width, [row])
        if is_before(time, self._time):
            self._late_now.append((1, minus(self._time, time)))
            yield _LATE, self._record(own_key, side, values, self._nothing[1 - side])
            return
        self.late_records.in_time = True
        found = [
            (place, index, other)
            for place in self._near(group, time, 1 - side)
            for index, other in enumerate(self._records_of(place))
            if excess(other[0], time, self.within) <= 0 and excess(time, other[0], self.within) <= 0
        ]
        for _, _, other in found:
            yield _JOINED, self._record(own_key, side, values, other[1])
        kept = [time, values, bool(found)]
        if self.keeps[side] and not {*map(type, own_key)} <= _SAME:
            kept.append(list(own_key))
        self._add((group, self._buckets_of.of_time(time), side), kept)
        for place, index, other in found if self.keeps[1 - side] else ():
            if not other[2]:
                other[2] = True
                self._changed[(_RECORD, *place, index)] = None

    def flush(self) -> None:
        try:
            added: dict[Key, Any] = {
                (_RECORD, *place, index): stored
                for place, records in self._added.items()
                for index, stored in enumerate(records, self._size(place))
            }
            for key in self._changed:
                record = added[key] if key in added else self.store.head(key)[0]
                added[key] = [*record[:2], True, *record[3:]]
            self.store.put_stored(added)
            if self.store.is_open:
                self.store.commit()
            for (group, number, side), records in self._added.items():
                self._sizes(group, number)[side] += len(records)
            self._count_late()
        finally:
            self.discard()

    def discard(self) -> None:
        self.store.discard()
        self._late_now.clear()
        self._drop()

    def _drop(self) -> None:
        self._buckets, self._changed = {}, {}
        self._new: defaultdict[Place, list[Record]] = defaultdict(list)  # what the batch adds
        self._added: defaultdict[Place, list[Any]] = defaultdict(list)  # the same, as it is stored

    # ---- watermarks ------------------------------------------------------------------------------

    def advance(self, marks: Iterable[Watermark]) -> list[Any]:
        return [(_JOINED, record) for record in super().advance(marks)]

    def forget(self) -> None:
        # bucket → group → how many records of either side it has
        self._open: defaultdict[int, dict[Any, list[int]]] = defaultdict(dict)
        self._former: list[Key] = []  # buckets that an earlier release has stored
        self._drop()

    def load(self, key: Any, stored: Any) -> None:
        if key[0] == _BUCKET:
            self._former.append(key)
        else:
            _, group, number, side, index = key
            sizes = self._sizes(group, number)
            sizes[side] = max(sizes[side], index + 1)

    def _load(self) -> None:
        super()._load()
        for first in range(0, len(self._former), _BUCKETS_AT_ONCE):
            self._store_by_record(self._former[first : first + _BUCKETS_AT_ONCE])

    def _store_by_record(self, keys: Sequence[Any]) -> None:
        self.store.fetch(keys)
        for key in keys:
            _, group, number = key
            for side, records in enumerate(self.store.get(key)):
                for record in records:
                    self._add((group, number, side), record)
            self.store.remove(key)
        self.flush()

    def time(self, reached: ReachedTime) -> Time:
        return reached.time(self.late)

    def last_time(self, ended: Sequence[Sequence[Any]]) -> Time:
        return self._latest

    def end_of(self, time: Time) -> Time:
        return _time_after(time)

    def front(self, time: Time) -> Time:
        front = minus(time, self.within)  # the earlier one of a pair
        if any(self.keeps) and self._open:
            front = lowest([front, self._buckets_of.start(min(self._open))])
        return front

    def closing_time(self, newest: Time) -> Time:
        return self._buckets_of.start(self._buckets_of.of_time(newest) + 3)  # see `end`

    @property
    def has_open(self) -> bool:
        return bool(self._open)

    def end(self, before: Time, time: Time) -> list[Sequence[Any]]:
        ended = sorted(self._open)
        if time != inf:
            reached = (-inf, 0.0) if time == -inf else self._buckets_of.split(time)
            ended = [bucket for bucket in ended if (bucket + 2, _SLACK) <= reached]
        places = [
            (group, number, side)
            for number in ended
            for group in self._open[number]
            for side in (0, 1)
        ]
        keys = [key for place in places for key in self._keys(place)]
        self.store.fetch(keys)
        made: list[Sequence[Any]] = []
        for place in places:
            group, _, side = place
            for at, values, had_partner, *own_key in self.store.get_all(self._keys(place)):
                self._latest = highest([self._latest, _time_after(at)])
                if self.keeps[side] and not had_partner:
                    first = own_key[0] if own_key else values_of_key(group, self.width)
                    made.append(self._row(first, side, values, self._nothing[1 - side]))
        self.store.put_stored(dict.fromkeys(keys))
        for number in ended:
            del self._open[number]
        if ended:  # who comes now is late, also after a restart: its partners are gone
            self.store.put((TIME,), time if time != inf else highest([before, self.last_ended(())]))
        return made

    def _read(self) -> None:
        self.make_ready()
        rows, width = self._announced, self.width
        with suppress(Unserialisable, OverflowError):  # the row whose key or time it is fails later
            pairs = zip(keys_of_partial(width, rows), rows, strict=True)
            places = {
                place: None
                for group, row in pairs
                for place in self._near(group, row[width + 1], 1 - row[width])
            }
            self.store.fetch(key for place in places for key in self._keys(place))
        self._announced = ()

    def _near(self, group: Any, time: Time, side: int) -> list[Place]:
        """Where records of one side are that may be partners."""
        bucket, part = self._buckets_of.split(time)
        numbers = range(bucket - 1 - (part < _SLACK), bucket + 2 + (part > 1 - _SLACK))
        return [(group, number, side) for number in numbers]

    def _records_of(self, place: Place) -> list[Record]:
        """The records of one side of a bucket, with those of this batch."""
        if place not in self._buckets:
            known = self.store.get_all(self._keys(place))
            self._buckets[place] = [*known, *self._new.get(place, ())]
        return self._buckets[place]

    def _add(self, place: Place, record: Record) -> None:
        """Keep a record until the batch ends. Raises Unserialisable."""
        self._added[place].append(self.store.convert(record))
        self._new[place].append(record)
        if place in self._buckets:
            self._buckets[place].append(record)

    def _keys(self, place: Place) -> list[Key]:
        """The keys of the stored records of one side of a bucket."""
        return [(_RECORD, *place, index) for index in range(self._size(place))]

    def _size(self, place: Place) -> int:
        """How many records of one side are stored."""
        group, number, side = place
        return self._open[number].get(group, _EMPTY)[side] if number in self._open else 0

    def _sizes(self, group: Any, number: int) -> list[int]:
        return self._open[number].setdefault(group, [0, 0])

    def _row(
        self, key: Sequence[Any], side: int, own: Sequence[Any], other: Sequence[Any]
    ) -> list[Any]:
        left, right = (own, other) if side == 0 else (other, own)
        return [*key, *left, *right]

    def _record(self, *about: Any) -> Any:
        (made,) = self.out.make([self._row(*about)])
        return made


def _time_after(time: Time) -> Time:
    """A time that is later, by little."""
    return time + 1 if type(time) is int and abs(time) >= 2**53 else nextafter(time, inf)
