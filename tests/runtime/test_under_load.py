"""Pressure on several workers: slow bolts, cycles, tiny tables, and a topology that is drained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, Self

import pytest

from sunshower import Bolt, Context, Counter, Failure, Number, Topology
from sunshower.clock import ManualClock
from sunshower.runtime.credits import FIRST_WINDOW
from sunshower.runtime.plan import Layout, Plan, make_plan
from tests.runtime.harness import Network
from tests.runtime.test_two_workers import seeds

every_layout = pytest.mark.parametrize("layout", Layout)


class Watch:
    """A clock that work moves, and what was done and what failed; tasks share it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.done = 0
        self.failures: list[Failure] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class Watched(Counter):
    """Numbers, whose failures are written down."""

    def __init__(self, watch: Watch, stop: int | None) -> None:
        super().__init__(stop)
        self.watch = watch

    def fail(self, message_id: int, failure: Failure) -> None:
        self.watch.failures.append(failure)


class Slow(Bolt[Number, None]):
    """Every record costs `cost_s`."""

    def __init__(self, watch: Watch, cost_s: float) -> None:
        self.watch, self.cost_s = watch, cost_s

    def process(self, record: Number) -> None:
        self.watch.clock.advance(self.cost_s)
        self.watch.done += 1


# ---- a slow bolt --------------------------------------------------------------------------------


@every_layout
@pytest.mark.parametrize("cost_s", [0.001, 0.05, 1.0])
@seeds(3)
def test_slow_bolt_slows_its_spout_down_before_anything_times_out(
    layout: Layout, cost_s: float, seed: int
) -> None:
    watch = Watch()
    topology = Topology("slow", message_timeout_s=30, workers=2, ackers=1, spout_pending=1_000)
    source = topology.spout("numbers", Watched(watch, 600))
    source.shuffle().bolt("slow", Slow(watch, cost_s))
    net = Network(make_plan(topology.graph(), layout), seed, clock=watch.clock, seconds_max=1_000)
    net.watch = []  # the books are large here
    waiting = 0
    while not net.finished:
        net.act()
        waiting = max(waiting, *(spout.outlets.emitted - watch.done for spout in net.spouts()), 0)
    assert watch.done == 600, f"seed {seed}"
    assert not watch.failures, f"seed {seed}: {watch.failures[:3]}"
    assert waiting * cost_s < 1.0 or waiting <= 2 * FIRST_WINDOW, f"seed {seed}: {waiting} waited"


@every_layout
def test_slow_task_stops_the_spout_for_the_quick_ones_too(layout: Layout) -> None:
    class SlowFirst(Slow):
        def prepare(self, context: Context) -> None:
            self.cost_s *= context.index == 0

    watch = Watch()
    topology = Topology("slow", message_timeout_s=30, workers=2, ackers=1, spout_pending=1_000)
    source = topology.spout("numbers", Watched(watch, 600))
    source.shuffle().bolt("slow", SlowFirst(watch, 0.5), parallelism=3)
    net = Network(make_plan(topology.graph(), layout), 0, clock=watch.clock)
    net.watch = []
    net.run()
    assert watch.done == 600
    assert not watch.failures


# ---- cycles -------------------------------------------------------------------------------------


class Hop(NamedTuple):
    n: int
    left: int


class Hops(Bolt[Any, Hop]):
    """Two hops for each with some left, and each costs time: full load on every channel."""

    def __init__(self, watch: Watch, first: int) -> None:
        self.watch, self.first = watch, first

    def process(self, record: Any) -> Iterator[Hop]:
        self.watch.clock.advance(0.05)
        left = self.first if isinstance(record, Number) else record.left
        if left:
            yield Hop(0, left - 1)
            yield Hop(1, left - 1)
        else:
            self.watch.done += 1


def cycle(watch: Watch, layout: Layout) -> Plan:
    """The cycle numbers ──▶ a ──▶ b ──▶ a …, until each number has made 2⁴ ends."""
    topology = Topology("cycle", message_timeout_s=1_000, workers=2, ackers=1, spout_pending=64)
    source = topology.spout("numbers", Watched(watch, 50))
    a = source.shuffle().bolt("a", Hops(watch, 4), parallelism=2)
    a.fields("n").bolt("b", Hops(watch, 0), parallelism=2).shuffle().into("a")
    return make_plan(topology.graph(), layout)


@every_layout
@seeds(5)
def test_cycle_under_full_load_does_not_deadlock(layout: Layout, seed: int) -> None:
    watch = Watch()
    net = Network(cycle(watch, layout), seed, clock=watch.clock)
    net.run()
    assert watch.done == 50 * 2**4
    assert not watch.failures


def test_cycle_with_credits_on_every_edge_would_deadlock() -> None:
    """The control: what the theorem above is about does happen without the rule."""
    watch = Watch()
    plan = replace(cycle(watch, Layout.ISOLATE), back_edges=frozenset())
    with pytest.raises(AssertionError, match="stuck"):
        Network(plan, 0, clock=watch.clock).run()


# ---- drain --------------------------------------------------------------------------------------


@every_layout
@seeds(10)
def test_drained_topology_finishes_what_is_open_and_emits_no_more(
    layout: Layout, seed: int
) -> None:
    watch = Watch()
    topology = Topology("endless", workers=2, ackers=1, spout_pending=200)
    source = topology.spout("numbers", Watched(watch, None), parallelism=2)
    source.shuffle().bolt("slow", Slow(watch, 0.001), parallelism=2)
    net = Network(make_plan(topology.graph(), layout), seed, clock=watch.clock)
    net.until(lambda: watch.done > 200)
    net.drain()
    net.run()
    emitted = sum(spout.outlets.emitted for spout in net.spouts())
    assert watch.done == emitted == sum(spout.stats().counts.acked for spout in net.spouts())
