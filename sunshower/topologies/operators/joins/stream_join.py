"""The join of two ordinary streams: records with equal keys whose times make them partners.

    a record    ──▶ joined with those of the other side that are there ──▶ part of its tree
                ──▶ kept, until no partner of it can come any more
    a watermark ──▶ records that had no partner (left, outer and anti joins), or that have one now
                    (semi joins) ──▶ part of its tree

Storm: org.apache.storm.bolt.JoinBolt.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from heapq import heappop, heappush
from itertools import chain
from math import frexp, inf, isinf, ldexp, nextafter
from sys import float_info
from types import NoneType
from typing import Any

from sunshower.errors import BadEmit, StateMismatch, Unserialisable
from sunshower.json_values import are_flat, number_as_key
from sunshower.records import Schema
from sunshower.topologies.operators.aggregating import (
    key_of_partial,
    keys_of_partial,
    values_of_key,
)
from sunshower.topologies.operators.aggregators import described
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
    as_float,
    excess,
    highest,
    is_before,
    just_after,
    length_of,
    lowest,
    minus,
    place_of_time,
    plus,
)
from sunshower.topologies.operators.windows.watermarks import ReachedTime
from sunshower.topologies.operators.windows.window_operator import DueTimes, WindowOperator
from sunshower.value_types import LEAVES

# ---- which records are partners, and how long they wait for each other ---------------------------

#     Distance   the times are close: `within=60`, `within=(0, 60)`
#     Interval   a left record says from when to when its partners are: `within=lambda a: (a.at, …)`
#     Age        all that are still there: `keep_s=3600`, `keep_s=None`
#
# The records of a key and a side wait in orders of positions, which are their times as floats: the
# float of a later time is never lower. So few records are looked at that are no partners, and only
# they are compared exactly.

LEFT, RIGHT = 0, 1
INPUT = ("input", "time", "values")


def key_names(on: Sequence[str]) -> list[str]:
    """The fields of the key in rows for a join, whose further fields are INPUT."""
    return [f"key-{place}" for place in range(len(on))]


class PartnerTimes:
    """Decides which records are partners. A `time` is what a row has in its field of that name: an
    event time; of a left record of an Interval [event time, from, to]; of an Age [Unix time].

    `gaps`: how much later than a record of either side its last partner may come; None: its own
    time says it.
    """

    gaps: tuple[Time | None, Time | None]

    def fits(self, side: int, time: Any) -> bool:
        """Whether such bounds have stored this time."""
        raise NotImplementedError

    def position(self, side: int, time: Any) -> tuple[float, float]:
        """The order that a record waits in, as the length of its longest interval, and its position
        there."""
        return 0.0, as_float(time_of(time))

    def near(self, side: int, time: Any, reach: float) -> tuple[float, float]:
        """Where the partners of a record wait in an order of the other side: the first and the last
        position."""
        raise NotImplementedError

    def are_partners(self, left: Any, right: Any) -> bool:
        """Whether records with these times, near each other, are partners."""
        raise NotImplementedError

    def is_over(self, side: int, time: Any, reached: Time) -> bool:
        """Whether no partner can come any more that is not late. `reached`: a finite time."""
        gap = self.gaps[side]
        if gap is None:
            return is_before(time[2], reached)
        return gap != inf and excess(time_of(time), reached, gap) > 0

    def due(self, side: int, time: Any) -> float:
        """About when it is over."""
        gap = self.gaps[side]
        return as_float(time[2]) if gap is None else as_float(time_of(time)) + as_float(gap)


class Distance(PartnerTimes):
    """Partners on the right are at most `before` earlier and `after` later than a left record."""

    def __init__(self, before: Any, after: Any) -> None:
        self.gaps = length_of(after), length_of(before)
        self._lengths = [as_float(self.gaps[0]), as_float(self.gaps[1])]

    def fits(self, side: int, time: Any) -> bool:
        return type(time) is not list

    def near(self, side: int, time: Any, reach: float) -> tuple[float, float]:
        number = as_float(time)
        later, earlier = self._lengths[side], self._lengths[1 - side]
        return _below(number, earlier), -_below(-number, later)

    def are_partners(self, left: Any, right: Any) -> bool:
        after, before = self.gaps
        assert after is not None
        assert before is not None
        return excess(left, right, after) <= 0 and excess(right, left, before) <= 0


class Interval(PartnerTimes):
    """A left record has its partners from one time to another one, both included, which are not
    before its own. Left records wait by the powers of two that their intervals fit in, so those
    that contain a time are near each other."""

    gaps = None, 0

    def fits(self, side: int, time: Any) -> bool:
        return (type(time) is list and len(time) == 3) == (side == LEFT)

    def position(self, side: int, time: Any) -> tuple[float, float]:
        if side == RIGHT:
            return 0.0, as_float(time)
        first, last = as_float(time[1]), as_float(time[2])
        length = last - first
        if length <= 0:
            return 0.0, first
        return (inf if isinf(length) else _power_above(length)), first

    def near(self, side: int, time: Any, reach: float) -> tuple[float, float]:
        if side == LEFT:
            return as_float(time[1]), as_float(time[2])
        number = as_float(time)
        return _below(number, reach), number

    def are_partners(self, left: Any, right: Any) -> bool:
        return not is_before(right, left[1]) and not is_before(left[2], right)


class Age(PartnerTimes):
    """All records are partners. Each waits for `keep_s` of the clock; inf: for ever."""

    def __init__(self, keep_s: float) -> None:
        self.gaps = keep_s, keep_s
        self._keep_s = keep_s

    def fits(self, side: int, time: Any) -> bool:
        return type(time) is list and len(time) == 1

    def position(self, side: int, time: Any) -> tuple[float, float]:
        return 0.0, time[0]

    def near(self, side: int, time: Any, reach: float) -> tuple[float, float]:
        return time[0] - self._keep_s, inf

    def are_partners(self, left: Any, right: Any) -> bool:
        return True


def time_of(time: Any) -> Time:
    """The time of a record itself."""
    moment: Time = time[0] if type(time) is list else time
    return moment


def _below(number: float, length: float) -> float:
    """A number that is a little below `number - length`, more than their roundings."""
    if isinf(number):
        return number if number < 0 else float_info.max / 2
    return number - length - (abs(number) + length) * 2.0**-50


def _power_above(length: float) -> float:
    """The lowest power of two above a length; inf: there is none."""
    exponent = frexp(length)[1]
    return inf if exponent > float_info.max_exp - 1 else ldexp(1.0, exponent)


# ---- join ----------------------------------------------------------------------------------------

_WAITING = "waiting"
# Of earlier releases: (_RECORD, group, bucket, side, index): a record, and before that
# (_BUCKET, group, bucket): [records of the left side, of the right side].
_BUCKET, _RECORD = "bucket", "record"
_JOINED, _LATE = 0, 1
_SAME = {str, int, bytes, NoneType}  # types of values that are the only ones of their key
_AT_ONCE = 1_000  # records that are read together
_FORMER_AT_ONCE = 100  # entries of an earlier release that are changed by one write
_FORMER_NAMES = ["by", "width", "_is_loaded", "_inherits", "_time", "late_records", "_late_now"]
# (_WAITING, group, side, number): [time, other values, had a partner, values of the key if they are
# not in it]. `time`: see PartnerTimes.
Record = list[Any]
_DEPTH = 2  # of the lists of a record. Nobody changes it: it may be that of the store
Place = tuple[Any, int, float]  # group, side, and which of its orders: see PartnerTimes.position
Entry = tuple[float, int]  # of an order: position, number
Joined = Generator[tuple[int, Any], None, bool | None]


class JoinInput(RowOperator):
    """Emits (fields of the key, number of the input, event time, other values) of each record. The
    time is None without a reader for it. `interval`: a function of a record that returns from when
    to when its partners are; the time is then [event time, from, to].

    Once `read_updates` was called, it reads updates, with their key in the group, and emits (fields
    of the key, number of the input, None, [origin, number, other values of each row])."""

    ends_lineage = True

    def __init__(
        self,
        schema: Schema,
        on: Sequence[str],
        number: int,
        reader: TimeReader | None,
        interval: Callable[[Any], tuple[Any, Any]] | None = None,
    ) -> None:
        self._width, self._places = 0, list[int]()
        rest = rest_of(schema, on)
        self.number, self.reader, self._interval = number, reader, interval
        self._get_key, self._get_rest = schema.key(on), schema.key(rest or on)
        self._is_single, self._rest, self._has_several = len(on) == 1, len(rest), len(rest) > 1

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        emit([record for row in rows for record in self.expand(row)])

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
            others = [*map(self._other_values, rows)]
            return ((*key, self.number, None, [origin, number, others]),)
        time: Any = None if self.reader is None else self.reader.time(row)
        if self._interval is not None:
            time = self._with_interval(time, row)
        values = [*self._get_rest(row)] if self._has_several else self._other_values(row)
        if self._is_single:
            return ((self._get_key(row), self.number, time, values),)
        return ((*self._get_key(row), self.number, time, values),)

    def source_of_one(self, row: str, name: Callable[[Any, str], str]) -> str | None:
        if self.reads_updates or self._interval is not None:
            return None
        key, rest = (f"{name(get, 'fields')}({row})" for get in (self._get_key, self._get_rest))
        time = "None" if self.reader is None else f"{name(self.reader.time, 'event_time')}({row})"
        values = f"[*{rest}]" if self._has_several else f"[{rest}][:{self._rest}]"
        return f"({'' if self._is_single else '*'}{key}, {self.number}, {time}, {values})"

    def _other_values(self, row: Any) -> list[Any]:
        """The values of a row that are not in its key."""
        values = self._get_rest(row)
        return [*values] if self._has_several else [values][: self._rest]

    def _with_interval(self, time: Time, row: Any) -> list[Time]:
        assert self.reader is not None
        assert self._interval is not None
        interval = self._interval(row)
        try:
            first, last = interval
        except (TypeError, ValueError):
            raise BadEmit(
                f"within: the function of the join returned {interval!r:.200}; it returns (from, "
                "to), as in lambda record: (record.at, record.until)"
            ) from None
        try:
            times = [time, self.reader.of_value(first), self.reader.of_value(last)]
        except BadEmit as error:
            raise BadEmit(
                f"within: the function of the join returned {interval!r:.200}: {error}"
            ) from None
        if is_before(times[1], time):
            raise BadEmit(
                f"within: the function of the join says that partners begin at {first!r}, before "
                f"the record's own event time, {time!r}: these may be gone already. Begin at the "
                "event time or later, or give within=(before, after)"
            )
        if is_before(times[2], times[1]):
            raise BadEmit(
                f"within: the function of the join says that partners end at {last!r}, before they "
                f"begin, at {first!r}, so there can be none. Return (from, to), the later time "
                "last, or filter such records out before"
            )
        return times


class StreamJoin(WindowOperator, RowOperator):
    """Makes (0, joined record) and (1, late record) of the rows of two JoinInputs.

    The records of a key wait in the order of their times, each as an entry of the store; the order
    is in memory. They are removed when the watermark has passed all partners that they may have. An
    exception in what follows ends the generator of a row before the row is kept, except one of an
    async function.
    """

    by_row = False
    word = "join"
    takes_late: Sequence[int] = ()  # the sides that have no late records

    def __init__(
        self,
        store: KeyedStore,
        by: Sequence[str],
        out: Schema,
        bounds: PartnerTimes,
        how: str,
        *,
        late: float | None,
        sides: tuple[Sequence[str], Sequence[str]],
        order: Sequence[int],
    ) -> None:
        """`late` None: the times are those of the clock. `sides`: the fields that they have beside
        the key. `order`: where the fields of `out` are in (key, values of the left side, of
        the right side)."""
        super().__init__(store, by, out)
        self.bounds, self.how, self.sides = bounds, how, sides
        self.late = None if late is None else length_of(late)
        self._order_of_fields = None if [*order] == [*range(len(order))] else order
        self._makes_pairs = how not in ("semi", "anti")
        self._make = out.make if self._makes_pairs else out.build  # records, or those of the left
        self._emits_alone = how in ("left", "outer", "anti"), how == "outer"
        self._emits_later = self._emits_alone[LEFT] or how == "semi", how == "outer"
        self._nothing = [(None,) * len(side) if self._makes_pairs else () for side in sides]
        self._announced: Sequence[Any] = ()
        self._latest: Time = -inf  # a time after that of all records that were removed

    @property
    def described_values(self) -> str:
        """What is stored, as a text that the store has."""
        sides = self.sides if self._makes_pairs else self.sides[:1]  # of the others only the times
        return " ".join(["join", *map(described, sides)])

    @property
    def declared(self) -> dict[str, Any]:
        """What must be equal where its state continues. Of a join within a distance, savepoints of
        earlier releases have all that it was made of."""
        before, after = self.bounds.gaps
        if not isinstance(self.bounds, Distance) or before != after or not self._makes_pairs:
            return {"bounds": self.bounds, "how": self.how, "late": self.late}
        return {
            **{name: getattr(self, name) for name in _FORMER_NAMES},
            "within": before,
            "late": self.late,
            "keeps": self._emits_alone,
            "_nothing": self._nothing,
            "_buckets_of": Panes(before or 1),  # type: ignore[arg-type]
            "_announced": (),
            "_latest": -inf,
            "_buckets": (),
            "_changed": (),
            "sources": self.sources,
        }

    # ---- records ---------------------------------------------------------------------------------

    def announce(self, rows: Sequence[Any]) -> None:
        self._announced = rows

    def expand(self, row: Any) -> Iterable[tuple[int, Any]]:
        if len(self._announced):
            self._read()
        side, time, values = row[self.width :]
        if self.late is None:
            time = self._now
        elif side not in self.takes_late and is_before(time_of(time), self._time):
            self._late_now.append((1, minus(self._time, time_of(time))))
            if not self._makes_pairs and side == RIGHT:
                return ()
            own_key = row[: self.width]
            return ((_LATE, self._record(own_key, side, values, self._nothing[1 - side])),)
        self.late_records.in_time = True
        group = key_of_partial(self.width, row)
        if self._makes_pairs and not self._may_have_partners(group, side):
            self._keep(group, side, [time, values, False], row)
            return ()
        return self._expanded(row, group, side, time, values)

    def _expanded(
        self, row: Any, group: Any, side: int, time: Any, values: Any
    ) -> Iterator[tuple[int, Any]]:
        """What a record makes; it is kept then."""
        has_partner = yield from self.joined(row[: self.width], group, side, time, values)
        if has_partner is not None:
            self._keep(group, side, [time, values, has_partner], row)

    def joined(
        self, own_key: Sequence[Any], group: Any, side: int, time: Any, values: Any
    ) -> Joined:
        """What a record makes at once. Returns whether it has a partner; None: it is not kept."""
        combine = self._pairs if self._makes_pairs else self._halves
        return combine(own_key, group, side, time, values)

    def _pairs(
        self, own_key: Sequence[Any], group: Any, side: int, time: Any, values: Any
    ) -> Joined:
        partners = [*self._partners(group, side, time, _AT_ONCE)]
        for _, _, other in partners:
            yield _JOINED, self._record(own_key, side, values, other[1])
        if self._emits_alone[1 - side]:
            for place, entry, other in partners:
                if not other[2]:
                    self._matched[key_at(place, entry)] = None
        return bool(partners)

    def _may_have_partners(self, group: Any, side: int) -> bool:
        """Whether records of the other side wait."""
        if side == LEFT:
            return (group, RIGHT, 0.0) in self._order
        return any((group, LEFT, reach) in self._order for reach in self._reaches)

    def _halves(
        self, own_key: Sequence[Any], group: Any, side: int, time: Any, values: Any
    ) -> Joined:
        """A record of a semi join that has waited for a partner goes with the next watermark,
        because the partner, if it was replayed, would not find it again."""
        if side == LEFT:
            if next(self._partners(group, side, time, 1), None) is None:
                return False
            if self.how == "semi":
                yield _JOINED, self._record(own_key, side, values, ())
            return None
        for place, entry, _ in [*self._partners(group, side, time, _AT_ONCE)]:
            self._take(place, entry)
            (self._matched if self.how == "semi" else self._dropped)[key_at(place, entry)] = None
        # for ever, one is enough for all that come
        is_enough = self.bounds.gaps[RIGHT] == inf and (group, RIGHT, 0.0) in self._order
        return None if is_enough else True

    def flush(self) -> None:
        try:
            changed: dict[Key, Any] = dict(self._added)
            for key in self._matched:
                record = changed[key] if key in changed else self.store.head(key)[0]
                changed[key] = [*record[:2], True, *record[3:]]
            changed |= self._dropped
            self.store.put_stored(changed)
            if self.store.is_open:
                self.store.commit()
            if self.how == "semi":
                self._ready |= self._matched
            self._undo.clear()
            self._count_late()
        finally:
            self.discard()

    def discard(self) -> None:
        self.store.discard()
        self._late_now.clear()
        for place, entry, is_added in reversed(self._undo):
            if is_added:
                self._remove(place, entry)
            else:
                insort(self._order.setdefault(place, []), entry)
        self._drop()

    def _drop(self) -> None:
        # Of the batch: the records that it has read and added, and as they are stored; the keys of
        # those of whose first partner it has, and of those that it removes; and how the order was
        # changed.
        self._records: dict[Key, Record] = {}
        self._added: dict[Key, Any] = {}
        self._matched: dict[Key, None] = {}
        self._dropped: dict[Key, None] = {}
        self._undo: list[tuple[Place, Entry, bool]] = []

    # ---- watermarks ------------------------------------------------------------------------------

    def records(self, rows: Iterable[Sequence[Any]]) -> list[Any]:
        return self._make(rows)

    def ended_records(self, rows: Sequence[Sequence[Any]]) -> list[Any]:
        return [(_JOINED, record) for record in self.records(rows)]

    def forget(self) -> None:
        self._order: dict[Place, list[Entry]] = {}
        self._reaches: dict[float, None] = {}  # the orders of the left side
        self._due = DueTimes()  # of places; of records that say themselves when they are over
        # if left records say when they are over: a heap of (place of the time, number, time, place
        # of the record, entry)
        self._lefts: list[tuple[float, int | Decimal, int, Time, Place, Entry]] = []
        self._ready: dict[Key, None] = {}  # of a semi join: what the next watermark brings
        self._next = 0  # the number of the next record
        self._former: list[Key] = []  # what an earlier release has stored
        self._drop()

    def load(self, key: Any, stored: Any) -> None:
        if key[0] != _WAITING:
            self._former.append(key)
            return
        _, group, side, number = key
        self._next = max(self._next, number + 1)
        if self.how == "semi" and side == LEFT and stored[2]:
            self._ready[key] = None
        else:
            time = self.store.read(stored[0])
            self._check_bounds(side, time)
            self._insert(group, side, time, number)

    def drop_entry(self, key: Any, stored: Any) -> None:
        _, group, side, number = key
        if self._ready.pop(key, key) is None:
            return
        reach, position = self.bounds.position(side, self.store.read(stored[0]))
        self._remove((group, side, reach), (position, number))

    def _load(self) -> None:
        super()._load()
        for first in range(0, len(self._former), _FORMER_AT_ONCE):
            self._store_anew(self._former[first : first + _FORMER_AT_ONCE])

    def _store_anew(self, keys: Sequence[Any]) -> None:
        """Store records as this release does, instead of their former entries."""
        self.store.fetch(keys)
        for key in keys:
            sides = self.store.get(key)
            if key[0] == _RECORD:
                sides = [[sides], []] if key[3] == LEFT else [[], [sides]]
            for side, records in enumerate(sides):
                for time, values, had_partner, *own_key in records:
                    first = self._key_of(key[1], own_key)
                    self._check_bounds(side, time)
                    self._keep(key[1], side, [time, values, had_partner], first)
            self.store.remove(key)
        self.flush()

    def time(self, reached: ReachedTime) -> Time:
        if self.late is not None:
            return reached.time(self.late)
        return inf if reached.has_ended else self.wall_s

    def last_time(self, ended: Sequence[Sequence[Any]]) -> Time:
        return self._latest

    def end_of(self, time: Time) -> Time:
        return just_after(time)

    def front(self, time: Time) -> Time:
        """The lowest time that either record of a later pair, or one without a partner, may
        have."""
        if self.late is None:
            return self._reached.time(0, keep=True)
        gap = 0 if self._longest is None else self._longest
        while self._lefts and not self._waits(*self._lefts[0][4:]):
            heappop(self._lefts)
        # One that is over may wait until the watermark is a rounding later.
        rounding = (abs(as_float(time)) + as_float(gap)) * 2.0**-50
        if rounding < inf and as_float(self._due.first) - as_float(time) <= rounding:
            gap = plus(gap, rounding)
        first = minus(time, gap)
        return lowest([first, self._lefts[0][3]]) if self._lefts else first

    def closing_time(self, newest: Time) -> Time:
        if self.late is None:
            return inf
        if (gap := self._longest) is not None:
            return just_after(plus(newest, gap))
        return just_after(highest([newest, self._due.last]))

    @property
    def _longest(self) -> Time | None:
        """How long records wait at most; None: left records say it."""
        later, earlier = self.bounds.gaps
        return None if later is None or earlier is None else highest([later, earlier])

    @property
    def has_open(self) -> bool:
        return bool(self._ready) or self._due.first < inf

    @property
    def passes(self) -> int | None:
        return None if self._makes_pairs else 1

    @property
    def has_times(self) -> bool:
        return self.late is not None

    def end(self, before: Time, time: Time) -> list[Sequence[Any]]:
        rows = self._rows_of_ready()
        if time == -inf or (time == inf and self.late is None):
            return rows  # what has no limit may have partners in the next run
        over = self._over(time)
        keys = {place: [key_at(place, entry) for entry in over[place]] for place in over}
        self.store.fetch(chain.from_iterable(keys.values()))
        removed: dict[Key, None] = {}
        for place, entries in over.items():
            records = self.store.view(keys[place], _DEPTH)
            emits, times = self._emits_later[place[1]], []
            for entry, key, record in zip(entries, keys[place], records, strict=True):
                at, values, had_partner, *own_key = record
                if time != inf and not self.bounds.is_over(place[1], at, time):
                    insort(self._order[place], entry)
                    self._expect(place, entry, at)
                    continue
                times.append(time_of(at))
                if emits and not had_partner:
                    rows += self.last_rows(place, self._key_of(place[0], own_key), at, values)
                removed[key] = None
            if times:
                self._latest = highest([self._latest, just_after(highest(times))])
            self._expect_next(place)
        self.store.put_stored(removed)
        if removed and self.late is not None:
            # who comes now is late, also after a restart: its partners are gone
            self.store.put((TIME,), time if time != inf else highest([before, self.last_ended(())]))
        return rows

    def last_rows(
        self, place: Place, own_key: Sequence[Any], at: Any, values: Any
    ) -> Iterable[Sequence[Any]]:
        """The rows of a record that had no partner, and for which none can come any more."""
        if self._emits_alone[place[1]]:
            yield self._row(own_key, place[1], values, self._nothing[1 - place[1]])

    def _over(self, time: Time) -> dict[Place, list[Entry]]:
        """The records that may be over at `time`, taken out of their orders."""
        over: dict[Place, list[Entry]] = {}
        for _, (place, entry) in self._due.due(time):
            if (order := self._order.get(place)) is None:
                continue
            if entry is not None:
                first = bisect_left(order, entry)
                last = first + (order[first : first + 1] == [entry])
            else:
                gap = self.bounds.gaps[place[1]]
                limit = inf if time == inf else as_float(time) - as_float(gap or 0)
                first, last = 0, bisect_right(order, (limit, inf))
            over.setdefault(place, []).extend(order[first:last])
            del order[first:last]
        return over

    def _rows_of_ready(self) -> list[Sequence[Any]]:
        """The rows of the records of a semi join that have a partner now."""
        keys: list[Any] = [*self._ready]
        self._ready = {}
        rows = list[Sequence[Any]]()
        records = self.store.view(keys, _DEPTH)
        for key, (_, values, _, *own_key) in zip(keys, records, strict=True):
            first = self._key_of(key[1], own_key)
            rows.append(self._row(first, LEFT, values, ()))
        self.store.put_stored(dict.fromkeys(keys))
        return rows

    # ---- partners --------------------------------------------------------------------------------

    def _read(self) -> None:
        self.make_ready()
        self._now = [self.wall_s]
        rows, width = self._announced if self.store.is_stored else (), self.width
        with suppress(Unserialisable, OverflowError):  # the row whose key or time it is fails later
            keys: dict[Key, None] = {}
            for group, row in zip(keys_of_partial(width, rows), rows, strict=True):
                side, time = row[width], self._now if self.late is None else row[width + 1]
                if self._makes_pairs or side == RIGHT:
                    for place, entries in self._near(group, side, time):
                        keys.update((key_at(place, entry), None) for entry in entries)
            self.store.fetch(keys)
        self._announced = ()

    def _near(self, group: Any, side: int, time: Any) -> Iterator[tuple[Place, list[Entry]]]:
        """Where records of the other side are that may be partners."""
        for reach in self._reaches if side == RIGHT else (0.0,):
            place = group, 1 - side, reach
            if (order := self._order.get(place)) is not None:
                low, high = self.bounds.near(side, time, reach)
                first = bisect_left(order, (low, -1))
                if entries := order[first : bisect_right(order, (high, inf), first)]:
                    yield place, entries

    def _partners(
        self, group: Any, side: int, time: Any, at_once: int
    ) -> Iterator[tuple[Place, Entry, Record]]:
        """The partners of a record; `at_once`: how many are read together."""
        for place, entries in self._near(group, side, time):
            for first in range(0, len(entries), at_once):
                part = entries[first : first + at_once]
                for entry, record in zip(part, self._records_at(place, part), strict=True):
                    times = (time, record[0]) if side == LEFT else (record[0], time)
                    if self.bounds.are_partners(*times):
                        yield place, entry, record

    def _records_at(self, place: Place, entries: Sequence[Entry]) -> list[Record]:
        keys, records = [key_at(place, entry) for entry in entries], self._records
        if missing := [key for key in keys if key not in records]:
            records.update(zip(missing, self.store.view(missing, _DEPTH), strict=True))
        return [records[key] for key in keys]

    # ---- order -----------------------------------------------------------------------------------

    def _keep(self, group: Any, side: int, record: Record, row: Sequence[Any]) -> None:
        """Keep a record, whose key `row` begins with, until the batch ends. Raises
        Unserialisable."""
        if self._emits_later[side]:
            own_key = [*row[: self.width]]
            if not {*map(type, own_key)} <= _SAME:
                record.append(own_key)
                group = number_as_key(group)  # that of equal numbers
        is_plain = len(record) == 3 and (
            LEAVES.issuperset(map(type, values := record[1])) or are_flat(values, 0)
        )
        stored = record if is_plain else self.store.convert(record)
        place, entry = self._insert(group, side, record[0], self._next)
        self._next += 1
        self._undo.append((place, entry, True))
        key = (_WAITING, group, side, entry[1])
        self._added[key], self._records[key] = stored, record

    def _check_bounds(self, side: int, time: Any) -> None:
        """Raise StateMismatch for the time of a stored record that is one of other bounds."""
        if not self.bounds.fits(side, time):
            raise StateMismatch(
                f"join {self.store.name!r}: its state was stored by a join with other bounds "
                "(within= as a number or a pair, as a function, or keep_s=): give the join another "
                "name=, or the bounds that it had"
            )

    def _insert(self, group: Any, side: int, time: Any, number: int) -> tuple[Place, Entry]:
        """Note in the order of its place that a record waits there."""
        reach, position = self.bounds.position(side, time)
        if side == LEFT:
            self._reaches[reach] = None
        place, entry = (group, side, reach), (position, number)
        order = self._order.setdefault(place, [])
        if not order or order[-1] < entry:
            order.append(entry)
        else:
            insort(order, entry)
        self._expect(place, entry, time)
        if side == LEFT and self.bounds.gaps[LEFT] is None:
            heappush(self._lefts, (*place_of_time(time[0]), number, time[0], place, entry))
        return place, entry

    def _waits(self, place: Place, entry: Entry) -> bool:
        order = self._order.get(place, [])
        first = bisect_left(order, entry)
        return order[first : first + 1] == [entry]

    def _expect(self, place: Place, entry: Entry, time: Any) -> None:
        """Look at a record when it is over; if all of its place wait equally long, at the first."""
        gap = self.bounds.gaps[place[1]]
        is_alone = gap is None
        if gap == inf or (not is_alone and self._order[place][0] is not entry):
            return
        if (due := self.bounds.due(place[1], time)) != inf:
            # a watermark at that time does not end it
            self._due.expect((place, entry if is_alone else None), nextafter(due, inf))

    def _expect_next(self, place: Place) -> None:
        """Look at a place again when its first record is over, if all wait equally long."""
        if not (order := self._order[place]):
            del self._order[place]
        elif (gap := self.bounds.gaps[place[1]]) is not None:
            self._due.expect((place, None), nextafter(order[0][0] + as_float(gap), inf))

    def _take(self, place: Place, entry: Entry) -> None:
        """Take a record out of its order in this batch."""
        self._remove(place, entry)
        self._undo.append((place, entry, False))

    def _remove(self, place: Place, entry: Entry) -> None:
        order = self._order[place]
        del order[bisect_left(order, entry)]
        if not order:
            del self._order[place]

    # ---- rows ------------------------------------------------------------------------------------

    def _key_of(self, group: Any, own_key: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """The values of the key of a record; `own_key`: as they are stored, if they are."""
        return own_key[0] if own_key else values_of_key(group, self.width)

    def _row(
        self, key: Sequence[Any], side: int, values: Sequence[Any], other_values: Sequence[Any]
    ) -> list[Any]:
        left, right = (values, other_values) if side == LEFT else (other_values, values)
        row = [*key, *left, *right]
        return row if self._order_of_fields is None else [row[at] for at in self._order_of_fields]

    def _record(self, *about: Any) -> Any:
        (record,) = self._make([self._row(*about)])
        return record


def key_at(place: Place, entry: Entry) -> Key:
    """Where a record is stored."""
    return (_WAITING, place[0], place[1], entry[1])
