"""The window of a task is worth the same time, whether the task is quick or slow."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from sunshower import Bolt, Counter, Number, Topology
from sunshower.clock import ManualClock
from sunshower.config import Config, Internals
from sunshower.runtime.plan import make_plan
from sunshower.runtime.tracking.ids import seeded
from sunshower.runtime.transport.channels import FIRST_CREDIT, Credit, ServiceTime
from sunshower.runtime.worker import Worker
from tests.runtime.test_under_load import Watch

CONFIG = Config(internals=Internals(slice_s=0.005, window_s=0.25))
FIRST = FIRST_CREDIT.window
LEAST = 2  # for a task that needs many seconds for a record


@dataclass
class Measured:
    """A service time, measured in whole slices."""

    service: ServiceTime = field(default_factory=lambda: ServiceTime(CONFIG))

    def slices(self, count: int, record_s: float, waited_s: float = 0.0) -> ServiceTime:
        """`waited_s`: what each record had waited for room, or for its turn."""
        for _ in range(count):
            records = self.service.slice_records
            self.service.measure(records, records * record_s, records * waited_s)
        return self.service


def after(record_s: float, waited_s: float = 0.0) -> ServiceTime:
    return Measured().slices(100, record_s, waited_s)


@pytest.mark.parametrize("record_s", [1e-5, 1e-4, 1e-3, 1e-2])
def test_window_and_slice_are_worth_their_seconds(record_s: float) -> None:
    service = after(record_s)
    assert service.window == pytest.approx(0.25 / record_s, rel=0.01)
    assert service.slice_records == pytest.approx(max(1, 0.005 / record_s), rel=0.01, abs=1)


def test_slow_task_has_slices_of_one_record_and_the_least_window() -> None:
    service = after(10.0)
    assert (service.slice_records, service.window) == (1, LEAST)


def test_window_of_a_quick_task_is_the_configured_maximum() -> None:
    assert after(0.0).window == CONFIG.window_records_max


def test_limits_grow_step_by_step_and_fall_at_once() -> None:
    service = ServiceTime(CONFIG)
    service.measure(FIRST, 0.02 * FIRST)
    assert service.window == 2 * FIRST
    service.measure(1, 100.0)
    assert service.window == LEAST


def test_piece_is_a_fifth_of_a_slice_of_own_work_and_at_most_the_window() -> None:
    service = ServiceTime(CONFIG)
    for _ in range(60):
        service.measure(64, 64 / 65536, waited_s=0.01)
    assert service.slice_records == 328, "5 ms"
    assert service.credit == Credit(service.window, 65)
    for _ in range(60):
        service.measure(64, 64 / 65536, waited_s=1.0)
    assert service.window < 65
    assert service.credit == Credit(service.window, service.window)


def test_window_of_little_work_grows_faster() -> None:
    service = ServiceTime(CONFIG)
    service.measure(FIRST, 1e-6)
    assert service.window == 8 * FIRST
    service.measure(8 * FIRST, 8 * FIRST * 0.004)
    assert service.window == 16 * FIRST, "10 ms of work are ten records"


def test_window_grows_once_for_each_window_of_inputs() -> None:
    """The first inputs say little about the pace: the receivers still have room."""
    service = ServiceTime(CONFIG)
    service.measure(FIRST, 0.02 * FIRST)
    for _ in range(2 * FIRST - 1):
        service.measure(1, 0.02)
        assert service.window == 2 * FIRST
    service.measure(1, 0.02)
    assert service.window == 4 * FIRST


def test_one_slow_slice_is_forgotten() -> None:
    measured = Measured()
    measured.slices(50, 1e-4)
    measured.slices(1, 0.1)
    assert measured.slices(120, 1e-3).window == pytest.approx(250, rel=0.01)


def test_interrupted_slice_of_one_record_counts_as_one_record() -> None:
    """A busy machine may stop a task for 20 ms within any slice."""
    measured = Measured()
    quick = measured.slices(50, 1e-5).slice_records
    measured.service.measure(1, 0.02)
    assert measured.service.slice_records > quick / 3
    assert measured.service.window > 25_000 / 3


@pytest.mark.parametrize(("flush_s", "slice_s"), [(0.001, 0.005), (0.1, 0.1), (60.0, 0.25)])
def test_slice_has_work_for_as_long_as_a_flush_takes(flush_s: float, slice_s: float) -> None:
    service = ServiceTime(CONFIG)
    for _ in range(100):
        service.measure(service.slice_records, service.slice_records * 1e-4, flush_s=flush_s)
    assert service.slice_records == pytest.approx(slice_s / 1e-4, rel=0.01)
    assert service.window == 2500, "the window follows the pace alone"


# ---- pace ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("waited_s", [1e-3, 1e-2])
def test_window_follows_the_pace_and_the_slice_the_work_alone(waited_s: float) -> None:
    """A quick bolt before a slow one waits for room, so its own window is small."""
    service = after(1e-5, waited_s)
    assert service.window == pytest.approx(0.25 / (1e-5 + waited_s), rel=0.01, abs=1)
    assert service.slice_records == pytest.approx(500, abs=1)


def test_pace_of_a_task_that_is_no_longer_blocked_is_its_own_work_again() -> None:
    measured = Measured()
    measured.slices(50, 1e-5, 1e-2)
    assert measured.slices(100, 1e-5).window == pytest.approx(25_000, rel=0.01)


class Quick(Bolt[Number, Number]):
    def process(self, record: Number) -> list[Number]:
        return [record]


class Slow(Bolt[Number, None]):
    def __init__(self, watch: Watch, cost_s: float, flush_s: float = 0.0) -> None:
        self.watch, self.cost_s, self.flush_s = watch, cost_s, flush_s

    def process(self, record: Number) -> None:
        self.watch.clock.advance(self.cost_s)


class Committing(Slow):
    def flush(self) -> None:
        self.watch.clock.advance(self.flush_s)


def measured(last: Slow, seconds: float = 20.0) -> dict[str, ServiceTime]:
    """The service times in the chain numbers → quick → last after `seconds`."""
    watch = last.watch
    topology = Topology("t", ackers=1, workers=1, spout_pending=32_768)
    numbers = topology.spout("numbers", Counter())
    numbers.shuffle().bolt("quick", Quick).shuffle().bolt("last", last)
    worker = Worker(make_plan(topology.graph()), 0, 1, seeded(0), watch.clock)
    while watch.clock.now() < seconds:
        wait_s = worker.step()
        watch.clock.advance(1e-5 if wait_s == 0 else wait_s or 1.0)
    return {bolt.task.component: bolt.service for bolt in worker._wired.bolts.values()}


def test_bolt_before_a_slow_one_has_the_pace_of_the_slow_one() -> None:
    services = measured(Slow(Watch(), 1e-3))
    for service in services.values():
        assert 0.4e-3 < (service.pace_s or 0) < 2e-3
        assert 100 < service.window < 600, "a quarter of a second, about: slices come in bursts"
    assert services["quick"].slice_records > 250, "its own work takes no time"


def test_commit_of_a_batch_does_not_count_for_the_pace_of_its_records() -> None:
    service = measured(Committing(Watch(), 1e-4, flush_s=0.05))["last"]
    assert service.slice_records == pytest.approx(0.05 / 1e-4, rel=0.01), "as long as the commit"


@pytest.mark.parametrize(("grouping", "records"), [("shuffle", 20), ("fields", 10)])
def test_spout_emits_a_window_for_each_task_that_it_may_choose_and_that_has_room(
    grouping: str, records: int
) -> None:
    topology = Topology("t", workers=1)
    numbers = topology.spout("numbers", Counter(100))
    grouped = numbers.shuffle() if grouping == "shuffle" else numbers.fields("value")
    grouped.bolt("sink", Quick, parallelism=3)
    worker = Worker(make_plan(topology.graph()), 0, 1, seeded(0), ManualClock())
    (spout,) = worker._wired.spouts.values()
    full, *others = spout.output_streams._channels
    for channel in (full, *others):
        channel.used, channel.window = True, 10
    full.load = 10
    assert spout.output_streams.spread == records
