"""Tasks that were quarantined because their process died are tried until they have recovered."""

from __future__ import annotations

import pytest

from sunshower import Counter, Number, Topology
from sunshower.runtime.control import events
from sunshower.runtime.control.events import Welcome
from sunshower.runtime.control.master import Master
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.events.health import WELL, Health, Standing
from sunshower.runtime.events.metrics import Counts, TaskStats, WorkerStats
from sunshower.runtime.plan import Layout, Plan, make_plan
from sunshower.runtime.tasks.flight_recorder import CrashReport

WORKER, BOLT = 1, 2


def keep(number: Number) -> None: ...


def plan() -> Plan:
    topology = Topology("t")
    topology.spout("numbers", Counter(9)).shuffle().bolt("keep", keep)
    return make_plan(topology.graph(), Layout.ISOLATE)


def waits_s(welcome: Welcome) -> dict[int, float]:
    return {task: quarantine.wait_s for task, quarantine in welcome.quarantined.items()}


class DyingWorker:
    """A master and the worker of the bolt; the test starts the worker and lets it die."""

    def __init__(self, state: MasterState | None = None) -> None:
        self.master, self.now, self.life = Master(plan(), state), 0.0, 0

    def hello(self, crash_report_of: int | None = None) -> Welcome:
        crash_report = CrashReport(WORKER, self.life, crash_report_of) if crash_report_of else None
        welcome = self.master.apply(events.Hello(WORKER, crash_report), self.now).answer
        self.life = welcome.life
        return welcome

    def die(self, times: int, after_s: float = 1.0) -> Welcome:
        """Die `times` times in the code of the bolt, each time after `after_s`."""
        for _ in range(times):
            self.now += after_s
            welcome = self.hello(BOLT)
            self.now += welcome.delay_s
        return welcome

    def report(self, health: Health = WELL, executed: int = 0, life: int | None = None) -> None:
        stats = TaskStats(BOLT, "keep", Counts(executed=executed), health=health)
        self.master.apply(
            events.Statistics(WorkerStats(WORKER, life or self.life, (stats,))), self.now
        )

    @property
    def degraded(self) -> bool:
        return BOLT in self.master.snapshot(self.now).degraded


@pytest.fixture
def worker() -> DyingWorker:
    """The bolt has just been quarantined, because its process died six times."""
    dying = DyingWorker()
    dying.hello()
    dying.die(5)
    assert not dying.degraded
    welcome = dying.die(1)
    assert waits_s(welcome) == {BOLT: 30.0}
    return dying


RUNS = Health(Standing.RUNNING)


def begin_trial(worker: DyingWorker) -> None:
    """The wait is over, and the worker reports that the bolt runs."""
    worker.report(Health(Standing.QUARANTINED))
    worker.now += 600
    worker.report(RUNS)


def test_waits_grow_from_half_a_minute_to_ten_minutes_and_never_end(worker: DyingWorker) -> None:
    waits = []
    for _ in range(8):
        begin_trial(worker)
        waits.append(waits_s(worker.die(1))[BOLT])
    assert waits == [60, 120, 240, 480, 600, 600, 600, 600]
    assert worker.degraded


def test_death_without_a_crash_report_counts_if_the_task_was_running(worker: DyingWorker) -> None:
    assert waits_s(worker.hello()) == {BOLT: 30.0}, "it had not been tried"
    begin_trial(worker)
    assert waits_s(worker.hello()) == {BOLT: 60.0}


def test_death_in_the_code_of_another_task_does_not_count(worker: DyingWorker) -> None:
    begin_trial(worker)
    assert waits_s(worker.hello(1)) == {BOLT: 30.0}


def test_task_that_runs_and_works_for_half_a_minute_has_recovered(worker: DyingWorker) -> None:
    begin_trial(worker)
    worker.now += 29
    worker.report(RUNS, executed=3)
    assert worker.degraded
    worker.now += 1
    assert not worker.degraded, "there is no new report, but the time is over"
    assert worker.die(1).quarantined == {}


def test_task_without_inputs_has_not_recovered(worker: DyingWorker) -> None:
    begin_trial(worker)
    worker.now += 60
    assert worker.degraded
    worker.report(RUNS, executed=1)
    assert not worker.degraded


def test_interruption_restarts_the_half_minute(worker: DyingWorker) -> None:
    begin_trial(worker)
    worker.now += 20
    worker.report(Health(Standing.WAITING), executed=3)
    worker.now += 20
    worker.report(RUNS, executed=4)
    assert worker.degraded
    worker.now += 30
    assert not worker.degraded


def test_next_quarantine_begins_with_the_shortest_wait(worker: DyingWorker) -> None:
    begin_trial(worker)
    worker.die(1)
    begin_trial(worker)
    worker.now += 30
    worker.report(RUNS, executed=1)
    assert not worker.degraded
    assert waits_s(worker.die(7)) == {BOLT: 30.0}


def test_next_master_keeps_the_quarantine_and_begins_with_the_shortest_wait(
    worker: DyingWorker,
) -> None:
    begin_trial(worker)
    worker.die(1)
    after = DyingWorker(MasterState.from_bytes(worker.master.stored.to_bytes()))
    assert after.degraded
    assert waits_s(after.hello()) == {BOLT: 30.0}
