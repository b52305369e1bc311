"""One worker: what it does with its packets and answers, and when it has to wake up."""

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
    """Emits the items of a script, and raises those that are exceptions."""

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
    """Three isolated workers (spout, bolt, acker); the test delivers their packets itself."""

    def __init__(self, *script: Any, bolt: Any = keep, **settings: Any) -> None:
        defaults = {"ackers": 1, "message_timeout_s": 30, "spout_pending": 32_768}
        topology = Topology("t", **{**defaults, **settings})
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
        """Step the worker until it has nothing to do. Returns the packets that it sends."""
        while self[worker].step() == 0:
            pass
        return list(self[worker].outgoing())

    def carry(self, worker: int) -> None:
        """Deliver and answer all packets that the worker sends."""
        for peer, seq, data in self.packets(worker):
            answer = self[peer].packet_receiver.answer(data)
            if answer is Answer.ACCEPTED:
                self[peer].receive(data)
            self[worker].answered(peer, seq, answer)

    def settle(self) -> None:
        """Deliver all packets, in enough rounds for a topology without losses to become idle."""
        for _ in range(4):
            for worker in self.workers:
                self.carry(worker)


def test_record_goes_to_the_bolt_and_comes_back_acked() -> None:
    workers = SimEnvironment(1, 2, 3)
    workers.settle()
    assert workers[BOLT].stats().tasks[0].counts.acked == 3
    assert workers[SPOUT].stats().tasks[0].counts.acked == 3
    assert all(worker.finished for worker in workers.workers.values())


def test_nothing_is_emitted_before_all_peers_are_known() -> None:
    workers = SimEnvironment(1)
    workers.start(SPOUT, 1)
    workers[SPOUT].peers({BOLT: 1})
    workers[SPOUT].step()
    assert workers.spout().output_streams.emitted == 0
    workers[SPOUT].peers({ACKER: 1})
    workers[SPOUT].step()
    assert workers.spout().output_streams.emitted == 1


# ---- waking up ----------------------------------------------------------------------------------


def test_worker_without_work_and_deadlines_sleeps_until_a_packet_arrives() -> None:
    workers = SimEnvironment(1)
    workers.settle()
    workers.clock.advance(31.0)  # past the deadline that the acked tree had
    assert [worker.step() for worker in workers.workers.values()] == [None, None, None]


def test_worker_that_sleeps_as_long_as_it_returned_meets_every_deadline() -> None:
    workers = SimEnvironment(1)
    while not workers.spout().stats().counts.failed:
        wait_s = workers[SPOUT].step()
        assert wait_s is not None, "it sleeps for ever"
        assert workers.clock.now() <= 30.0, "it slept too long"
        workers.clock.advance(wait_s)
    assert str(workers.spout().spout.failures[0]) == "timeout: no verdict within 30 s"


def test_worker_wakes_up_for_a_replay() -> None:
    workers = SimEnvironment(1)
    workers.packets(SPOUT)
    workers.clock.advance(30.0 - 1e-4)
    workers[SPOUT].step()  # the source has nothing: the spout polls it again later
    workers.clock.advance(2e-4)
    while workers.spout().output_streams.emitted == 1:
        wait_s = workers[SPOUT].step()
        assert wait_s is not None, "it has to wake up for the replay"
        workers.clock.advance(wait_s)
    assert workers.spout().output_streams.emitted == 2
    assert 30.05 <= workers.clock.now() <= 30.102, "when the back-off is over"


# ---- losses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (Answer.REFUSED, Cause.BAD_FRAME),
        (Answer.STALE, Cause.ACTOR_DIED),  # its receiver was an earlier life
        (None, Cause.ACTOR_DIED),
    ],
)
@pytest.mark.parametrize("peer", [BOLT, ACKER])
def test_lost_packet_fails_its_trees_at_once(
    peer: int, answer: Answer | None, cause: Cause
) -> None:
    workers = SimEnvironment(1, 2)
    for to, seq, data in workers.packets(SPOUT):
        if to == peer:
            workers[SPOUT].answered(peer, seq, answer)
        else:
            workers[to].packet_receiver.answer(data)
            workers[to].receive(data)
            workers[SPOUT].answered(to, seq, Answer.ACCEPTED)
    for worker in (SPOUT, ACKER, SPOUT):
        workers.carry(worker)
    failures = workers.spout().spout.failures
    assert len(failures) == 2, "no time has passed"
    assert {failure.component for failure in failures} == {"keep" if peer == BOLT else "__acker"}
    assert {failure.cause for failure in failures} == {cause}


def test_lost_report_of_a_failure_is_sent_again_with_its_reason() -> None:
    def refuse(number: Number) -> None:
        raise ValueError("no such number")

    workers = SimEnvironment(1, bolt=refuse)
    workers.carry(SPOUT)
    ((to, seq, _),) = (p for p in workers.packets(BOLT) if p[0] == ACKER)
    workers[BOLT].answered(to, seq, Answer.REFUSED)
    for worker in (BOLT, ACKER):
        workers.carry(worker)
    (failure,) = workers.spout().spout.failures
    assert failure.reason.startswith("ValueError: no such number (step `refuse`")


def test_lost_grant_is_given_again() -> None:
    workers = SimEnvironment(*range(100), window_records_max=4)
    workers.carry(SPOUT)
    for to, seq, data in workers.packets(BOLT):
        if to == SPOUT:
            workers[BOLT].answered(to, seq, Answer.REFUSED)
        else:
            workers[to].packet_receiver.answer(data)
            workers[to].receive(data)
            workers[BOLT].answered(to, seq, Answer.ACCEPTED)
    for _ in range(40):
        workers.clock.advance(0.1)
        workers.settle()
    assert workers[SPOUT].finished, "the spout waits for a credit that was granted"


# ---- lives --------------------------------------------------------------------------------------


def test_packet_of_a_new_life_announces_that_life() -> None:
    workers = SimEnvironment(1)
    workers.carry(SPOUT)
    assert len(workers.spout().pending) == 1
    workers.start(BOLT, 2)
    workers[BOLT].peers({SPOUT: 1, ACKER: 1})
    workers[BOLT]._peer_links[SPOUT].content.postponed.append(1)  # any content
    workers.carry(BOLT)
    workers.clock.advance(1.0)
    workers[SPOUT].step()
    assert [str(why) for why in workers.spout().spout.failures] == [
        "actor died in keep[0]: its worker died and was started again"
    ]


def test_packet_of_an_earlier_life_is_dropped() -> None:
    workers = SimEnvironment(1)
    workers.carry(SPOUT)
    ((_, _, data),) = (p for p in workers.packets(BOLT) if p[0] == ACKER)
    assert workers[ACKER].packet_receiver.answer(data) is Answer.ACCEPTED
    workers[ACKER].peers({BOLT: 2})
    workers[ACKER].receive(data)
    assert workers.packets(ACKER) == [], "the sweep fails the trees that it acked"


def test_report_in_flight_to_a_dead_acker_fails_its_tree_even_if_the_new_life_is_known() -> None:
    """The spout emitted the tree after it knew of the new life, so no sweep fails it."""
    workers = SimEnvironment(1)
    workers.start(ACKER, 2)
    workers[ACKER].peers({SPOUT: 1, BOLT: 1})
    workers[SPOUT].peers({ACKER: 2})
    workers.carry(SPOUT)
    (report,) = (p for p in workers.packets(BOLT) if p[0] == ACKER)
    workers[BOLT].peers({ACKER: 2})
    workers[BOLT].answered(ACKER, report[1], workers[ACKER].packet_receiver.answer(report[2]))
    workers.settle()
    (failure,) = workers.spout().spout.failures
    assert (failure.cause, failure.reason) == (Cause.ACTOR_DIED, "a report was lost")


def test_message_about_an_earlier_life_of_a_peer_changes_nothing() -> None:
    workers = SimEnvironment(1)
    workers[SPOUT].peers({BOLT: 3})
    workers[SPOUT].peers({BOLT: 2})
    assert workers[SPOUT]._peer_links[BOLT].peer_life == 3


def test_trees_of_the_shard_of_an_acker_that_dies_fail() -> None:
    workers = SimEnvironment(1, 2)
    workers.carry(SPOUT)
    workers.start(ACKER, 2)
    workers.news()
    workers.clock.advance(1.0)
    workers[SPOUT].step()
    assert [failure.component for failure in workers.spout().spout.failures] == ["__acker"] * 2


def test_record_that_cannot_travel_fails_and_in_the_end_halts_the_topology() -> None:
    story = r"message 1 of spout 'numbers' failed 2 times.*cannot travel to another.*the record:"
    workers = SimEnvironment(1, object(), 3, attempts_max=2)
    workers.settle()
    workers.clock.advance(0.1)  # the back-off
    with pytest.raises(TopologyFailed, match=story):
        workers.settle()
