"""Tests of batch bolts: the edges of output rows, wrong answers and exceptions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import BatchBolt, Derived, Records, Topology, batch
from tests.runtime.rig import ROOT, Rig, Word, balance, edges_by_root, sink


class Answer(BatchBolt[Any, Word]):
    """Returns `answer` for every table."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def process(self, table: pa.Table) -> Any:
        return self.answer


def rig(impl: Any, sinks: int = 1) -> Rig:
    topology = Topology("t", ackers=1)
    source = topology.spout("words", Records([Word("a")], type=Word))
    bolt = source.shuffle().bolt("bolt", impl, fields=Word)
    bolt.fields("word").bolt("next", sink, parallelism=sinks)
    return Rig(topology)


def derived(parents: list[int]) -> Derived:
    rows = pa.table({"word": [f"{parent}" for parent in parents]})
    return Derived(rows, np.array(parents, np.int64))


def words(count: int) -> list[Word]:
    return [Word(f"w{index}") for index in range(count)]


@given(st.data(), st.integers(1, 6), st.booleans())
def test_acks_have_the_edges_of_inputs_and_of_the_rows_made_from_them(
    data: st.DataObject, count: int, as_table: bool
) -> None:
    parents = data.draw(st.lists(st.integers(0, count - 1), max_size=12))  # in any order
    trees = [data.draw(st.lists(st.integers(0, 3), max_size=3, unique=True)) for _ in range(count)]
    here = rig(Answer(derived(parents)), sinks=3)
    inputs = here.batch("words", words(count), *trees)
    if as_table:
        inputs.records = pa.table({"word": [word.word for word in inputs.records]})
    here.bolt("bolt").process(inputs)
    sent = here.sent("next")
    rows = [row for output in sent for row in output.records["word"].to_pylist()]
    assert sorted(rows) == sorted(map(str, parents))
    acks, expected = here.reports().acks, edges_by_root([inputs, *sent])
    assert {r: v for r, v in acks.items() if v} == {r: v for r, v in expected.items() if v}


def test_rows_of_a_dataclass_or_tuple_are_columns_by_field() -> None:
    seen: list[Any] = []

    @batch
    def look(table: pa.Table) -> None:
        seen.append(table.to_pylist())

    topology = Topology("t", ackers=1)
    source = topology.spout("pairs", Records([(1, "a")], fields=("n", "s")))
    source.shuffle().bolt("bolt", look)
    here = Rig(topology)
    here.bolt("bolt").process(here.batch("pairs", [(1, "a"), (2, "b")]))
    assert seen == [[{"n": 1, "s": "a"}, {"n": 2, "s": "b"}]]


def test_none_acks_all_rows() -> None:
    here = rig(Answer(None))
    inputs = here.batch("words", words(3))
    here.bolt("bolt").process(inputs)
    balance(here.reports().acks, inputs)


def test_untracked_rows_make_untracked_rows() -> None:
    here = rig(Answer(derived([0, 1, 1])))
    here.bolt("bolt").process(here.untracked("words", words(2)))
    assert not here.sent("next")[0].tracked
    assert not here.reports().acks


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (7, "a batch bolt returns Derived(rows, parents) or None, not a int"),
        (Derived(pa.table({"no": ["a"]}), np.zeros(1)), "columns ['no'], but the stream's fields"),
        (Derived(pa.table({"word": ["a"]}), np.zeros(2)), "1 rows but 2 parents"),
        (derived([0, 3]), "parents must be in 0 … 2, the rows of the input; found 0 … 3"),
        (derived([-1]), "found -1 … -1"),
    ],
    ids=["type", "columns", "length", "beyond", "before"],
)
def test_wrong_answer_fails_every_row(answer: Any, reason: str) -> None:
    here = rig(Answer(answer))
    here.bolt("bolt").process(here.batch("words", words(3)))
    reports = here.reports()
    assert set(reports.fails) == {ROOT, ROOT + 1, ROOT + 2}
    assert reason in reports.fails[ROOT][0].reason
    assert not here.sent("next")


def test_exception_fails_every_row_of_the_table_and_sends_none() -> None:
    @batch
    def broken(table: pa.Table) -> Derived:
        raise ValueError("no columns today")

    here = rig(broken)
    here.bolt("bolt").process(here.batch("words", words(2)))
    reports = here.reports()
    assert [why.reason for slot in range(2) for why in reports.fails[ROOT + slot]] == [
        "ValueError: no columns today (step `broken`)"
    ] * 2
    assert here.bolt("bolt").stats().counts.failed == 2


def test_exception_of_flush_fails_the_table_before_anything_is_sent() -> None:
    class Broken(Answer):
        def flush(self) -> None:
            raise OSError("disk full")

    here = rig(Broken(derived([0])))
    here.bolt("bolt").process(here.batch("words", words(1)))
    assert set(here.reports().fails) == {ROOT}
    assert not here.sent("next")
