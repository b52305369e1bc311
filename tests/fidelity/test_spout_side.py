"""Tests of Storm's spout executor: emits, when a spout may emit, and the calls that it gets."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from sunshower import Cause, Failure, Spout, SpoutCollector, Topology
from sunshower.clock import ManualClock
from sunshower.errors import ClusterError
from sunshower.runtime.inline import run_inline
from sunshower.runtime.transport.channels import Channel
from tests.fidelity.stage import Stage, Word, Words, chain, end, pass_on
from tests.runtime.transport.test_worker import SPOUT, SimEnvironment

NO = Failure(Cause.FAILED, "bolt1", 0, "no")


def fan_out(*words: str | None, **settings: Any) -> Stage:
    """A spout whose emits each go to five tasks of two bolts."""
    topology = Topology("t", **{"ackers": 1, "message_timeout_s": 30, **settings})
    stream = topology.spout("words", Words(*words))
    stream.all().bolt("all", end, parallelism=3)
    stream.all().bolt("too", end, parallelism=2)
    return Stage(topology)


# ---- an emit ------------------------------------------------------------------------------------


def test_emit_has_one_root_with_an_edge_for_each_task_that_gets_a_copy() -> None:
    """Storm: org/apache/storm/executor/spout/SpoutOutputCollectorImpl.java, sendSpoutMsg."""
    stage = fan_out("rain")
    stage.emit()
    sent = stage.sent("all") + stage.sent("too")
    assert len(sent) == 5
    assert len({edge for batch in sent for edge in batch.edges.tolist()}) == 5
    assert {root for batch in sent for root in batch.roots.tolist()} == set(stage.pending.tolist())


# ---- when it may emit ---------------------------------------------------------------------------


def test_limit_of_pending_trees_holds_for_every_task_and_every_emit() -> None:
    """Storm: org/apache/storm/executor/spout/SpoutExecutor.java, call: once per loop."""

    class Burst(Words):
        def next_tuple(self, out: SpoutCollector[Word]) -> None:
            while self.left:
                super().next_tuple(out)

    topology = Topology("t", ackers=1, spout_pending=2)
    topology.spout("words", Burst("a", "b", "c")).shuffle().bolt("bolt1", end)
    stage = Stage(topology)
    stage.emit()
    assert len(stage.pending) == 2
    stage.emit()
    assert len(stage.pending) == 2


def test_spout_does_not_emit_while_a_receiver_has_no_room() -> None:
    """Storm: org/apache/storm/executor/spout/SpoutExecutor.java, tryFlushPendingEmits."""
    environment = SimEnvironment(*range(5_000))
    environment.packets(SPOUT)
    channels: list[Channel] = list(environment[SPOUT]._wired.channels.values())
    assert channels[0].full
    before = environment.spout().output_streams.emitted
    environment.packets(SPOUT)
    assert environment.spout().output_streams.emitted == before < 5_000


def test_spout_gets_verdicts_while_it_may_not_emit() -> None:
    """Storm: org/apache/storm/executor/spout/SpoutExecutor.java, call: receives every loop."""
    stage = Stage(chain(pass_on, words=("a", "b"), spout_pending=1))
    stage.emit()
    stage.process("bolt1", "end")
    stage.deliver()
    assert stage.calls == [("ack", "a")]


def test_spout_without_tuples_is_called_less_often() -> None:
    """Storm: org/apache/storm/executor/spout/SpoutExecutor.java, call: ISpoutWaitStrategy."""
    clock, asked_s = ManualClock(), list[float]()

    class Empty(Spout[Word]):
        def next_tuple(self, out: SpoutCollector[Word]) -> None:
            asked_s.append(clock.now())

    topology = Topology("t", ackers=1)
    topology.spout("words", Empty()).shuffle().bolt("bolt1", end)
    with pytest.raises(ClusterError):
        run_inline(topology.graph(), clock=clock, steps_max=500)
    assert asked_s[:4] == pytest.approx([0, 0.001, 0.002, 0.003])
    (at_1_s,) = [after - before for before, after in pairwise(asked_s) if before < 1 <= after]
    assert at_1_s == pytest.approx(1 / 16, rel=0.1), "1/16 of the time without a tuple"
    assert asked_s[-1] - asked_s[-2] == pytest.approx(0.1), "at most 0.1 s"


# ---- the calls that it gets ---------------------------------------------------------------------


@pytest.mark.parametrize("verdict", ["ack", "fail", "timeout"])
def test_ack_and_fail_are_called_once_with_the_message_id(verdict: str) -> None:
    """Storm: org/apache/storm/executor/spout/SpoutExecutor.java, tupleActionFn."""
    stage = Stage(chain(pass_on))
    stage.emit()
    roots = stage.pending
    for _ in range(2):
        if verdict == "ack":
            stage.words.complete(roots, 0.0)
        elif verdict == "fail":
            stage.words.failed(roots, NO, stage.now)
        else:
            stage.wait(30.0)
    assert [call[:2] for call in stage.calls] == [("ack" if verdict == "ack" else "fail", "rain")]


def test_failure_has_cause_place_and_reason() -> None:
    """Storm: org/apache/storm/executor/spout/SpoutExecutor.java, failSpoutMsg: a debug log line."""
    stage = Stage(chain(lambda tuple, out: out.fail(tuple, "no such word")))
    stage.emit()
    stage.process("bolt1")
    stage.deliver()
    assert stage.calls == [("fail", "rain", "failed by bolt in bolt1[0]: no such word")]


def test_runtime_replays_unless_the_spout_does() -> None:
    """Storm: org/apache/storm/spout/ISpout.java, fail(msgId): the spout replays, or does not."""

    class Replaying(Words):
        replay = True

    for kind, emitted in ((Words, 1), (Replaying, 2)):
        topology = Topology("t", ackers=1)
        topology.spout("words", kind("rain")).shuffle().bolt("bolt1", end)
        stage = Stage(topology)
        stage.emit()
        stage.words.failed(stage.pending, NO, stage.now)
        stage.wait(0.1)
        stage.emit()
        assert stage.words.output_streams.emitted == emitted


def test_every_failure_is_counted_and_timeouts_can_be_distinguished() -> None:
    """Storm: org/apache/storm/executor/spout/SpoutExecutor.java, failSpoutMsg: one counter."""
    stage = Stage(chain(pass_on, words=("a", "b", "c")))
    stage.emit()
    stage.words.failed(stage.pending[:1], NO, stage.now)
    stage.wait(30.0)
    assert stage.words.stats().counts.failed == 3
    assert [call[2].split()[0].rstrip(":") for call in stage.calls] == [
        "failed",
        "timeout",
        "timeout",
    ]
