"""The XOR article about Storm's tuple trees, its example step by step, and its two slips.

Its slips: it says that ackers confirm to bolts and spouts (they confirm to spouts only), and that
a bolt's ack comes to its input edge alone (it is the input edge XOR the edges the bolt made).
"""

from __future__ import annotations

from functools import reduce
from operator import xor

import numpy as np
import pytest

from sunshower import Topology
from sunshower.runtime.tracking.acker_task import AckerTask
from sunshower.runtime.tracking.ids import EdgeIds
from sunshower.runtime.tracking.reports import ShardReport
from tests.fidelity.stage import Scripted, Stage, Words, chain, end, pass_on
from tests.runtime.rig import edges_by_root

ROOT = 1 << 48 | 1 << 24


def edge_ids(count: int) -> list[int]:
    ids: list[int] = EdgeIds(np.random.default_rng(0)).draw(count).tolist()
    return ids


class Acker:
    """The article's one acker."""

    def __init__(self, start: int) -> None:
        self.task = AckerTask(9, [1])
        self._hear(ShardReport(starts=[self._pair(start)]))
        self.complete = False

    def hears(self, value: int) -> None:
        self._hear(ShardReport(acks=[self._pair(value)]))

    @property
    def value(self) -> int:
        """The article's ackVal."""
        return int(self.task.ledger._tables[1].xor[0])

    def _pair(self, value: int) -> tuple[np.ndarray, np.ndarray]:
        return np.array([ROOT], np.uint64), np.array([value], np.uint64)

    def _hear(self, report: ShardReport) -> None:
        self.complete = bool(self.task.hear(report, 0.0))


def broadcast(bolts: int) -> Stage:
    topology = Topology("t", ackers=1, message_timeout_s=30)
    words = topology.spout("words", Words("rain"))
    for number in range(bolts):
        words.shuffle().bolt(f"bolt_{number}", end)
    return Stage(topology)


def test_spout_tells_the_acker_the_xor_of_all_it_sent_after_each_emit() -> None:
    """Storm: org/apache/storm/executor/spout/SpoutOutputCollectorImpl.java, sendSpoutMsg.

    The article: spout -> acker : [root-id (bit-xor-vals out-ids) task-id].
    """
    stage = broadcast(5)
    stage.emit()
    sent = [batch for number in range(5) for batch in stage.sent(f"bolt_{number}")]
    assert len(sent) == 5, "one copy for each subscriber"
    assert dict(stage.reports().starts) == dict(edges_by_root(sent))
    assert len(stage.pending) == 1, "and the message is remembered"


def test_tuple_carries_a_64_bit_edge_for_each_root() -> None:
    """Storm: org/apache/storm/tuple/MessageId.java, Map<Long, Long> _anchorsToIds."""
    stage = broadcast(1)
    stage.emit()
    (batch,) = stage.sent("bolt_0")
    assert batch.roots.tolist() == stage.pending.tolist()
    assert batch.edges.dtype == np.uint64


@pytest.mark.parametrize("bolts", [1, 2, 7])
def test_each_bolt_that_is_done_vanishes_from_the_value_and_zero_is_the_end(bolts: int) -> None:
    """Storm: org/apache/storm/daemon/Acker.java, execute. The article: id_1 ^ .. ^ id_n, then 0."""
    ids = edge_ids(bolts)
    acker = Acker(reduce(xor, ids))
    for done, edge in enumerate(ids, start=1):
        assert not acker.complete
        acker.hears(edge)
        assert acker.value == reduce(xor, ids[done:], 0)
    assert acker.complete


def test_slip_one_ackers_confirm_to_spouts_only() -> None:
    """Storm: org/apache/storm/daemon/Acker.java, execute: emitDirect to the spout task.

    The article: "the acker sends a confirmation to bolts and spouts". A bolt has no way to hear
    one: it has no task for it to go to and no method to be told by.
    """
    stage = Stage(chain(pass_on))
    stage.emit()
    stage.process("bolt1", "end")
    (acker,) = stage.wired.ackers.values()
    (report,) = stage.take().values()
    spouts = acker.hear(report, 0.0)
    assert [stage.plan.spouts[index].component for index in spouts] == ["words"]
    assert not hasattr(Scripted, "ack")


def test_slip_two_an_ack_is_the_input_edge_xor_the_edges_that_were_made() -> None:
    """Storm: org/apache/storm/executor/bolt/BoltOutputCollectorImpl.java, ack: e ^ t.ackVal.

    The article lets the bolt's edge cancel itself out: 0 ^ bid_1 ^ id_1 ^ bid_1 = 0 ^ id_1.
    """
    stage = Stage(chain(pass_on))
    stage.emit()
    stage.take()
    (inputs,) = stage.sent("bolt1")
    stage.bolt("bolt1").process(inputs)
    (made,) = stage.sent("end")
    (value,) = stage.reports().acks.values()
    assert value == inputs.edges[0] ^ made.edges[0]


def test_by_the_articles_formula_a_tree_would_be_done_while_a_child_is_open() -> None:
    """Storm: org/apache/storm/daemon/Acker.java, execute: zero is the end."""
    id_1, bid_1 = edge_ids(2)
    article, storm = Acker(id_1), Acker(id_1)
    article.hears(id_1)
    assert article.complete, "and nobody has processed bid_1"
    storm.hears(id_1 ^ bid_1)
    assert not storm.complete
    storm.hears(bid_1)
    assert storm.complete


def test_without_ackers_the_spout_acks_itself() -> None:
    """Storm: org/apache/storm/executor/spout/SpoutOutputCollectorImpl.java, sendSpoutMsg."""
    stage = Stage(chain(pass_on, ackers=0))
    stage.emit()
    assert stage.heard == [("ack", "rain")]


def test_value_that_stays_above_zero_ends_at_the_timeout_with_a_replay() -> None:
    """Storm: org/apache/storm/executor/spout/SpoutExecutor.java, init."""

    class Kept(Words):
        replay = True

    topology = Topology("t", ackers=1, message_timeout_s=30)
    words = topology.spout("words", Kept("rain"))
    words.shuffle().bolt("bolt_0", end)
    stage = Stage(topology)
    stage.emit()
    stage.sent("bolt_0")  # lost on its way
    stage.deliver()
    stage.wait(30.0)
    assert stage.heard == [("fail", "rain", "timeout: no verdict within 30 s")]
    stage.wait(0.1)  # the first back-off
    stage.emit()
    stage.process("bolt_0")
    stage.deliver()
    assert stage.heard[1:] == [("ack", "rain")]


def test_chance_of_a_false_zero_is_one_in_two_to_the_64th() -> None:
    """Storm: org/apache/storm/tuple/MessageId.java, generateId.

    The article: at 10,000 acks a second, once in 50,000,000 years. What can be tested is that no
    bit of the ids is constant and none depends on another, so that partial XORs look random too.
    """
    ids = np.array(edge_ids(20_000), np.uint64)
    running = np.bitwise_xor.accumulate(ids)
    bits = np.unpackbits(running.view(np.uint8).reshape(-1, 8), axis=1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.02
    assert running[:-1].all(), "no partial tree is zero"
