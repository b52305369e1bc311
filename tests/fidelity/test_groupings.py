"""Tests of Storm's groupings and the order of records; tests/runtime tests all kinds of records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import pytest

from sunshower import (
    Bolt,
    Collector,
    Context,
    Counter,
    DirectStream,
    Number,
    Records,
    Topology,
    Tuple,
)
from sunshower.config import Internals
from sunshower.errors import TopologyError
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.tasks.user_code import Raised
from tests.fidelity.stage import Scripted, Stage, Word, Words, end
from tests.runtime.network import Network


def test_fields_without_a_field_is_refused() -> None:
    """Storm: org/apache/storm/daemon/GrouperFactory.java, mkGrouper: an empty list means global."""
    words = Topology("t").spout("words", Words("rain"))
    with pytest.raises(TopologyError, match="needs a field"):
        words.fields()


def test_custom_grouping_names_the_tasks_and_an_empty_answer_drops_the_record() -> None:
    """Storm: org/apache/storm/grouping/CustomStreamGrouping.java, chooseTasks."""

    class Odd:
        def prepare(self, targets: Sequence[int]) -> None:
            self.first = targets[0]

        def choose(self, record: Word) -> list[int]:
            return [self.first] if record.word == "odd" else []

    topology = Topology("t", ackers=1)
    words = topology.spout("words", Words("odd", "even"))
    words.custom(Odd()).bolt("end", end)
    stage = Stage(topology)
    stage.emit()
    stage.deliver()
    assert stage.calls == [("ack", "even")], "it was sent to no task, so its tree is complete"
    stage.process("end")
    stage.deliver()
    assert stage.calls == [("ack", "even"), ("ack", "odd")]


# ---- direct and unknown streams -----------------------------------------------------------------


def direct(script: Any) -> Stage:
    topology = Topology("t", ackers=1)
    words = topology.spout("words", Words("rain"))
    bolt = words.shuffle().bolt("bolt1", Scripted(script), streams={"direct": DirectStream(Word)})
    bolt.shuffle().bolt("end", end)
    bolt.stream("direct").direct().bolt("chosen", end, parallelism=2)
    stage = Stage(topology)
    stage.emit()
    stage.process("bolt1")
    stage.deliver()
    return stage


def test_direct_stream_takes_no_regular_emit() -> None:
    """Storm: org/apache/storm/daemon/Task.java, getOutgoingTasks throws."""
    stage = direct(lambda tuple, out: out.emit(tuple.record, tuple, stream="direct"))
    assert "'direct' is direct: name the task" in stage.calls[0][2]


def test_direct_emit_needs_a_direct_stream() -> None:
    """Storm: org/apache/storm/daemon/Task.java, getOutgoingTasks throws."""
    stage = direct(lambda tuple, out: out.emit_direct(3, tuple.record, tuple))
    assert "'default' is not direct: its grouping chooses the task" in stage.calls[0][2]


def test_direct_emit_to_a_task_that_does_not_subscribe_is_refused() -> None:
    """Storm: org/apache/storm/daemon/Task.java, getOutgoingTasks says nothing."""
    stage = direct(lambda tuple, out: out.emit_direct(1, tuple.record, tuple, stream="direct"))
    assert "task 1 does not subscribe to direct stream 'direct'" in stage.calls[0][2]


def test_only_direct_grouping_reads_a_direct_stream() -> None:
    """Storm: org/apache/storm/daemon/Task.java, getOutgoingTasks, at the emit."""
    topology = Topology("t")
    stream = topology.spout("words", Records([]), fields=DirectStream(Word))
    with pytest.raises(TopologyError, match=r"is a direct stream, which only \.direct\(\) reads"):
        stream.shuffle()


def test_emit_to_an_unknown_stream_is_refused() -> None:
    """Storm: org/apache/storm/daemon/Task.java, getOutgoingTasks throws."""
    stage = direct(lambda tuple, out: out.emit(tuple.record, tuple, stream="no"))
    assert "no output stream 'no'; declared are: default, direct" in stage.calls[0][2]


def test_emit_of_a_spout_to_an_unknown_stream_is_refused() -> None:
    """Storm: org/apache/storm/daemon/Task.java, getOutgoingTasks."""

    class UnknownStream(Words):
        def next_tuple(self, out: Any) -> None:
            out.emit(Word("rain"), stream="no")

    topology = Topology("t", ackers=1)
    topology.spout("words", UnknownStream()).shuffle().bolt("end", end)
    with pytest.raises(Raised, match="no output stream 'no'"):
        Stage(topology).emit()


# ---- counting, order ----------------------------------------------------------------------------


def test_emitted_counts_emits_and_transferred_copies_and_neither_is_sampled() -> None:
    """Storm: org/apache/storm/daemon/Task.java, getOutgoingTasks, sampled."""
    topology = Topology("t", ackers=1)
    topology.spout("words", Words("a", "b", None)).all().bolt("end", end, parallelism=3)
    stage = Stage(topology)
    stage.emit()
    stage.process("end")
    stage.deliver()
    counts = stage.words.stats().counts
    assert (counts.emitted, counts.transferred, counts.acked) == (3, 9, 2)


class InOrder(Bolt[Number, Number]):
    """Passes numbers on, and records them in their order in a list that tasks share."""

    def __init__(self, seen: dict[str, list[int]]) -> None:
        self.seen = seen

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)(self.seen)

    def prepare(self, context: Context) -> None:
        self.mine = self.seen.setdefault(context.component, [])

    def process(self, record: Number) -> list[Number]:
        self.mine.append(record.value)
        return [record]


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("seed", range(5))
def test_records_of_one_stream_between_two_tasks_keep_their_order(
    layout: Layout, seed: int
) -> None:
    """Storm: org/apache/storm/utils/JCQueue.java; its test is testNoReOrderingUnderBackPressure."""
    seen: dict[str, list[int]] = {}
    topology = Topology("t", ackers=1, internals=Internals(frame_records_max=3), spout_pending=40)
    numbers = topology.spout("numbers", Counter(200))
    numbers.shuffle().bolt("first", InOrder(seen)).shuffle().bolt("second", InOrder(seen))
    Network(make_plan(topology.graph(), layout), seed).run()
    assert seen == {"first": list(range(200)), "second": list(range(200))}, f"seed {seed}"


def test_streams_of_one_task_have_no_order_between_them() -> None:
    """Storm: org/apache/storm/utils/JCQueue.java, one queue for all streams of a task.

    Here the outputs of one batch of inputs are sent stream by stream.
    """

    def alternate(tuple: Tuple[Word], out: Collector[Word]) -> None:
        for letter in "abcd":
            out.emit(Word(letter), tuple, stream="even" if letter in "bd" else "default")
        out.ack(tuple)

    topology = Topology("t", ackers=1)
    words = topology.spout("words", Words("rain"))
    bolt = words.shuffle().bolt("bolt1", Scripted(alternate), streams={"even": Word})
    topology.bolt("end", end, [bolt.shuffle(), bolt.stream("even").shuffle()])
    stage = Stage(topology)
    stage.emit()
    stage.process("bolt1")
    assert [[r.word for r in batch.records] for batch in stage.sent("end")] == [
        ["a", "c"],
        ["b", "d"],
    ]


def test_direct_streams_of_one_task_keep_their_order_to_each_task() -> None:
    """Storm: org/apache/storm/utils/JCQueue.java, one queue for all streams of a task."""

    def alternate(tuple: Tuple[Word], out: Collector[Word]) -> None:
        for letter in "abcdde":
            out.emit_direct(target, Word(letter), tuple, stream="even" if letter in "bd" else "odd")
        out.ack(tuple)

    topology = Topology("t", ackers=1)
    words = topology.spout("words", Words("rain"))
    streams = {"odd": DirectStream(Word), "even": DirectStream(Word)}
    bolt = words.shuffle().bolt("bolt1", Scripted(alternate), streams=streams)
    topology.bolt("end", end, [bolt.stream(stream).direct() for stream in streams])
    plan = make_plan(topology.graph(), Layout.PACK)
    (target,) = (task.id for task in plan.tasks if task.component == "end")
    stage = Stage(topology)
    stage.emit()
    stage.process("bolt1")
    assert [[r.word for r in batch.records] for batch in stage.sent("end")] == [
        *(["a"], ["b"], ["c"]),
        ["d", "d"],
        ["e"],
    ]
