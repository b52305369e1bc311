"""One worker, fact by fact: what it is told, what it does next, and when it wants to be woken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from sunshower import Cause, Failure, Spout, Topology
from sunshower.clock import ManualClock
from sunshower.errors import TopologyFailed
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.transport.packets import Answer
from sunshower.runtime.worker import Worker

SPOUT, BOLT, ACKER = 0, 1, 2  # workers of the isolated topology


class Number(NamedTuple):
    n: Any


class Numbers(Spout[Number]):
    """The script's numbers; the exception in it, if any, is raised there."""

    def __init__(self, *script: Any) -> None:
        self.script = script
        self.failures: list[Failure] = []

    def records(self) -> Iterator[Number]:
        for item in self.script:
            if isinstance(item, Exception):
                raise item
            yield Number(item)

    def fail(self, message_id: int, failure: Failure) -> None:
        self.failures.append(failure)


def keep(number: Number) -> None: ...


class SimEnvironment:
    """Three isolated workers (spout, bolt, acker) whose packets the test carries itself."""

    def __init__(self, *script: Any, bolt: Any = keep, **settings: Any) -> None:
        own = {"ackers": 1, "message_timeout_s": 30, "spout_pending": 32_768}
        topology = Topology("t", **{**own, **settings})
        topology.spout("numbers", Numbers(*script)).shuffle().bolt("keep", bolt)
        self.plan = make_plan(topology.graph(), Layout.ISOLATE)
        self.clock = ManualClock()
        self.workers: dict[int, Worker] = {}
        for worker in self.plan.workers:
            self.start(worker, 1)
        self.news()

    def start(self, worker: int, life: int) -> None:
        generator = np.random.default_rng(worker)
        self.workers[worker] = Worker(self.plan, worker, life, generator, self.clock)

    def news(self) -> None:
        lives = {worker: core.life for worker, core in self.workers.items()}
        for core in self.workers.values():
            core.peers(lives)

    def __getitem__(self, worker: int) -> Worker:
        return self.workers[worker]

    def spout(self) -> Any:
        return self[SPOUT]._spouts[0]

    def packets(self, worker: int) -> list[tuple[int, int, bytes]]:
        """Everything that leaves the worker after it has worked until it rests."""
        while self[worker].step() == 0:
            pass
        return list(self[worker].outgoing())

    def carry(self, worker: int) -> None:
        """All that leaves the worker arrives, and is answered."""
        for peer, seq, data in self.packets(worker):
            answer = self[peer].packet_receiver.answer(data)
            if answer is Answer.ACCEPTED:
                self[peer].receive(data)
            self[worker].answered(peer, seq, answer)

    def settle(self) -> None:
        """Everything is carried until nothing moves."""
        for _ in range(4):
            for worker in self.workers:
                self.carry(worker)


def test_record_goes_to_the_bolt_and_comes_back_acked() -> None:
    site = SimEnvironment(1, 2, 3)
    site.settle()
    assert site[BOLT].stats().tasks[0].counts.acked == 3
    assert site[SPOUT].stats().tasks[0].counts.acked == 3
    assert all(worker.finished for worker in site.workers.values())


def test_nothing_is_emitted_before_everybody_has_said_hello() -> None:
    site = SimEnvironment(1)
    site.start(SPOUT, 1)
    site[SPOUT].peers({BOLT: 1})
    site[SPOUT].step()
    assert site.spout().output_streams.emitted == 0
    site[SPOUT].peers({ACKER: 1})
    site[SPOUT].step()
    assert site.spout().output_streams.emitted == 1


# ---- when it wants to be woken ------------------------------------------------------------------


def test_worker_with_nothing_ahead_of_it_sleeps_until_there_is_mail() -> None:
    site = SimEnvironment(1)
    site.settle()
    site.clock.advance(31.0)  # past the deadline that the acked tree had
    assert [worker.step() for worker in site.workers.values()] == [None, None, None]


def test_worker_that_wakes_when_it_wants_to_meets_every_deadline() -> None:
    site = SimEnvironment(1)
    while not site.spout().stats().counts.failed:
        wait_s = site[SPOUT].step()
        assert wait_s is not None, "it sleeps for ever"
        assert site.clock.now() <= 30.0, "it slept too long"
        site.clock.advance(wait_s)
    assert str(site.spout().spout.failures[0]) == "timeout: no verdict within 30 s"


def test_replay_is_not_slept_over() -> None:
    site = SimEnvironment(1)
    site.packets(SPOUT)
    site.clock.advance(30.0 - 1e-4)
    site[SPOUT].step()  # the source has nothing: the spout is asked again in a while
    site.clock.advance(2e-4)
    while site.spout().output_streams.emitted == 1:
        wait_s = site[SPOUT].step()
        assert wait_s is not None, "it must come back for it by itself"
        site.clock.advance(wait_s)
    assert site.spout().output_streams.emitted == 2
    assert 30.05 <= site.clock.now() <= 30.102, "when the back-off is over"


# ---- losses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (Answer.REFUSED, Cause.BAD_FRAME),
        (Answer.STALE, Cause.ACTOR_DIED),  # it was meant for a life that is over
        (None, Cause.ACTOR_DIED),
    ],
)
@pytest.mark.parametrize("peer", [BOLT, ACKER])
def test_lost_packet_fails_its_trees_at_once(
    peer: int, answer: Answer | None, cause: Cause
) -> None:
    site = SimEnvironment(1, 2)
    for to, seq, data in site.packets(SPOUT):
        if to == peer:
            site[SPOUT].answered(peer, seq, answer)
        else:
            site[to].packet_receiver.answer(data)
            site[to].receive(data)
            site[SPOUT].answered(to, seq, Answer.ACCEPTED)
    for worker in (SPOUT, ACKER, SPOUT):
        site.carry(worker)
    failures = site.spout().spout.failures
    assert len(failures) == 2, "no time has passed"
    assert {failure.component for failure in failures} == {"keep" if peer == BOLT else "__acker"}
    assert {failure.cause for failure in failures} == {cause}


def test_lost_report_of_a_failure_is_told_again_with_its_reason() -> None:
    def refuse(number: Number) -> None:
        raise ValueError("no such number")

    site = SimEnvironment(1, bolt=refuse)
    site.carry(SPOUT)
    ((to, seq, _),) = (p for p in site.packets(BOLT) if p[0] == ACKER)
    site[BOLT].answered(to, seq, Answer.REFUSED)
    for worker in (BOLT, ACKER):
        site.carry(worker)
    (failure,) = site.spout().spout.failures
    assert failure.reason == "ValueError: no such number"


def test_lost_grant_is_given_again() -> None:
    site = SimEnvironment(*range(100), frame_records_max=4, window_records_max=4)
    site.carry(SPOUT)
    for to, seq, data in site.packets(BOLT):
        if to == SPOUT:
            site[BOLT].answered(to, seq, Answer.REFUSED)
        else:
            site[to].packet_receiver.answer(data)
            site[to].receive(data)
            site[BOLT].answered(to, seq, Answer.ACCEPTED)
    for _ in range(40):
        site.clock.advance(0.1)
        site.settle()
    assert site[SPOUT].finished, "the spout waits for ever for room that it was given"


# ---- lives --------------------------------------------------------------------------------------


def test_packet_of_a_new_life_is_news_of_it() -> None:
    site = SimEnvironment(1)
    site.carry(SPOUT)
    assert len(site.spout().pending) == 1
    site.start(BOLT, 2)
    site[BOLT].peers({SPOUT: 1, ACKER: 1})
    site[BOLT]._peer_links[SPOUT].content.postponed.append(1)  # anything at all
    site.carry(BOLT)
    site.clock.advance(1.0)
    site[SPOUT].step()
    assert [str(why) for why in site.spout().spout.failures] == [
        "actor died in keep[0]: its worker died and was started again"
    ]


def test_packet_of_a_life_that_is_over_is_dropped() -> None:
    site = SimEnvironment(1)
    site.carry(SPOUT)
    ((_, _, data),) = (p for p in site.packets(BOLT) if p[0] == ACKER)
    assert site[ACKER].packet_receiver.answer(data) is Answer.ACCEPTED
    site[ACKER].peers({BOLT: 2})
    site[ACKER].receive(data)
    assert site.packets(ACKER) == [], "the sweep takes care of its acks"


def test_report_on_its_way_to_a_dead_acker_is_not_forgotten_when_the_news_come() -> None:
    """The tree was emitted after its spout had heard of the new life: no sweep will find it."""
    site = SimEnvironment(1)
    site.start(ACKER, 2)
    site[ACKER].peers({SPOUT: 1, BOLT: 1})
    site[SPOUT].peers({ACKER: 2})
    site.carry(SPOUT)
    (report,) = (p for p in site.packets(BOLT) if p[0] == ACKER)
    site[BOLT].peers({ACKER: 2})
    site[BOLT].answered(ACKER, report[1], site[ACKER].packet_receiver.answer(report[2]))
    site.settle()
    (failure,) = site.spout().spout.failures
    assert (failure.cause, failure.reason) == (Cause.ACTOR_DIED, "a report was lost")


def test_older_news_of_a_peer_changes_nothing() -> None:
    site = SimEnvironment(1)
    site[SPOUT].peers({BOLT: 3})
    site[SPOUT].peers({BOLT: 2})
    assert site[SPOUT]._peer_links[BOLT].peer_incarnation == 3


def test_acker_that_dies_takes_the_trees_of_its_shard_along() -> None:
    site = SimEnvironment(1, 2)
    site.carry(SPOUT)
    site.start(ACKER, 2)
    site.news()
    site.clock.advance(1.0)
    site[SPOUT].step()
    assert [failure.component for failure in site.spout().spout.failures] == ["__acker"] * 2


def test_record_that_cannot_travel_fails_and_in_the_end_halts_the_topology() -> None:
    story = r"message 1 of spout 'numbers' failed 2 times.*cannot travel to another.*the record:"
    site = SimEnvironment(1, object(), 3, attempts_max=2)
    site.settle()
    site.clock.advance(0.1)  # the back-off
    with pytest.raises(TopologyFailed, match=story):
        site.settle()
