"""Batches are split, joined and selected from as if each record had its anchors to itself."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.runtime.tracking.batch import Anchors, Batch, can_join, join
from tests.runtime.batches import STREAMS, Word, batches, records_with_anchors


@given(batches(), st.data())
def test_split_loses_nothing_and_keeps_the_order(batch: Batch, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(batch)))
    first, rest = batch.split(count)
    assert len(first) == count
    assert records_with_anchors(first) + records_with_anchors(rest) == records_with_anchors(batch)


@given(batches(), st.data())
def test_only_is_one_record(batch: Batch, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(batch) - 1))
    assert records_with_anchors(batch.only(index)) == [records_with_anchors(batch)[index]]


@given(batches(), batches())
def test_batches_that_can_be_joined_are_one_after_the_other(first: Batch, second: Batch) -> None:
    second.stream, second.source = first.stream, first.source
    if can_join(first, second) and type(first.records) is type(second.records):
        assert records_with_anchors(join([first, second])) == records_with_anchors(
            first
        ) + records_with_anchors(second)


def columns(**values: list[object]) -> Batch:
    roots = np.arange(1, 1 + len(next(iter(values.values()))), dtype=np.uint64)
    return Batch(0, 7, pa.table(values), roots, roots)


def test_tables_of_one_schema_are_joined() -> None:
    first, second = columns(word=["a"], n=[1]), columns(word=["b"], n=[2])
    assert can_join(first, second)
    assert [record for record, _ in records_with_anchors(join([first, second]))] == [
        Word("a", 1),
        Word("b", 2),
    ]


def test_tables_whose_columns_are_of_other_types_are_not_joined() -> None:
    assert not can_join(columns(word=["a"], n=[1]), columns(word=["b"], n=[2.5]))
    assert not can_join(columns(word=["a"], n=[1]), columns(word=["b"], n=[None]))


def test_rows_of_several_anchors_are_not_joined() -> None:
    batch = Batch(
        0, 7, [Word("a", 1)], np.ones(2, np.uint64), np.ones(2, np.uint64), np.array([0, 2])
    )
    assert not can_join(batch, batch)


@given(st.lists(st.lists(st.integers(1, 99), max_size=3), min_size=1, max_size=10), st.data())
def test_anchors_select_like_a_list_of_lists(trees: list[list[int]], data: st.DataObject) -> None:
    flat = np.array([root for roots in trees for root in roots], np.uint64)
    anchors = Anchors(flat, np.cumsum([0, *map(len, trees)]))
    which = data.draw(st.lists(st.integers(0, len(trees) - 1), max_size=12))
    chosen = anchors.select(np.array(which, np.int64))
    assert chosen.offsets is not None
    again = [
        chosen.roots[a:b].tolist() for a, b in zip(chosen.offsets, chosen.offsets[1:], strict=False)
    ]
    assert again == [trees[index] for index in which]


def test_trees_of_one_record_share_its_edge() -> None:
    anchors = Anchors(np.array([1, 2, 3], np.uint64), np.array([0, 2, 2, 3]))
    roots, edges, offsets = anchors.with_edges(np.array([7, 8, 9], np.uint64))
    assert (roots.tolist(), edges.tolist()) == ([1, 2, 3], [7, 7, 9])
    assert offsets is not None
    assert offsets.tolist() == [0, 2, 2, 3]


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.spec.schema.name)
def test_rows_become_a_table_and_rows_again(stream: object) -> None:
    schema = stream.spec.schema  # type: ignore[attr-defined]
    rows = schema.build([("a", 1)[: len(schema.fields)], ("b", 2)[: len(schema.fields)]])
    table = Batch(0, 7, rows).table(schema)
    assert table.column_names == list(schema.fields)
    assert Batch(0, 7, table).rows(schema) == rows
