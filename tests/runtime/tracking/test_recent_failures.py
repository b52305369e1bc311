"""Tuples that a dead process was executing are charged an attempt, even if they failed before."""

from __future__ import annotations

from typing import Any

import numpy as np

from sunshower import Cause, DeadLetter, Failure, Records, Retry, Topology
from sunshower.runtime.tasks.spouts.replays import RecentFailures
from sunshower.runtime.tracking.ids import U64
from tests.runtime.rig import Number, Rig, records_of, sink


def collect(letter: DeadLetter) -> None: ...


DIED = Failure(Cause.ACTOR_DIED, "next", 0)
KILLED = Failure(Cause.ACTOR_DIED, "next", 0, "its process died while it was executing this")


def rig(count: int, attempts: int = 2) -> Rig:
    topology = Topology("t", ackers=1)
    source = Records([Number(n) for n in range(count)], type=Number)
    retry = Retry(attempts=attempts, dead_letters=True)
    numbers = topology.spout("numbers", source, retry=retry)
    numbers.shuffle().bolt("next", sink)
    numbers.stream("dead_letters").shuffle().bolt("collect", collect)
    return Rig(topology)


def emit(here: Rig, now: float) -> U64:
    """Emit all messages that are due. Returns the pending roots."""
    here.spout("numbers").emit(now, 100)
    roots: U64 = here.spout("numbers").pending.all_roots()
    return roots


def dead(here: Rig) -> list[Any]:
    return [letter.message_id for letter in records_of(here.sent("collect"))]


def test_pending_tuples_of_a_crash_report_fail_and_are_charged_an_attempt() -> None:
    here = rig(3)
    spout = here.spout("numbers")
    for now in (0.0, 10.0):
        roots = emit(here, now)
        spout.suspect(roots[-1:], KILLED, now)
    emit(here, 20.0)
    assert dead(here) == [2]
    assert spout.stats().counts.causes == {"actor died": 2}
    assert records_of(here.sent("collect")) == []


def test_tuples_of_a_crash_report_that_have_failed_before_are_charged_too() -> None:
    here = rig(3)
    spout = here.spout("numbers")
    for now in (0.0, 10.0):
        roots = emit(here, now)
        spout.failed(roots, DIED, now)
        spout.suspect(roots[:1], KILLED, now + 1)
    emit(here, 20.0)
    letters = records_of(here.sent("collect"))
    assert [(x.message_id, x.attempts, x.reason) for x in letters] == [(0, 2, KILLED.reason)]
    assert spout.stats().counts.failed == 6, "the charge does not count as a failure"


def test_charged_message_that_was_replayed_is_a_dead_letter_only_if_it_fails_again() -> None:
    for fate in ("completes", "fails"):
        here = rig(1, attempts=1)
        spout = here.spout("numbers")
        first = emit(here, 0.0)
        spout.failed(first, DIED, 0.0)
        second = emit(here, 0.0)
        spout.suspect(first, KILLED, 1.0)
        assert len(spout.pending) == 1
        if fate == "completes":
            spout.complete(second, 2.0)
            assert spout.done
            assert not spout.replays.line.in_use
        else:
            spout.failed(second, DIED, 2.0)
            emit(here, 10.0)
            assert dead(here) == [0]


def test_settled_message_is_not_charged() -> None:
    here = rig(1, attempts=1)
    spout = here.spout("numbers")
    first = emit(here, 0.0)
    spout.failed(first, DIED, 0.0)
    spout.complete(emit(here, 0.0), 0.5)
    spout.suspect(first, KILLED, 1.0)
    assert not spout.replays.line.in_use


def test_each_root_is_charged_once() -> None:
    here = rig(1, attempts=3)
    spout = here.spout("numbers")
    roots = emit(here, 0.0)
    spout.failed(roots, DIED, 0.0)
    for _ in range(5):
        spout.suspect(roots, KILLED, 0.0)
    assert spout.replays.line.charges.get(0).times == 1


def test_roots_of_another_incarnation_are_ignored() -> None:
    here = rig(1)
    spout = here.spout("numbers")
    spout.suspect(emit(here, 0.0) - np.uint64(1 << 48), KILLED, 0.0)
    assert len(spout.pending) == 1


# ---- RecentFailures -----------------------------------------------------------------------------


def ids(*numbers: int) -> Any:
    return np.array(numbers, np.uint64)


def test_old_failures_are_forgotten() -> None:
    recent = RecentFailures()
    recent.note(ids(1, 2), np.array([10, 20]), 0.0)
    recent.note(ids(3), np.array([30]), 11.0)
    assert recent.take(ids(1, 2, 3)) == [30]
    assert recent.take(ids(3)) == []


def test_memory_is_bounded_however_much_fails() -> None:
    recent = RecentFailures()
    for group in range(100):
        roots = np.arange(1, 30_001, dtype=np.uint64) + np.uint64(group * 30_000)
        recent.note(roots, np.arange(30_000), 0.0)
    stored = sum(len(roots) for _, roots, _ in recent._groups)
    assert 200_000 < stored <= 1 << 18
    assert recent.take(ids(1)) == []
    assert recent.take(ids(99 * 30_000 + 1)) == [0]
