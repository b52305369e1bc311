"""Tests of the supervision of a task: retries, quarantine, outages and doubt."""

from __future__ import annotations

import pytest

from sunshower.config import Config
from sunshower.errors import BadEmit, SourceError, TopologyFailed
from sunshower.failures import Cause
from sunshower.runtime.plan import Task
from sunshower.runtime.tasks.supervision import Standing, Supervision, WaitKind, backoff
from sunshower.runtime.tasks.user_code import Raised, TaskError, as_raised, guard

TASK = Task(3, "count", 1, 2)


def raised(text: str = "gone") -> Raised:
    return as_raised(TASK, "open", OSError(text))


def supervision(**settings: float) -> Supervision:
    care = Supervision(TASK, Config(**settings))  # type: ignore[arg-type]
    care.tried()
    return care


def test_new_task_waits_to_be_opened() -> None:
    care = Supervision(TASK, Config(), first_try_s=7.0)
    assert care.waits
    assert care.retry_s == 7.0
    care.tried()
    assert care.standing is Standing.RUNNING


def test_each_error_in_a_row_doubles_the_wait_up_to_a_cap() -> None:
    care = supervision(task_errors_max=100)
    waits = []
    for _ in range(9):
        care.raised(raised(), 1.0)
        waits.append(round(care.retry_s - 1.0, 6))
        care.tried()
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert backoff(0.1, 10**6, 5.0) == 5.0, "a long row does not overflow"
    assert backoff(0.1, 0, 5.0) == 0.0


def test_last_error_in_a_row_quarantines_and_a_trial_follows_every_thirty_seconds() -> None:
    care = supervision()
    for now in range(4):
        care.raised(raised(f"no {now}"), float(now))
        assert care.waits
        care.tried()
    care.raised(raised("no more"), 4.0)
    assert care.is_quarantined
    assert care.retry_s == 34.0
    failure = care.failure
    assert (failure.cause, failure.component, failure.task) == (Cause.QUARANTINED, "count", 1)
    assert failure.reason == "open of count[1] raised OSError: no more"
    assert (failure.worker, failure.exception) == (2, "OSError")
    assert care.health.errors == 5
    assert [error.text[-4:] for error in care.health.last] == [
        "no 0",
        "no 1",
        "no 2",
        "no 3",
        "more",
    ]


def test_progress_ends_a_row() -> None:
    care = supervision(task_errors_max=2)
    care.raised(raised(), 0.0)
    care.tried()
    care.went_well(0.2, progress=True)
    care.raised(raised(), 0.3)
    assert care.waits
    assert care.retry_s == pytest.approx(0.4), "the back-off starts again from the beginning"


def test_nothing_to_emit_is_no_progress_until_it_has_lasted() -> None:
    care = supervision(task_errors_max=2)
    care.raised(raised(), 0.0)
    care.tried()
    care.went_well(1.0, progress=False)
    care.went_well(5.9, progress=False)
    care.raised(raised(), 6.0)
    assert care.waits, "five seconds without an error end a row"
    care.tried()
    care.went_well(7.0, progress=False)
    care.raised(raised(), 11.9)
    assert care.is_quarantined


def test_noted_errors_do_not_stop_the_task_and_the_last_five_are_kept() -> None:
    care = supervision()
    for n in range(9):
        care.note(raised(str(n)))
    assert care.standing is Standing.RUNNING
    assert care.health.errors == 9
    assert [error.text[-1] for error in care.health.last] == ["4", "5", "6", "7", "8"]


def test_task_that_is_created_with_an_error_is_quarantined() -> None:
    why = TaskError("count", 1, 2, "its process died 6 times")
    care = Supervision(TASK, Config(), quarantined=why)
    assert care.is_quarantined
    assert care.failure.reason == "its process died 6 times"


def broken(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError("gone"), "ack of count[1] raised OSError: gone"),
        (SystemExit(3), "ack of count[1] raised SystemExit: 3"),
        (SourceError("a.txt is missing"), "a.txt is missing"),
        (BadEmit("no stream 'x'"), "count[1]: no stream 'x'"),
    ],
)
def test_error_names_its_call_and_task(error: BaseException, text: str) -> None:
    with pytest.raises(Raised) as told:
        guard(TASK, "ack", lambda: broken(error))
    assert told.value.error.text == text
    assert told.value.__cause__ is error


def test_story_of_an_exception_says_what_to_do_and_has_the_traceback() -> None:
    with pytest.raises(Raised) as told:
        guard(TASK, "ack", lambda: broken(OSError("gone")))
    story = told.value.error.story
    assert story.startswith(
        "ack of count[1] raised OSError: gone. Mend it and run again.\nTraceback"
    )
    assert "in broken" in story


def test_interrupts_and_memory_errors_are_not_errors_of_the_task() -> None:
    with pytest.raises(KeyboardInterrupt):
        guard(TASK, "ack", lambda: broken(KeyboardInterrupt()))
    with pytest.raises(TopologyFailed, match=r"ack of count\[1\] raised MemoryError"):
        guard(TASK, "ack", lambda: broken(MemoryError()))


# ---- outages and doubt --------------------------------------------------------------------------


def away() -> Raised:
    return as_raised(TASK, "open", ConnectionRefusedError("nobody listens"))


def test_an_outage_never_quarantines_and_its_wait_doubles_up_to_ten_seconds() -> None:
    care, now, waits = supervision(), 0.0, []
    for _ in range(20):
        care.raised(away(), now)
        assert care.waits
        waits.append(care.retry_s - now)
        now = care.retry_s
        care.tried()
    assert waits[:8] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0])
    assert set(map(round, waits[8:])) == {10}
    assert care.in_a_row == 0


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
def test_jitter_takes_up_to_half_of_a_wait(chance: float) -> None:
    care = Supervision(TASK, Config(), chance=lambda: chance)
    care.raised(away(), 7.0)
    assert care.retry_s == pytest.approx(7.0 + 0.1 * (1 - chance / 2))


def test_health_has_the_kind_time_tries_and_last_error_of_a_wait() -> None:
    care = supervision()
    for now in (10.0, 20.0, 30.0):
        care.raised(away(), now)
        care.tried()
    care.now_s = 45.0
    wait = care.health.wait
    assert wait is not None
    assert (wait.kind, wait.for_s, wait.tries) == (WaitKind.UNAVAILABLE, 35.0, 3)
    assert not wait.reached, "no task of the component has ever succeeded"
    assert "ConnectionRefusedError: nobody listens" in wait.error.text
    care.succeed()
    assert care.health.wait is None
    care.raised(away(), 50.0)
    wait = care.health.wait
    assert wait is not None
    assert (wait.for_s, wait.tries, wait.reached) == (0.0, 1, True)


def test_exception_types_that_the_user_adds_are_outages_too() -> None:
    class Busy(Exception):
        pass

    care = Supervision(TASK, Config(task_errors_max=1), unavailable=(Busy,))
    care.raised(as_raised(TASK, "open", Busy()), 0.0)
    assert care.waits
    care.raised(as_raised(TASK, "open", ValueError()), 0.0)
    assert care.is_quarantined


def test_outages_do_not_end_a_row_of_other_errors() -> None:
    care = supervision(task_errors_max=2)
    for now, error in enumerate([raised(), away(), away()]):
        care.raised(error, float(now))
        assert care.waits
    care.raised(raised(), 3.0)
    assert care.is_quarantined


def test_a_bolt_in_quarantine_that_can_be_opened_runs_again() -> None:
    care = supervision(task_errors_max=1)
    care.raised(raised(), 0.0)
    assert (care.is_quarantined, care.retry_s) == (True, 30.0)
    care.raised(raised(), 30.0)
    assert (care.is_quarantined, care.retry_s) == (True, 60.0)
    care.tried()
    assert care.runs


def test_failures_of_a_quarantined_bolt_are_charged_only_if_it_never_succeeded() -> None:
    care = supervision(task_errors_max=1)
    care.raised(raised(), 0.0)
    assert care.failure.is_charged, "a bug, which its developer should see soon"
    care.proven = True
    assert not care.failure.is_charged


def test_a_source_is_in_doubt_for_ten_minutes_only_if_it_has_emitted() -> None:
    care = supervision()
    assert not care.doubted(raised(), 0.0), "it never emitted"
    care.proven = True
    now = 100.0
    while care.doubted(raised(), now):
        wait = care.health.wait
        assert wait is not None
        assert (care.waits, wait.kind, wait.reached) == (True, WaitKind.DOUBT, True)
        now = care.retry_s
        care.tried()
    assert 700.0 <= now < 710.0


def test_an_outage_is_not_doubt_and_ends_it() -> None:
    care = supervision()
    care.proven = True
    assert care.doubted(raised(), 0.0)
    assert not care.doubted(away(), 300.0)
    care.raised(away(), 300.0)
    assert care.doubted(raised(), 800.0), "the ten minutes start again from the beginning"


def test_the_wait_of_a_source_ends_after_five_seconds_without_an_error() -> None:
    care = supervision()
    care.raised(away(), 0.0)
    care.tried()
    care.went_well(1.0, progress=False)
    assert care.health.wait is not None
    care.went_well(6.0, progress=False)
    assert care.health.wait is None


@pytest.mark.parametrize("error", [ConnectionRefusedError("away"), RuntimeError("wrong")])
def test_a_source_without_records_between_errors_is_tried_less_and_less_often(
    error: Exception,
) -> None:
    care, now, tries = supervision(), 0.0, 0
    care.proven = True
    while now < 60.0:
        failed, tries = as_raised(TASK, "records", error), tries + 1
        if not care.doubted(failed, now):
            care.raised(failed, now)
        now = care.retry_s
        care.tried()
        care.went_well(now, progress=False)
    assert tries < 20
