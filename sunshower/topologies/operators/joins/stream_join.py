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
from sunshower.topologies.operators.states import TIME
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
    minus,
)
from sunshower.topologies.operators.windows.watermarks import ReachedTime, Watermark
from sunshower.topologies.operators.windows.window_operator import WindowOperator

_BUCKET = "bucket"
# In buckets: how much farther away a partner's bucket may be than `within`, because former versions
# computed it with rounding.
_SLACK = 0.001
_JOINED, _LATE = 0, 1
_SAME = {str, int, bool, bytes, NoneType}  # types of values that are their own keys
# Of either side: [event time, other values, had a partner, values of the key if they are not in it]
Bucket = list[list[list[Any]]]


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
    partners in three of them. A bucket is removed when the watermark has passed the next one. An
    exception in what follows ends the generator of a row before the row is kept, except one of an
    async function.
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
        self.discard()

    # ---- records ---------------------------------------------------------------------------------

    def announce(self, rows: Sequence[Any]) -> None:
        """These rows are the next: what they need is read at once, with the first of them."""
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
            (number, place)
            for number in self._near(time)
            for place, other in enumerate(self._bucket(group, number)[1 - side])
            if excess(other[0], time, self.within) <= 0 and excess(time, other[0], self.within) <= 0
        ]
        for number, place in found:
            other = self._bucket(group, number)[1 - side][place]
            yield _JOINED, self._record(own_key, side, values, other[1])
        kept = [time, values, bool(found)]
        if self.keeps[side] and not {*map(type, own_key)} <= _SAME:
            kept.append(list(own_key))
        self.store.convert(kept)
        own = self._buckets_of.of_time(time)
        self._bucket(group, own)[side].append(kept)
        self._changed[group, own] = self._open[own][group] = None
        for number, place in found if self.keeps[1 - side] else ():
            other = self._bucket(group, number)[1 - side][place]
            if not other[2]:
                other[2] = True
                self._changed[group, number] = None

    def flush(self) -> None:
        """Write the records of the batch. Raises StoreUnreachable."""
        try:
            for place in self._changed:
                self.store.put((_BUCKET, *place), self._buckets[place])
            if self.store.is_open:
                self.store.commit()
            self._count_late()
        finally:
            self.discard()

    def discard(self) -> None:
        """Forget the records of the batch."""
        self.store.discard()
        self._late_now.clear()
        self._buckets: dict[tuple[Any, int], Bucket] = {}  # what the batch has read
        self._changed: dict[tuple[Any, int], None] = {}

    # ---- watermarks ------------------------------------------------------------------------------

    def advance(self, marks: Iterable[Watermark]) -> list[Any]:
        return [(_JOINED, record) for record in super().advance(marks)]

    def forget(self) -> None:
        self._open: defaultdict[int, dict[Any, None]] = defaultdict(dict)  # bucket → its groups

    def load(self, key: Any, stored: Any) -> None:
        _, group, number = key
        self._open[number][group] = None

    def time(self, reached: ReachedTime) -> Time:
        return reached.time(self.late)

    def last_time(self, ended: Sequence[Sequence[Any]]) -> Time:
        return self._latest

    def end_of(self, time: Time) -> Time:
        return _time_after(time)

    def end(self, before: Time, time: Time) -> list[Sequence[Any]]:
        ended = sorted(self._open)
        if time != inf:
            reached = (-inf, 0.0) if time == -inf else self._buckets_of.split(time)
            ended = [bucket for bucket in ended if (bucket + 2, _SLACK) <= reached]
        places = [(group, number) for number in ended for group in self._open.pop(number)]
        keys = [(_BUCKET, *place) for place in places]
        self.store.fetch(keys)
        made: list[Sequence[Any]] = []
        for (group, _), key in zip(places, keys, strict=True):
            for side, kept in enumerate(self.store.get(key) or ()):  # None: its batch has failed
                for at, values, had_partner, *own_key in kept:
                    self._latest = highest([self._latest, _time_after(at)])
                    if self.keeps[side] and not had_partner:
                        first = own_key[0] if own_key else values_of_key(group, self.width)
                        made.append(self._row(first, side, values, self._nothing[1 - side]))
            self.store.remove(key)
        if ended:  # who comes now is late, also after a restart: its partners are gone
            self.store.put((TIME,), time if time != inf else highest([before, self.last_ended(())]))
        return made

    def _read(self) -> None:
        self.make_ready()
        rows, width = self._announced, self.width
        with suppress(Unserialisable, OverflowError):  # the row whose key or time it is fails later
            pairs = zip(keys_of_partial(width, rows), rows, strict=True)
            places = ((key, number) for key, row in pairs for number in self._near(row[width + 1]))
            self.store.fetch((_BUCKET, *place) for place in places)
        self._announced = ()

    def _near(self, time: Time) -> range:
        """The buckets where partners are."""
        bucket, part = self._buckets_of.split(time)
        return range(bucket - 1 - (part < _SLACK), bucket + 2 + (part > 1 - _SLACK))

    def _bucket(self, group: Any, number: int) -> Bucket:
        place = (group, number)
        if place not in self._buckets:
            self._buckets[place] = self.store.get((_BUCKET, *place)) or [[], []]
        return self._buckets[place]

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
