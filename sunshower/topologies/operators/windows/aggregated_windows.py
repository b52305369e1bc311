"""The base of windows whose rows are aggregated: panes, counts and sessions."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from sunshower.records import Schema, key_of
from sunshower.topologies.operators.grouping import group_keys, keys_of_partial, values_of_key
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.windows.event_times import (
    Time,
    is_before,
    length_of,
    minus,
)
from sunshower.topologies.operators.windows.pane_values import Content, PaneValues
from sunshower.topologies.operators.windows.window_kinds import AnyWindow
from sunshower.topologies.operators.windows.window_operator import WindowOperator

_LOG = logging.getLogger("sunshower")
W = TypeVar("W", bound=AnyWindow)
NO_BATCH = Attempt(0, 0, 0)  # for aggregators, where rows of several batches are in a window


class AggregatedWindows(WindowOperator, Generic[W]):
    """Its rows are (fields of the group, the window, what the aggregators emit)."""

    def __init__(
        self,
        store: KeyedStore,
        window: W,
        contents: PaneValues,
        by: Sequence[str],
        out: Schema,
    ) -> None:
        super().__init__(store, by, out)
        self.window, self.contents = window, contents
        self.late = length_of(window.late)
        if window.time is not None:
            self.reader = window.time.reader(contents.schema)

    @property
    def keeps_open(self) -> bool:
        """Whether the end of all sources leaves open windows in the store."""
        return self.window.at_end == "keep"

    def on_end_of_sources(self, ended: Sequence[Sequence[Any]]) -> None:
        complete = self._reached.time(self.late, keep=True)  # these would have ended anyway
        width = self.width
        opened = [row[: width + 1] for row in ended if is_before(complete, row[width])]
        if self.store.is_stored and opened:
            log_ended(self.store.shape[0], self.store.name, len(set(map(key_of, opened))))

    def places_of(self, times: Sequence[Time]) -> Sequence[Any]:
        """Which parts of a window have rows of these event times."""
        raise NotImplementedError

    def place_now(self) -> Any:
        """Which part of a window has rows that come now, if they have no event time."""
        raise NotImplementedError

    def parts(self, rows: Sequence[Any], attempt: Attempt) -> dict[tuple[Any, Any], Content]:
        """The contents of these rows, by group and place. If the aggregators combine, the rows come
        from CombinePanes with their places, or without event time from Combine."""
        timed = self.reader is not None
        now = None if timed else self.place_now()
        if not self.contents.combines:
            groups = group_keys(self.contents.schema, self.by, rows)
            places: Sequence[Any] = [now] * len(rows)
            if self.reader is not None:
                places = self.places_of(self.reader.times(rows))
            return self.contents.gather([*zip(groups, places, strict=False)], rows, attempt)
        width, merged = self.width, self.contents.merged
        first = width + 2 * timed  # behind the place, and the number of records
        found: dict[tuple[Any, Any], Content] = {}
        for group, row in zip(keys_of_partial(width, rows), rows, strict=True):
            place, content = (group, row[width] if timed else now), list(row[first:])
            found[place] = merged(found[place], content) if place in found else content
        return found

    def note_late(
        self,
        late: Mapping[tuple[Any, Any], Time],
        parts: Mapping[tuple[Any, Any], Content],
        rows: Sequence[Any],
    ) -> None:
        """Note late records for the counters. `late`: (group, place) → when their window has ended;
        `parts`: those of these rows."""
        self.late_records.in_time |= len(late) < len(parts)
        if not late:
            return
        counts: Counter[tuple[Any, Any]] = Counter()
        if not self.contents.combines:
            counts.update({place: len(parts[place]) for place in late})
        elif self.reader is None:  # the number of records is not known
            counts.update(late)
        else:
            for group, row in zip(keys_of_partial(self.width, rows), rows, strict=True):
                counts[group, row[self.width]] += row[self.width + 1]
        for place, end in late.items():
            self._late_now.append((counts[place], minus(self._time, end)))

    def results(
        self, group: Any, window: Any, content: Content, attempt: Attempt = NO_BATCH
    ) -> Iterable[Sequence[Any]]:
        """The rows of a group in a window with this content."""
        head = (*values_of_key(group, self.width), window)
        return [[*head, *row] for row in self.contents.results(group, content, attempt)]


def log_ended(factory: Any, state: str, windows: int) -> None:
    """Say that the end of all sources has ended windows of a state, if there can be a next run."""
    if getattr(factory, "where", "") == "memory":
        return
    _LOG.warning(
        "state %r: the end of all sources has ended %s; records that a later run reads for them "
        'are late. at_end="keep" of the window leaves open ones in the state for the next run',
        *(state, "a window" if windows == 1 else f"{windows:,} windows"),
    )
