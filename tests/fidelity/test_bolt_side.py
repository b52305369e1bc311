"""Storm's bolt collector: anchors, one, several, twice, of several trees; ack, fail, exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sunshower import Collector, Topology, Tuple
from sunshower.clock import ManualClock
from sunshower.errors import AlreadySettled, TopologyFailed
from sunshower.runtime.inline import run_inline
from tests.fidelity.stage import Scripted, Stage, Word, Words, chain, end, pass_on
from tests.runtime.rig import edges_by_root, xor_of


class Holding:
    """Holds `count` tuples, then does `what` with them."""

    def __init__(self, count: int, what: Any) -> None:
        self.count, self.what = count, what
        self.held: list[Tuple[Word]] = []

    def __call__(self, tuple: Tuple[Word], out: Collector[Word]) -> None:
        self.held.append(tuple)
        if len(self.held) == self.count:
            self.what(self.held, out)


def join(held: list[Tuple[Word]], out: Collector[Word]) -> None:
    out.emit(Word("joined"), held)
    for tuple in held:
        out.ack(tuple)


def two_copies(script: Any) -> Stage:
    """One word whose two copies, of one tree, come to the same bolt by two streams."""
    topology = Topology("t", ackers=1)
    words = topology.spout("words", Words("rain"))
    left = words.shuffle().bolt("left", Scripted(pass_on))
    right = words.shuffle().bolt("right", Scripted(pass_on))
    bolt = topology.bolt("join", Scripted(script), [left.shuffle(), right.shuffle()])
    bolt.shuffle().bolt("end", end)
    return Stage(topology)


# ---- emit ---------------------------------------------------------------------------------------


def test_every_target_task_gets_an_edge_of_its_own() -> None:
    """Storm: org/apache/storm/executor/bolt/BoltOutputCollectorImpl.java, boltEmit."""
    topology = Topology("t", ackers=1)
    words = topology.spout("words", Words("rain"))
    words.shuffle().bolt("bolt1", Scripted(pass_on)).all().bolt("end", end, parallelism=3)
    stage = Stage(topology)
    stage.emit()
    stage.process("bolt1")
    sent = stage.sent("end")
    assert len({edge for batch in sent for edge in batch.edges.tolist()}) == 3
    for batch in sent:
        stage.bolt("end").process(batch)
    stage.deliver()
    assert stage.heard == [("ack", "rain")]


def test_emit_with_several_anchors_belongs_to_all_their_trees() -> None:
    """Storm: org/apache/storm/executor/bolt/BoltOutputCollectorImpl.java, boltEmit."""
    stage = Stage(chain(Holding(2, join), words=("a", "b")))
    stage.emit()
    stage.process("bolt1")
    stage.deliver()
    assert stage.heard == [], "both wait for the joined word"
    stage.process("end")
    stage.deliver()
    assert sorted(stage.heard) == [("ack", "a"), ("ack", "b")]


def test_failure_of_a_joined_tuple_fails_all_its_trees() -> None:
    """Storm: org/apache/storm/executor/bolt/BoltOutputCollectorImpl.java, fail."""
    stage = Stage(
        chain(Holding(2, join), lambda tuple, out: out.fail(tuple, "no"), words=("a", "b"))
    )
    stage.emit()
    stage.process("bolt1", "bolt2")
    stage.deliver()
    assert sorted(heard[:2] for heard in stage.heard) == [("fail", "a"), ("fail", "b")]


def test_two_anchors_of_one_tree_leave_it_in_balance() -> None:
    """Storm: org/apache/storm/executor/bolt/BoltOutputCollectorImpl.java, boltEmit.

    The record carries the XOR of both edges for their common root.
    """
    stage = two_copies(Holding(2, join))
    stage.emit()
    stage.process("left", "right", "join")
    (batch,) = stage.sent("end")
    assert len(batch.roots) == 1
    stage.bolt("end").process(batch)
    stage.deliver()
    assert stage.heard == [("ack", "rain")]


def test_same_tuple_twice_among_the_anchors_is_legal() -> None:
    """Storm: org/apache/storm/executor/bolt/BoltOutputCollectorImpl.java, boltEmit.

    Its own test of this is testAckingSelfAnchor.
    """

    def twice(tuple: Tuple[Word], out: Collector[Word]) -> None:
        out.emit(tuple.record, [tuple, tuple])
        out.ack(tuple)

    stage = Stage(chain(twice))
    stage.emit()
    stage.process("bolt1", "end")
    stage.deliver()
    assert stage.heard == [("ack", "rain")]


def test_roots_of_one_anchor_share_its_edge() -> None:
    """Storm: org/apache/storm/executor/bolt/BoltOutputCollectorImpl.java, boltEmit."""
    stage = Stage(chain(Holding(2, join), pass_on, words=("a", "b")))
    stage.emit()
    stage.process("bolt1", "bolt2")
    (batch,) = stage.sent("end")
    assert len(batch.roots) == 2
    assert len(set(batch.edges.tolist())) == 1


def test_anchor_that_nobody_follows_is_ignored() -> None:
    """Storm: org/apache/storm/executor/bolt/BoltOutputCollectorImpl.java, boltEmit."""
    stage = Stage(chain(Holding(2, join), words=("a", None)))
    stage.emit()
    stage.process("bolt1", "end")
    stage.deliver()
    assert stage.heard == [("ack", "a")]


def test_emit_without_anchors_is_not_tracked() -> None:
    """Storm: org/apache/storm/task/OutputCollector.java, emit(List) is unanchored."""

    def loose(tuple: Tuple[Word], out: Collector[Word]) -> None:
        out.emit(tuple.record)
        out.ack(tuple)

    stage = Stage(chain(loose))
    stage.emit()
    stage.process("bolt1")
    stage.deliver()
    assert stage.heard == [("ack", "rain")], "nobody waits for the end"
    assert not stage.sent("end")[0].tracked


# ---- ack, fail, reset ---------------------------------------------------------------------------


def test_ack_is_the_input_edge_xor_the_edges_made_from_it() -> None:
    """Storm: org/apache/storm/executor/bolt/BoltOutputCollectorImpl.java, ack."""
    stage = Stage(chain(pass_on))
    stage.emit()
    stage.take()
    (inputs,) = stage.sent("bolt1")
    stage.bolt("bolt1").process(inputs)
    sent = stage.sent("end")
    (value,) = stage.reports().acks.values()
    assert value == xor_of(*edges_by_root([inputs, *sent]).values())
    assert value != xor_of(*inputs.edges.tolist()), "not its input edge alone"


@pytest.mark.parametrize("order", ["start, bolt, end", "end, bolt, start", "bolt, start, end"])
def test_order_of_reports_does_not_matter(order: str) -> None:
    """Storm: org/apache/storm/daemon/Acker.java, execute: XOR commutes."""
    stage = Stage(chain(pass_on))
    told = {}
    stage.emit()
    told["start"] = stage.take()
    stage.process("bolt1")
    told["bolt"] = stage.take()
    stage.process("end")
    told["end"] = stage.take()
    for name in order.split(", "):
        assert stage.heard == []
        stage.deliver(told[name])
    assert stage.heard == [("ack", "rain")]


@pytest.mark.parametrize("first", ["ack", "fail"])
@pytest.mark.parametrize("second", ["ack", "fail", "emit", "reset_timeout"])
def test_settled_tuple_is_refused_at_once(first: str, second: str) -> None:
    """Storm: org/apache/storm/executor/bolt/BoltOutputCollectorImpl.java, ack, fail: no checks.

    There a second ack, or an emit on an acked anchor, unbalances the tree until the timeout.
    """
    raised: list[str] = []

    def slip(tuple: Tuple[Word], out: Any) -> None:
        getattr(out, first)(tuple)
        try:
            if second == "emit":
                out.emit(tuple.record, tuple)
            else:
                getattr(out, second)(tuple)
        except AlreadySettled as error:
            raised.append(str(error))

    stage = Stage(chain(slip))
    stage.emit()
    stage.process("bolt1", "end")
    stage.deliver()
    assert [heard[:2] for heard in stage.heard] == [(first, "rain")]
    assert "bolt1[0]" in raised[0]
    assert "Word(word='rain')" in raised[0]


def test_tuple_that_is_never_settled_ends_at_the_timeout() -> None:
    """Storm: org/apache/storm/executor/spout/SpoutExecutor.java, init."""
    stage = Stage(chain(lambda _tuple, _out: None))
    stage.emit()
    stage.process("bolt1")
    stage.deliver()
    stage.wait(30.0)
    assert [heard[:2] for heard in stage.heard] == [("fail", "rain")]


def test_more_time_is_for_every_tree_of_the_tuple() -> None:
    """Storm: org/apache/storm/executor/bolt/BoltOutputCollectorImpl.java, resetTimeout."""
    stage = Stage(
        chain(Holding(2, join), lambda tuple, out: out.reset_timeout(tuple), words=("a", "b"))
    )
    stage.emit()
    stage.process("bolt1", "bolt2")
    assert sorted(stage.bolt("bolt2").postponed) == sorted(stage.pending.tolist())


def test_ack_and_fail_do_nothing_without_ackers() -> None:
    """Storm: org/apache/storm/executor/bolt/BoltOutputCollectorImpl.java, ackingEnabled."""
    stage = Stage(chain(pass_on, lambda tuple, out: out.fail(tuple, "no"), ackers=0))
    stage.emit()
    stage.process("bolt1", "bolt2")
    assert not stage.take()
    assert stage.heard == [("ack", "rain")], "by the spout itself, when it emitted"


def test_reports_of_one_batch_travel_together() -> None:
    """Storm: org/apache/storm/executor/bolt/BoltOutputCollectorImpl.java, ack.

    There each ack is a message of its own, and tracking halves the rate.
    """
    stage = Stage(chain(pass_on, words=tuple(f"w{n}" for n in range(100))))
    stage.emit()
    stage.take()
    stage.process("bolt1")
    (report,) = stage.take().values()
    assert len(report.acks) == 1
    assert len(report.acks[0][0]) == 100


# ---- exceptions ---------------------------------------------------------------------------------


def letters(word: Word) -> Iterator[Word]:
    for letter in word.word:
        if letter == "!":
            raise ValueError("no such letter")
        yield Word(letter)


def automatic(*words: str, **settings: Any) -> Topology:
    topology = Topology("t", **{"ackers": 1, **settings})
    topology.spout("words", Words(*words)).shuffle().bolt("split", letters).shuffle().bolt(
        "end", end
    )
    return topology


def test_automatic_bolt_anchors_what_it_yields_and_acks_when_it_returns() -> None:
    """Storm: org/apache/storm/topology/BasicBoltExecutor.java, execute."""
    stage = Stage(automatic("ab", ""))
    stage.emit()
    stage.process("split")
    stage.deliver()
    assert stage.heard == [("ack", "")], "the other waits for its letters"
    stage.process("end")
    stage.deliver()
    assert stage.heard == [("ack", ""), ("ack", "ab")]


def test_exception_fails_its_tuple_and_kills_nobody() -> None:
    """Storm: org/apache/storm/topology/BasicBoltExecutor.java, execute.

    There FailedException alone fails the tuple; any other ends the worker with all its tasks.
    """
    stage = Stage(automatic("a!", "b"))
    stage.emit()
    stage.process("split", "end")
    stage.deliver()
    assert sorted(stage.heard) == [
        ("ack", "b"),
        ("fail", "a!", "exception in split[0]: ValueError: no such letter"),
    ]


def test_exception_of_a_manual_bolt_fails_its_tuple() -> None:
    """Storm: org/apache/storm/executor/bolt/BoltExecutor.java, the exception ends the worker."""

    def broken(tuple: Tuple[Word], out: Collector[Word]) -> None:
        raise ValueError("no")

    stage = Stage(chain(broken))
    stage.emit()
    stage.process("bolt1")
    stage.deliver()
    assert stage.heard == [("fail", "rain", "exception in bolt1[0]: ValueError: no")]


def test_poison_tuple_ends_the_topology_after_its_attempts() -> None:
    """Storm: org/apache/storm/spout/ISpout.java knows no limit: it is replayed for ever."""

    class Kept(Words):
        replay = True

    topology = Topology("t", ackers=1, attempts_max=3)
    topology.spout("words", Kept("!")).shuffle().bolt("split", letters).shuffle().bolt("end", end)
    with pytest.raises(TopologyFailed, match="'!' of spout 'words' failed 3 times"):
        run_inline(topology.graph(), clock=ManualClock(), steps_max=1_000)
