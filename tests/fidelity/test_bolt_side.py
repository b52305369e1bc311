"""Tests of Storm's bolt collector: anchors of one or several trees, ack, fail, exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sunshower import Collector, Topology, Tuple
from tests.fidelity.stage import Scripted, Stage, Word, Words, chain, end, pass_on


class Collects:
    """Collects `count` tuples, then calls `what` with them."""

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
    assert stage.calls == [("ack", "rain")]


def test_emit_with_several_anchors_belongs_to_all_their_trees() -> None:
    """Storm: org/apache/storm/executor/bolt/BoltOutputCollectorImpl.java, boltEmit."""
    stage = Stage(chain(Collects(2, join), words=("a", "b")))
    stage.emit()
    stage.process("bolt1")
    stage.deliver()
    assert stage.calls == [], "both trees wait for the joined word"
    stage.process("end")
    stage.deliver()
    assert sorted(stage.calls) == [("ack", "a"), ("ack", "b")]


def test_failure_of_a_joined_tuple_fails_all_its_trees() -> None:
    """Storm: org/apache/storm/executor/bolt/BoltOutputCollectorImpl.java, fail."""
    stage = Stage(
        chain(Collects(2, join), lambda tuple, out: out.fail(tuple, "no"), words=("a", "b"))
    )
    stage.emit()
    stage.process("bolt1", "bolt2")
    stage.deliver()
    assert sorted(call[:2] for call in stage.calls) == [("fail", "a"), ("fail", "b")]


# ---- ack, fail, reset ---------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["start, bolt, end", "end, bolt, start", "bolt, start, end"])
def test_order_of_reports_does_not_matter(order: str) -> None:
    """Storm: org/apache/storm/daemon/Acker.java, execute: XOR commutes."""
    stage = Stage(chain(pass_on))
    reports = {}
    stage.emit()
    reports["start"] = stage.take()
    stage.process("bolt1")
    reports["bolt"] = stage.take()
    stage.process("end")
    reports["end"] = stage.take()
    for name in order.split(", "):
        assert stage.calls == []
        stage.deliver(reports[name])
    assert stage.calls == [("ack", "rain")]


def test_tuple_that_is_never_acked_fails_at_the_timeout() -> None:
    """Storm: org/apache/storm/executor/spout/SpoutExecutor.java, init."""
    stage = Stage(chain(lambda _tuple, _out: None))
    stage.emit()
    stage.process("bolt1")
    stage.deliver()
    stage.wait(30.0)
    assert [call[:2] for call in stage.calls] == [("fail", "rain")]


def test_ack_and_fail_do_nothing_without_ackers() -> None:
    """Storm: org/apache/storm/executor/bolt/BoltOutputCollectorImpl.java, ackingEnabled."""
    stage = Stage(chain(pass_on, lambda tuple, out: out.fail(tuple, "no"), ackers=0))
    stage.emit()
    stage.process("bolt1", "bolt2")
    assert not stage.take()
    assert stage.calls == [("ack", "rain")], "by the spout itself, at the emit"


def test_reports_of_one_batch_travel_together() -> None:
    """Storm: org/apache/storm/executor/bolt/BoltOutputCollectorImpl.java, ack.

    There each ack is its own message, and tracking halves the throughput.
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
    assert stage.calls == [("ack", "")], "the other tree waits for its letters"
    stage.process("end")
    stage.deliver()
    assert stage.calls == [("ack", ""), ("ack", "ab")]


def test_exception_fails_its_tuple_and_ends_no_process() -> None:
    """Storm: org/apache/storm/topology/BasicBoltExecutor.java, execute.

    There only FailedException fails the tuple; any other exception ends the whole worker.
    """
    stage = Stage(automatic("a!", "b"))
    stage.emit()
    stage.process("split", "end")
    stage.deliver()
    step = "(step `letters`, record Word(word='a!'))"
    assert sorted(stage.calls) == [
        ("ack", "b"),
        ("fail", "a!", f"exception in split[0]: ValueError: no such letter {step}"),
    ]
