"""Spouts that may not emit: acks, failures and timeouts go on, and what goes along into a move."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pytest

from sunshower import Bolt, Cause, Counter, Failure, Number, Spout, SpoutCollector, Topology
from sunshower.clock import ManualClock
from sunshower.runtime.control.messages import DesiredState
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.wiring import context
from sunshower.runtime.worker import Worker
from tests.runtime.rig import Rig


class Witness:
    """What was called; tasks share it."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.held: list[tuple[Any, Any]] = []  # tuples and their collectors, open
        self.seen: list[int] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class Told(Counter):
    """Numbers, whose hooks are written down."""

    def __init__(self, witness: Witness, stop: int | None = None) -> None:
        super().__init__(stop)
        self.witness = witness

    def open(self, context: Any) -> None:
        super().open(context)
        self.witness.said.append("open")

    def activate(self) -> None:
        self.witness.said.append("activate")

    def deactivate(self) -> None:
        self.witness.said.append("deactivate")

    def ack(self, message_id: int) -> None:
        self.witness.said.append(("ack", message_id))

    def fail(self, message_id: int, failure: Failure) -> None:
        self.witness.said.append(("fail", message_id, failure.cause))


class Hold(Bolt[Number, None]):
    """Keeps every tuple open."""

    def __init__(self, witness: Witness) -> None:
        self.witness = witness

    def execute(self, tuple: Any, out: Any) -> None:
        self.witness.seen.append(tuple.record.value)
        self.witness.held.append((tuple, out))


def holding(
    witness: Witness, stop: int | None = None, **settings: Any
) -> tuple[Worker, ManualClock]:
    topology = Topology("t", spout_pending=4, workers=1, message_timeout_s=30, **settings)
    topology.spout("told", Told(witness, stop)).shuffle().bolt("hold", Hold(witness))
    clock = ManualClock()
    plan = make_plan(topology.graph(), Layout.PACK)
    return Worker(plan, 0, 1, np.random.default_rng(0), clock), clock


def work(worker: Worker) -> None:
    """Until nothing is to do at this moment."""
    for _ in range(100):
        worker.step()


def pending(worker: Worker) -> int:
    return sum(task.counts.pending for task in worker.stats().tasks)


def settle(worker: Worker, witness: Witness, what: str) -> None:
    """Ack or fail all that is held; the bolt's reports leave with its next input, or now."""
    for tuple, out in witness.held:
        getattr(out, what)(tuple)
    witness.held.clear()
    for bolt in worker._wired.bolts.values():
        bolt._carry_out(None)  # type: ignore[attr-defined]
    work(worker)


def test_hooks_are_called_after_open_and_at_every_change() -> None:
    witness = Witness()
    worker, _ = holding(witness)
    work(worker)
    for active in (True, False, False, True, True):
        worker.desired_state(DesiredState(active))
    assert witness.said == ["open", "activate", "deactivate", "activate"]


def test_topology_that_starts_inactive_is_opened_and_emits_nothing() -> None:
    witness = Witness()
    worker, _ = holding(witness)
    worker.desired_state(DesiredState(False))
    work(worker)
    assert witness.said == ["open"]
    assert not witness.seen
    assert worker.stats().at_rest
    worker.desired_state(DesiredState(True))
    work(worker)
    assert witness.said == ["open", "activate"]
    assert witness.seen == [0, 1, 2, 3]


def test_acks_go_on_and_nothing_fresh_is_emitted_while_inactive() -> None:
    witness = Witness()
    worker, _ = holding(witness)
    work(worker)
    worker.desired_state(DesiredState(False))
    settle(worker, witness, "ack")
    assert pending(worker) == 0
    assert [said for said in witness.said if said[0] == "ack"] == [("ack", n) for n in range(4)]
    assert witness.seen == [0, 1, 2, 3]
    worker.desired_state(DesiredState(True))
    work(worker)
    assert witness.seen == list(range(8))


@pytest.mark.parametrize("how", ["fail", "timeout"])
def test_failures_and_timeouts_go_on_and_replays_wait_for_the_activation(how: str) -> None:
    witness = Witness()
    worker, clock = holding(witness, stop=4)
    work(worker)
    worker.desired_state(DesiredState(False))
    if how == "fail":
        settle(worker, witness, "fail")
    else:
        clock.advance(31)
        work(worker)
    causes = {said[2] for said in witness.said if said[0] == "fail"}
    assert causes == {Cause.FAILED if how == "fail" else Cause.TIMEOUT}
    assert pending(worker) == 0
    (unsettled,) = {task.unsettled for task in worker.stats().tasks if task.component == "told"}
    assert unsettled == 4
    assert witness.seen == [0, 1, 2, 3]
    worker.desired_state(DesiredState(True))
    clock.advance(60)
    work(worker)
    assert sorted(witness.seen) == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("active", [True, False])
def test_drained_spout_emits_again_what_fails_and_nothing_fresh(active: bool) -> None:
    witness = Witness()
    worker, clock = holding(witness)
    work(worker)
    worker.desired_state(DesiredState(active))
    worker.drain()
    settle(worker, witness, "fail")
    clock.advance(20)
    work(worker)
    assert sorted(witness.seen) == [0, 0, 1, 1, 2, 2, 3, 3]
    settle(worker, witness, "ack")
    assert worker.finished


# ---- transfers ----------------------------------------------------------------------------------


class Rows(Spout[Number]):
    def tables(self) -> Iterator[pa.Table | None]:
        for first in (0, 3, 6):
            yield pa.table({"value": list(range(first, first + 3))})
            yield None


class Lines(Spout[Number]):
    def records(self) -> Iterator[Number | None]:
        for value in range(9):
            yield Number(value)
            yield None


def one(spout: Any) -> Rig:
    topology = Topology("t", spout_pending=8)
    topology.spout("spout", spout).shuffle().bolt("bolt", swallow)
    return Rig(topology)


def swallow(number: Number) -> None: ...


def values(rig: Rig) -> list[int]:
    found: list[int] = []
    for batch in rig.sent("spout") + rig.sent("bolt"):
        records = batch.records
        found += (
            records["value"].to_pylist()
            if isinstance(records, pa.Table)
            else [r[0] for r in records]
        )
    return found


def emit(rig: Rig, limit: int = 2, times: int = 12) -> None:
    for _ in range(times):
        rig.spout("spout").emit(0.0, limit)


@pytest.mark.parametrize("spout", [Lines, Rows])
def test_committed_is_the_lowest_number_that_is_not_settled(spout: Any) -> None:
    rig = one(spout)
    task = rig.spout("spout")
    assert task.committed == 0
    emit(rig, 1, 8)
    roots = task.pending.all_roots()
    task.complete(roots[1:2], 0.0)
    assert task.committed == 0
    task.complete(roots[:1], 0.0)
    assert task.committed == 2
    task.failed(roots[2:3], Failure(Cause.ACTOR_DIED), 0.0)
    assert task.committed == 2, "what is in line to be emitted again is not settled"


@pytest.mark.parametrize("spout", [Lines, Rows])
@pytest.mark.parametrize("position", [0, 1, 3, 4, 9])
def test_resumed_source_leaves_out_what_is_committed(spout: Any, position: int) -> None:
    rig = one(spout)
    task = rig.spout("spout")
    task.source.begin_at(position)
    task.open(context(rig.plan, task.task))
    emitted: list[int] = []
    for _ in range(30):
        if task.source.behind:
            task.source.skip()
        task.emit(0.0, 8)
        task.complete(task.pending.all_roots(), 0.0)
        emitted += values(rig)
    assert emitted == list(range(position, 9))
    assert task.exhausted
    assert task.committed == 9


@pytest.mark.parametrize("spout", [Lines, Rows])
def test_spout_that_stays_goes_on_with_its_source_and_repeats_what_was_pending(spout: Any) -> None:
    rig, next_life = one(spout), one(spout)
    task = rig.spout("spout")
    emit(rig, 1, 8)
    before = values(rig)
    task.complete(task.pending.all_roots()[:2], 0.0)
    transfer = task.pack(stays=True, now=0.0)
    assert transfer.instance is task.spout
    successor = next_life.spout("spout")
    successor.unpack(transfer, context(rig.plan, task.task))
    emitted: list[int] = []
    for _ in range(30):
        successor.emit(0.0, 8)
        successor.complete(successor.pending.all_roots(), 0.0)
        emitted += values(next_life)
    assert sorted(emitted) == sorted(set(range(9)) - set(before[:2]))
    assert successor.exhausted


@pytest.mark.parametrize("spout", [Lines, Rows])
def test_spout_that_moves_takes_nothing_along_but_its_position(spout: Any) -> None:
    rig = one(spout)
    task = rig.spout("spout")
    emit(rig, 1, 8)
    task.complete(task.pending.all_roots()[:2], 0.0)
    transfer = task.pack(stays=False, now=0.0)
    assert transfer == TaskTransfer(committed=2, drawn=transfer.drawn, owed=transfer.drawn)
    assert transfer.drawn > 2
    assert not len(task.pending)


class Manual(Spout[Number]):
    n = 0

    def next_tuple(self, out: SpoutCollector[Number]) -> None:
        for _ in range(3):
            out.emit(Number(self.n), f"id {self.n}")
            self.n += 1

    def snapshot(self) -> int:
        return self.n

    def restore(self, state: int) -> None:
        self.n = state


def test_manual_spout_that_moves_takes_its_state_and_all_that_is_open_along() -> None:
    rig, next_life = one(Manual), one(Manual)
    task = rig.spout("spout")
    task.emit(0.0, 8)
    task.emit(0.0, 8)
    task.complete(task.pending.all_roots()[:1], 0.0)
    transfer = task.pack(stays=False, now=0.0)
    assert (transfer.instance, transfer.state) == (None, 9)
    successor = next_life.spout("spout")
    successor.unpack(transfer, context(rig.plan, task.task))
    emitted: list[int] = []
    for _ in range(4):
        successor.emit(0.0, 8)
        successor.complete(successor.pending.all_roots(), 0.0)
        emitted += values(next_life)
    assert sorted(emitted) == list(range(1, max(emitted) + 1)), "each once, none is missing"
    assert max(emitted) > 9
