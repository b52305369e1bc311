"""Tests of how an exception for an input is judged: as an outage, a bug, poison or doubt."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sunshower import Bolt, Cause, Failure, Number, Records, Topology
from sunshower.config import Config
from sunshower.errors import BadEmit, TopologyFailed
from sunshower.runtime.events.health import WaitKind
from sunshower.runtime.plan import Task
from sunshower.runtime.tasks.bolts.bolt_task import InputErrors
from sunshower.runtime.tasks.supervision import Supervision
from tests.runtime.rig import ROOT, Rig

TASK = Task(3, "work", 0, 1)
OUTAGE = Failure(Cause.UNAVAILABLE, "work", 0, "ConnectionError: gone", "ConnectionError")
BROKEN = Failure(Cause.EXCEPTION, "work", 0, "ValueError: no", "ValueError")


def input_errors(*, proven: bool) -> tuple[InputErrors, Supervision]:
    supervision = Supervision(TASK, Config())
    supervision.tried()
    supervision.proven = proven
    return InputErrors(supervision), supervision


def judge(
    errors: InputErrors, failure: Failure, record: Any, error: BaseException | None = None
) -> Failure:
    raised = {Cause.UNAVAILABLE: ConnectionError("gone")}
    return errors.judge(failure, record, error or raised.get(failure.cause, ValueError("no")))


# ---- an outage ---------------------------------------------------------------------------------


def test_second_outage_in_a_row_pauses_the_task_and_nothing_is_charged() -> None:
    errors, supervision = input_errors(proven=True)
    assert not judge(errors, OUTAGE, 1).is_charged
    assert (supervision.wait, errors.stops) == (None, False), (
        "a single outage may concern only this input"
    )
    assert not judge(errors, OUTAGE, 2).is_charged
    assert (supervision.wait, errors.stops) == (WaitKind.UNAVAILABLE, True)


def test_outages_with_a_success_between_them_are_not_in_a_row() -> None:
    errors, supervision = input_errors(proven=True)
    for number in range(20):
        judge(errors, OUTAGE, number)
        errors.succeed()
    assert supervision.wait is None


def test_a_task_that_waits_already_continues_to_wait_after_one_more_outage() -> None:
    errors, supervision = input_errors(proven=True)
    for number in range(2):
        judge(errors, OUTAGE, number)
    supervision.begin_pause(0.0)
    errors.stops = False
    judge(errors, OUTAGE, 3)
    assert errors.stops
    assert supervision.begin_pause(5.0) > 5.0, "it waits again"


def test_a_success_ends_the_pause() -> None:
    errors, supervision = input_errors(proven=True)
    for number in range(2):
        judge(errors, OUTAGE, number)
    supervision.begin_pause(0.0)
    errors.succeed()
    assert supervision.wait is None
    assert supervision.health.wait is None
    judge(errors, OUTAGE, 3)
    assert supervision.wait is None, "the first of a new row"


# ---- a bug, or poison --------------------------------------------------------------------------


def test_errors_of_a_component_that_never_succeeded_are_charged_however_many_they_are() -> None:
    errors, supervision = input_errors(proven=False)
    assert all(judge(errors, BROKEN, number).is_charged for number in range(100))
    assert (supervision.wait, errors.stops) == (None, False)


def test_one_record_that_comes_again_and_again_is_poison_not_doubt() -> None:
    """Equal records count as one message, because a replay may be another object."""
    errors, supervision = input_errors(proven=True)
    assert all(judge(errors, BROKEN, Number(7)).is_charged for _ in range(100))
    assert supervision.wait is None


def test_nine_different_records_in_a_row_may_be_poison() -> None:
    errors, supervision = input_errors(proven=True)
    for _ in range(5):
        assert all(judge(errors, BROKEN, number).is_charged for number in range(9))
        errors.succeed()
    assert supervision.wait is None


def test_records_that_cannot_be_compared_are_different() -> None:
    class Strange:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("cannot be compared")

        __hash__ = None  # type: ignore[assignment]

    errors, supervision = input_errors(proven=True)
    for _ in range(10):
        judge(errors, BROKEN, Strange())
    assert supervision.wait is WaitKind.DOUBT


def test_errors_that_sunshower_raises_for_an_input_are_never_in_doubt() -> None:
    """A record that does not fit its stream: waiting does not help."""
    errors, supervision = input_errors(proven=True)
    misfit = BadEmit("'two' does not fit")
    assert all(judge(errors, BROKEN, number, misfit).is_charged for number in range(100))
    assert supervision.wait is None


def test_a_bolt_may_end_the_topology() -> None:
    errors, _ = input_errors(proven=True)
    with pytest.raises(TopologyFailed, match="enough"):
        judge(errors, BROKEN, 1, TopologyFailed("enough"))


def test_an_operation_of_the_code_that_fails_is_never_in_doubt() -> None:
    errors, supervision = input_errors(proven=True)
    for number in range(100):
        with pytest.raises(TypeError) as raised:
            _ = number + "1"  # type: ignore[operator]
        assert judge(errors, BROKEN, number, raised.value).is_charged
    assert supervision.wait is None


def test_an_error_of_a_library_and_a_raise_may_be_in_doubt() -> None:
    def refuse() -> None:
        raise ValueError("the server is starting")

    for call in (refuse, lambda: json.loads("<html>")):
        errors, supervision = input_errors(proven=True)
        for number in range(10):
            with pytest.raises(ValueError, match=r"server|Expecting") as raised:
                call()
            judge(errors, BROKEN, number, raised.value)
        assert supervision.wait is WaitKind.DOUBT


# ---- doubt -------------------------------------------------------------------------------------


def test_ten_different_records_in_a_row_cause_doubt_and_no_more_charges() -> None:
    errors, supervision = input_errors(proven=True)
    judged = [judge(errors, BROKEN, number) for number in range(12)]
    assert [failure.is_charged for failure in judged] == [True] * 9 + [False] * 3
    assert all(failure.in_doubt for failure in judged[9:])
    assert (supervision.wait, errors.stops) == (WaitKind.DOUBT, True)


def test_doubt_ends_with_the_first_success() -> None:
    errors, supervision = input_errors(proven=True)
    for number in range(10):
        judge(errors, BROKEN, number)
    errors.succeed()
    assert supervision.wait is None
    assert judge(errors, BROKEN, 11).is_charged


def test_while_other_tasks_of_the_component_succeed_an_error_is_charged() -> None:
    errors, supervision = input_errors(proven=True)
    supervision.others_succeed = True
    assert all(judge(errors, BROKEN, number).is_charged for number in range(100))
    assert supervision.wait is None


def test_one_error_is_enough_while_another_task_of_the_component_is_in_doubt() -> None:
    errors, supervision = input_errors(proven=True)
    supervision.others_doubt = True  # its pause may keep further inputs from this task
    assert not judge(errors, BROKEN, 0).is_charged
    assert supervision.wait is WaitKind.DOUBT
    supervision.others_doubt = False  # so the dependency works, and this input is the cause
    assert judge(errors, BROKEN, 0).is_charged
    assert supervision.wait is None


def test_other_errors_after_an_outage_are_doubt_for_two_minutes() -> None:
    """A server that starts again may first refuse with other errors."""
    errors, supervision = input_errors(proven=True)
    for number in range(2):
        judge(errors, OUTAGE, number)
    for now_s in (100.0, 160.0, 219.9):
        assert not judge(errors, BROKEN, 2).is_charged
        supervision.begin_pause(now_s)
    supervision.begin_pause(220.0)
    supervision.now_s = 220.0
    for _ in range(5):
        assert judge(errors, BROKEN, 2).is_charged, "it is poison, and nothing else arrives"
        assert supervision.wait is None


def test_an_error_after_an_outage_and_a_success_is_charged() -> None:
    errors, supervision = input_errors(proven=True)
    for number in range(2):
        judge(errors, OUTAGE, number)
    errors.succeed()
    assert judge(errors, BROKEN, 2).is_charged
    assert supervision.wait is None


def test_doubt_ends_the_topology_after_ten_minutes_with_the_last_error() -> None:
    errors, supervision = input_errors(proven=True)
    for number in range(10):
        judge(errors, BROKEN, number)
    supervision.begin_pause(100.0)
    supervision.check_doubt(699.9)
    with pytest.raises(TopologyFailed, match=r"work.* for 10 minutes(.|\n)*ValueError: no"):
        supervision.check_doubt(700.0)


def test_an_outage_does_not_count_towards_the_ten_minutes_of_doubt() -> None:
    errors, supervision = input_errors(proven=True)
    for number in range(10):
        judge(errors, BROKEN, number)
    supervision.begin_pause(0.0)
    judge(errors, OUTAGE, 11)
    supervision.begin_pause(300.0)
    supervision.check_doubt(10_000.0)
    judge(errors, BROKEN, 12)
    supervision.begin_pause(10_000.0)
    supervision.check_doubt(10_599.0)


# ---- in a bolt ---------------------------------------------------------------------------------


class Scripted(Bolt[Number, None]):
    """Raises the exception that `script` has for a number."""

    def __init__(self, script: dict[Any, BaseException]) -> None:
        self.script = script
        self.done: list[int] = []

    def process(self, record: Number) -> None:
        if record.value in self.script:
            raise self.script[record.value]
        self.done.append(record.value)


class Flushing(Scripted):
    def flush(self) -> None:
        if "flush" in self.script:
            raise self.script["flush"]


def rig(script: dict[Any, BaseException], bolt: type[Scripted] = Scripted) -> Rig:
    topology = Topology("t", ackers=1)
    source = topology.spout("numbers", Records([Number(0)], type=Number))
    source.shuffle().bolt("work", bolt(script))
    return Rig(topology)


def numbers(*values: int) -> list[Number]:
    return list(map(Number, values))


def test_the_rest_of_a_batch_waits_for_the_end_of_an_outage() -> None:
    here = rig({n: ConnectionError("gone") for n in range(2, 9)})
    bolt = here.bolt("work")
    rest = bolt.process(here.batch("numbers", numbers(*range(9))))
    assert rest.records == numbers(*range(4, 9)), "two failed, the others were not started"
    reports = here.reports()
    assert set(reports.acks) == {ROOT, ROOT + 1}
    assert {r: [f.cause for f in why] for r, why in reports.fails.items()} == {
        ROOT + 2: [Cause.UNAVAILABLE],
        ROOT + 3: [Cause.UNAVAILABLE],
    }
    assert bolt.inputs_max == 1, "each probe takes one input"


def test_poison_among_good_records_fails_alone() -> None:
    here = rig({3: ValueError("no")})
    bolt = here.bolt("work")
    assert bolt.process(here.batch("numbers", numbers(*range(9)))) is None
    assert bolt.bolt.done == [0, 1, 2, 4, 5, 6, 7, 8]
    ((root, (failure,)),) = here.reports().fails.items()
    assert (root, failure.cause, failure.is_charged) == (ROOT + 3, Cause.EXCEPTION, True)


def test_a_batch_in_which_all_fail_after_a_success_stops_in_doubt_after_ten() -> None:
    here = rig({n: ValueError("no") for n in range(1, 50)})
    bolt = here.bolt("work")
    rest = bolt.process(here.batch("numbers", numbers(*range(50))))
    assert rest.records == numbers(*range(11, 50))
    charged = [why[0].is_charged for _, why in sorted(here.reports().fails.items())]
    assert charged == [True] * 9 + [False]
    assert bolt.supervision.wait is WaitKind.DOUBT


def test_a_batch_in_which_all_fail_and_none_ever_succeeded_is_a_bug() -> None:
    here = rig({n: ValueError("no") for n in range(50)})
    bolt = here.bolt("work")
    assert bolt.process(here.batch("numbers", numbers(*range(50)))) is None
    reports = here.reports()
    assert len(reports.fails) == 50
    assert all(why[0].is_charged for why in reports.fails.values())


def test_a_flush_that_meets_an_outage_pauses_the_task() -> None:
    script: dict[Any, BaseException] = {"flush": ConnectionError("gone")}
    here = rig(script, Flushing)
    bolt = here.bolt("work")
    bolt.process(here.batch("numbers", numbers(1, 2, 3)))
    assert {f.cause for why in here.reports().fails.values() for f in why} == {Cause.UNAVAILABLE}
    assert bolt.supervision.wait is WaitKind.UNAVAILABLE
    del script["flush"]
    bolt.bolt.script.pop("flush", None)
    bolt.process(here.batch("numbers", numbers(1)))
    assert bolt.supervision.wait is None


@pytest.mark.parametrize("error", [OSError("gone"), FileNotFoundError("a.png"), TimeoutError()])
def test_an_os_error_without_a_number_of_an_outage_is_an_ordinary_exception(
    error: OSError,
) -> None:
    here = rig({1: error})
    here.bolt("work").process(here.batch("numbers", numbers(0, 1)))
    ((_, (failure,)),) = here.reports().fails.items()
    assert failure.cause is Cause.EXCEPTION
