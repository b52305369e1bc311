"""Each container of user texts is bounded in bytes: the limits of ARCHITECTURE.md."""

from __future__ import annotations

import io
from sys import getsizeof

import numpy as np
import pytest

from sunshower import Counter, Retry, Topology
from sunshower.actors import store
from sunshower.errors import LifecycleError
from sunshower.failures import Cause, Failure
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.events.event_log import Entry, What, decode, encode
from sunshower.runtime.events.health import TaskError
from sunshower.runtime.events.log_lines import RateLimitedLog
from sunshower.runtime.plan import Layout, Task, make_plan
from sunshower.runtime.tasks.bolts.dead_letters import dead_letter
from sunshower.runtime.tasks.spouts.retry_queue import Replay, RetryQueue
from sunshower.runtime.tasks.supervision import _figures
from sunshower.runtime.tracking.ledger import AckerTask
from sunshower.runtime.tracking.reports import FailedRoots, ShardReport
from sunshower.runtime.transport.packets import Address, Content, encode_packet
from sunshower.texts import size_of

MIB = 1 << 20
FAILURE_BYTES = (1 << 12) + (1 << 14) + 256  # all texts of a failure, in UTF-8
SHORT_BYTES = 1 << 10  # all texts of a short failure, in memory


def root(slot: int) -> int:
    return (1 << 48) | (1 << 24) | slot


def raised(number: int) -> Failure:
    """Return a failure with texts of 120 kB in UTF-8, which are different for each number."""
    text = f"{number} " + "ä\ud800\x00" * 20_000
    return Failure(Cause.EXCEPTION, "b", 0, text, text, text)


def bytes_of(failures: list[Failure]) -> int:
    """Return the size in memory of all texts. A text that several failures share counts once."""
    texts = {id(t): t for f in failures for t in (f.reason, f.exception, f.traceback)}
    return sum(map(getsizeof, texts.values()))


def test_the_texts_of_a_failure_are_bounded() -> None:
    failure = Failure(Cause.FAILED, reason="ä" * MIB, exception="E" * MIB, traceback="x" * MIB)
    texts = (failure.reason, failure.exception, failure.traceback)
    assert sum(len(text.encode()) for text in texts) <= FAILURE_BYTES
    assert bytes_of([failure.short]) <= SHORT_BYTES
    assert failure.short.reason.startswith("ä")


def test_the_texts_of_a_task_error_are_bounded() -> None:
    error = TaskError("b", 0, 0, "x" * MIB, "E" * MIB, "t" * MIB)
    assert len(error.text) + len(error.exception) + len(error.traceback) <= FAILURE_BYTES


def report(*fails: tuple[int, Failure]) -> ShardReport:
    shard_report = ShardReport()
    shard_report.fails.add(fails)
    return shard_report


def start(slot: int) -> ShardReport:
    return ShardReport(starts=[(np.array([root(slot)], np.uint64), np.array([7], np.uint64))])


def test_an_acker_bounds_the_failures_of_trees_that_have_not_started() -> None:
    acker, count = AckerTask(1, [1]), 2_000
    for slot in range(count):
        acker.apply(report((root(slot), raised(slot))), 0.0)
    assert len(acker._reasons) == count
    assert bytes_of(list(acker._reasons.values())) <= 16 * MIB + count * SHORT_BYTES
    newest = acker.apply(start(count - 1), 0.0)[0].failed[0][1]
    assert newest == raised(count - 1), "the newest failures keep their texts"
    oldest = acker.apply(start(0), 0.0)[0].failed[0][1]
    assert oldest == raised(0).short
    assert len(acker._reasons) == count - 2


def test_an_acker_keeps_no_failures_of_closed_trees() -> None:
    acker = AckerTask(1, [1])
    for slot in range(500):
        acker.apply(start(slot), 0.0)
        verdicts = [acker.apply(report((root(slot), raised(n))), 0.0) for n in (0, 1)]
        assert verdicts == [{0: verdicts[0][0]}, {}]
        assert verdicts[0][0].failed == [(root(slot), raised(0))]
    assert not acker._reasons, "a second reason for the same tree is not kept"


def test_a_retry_queue_bounds_its_failures() -> None:
    queue, count = RetryQueue(Retry(attempts=9), np.random.default_rng(0)), 2_000
    for number in range(count):
        queue.put(Replay(number, None, 2), raised(number), 0.0, counts=True)
    failures = [charged.failure for charged in queue.charges.values()]
    assert bytes_of(failures) <= 16 * MIB + count * SHORT_BYTES
    assert failures[-1] == raised(count - 1)
    assert [charged.times for charged in queue.charges.values()] == [1] * count
    adopted = RetryQueue(Retry(attempts=9), np.random.default_rng(0))
    adopted.adopt([], queue.charges)
    for number in range(count):
        queue.settle(number)
        adopted.forget(number, number + 1)
    assert queue._texts._bytes == adopted._texts._bytes == 0


def test_failures_in_unsent_reports_are_bounded() -> None:
    content = Content()
    waiting = content.reports.setdefault(1, ShardReport())
    for slot in range(500):
        waiting.fails.add(report((root(slot), raised(slot))).fails)
    assert bytes_of([failure for _, failure in waiting.fails]) <= MIB
    assert len(encode_packet(Address(0, 1, 1, 1, 1), content)) <= MIB
    assert waiting.fails[0][1] == raised(0)


def test_a_failure_that_many_roots_share_counts_once() -> None:
    shared, fails = raised(0), FailedRoots()
    fails.add((root(slot), shared) for slot in range(10_000))
    assert all(failure is shared for _, failure in fails)


def test_a_dead_letter_is_clipped_to_its_limit() -> None:
    record = {"text": "x" * (2 * MIB), "binary": bytes(MIB), "small": 7, "long": [1] * MIB}
    for limit in (4 * MIB, MIB, 10_000, 1_000):
        letter = dead_letter("s", "id" * MIB, record, raised(0), 5, limit, time=0.0)
        assert size_of(tuple(letter)) <= limit
        assert letter.record["small"] == 7
        assert (letter.spout, letter.attempts, letter.cause) == ("s", 5, "exception")
        assert "clipped to" in letter.record["binary"]


def test_lines_of_the_log_are_bounded() -> None:
    log = RateLimitedLog("failures")
    for number in range(100):
        if log.admits("b", 0.0):
            log.say(f"{number}" + "x" * MIB)
    lines = log.take(100.0)
    assert len(lines) == 6
    assert sum(map(len, lines)) <= 5 * (1 << 12) + 100


def test_the_state_of_the_master_is_bounded() -> None:
    quarantined = {task: TaskError("b", task, 0, "x" * MIB, "E", "t" * MIB) for task in range(10)}
    state = MasterState(quarantined=quarantined, error="no \ud800")
    data = state.to_bytes()
    assert len(data) <= 10 * (FAILURE_BYTES + 100) + 1000
    assert MasterState.from_bytes(data) == state


@pytest.mark.long
def test_figures_of_user_code_are_bounded() -> None:
    figures = _figures({f"{number}" + "\ud800" * MIB: number for number in range(3_000)})
    assert len(figures) == 1_000
    assert all(len(name.encode()) <= 200 for name in figures)


def test_an_entry_of_an_event_log_is_bounded() -> None:
    detail = ("event", {"large": "x" * 17 * MIB, "small": 7})
    data = encode(Entry(0.0, What.NOTED, 1, detail=detail))
    assert len(data) <= (1 << 16) + 200
    (entry,) = decode(io.BytesIO(data))
    assert entry.detail[0] == "event"
    assert entry.detail[1]["small"] == 7


def test_a_task_transfer_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Store:
        def __init__(self, run: str) -> None: ...
        def transfer(self, move: int, task: int) -> None: ...
        def save_transfer(self, move: int, task: int, packed: bytes) -> None:
            assert len(packed) <= MIB

    topology = Topology("counts")
    topology.spout("count", Counter(1))
    monkeypatch.setattr(store, "RayStore", Store)
    monkeypatch.setattr(store, "_TRANSFER_BYTES_MAX", MIB)
    stored, task = (
        store.RayTransferStore("r", make_plan(topology.graph(), Layout.PACK)),
        Task(2, "count", 0, 0),
    )
    stored.save(1, task, TaskTransfer(state=b"x"), False)
    with pytest.raises(LifecycleError, match=r"count\[0\].*Return less from snapshot"):
        stored.save(1, task, TaskTransfer(state=b"x" * MIB), False)
