"""The as-of join: records of a stream with the version of a table that was valid at their time.

    a change     ──▶ kept as a version, until a later one was valid before the watermark
    a record     ──▶ kept, until the watermarks of both sides have passed its time
    a watermark  ──▶ these records, each with its version ──▶ part of its tree

So the result does not depend on the order in which records and changes arrive.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import is_dataclass, replace
from math import inf, nextafter
from typing import Any, Literal, cast

from sunshower.arguments import Values, check_names
from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.topologies.operators.joins.joined_streams import DeclaredJoin, begin_join, join_side
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
from sunshower.topologies.operators.schemas import joined_schema, rest_of
from sunshower.topologies.operators.stages import AnyStream, RecordStage, StageRows, TotalsSettings
from sunshower.topologies.operators.states import TIME, Spread
from sunshower.topologies.operators.updates import refuse_updates
from sunshower.topologies.operators.windows.event_times import (
    Ahead,
    Time,
    Unit,
    as_float,
    declared_time,
    exact,
    excess,
    is_before,
    length_of,
    minus,
    zone_named,
)
from sunshower.topologies.operators.windows.window_operator import DueTimes
from sunshower.topologies.outputs import Columns

_LENGTH = Values(float, "a number", least=0)
_INSTEAD = "Their rows have no event time; join before the aggregate, or without as_of="


class AsOfSettings(TotalsSettings, total=False):
    """The settings of `join` with a table as of a time.

    - `as_of`: the field with the event time of records; that of the changes is `field` of the table
    - `how`: "inner"; "left" emits records without a valid version, too, with None for its fields
    - `valid_for`: a version is valid for so long, in the unit of the fields; seconds of a datetime
    - `late`: how much later than a record with a higher time a record or a change may come, 0
    - `zone`, `other_zone`, `ahead`, `unit`: as of a join of two streams
    - `state`: where records wait, and versions are; that of the table
    - `parallelism`: the number of tasks; that of the table
    - `name`: of the bolt and of the state; that of the table with "-as-of"
    - `resources`: what each task requests of its node
    """

    as_of: str
    how: Literal["inner", "left"]
    valid_for: float
    late: float
    zone: str | None
    other_zone: str | None
    ahead: Ahead
    unit: Unit


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
        widths: tuple[int, int],
        content: Sequence[int],
    ) -> None:
        """`content`: where the values of a change are that are not its time; all None: the key is
        removed."""
        places = range(len(out.fields))
        super().__init__(
            store, by, out, Distance(0, 0), how, late=late, widths=widths, order=places
        )
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


# ---- declaration ---------------------------------------------------------------------------------


def joined_as_of(
    stream: AnyStream,
    table: Any,
    on: str | Sequence[str] | None,
    fields: Columns | None,
    settings: AsOfSettings,
    where: str,
) -> StageRows[RecordStage]:
    """Declare the join of a stream with the versions of a KeyedTable. Raises TopologyError."""
    given: Any = {"parallelism": 1, **table.settings, **settings}
    return begin_join(declared_as_of(stream, table, on, fields, settings, where), given, where)


def state_beside(state: Any, suffix: str = "as-of") -> Any:
    """A state in the store of another one, such as that of a join beside its table. If that has a
    name, this one has another name."""
    name = getattr(state, "name", None)
    if name is None or not is_dataclass(state):
        return state
    return replace(cast("Any", state), name=f"{name}-{suffix}")


def declared_as_of(
    stream: Any,
    table: Any,
    on: str | Sequence[str] | None,
    fields: Columns | None,
    settings: AsOfSettings,
    where: str,
) -> DeclaredJoin:
    """The join with the versions of a table, of ordinary streams or of batches. Raises
    TopologyError."""
    check_names(settings, ("fields", *AsOfSettings.__annotations__), where, TopologyError)
    if table.field is None:
        raise TopologyError(
            f"{where}: as_of= needs the time of each change of the table: give it to the table, as "
            'in table(field="changed")'
        )
    changes, how = table.changes, settings.get("how", "inner")
    late, valid_for = settings.get("late", 0.0), settings.get("valid_for")
    _LENGTH.check(f"{where}: late", late, TopologyError)
    if valid_for is not None:
        _LENGTH.check(f"{where}: valid_for", valid_for, TopologyError)
    time = declared_time(settings["as_of"], settings, where)
    zone = zone_named(settings.get("other_zone"), f"{where}: other_zone") or time.zone
    times = time, time._replace(name=table.field, zone=zone)
    stream.schema.check_field(time.name, where)
    for side in (stream, changes):
        refuse_updates(side.lineage, where, "A join as of a time", _INSTEAD)
    left = stream.schema, table.by if on is None else on
    both: Any = {"how": how, "kinds": ("inner", "left"), "fields": fields, "where": where}
    ours, theirs, out = joined_schema(left, (changes.schema, table.by), **both)
    name = settings.get("name") or f"{table.name}-as-of"
    state = settings.get("state", state_beside(table.settings.get("state")))
    rest = rest_of(changes.schema, theirs)
    classes = {*stream.schema.classes, *changes.schema.classes, *out.classes}
    operator = AsOfJoin(
        KeyedStore(state, name, where, classes, spread=Spread.BY_GROUP),
        ours,
        out,
        how,
        late=late,
        valid_for=valid_for,
        widths=(len(rest_of(stream.schema, ours)), len(rest)),
        content=[index for index, field in enumerate(rest) if field != table.field],
    )
    return DeclaredJoin(
        name,
        operator,
        join_side(stream, ours, LEFT, times[LEFT]),
        join_side(changes, theirs, RIGHT, times[RIGHT]),
    )
