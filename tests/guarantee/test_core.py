"""One test in virtual time for each row of docs/GUARANTEES.md.

Each checks the failure that the spout gets (cause, place, attempt), and the time until the tuple is
processed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sunshower import Bolt, Cause, Context, Number, Retry, Topology
from sunshower.config import Internals
from sunshower.errors import TopologyFailed
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.events.injected_faults import Link
from sunshower.runtime.plan import ACKER, Layout
from sunshower.simulation.worker import Killed
from tests.guarantee.frozen import after_cutting, after_freezing
from tests.guarantee.stage import Blocked, FailTuple, Forget, Letters, Numbers, Stage, Store, Work
from tests.seeds import seeds

TIMEOUT_S, GRACE_S, RESTART_S = 30.0, 1.0, 0.6  # RESTART_S: the longest restart in the simulator
BACK_OFF_S = 0.15  # before the second attempt: 0.1 s, and up to half of it as jitter
A_MOMENT_S = 0.3  # for grants, reports and retries of links
EMITTED_AGAIN = "it may have been emitted again before the last death is detected"
SEEDS = seeds(10)


def once(wrong: Exception, number: int = 3) -> Work:
    def work(seen: int, before: int) -> None:
        if seen == number and not before:
            raise wrong

    return work


@SEEDS
def test_failed_by_bolt(seed: int) -> None:
    stage = Stage(once(FailTuple("not today")), seed=seed)
    journal = stage.run()
    failure = journal.first_failure(3)
    assert (failure.cause, failure.component, failure.task) == (Cause.FAILED, "work", 0)
    assert (failure.reason, failure.attempt) == ("not today", 1)
    assert failure.worker == stage.worker_of("work")
    assert journal.replayed_after_s(3) < BACK_OFF_S + A_MOMENT_S
    assert {call.number for call in journal.failures} == {3}


@SEEDS
def test_exception(seed: int) -> None:
    stage = Stage(once(ValueError("a bad day")), seed=seed)
    journal = stage.run()
    failure = journal.first_failure(3)
    assert (failure.cause, failure.component, failure.task) == (Cause.EXCEPTION, "work", 0)
    assert failure.exception == "ValueError"
    assert "a bad day" in failure.reason
    assert "in work\n    raise wrong" in failure.traceback
    assert journal.replayed_after_s(3) < BACK_OFF_S + A_MOMENT_S
    assert {call.number for call in journal.failures} == {3}


@SEEDS
def test_timeout(seed: int) -> None:
    stage = Stage(once(Forget()), seed=seed, message_timeout_s=TIMEOUT_S)
    journal = stage.run()
    failure = journal.first_failure(3)
    assert (failure.cause, failure.component) == (Cause.TIMEOUT, "")
    assert "30 s" in failure.reason
    assert TIMEOUT_S - A_MOMENT_S < journal.replayed_after_s(3) < TIMEOUT_S + BACK_OFF_S + 1
    assert {call.number for call in journal.failures} == {3}


@SEEDS
@pytest.mark.parametrize("component", ["work", "store"])
def test_death_of_a_bolt(seed: int, component: str) -> None:
    stage = Stage(seed=seed)
    stage.until_acked(stage.total // 2)
    killed_s = stage.crash(component)
    journal = stage.run()
    for call in journal.failures:
        assert (call.failure.cause, call.failure.component) == (Cause.ACTOR_DIED, component)
        assert call.at_s - killed_s < RESTART_S + GRACE_S + A_MOMENT_S
    last_s = max(times[0] for times in journal.acked_s.values())
    assert last_s - killed_s < RESTART_S + GRACE_S + BACK_OFF_S + A_MOMENT_S


@SEEDS
def test_death_of_an_acker_shard(seed: int) -> None:
    stage = Stage(seed=seed)
    stage.until_acked(stage.total // 2)
    killed_s = stage.crash(ACKER)
    journal = stage.run()
    for call in journal.failures:
        assert (call.failure.cause, call.failure.component) == (Cause.ACTOR_DIED, ACKER)
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
    assert {call.failure.cause for call in journal.failures} <= {Cause.ACTOR_DIED}
    last_s = max(times[0] for times in journal.acked_s.values())
    assert last_s - killed_s < RESTART_S + GRACE_S + BACK_OFF_S + 2 * A_MOMENT_S


@SEEDS
def test_bad_frame(seed: int) -> None:
    journal = Stage(seed=seed, link=Link(corrupt=0.05), total=200).run()
    assert {call.failure.cause for call in journal.failures} == {Cause.BAD_FRAME}
    assert all(call.failure.component for call in journal.failures), "the receiver is named"
    assert max(call.at_s for call in journal.failures) < TIMEOUT_S / 3


@SEEDS
def test_frame_without_an_answer(seed: int) -> None:
    journal = Stage(seed=seed, link=Link(drop=0.2), total=200).run()
    assert {call.failure.cause for call in journal.failures} == {Cause.ACTOR_DIED}
    assert all(call.failure.component for call in journal.failures), "the receiver is named"


@SEEDS
def test_repeated_frame(seed: int) -> None:
    journal = Stage(seed=seed, link=Link(repeat=0.5), total=200).run()
    assert not journal.failures
    assert set(journal.stored.values()) == {1}


@SEEDS
def test_death_of_a_spout(seed: int) -> None:
    stage = Stage(seed=seed, total=200)
    stage.until_acked(100)
    settled = stage.net.master.stored.positions.get(stage.net.plan.spouts[0].id, 0)
    killed_s = stage.crash("numbers")
    journal = stage.run()
    again = [number for number, times in journal.acked_s.items() if len(times) > 1]
    assert min(again, default=settled) >= settled, "settled messages are not emitted again"
    assert not journal.failures, "the new process has no record of the old trees"
    assert min(
        s for times in journal.acked_s.values() for s in times if s > killed_s
    ) - killed_s < (RESTART_S + A_MOMENT_S)


@SEEDS
def test_death_of_the_master(seed: int) -> None:
    stage = Stage(seed=seed)
    stage.until_acked(stage.total // 2)
    stage.net.sim.kill_master()
    journal = stage.run()
    assert not journal.failures
    assert set(journal.stored.values()) == {1}
    assert stage.net.sim.snapshot().state == State.FINISHED


@SEEDS
def test_rebalance_that_does_not_wait(seed: int) -> None:
    stage = Stage(seed=seed, layout=Layout.PACK, total=400)
    stage.until_acked(20)
    stage.net.sim.rebalance(4, wait_s=0.0, waits=False)
    journal = stage.run()
    assert {call.failure.cause for call in journal.failures} <= {Cause.REBALANCED}


def always(wrong: BaseException, number: int = 3) -> Work:
    def work(seen: int, before: int) -> None:
        if seen == number:
            raise wrong

    return work


RETRY_3 = Retry(attempts=3, dead_letters=True)


@SEEDS
def test_attempts_used_up_with_dead_letters(seed: int) -> None:
    stage = Stage(always(ValueError("poison")), seed=seed, spout={"retry": RETRY_3})
    journal = stage.run()
    (letter,) = journal.letters
    assert (letter.message_id, letter.record, letter.attempts) == (3, {"value": 3}, 3)
    assert (letter.cause, letter.component, letter.task) == (Cause.EXCEPTION, "work", 0)
    assert "in work\n    raise wrong" in letter.traceback
    assert len(journal.worked_s[3]) == 3
    assert [call.failure.attempt for call in journal.failures] == [1, 2, 3]
    assert set(journal.stored) == set(range(stage.total)) - {3}


def test_attempts_used_up_without_dead_letters() -> None:
    stage = Stage(always(ValueError("poison")), attempts_max=3)
    with pytest.raises(TopologyFailed, match=r"message 3 .* failed 3 times(.|\n)*raise wrong"):
        stage.run()
    assert len(stage.journal.worked_s[3]) == 3


@SEEDS
def test_record_that_kills_its_process(seed: int) -> None:
    stage = Stage(always(Killed()), seed=seed, spout={"retry": RETRY_3})
    journal = stage.run()
    (letter,) = journal.letters
    assert (letter.message_id, letter.cause, letter.component) == (3, Cause.ACTOR_DIED, "work")
    assert "while executing it" in letter.reason
    assert {letter.attempts, len(journal.worked_s[3])} <= {3, 4}, EMITTED_AGAIN


@SEEDS
def test_code_that_does_not_return(seed: int) -> None:
    stage = Stage(always(Blocked()), seed=seed, spout={"retry": RETRY_3}, block_max_s=10.0)
    (letter,) = stage.run().letters
    assert (letter.message_id, letter.attempts, letter.cause) == (3, 3, Cause.BLOCKED)
    assert "in execute\n    self.clock.sleep(3_600.0)" in letter.traceback


@SEEDS
def test_frozen_worker(seed: int) -> None:
    snapshot = after_freezing(seed)
    assert snapshot.restarts == 1
    assert snapshot.component("numbers").causes.keys() <= {"actor died"}


@SEEDS
def test_workers_cut_off_from_each_other(seed: int) -> None:
    snapshot = after_cutting(seed)
    assert snapshot.restarts == 0
    assert snapshot.component("numbers").causes.keys() <= {"actor died"}


class PrepareRaises(Bolt[Number, None]):
    """Its `prepare` always raises."""

    def prepare(self, context: Context) -> None:
        raise OSError("no such disk")

    def process(self, record: Number) -> None: ...


class Degraded(Stage):
    """A topology in which one of two bolts can never work."""

    def declare(self, topology: Topology, work: Work, spout: dict[str, Any]) -> None:
        numbers = topology.spout("numbers", Numbers(self.journal, self.total), **spout)
        numbers.shuffle().bolt("work", PrepareRaises)
        numbers.stream("dead_letters").shuffle().bolt("letters", Letters(self.journal))
        more = topology.spout("more", Numbers(type(self.journal)(self.journal.now), 10))
        more.shuffle().bolt("store", Store(self.journal))


@SEEDS
def test_quarantined_task(seed: int) -> None:
    stage = Degraded(seed=seed, spout={"retry": RETRY_3})
    journal = stage.run()
    assert {call.failure.cause for call in journal.failures} == {Cause.QUARANTINED}
    letter = journal.letters[0]
    assert (letter.cause, letter.component, letter.attempts) == (Cause.QUARANTINED, "work", 3)
    assert "no such disk" in letter.traceback
    assert set(journal.stored) == set(range(10)), "other tasks continue"
    (error,) = stage.net.sim.snapshot().degraded.values()
    assert "no such disk" in error.text


def failing_between(error: Exception, from_s: float, to_s: float) -> tuple[list[Stage], Work]:
    """Work that raises `error` between two times; the caller puts its stage into the list."""
    stages: list[Stage] = []

    def work(seen: int, before: int) -> None:
        if from_s <= stages[0].journal.now() < to_s:
            raise error

    return stages, work


@SEEDS
def test_outage(seed: int) -> None:
    stages, work = failing_between(ConnectionRefusedError("no database answers"), 0.0, 20.0)
    stages.append(Stage(work, seed=seed, spout={"retry": Retry(attempts=1, dead_letters=True)}))
    journal = stages[0].run()
    assert {call.failure.cause for call in journal.failures} == {Cause.UNAVAILABLE}
    assert "no database answers" in journal.failures[0].failure.reason
    assert not journal.letters, "although each message has one attempt only"
    assert set(journal.stored) == set(range(stages[0].total))
    assert journal.now() < 20.0 + 20.0, "at most two waits of ten seconds after the outage"


@SEEDS
def test_doubt(seed: int) -> None:
    stages, work = failing_between(ValueError("who knows"), 0.0, 20.0)

    def after_the_first(seen: int, before: int) -> None:
        if seen >= 3:  # the component has succeeded before
            work(seen, before)

    stages.append(Stage(after_the_first, seed=seed, spout={"retry": RETRY_3}))
    journal = stages[0].run()
    charged = [call for call in journal.failures if call.failure.is_charged]
    assert len({call.number for call in charged}) <= 10, "after ten inputs none is charged"
    assert any(call.failure.in_doubt for call in journal.failures)
    assert set(journal.stored) | {letter.message_id for letter in journal.letters} == set(range(40))


class YieldsTwice(Bolt[Number, Number]):
    """Yields each number twice; in a cycle with itself the numbers double for ever."""

    def process(self, record: Number) -> Iterator[Number]:
        yield record
        yield record


class Cycle(Stage):
    """A topology with a cycle that yields more records than it gets."""

    def declare(self, topology: Topology, work: Work, spout: dict[str, Any]) -> None:
        numbers = topology.spout("numbers", Numbers(self.journal, self.total), **spout)
        twins = numbers.shuffle().bolt("work", YieldsTwice)
        twins.shuffle().into("work")
        if spout:
            letters = numbers.stream("dead_letters").shuffle()
            letters.bolt("letters", Letters(self.journal))


CYCLE = {
    "layout": Layout.PACK,
    "total": 3,
    "window_records_max": 100,
    "internals": Internals(frame_records_max=50),
}


@SEEDS
def test_cycle_without_room(seed: int) -> None:
    stage = Cycle(seed=seed, spout={"retry": RETRY_3}, **CYCLE)
    journal = stage.run()
    assert sorted(letter.message_id for letter in journal.letters) == [0, 1, 2]
    assert {(letter.cause, letter.attempts) for letter in journal.letters} == {(Cause.OVERLOAD, 3)}
    assert {call.failure.cause for call in journal.failures} == {Cause.OVERLOAD}
    assert journal.first_failure(0).component == "work"
    assert "window_records_max" in journal.first_failure(0).reason


@SEEDS
def test_cycle_without_room_and_dead_letters(seed: int) -> None:
    with pytest.raises(TopologyFailed, match=r"failed 5 times.*overload.*window_records_max"):
        Cycle(seed=seed, **CYCLE).run()


class YieldsUnserializable(Bolt[Number, tuple[Any, ...]]):
    """Yields one record that cannot be serialized."""

    def process(self, record: Number) -> Iterator[Any]:
        yield (object() if record.value == 3 else record.value,)


class UnserializableStage(Stage):
    """A topology with a record that cannot be sent to another process."""

    def declare(self, topology: Topology, work: Work, spout: dict[str, Any]) -> None:
        numbers = topology.spout("numbers", Numbers(self.journal, self.total), **spout)
        sent = numbers.shuffle().bolt("work", YieldsUnserializable, fields=("value",))
        sent.shuffle().bolt("store", Store(self.journal))
        letters = numbers.stream("dead_letters").shuffle()
        letters.bolt("letters", Letters(self.journal))


@SEEDS
def test_record_that_cannot_be_sent(seed: int) -> None:
    stage = UnserializableStage(seed=seed, spout={"retry": RETRY_3})
    (letter,) = stage.run().letters
    assert (letter.message_id, letter.attempts, letter.component) == (3, 3, "work")
    assert letter.cause == Cause.EXCEPTION
    assert "cannot travel" in letter.reason


@SEEDS
def test_text_that_cannot_be_encoded(seed: int) -> None:
    stage = Stage(once(ValueError("no \ud800" + "x" * (1 << 20))), seed=seed)
    journal = stage.run()
    failure = journal.first_failure(3)
    assert failure.reason.startswith("ValueError: no \\ud800xx")
    assert "clipped to 4,096 bytes" in failure.reason
    assert {call.number for call in journal.failures} == {3}


@SEEDS
def test_at_most_once(seed: int) -> None:
    stage = Stage(seed=seed, ackers=0, total=400, link=Link(drop=0.05))
    stage.net.run()
    journal = stage.journal
    assert not journal.failures
    assert 0 < len(journal.stored) <= 400
    assert set(journal.stored.values()) == {1}, "nothing is processed twice"
