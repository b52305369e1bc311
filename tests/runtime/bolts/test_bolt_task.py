"""Tests of bolts with a function or process(): yield emits, return acks, raise fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import Bolt, Cause, OnStream, Records, Topology
from tests.runtime.rig import ROOT, Rig, Word, balance, edges_by_root, records_of, sink


class Mark(NamedTuple):
    word: str


def source(topology: Topology) -> Any:
    return topology.spout("words", Records([Word("a")], type=Word))


def rig(impl: Any, sinks: int = 1, **out: Any) -> Rig:
    """The topology words ──▶ bolt ──▶ next, and "marks" ──▶ marks if that is declared."""
    topology = Topology("t", ackers=1)
    stream = source(topology).shuffle().bolt("bolt", impl, **out)
    if out.get("fields", Word) != ():
        stream.shuffle().bolt("next", sink, parallelism=sinks)
    if out.get("streams"):
        stream.stream("marks").all().bolt("marks", sink, parallelism=2)
    return Rig(topology)


def words(*texts: str) -> list[Word]:
    return [Word(text) for text in texts]


# ---- yield, return, raise -----------------------------------------------------------------------


def letters(word: Word) -> Iterator[Word]:
    """Yields each letter; raises at a '!', after it has yielded the letters before it."""
    for letter in word.word:
        if letter == "!":
            raise ValueError(f"no {word.word}")
        yield Word(letter)


scripts = st.lists(st.text("ab!", max_size=3), min_size=1, max_size=8)
trees = st.lists(st.integers(0, 4), max_size=3, unique=True)


@given(scripts, st.data())
def test_acks_have_the_edges_of_inputs_and_of_their_outputs(
    script: list[str], data: st.DataObject
) -> None:
    here = rig(letters, sinks=3)
    slots = [data.draw(trees) for _ in script]  # none, one or several, which inputs may share
    batch = here.batch("words", words(*script), *slots)
    here.bolt("bolt").process(batch)
    good = [text for text in script if "!" not in text]
    sent = here.sent("next")
    assert sorted(records_of(sent)) == sorted(Word(letter) for text in good for letter in text)
    reports = here.reports()
    expected = edges_by_root(
        [batch.only(i) for i, text in enumerate(script) if "!" not in text] + sent
    )
    assert {root: value for root, value in reports.acks.items() if value} == {
        root: value for root, value in expected.items() if value
    }
    failed = [
        ROOT + s for text, roots in zip(script, slots, strict=True) if "!" in text for s in roots
    ]
    assert {root: len(why) for root, why in reports.fails.items()} == {
        root: failed.count(root) for root in failed
    }


def test_records_yielded_before_an_exception_are_not_sent() -> None:
    here = rig(letters)
    here.bolt("bolt").process(here.batch("words", words("ab!", "b")))
    assert records_of(here.sent("next")) == words("b")


def test_failure_names_component_task_exception_and_line() -> None:
    here = rig(letters)
    here.bolt("bolt").process(here.batch("words", words("!")))
    (failure,) = here.reports().fails[ROOT]
    assert (failure.cause, failure.component, failure.task) == (Cause.EXCEPTION, "bolt", 0)
    assert failure.reason == "ValueError: no ! (step `letters`, field `word` of Word(word='!'))"
    assert "in letters" in failure.traceback


def test_input_without_outputs_is_acked_with_its_own_edge() -> None:
    here = rig(letters)
    batch = here.batch("words", words("", "a", ""))
    here.bolt("bolt").process(batch)
    balance(here.reports().acks, batch, here.sent("next"))


def test_untracked_inputs_make_untracked_outputs_and_no_report() -> None:
    here = rig(letters)
    here.bolt("bolt").process(here.untracked("words", words("ab", "!")))
    (batch,) = here.sent("next")
    assert records_of([batch]) == words("a", "b")
    assert not batch.tracked
    reports = here.reports()
    assert not reports.acks
    assert not reports.fails


def test_executed_emitted_acked_and_failed_records_are_counted() -> None:
    here = rig(letters)
    here.bolt("bolt").process(here.batch("words", words("ab", "!", "")))
    counts = here.bolt("bolt").stats().counts
    assert (counts.executed, counts.acked, counts.failed) == (3, 2, 1)
    assert (counts.emitted, counts.transferred) == (2, 2)


def raises_stop_iteration(word: Word) -> list[Word]:
    return [Word(next(iter(word.word)))]  # StopIteration for an empty word


def sink_that_raises_stop_iteration(word: Word) -> None:
    next(iter(word.word))


@pytest.mark.parametrize("empty_at", [0, 1, 2])
@pytest.mark.parametrize(
    ("impl", "out"), [(raises_stop_iteration, Word), (sink_that_raises_stop_iteration, ())]
)
def test_stop_iteration_is_an_exception_like_any_other(
    impl: Callable[[Word], Any], out: Any, empty_at: int
) -> None:
    here = rig(impl, fields=out)
    texts = ["a", "b", "c"]
    texts[empty_at] = ""
    batch = here.batch("words", words(*texts))
    here.bolt("bolt").process(batch)
    reports = here.reports()
    assert set(reports.fails) == {ROOT + empty_at}
    assert "StopIteration left the bolt" in reports.fails[ROOT + empty_at][0].reason
    assert set(reports.acks) == {ROOT + slot for slot in range(3)} - {ROOT + empty_at}


# ---- records that do not fit --------------------------------------------------------------------


def yields_a_mark(word: Word) -> Iterator[Any]:
    yield Word("fits")
    if word.word == "bad":
        yield Mark("does not")


def test_record_that_does_not_fit_fails_its_input_alone() -> None:
    here = rig(yields_a_mark, fields=Word)
    batch = here.batch("words", words("good", "bad"))
    here.bolt("bolt").process(batch)
    reports = here.reports()
    (failure,) = reports.fails[ROOT + 1]
    assert "does not fit stream 'default', whose records are Word(word)" in failure.reason
    assert records_of(here.sent("next")) == words("fits")
    assert set(reports.acks) == {ROOT}


def yields_to_undeclared_stream(word: Word) -> Iterator[Any]:
    yield OnStream("nowhere", word)


@pytest.mark.parametrize("out", [Word, ()])
def test_undeclared_stream_fails_the_input_and_the_error_lists_the_declared_ones(out: Any) -> None:
    here = rig(yields_to_undeclared_stream, fields=out)
    here.bolt("bolt").process(here.batch("words", words("a")))
    (failure,) = here.reports().fails[ROOT]
    assert "there is no output stream 'nowhere'; declared are:" in failure.reason


def sink_that_yields(word: Word) -> Any:
    return letters(word)


def test_sink_that_yields_a_record_fails_the_input() -> None:
    here = rig(sink_that_yields, fields=())
    here.bolt("bolt").process(here.batch("words", words("a", "")))
    reports = here.reports()
    assert set(reports.fails) == {ROOT}
    assert set(reports.acks) == {ROOT + 1}


# ---- several streams ----------------------------------------------------------------------------


def marks(word: Word) -> Iterator[Any]:
    for letter in word.word:
        yield OnStream("marks", Mark(letter)) if letter == "m" else Word(letter)


def test_each_stream_and_each_target_task_has_an_edge_of_its_own() -> None:
    here = rig(marks, streams={"marks": Mark}, fields=Word)
    batch = here.batch("words", words("ama", "", "m", "a"), [0], [1], [2], [3, 4])
    here.bolt("bolt").process(batch)
    plain, marked = here.sent("next"), here.sent("marks")
    assert records_of(plain) == words("a", "a", "a")
    assert records_of(marked) == [Mark("m")] * 4, "two copies of each, one for each task"
    balance(here.reports().acks, batch, plain, marked)


# ---- flush --------------------------------------------------------------------------------------


class Flushes(Bolt[Word, Any]):
    """Its flush raises as soon as it has seen the word "breaks"."""

    def prepare(self, context: object) -> None:
        self.seen: list[str] = []

    def process(self, record: Word) -> Iterator[Word]:
        self.seen.append(record.word)
        yield record

    def flush(self) -> None:
        if "breaks" in self.seen:
            raise OSError("disk full")


class FlushingSink(Flushes):
    def process(self, record: Word) -> None:  # type: ignore[override]
        self.seen.append(record.word)


@pytest.mark.parametrize(("impl", "out"), [(Flushes, Word), (FlushingSink, ())])
def test_exception_of_flush_fails_the_whole_batch(impl: Any, out: Any) -> None:
    here = rig(impl, fields=out)
    here.bolt("bolt").process(here.batch("words", words("a", "breaks", "b")))
    reports = here.reports()
    assert set(reports.fails) == {ROOT, ROOT + 1, ROOT + 2}
    assert not reports.acks
    if out:
        assert not here.sent("next"), "no output of an input that is not durable"


def test_batch_whose_flush_succeeds_is_acked() -> None:
    here = rig(Flushes, fields=Word)
    batch = here.batch("words", words("a", "b"))
    here.bolt("bolt").process(batch)
    balance(here.reports().acks, batch, here.sent("next"))


class Figures(Bolt[Any, None]):
    def __init__(self) -> None:
        self.seen = 0

    def process(self, record: Any) -> None:
        self.seen += 1

    def figures(self) -> dict[str, float]:
        if self.seen > 2:
            raise ValueError("not any more")
        return {"seen": self.seen}


@pytest.mark.parametrize(("records", "shown"), [(2, {"seen": 2}), (3, {})])
def test_figures_are_in_the_statistics_and_their_error_does_not_stop_the_task(
    records: int, shown: dict[str, float]
) -> None:
    topology = Topology("t", ackers=1)
    topology.spout("source", Records([], type=Word)).shuffle().bolt("bolt", Figures())
    here = Rig(topology)
    bolt = here.bolt("bolt")
    bolt.supervision.tried()
    bolt.process(here.batch("source", [Word("a")] * records))
    stats = bolt.stats()
    assert stats.counts.acked == records
    assert stats.figures == shown
    assert stats.health.errors == (not shown)
