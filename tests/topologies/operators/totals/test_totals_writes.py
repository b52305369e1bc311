"""Totals are written for several batches together under load, and at once otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from sunshower import Bolt, Spout, Topology, count
from sunshower.runtime.plan import make_plan
from sunshower.runtime.tracking.ids import seeded
from sunshower.runtime.worker import Worker
from sunshower.state import MemoryState
from sunshower.state.backing import Home, Mark, MemoryBacking
from tests.runtime.test_under_load import Watch

WRITE_S, CALL_S = 0.03, 0.001


class Item(NamedTuple):
    shop: str
    at: float


class SlowBacking(MemoryBacking):
    """Takes WRITE_S for a write, like a disk."""

    state: SlowState

    def put(self, changes: Any, mark: Mark, seen: str | None) -> None:
        if changes:
            self.state.watch.clock.advance(WRITE_S)
            self.state.writes.append(self.state.watch.clock.now())
        super().put(changes, mark, seen)


@dataclass(frozen=True)
class SlowState(MemoryState):
    """A state that stores the times of its writes."""

    watch: Watch = field(default_factory=Watch)
    writes: list[float] = field(default_factory=list)

    def open(self, home: Home) -> SlowBacking:
        backing = SlowBacking(self.shelf, home)
        backing.state = self
        return backing


class Items(Spout[Item]):
    """Emits an item every `every_s` seconds, or at every call if that is 0."""

    def __init__(self, watch: Watch, every_s: float) -> None:
        self.watch, self.every_s = watch, every_s
        self.emit_times: list[float] = []

    def records(self) -> Iterator[Item | None]:
        while True:
            now = self.watch.clock.now()
            if self.emit_times and now < self.emit_times[-1] + self.every_s:
                yield None
            else:
                self.emit_times.append(now)
                yield Item("abc"[len(self.emit_times) % 3], now)

    def __deepcopy__(self, memo: Any) -> Items:
        return self


class Works(Bolt[Item, Item]):
    """Takes CALL_S for each item."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def process(self, item: Item) -> Iterator[Item]:
        self.watch.clock.advance(CALL_S)
        yield item

    def __deepcopy__(self, memo: Any) -> Works:
        return self


def run_totals(every_s: float, seconds: float) -> tuple[Items, SlowState, int]:
    """Run for some seconds. Return the source, the state, and the number of items counted."""
    state = SlowState(watch=(watch := Watch()))
    items = Items(watch, every_s)
    topology = Topology("totals", ackers=1, workers=1)
    worked = topology.spout("items", items).shuffle().bolt("works", Works(watch))
    worked.group_by("shop").aggregate(count(), state=state)
    worker = Worker(make_plan(topology.graph()), 0, 1, seeded(0), watch.clock)
    while watch.clock.now() < seconds:
        wait_s = worker.step()
        watch.clock.advance(1e-5 if wait_s == 0 else min(wait_s, 0.01))
    return items, state, sum(dict(state.items()).values())


def test_under_load_a_write_has_several_batches() -> None:
    """One write after each slice of 20 ms would take 0.6 of the time."""
    _, state, counted = run_totals(0.0, 30.0)
    late = [at for at in state.writes if at > 10.0]
    assert len(late) * WRITE_S < 0.25 * 20.0
    assert counted > 0.7 * 30.0 / CALL_S
    pauses = [end - begun for begun, end in pairwise(late)]
    assert max(pauses) < 0.4, "no batch waits longer than a window"


def test_without_load_a_record_is_written_at_once() -> None:
    items, state, counted = run_totals(1.0, 20.0)
    assert counted == len(items.emit_times) == len(state.writes) >= 18
    for emitted, at in zip(items.emit_times, state.writes, strict=True):
        assert at - emitted < WRITE_S + CALL_S + 0.02
