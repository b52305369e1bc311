"""Inactive spouts: acks, failures and timeouts continue; and what a task transfer contains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pytest

from sunshower import Bolt, Cause, Counter, Failure, Number, Spout, SpoutCollector, Topology
from sunshower.clock import ManualClock
from sunshower.runtime.control.events import DesiredState
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.tasks.user_code import context
from sunshower.runtime.worker import Worker
from tests.runtime.rig import Rig


class Calls:
    """Records the calls of tasks, which share it."""

    def __init__(self) -> None:
        self.hooks: list[Any] = []
        self.held: list[tuple[Any, Any]] = []  # tuples and their collectors, open
        self.seen: list[int] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class RecordedCounter(Counter):
    """Numbers; records the calls of its hooks."""

    def __init__(self, calls: Calls, stop: int | None = None) -> None:
        super().__init__(stop)
        self.calls = calls

    def open(self, context: Any) -> None:
        super().open(context)
        self.calls.hooks.append("open")

    def activate(self) -> None:
        self.calls.hooks.append("activate")

    def deactivate(self) -> None:
        self.calls.hooks.append("deactivate")

    def ack(self, message_id: int) -> None:
        self.calls.hooks.append(("ack", message_id))

    def fail(self, message_id: int, failure: Failure) -> None:
        self.calls.hooks.append(("fail", message_id, failure.cause))


class Hold(Bolt[Number, None]):
    """Keeps every tuple open."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    def execute(self, tuple: Any, out: Any) -> None:
        self.calls.seen.append(tuple.record.value)
        self.calls.held.append((tuple, out))


def start(calls: Calls, stop: int | None = None, **settings: Any) -> tuple[Worker, ManualClock]:
    topology = Topology("t", spout_pending=4, workers=1, message_timeout_s=30, **settings)
    topology.spout("numbers", RecordedCounter(calls, stop)).shuffle().bolt("hold", Hold(calls))
    clock = ManualClock()
    plan = make_plan(topology.graph(), Layout.PACK)
    return Worker(plan, 0, 1, np.random.default_rng(0), clock), clock


def work(worker: Worker) -> None:
    """Do all that can be done at this moment."""
    for _ in range(100):
        worker.step()


def pending(worker: Worker) -> int:
    return sum(task.counts.pending for task in worker.stats().tasks)


def settle(worker: Worker, calls: Calls, what: str) -> None:
    """Ack or fail all held tuples. A bolt sends its reports with its next input; here, at once."""
    for tuple, out in calls.held:
        getattr(out, what)(tuple)
    calls.held.clear()
    for bolt in worker._wired.bolts.values():
        bolt._carry_out(None)  # type: ignore[attr-defined]
    work(worker)


def test_hooks_are_called_after_open_and_at_every_change() -> None:
    calls = Calls()
    worker, _ = start(calls)
    work(worker)
    for active in (True, False, False, True, True):
        worker.desired_state(DesiredState(active))
    assert calls.hooks == ["open", "activate", "deactivate", "activate"]


def test_topology_that_starts_inactive_is_opened_and_emits_nothing() -> None:
    calls = Calls()
    worker, _ = start(calls)
    worker.desired_state(DesiredState(False))
    work(worker)
    assert calls.hooks == ["open"]
    assert not calls.seen
    assert worker.stats().at_rest
    worker.desired_state(DesiredState(True))
    work(worker)
    assert calls.hooks == ["open", "activate"]
    assert calls.seen == [0, 1, 2, 3]


def test_acks_continue_and_no_new_record_is_emitted_while_inactive() -> None:
    calls = Calls()
    worker, _ = start(calls)
    work(worker)
    worker.desired_state(DesiredState(False))
    settle(worker, calls, "ack")
    assert pending(worker) == 0
    assert [hook for hook in calls.hooks if hook[0] == "ack"] == [("ack", n) for n in range(4)]
    assert calls.seen == [0, 1, 2, 3]
    worker.desired_state(DesiredState(True))
    work(worker)
    assert calls.seen == list(range(8))


@pytest.mark.parametrize("how", ["fail", "timeout"])
def test_failures_and_timeouts_continue_and_replays_wait_for_the_activation(how: str) -> None:
    calls = Calls()
    worker, clock = start(calls, stop=4)
    work(worker)
    worker.desired_state(DesiredState(False))
    if how == "fail":
        settle(worker, calls, "fail")
    else:
        clock.advance(31)
        work(worker)
    causes = {hook[2] for hook in calls.hooks if hook[0] == "fail"}
    assert causes == {Cause.FAILED if how == "fail" else Cause.TIMEOUT}
    assert pending(worker) == 0
    (unsettled,) = {task.unsettled for task in worker.stats().tasks if task.component == "numbers"}
    assert unsettled == 4
    assert calls.seen == [0, 1, 2, 3]
    worker.desired_state(DesiredState(True))
    clock.advance(60)
    work(worker)
    assert sorted(calls.seen) == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("active", [True, False])
def test_drained_spout_replays_failed_messages_and_emits_no_new_ones(active: bool) -> None:
    calls = Calls()
    worker, clock = start(calls)
    work(worker)
    worker.desired_state(DesiredState(active))
    worker.drain()
    settle(worker, calls, "fail")
    clock.advance(20)
    work(worker)
    assert sorted(calls.seen) == [0, 0, 1, 1, 2, 2, 3, 3]
    settle(worker, calls, "ack")
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


def make_rig(spout: Any) -> Rig:
    topology = Topology("t", spout_pending=8)
    topology.spout("spout", spout).shuffle().bolt("bolt", swallow)
    return Rig(topology)


def swallow(number: Number) -> None: ...


def values(rig: Rig) -> list[int]:
    values_sent: list[int] = []
    for batch in rig.sent("spout") + rig.sent("bolt"):
        records = batch.records
        values_sent += (
            records["value"].to_pylist()
            if isinstance(records, pa.Table)
            else [r[0] for r in records]
        )
    return values_sent


def emit(rig: Rig, limit: int = 2, times: int = 12) -> None:
    for _ in range(times):
        rig.spout("spout").emit(0.0, limit)


@pytest.mark.parametrize("spout", [Lines, Rows])
def test_committed_is_the_lowest_number_that_is_not_settled(spout: Any) -> None:
    rig = make_rig(spout)
    task = rig.spout("spout")
    assert task.committed == 0
    emit(rig, 1, 8)
    roots = task.pending.all_roots()
    task.complete(roots[1:2], 0.0)
    assert task.committed == 0
    task.complete(roots[:1], 0.0)
    assert task.committed == 2
    task.failed(roots[2:3], Failure(Cause.ACTOR_DIED), 0.0)
    assert task.committed == 2, "a message that waits for its replay is not settled"


@pytest.mark.parametrize("spout", [Lines, Rows])
@pytest.mark.parametrize("position", [0, 1, 3, 4, 9])
def test_resumed_source_skips_committed_records(spout: Any, position: int) -> None:
    rig = make_rig(spout)
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
    assert task.source.exhausted
    assert task.committed == 9


@pytest.mark.parametrize("spout", [Lines, Rows])
def test_spout_that_stays_continues_its_source_and_emits_pending_records_again(spout: Any) -> None:
    rig, next_life = make_rig(spout), make_rig(spout)
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
    assert successor.source.exhausted


@pytest.mark.parametrize("spout", [Lines, Rows])
def test_transfer_of_a_spout_that_moves_has_only_its_position(spout: Any) -> None:
    rig = make_rig(spout)
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


def test_transfer_of_a_manual_spout_that_moves_has_its_state_and_its_open_messages() -> None:
    rig, next_life = make_rig(Manual), make_rig(Manual)
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
