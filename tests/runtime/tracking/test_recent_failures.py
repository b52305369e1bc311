"""What a dead process was executing is blamed, whether it has failed already or not."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sunshower import Cause, DeadLetter, Failure, Records, Retry, Topology
from sunshower.runtime.tracking.ids import U64
from sunshower.runtime.tracking.recent_failures import RecentFailures
from tests.runtime.rig import Rig, records_of


class Number(NamedTuple):
    n: int


def sink(record: Number) -> None: ...


def mourn(letter: DeadLetter) -> None: ...


DIED = Failure(Cause.ACTOR_DIED, "next", 0)
KILLED = Failure(Cause.ACTOR_DIED, "next", 0, "its process died while it was executing this")


def rig(count: int, attempts: int = 2) -> Rig:
    topology = Topology("t", ackers=1)
    source = Records([Number(n) for n in range(count)], type=Number)
    retry = Retry(attempts=attempts, dead_letters=True)
    numbers = topology.spout("numbers", source, retry=retry)
    numbers.shuffle().bolt("next", sink)
    numbers.stream("dead_letters").shuffle().bolt("mourn", mourn)
    return Rig(topology)


def emit(here: Rig, now: float) -> U64:
    """What is due is emitted. Returns what is pending then."""
    here.spout("numbers").emit(now, 100)
    roots: U64 = here.spout("numbers").pending.all_roots()
    return roots


def dead(here: Rig) -> list[Any]:
    return [letter.message_id for letter in records_of(here.sent("mourn"))]


def test_suspects_that_are_pending_fail_and_it_counts() -> None:
    here = rig(3)
    spout = here.spout("numbers")
    for now in (0.0, 10.0):
        roots = emit(here, now)
        spout.suspect(roots[-1:], KILLED, now)
    emit(here, 20.0)
    assert dead(here) == [2]
    assert spout.stats().counts.causes == {"actor died": 2}
    assert records_of(here.sent("mourn")) == []


def test_suspects_that_the_sweep_has_failed_before_are_blamed_all_the_same() -> None:
    here = rig(3)
    spout = here.spout("numbers")
    for now in (0.0, 10.0):
        roots = emit(here, now)
        spout.failed(roots, DIED, now)
        spout.suspect(roots[:1], KILLED, now + 1)
    emit(here, 20.0)
    letters = records_of(here.sent("mourn"))
    assert [(x.message_id, x.attempts, x.reason) for x in letters] == [(0, 2, KILLED.reason)]
    assert spout.stats().counts.failed == 6, "the blame is no further failure"


def test_suspect_that_was_emitted_again_meanwhile_dies_only_if_it_fails_again() -> None:
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
            assert not spout.replays.line.remembers
        else:
            spout.failed(second, DIED, 2.0)
            emit(here, 10.0)
            assert dead(here) == [0]


def test_suspect_that_is_settled_is_forgotten() -> None:
    here = rig(1, attempts=1)
    spout = here.spout("numbers")
    first = emit(here, 0.0)
    spout.failed(first, DIED, 0.0)
    spout.complete(emit(here, 0.0), 0.5)
    spout.suspect(first, KILLED, 1.0)
    assert not spout.replays.line.remembers


def test_each_root_is_blamed_once() -> None:
    here = rig(1, attempts=3)
    spout = here.spout("numbers")
    roots = emit(here, 0.0)
    spout.failed(roots, DIED, 0.0)
    for _ in range(5):
        spout.suspect(roots, KILLED, 0.0)
    assert spout.replays.line.charges_of(0).times == 1


def test_roots_of_a_former_life_are_nobody() -> None:
    here = rig(1)
    spout = here.spout("numbers")
    spout.suspect(emit(here, 0.0) - np.uint64(1 << 48), KILLED, 0.0)
    assert len(spout.pending) == 1


# ---- the memory of it ---------------------------------------------------------------------------


def ids(*numbers: int) -> Any:
    return np.array(numbers, np.uint64)


def test_what_failed_long_ago_is_forgotten() -> None:
    lately = RecentFailures()
    lately.note(ids(1, 2), np.array([10, 20]), 0.0)
    lately.note(ids(3), np.array([30]), 11.0)
    assert lately.take(ids(1, 2, 3)) == [30]
    assert lately.take(ids(3)) == []


def test_memory_is_bounded_however_much_fails() -> None:
    lately = RecentFailures()
    for group in range(100):
        roots = np.arange(1, 30_001, dtype=np.uint64) + np.uint64(group * 30_000)
        lately.note(roots, np.arange(30_000), 0.0)
    kept = sum(len(roots) for _, roots, _ in lately._groups)
    assert 200_000 < kept <= 1 << 18
    assert lately.take(ids(1)) == []
    assert lately.take(ids(99 * 30_000 + 1)) == [0]
