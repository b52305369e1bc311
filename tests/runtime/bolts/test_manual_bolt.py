"""Tests of bolts with execute(tuple, out): anchors, acks, fails, and errors for wrong calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import Bolt, Cause, Collector, DirectStream, Records, Topology, Tuple
from sunshower.errors import AlreadySettled
from sunshower.runtime.tracking.batch import Batch
from sunshower.secret import HIDDEN, Secret
from tests.runtime.rig import ROOT, Rig, Word, balance, edges_by_root, records_of, sink, xor_of

Script = Callable[[Tuple[Word], Collector[Word]], None]


class Scripted(Bolt[Word, Word]):
    """Calls `script` for each tuple."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def execute(self, tuple: Tuple[Word], out: Collector[Word]) -> None:
        self.script(tuple, out)


def rig(script: Script, sinks: int = 1) -> Rig:
    """The topology words ──▶ bolt ──▶ next, and a direct stream to two more tasks."""
    topology = Topology("t", ackers=1)
    source = topology.spout("words", Records([Word("a")], type=Word))
    streams = {"direct": DirectStream(Word)}
    bolt = source.shuffle().bolt("bolt", Scripted(script), streams=streams)
    bolt.all().bolt("next", sink, parallelism=sinks)
    bolt.stream("direct").direct().bolt("chosen", sink, parallelism=2)
    return Rig(topology)


def run(here: Rig, *trees: list[int], texts: list[str] | None = None) -> Batch:
    """Process a batch; by default one record in the tree of slot 0."""
    texts = texts or ["a"] * (len(trees) or 1)
    batch = here.batch("words", [Word(text) for text in texts], *trees)
    here.bolt("bolt").process(batch)
    return batch


# ---- anchors ------------------------------------------------------------------------------------


def emit_and_ack(tuple: Tuple[Word], out: Collector[Word]) -> None:
    out.emit(tuple.record, tuple)
    out.ack(tuple)


@pytest.mark.parametrize("sinks", [1, 3])
def test_ack_reports_the_input_edge_and_an_edge_for_each_target(sinks: int) -> None:
    here = rig(emit_and_ack, sinks)
    batch = run(here)
    sent = here.sent("next")
    assert len({edge for output in sent for edge in output.edges.tolist()}) == sinks
    balance(here.reports().acks, batch, sent)


def test_unanchored_record_is_not_tracked() -> None:
    def script(tuple: Tuple[Word], out: Collector[Word]) -> None:
        out.emit(tuple.record)
        out.ack(tuple)

    here = rig(script)
    batch = run(here)
    assert not here.sent("next")[0].tracked
    balance(here.reports().acks, batch)


def test_same_tuple_twice_among_the_anchors_makes_two_edges_that_balance() -> None:
    def script(tuple: Tuple[Word], out: Collector[Word]) -> None:
        out.emit(tuple.record, [tuple, tuple])
        out.ack(tuple)

    here = rig(script)
    batch = run(here)
    sent = here.sent("next")
    assert records_of(sent) == [Word("a")], "one record"
    assert len(sent[0].roots) == 1, "in one tree, with the XOR of both edges"
    balance(here.reports().acks, batch, sent)


class Pairing:
    """Emits a record for each two inputs, anchored to both."""

    def __init__(self) -> None:
        self.held: list[Tuple[Word]] = []

    def __call__(self, tuple: Tuple[Word], out: Collector[Word]) -> None:
        self.held.append(tuple)
        if len(self.held) == 2:
            out.emit(Word("pair"), self.held)
            for held in self.held:
                out.ack(held)
            self.held = []


@given(st.lists(st.lists(st.integers(0, 3), max_size=3, unique=True), min_size=2, max_size=8))
def test_join_of_any_trees_keeps_all_of_them_in_balance(trees: list[list[int]]) -> None:
    here = rig(Pairing(), sinks=2)
    batch = run(here, *trees)
    sent = here.sent("next")
    settled = batch.split(len(trees) // 2 * 2)[0]
    acks = here.reports().acks
    expected = edges_by_root([settled, *sent])
    assert {r: v for r, v in acks.items() if v} == {r: v for r, v in expected.items() if v}


def test_two_anchors_in_one_tree_give_the_record_one_root_and_both_edges() -> None:
    here = rig(Pairing())
    batch = run(here, [5], [5])
    (pair,) = here.sent("next")
    assert pair.roots.tolist() == [ROOT + 5]
    acks = here.reports().acks[ROOT + 5]
    assert acks == xor_of(*batch.edges.tolist(), *pair.edges.tolist())


def test_several_roots_of_one_anchor_share_its_edge() -> None:
    here = rig(emit_and_ack)
    run(here, [1, 2, 3])
    (batch,) = here.sent("next")
    assert batch.roots.tolist() == [ROOT + 1, ROOT + 2, ROOT + 3]
    assert len(set(batch.edges.tolist())) == 1


def test_unanchored_anchor_is_ignored() -> None:
    here = rig(Pairing())
    batch = run(here, [], [4])
    (pair,) = here.sent("next")
    assert pair.roots.tolist() == [ROOT + 4]
    balance(here.reports().acks, batch, [pair])


def test_tuple_may_be_acked_in_a_later_batch() -> None:
    pairing = Pairing()
    here = rig(pairing)
    first = run(here, [0])
    assert not here.reports().acks
    second = run(here, [1])
    balance(here.reports().acks, first, [second], here.sent("next"))


def test_tuple_that_is_neither_acked_nor_failed_is_not_reported() -> None:
    here = rig(lambda _tuple, _out: None)
    run(here)
    reports = here.reports()
    assert not reports.acks
    assert not reports.fails


def test_order_of_one_stream_is_the_order_of_its_emits() -> None:
    def script(tuple: Tuple[Word], out: Collector[Word]) -> None:
        for number in range(5):
            out.emit(Word(f"{tuple.record.word}{number}"), tuple)
        out.ack(tuple)

    here = rig(script)
    run(here, texts=["a", "b"])
    assert [r.word for r in records_of(here.sent("next"))] == [
        f"{text}{number}" for text in "ab" for number in range(5)
    ]


# ---- direct -------------------------------------------------------------------------------------


def test_emit_direct_reaches_the_named_task_alone() -> None:
    def script(tuple: Tuple[Word], out: Collector[Word]) -> None:
        out.emit_direct(chosen.id, tuple.record, tuple, stream="direct")
        out.ack(tuple)

    here = rig(script)
    chosen = here.task("chosen", 1)
    batch = run(here)
    assert len(here.wired.inboxes[here.task("chosen", 0).id].entries) == 0
    sent = here.sent("chosen")
    assert records_of(sent) == [Word("a")]
    balance(here.reports().acks, batch, sent)


@pytest.mark.parametrize(
    ("emit", "message"),
    [
        (lambda out: out.emit(Word("a"), stream="direct"), "'direct' is direct: name the task"),
        (lambda out: out.emit_direct(3, Word("a")), "'default' is not direct"),
        (
            lambda out: out.emit_direct(99, Word("a"), stream="direct"),
            r"task 99 does not subscribe to direct stream 'direct'; the tasks that do are \[4, 5\]",
        ),
        (lambda out: out.emit(("a",)), r"\('a',\) \(a tuple\) does not fit stream 'default'"),
        (lambda out: out.emit(Word("a"), stream="no"), "no output stream 'no'; declared are:"),
    ],
    ids=["emit on direct", "direct on plain", "no subscriber", "misfit", "no stream"],
)
def test_impossible_emit_raises_at_once_and_fails_the_input(
    emit: Callable[[Collector[Word]], None], message: str
) -> None:
    here = rig(lambda _tuple, out: emit(out))
    run(here)
    (failure,) = here.reports().fails[ROOT]
    assert failure.cause is Cause.EXCEPTION
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(failure.reason)


# ---- settled once -------------------------------------------------------------------------------


def settle_and_use_again(first: str, second: str) -> Script:
    """A script that calls both on the previous input: an error then fails the present input."""
    held: list[Tuple[Word]] = []

    def script(tuple: Tuple[Word], out: Any) -> None:
        if held:
            getattr(out, first)(held[0])
            if second == "emit":
                out.emit(tuple.record, held)
            else:
                getattr(out, second)(held[0])
        held.append(tuple)

    return script


@pytest.mark.parametrize("first", ["ack", "fail"])
@pytest.mark.parametrize("second", ["ack", "fail", "emit", "reset_timeout"])
def test_settled_tuple_cannot_be_used_again(first: str, second: str) -> None:
    here = rig(settle_and_use_again(first, second))
    run(here, [0], [1])
    reports = here.reports()
    assert set(reports.acks) | set(reports.fails) == {ROOT, ROOT + 1}
    assert (ROOT in reports.acks) == (first == "ack"), "the first call counts"
    (failure,) = reports.fails[ROOT + 1]
    assert "AlreadySettled" in failure.reason
    assert f"it was {first}ed before" in failure.reason
    assert "Word(word='a') from words.default, task 1" in failure.reason
    assert "in bolt[0]" in failure.reason


def test_second_ack_raises_in_the_line_that_calls_it() -> None:
    def script(tuple: Tuple[Word], out: Collector[Word]) -> None:
        out.ack(tuple)
        with pytest.raises(AlreadySettled):
            out.ack(tuple)

    here = rig(script)
    batch = run(here)
    balance(here.reports().acks, batch)


# ---- fail, raise, flush -------------------------------------------------------------------------


def test_fail_names_reason_component_and_task() -> None:
    here = rig(lambda tuple, out: out.fail(tuple, "no such word"))
    run(here, [0, 1])
    reports = here.reports()
    assert set(reports.fails) == {ROOT, ROOT + 1}, "every tree of the tuple"
    (failure,) = reports.fails[ROOT]
    assert str(failure) == "failed by bolt in bolt[0]: no such word"


def test_fail_with_a_reason_that_repeats_a_secret_does_not_show_it() -> None:
    word = Secret("planted-word").reveal()
    for reason in (f"{word} is wrong", (word,)):
        here = rig(lambda tuple, out, reason=reason: out.fail(tuple, reason))
        run(here)
        (failure,) = here.reports().fails[ROOT]
        assert HIDDEN in failure.reason
        assert word not in failure.reason


def test_fail_with_an_exception_is_reported_as_if_the_bolt_had_raised_it() -> None:
    here = rig(lambda tuple, out: out.fail(tuple, ValueError("no such word")))
    run(here)
    (failure,) = here.reports().fails[ROOT]
    assert (failure.cause, failure.exception) == (Cause.EXCEPTION, "ValueError")
    assert failure.reason == "ValueError: no such word"


@pytest.mark.parametrize("before", ["nothing", "ack", "fail"])
def test_exception_fails_the_input_even_if_it_was_acked(before: str) -> None:
    def script(tuple: Tuple[Word], out: Any) -> None:
        if before != "nothing":
            getattr(out, before)(tuple)
        raise ValueError("late")

    here = rig(script)
    run(here)
    reports = here.reports()
    assert not reports.acks
    (failure,) = reports.fails[ROOT]
    assert failure.cause is (Cause.FAILED if before == "fail" else Cause.EXCEPTION)
    counts = here.bolt("bolt").stats().counts
    assert (counts.executed, counts.acked, counts.failed) == (1, 0, 1)


def test_exception_of_flush_fails_the_inputs_that_the_batch_had_acked() -> None:
    class Broken(Scripted):
        def flush(self) -> None:
            raise OSError("disk full")

    topology = Topology("t", ackers=1)
    source = topology.spout("words", Records([Word("a")], type=Word))
    source.shuffle().bolt("bolt", Broken(lambda tuple, out: out.ack(tuple)))
    here = Rig(topology)
    run(here, [0], [1])
    reports = here.reports()
    assert not reports.acks
    assert set(reports.fails) == {ROOT, ROOT + 1}
    assert here.bolt("bolt").stats().counts.failed == 2


def test_exception_of_flush_fails_open_inputs_that_have_outputs_in_the_batch() -> None:
    held: list[Tuple[Word]] = []

    class Late(Scripted):
        def flush(self) -> None:
            if len(held) == 1:
                raise OSError("disk full")

    def script(tuple: Tuple[Word], out: Collector[Word]) -> None:
        for former in held:
            out.ack(former)
        out.emit(tuple.record, tuple)
        held.append(tuple)

    topology = Topology("t", ackers=1)
    source = topology.spout("words", Records([Word("a")], type=Word))
    source.shuffle().bolt("bolt", Late(script)).shuffle().bolt("next", sink)
    here = Rig(topology)
    run(here, [0])
    assert not here.sent("next")
    (failure,) = here.reports().fails[ROOT]
    assert failure.exception == "OSError"
    run(here, [1])
    assert len(here.sent("next")) == 1
    assert ROOT not in here.reports().acks, "an ack afterwards would complete it without its output"


def test_records_emitted_before_an_exception_are_sent() -> None:
    def script(tuple: Tuple[Word], out: Collector[Word]) -> None:
        out.emit(tuple.record, tuple)
        raise ValueError("late")

    here = rig(script)
    run(here)
    assert set(here.reports().fails) == {ROOT}
    assert records_of(here.sent("next")) == [Word("a")], "as in Storm; the replay sends it again"


def test_reset_timeout_names_every_tree_of_the_tuple() -> None:
    here = rig(lambda tuple, out: out.reset_timeout(tuple))
    run(here, [3, 4])
    assert here.bolt("bolt").postponed == [ROOT + 3, ROOT + 4]


def test_tuple_has_its_source_component_task_and_stream() -> None:
    seen: list[tuple[Any, ...]] = []
    here = rig(lambda t, _out: seen.append((t.record, t.component, t.task, t.stream)))
    run(here)
    assert seen == [(Word("a"), "words", here.task("words").id, "default")]
