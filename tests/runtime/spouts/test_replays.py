"""Tests of replays beside fresh records: neither starves, and a free place is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sunshower import Bolt, Cause, Context, Failure, Records, Retry, Spout, Topology
from sunshower.clock import ManualClock
from sunshower.config import Internals
from sunshower.runtime.inline import run_inline
from tests.runtime.rig import Number, Rig, records_of, sink

BROKEN = Failure(Cause.EXCEPTION, "next", 0)
DIED = Failure(Cause.ACTOR_DIED, "next", 0)


def numbers(count: int) -> Records[Number]:
    return Records([Number(n) for n in range(count)], type=Number)


def rig(count: int, source: Spout[Any] | None = None, **settings: Any) -> Rig:
    topology = Topology("t", **{"ackers": 1, **settings})
    topology.spout("numbers", source or numbers(count)).shuffle().bolt("next", sink)
    return Rig(topology)


def sent(here: Rig) -> list[int]:
    return [record.n for record in records_of(here.sent("next"))]


def fail_all(here: Rig, failure: Failure, now: float) -> None:
    spout = here.spout("numbers")
    spout.failed(spout.pending.all_roots(), failure, now)


# ---- places -------------------------------------------------------------------------------------


def test_failed_message_keeps_its_place_while_it_waits() -> None:
    here = rig(10, spout_pending=4)
    spout = here.spout("numbers")
    assert spout.emit(0.0, 100) == 4
    spout.failed(spout.pending.all_roots()[:3], BROKEN, 0.0)
    assert spout.emit(0.0, 100) == 0, "three wait, one is pending"
    spout.complete(spout.pending.all_roots(), 0.01)
    assert spout.emit(0.01, 100) == 1, "one place is free"
    assert spout.emit(1.0, 100) == 3, "the others are for the waiting messages"


def test_spout_is_called_when_a_replay_is_due_and_not_before() -> None:
    here = rig(10, spout_pending=4)
    spout = here.spout("numbers")
    spout.emit(0.0, 100)
    assert spout.next_emit_s == np.inf, "no place is free"
    fail_all(here, BROKEN, 5.0)
    assert 5.05 <= spout.next_emit_s <= 5.1
    spout.complete(spout.pending.all_roots(), 5.0)
    spout.emit(5.2, 100)
    assert spout.next_emit_s == np.inf
    spout.complete(spout.pending.all_roots()[:1], 5.3)
    assert spout.next_emit_s <= 5.3, "a place is free for a fresh record"


class Shaky(Bolt[Number, None]):
    """Raises for number n the first n % 4 times."""

    def prepare(self, context: Context) -> None:
        self.seen: list[int] = []

    def process(self, record: Number) -> None:
        self.seen.append(record.n)
        if self.seen.count(record.n) <= record.n % 4:
            raise ValueError(record.n)

    def result(self) -> list[int]:
        return self.seen


@pytest.mark.parametrize("spout_pending", [1, 2, 3, 16])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_small_table_full_of_failed_messages_does_not_stop_the_run(
    spout_pending: int, share: float
) -> None:
    topology = Topology("t", spout_pending=spout_pending, internals=Internals(replay_share=share))
    topology.spout("numbers", numbers(40)).shuffle().bolt("shaky", Shaky)
    finished = run_inline(topology.graph(), clock=ManualClock(), steps_max=20_000)
    counts = finished.snapshot.component("numbers")
    assert (counts.acked, counts.failed, counts.replayed) == (40, 60, 60)


# ---- the budget ---------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_after_a_death_fresh_records_are_emitted_beside_the_replays(share: float) -> None:
    here = rig(10_000, spout_pending=2_000, internals=Internals(replay_share=share))
    spout = here.spout("numbers")
    spout.emit(0.0, 1_000)
    fail_all(here, DIED, 0.0)
    spout.emit(0.0, 100)  # uses up the burst
    sent(here)
    for _ in range(5):
        spout.emit(0.0, 100)
        replays = sum(n < 1_000 for n in sent(here))
        assert replays == pytest.approx(100 * share, abs=1)


def test_replays_use_all_the_room_if_the_source_has_nothing() -> None:
    here = rig(1_000, internals=Internals(replay_share=0.1))
    spout = here.spout("numbers")
    spout.emit(0.0, 2_000)
    fail_all(here, DIED, 0.0)
    assert spout.emit(0.0, 2_000) == 1_000


def test_pauses_of_the_source_do_not_hold_replays_back() -> None:
    class Pauses(Spout[Number]):
        def records(self) -> Iterator[Number | None]:
            for n in range(100):
                yield None
                yield Number(n)

    here = rig(0, Pauses(), internals=Internals(replay_share=0.01))
    spout = here.spout("numbers")
    for _ in range(11):
        spout.emit(0.0, 100)
    fail_all(here, DIED, 0.0)
    assert spout.emit(0.0, 100) == 11, "ten replays, one record"


# ---- a death fails many messages at once --------------------------------------------------------


def test_replays_after_a_death_are_immediate_and_after_a_second_one_spread_in_time() -> None:
    here = rig(30_000)
    spout = here.spout("numbers")
    spout.emit(0.0, 30_000)
    fail_all(here, DIED, 0.0)
    assert spout.emit(0.0, 30_000) == 30_000
    fail_all(here, DIED, 0.0)
    assert spout.emit(0.1, 30_000) == pytest.approx(15_000, rel=0.05)
    assert spout.emit(0.2, 30_000) == pytest.approx(15_000, rel=0.05)


def test_deaths_do_not_reset_the_attempts_of_a_message() -> None:
    topology = Topology("t", ackers=1)
    retry = Retry(attempts=3, initial_s=1, jitter=0)
    topology.spout("numbers", numbers(1), retry=retry).shuffle().bolt("next", sink)
    here = Rig(topology)
    spout = here.spout("numbers")
    for now, failure in enumerate([BROKEN, DIED, DIED, BROKEN, DIED]):
        spout.emit(10.0 * now, 1)
        fail_all(here, failure, 10.0 * now)
    charges = spout.replays.line.charges.get(0)
    assert (charges.times, charges.failure) == (2, BROKEN)
