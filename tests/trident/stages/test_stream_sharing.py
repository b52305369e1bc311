"""How each repartitioning distributes rows among tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.errors import BadEmit
from sunshower.records import Schema
from sunshower.runtime.transport.routing import stable_hash
from sunshower.trident.stages.plan import (
    ByBatch,
    ByFields,
    ByGrouping,
    InPairs,
    RoundRobin,
    Sharing,
    ToAll,
    ToFirst,
)

WORDS = Schema(("word", "count"))


@dataclass
class Sale:
    shop: str
    price: int


def shared(sharing: Sharing, rows: Sequence[Any], targets: int = 3, txid: int = 1) -> Any:
    sharing.prepare(targets, 0, senders=1)
    return {index: list(share) for index, share in sharing.split(txid, rows)}


@given(st.lists(st.integers(0, 20), max_size=20), st.integers(1, 5), st.integers(0, 7))
def test_round_robin_shares_differ_by_at_most_one_row(
    sizes: list[int], targets: int, index: int
) -> None:
    sharing, got = RoundRobin(), [0] * targets
    sharing.prepare(targets, index, senders=index + 1)
    for size in sizes:
        rows = list(range(size))
        shares = sharing.split(1, rows)
        assert sorted(row for _, share in shares for row in share) == rows
        for target, share in shares:
            assert share, "no task is sent an empty share"
            got[target] += len(share)
        assert max(got) - min(got) <= 1


@given(st.lists(st.integers(0, 9), max_size=9), st.integers(1, 4), st.integers(1, 4), st.data())
def test_tasks_are_pairs_if_there_are_as_many_that_receive(
    sizes: list[int], targets: int, senders: int, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, senders - 1))
    sharing, others = InPairs(), RoundRobin()
    for each in (sharing, others):
        each.prepare(targets, index, senders)
    for size in sizes:
        rows = list(range(size))
        pair = [(index, rows)] if rows else []
        assert sharing.split(1, rows) == (pair if targets == senders else others.split(1, rows))


def test_equal_keys_go_to_the_task_of_their_hash() -> None:
    rows = [(f"w{i % 10}", i) for i in range(100)]
    shares = shared(ByFields(WORDS, ("word",)), rows)
    assert shares == {
        index: [row for row in rows if stable_hash(row[0]) % 3 == index] for index in shares
    }
    both = shared(ByFields(WORDS, ("count", "word")), rows)
    for index, share in both.items():
        assert all(stable_hash((count, word)) % 3 == index for word, count in share)


def test_objects_are_distributed_by_their_attributes() -> None:
    rows = [Sale("a", 1), Sale("b", 2), Sale("a", 3)]
    shares = shared(ByFields(Schema.of(Sale), ("shop",)), rows)
    assert [rows[0], rows[2]] in [[s for s in share if s.shop == "a"] for share in shares.values()]


def test_one_task_receives_all_rows_and_no_rows_make_no_shares() -> None:
    rows = [("a", 1)]
    assert shared(ByFields(WORDS, ("word",)), rows, targets=1) == {0: rows}
    everywhere = (RoundRobin(), InPairs(), ToAll(), ToFirst(), ByBatch())
    for sharing in (ByFields(WORDS, ("word",)), *everywhere):
        assert shared(sharing, []) == {}


def test_all_first_and_by_batch() -> None:
    rows = [("a", 1), ("b", 2)]
    assert shared(ToAll(), rows) == {0: rows, 1: rows, 2: rows}
    assert shared(ToFirst(), rows) == {0: rows}
    assert [shared(ByBatch(), rows, txid=txid) for txid in (2, 3, 4)] == [
        {2: rows},
        {0: rows},
        {1: rows},
    ]


def test_a_grouping_that_chooses_an_unknown_task_is_reported() -> None:
    class Wrong:
        def prepare(self, targets: Sequence[int]) -> None: ...

        def choose(self, record: Any) -> Sequence[int]:
            return [3]

    with pytest.raises(BadEmit, match=r"task 3; the tasks are 0 … 2"):
        shared(ByGrouping(Wrong()), [("a", 1)])


def test_a_key_without_a_hash_is_reported() -> None:
    with pytest.raises(BadEmit, match="type object"):
        shared(ByFields(WORDS, ("word",)), [(object(), 1)])
