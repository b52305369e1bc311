"""Pressure on several workers: slow bolts, cycles, tiny tables, and a topology that is drained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, Self

import pytest

from sunshower import Bolt, Cause, Context, Counter, Failure, Number, Topology
from sunshower.clock import ManualClock
from sunshower.runtime.plan import Layout, Plan, make_plan
from tests.runtime.network import Network
from tests.seeds import seeds

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


LEAST = 4  # records that may wait before a task of a second each


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
        waiting = max(
            waiting, *(spout.output_streams.emitted - watch.done for spout in net.spouts()), 0
        )
    assert watch.done == 600, f"seed {seed}"
    assert not watch.failures, f"seed {seed}: {watch.failures[:3]}"
    assert waiting * cost_s < 1.0 or waiting <= 2 * LEAST, f"seed {seed}: {waiting} waited"


class Costly(Watched):
    """Each number costs `cost_s` to emit, and there is no end of them."""

    def __init__(self, watch: Watch, cost_s: float) -> None:
        super().__init__(watch, None)
        self.cost_s = cost_s

    def records(self) -> Iterator[Number]:
        for number in super().records():
            self.watch.clock.advance(self.cost_s)
            yield number


@every_layout
@pytest.mark.parametrize("spout_pending", [32_768, "auto"])
@seeds(3)
def test_bolt_100_times_slower_than_its_spout_for_a_minute_times_nothing_out(
    layout: Layout, spout_pending: Any, seed: int
) -> None:
    watch = Watch()
    topology = Topology("slow", message_timeout_s=5, workers=2, spout_pending=spout_pending)
    source = topology.spout("numbers", Costly(watch, 1e-4))
    source.shuffle().bolt("slow", Slow(watch, 1e-2))
    net = Network(make_plan(topology.graph(), layout), seed, clock=watch.clock)
    net.watch = []  # the books are large here
    net.until(lambda: watch.clock.now() >= 60.0)
    net.master_process.drain()
    net.run()
    (spout,) = net.spouts()
    counts = spout.stats().counts
    assert counts.acked == counts.emitted == watch.done > 5_000, f"seed {seed}"
    assert (counts.failed, counts.replayed) == (0, 0), f"seed {seed}: {watch.failures[:3]}"


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


# ---- cycles that make more than they take in ----------------------------------------------------

CYCLE_MAX = 200


class Doubling(Bolt[Any, Hop]):
    """Every fifth number becomes two hops, and each hop two more, without end."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def process(self, record: Any) -> Iterator[Hop]:
        self.watch.clock.advance(0.001)
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
        frame_records_max=50,
        **settings,
    )
    a = topology.spout("numbers", Watched(watch, 50)).shuffle().bolt("a", Doubling(watch))
    a.shuffle().bolt("b", forward).shuffle().into("a")
    return Network(make_plan(topology.graph(), layout), seed, clock=watch.clock)


@every_layout
@seeds(3)
def test_cycle_that_makes_more_than_it_takes_in_fails_its_own_trees_and_blocks_nobody(
    layout: Layout, seed: int
) -> None:
    watch = Watch()
    net = explosion(watch, layout, seed, ackers=1)
    most = 0

    def look(core: Any) -> None:
        nonlocal most
        most = max([most, *(channel.load for channel in core._wired.channels.values())])

    net.watch.append(look)
    net.until(lambda: watch.done == 40 and len(watch.failures) > 20)
    assert {failure.cause for failure in watch.failures} == {Cause.OVERLOAD}
    assert "the cycle through it already holds 200 records" in watch.failures[0].reason
    assert watch.failures[0].component == "a"
    assert CYCLE_MAX <= most < 2 * CYCLE_MAX, "one batch beyond the limit, and not more"


@every_layout
def test_what_such_a_cycle_drops_untracked_is_noted(layout: Layout) -> None:
    watch = Watch()
    net = explosion(watch, layout, 0, ackers=0)

    def noted() -> list[str]:
        return [text for n in net.nodes.values() if (text := n.core.stats().untracked)]

    net.until(lambda: watch.done == 40 and bool(noted()))
    assert "overload in a[0]" in noted()[0]


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
    net.master_process.drain()
    net.run()
    emitted = sum(spout.output_streams.emitted for spout in net.spouts())
    assert watch.done == emitted == sum(spout.stats().counts.acked for spout in net.spouts())
