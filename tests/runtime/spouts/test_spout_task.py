"""Tests of spout tasks: emits, acks, failures, replays, deadlines and sweeps after deaths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sunshower import Cause, Context, Failure, Spout, Topology
from sunshower.config import Internals
from sunshower.errors import TopologyFailed
from sunshower.runtime.events.event_log import What
from sunshower.runtime.tasks.user_code import Raised
from sunshower.runtime.tracking.ids import U64
from tests.runtime.recorded import Alone
from tests.runtime.rig import Number, Rig, edges_by_root, records_of, sink


class Numbers(Spout[Number]):
    """Yields the numbers of the script; None means "nothing now"."""

    def __init__(self, *script: int | None) -> None:
        self.script = script
        self.heard: list[Any] = []

    def open(self, context: Context) -> None:
        self.heard = []

    def records(self) -> Iterator[Number | None]:
        return (None if n is None else Number(n) for n in self.script)

    def ack(self, message_id: int) -> None:
        self.heard.append(("ack", message_id))

    def fail(self, message_id: int, failure: Failure) -> None:
        self.heard.append(("fail", message_id, str(failure), failure.attempt))


def rig(*script: int | None, **settings: Any) -> Rig:
    topology = Topology("t", **{"ackers": 1, "message_timeout_s": 30, **settings})
    topology.spout("numbers", Numbers(*script)).all().bolt("next", sink, parallelism=2)
    return Rig(topology)


def numbers(here: Rig) -> list[int]:
    """Take the numbers that were sent to the first task of the next bolt."""
    first = here.plan.tasks_of("next")[0]
    batches = [entry[0] for entry in here.wired.inboxes[first.id].entries]
    here.sent("next")
    return [record.n for record in records_of(batches)]


def roots(here: Rig) -> U64:
    return here.spout("numbers").pending.all_roots()


BROKEN = Failure(Cause.FAILED, "next", 0, "no such number")
DIED = Failure(Cause.ACTOR_DIED, "next", 0)


# ---- emitting -----------------------------------------------------------------------------------


def test_start_is_the_xor_of_all_edges_that_were_sent() -> None:
    here = rig(7, 8, 9)
    assert here.spout("numbers").emit(0.0, 100) == 3
    assert dict(here.reports().starts) == dict(edges_by_root(here.sent("next")))


def test_spout_emits_no_more_than_the_room_in_the_pending_table() -> None:
    here = rig(*range(10), spout_pending=4)
    spout = here.spout("numbers")
    assert [spout.emit(0.0, 3), spout.emit(0.0, 3), spout.emit(0.0, 3)] == [3, 1, 0]
    spout.complete(roots(here)[:2], 1.0)
    assert spout.emit(1.0, 100) == 2


def test_none_ends_the_round_and_the_end_of_records_ends_the_task() -> None:
    here = rig(1, None, 2)
    spout = here.spout("numbers")
    assert spout.emit(0.0, 100) == 1
    assert spout.emit(0.0, 100) == 1
    assert not spout.done, "two are pending"
    spout.complete(roots(here), 0.0)
    assert spout.done


def test_untracked_topology_keeps_nothing() -> None:
    here = rig(*range(10), ackers=0, spout_pending=2)
    spout = here.spout("numbers")
    assert spout.emit(0.0, 100) == 10
    assert spout.done
    assert not here.sent("next")[0].tracked


def test_misfit_is_an_error_of_the_source_and_records_before_it_are_emitted() -> None:
    class Wrong(Numbers):
        def records(self) -> Iterator[Any]:
            yield Number(1)
            yield "two"

    topology = Topology("t", ackers=1)
    topology.spout("numbers", Wrong()).shuffle().bolt("next", sink)
    here = Rig(topology)
    with pytest.raises(Raised, match=r"numbers\[0\]: 'two' \(a str\) does not fit stream"):
        here.spout("numbers").emit(0.0, 100)
    assert records_of(here.sent("next")) == [Number(1)]


def test_last_record_of_a_source_that_does_not_fit_quarantines_the_spout() -> None:
    class Misfit(Numbers):
        def records(self) -> Iterator[Any]:
            return iter([Number(1), "two"])

    topology = Topology("t", ackers=1, task_errors_max=2)
    topology.spout("numbers", Misfit()).shuffle().bolt("next", sink)
    run = Alone(topology)
    for _ in range(70):  # it has emitted a record, so it is in doubt for ten minutes
        run.work()
        run.clock.advance(10.0)
    (spout,) = run.worker._spouts
    assert spout.supervision.is_quarantined, "its source is tried again, with the same result"
    assert run.values(What.COMPLETED) == [0]


# ---- verdicts -----------------------------------------------------------------------------------


def test_complete_tree_is_acked_with_its_position_and_its_latency() -> None:
    here = rig(7, 8)
    spout = here.spout("numbers")
    spout.emit(10.0, 100)
    spout.complete(roots(here)[1:], 10.5)
    assert spout.spout.heard == [("ack", 1)]
    assert spout.latencies.percentile(50) == pytest.approx(0.5, rel=0.1)


def test_failed_tree_is_reported_to_the_spout_and_replayed_before_new_records() -> None:
    here = rig(*range(4))
    spout = here.spout("numbers")
    spout.emit(0.0, 2)
    numbers(here)
    spout.failed(roots(here)[:1], BROKEN, 0.0)
    assert spout.spout.heard == [("fail", 0, "failed by bolt in next[0]: no such number", 1)]
    spout.emit(1.0, 2)
    assert numbers(here) == [0, 2]
    counts = spout.stats().counts
    assert (counts.emitted, counts.failed, counts.replayed, counts.pending) == (4, 1, 1, 3)


def test_replay_is_a_new_tree_and_verdicts_on_the_old_one_are_ignored() -> None:
    here = rig(5)
    spout = here.spout("numbers")
    spout.emit(0.0, 1)
    old = roots(here)
    spout.failed(old, DIED, 0.0)
    spout.emit(1.0, 1)
    assert roots(here).tolist() != old.tolist()
    spout.complete(old, 2.0)
    spout.failed(old, DIED, 0.0)
    assert len(spout.pending) == 1
    assert spout.stats().counts.acked == 0


def test_verdict_on_a_former_life_is_ignored() -> None:
    here = rig(5)
    spout = here.spout("numbers")
    spout.emit(0.0, 1)
    former = roots(here) - np.uint64(1 << 48)
    spout.complete(former, 1.0)
    spout.failed(former, DIED, 0.0)
    assert spout.spout.heard == []
    assert len(spout.pending) == 1


def test_attempts_are_counted_and_the_first_replay_that_is_acked_is_timed() -> None:
    here = rig(5)
    spout = here.spout("numbers")
    for now in (0.0, 1.0, 2.0):
        spout.emit(now, 1)
        spout.failed(roots(here), DIED, now)
    assert [heard[3] for heard in spout.spout.heard] == [1, 2, 3]
    spout.emit(3.0, 1)
    assert spout.stats().first_replay_s is None
    spout.complete(roots(here), 4.0)
    assert spout.stats().first_replay_s == 4.0


def test_tuple_that_its_bolt_always_fails_ends_the_topology_with_the_reason() -> None:
    here = rig(5, attempts_max=3)
    spout = here.spout("numbers")
    for now in (0.0, 1.0, 2.0):
        spout.emit(now, 1)
        spout.failed(roots(here), BROKEN, now)
    with pytest.raises(
        TopologyFailed, match=r"message 0 of spout 'numbers' failed 3 times, .* no such number"
    ):
        spout.emit(2.0, 1)


def test_tuple_that_only_the_runtime_fails_is_replayed_without_limit() -> None:
    here = rig(5, attempts_max=3)
    spout = here.spout("numbers")
    for now in range(0, 60, 3):
        assert spout.emit(now, 1) == 1
        spout.failed(roots(here), DIED, now)


# ---- time ---------------------------------------------------------------------------------------


def test_tree_fails_at_the_first_look_after_its_deadline() -> None:
    here = rig(5)
    spout = here.spout("numbers")
    spout.emit(0.0, 1)
    assert spout.next_look_s == 30.0
    spout.look(29.999)
    assert spout.spout.heard == []
    spout.look(30.0)
    assert spout.spout.heard == [("fail", 0, "timeout: no verdict within 30 s", 1)]


def test_spout_may_have_a_timeout_of_its_own() -> None:
    topology = Topology("t", ackers=1, message_timeout_s=30)
    topology.spout("numbers", Numbers(5), message_timeout_s=2.5).all().bolt("next", sink)
    topology.spout("others", Numbers(5)).all().into("next")
    here = Rig(topology)
    spout, other = here.spout("numbers"), here.spout("others")
    for task in (spout, other):
        task.emit(0.0, 1)
    assert (spout.next_look_s, other.next_look_s) == (2.5, 30.0)
    spout.postpone(roots(here), 2.0)
    spout.look(4.4)
    assert spout.spout.heard == []
    spout.look(4.5)
    assert spout.spout.heard == [("fail", 0, "timeout: no verdict within 2.5 s", 1)]


def test_postponed_tree_gets_a_full_timeout_again() -> None:
    here = rig(5)
    spout = here.spout("numbers")
    spout.emit(0.0, 1)
    spout.postpone(roots(here), 20.0)
    spout.look(49.999)
    assert spout.spout.heard == []
    spout.look(50.0)
    assert len(spout.spout.heard) == 1


# ---- deaths -------------------------------------------------------------------------------------


def test_sweep_fails_trees_that_are_still_pending_after_its_grace_time() -> None:
    here = rig(1, 2, 3, internals=Internals(sweep_grace_s=1.0))
    spout = here.spout("numbers")
    spout.emit(0.0, 2)
    early, late = roots(here)[:1], roots(here)[1:]
    spout.sweep(5.0, DIED, None, 1)
    spout.emit(5.1, 1)
    assert spout.next_look_s == 6.0
    spout.complete(early, 5.5)
    spout.look(6.0)
    assert spout.spout.heard == [("ack", 0), ("fail", 1, "actor died in next[0]", 1)]
    assert late.tolist()[0] not in roots(here).tolist()
    assert len(spout.pending) == 1, "what was emitted after the death is not touched"


def test_sweep_for_a_dead_shard_takes_the_slots_of_that_shard_alone() -> None:
    here = rig(*range(6), internals=Internals(sweep_grace_s=1.0))
    spout = here.spout("numbers")
    spout.emit(0.0, 6)
    spout.sweep(0.0, DIED, {1}, 3)
    spout.look(1.0)
    assert [heard[1] for heard in spout.spout.heard] == [1, 4]


def test_sweep_does_not_fail_a_replay_that_began_before_it_was_due() -> None:
    here = rig(1, internals=Internals(sweep_grace_s=1.0))
    spout = here.spout("numbers")
    spout.emit(0.0, 1)
    spout.sweep(0.0, DIED, None, 1)
    spout.failed(roots(here), DIED, 0.0)
    spout.emit(0.5, 1)
    spout.look(1.0)
    assert len(spout.spout.heard) == 1
    assert len(spout.pending) == 1


def test_sweep_without_pending_trees_does_nothing() -> None:
    spout = rig(1).spout("numbers")
    spout.sweep(0.0, DIED, None, 1)
    assert spout.next_look_s == np.inf
