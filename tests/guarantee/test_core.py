"""One test for each row of docs/GUARANTEES.md on the pure core, under virtual time.

What the spout hears (cause, place, attempt), and how long it is until the tuple is worked on again.
"""

from __future__ import annotations

import pytest

from sunshower import Cause
from sunshower.runtime.plan import ACKER, Layout
from tests.guarantee.stage import Forget, Refuse, Stage, Work
from tests.runtime.harness import Faults

TIMEOUT_S, GRACE_S, RESTART_S = 30.0, 1.0, 0.6  # RESTART_S: what the harness takes at most
BACK_OFF_S = 0.15  # 0.1 s and half of it more, before the second attempt
A_MOMENT_S = 0.3  # grants, reports and retries of lanes
SEEDS = pytest.mark.parametrize("seed", range(10))


def once(wrong: Exception, number: int = 3) -> Work:
    def work(seen: int, before: int) -> None:
        if seen == number and not before:
            raise wrong

    return work


@SEEDS
def test_failed_by_bolt(seed: int) -> None:
    stage = Stage(once(Refuse("not today")), seed=seed)
    journal = stage.run()
    failure = journal.told_of(3)
    assert (failure.cause, failure.component, failure.task) == (Cause.FAILED, "work", 0)
    assert (failure.reason, failure.attempt) == ("not today", 1)
    assert failure.worker == stage.worker_of("work")
    assert journal.replayed_after_s(3) < BACK_OFF_S + A_MOMENT_S
    assert {heard.number for heard in journal.heard} == {3}


@SEEDS
def test_exception(seed: int) -> None:
    stage = Stage(once(ValueError("a bad day")), seed=seed)
    journal = stage.run()
    failure = journal.told_of(3)
    assert (failure.cause, failure.component, failure.task) == (Cause.EXCEPTION, "work", 0)
    assert failure.exception == "ValueError"
    assert "a bad day" in failure.reason
    assert "in work\n    raise wrong" in failure.traceback
    assert journal.replayed_after_s(3) < BACK_OFF_S + A_MOMENT_S
    assert {heard.number for heard in journal.heard} == {3}


@SEEDS
def test_timeout(seed: int) -> None:
    stage = Stage(once(Forget()), seed=seed, message_timeout_s=TIMEOUT_S)
    journal = stage.run()
    failure = journal.told_of(3)
    assert (failure.cause, failure.component) == (Cause.TIMEOUT, "")
    assert "30 s" in failure.reason
    assert TIMEOUT_S - A_MOMENT_S < journal.replayed_after_s(3) < TIMEOUT_S + BACK_OFF_S + 1
    assert {heard.number for heard in journal.heard} == {3}


@SEEDS
@pytest.mark.parametrize("component", ["work", "store"])
def test_death_of_a_bolt(seed: int, component: str) -> None:
    stage = Stage(seed=seed)
    stage.until_acked(stage.total // 2)
    killed_s = stage.crash(component)
    journal = stage.run()
    for heard in journal.heard:
        assert (heard.failure.cause, heard.failure.component) == (Cause.ACTOR_DIED, component)
        assert heard.at_s - killed_s < RESTART_S + GRACE_S + A_MOMENT_S
    last_s = max(times[0] for times in journal.acked_s.values())
    assert last_s - killed_s < RESTART_S + GRACE_S + BACK_OFF_S + A_MOMENT_S


@SEEDS
def test_death_of_an_acker_shard(seed: int) -> None:
    stage = Stage(seed=seed)
    stage.until_acked(stage.total // 2)
    killed_s = stage.crash(ACKER)
    journal = stage.run()
    for heard in journal.heard:
        assert (heard.failure.cause, heard.failure.component) == (Cause.ACTOR_DIED, ACKER)
    last_s = max(times[0] for times in journal.acked_s.values())
    assert last_s - killed_s < RESTART_S + GRACE_S + BACK_OFF_S + A_MOMENT_S


@SEEDS
def test_death_of_a_packed_worker(seed: int) -> None:
    stage = Stage(seed=seed, layout=Layout.PACK)
    stage.until_acked(stage.total // 2)
    killed_s = stage.crash("work")
    journal = stage.run()
    last_s = max(times[0] for times in journal.acked_s.values())
    assert last_s - killed_s < RESTART_S + GRACE_S + BACK_OFF_S + A_MOMENT_S


@SEEDS
def test_death_of_a_node(seed: int) -> None:
    stage = Stage(seed=seed)
    stage.until_acked(stage.total // 2)
    killed_s = stage.crash("work", "store", ACKER)
    journal = stage.run()
    assert {heard.failure.cause for heard in journal.heard} <= {Cause.ACTOR_DIED}
    last_s = max(times[0] for times in journal.acked_s.values())
    assert last_s - killed_s < RESTART_S + GRACE_S + BACK_OFF_S + 2 * A_MOMENT_S


@SEEDS
def test_bad_frame(seed: int) -> None:
    journal = Stage(seed=seed, faults=Faults(corrupt=0.3), total=200).run()
    assert {heard.failure.cause for heard in journal.heard} == {Cause.BAD_FRAME}
    assert all(heard.failure.component for heard in journal.heard), "where it was to go is told"
    assert max(heard.at_s for heard in journal.heard) < TIMEOUT_S / 3


@SEEDS
def test_frame_that_nobody_answered(seed: int) -> None:
    journal = Stage(seed=seed, faults=Faults(drop=0.2), total=200).run()
    assert {heard.failure.cause for heard in journal.heard} == {Cause.ACTOR_DIED}
    assert all(heard.failure.component for heard in journal.heard), "where it was to go is told"


@SEEDS
def test_frame_that_comes_twice(seed: int) -> None:
    journal = Stage(seed=seed, faults=Faults(repeat=0.5), total=200).run()
    assert not journal.heard
    assert set(journal.stored.values()) == {1}
