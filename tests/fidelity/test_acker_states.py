"""Tests of Storm's acker in each state: what its code does with each report."""

from __future__ import annotations

from functools import reduce
from operator import xor

import numpy as np
import pytest

from sunshower import Cause, Failure, Topology
from sunshower.runtime.tracking.ids import EdgeIds
from sunshower.runtime.tracking.ledger import AckerTask
from sunshower.runtime.tracking.reports import ShardReport
from tests.fidelity.stage import Scripted, Stage, Word, Words, chain, end, pass_on

ROOT = 1 << 48 | 1 << 24
A, B = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9
WHY = Failure(Cause.FAILED, "bolt", 0, "no")


class Acker:
    """One acker, whose verdicts are returned as text."""

    def __init__(self) -> None:
        self.task = AckerTask(9, [1])

    def start(self, xor: int) -> str:
        return self._hear(ShardReport(starts=[self._pair(xor)]))

    def ack(self, *xors: int) -> str:
        return self._hear(ShardReport(acks=[self._pair(xor) for xor in xors]))

    def fail(self) -> str:
        return self._hear(ShardReport(fails=[(ROOT, WHY)]))

    def _pair(self, xor: int) -> tuple[np.ndarray, np.ndarray]:
        return np.array([ROOT], np.uint64), np.array([xor], np.uint64)

    def _hear(self, report: ShardReport) -> str:
        verdicts = self.task.apply(report, 0.0).get(0)
        self.task.ledger.check_invariants()
        if verdicts is None:
            return "nothing"
        assert len(verdicts.complete) + len(verdicts.failed) == 1
        return "ack" if verdicts.complete else f"fail: {verdicts.failed[0][1].reason}"


@pytest.fixture
def acker() -> Acker:
    return Acker()


def test_xor_of_start_and_acks_is_zero_when_all_is_processed(acker: Acker) -> None:
    """Storm: org/apache/storm/daemon/Acker.java, execute: curr.val ^= the value of INIT and ACK."""
    assert acker.start(A ^ B) == "nothing"
    assert acker.ack(A) == "nothing"
    assert acker.ack(B) == "ack"


def test_ack_that_precedes_the_start_counts(acker: Acker) -> None:
    """Storm: org/apache/storm/daemon/Acker.java, execute: the entry is made with spoutTask -1."""
    assert acker.ack(A) == "nothing"
    assert acker.start(A) == "ack"


def test_failure_that_precedes_the_start_is_remembered(acker: Acker) -> None:
    """Storm: org/apache/storm/daemon/Acker.java, execute: failed = true, sent when INIT arrives."""
    assert acker.fail() == "nothing"
    assert acker.start(A) == "fail: no"


def test_failed_takes_precedence_over_zero_unlike_in_storm(acker: Acker) -> None:
    """Storm: org/apache/storm/daemon/Acker.java, execute tests val == 0 before failed."""
    acker.ack(A)
    acker.fail()
    assert acker.start(A) == "fail: no"


def test_failure_is_reported_at_once_and_later_acks_make_no_entry(acker: Acker) -> None:
    """Storm: org/apache/storm/daemon/Acker.java, execute; there later acks make a new entry."""
    acker.start(A ^ B)
    assert acker.fail() == "fail: no"
    assert acker.ack(A) == "nothing"
    assert acker.task.ledger.open_count() == 0
    size = acker.task.ledger.bytes_per_slot()
    assert acker.ack(B) == "nothing"
    assert acker.task.ledger.bytes_per_slot() == size


def test_xor_of_a_value_that_is_acked_twice_is_never_zero(acker: Acker) -> None:
    """Storm: org/apache/storm/daemon/Acker.java, execute.

    No acker can detect this, neither Storm's nor ours. Here the collector prevents it:
    tests/runtime/bolts/test_manual_bolt.py.
    """
    acker.start(A ^ B)
    assert acker.ack(A, A) == "nothing"
    assert acker.ack(B) == "nothing"
    assert acker.task.ledger.open_count() == 1


def test_second_failure_has_no_verdict(acker: Acker) -> None:
    """Storm: org/apache/storm/daemon/Acker.java, execute; there it makes a ghost entry."""
    acker.start(A)
    acker.fail()
    assert acker.fail() == "nothing"


@pytest.mark.parametrize("late", ["ack", "fail"])
def test_report_on_a_complete_tree_has_no_verdict(acker: Acker, late: str) -> None:
    """Storm: org/apache/storm/daemon/Acker.java, execute; there it makes a ghost entry."""
    acker.start(A)
    acker.ack(A)
    assert (acker.ack(B) if late == "ack" else acker.fail()) == "nothing"
    assert acker.task.ledger.open_count() == 0


def test_verdict_after_the_timeout_is_ignored_by_the_spout() -> None:
    """Storm: org/apache/storm/executor/spout/SpoutExecutor.java, tupleActionFn: null."""
    stage = Stage(chain(pass_on))
    stage.emit()
    stage.wait(30.0)
    stage.process("bolt1", "end")
    stage.deliver()
    assert stage.calls == [("fail", "rain", "timeout: no verdict within 30 s")]


def test_restarted_acker_has_no_trees_and_no_verdicts() -> None:
    """Storm: org/apache/storm/daemon/Acker.java, prepare: pending is memory only.

    Here the spouts then fail the trees of that shard, and do not wait for their timeouts:
    tests/guarantee/test_core.py.
    """
    stage = Stage(chain(pass_on))
    stage.emit()
    stage.deliver()
    (number,) = stage.wired.ackers
    stage.wired.ackers[number] = AckerTask(number, [1])
    stage.process("bolt1", "end")
    stage.deliver()
    assert stage.calls == []


def test_message_without_subscribers_is_acked_at_once() -> None:
    """Storm: org/apache/storm/daemon/Acker.java, execute: the XOR of no edge is 0."""
    topology = Topology("t", ackers=1)
    topology.spout("words", Words("rain"))
    stage = Stage(topology)
    stage.emit()
    stage.deliver()
    assert stage.calls == [("ack", "rain")]


def test_slot_is_kept_until_it_is_used_again(acker: Acker) -> None:
    """Storm: org/apache/storm/daemon/Acker.java, TIMEOUT_BUCKET_NUM, and RotatingMap.java.

    There an entry is kept for two to three timeouts, here until its slot is used again, so that
    memory is bounded.
    """
    acker.ack(A)
    newer = ROOT + (1 << 24)
    newer_roots = np.array([newer], np.uint64)
    ledger = acker.task.ledger
    ledger.start(newer_roots, np.array([B], np.uint64))
    assert acker.start(A) == "nothing", "its slot has a newer generation"
    assert ledger.ack(newer_roots, np.array([B], np.uint64)).complete.tolist() == [newer]


def test_complete_latency_begins_at_the_emit() -> None:
    """Storm: org/apache/storm/daemon/Acker.java, AckObject.startTime: the acker's first report."""
    stage = Stage(chain(pass_on))
    stage.emit()
    stage.now = 8.0
    stage.process("bolt1", "end")
    stage.deliver()
    assert stage.words.latencies.percentile(50) == pytest.approx(8.0, rel=0.1)


def test_tree_of_a_join_is_complete_only_with_all_its_roots() -> None:
    """Storm: org/apache/storm/daemon/Acker.java, execute: each root on its own."""
    held = []

    def join(tuple: object, out: object) -> None:
        held.append(tuple)
        if len(held) == 2:
            out.emit(Word("both"), held)  # type: ignore[attr-defined]
            out.ack(held[0])  # type: ignore[attr-defined]

    topology = Topology("t", ackers=1)
    words = topology.spout("words", Words("a", "b"))
    words.shuffle().bolt("join", Scripted(join)).shuffle().bolt("end", end)
    stage = Stage(topology)
    stage.emit()
    stage.process("join", "end")
    stage.deliver()
    assert stage.calls == [("ack", "a")], "b was not acked by the join"


# ---- the article on tuple trees: its example, its error and its estimate ------------------------


def edge_ids(count: int) -> list[int]:
    ids: list[int] = EdgeIds(np.random.default_rng(0)).draw(count).tolist()
    return ids


@pytest.mark.parametrize("bolts", [1, 2, 7])
def test_each_ack_removes_its_edge_from_the_xor_and_zero_is_complete(
    acker: Acker, bolts: int
) -> None:
    """Storm: org/apache/storm/daemon/Acker.java, execute. The article: id_1 ^ .. ^ id_n, then 0."""
    ids = edge_ids(bolts)
    acker.start(reduce(xor, ids))
    for done, edge in enumerate(ids, start=1):
        assert acker.ack(edge) == ("ack" if done == bolts else "nothing")
        assert acker.task.ledger._tables[1].xor[0] == reduce(xor, ids[done:], 0)


def test_by_the_articles_formula_a_tree_would_complete_while_a_child_is_open() -> None:
    """Storm: org/apache/storm/daemon/Acker.java, execute: zero is the end.

    The article lets an ack cancel its input edge alone; Storm adds the edges made from it.
    """
    id_1, bid_1 = edge_ids(2)
    article, storm = Acker(), Acker()
    article.start(id_1)
    storm.start(id_1)
    assert article.ack(id_1) == "ack", "although bid_1 is not processed"
    assert storm.ack(id_1 ^ bid_1) == "nothing"
    assert storm.ack(bid_1) == "ack"


def test_chance_of_a_false_zero_is_one_in_two_to_the_64th() -> None:
    """Storm: org/apache/storm/tuple/MessageId.java, generateId.

    The article: at 10,000 acks a second, once in 50,000,000 years. This test checks that no bit of
    partial XORs is constant, and that none of them is zero.
    """
    ids = np.array(edge_ids(20_000), np.uint64)
    running = np.bitwise_xor.accumulate(ids)
    bits = np.unpackbits(running.view(np.uint8).reshape(-1, 8), axis=1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.02
    assert running[:-1].all(), "no partial tree is zero"
