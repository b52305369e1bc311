"""Load on several workers: a slow task among quick ones, and cycles of bolts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from sunshower import Bolt, Cause, Context, Counter, Failure, Number, Topology
from sunshower.clock import ManualClock
from sunshower.config import Internals
from sunshower.runtime.plan import Layout, Plan, make_plan
from sunshower.testing import Shared
from tests.runtime.network import Network
from tests.seeds import seeds

every_layout = pytest.mark.parametrize("layout", Layout)


class Watch(Shared):
    """Counts records and keeps failures; tasks share it. The clock is for tests without Network."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.done = 0
        self.failures: list[Failure] = []


class Watched(Counter):
    """Numbers; records their failures."""

    def __init__(self, watch: Watch, stop: int | None) -> None:
        super().__init__(stop)
        self.watch = watch

    def fail(self, message_id: int, failure: Failure) -> None:
        self.watch.failures.append(failure)


class Slow(Bolt[Number, None]):
    """Every record costs `cost_s`."""

    def __init__(self, watch: Watch, cost_s: float) -> None:
        self.watch, self.cost_s = watch, cost_s

    def prepare(self, context: Context) -> None:
        self.clock = context.clock

    def process(self, record: Number) -> None:
        self.clock.sleep(self.cost_s)
        self.watch.done += 1


@every_layout
def test_slow_task_among_quick_ones_causes_no_failures(layout: Layout) -> None:
    class SlowFirst(Slow):
        def prepare(self, context: Context) -> None:
            super().prepare(context)
            self.cost_s *= context.index == 0

    watch = Watch()
    topology = Topology("slow", message_timeout_s=30, workers=2, ackers=1, spout_pending=1_000)
    source = topology.spout("numbers", Watched(watch, 600))
    source.shuffle().bolt("slow", SlowFirst(watch, 0.5), parallelism=3)
    Network(make_plan(topology.graph(), layout)).run()
    assert watch.done == 600
    assert not watch.failures


# ---- cycles -------------------------------------------------------------------------------------


class Hop(NamedTuple):
    n: int
    left: int


class Hops(Bolt[Any, Hop]):
    """Emits two hops for each with some left; each takes 50 ms: full load on every channel."""

    def __init__(self, watch: Watch, first: int) -> None:
        self.watch, self.first = watch, first

    def prepare(self, context: Context) -> None:
        self.clock = context.clock

    def process(self, record: Any) -> Iterator[Hop]:
        self.clock.sleep(0.05)
        left = self.first if isinstance(record, Number) else record.left
        if left:
            yield Hop(0, left - 1)
            yield Hop(1, left - 1)
        else:
            self.watch.done += 1


def cycle(watch: Watch, layout: Layout) -> Plan:
    """The cycle numbers ──▶ a ──▶ b ──▶ a …, until each number has become 2⁴ last hops."""
    topology = Topology("cycle", message_timeout_s=1_000, workers=2, ackers=1, spout_pending=64)
    source = topology.spout("numbers", Watched(watch, 50))
    a = source.shuffle().bolt("a", Hops(watch, 4), parallelism=2)
    a.fields("n").bolt("b", Hops(watch, 0), parallelism=2).shuffle().into("a")
    return make_plan(topology.graph(), layout)


@every_layout
@seeds(5)
def test_cycle_under_full_load_does_not_deadlock(layout: Layout, seed: int) -> None:
    watch = Watch()
    Network(cycle(watch, layout), seed).run()
    assert watch.done == 50 * 2**4
    assert not watch.failures


def test_cycle_with_credits_on_every_edge_would_deadlock() -> None:
    """The control for the test above: without back edges the cycle does deadlock."""
    watch = Watch()
    plan = replace(cycle(watch, Layout.ISOLATE), back_edges=frozenset())
    with pytest.raises(AssertionError, match="stuck"):
        Network(plan).run()


# ---- cycles that make more than they take in ----------------------------------------------------

CYCLE_MAX = 200


class Doubling(Bolt[Any, Hop]):
    """Every fifth number becomes two hops, and each hop two more, without end."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def prepare(self, context: Context) -> None:
        self.clock = context.clock

    def process(self, record: Any) -> Iterator[Hop]:
        self.clock.sleep(0.001)
        if isinstance(record, Hop):
            yield record
            yield record
        elif record.value % 5 == 0:
            yield Hop(record.value, 0)
        else:
            self.watch.done += 1


def forward(hop: Hop) -> Iterator[Hop]:
    yield hop


def explosion(watch: Watch, layout: Layout, seed: int, **settings: Any) -> Network:
    topology = Topology(
        "explosion",
        workers=2,
        spout_pending=16,
        message_timeout_s=1_000,
        window_records_max=CYCLE_MAX,
        internals=Internals(frame_records_max=50),
        **settings,
    )
    a = topology.spout("numbers", Watched(watch, 50)).shuffle().bolt("a", Doubling(watch))
    a.shuffle().bolt("b", forward).shuffle().into("a")
    return Network(make_plan(topology.graph(), layout), seed)


@every_layout
@pytest.mark.parametrize("seed", range(3))
def test_cycle_that_emits_more_than_it_receives_fails_its_own_trees_and_blocks_no_others(
    layout: Layout, seed: int
) -> None:
    watch = Watch()
    net = explosion(watch, layout, seed, ackers=1)
    peak = 0

    def is_enough() -> bool:
        nonlocal peak
        wired = [core._wired for core in net.workers.values()]
        peak = max(
            [peak, *(channel.load for wiring in wired for channel in wiring.channels.values())]
        )
        return watch.done == 40 and len(watch.failures) > 20

    net.until(is_enough)
    assert {failure.cause for failure in watch.failures} == {Cause.OVERLOAD}
    assert "the cycle through it already holds 200 records" in watch.failures[0].reason
    assert watch.failures[0].component == "a"
    assert CYCLE_MAX <= peak < 2 * CYCLE_MAX, "one batch beyond the limit, and not more"


@every_layout
def test_untracked_records_that_such_a_cycle_drops_are_reported(layout: Layout) -> None:
    watch = Watch()
    net = explosion(watch, layout, 0, ackers=0)

    def noted() -> list[str]:
        return [text for core in net.workers.values() if (text := core.stats().untracked)]

    net.until(lambda: watch.done == 40 and bool(noted()))
    assert "overload in a[0]" in noted()[0]
