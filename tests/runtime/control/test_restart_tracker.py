"""Workers that keep dying: when they are held back, and which task is blamed."""

from __future__ import annotations

import numpy as np
import pytest

from sunshower import Counter, Number, Topology
from sunshower.runtime.control.crash_report import CrashReport
from sunshower.runtime.control.restart_tracker import RestartTracker
from sunshower.runtime.events.metrics import Counts, TaskStats, WorkerStats
from sunshower.runtime.plan import ACKER, Layout, Plan, make_plan


def keep(number: Number) -> None: ...


def plan(layout: Layout = Layout.PACK, **settings: float) -> Plan:
    topology = Topology("t", **{"ackers": 1, "workers": 1, **settings})
    numbers = topology.spout("numbers", Counter(9))
    numbers.shuffle().bolt("first", keep)
    numbers.shuffle().bolt("second", keep)
    return make_plan(topology.graph(), layout)


PLAN = plan()
(SPOUT,), (FIRST,), (SECOND,), (SHARD,) = (
    [task.id for task in PLAN.tasks_of(name)] for name in ("numbers", "first", "second", ACKER)
)


def died(
    lives: RestartTracker,
    times: int,
    *,
    after_s: float = 1.0,
    worker: int = 0,
    crash_report: CrashReport | None = None,
    last: WorkerStats | None = None,
) -> list[dict[int, str]]:
    """Deaths in a row, each `after_s` after the tasks were opened; who is guilty after each."""
    found = []
    for _ in range(times):
        now = lives.began(worker, 100.0) + 100.0 + after_s
        found.append({t: e.text for t, e in lives.died(worker, now, last, crash_report).items()})
    return found


def by(task: int | None) -> CrashReport:
    return CrashReport(0, 1, task)


def did(**executed: int) -> WorkerStats:
    tasks = {"numbers": SPOUT, "first": FIRST, "second": SECOND}
    counts = {"numbers": "emitted"}
    return WorkerStats(
        0,
        1,
        tuple(
            TaskStats(tasks[name], name, Counts(**{counts.get(name, "executed"): done}))
            for name, done in executed.items()
        ),
    )


# ---- back-off -----------------------------------------------------------------------------------


def test_first_deaths_are_followed_at_once_and_the_next_ones_later_and_later() -> None:
    lives, delays = RestartTracker(PLAN), []
    for _ in range(9):
        delays.append(lives.began(0, 0.0))
        lives.died(0, delays[-1] + 4.9, None, by(None))
    assert delays == [0.0, 0.0, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0]


def test_long_life_ends_the_row() -> None:
    lives = RestartTracker(PLAN)
    died(lives, 5)
    assert lives.began(0, 0.0) > 0
    lives.died(0, 20.0, None, None)
    assert lives.began(0, 0.0) == 0.0


def test_life_that_this_master_has_not_seen_begin_counts_as_long() -> None:
    lives = RestartTracker(PLAN)
    assert lives.died(0, 0.1, None, by(FIRST)) == {}
    assert died(lives, 5, crash_report=by(FIRST))[-1] == {}, (
        "five, and the one before is not counted"
    )


# ---- guilt --------------------------------------------------------------------------------------


def test_task_whose_code_ran_at_each_of_six_deaths_is_guilty() -> None:
    found = died(RestartTracker(PLAN), 6, crash_report=by(FIRST))
    assert found[:5] == [{}] * 5
    assert list(found[5]) == [FIRST]
    assert found[5][FIRST].startswith("first[0] is not run any more: the process of its worker")
    assert "died 6 times in a row, each time within 5 s, while it was running" in found[5][FIRST]


def test_without_an_crash_report_all_tasks_that_run_user_code_are_guilty_but_no_acker() -> None:
    assert set(died(RestartTracker(PLAN), 6)[-1]) == {SPOUT, FIRST, SECOND}


def test_task_that_has_finished_something_is_not_guilty() -> None:
    last = did(numbers=5, first=0, second=5)
    assert set(died(RestartTracker(PLAN), 6, last=last)[-1]) == {FIRST}
    assert died(RestartTracker(PLAN), 6, last=last, crash_report=by(SECOND))[-1] == {}


def test_death_outside_of_user_code_is_nobodys_guilt() -> None:
    assert died(RestartTracker(PLAN), 50, crash_report=by(None))[-1] == {}


def test_long_lives_are_nobodys_guilt() -> None:
    assert died(RestartTracker(PLAN), 50, after_s=5.0, crash_report=by(FIRST))[-1] == {}


def test_another_suspect_begins_a_new_row() -> None:
    lives = RestartTracker(PLAN)
    assert died(lives, 5, crash_report=by(FIRST))[-1] == {}
    assert died(lives, 1, crash_report=by(SECOND))[-1] == {}
    assert died(lives, 5, crash_report=by(FIRST))[-1] == {}


def test_config_says_after_how_many_deaths() -> None:
    assert list(died(RestartTracker(plan(deaths_max=2)), 2, crash_report=by(FIRST))[-1]) == [FIRST]


def test_kills_at_random_quarantine_nobody_in_ten_thousand_minutes() -> None:
    """Eight workers under load, a SIGKILL every 2 s, no crash reports: the worst that is known.

    A process is there again 0.5 to 1.5 s after its death, and has finished something 1 s later.
    """
    topology = Topology("t", ackers=1)
    topology.spout("numbers", Counter(9), 3).shuffle().bolt("keep", keep, parallelism=4)
    eight = make_plan(topology.graph(), Layout.ISOLATE)
    told = {
        (task.worker, done): WorkerStats(
            task.worker, 1, (TaskStats(task.id, task.component, Counts(executed=int(done))),)
        )
        for task in eight.tasks
        for done in (False, True)
    }
    random, lives = np.random.default_rng(7), RestartTracker(eight)
    victims = random.integers(8, size=10_000 * 30).tolist()
    restarts_s = random.uniform(0.5, 1.5, len(victims)).tolist()
    began_s = [-np.inf] * 8
    guilty, deaths, longest = 0, 0, 0
    for kill, (worker, restart_s) in enumerate(zip(victims, restarts_s, strict=True)):
        now = 2.0 * kill
        if now < began_s[worker]:
            continue  # nobody is there to be killed
        deaths += 1
        guilty += len(lives.died(worker, now, told[worker, now - began_s[worker] > 1.0], None))
        began_s[worker] = now + restart_s + lives.began(worker, now + restart_s)
        longest = max(longest, *lives._against.values())
    assert deaths > 250_000
    assert guilty == 0
    assert longest >= 3, "rows of suspicion are seen: they are not long enough"


@pytest.mark.parametrize("worker", range(3))
def test_a_worker_of_one_task_is_judged_as_any_other(worker: int) -> None:
    isolated = plan(Layout.ISOLATE)
    (task,) = isolated.tasks_on(worker)
    assert list(died(RestartTracker(isolated), 6, worker=worker)[-1]) == [task.id]
