"""A history that tests read row by row, and its replay, which must agree with the ackers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sunshower import Topology
from sunshower.clock import Clock, ManualClock
from sunshower.runtime.events.event_log import Entry, EventWriter, What
from sunshower.runtime.plan import Layout, Plan, make_plan
from sunshower.runtime.tracking.ids import seeded
from sunshower.runtime.worker import Worker


class Row(NamedTuple):
    """One tuple of one entry."""

    what: What
    task: int
    root: int
    value: int  # an edge, or a message number
    detail: Any


@dataclass
class Recorded:
    """All entries of a run, in the order in which they were made."""

    entries: list[Entry] = field(default_factory=list)

    def event_writer(self, clock: Clock, sample: int = 1) -> EventWriter:
        return EventWriter(clock, self.entries.append, sample)

    def of(self, what: What, task: int | None = None) -> list[Entry]:
        return [e for e in self.entries if e.what is what and task in (None, e.task)]

    def rows(self, *what: What, task: int | None = None) -> list[Row]:
        return [row for row in self._rows() if row.what in what and task in (None, row.task)]

    def values(self, what: What, task: int | None = None) -> list[int]:
        """The values of all entries of a kind, also of those without roots."""
        return [value for entry in self.of(what, task) for value in entry.values.tolist()]

    def _rows(self) -> Iterator[Row]:
        for entry in self.entries:
            for root, value in zip(entry.roots.tolist(), entry.values.tolist(), strict=False):
                yield Row(entry.what, entry.task, root, value, entry.detail)

    def check_shapes(self) -> None:
        """Every entry has the columns of its kind."""
        messages = {What.EMITTED, What.COMPLETED, What.FAILED}
        edges = {What.SENT, What.DELIVERED, What.ACKED, What.REFUSED}
        for entry in self.entries:
            roots, values, attempts = len(entry.roots), len(entry.values), len(entry.attempts)
            if entry.what in messages:
                assert roots == values == attempts > 0, entry
            elif entry.what in edges:
                assert roots == values > attempts == 0, entry
            else:
                assert roots == attempts == 0, entry
            assert (entry.roots.dtype, entry.attempts.dtype) == ("uint64", "int64"), entry
            assert entry.values.dtype == ("uint64" if entry.what in edges else "int64"), entry
            if entry.what is What.FAILED:
                assert len(entry.detail) == roots, entry

    def replay(self) -> set[int]:
        """Follow each tree by its sent and acked edges only. Returns the roots of complete trees.

        Raises AssertionError for a tree that was complete too early, or was never emitted.
        """
        emitted, complete = set[int](), set[int]()
        open_edges = defaultdict[int, set[int]](set)
        refused = set[int]()
        for row in self._rows():
            match row.what:
                case What.EMITTED:
                    assert row.root not in emitted, f"{row.root:x} was emitted twice"
                    emitted.add(row.root)
                case What.SENT:
                    assert row.root in emitted, f"{row.root:x} was sent before it was emitted"
                    open_edges[row.root].add(row.value)
                case What.DELIVERED:
                    assert row.value in open_edges[row.root], f"{row.root:x}: never sent"
                case What.ACKED:
                    assert row.value in open_edges[row.root], f"{row.root:x}: acked twice"
                    open_edges[row.root].remove(row.value)
                case What.REFUSED:
                    refused.add(row.root)
                case What.COMPLETED:
                    assert not open_edges[row.root], f"{row.root:x} was complete too early"
                    assert row.root not in refused, f"{row.root:x} was complete, and had failed"
                    assert row.root not in complete, f"{row.root:x} was complete twice"
                    complete.add(row.root)
        return complete


class Alone(Recorded):
    """A topology in one worker on a manual clock, with its history."""

    def __init__(self, topology: Topology, sample: int = 1, seed: int = 0) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.plan: Plan = make_plan(topology.graph(), Layout.PACK)
        event_writer = self.event_writer(self.clock, sample)
        self.worker = Worker(self.plan, 0, 1, seeded(seed), self.clock, event_writer=event_writer)

    def id(self, component: str, index: int = 0) -> int:
        return self.plan.tasks_of(component)[index].id

    def run(self) -> None:
        """Run to the end; the clock advances while nothing can be done."""
        for _ in range(10_000):
            wait_s = self.worker.step()
            if self.worker.finished:
                return
            if wait_s:
                self.clock.advance(wait_s)
        raise AssertionError("not finished after 10,000 steps")

    def work(self) -> None:
        """Do all that can be done at this moment."""
        for _ in range(10_000):
            if self.worker.step() != 0:
                return
        raise AssertionError("busy without end")
