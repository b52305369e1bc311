"""Tests of the supervision of a task: retries, quarantine, outages and doubt."""

from __future__ import annotations

import pytest

from sunshower.config import Config
from sunshower.errors import BadEmit, SourceError, TopologyFailed
from sunshower.failures import Cause
from sunshower.runtime.events.health import Standing, TaskError, WaitKind
from sunshower.runtime.plan import Task
from sunshower.runtime.tasks.supervision import Supervision, backoff
from sunshower.runtime.tasks.user_code import Raised, as_raised, guard

TASK = Task(3, "count", 1, 2)


def raised(text: str = "gone") -> Raised:
    return as_raised(TASK, "open", OSError(text))


def supervise(**settings: float) -> Supervision:
    supervision = Supervision(TASK, Config(**settings))  # type: ignore[arg-type]
    supervision.tried()
    return supervision


def test_new_task_waits_to_be_opened() -> None:
    supervision = Supervision(TASK, Config(), first_try_s=7.0)
    assert supervision.waits
    assert supervision.retry_s == 7.0
    supervision.tried()
    assert supervision.standing is Standing.RUNNING


def test_each_error_in_a_row_doubles_the_wait_up_to_a_cap() -> None:
    supervision = supervise(task_errors_max=100)
    waits = []
    for _ in range(9):
        supervision.raised(raised(), 1.0)
        waits.append(round(supervision.retry_s - 1.0, 6))
        supervision.tried()
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert backoff(0.1, 10**6, 5.0) == 5.0, "a long row does not overflow"
    assert backoff(0.1, 0, 5.0) == 0.0


def test_last_error_in_a_row_quarantines_and_a_trial_follows_every_thirty_seconds() -> None:
    supervision = supervise()
    for now in range(4):
        supervision.raised(raised(f"no {now}"), float(now))
        assert supervision.waits
        supervision.tried()
    supervision.raised(raised("no more"), 4.0)
    assert supervision.is_quarantined
    assert supervision.retry_s == 34.0
    failure = supervision.failure
    assert (failure.cause, failure.component, failure.task) == (Cause.QUARANTINED, "count", 1)
    assert failure.reason == "open of count[1] raised OSError: no more"
    assert (failure.worker, failure.exception) == (2, "OSError")
    assert supervision.health.errors == 5
    assert [error.text[-4:] for error in supervision.health.last] == [
        "no 0",
        "no 1",
        "no 2",
        "no 3",
        "more",
    ]


def test_progress_ends_a_row() -> None:
    supervision = supervise(task_errors_max=2)
    supervision.raised(raised(), 0.0)
    supervision.tried()
    supervision.went_well(0.2, progress=True)
    supervision.raised(raised(), 0.3)
    assert supervision.waits
    assert supervision.retry_s == pytest.approx(0.4), "the back-off starts again from the beginning"


def test_nothing_to_emit_is_no_progress_until_it_has_lasted() -> None:
    supervision = supervise(task_errors_max=2)
    supervision.raised(raised(), 0.0)
    supervision.tried()
    supervision.went_well(1.0, progress=False)
    supervision.went_well(5.9, progress=False)
    supervision.raised(raised(), 6.0)
    assert supervision.waits, "five seconds without an error end a row"
    supervision.tried()
    supervision.went_well(7.0, progress=False)
    supervision.raised(raised(), 11.9)
    assert supervision.is_quarantined


def test_noted_errors_do_not_stop_the_task_and_the_last_five_are_kept() -> None:
    supervision = supervise()
    for n in range(9):
        supervision.note(raised(str(n)))
    assert supervision.standing is Standing.RUNNING
    assert supervision.health.errors == 9
    assert [error.text[-1] for error in supervision.health.last] == ["4", "5", "6", "7", "8"]


def test_task_that_is_created_with_an_error_is_quarantined() -> None:
    why = TaskError("count", 1, 2, "its process died 6 times")
    supervision = Supervision(TASK, Config(), quarantined=why)
    assert supervision.is_quarantined
    assert supervision.failure.reason == "its process died 6 times"


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
    with pytest.raises(Raised) as caught:
        guard(TASK, "ack", lambda: broken(error))
    assert caught.value.error.text == text
    assert caught.value.__cause__ is error


def test_story_of_an_exception_says_what_to_do_and_has_the_traceback() -> None:
    with pytest.raises(Raised) as caught:
        guard(TASK, "ack", lambda: broken(OSError("gone")))
    story = caught.value.error.story
    assert story.startswith(
        "ack of count[1] raised OSError: gone. Fix it and run again.\nTraceback"
    )
    assert "in broken" in story


def test_a_memory_error_is_not_an_error_of_the_task_but_an_interrupt_of_user_code_is() -> None:
    with pytest.raises(Raised, match=r"ack of count\[1\] raised KeyboardInterrupt"):
        guard(TASK, "ack", lambda: broken(KeyboardInterrupt()))
    with pytest.raises(TopologyFailed, match=r"ack of count\[1\] raised MemoryError"):
        guard(TASK, "ack", lambda: broken(MemoryError()))


# ---- outages and doubt --------------------------------------------------------------------------


def outage() -> Raised:
    return as_raised(TASK, "open", ConnectionRefusedError("nothing listens"))


def test_an_outage_never_quarantines_and_its_wait_doubles_up_to_ten_seconds() -> None:
    supervision, now, waits = supervise(), 0.0, []
    for _ in range(20):
        supervision.raised(outage(), now)
        assert supervision.waits
        waits.append(supervision.retry_s - now)
        now = supervision.retry_s
        supervision.tried()
    assert waits[:8] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0])
    assert set(map(round, waits[8:])) == {10}
    assert supervision.in_a_row == 0


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
def test_jitter_takes_up_to_half_of_a_wait(chance: float) -> None:
    supervision = Supervision(TASK, Config(), chance=lambda: chance)
    supervision.raised(outage(), 7.0)
    assert supervision.retry_s == pytest.approx(7.0 + 0.1 * (1 - chance / 2))


def test_health_has_the_kind_time_tries_and_last_error_of_a_wait() -> None:
    supervision = supervise()
    for now in (10.0, 20.0, 30.0):
        supervision.raised(outage(), now)
        supervision.tried()
    supervision.now_s = 45.0
    wait = supervision.health.wait
    assert wait is not None
    assert (wait.kind, wait.for_s, wait.tries) == (WaitKind.UNAVAILABLE, 35.0, 3)
    assert not wait.reached, "no task of the component has ever succeeded"
    assert "ConnectionRefusedError: nothing listens" in wait.error.text
    supervision.succeed()
    assert supervision.health.wait is None
    supervision.raised(outage(), 50.0)
    wait = supervision.health.wait
    assert wait is not None
    assert (wait.for_s, wait.tries, wait.reached) == (0.0, 1, True)


def test_exception_types_that_the_user_adds_are_outages_too() -> None:
    class Busy(Exception):
        pass

    supervision = Supervision(TASK, Config(task_errors_max=1), unavailable=(Busy,))
    supervision.raised(as_raised(TASK, "open", Busy()), 0.0)
    assert supervision.waits
    supervision.raised(as_raised(TASK, "open", ValueError()), 0.0)
    assert supervision.is_quarantined


def test_outages_do_not_end_a_row_of_other_errors() -> None:
    supervision = supervise(task_errors_max=2)
    for now, error in enumerate([raised(), outage(), outage()]):
        supervision.raised(error, float(now))
        assert supervision.waits
    supervision.raised(raised(), 3.0)
    assert supervision.is_quarantined


def test_a_bolt_in_quarantine_that_can_be_opened_runs_again() -> None:
    supervision = supervise(task_errors_max=1)
    supervision.raised(raised(), 0.0)
    assert (supervision.is_quarantined, supervision.retry_s) == (True, 30.0)
    supervision.raised(raised(), 30.0)
    assert (supervision.is_quarantined, supervision.retry_s) == (True, 60.0)
    supervision.tried()
    assert supervision.runs


def test_failures_of_a_quarantined_bolt_are_charged_only_if_it_never_succeeded() -> None:
    supervision = supervise(task_errors_max=1)
    supervision.raised(raised(), 0.0)
    assert supervision.failure.is_charged, "a bug, which its developer should see soon"
    supervision.proven = True
    assert not supervision.failure.is_charged


def test_a_source_is_in_doubt_for_ten_minutes_only_if_it_has_emitted() -> None:
    supervision = supervise()
    assert not supervision.doubted(raised(), 0.0), "it never emitted"
    supervision.proven = True
    now = 100.0
    while supervision.doubted(raised(), now):
        wait = supervision.health.wait
        assert wait is not None
        assert (supervision.waits, wait.kind, wait.reached) == (True, WaitKind.DOUBT, True)
        now = supervision.retry_s
        supervision.tried()
    assert 700.0 <= now < 710.0


def test_an_outage_is_not_doubt_and_ends_it() -> None:
    supervision = supervise()
    supervision.proven = True
    assert supervision.doubted(raised(), 0.0)
    assert not supervision.doubted(outage(), 300.0)
    supervision.raised(outage(), 300.0)
    assert supervision.doubted(raised(), 800.0), "the ten minutes start again from the beginning"


def test_the_wait_of_a_source_ends_after_five_seconds_without_an_error() -> None:
    supervision = supervise()
    supervision.raised(outage(), 0.0)
    supervision.tried()
    supervision.went_well(1.0, progress=False)
    assert supervision.health.wait is not None
    supervision.went_well(6.0, progress=False)
    assert supervision.health.wait is None


@pytest.mark.parametrize("error", [ConnectionRefusedError("gone"), RuntimeError("wrong")])
def test_a_source_without_records_between_errors_is_tried_less_and_less_often(
    error: Exception,
) -> None:
    supervision, now, tries = supervise(), 0.0, 0
    supervision.proven = True
    while now < 60.0:
        failed, tries = as_raised(TASK, "records", error), tries + 1
        if not supervision.doubted(failed, now):
            supervision.raised(failed, now)
        now = supervision.retry_s
        supervision.tried()
        supervision.went_well(now, progress=False)
    assert tries < 20
