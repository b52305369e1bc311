"""Tests of Storm's streams from and to the acker, and of which acker gets a root."""

from __future__ import annotations

import numpy as np

from sunshower import Topology
from sunshower.runtime.plan import ACKER, Layout, make_plan
from sunshower.runtime.tracking.ids import incarnations_of
from tests.fidelity.stage import Stage, Words, chain, end, pass_on
from tests.runtime.rig import edges_by_root, xor_of


def test_start_has_the_root_and_the_xor_of_its_edges_and_the_root_identifies_its_spout() -> None:
    """Storm: org/apache/storm/daemon/StormCommon.java, addAcker: stream __ack_init."""
    stage = Stage(chain(pass_on))
    stage.emit()
    sent = stage.sent("bolt1")
    (report,) = stage.take().values()
    ((roots, xors),) = report.starts
    assert {roots.tolist()[0]: xors.tolist()[0]} == edges_by_root(sent)
    spouts = stage.plan.spouts
    assert spouts[int(incarnations_of(roots)[0]) % len(spouts)].component == "words"


def test_ack_has_root_and_xor_and_fail_has_root_and_reason() -> None:
    """Storm: org/apache/storm/daemon/StormCommon.java, addAcker: streams __ack_ack, __ack_fail."""
    stage = Stage(chain(lambda tuple, out: out.fail(tuple, "no"), words=("a", "b")))
    stage.emit()
    stage.take()
    stage.process("bolt1")
    (report,) = stage.take().values()
    assert not report.acks
    assert [failure.reason for _, failure in report.fails] == ["no", "no"]


def test_reset_timeout_goes_to_the_spout_because_ackers_have_no_deadlines() -> None:
    """Storm: org/apache/storm/daemon/StormCommon.java, addAcker: stream __ack_reset_timeout."""
    stage = Stage(chain(lambda tuple, out: out.reset_timeout(tuple)))
    stage.emit()
    stage.take()
    stage.process("bolt1")
    assert stage.bolt("bolt1").postponed == stage.pending.tolist()
    assert not stage.take(), "no report goes to an acker"


def test_verdicts_go_to_the_spout_task_that_emitted_and_to_no_bolt() -> None:
    """Storm: org/apache/storm/daemon/Acker.java, execute, emitDirect to spoutTask."""
    stage = Stage(chain(pass_on, words=("a", "b")))
    stage.emit()
    stage.process("bolt1", "end")
    (acker,) = stage.wired.ackers.values()
    (report,) = stage.take().values()
    verdicts = acker.apply(report, 0.0)
    assert list(verdicts) == [0], "the spout task, and no other task"
    assert sorted(np.concatenate(verdicts[0].complete).tolist()) == sorted(stage.pending.tolist())


def test_acker_shards_default_to_one_beside_each_worker_that_has_spouts() -> None:
    """Storm: org/apache/storm/daemon/StormCommon.java, addAcker: topology.acker.executors."""
    topology = Topology("t", workers=3)
    topology.spout("spout", Words("a"), parallelism=3).shuffle().bolt("bolt", end)
    packed = make_plan(topology.graph(), Layout.PACK)
    assert [acker.worker for acker in packed.tasks_of(ACKER)] == [0, 1, 2]


def test_an_acker_keeps_trees_without_a_time_limit() -> None:
    """Storm: org/apache/storm/daemon/StormCommon.java, addAcker: the acker's tick = the timeout.

    Storm forgets a tree after three buckets; here a report settles it at any time, and only the
    spout has deadlines.
    """
    stage = Stage(chain(pass_on, message_timeout_s=1e9))
    stage.emit()
    stage.deliver()
    stage.wait(1e8)
    stage.process("bolt1", "end")
    stage.deliver()
    assert stage.calls == [("ack", "rain")]


def test_all_generations_of_a_slot_have_the_same_shard() -> None:
    """Storm: org/apache/storm/utils/TupleUtils.java, chooseTaskIndex.

    There a replay, with its new random root, may get another acker; here the shard is a function
    of spout and slot, so that its table is dense.
    """
    stage = Stage(chain(pass_on, ackers=3, spout_pending=2))
    (spout,) = stage.plan.spouts
    shards = stage.plan.shards[stage.plan.spouts.index(spout)]
    for _ in range(4):
        stage.words.spout.left = ["a", "b"]
        stage.emit()
        for acker, report in stage.take().items():
            for roots, _ in report.starts:
                for slot in (roots & np.uint64(0xFFFFFF)).tolist():
                    assert shards[slot % 3].id == acker
        stage.words.complete(stage.pending, 0.0)


def test_edges_and_roots_are_64_bit_numbers() -> None:
    """Storm: org/apache/storm/tuple/MessageId.java, generateId from java.util.Random (48 bits)."""
    stage = Stage(chain(pass_on, words=tuple(f"w{n}" for n in range(500))))
    stage.emit(500)
    edges = [edge for batch in stage.sent("bolt1") for edge in batch.edges.tolist()]
    assert len(set(edges)) == 500
    assert np.bitwise_or.reduce(np.array(edges, np.uint64)) == np.uint64((1 << 64) - 1)
    assert xor_of(*edges) != 0
