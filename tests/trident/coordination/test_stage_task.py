"""One task of a stage by itself: counts of parts, phases, and attempts that are over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sunshower import Context
from sunshower.clock import Clock, ManualClock
from sunshower.errors import BatchError
from sunshower.topologies.operators.generated_stages import Feed, StageNode
from sunshower.topologies.operators.port import Attempt, Emit, Operator
from sunshower.trident.coordination.attempts import COMMIT, BatchCommand, Count, Part
from sunshower.trident.stages.plan import Stage, StageInput, StageOutput
from sunshower.trident.tasks.stage_bolt import PartCounter, StageBolt, phases
from tests.trident.rigs.group_rig import ROW, Mod, Row

FEEDERS, TASK, READERS = (1, 2), 5, (7, 8)
COORD = "$coord-g"


class FakeTuple:
    """A tuple that records whether it was acked or failed."""

    def __init__(self, component: str, task: int, stream: str, record: Any) -> None:
        self.component, self.task, self.stream, self.record = component, task, stream, record
        self.state = "open"
        self.reason = ""


class FakeCollector:
    """A collector that records its calls."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, str, Any]] = []

    def emit_direct(self, task: int, record: Any, anchors: Any = (), *, stream: str = "") -> None:
        assert anchors.state == "open"
        self.sent.append((task, stream, record))

    def ack(self, tuple: Any) -> None:
        assert tuple.state == "open"
        tuple.state = "acked"

    def fail(self, tuple: Any, reason: str = "") -> None:
        assert tuple.state == "open"
        tuple.state, tuple.reason = "failed", reason


class Gather(Operator):
    """Collects its rows, and emits them when it finishes."""

    def __init__(self, *, commits: bool = False) -> None:
        self.commits = commits
        self.done: list[tuple[Attempt, int]] = []

    def start(self, attempt: Attempt) -> list[Any]:
        return []

    def process(self, batch: Any, source: int, rows: Sequence[Any], emit: Emit) -> None:
        if any(row.number < 0 for row in rows):
            raise ValueError("no negatives")
        batch.extend(rows)

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        self.done.append((attempt, len(batch)))
        emit(batch)


class Task:
    """A stage between two others, in one task."""

    def __init__(
        self,
        *,
        commits: bool = False,
        max_batches: int = 3,
        operator: Any = None,
        kind: type[StageBolt] = StageBolt,
        clock: Clock | None = None,
    ) -> None:
        self.operator: Any = operator or Gather(commits=commits)
        inputs = (StageInput("before", "rows", ROW, (Feed(0, 0),)),)
        outputs = (StageOutput(0, "made", "after", ROW, Mod()),)
        stage = Stage("mine", 1, (StageNode(self.operator),), inputs=inputs, outputs=outputs)
        before = Stage("before", 2, outputs=(StageOutput(None, "rows", "mine", ROW, Mod()),))
        after = Stage("after", 2, inputs=(StageInput("mine", "made", ROW, ()),))
        self.bolt = kind("g", stage, phases([before, stage, after])["mine"], max_batches)
        tasks = {"before": FEEDERS, "mine": (TASK,), "after": READERS}
        self.bolt.prepare(Context("t", "mine", TASK, 0, 1, tasks, clock=clock or ManualClock()))
        self.out = FakeCollector()

    def receive(self, component: str, task: int, stream: str, record: Any) -> FakeTuple:
        tuple = FakeTuple(component, task, stream, record)
        try:
            self.bolt.execute(tuple, self.out)
        except Exception as error:
            tuple.state, tuple.reason = "raised", str(error)
        return tuple

    def part(self, task: int, rows: Sequence[Any], txid: int = 1, attempt: int = 0) -> FakeTuple:
        return self.receive("before", task, "rows", Part(txid, attempt, 1, list(rows)))

    def count(
        self, task: int, parts: int, txid: int = 1, attempt: int = 0, epoch: int = 1
    ) -> FakeTuple:
        return self.receive("before", task, COORD, Count(txid, attempt, epoch, parts))

    def commit(self, txid: int = 1, attempt: int = 0, epoch: int = 1) -> FakeTuple:
        return self.receive("$mastercoord-g", 0, COMMIT, BatchCommand(txid, attempt, epoch, False))

    @property
    def counts(self) -> list[int]:
        """The numbers of parts that were reported to the readers."""
        return [record.parts for _, stream, record in self.out.sent if stream == COORD]


def test_a_batch_ends_when_all_counts_and_all_parts_have_arrived() -> None:
    task = Task()
    first = task.part(1, [Row(0, 1), Row(1, 2)])
    assert first.state == "acked"
    counts = [task.count(1, 1)]
    task.part(2, [Row(0, 3)])
    assert [count.state for count in counts] == ["open"], "a count is missing"
    assert task.operator.done == []
    counts.append(task.count(2, 1))
    assert task.operator.done == [(Attempt(1, 0, 1), 3)]
    assert [count.state for count in counts] == ["acked", "acked"]
    assert task.counts == [1, 1]


def test_a_batch_with_missing_parts_fails_at_the_count_of_their_sender() -> None:
    task = Task()
    task.part(1, [Row(0, 1)])
    held = task.count(1, 1)
    last = task.count(2, 1)
    assert last.state == "raised"
    assert last.reason == "task 2 has sent 1 parts of one attempt, and 0 have come"
    assert task.part(2, [Row(0, 2)]).state == "failed", "the attempt is over here"
    assert task.operator.done == []
    task.count(1, 0, attempt=1)
    task.count(2, 0, attempt=1)
    assert task.operator.done == [(Attempt(1, 1, 1), 0)]
    assert held.state == "open", "its tree has failed already, with the count that raised"


def test_an_empty_batch_is_counted_too() -> None:
    task = Task()
    task.count(1, 0)
    task.count(2, 0)
    assert task.operator.done == [(Attempt(1, 0, 1), 0)]
    assert task.counts == [0, 0]


def test_rows_that_arrive_as_lists_become_records_again() -> None:
    task = Task()
    task.part(1, [[0, 1], [1, 2]])
    task.count(1, 1)
    task.count(2, 0)
    rows = [row for _, stream, part in task.out.sent if stream == "made" for row in part.rows]
    assert rows == [Row(0, 1), Row(1, 2)]


def test_a_committing_stage_waits_for_the_command_of_the_master() -> None:
    task = Task(commits=True)
    counts = [task.count(1, 0), task.count(2, 0)]
    assert [count.state for count in counts] == ["acked", "acked"], "the process phase is over here"
    assert task.operator.done == []
    assert task.counts == []
    assert task.commit().state == "acked"
    assert task.operator.done == [(Attempt(1, 0, 1), 0)]
    assert task.counts == [0, 0]


def test_a_commit_of_a_batch_that_the_task_has_not_fully_received_fails_at_once() -> None:
    fresh = Task(commits=True)
    assert fresh.commit().state == "failed"
    incomplete = Task(commits=True)
    incomplete.part(1, [Row(0, 1)])
    incomplete.count(2, 0)
    last = incomplete.commit()
    assert last.state == "failed"
    assert "not seen all of the batch" in last.reason
    assert incomplete.operator.done == fresh.operator.done == []
    assert incomplete.count(1, 1).state == "failed", "the attempt is over"


def test_a_commit_of_another_attempt_fails() -> None:
    task = Task(commits=True)
    task.count(1, 0, attempt=1)
    task.count(2, 0, attempt=1)
    assert task.commit(attempt=0).state == "failed"
    assert task.commit(attempt=1).state == "acked"


def test_a_higher_attempt_ends_the_lower_one_at_once_and_late_tuples_fail() -> None:
    task = Task()
    held = task.count(1, 0)
    task.count(1, 0, attempt=1)
    assert held.state == "failed"
    assert task.part(2, [Row(0, 1)]).state == "failed"
    task.count(2, 0, attempt=1)
    assert task.operator.done == [(Attempt(1, 1, 1), 0)]


def test_a_higher_epoch_ends_all_attempts_of_the_lower_one() -> None:
    task = Task()
    held = task.count(1, 0, txid=2)
    task.count(1, 0, txid=1, epoch=2)
    assert held.state == "failed"
    assert task.count(2, 1, txid=2, attempt=9).state == "failed"


def test_an_error_ends_the_attempt_and_the_rest_of_it_fails_at_once() -> None:
    task = Task()
    task.part(2, [Row(0, 4)])
    last = task.part(1, [Row(0, -1)])
    assert (last.state, last.reason) == ("raised", "no negatives")
    assert task.part(1, [Row(0, 1)]).state == "failed"
    assert task.count(1, 2).state == "failed"
    assert task.out.sent == []


def test_the_counts_of_batches_that_must_be_committed_by_now_are_dropped() -> None:
    task = Task(max_batches=2)
    for txid in range(1, 50):
        for sender in FEEDERS:
            task.count(sender, 0, txid)
    assert len(task.bolt._batches) <= 3
    assert task.count(1, 0, txid=40).state == "failed"


def test_large_shares_are_cut_into_parts() -> None:
    task = Task()
    task.part(1, [Row(0, n) for n in range(9000)])
    task.count(1, 1)
    task.count(2, 0)
    sizes = [len(part.rows) for _, stream, part in task.out.sent if stream == "made"]
    assert sizes == [4096, 4096, 808]
    assert task.counts == [3, 0]


def test_surplus_parts_and_second_counts_are_refused() -> None:
    counter = PartCounter({1: False})
    counter.part(1)
    counter.count(1, 1)
    with pytest.raises(BatchError, match="twice"):
        counter.count(1, 1)
    with pytest.raises(BatchError, match="has sent 1 parts of one attempt, and 2 have come"):
        counter.part(1)


def mixed_task() -> Task:
    """A task whose source stage sends some rows early and some late."""
    task = Task()
    feeds = (StageNode(Gather()), StageNode(Gather(commits=True)))
    outputs = tuple(StageOutput(i, f"rows{i}", "mine", ROW, Mod()) for i in range(2))
    before = Stage("before", 2, feeds, outputs=outputs)
    inputs = tuple(StageInput("before", f"rows{i}", ROW, (Feed(0, 0),)) for i in range(2))
    mine = Stage("mine", 1, (StageNode(task.operator),), inputs=inputs)
    task.bolt = StageBolt("g", mine, phases([before, mine])["mine"], 3)
    task.bolt.prepare(Context("t", "mine", TASK, 0, 1, {"before": FEEDERS, "mine": (TASK,)}))
    return task


def receive_part(task: Task, sender: int, stream: str) -> FakeTuple:
    return task.receive("before", sender, stream, Part(1, 0, 1, [Row(0, 1)]))


def receive_count(task: Task, sender: int, parts: int, *, late: bool) -> FakeTuple:
    return task.receive("before", sender, COORD, Count(1, 0, 1, parts, late))


def test_early_and_late_rows_of_the_same_tasks_are_counted_in_both_phases() -> None:
    task = mixed_task()
    receive_part(task, 1, "rows0")
    counts = [receive_count(task, 1, 1, late=False)]
    assert [count.state for count in counts] == ["open"], "a count is missing"
    receive_part(task, 2, "rows0")
    counts.append(receive_count(task, 2, 1, late=False))
    assert [count.state for count in counts] == ["acked", "acked"]
    assert task.operator.done == []
    receive_part(task, 1, "rows1")
    receive_count(task, 1, 2, late=True)
    receive_count(task, 2, 1, late=True)
    assert task.operator.done == [(Attempt(1, 0, 1), 3)]


def test_early_rows_that_were_lost_with_a_task_are_detected_in_the_commit() -> None:
    """They were acked, so without this check only the timeout would detect the loss."""
    assert receive_count(mixed_task(), 1, 1, late=True).state == "raised"
    assert receive_count(mixed_task(), 1, 0, late=True).state == "failed"
