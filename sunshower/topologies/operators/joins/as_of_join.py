"""Joins records with the version of a table at their time; separate because joins are long.

    a change     ──▶ kept as a version, until a later one was valid before the watermark
    a record     ──▶ kept, until the watermarks of both sides have passed its time
    a watermark  ──▶ these records, each with its version ──▶ part of its tree

So the result does not depend on the order in which records and changes arrive.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from math import inf, nextafter
from typing import Any

from sunshower.records import Schema
from sunshower.topologies.operators.joins.stream_join import (
    LEFT,
    RIGHT,
    Distance,
    Entry,
    Joined,
    Place,
    Record,
    StreamJoin,
    key_at,
)
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.states import TIME
from sunshower.topologies.operators.windows.event_times import (
    Time,
    as_float,
    exact,
    excess,
    is_before,
    length_of,
    minus,
)
from sunshower.topologies.operators.windows.window_operator import DueTimes


class AsOfJoin(StreamJoin):
    """Makes (0, joined record) and (1, late record) of the rows of two JoinInputs: the records of a
    stream, and the changes of a table. Of two changes with one time, that counts whose text is the
    greater one, whichever comes first."""

    takes_late = (RIGHT,)
    has_tables = True

    def __init__(
        self,
        store: KeyedStore,
        by: Sequence[str],
        out: Schema,
        how: str,
        *,
        late: float,
        valid_for: float | None,
        sides: tuple[Sequence[str], Sequence[str]],
        content: Sequence[int],
    ) -> None:
        """`content`: where the values of a change are that are not its time; all None: the key is
        removed."""
        places = range(len(out.fields))
        super().__init__(store, by, out, Distance(0, 0), how, late=late, sides=sides, order=places)
        self.valid_for = None if valid_for is None else length_of(valid_for)
        self._content, self._emits_later = content, (True, False)
        self.unmatched = 0  # records that found no valid version

    @property
    def declared(self) -> dict[str, Any]:
        return {"how": self.how, "late": self.late, "valid_for": self.valid_for}

    def figures(self) -> dict[str, float]:
        return {"unmatched": float(self.unmatched)}

    # ---- records and versions --------------------------------------------------------------------

    def joined(
        self, own_key: Sequence[Any], group: Any, side: int, time: Any, values: Any
    ) -> Joined:
        """Nothing yet. A version is kept unless it can never be valid for a record that is not
        late, or there is one with this time already."""
        yield from ()
        if side == LEFT:
            return False
        place = group, RIGHT, 0.0
        position = as_float(time)
        order = self._order.get(place, ())
        is_late = is_before(time, self._time)
        entries = order[bisect_left(order, (position, -1)) : bisect_right(order, (position, inf))]
        if is_late and bisect_right(order, (position, inf)) < self._before(order, self._time):
            return None  # a later one has replaced it, before the watermark
        for entry, other in zip(entries, self._records_at(place, entries), strict=True):
            if exact(other[0]) == exact(time):
                if self._text(other[1]) >= self._text(values):
                    return None
                self._take(place, entry)
                self._dropped[key_at(place, entry)] = None
        if is_late:
            self._late_now.append((1, minus(self._time, time)))
        return False

    def _may_have_partners(self, group: Any, side: int) -> bool:
        return True

    def _before(self, order: Sequence[Entry], time: Time) -> int:
        """How many records of an order are surely before a time."""
        return bisect_left(order, (as_float(time), -1))

    def _text(self, values: Any) -> str:
        return repr(self.store.convert(values))

    # ---- watermarks ------------------------------------------------------------------------------

    def forget(self) -> None:
        super().forget()
        self._old = DueTimes()  # of the groups whose first version is not needed then

    def end(self, before: Time, time: Time) -> list[Sequence[Any]]:
        rows = super().end(before, time)
        if -inf < time < inf:  # the next run may have records of the last time
            groups = [group for _, group in self._old.due(time)]
            if sum(self._forget_versions(group, time) for group in groups):
                self.store.put((TIME,), time)
        self._records.clear()
        return rows

    def _forget_versions(self, group: Any, time: Time) -> int:
        """Remove the versions that are not valid for any record from `time` on. Returns how many
        there were."""
        place = group, RIGHT, 0.0
        order = self._order.get(place, [])
        # equal floats are not compared exactly: it is enough that they go later
        count = max(self._before(order, time) - 1, 0)
        while count < len(order) and self._is_too_old(order[count]) < as_float(time):
            count += 1
        self.store.put_stored({key_at(place, entry): None for entry in order[:count]})
        del order[:count]
        if order:
            self._expect_old(group, order)
        else:
            self._order.pop(place, None)
        return count

    def _is_too_old(self, entry: Entry) -> float:
        """A time from which on a version is surely not valid; inf: there is none."""
        if self.valid_for is None:
            return inf
        length = as_float(self.valid_for)
        return entry[0] + length + (abs(entry[0]) + length) * 2.0**-50

    def _expect_old(self, group: Any, order: Sequence[Entry]) -> None:
        second = order[1][0] if len(order) > 1 else inf
        if (time := min(second, self._is_too_old(order[0]))) != inf:
            self._old.expect(group, nextafter(time, inf))

    def _expect(self, place: Place, entry: Entry, time: Any) -> None:
        if place[1] == LEFT:
            super()._expect(place, entry, time)
        elif entry in (order := self._order[place])[:2]:
            self._expect_old(place[0], order)

    def last_rows(
        self, place: Place, own_key: Sequence[Any], at: Any, values: Any
    ) -> Iterable[Sequence[Any]]:
        version = self._valid(place[0], at)
        if version is None or all(version[1][index] is None for index in self._content):
            self.unmatched += 1
            if self.how == "left":
                yield self._row(own_key, LEFT, values, self._nothing[RIGHT])
        else:
            yield self._row(own_key, LEFT, values, version[1])

    def _valid(self, group: Any, time: Time) -> Record | None:
        """The version that is valid at a time; it may be a removal."""
        place = group, RIGHT, 0.0
        order = self._order.get(place, ())
        last = bisect_right(order, (as_float(time), inf))
        while last:
            first = bisect_left(order, (order[last - 1][0], -1))
            versions = self._records_at(place, order[first:last])
            versions = [version for version in versions if not is_before(time, version[0])]
            if versions:
                version = max(versions, key=lambda version: exact(version[0]))
                is_old = self.valid_for is not None and excess(version[0], time, self.valid_for) > 0
                return None if is_old else version
            last = first
        return None
