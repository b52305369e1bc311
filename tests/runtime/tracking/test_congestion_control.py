"""`spout_pending="auto"`: the limit grows while queues are short and shrinks before timeouts."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from sunshower import Bolt, Collector, Context, Number, Topology, Tuple
from sunshower.clock import ManualClock
from sunshower.config import Config
from sunshower.errors import ConfigError
from sunshower.runtime.events.metrics import LatencyKind
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.tracking.ids import seeded
from sunshower.runtime.tracking.pending import CongestionControl
from sunshower.runtime.worker import Worker
from tests.runtime.test_under_load import Watch, Watched

TABLE = 32_768


def congestion(limit: int | None = None, **settings: Any) -> CongestionControl:
    """A new instance, or one that has found `limit` at a latency of 0.1 s."""
    control = CongestionControl(Config(spout_pending="auto", **settings), TABLE)
    if limit is not None:
        control.completed(0.0, 8, 0.1, False)
        control.limit = control._threshold = limit
    return control


def rounds(
    here: CongestionControl, *latencies_s: float, now: float = 1.0, reached: bool = True
) -> float:
    """One round trip of each latency, from `now` on. Returns the time after them."""
    for latency_s in latencies_s:
        now += latency_s + 1e-6
        here.completed(now, here.limit, latency_s, reached)
    return now


# ---- the rules ----------------------------------------------------------------------------------


def test_limit_doubles_at_first_and_ends_with_the_table() -> None:
    here = congestion()
    limits = []
    for number in range(16):
        rounds(here, 0.1, now=float(number))
        limits.append(here.limit)
    assert limits[:4] == [2, 4, 8, 16]
    assert limits[-2:] == [TABLE, TABLE]


def test_limit_grows_by_a_64th_once_it_was_too_high_and_then_by_twice_as_much_each_time() -> None:
    here = congestion(limit=6_400)
    rounds(here, 0.1)
    assert here.limit == 6_500
    rounds(here, 0.1, now=2.0)
    assert here.limit == 6_500 + 6_500 // 32


def test_limit_that_was_cut_far_below_what_is_needed_is_back_after_a_few_round_trips() -> None:
    here = congestion(limit=64)
    rounds(here, *[0.05] * 14)
    assert here.limit > 20_000


@pytest.mark.parametrize("least_s", [0.001, 0.1])
@pytest.mark.parametrize("seed", range(5))
def test_latency_that_does_not_depend_on_the_limit_does_not_cut_it(
    seed: int, least_s: float
) -> None:
    here, random = congestion(), Random(seed)
    rounds(here, *(random.uniform(least_s, 0.6) for _ in range(100)))
    assert here.limit > TABLE // 4


def test_limit_is_left_alone_while_something_else_holds_the_spout_back() -> None:
    here = congestion()
    rounds(here, *[0.1] * 20, reached=False)
    assert here.limit == 1


def test_limit_shrinks_while_the_trees_wait_longer_than_the_window() -> None:
    here = congestion(limit=800)
    rounds(here, 0.1 + 0.25 + 0.01)
    assert here.limit == 700


def test_limit_is_judged_once_in_a_round_trip() -> None:
    here = congestion(limit=800)
    now = rounds(here, 2.0)
    for _ in range(10):
        here.completed(now + 1.0, 500, 2.0, True)  # emitted before the limit shrank
    assert here.limit == 700


def test_timeout_halves_the_limit_once_for_all_trees_emitted_before() -> None:
    here = congestion(limit=800, message_timeout_s=30)
    for now in (100.0, 100.1, 129.9):
        here.timed_out(now)
    assert here.limit == 400
    here.timed_out(130.0)
    assert here.limit == 200


def test_delay_alone_leaves_two_trees_so_that_one_is_processed_while_one_is_acked() -> None:
    here = congestion(limit=3, message_timeout_s=30)
    rounds(here, *[7.4] * 3)
    assert here.limit == 2


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_limit_is_one_if_the_latency_is_above_a_quarter_of_the_timeout(limit: int) -> None:
    here = congestion(limit=limit, message_timeout_s=30)
    rounds(here, *[7.6] * 10)
    assert here.limit == 1


def test_limit_is_one_after_many_timeouts_and_never_zero() -> None:
    here = congestion(limit=9)
    for number in range(10):
        here.timed_out(number * 100.0)
    assert here.limit == 1


def test_limit_does_not_grow_if_even_the_least_latency_is_above_a_quarter_of_the_timeout() -> None:
    here = congestion(message_timeout_s=30)
    rounds(here, *[8.0] * 10)
    assert here.limit == 1


def test_limit_doubles_up_to_the_table_while_a_bolt_keeps_the_open_tuples() -> None:
    here = congestion()
    limits = []
    for _ in range(17):
        here.stalled()
        limits.append(here.limit)
    assert limits[:4] == [2, 4, 8, 16]
    assert limits[-2:] == [TABLE, TABLE]


def test_half_the_limit_for_one_round_probes_for_the_least_latency() -> None:
    here = congestion(limit=6_400)
    now, limits = 1.0, [6_400]
    while now < 32.0:
        now = rounds(here, 0.2, now=now)
        limits.append(here.limit)
    (probe,) = [i for i in range(1, len(limits)) if limits[i] < limits[i - 1]]
    assert limits[probe] == pytest.approx(limits[probe - 1] / 2, rel=0.05)
    assert limits[probe + 1] >= limits[probe - 1], "restored at once: the least latency is the same"


# ---- in a loop with a server --------------------------------------------------------------------


def serve(
    here: CongestionControl,
    service_s: Callable[[], float],
    way_s: float,
    start_s: float,
    end_s: float,
) -> tuple[float, float]:
    """Run a server that needs `service_s()` for a tree, at a network latency of `way_s`, from
    `start_s` to `end_s`. Returns the part of the time in which it was busy, and the worst latency.

    The spout keeps `here.limit` trees open; each is done by the server after those before it.
    """
    done_s = deque[tuple[float, float]]()  # (when done, when emitted)
    free_s = now = start_s
    worst_s = busy_s = 0.0
    while now < end_s:
        while len(done_s) < here.limit:
            seconds = service_s()
            busy_s += seconds
            free_s = max(free_s, now) + seconds
            done_s.append((free_s + way_s, now))
        now, emitted_s = done_s.popleft()
        worst_s = max(worst_s, now - emitted_s)
        here.completed(now, 1, now - emitted_s, len(done_s) + 1 >= here.limit)
    waiting_s = free_s - now  # for what is in the queue at the end
    return (busy_s - waiting_s) / (end_s - start_s), worst_s


@pytest.mark.parametrize(("rate", "way_s"), list(itertools.product([5, 100, 2_000], [0.01, 0.5])))
def test_queue_is_short_and_the_server_busy_at_any_rate_and_network_latency(
    rate: float, way_s: float
) -> None:
    here = congestion()
    busy, worst_s = serve(here, lambda: 1 / rate, way_s, 0.0, 200.0)
    assert busy > 0.95, "including the probes for the least latency, and the first seconds"
    assert worst_s < way_s + 4.0, "of a timeout of 30 s"
    busy, worst_s = serve(here, lambda: 1 / rate, way_s, 200.0, 260.0)
    assert busy > 0.95
    assert worst_s < way_s + 1.5


def test_server_that_is_slow_with_one_tree_in_ten_is_busy_and_no_tree_comes_near_its_timeout() -> (
    None
):
    here, random = congestion(), Random(1)
    busy, worst_s = serve(here, lambda: 1e-5 if random.randrange(10) else 0.1, 0.01, 0.0, 200.0)
    assert busy > 0.95
    assert worst_s < 15.0


# ---- in a topology ------------------------------------------------------------------------------


class Service(Bolt[Number, None]):
    """Takes each number into a queue of its own; acks one of them in each tick of 10 ms."""

    def prepare(self, context: Context) -> None:
        self.waiting = deque[Tuple[Number]]()
        self.peak = 0

    def execute(self, tuple: Tuple[Number], out: Collector[Any]) -> None:
        self.out = out
        self.waiting.append(tuple)
        self.peak = max(self.peak, len(self.waiting))

    def tick(self) -> None:
        if self.waiting:
            self.out.ack(self.waiting.popleft())


def served(spout_pending: Any) -> tuple[Watch, Worker]:
    """A minute of a service that acks 100 numbers a second; credits do not see its queue."""
    watch = Watch()
    topology = Topology("t", ackers=1, workers=1, spout_pending=spout_pending)
    source = topology.spout("numbers", Watched(watch, None))
    source.shuffle().bolt("service", Service, tick_s=0.01)
    worker = Worker(make_plan(topology.graph()), 0, 1, seeded(0), watch.clock)
    while watch.clock.now() < 60.0 and not watch.failures:
        wait_s = worker.step()
        watch.clock.advance(0.0005 if wait_s == 0 else min(wait_s or 1.0, 1.0))
    return watch, worker


def test_queue_that_credits_cannot_see_is_kept_short() -> None:
    watch, worker = served("auto")
    assert not watch.failures
    (stats,) = [task for task in worker.stats().tasks if task.component == "numbers"]
    assert stats.counts.acked > 0.95 * 6_000, "the service is never idle"
    assert stats.latencies[LatencyKind.COMPLETE].percentile(100) < 3.0


def test_fixed_limit_that_is_too_high_for_it_times_out() -> None:
    """The control for the test above: with such a limit, trees do time out."""
    watch, _ = served(4_000)
    assert watch.failures


def steps_for(spout_pending: Any) -> tuple[int, int]:
    """(slices of work, limit at the end) for 300,000 numbers at 1 µs each."""
    clock = ManualClock()

    class Quick(Bolt[Number, None]):
        def process(self, record: Number) -> None:
            clock.advance(1e-6)

    watch = Watch()
    topology = Topology("t", ackers=1, workers=1, spout_pending=spout_pending)
    topology.spout("numbers", Watched(watch, 300_000)).shuffle().bolt("quick", Quick)
    worker = Worker(make_plan(topology.graph()), 0, 1, seeded(0), clock)
    steps = 0
    while worker.step() == 0 or not worker.finished:
        steps += 1
        clock.advance(1e-4)  # the overhead of a slice
    (spout,) = worker._spouts
    return steps, spout.pending.limit


def test_quick_bolt_gets_a_high_limit_and_hardly_more_slices_than_with_a_fixed_number() -> None:
    steps, limit = steps_for("auto")
    assert limit > TABLE // 4
    assert steps < 1.3 * steps_for(TABLE)[0]


def turns_for(count: int, pause_s: float, seed: int) -> int:
    """How often one of two workers must have its turn for `count` numbers of two spouts.
    After each turn of 20 ms, other processes have the machine, for up to `pause_s`."""
    random, watch = Random(seed), Watch()
    clock = watch.clock
    topology = Topology("t", workers=2)
    source = topology.spout("numbers", Watched(watch, count), parallelism=2)
    source.shuffle().bolt("quick", lambda _: None, parallelism=2, fields=())
    plan = make_plan(topology.graph(), Layout.PACK)
    workers = {n: Worker(plan, n, 1, np.random.default_rng(n), clock) for n in plan.workers}
    for worker in workers.values():
        worker.peers(dict.fromkeys(workers, 1))
    posts: dict[int, list[tuple[int, int, Any, bool]]] = {number: [] for number in workers}
    turns = 0
    while not all(worker.finished for worker in workers.values()):
        turns += 1
        number = random.choice([*workers])
        worker = workers[number]
        for _ in range(20):
            arrived, posts[number] = posts[number], []
            for peer, seq, data, is_answer in arrived:
                if is_answer:
                    worker.answered(peer, seq, data)
                else:
                    posts[peer].append((number, seq, worker.packet_receiver.answer(data), True))
                    worker.receive(data)
            worker.step()
            for peer, seq, data in list(worker.outgoing()):
                posts[peer].append((number, seq, data, False))
            clock.advance(0.001)
        clock.advance(random.uniform(0.0, pause_s))
    return turns


@pytest.mark.parametrize("seed", range(3))
def test_workers_that_seldom_have_a_processor_open_many_trees_each_time(seed: int) -> None:
    assert turns_for(10_000, 0.2, seed) < 200, "500 to 1,100 if each wait cuts the limit"


def test_setting_that_is_neither_a_number_nor_auto_is_refused() -> None:
    with pytest.raises(ConfigError):
        Topology("t", spout_pending="plenty")  # type: ignore[arg-type]
