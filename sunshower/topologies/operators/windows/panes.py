"""Panes of windows: their contents, and which are open."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from math import inf
from typing import Any, TypeAlias

from sunshower.json_values import are_flat
from sunshower.records import Schema, copied
from sunshower.topologies.operators.aggregating import result_rows
from sunshower.topologies.operators.aggregators import AnyAggregator, CombinerAggregator, Table
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.state_slot import StateDraft
from sunshower.topologies.operators.states import Key
from sunshower.topologies.operators.windows.event_times import Time, is_before, lowest
from sunshower.topologies.operators.windows.window_kinds import AnyPanes, CalendarPanes, Window

# ---- pane values ---------------------------------------------------------------------------------
# The aggregated contents of panes.
#
# A pane is the part of the rows of a group that all windows share: `sliding(seconds=60, every=10)`
# has panes of ten seconds. The content of a pane is one value for each combiner. If an aggregator
# is no combiner, it is the rows.

Content = list[Any]  # one value per aggregator; or rows, as lists of values


class PaneValues:
    """Computes the contents of panes, and what the aggregators emit for a window."""

    def __init__(self, schema: Schema, aggregators: Sequence[AnyAggregator]) -> None:
        self.schema, self.aggregators = schema, tuple(aggregators)
        self.combiners = [a for a in aggregators if isinstance(a, CombinerAggregator)]
        self.combines = len(self.combiners) == len(self.aggregators)

    @cached_property  # not an attribute: savepoints name those that a declaration has
    def grows(self) -> bool:
        """Whether contents grow with the rows."""
        return not self.combines or any(combiner.grows for combiner in self.combiners)

    def gather(
        self, places: Sequence[Any], rows: Sequence[Any], attempt: Attempt
    ) -> dict[Any, Content]:
        """The contents of these rows alone, by place; `places`: that of each row."""
        if not self.combines:
            contents: dict[Any, Content] = {}
            for place, row in zip(places, self.schema.rows(rows), strict=True):
                contents.setdefault(place, []).append(list(row))
            return contents
        tables = [combiner.table() for combiner in self.combiners]
        for combiner, table in zip(self.combiners, tables, strict=True):
            combiner.gather(table, places, rows, attempt)
        return {place: [table[place] for table in tables] for place in tables[0]}

    def merged(self, first: Content, second: Content) -> Content:
        """The content of both."""
        if not self.combines:
            return [*first, *second]
        if len(self.combiners) == 1:  # half of the time
            return [self.combiners[0].combine(first[0], second[0])]
        pairs = zip(self.combiners, first, second, strict=True)
        return [combiner.combine(value, other) for combiner, value, other in pairs]

    def merged_each(
        self, first: Iterable[Content | None], second: Iterable[Content]
    ) -> list[Content]:
        """The content of both of each pair; None: it has nothing."""
        pairs = zip(first, second, strict=True)
        if self.combines and len(self.combiners) == 1:  # a third of the time
            combine = self.combiners[0].combine
            return [
                content if old is None else [combine(old[0], content[0])] for old, content in pairs
            ]
        return [content if old is None else self.merged(old, content) for old, content in pairs]

    def merged_all(self, contents: Sequence[Content]) -> Content:
        """The content of all, in their order; in pairs, so that the time is not the square."""
        if len(contents) == 2:
            return self.merged(*contents)
        while len(contents) > 1:
            pairs = [contents[at : at + 2] for at in range(0, len(contents), 2)]
            contents = [self.merged(*pair) if len(pair) > 1 else pair[0] for pair in pairs]
        return contents[0]

    def results(self, key: Any, content: Content, attempt: Attempt) -> Iterable[tuple[Any, ...]]:
        """What the aggregators emit for `content`; `key`: the group."""
        if (columns := self.result_columns([content])) is not None:
            return zip(*columns, strict=True)
        if self.combines:
            tables: list[Table] = [{key: value} for value in content]
        else:
            tables = [aggregator.table() for aggregator in self.aggregators]
            rows = self.schema.build(content)
            for aggregator, table in zip(self.aggregators, tables, strict=True):
                aggregator.gather(table, [key] * len(rows), rows, attempt)
        return result_rows(self.aggregators, tables, 0, Schema(("rows",)))

    @cached_property
    def _makes_one_row(self) -> bool:
        """Whether the aggregators emit one row for each content."""
        return self.combines and all(
            type(combiner).rows is CombinerAggregator.rows for combiner in self.combiners
        )

    def result_columns(self, contents: Sequence[Content]) -> list[Sequence[Any]] | None:
        """What each aggregator emits for `contents`, one value for each of them. None: there are
        other numbers of rows."""
        if not self._makes_one_row:
            return None
        columns = zip(*contents, strict=True)
        return [
            values
            if type(combiner).result is CombinerAggregator.result
            else [*map(combiner.result, values)]
            for combiner, values in zip(self.combiners, columns, strict=True)
        ]


# ---- open panes ----------------------------------------------------------------------------------
# The contents of open panes in a store, a row per group and pane.
#
#   (word, group, pane)          the content; or {"parts": 2}
#   (word, group, pane, 0), …    if there are parts: the content of each batch
#
# What grows with its rows is stored in parts, so a batch writes what it adds, and not what is
# there. Releases before parts stored all of it under the first key.

PanePlace: TypeAlias = tuple[Any, int]  # group, pane
PaneStore: TypeAlias = KeyedStore | StateDraft
PARTS = "parts"


class OpenPanes:
    """The panes of groups; `word` begins their keys. A window has `width` panes, and the number of
    its last one. Which groups have rows in a pane is in memory: see `note`."""

    def __init__(self, word: str, contents: PaneValues, width: int) -> None:
        self.word, self.contents, self.width = word, contents, width
        self.groups: defaultdict[int, dict[Any, None]] = defaultdict(dict)  # pane → its groups

    def note(self, places: Iterable[PanePlace]) -> None:
        """Note that groups have rows in panes, or may have."""
        for group, pane in places:
            self.groups[pane][group] = None

    def add(self, store: PaneStore, contents: Mapping[PanePlace, Content]) -> None:
        """Add contents to those of their panes."""
        keys = [(self.word, *place) for place in contents]
        before = store.view(keys)
        if not self.contents.grows:
            both = self.contents.merged_each(before, contents.values())
            store.replace(dict(zip(keys, both, strict=True)))
            return
        changes: dict[Key, Any] = {}
        for key, content, old in zip(keys, contents.values(), before, strict=True):
            is_former = isinstance(old, list)  # of a release before parts
            if is_former:
                changes[*key, 0] = old
            number = 1 if is_former else 0 if old is None else old[PARTS]
            changes[*key, number] = content
            changes[key] = {PARTS: number + 1}
        store.replace(changes)

    def read(self, store: PaneStore, places: Iterable[PanePlace]) -> dict[PanePlace, Content]:
        """The contents of panes; those that have none are left out."""
        places = [*places]
        stored = store.view([(self.word, *place) for place in places])
        pairs = zip(places, stored, strict=True)
        values = {place: value for place, value in pairs if value is not None}
        parts = {
            place: _parts((self.word, *place), value)
            for place, value in values.items()
            if isinstance(value, dict)
        }
        store.fetch(chain.from_iterable(parts.values()))
        for place, several in parts.items():
            if several:
                values[place] = self.contents.merged_all(store.view(several))
        return values

    def remove(self, store: PaneStore, places: Iterable[PanePlace]) -> None:
        keys: list[Any] = [(self.word, *place) for place in places]
        if self.contents.grows:
            values = zip([*keys], store.view(keys), strict=True)
            keys += chain.from_iterable(_parts(key, value) for key, value in values)
        store.replace(dict.fromkeys(keys))

    def window(
        self, contents: Mapping[PanePlace, Content], group: Any, last: int
    ) -> Content | None:
        """The content of a window of a group, from those of panes; None: it has no rows."""
        places = [(group, pane) for pane in range(last - self.width + 1, last + 1)]
        within = [contents[place] for place in places if place in contents]
        return self._merged(within) if within else None

    def _merged_panes(
        self, panes: Sequence[Mapping[Any, Content]]
    ) -> Iterable[tuple[Any, Content]]:
        """The groups of a window with their contents, from those of its panes."""
        if self.width == 1:
            return panes[0].items() if panes else ()
        if not self.contents.grows and all(are_flat(pane.values(), depth=1) for pane in panes):
            window, merged = dict[Any, Content](), self.contents.merged
            for pane in panes:
                for group, content in pane.items():
                    known = window.get(group)
                    window[group] = content if known is None else merged(known, content)
            return window.items()
        several: defaultdict[Any, list[Content]] = defaultdict(list)
        for pane in panes:
            for group, content in pane.items():
                several[group].append(content)
        return ((group, self._merged(contents)) for group, contents in several.items())

    def _merged(self, contents: Sequence[Content]) -> Content:
        """The content of a window. Its panes may be in further windows, so a combiner that changes
        its argument, or a reader of a result, gets a copy of what can change."""
        if self.width > 1 and not are_flat(contents, depth=1):
            contents = [*map(copied, contents)]
        return self.contents.merged_all(contents)

    def end(
        self,
        store: PaneStore,
        before: Time,
        ended: Time,
        behind: Mapping[Any, Time],
        *,
        removes: bool = True,
    ) -> tuple[list[tuple[int, Any, Content]], list[PanePlace]]:
        """Remove what no later window needs. Returns (window, group, content) of the windows after
        `before` up to `ended`, and the removed panes. `behind`: for some groups instead of
        `before`. `removes` False: records may still come for them."""
        width, groups = self.width, self.groups
        first = lowest([before, *behind.values()])
        lasts = {pane + more for pane in groups for more in range(width)}
        due = sorted(last for last in lasts if first < last <= ended)
        needed = {pane for last in due for pane in range(last - width + 1, last + 1)}
        contents = self.read(
            store, [(group, pane) for pane in needed & groups.keys() for group in groups[pane]]
        )
        by_pane: defaultdict[int, dict[Any, Content]] = defaultdict(dict)
        for (group, pane), content in contents.items():
            by_pane[pane][group] = content
        rows_of_windows: list[tuple[int, Any, Content]] = []
        for last in due:
            panes = [by_pane[pane] for pane in range(last - width + 1, last + 1) if pane in by_pane]
            rows_of_windows += [
                (last, group, content)
                for group, content in self._merged_panes(panes)
                if not behind or behind.get(group, before) < last
            ]
        if not removes:
            return rows_of_windows, []
        closed = [pane for pane in groups if pane + width - 1 <= ended]
        places = [(group, pane) for pane in closed for group in groups.pop(pane)]
        removed = [place for place in places if place in contents or place[1] not in needed]
        self.remove(store, removed)
        return rows_of_windows, removed

    def take_out(self, store: PaneStore, place: PanePlace) -> None:
        """Remove the pane of one group, which is there."""
        self.remove(store, [place])
        group, pane = place
        del self.groups[pane][group]
        if not self.groups[pane]:
            del self.groups[pane]

    def drop(self, store: PaneStore, last: Time) -> None:
        """Remove panes of which the last window is up to `last`."""
        closed = [pane for pane in self.groups if pane + self.width - 1 <= last]
        places = [(group, pane) for pane in closed for group in self.groups.pop(pane)]
        store.fetch((self.word, *place) for place in places)
        self.remove(store, places)

    def windows(self, store: PaneStore, places: Iterable[PanePlace]) -> dict[PanePlace, Content]:
        """The contents of windows: (group, last pane) → content, in that order."""
        places = list(places)
        panes = {
            (group, pane): None
            for group, last in places
            for pane in range(last - self.width + 1, last + 1)
        }
        contents = self.read(store, panes)
        found = {place: self.window(contents, *place) for place in places}
        return {place: content for place, content in found.items() if content is not None}

    def count(
        self,
        store: PaneStore,
        every: int,
        stored: Mapping[Any, tuple[int, Iterable[tuple[int, Content]]]],
        groups: Sequence[Any],
        rows: Sequence[Any],
        attempt: Attempt,
    ) -> tuple[list[tuple[int, Any, Content]], dict[Any, int]]:
        """Add rows to panes of `every` rows, and remove what no later window needs. `stored`: how
        many rows each group had, and the panes that a release before a row per pane has stored with
        this number; `groups`: that of each row. Returns (window, group, content) of the windows
        that are full, and how many rows each group has."""
        before = {group: number for group, (number, _) in stored.items()}
        for group, (_, panes) in stored.items():
            self.add(store, {(group, pane): content for pane, content in panes})
        places, so_far = [], dict(before)
        for group in groups:
            places.append((group, so_far[group] // every))
            so_far[group] += 1
        self.add(store, self.contents.gather(places, rows, attempt))
        full = {
            (group, last): range(max(last - self.width + 1, 0), last + 1)
            for group, rows_before in before.items()
            for last in range(rows_before // every, so_far[group] // every)
        }
        contents = self.read(
            store, {(group, pane): None for (group, _), panes in full.items() for pane in panes}
        )
        needless = {group: number // every - self.width for group, number in so_far.items()}
        self.remove(store, [place for place in contents if place[1] <= needless[place[0]]])
        windows = ((last, group, self.window(contents, group, last)) for group, last in full)
        return [
            (last, group, content) for last, group, content in windows if content is not None
        ], so_far


class TimePanes(OpenPanes):
    """The open panes of windows of time, each of which is called by its end."""

    def __init__(
        self, word: str, contents: PaneValues, window: Window, *, reads_ends: bool = False
    ) -> None:
        super().__init__(word, contents, window.panes)
        self.times, self._reads_ends = window.divided(), reads_ends

    def last_ended(self, time: Time) -> Time:
        """The last pane whose windows have ended at `time`; of ends of other windows, before it:
        one that is `time` may still come."""
        if time in (inf, -inf):
            return time
        return panes_of(self.times, [time], are_ends=self._reads_ends)[0] - 1

    def end(
        self,
        store: PaneStore,
        before: Time,
        ended: Time,
        behind: Mapping[Any, Time],
        *,
        removes: bool = True,
    ) -> tuple[list[tuple[int, Any, Content]], list[PanePlace]]:
        windows, removed = super().end(store, before, ended, behind, removes=removes)
        if isinstance(self.times, CalendarPanes):
            windows = [window for window in windows if self.is_window(window[0])]
        return windows, removed

    def is_window(self, last: int) -> bool:
        """Whether a window ends with a pane. A day that a zone has left out ends none: the day
        before has the same end."""
        if self.width == 1 or not isinstance(self.times, CalendarPanes):
            return True
        return self.times.start(last) < self.times.start(last + 1)

    def take(
        self, store: PaneStore, contents: Mapping[PanePlace, Content], ended: Time
    ) -> dict[PanePlace, Time]:
        """Add contents to those of their panes. Returns the places of those that are late, which
        are not added, with the end of their last window. `ended`: the last pane that has ended."""
        last = ended - self.width + 1  # no open window has panes up to here
        late = {
            place: self.times.start(place[1] + self.width) for place in contents if place[1] <= last
        }
        in_time = contents
        if late:
            in_time = {place: content for place, content in contents.items() if place not in late}
        self.add(store, in_time)
        self.note(in_time)
        return late


def _parts(key: tuple[Any, ...], value: Any) -> list[tuple[Any, ...]]:
    """The keys of the parts of a pane."""
    return [(*key, number) for number in range(value[PARTS])] if isinstance(value, dict) else []


_STEPS_MAX = 3  # one, and more where a time zone has left out days


def panes_of(panes: AnyPanes, times: Sequence[Time], *, are_ends: bool) -> list[int]:
    """The panes of event times. `are_ends`: of other windows; each is just before its number."""
    numbers = panes.of_times(times) if times else []
    if not are_ends:
        return numbers
    pane_of = dict(zip(times, numbers, strict=True))  # few: many groups have a window
    before = {time: _pane_before(panes, pane, time) for time, pane in pane_of.items()}
    return [*map(before.__getitem__, times)]


def _pane_before(panes: AnyPanes, pane: int, end: Time) -> int:
    """The pane that is just before a time, which is in `pane`."""
    for _ in range(_STEPS_MAX):
        if is_before(panes.start(pane), end):
            break
        pane -= 1
    return pane
