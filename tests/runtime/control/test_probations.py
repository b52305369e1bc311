"""Tasks whose process kept dying are tried again for ever, until they have recovered."""

from __future__ import annotations

import pytest

from sunshower import Counter, Number, Topology
from sunshower.runtime.control.crash_report import CrashReport
from sunshower.runtime.control.master import Master
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.messages import Welcome
from sunshower.runtime.events.metrics import Counts, TaskStats, WorkerStats
from sunshower.runtime.plan import Layout, Plan, make_plan
from sunshower.runtime.tasks.supervision import WELL, Health, Standing

WORKER, BOLT = 1, 2


def keep(number: Number) -> None: ...


def plan() -> Plan:
    topology = Topology("t")
    topology.spout("numbers", Counter(9)).shuffle().bolt("keep", keep)
    return make_plan(topology.graph(), Layout.ISOLATE)


def waits_s(welcome: Welcome) -> dict[int, float]:
    return {task: quarantine.wait_s for task, quarantine in welcome.quarantined.items()}


class Story:
    """A master, and the bolt's worker, which the test lets live and die."""

    def __init__(self, book: MasterState | None = None) -> None:
        self.master, self.now, self.life = Master(plan(), book), 0.0, 0

    def hello(self, crash_report_of: int | None = None) -> Welcome:
        crash_report = CrashReport(WORKER, self.life, crash_report_of) if crash_report_of else None
        welcome = self.master.hello(WORKER, self.now, crash_report)
        self.life = welcome.life
        return welcome

    def dies(self, times: int, after_s: float = 1.0) -> Welcome:
        """So many times in the bolt's code, each after so many seconds."""
        for _ in range(times):
            self.now += after_s
            welcome = self.hello(BOLT)
            self.now += welcome.delay_s
        return welcome

    def tells(self, health: Health = WELL, executed: int = 0, life: int | None = None) -> None:
        stats = TaskStats(BOLT, "keep", Counts(executed=executed), health=health)
        self.master.hear(WorkerStats(WORKER, life or self.life, (stats,)), self.now)

    @property
    def degraded(self) -> bool:
        return BOLT in self.master.snapshot(self.now).degraded


@pytest.fixture
def story() -> Story:
    """The bolt has just been quarantined, for its process died six times."""
    made = Story()
    made.hello()
    made.dies(5)
    assert not made.degraded
    welcome = made.dies(1)
    assert waits_s(welcome) == {BOLT: 30.0}
    return made


RUNS = Health(Standing.RUNNING)


def on_trial(story: Story) -> None:
    """The wait is over: its worker tells that the bolt runs."""
    story.tells(Health(Standing.QUARANTINED))
    story.now += 600
    story.tells(RUNS)


def test_waits_grow_from_half_a_minute_to_ten_minutes_and_never_end(story: Story) -> None:
    waits = []
    for _ in range(8):
        on_trial(story)
        waits.append(waits_s(story.dies(1))[BOLT])
    assert waits == [60, 120, 240, 480, 600, 600, 600, 600]
    assert story.degraded


def test_death_without_a_crash_report_counts_if_the_task_was_running(story: Story) -> None:
    assert waits_s(story.hello()) == {BOLT: 30.0}, "it had not been tried"
    on_trial(story)
    assert waits_s(story.hello()) == {BOLT: 60.0}


def test_death_in_the_code_of_another_task_does_not_count(story: Story) -> None:
    on_trial(story)
    assert waits_s(story.hello(1)) == {BOLT: 30.0}


def test_task_that_runs_and_works_for_half_a_minute_has_recovered(story: Story) -> None:
    on_trial(story)
    story.now += 29
    story.tells(RUNS, executed=3)
    assert story.degraded
    story.now += 1
    assert not story.degraded, "nothing new was told, and the time is over"
    assert story.dies(1).quarantined == {}


def test_task_that_was_given_nothing_to_do_has_not_recovered(story: Story) -> None:
    on_trial(story)
    story.now += 60
    assert story.degraded
    story.tells(RUNS, executed=1)
    assert not story.degraded


def test_interruption_begins_the_half_minute_anew(story: Story) -> None:
    on_trial(story)
    story.now += 20
    story.tells(Health(Standing.WAITING), executed=3)
    story.now += 20
    story.tells(RUNS, executed=4)
    assert story.degraded
    story.now += 30
    assert not story.degraded


def test_next_quarantine_begins_with_the_shortest_wait(story: Story) -> None:
    on_trial(story)
    story.dies(1)
    on_trial(story)
    story.now += 30
    story.tells(RUNS, executed=1)
    assert not story.degraded
    assert waits_s(story.dies(7)) == {BOLT: 30.0}


def test_next_master_knows_of_it_and_waits_as_at_first(story: Story) -> None:
    on_trial(story)
    story.dies(1)
    after = Story(MasterState.from_bytes(story.master.stored.to_bytes()))
    assert after.degraded
    assert waits_s(after.hello()) == {BOLT: 30.0}
