"""The rule of each grouping, for rows of every kind and for tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.errors import BadEmit
from sunshower.records import Schema
from sunshower.runtime.transport.routing import EvenRouter, Router, make_router, pick, prepare
from sunshower.topologies import groupings
from sunshower.topologies.groupings import Grouping
from tests.structure.reading import ROOT


class Word(NamedTuple):
    word: str
    n: int


@dataclass(frozen=True)
class Order:
    word: str
    n: int


SCHEMA = Schema.of(Word)
WORDS = [Word(f"w{i * i % 23}", i) for i in range(300)]
KEYED: dict[str, tuple[Schema, Any]] = {
    "NamedTuple": (SCHEMA, WORDS),
    "dataclass": (Schema.of(Order), [Order(*word) for word in WORDS]),
    "plain tuples": (Schema(("word", "n")), list(map(tuple, WORDS))),
    "columns": (SCHEMA, pa.table({"word": [w.word for w in WORDS], "n": [w.n for w in WORDS]})),
}
every_kind = pytest.mark.parametrize(("schema", "records"), KEYED.values(), ids=KEYED)
several_targets = pytest.mark.parametrize("targets", [2, 3, 8, 9, 40, 300])
PARTITIONS: list[Grouping] = [
    groupings.Shuffle(),
    groupings.LocalOrShuffle(),
    groupings.Fields(("word",)),
    groupings.Fields(("word", "n")),
    groupings.PartialKey(("word",)),
    groupings.NoneGrouping(),
]


def router(
    grouping: Grouping,
    targets: int,
    schema: Schema = SCHEMA,
    local: Sequence[int] = (),
    seed: int = 0,
) -> Router:
    """A router over the tasks from 11 on."""
    tasks = range(11, 11 + targets)
    return make_router(grouping, list(tasks), local, schema, np.random.default_rng(seed))


def positions_by_target(router: Router, records: Any) -> dict[int, list[int]]:
    """Target position → the positions of its records, in the order in which they are sent."""
    everything = np.arange(len(records))
    return {
        target: everything[which].tolist() for target, which in router.shares(records, len(records))
    }


def chosen(router: Router, records: Any) -> list[int]:
    """The one target of each record."""
    shares = positions_by_target(router, records)
    return [next(t for t, mine in shares.items() if i in mine) for i in range(len(records))]


@several_targets
@every_kind
@pytest.mark.parametrize("grouping", PARTITIONS, ids=groupings.describe)
def test_each_record_goes_to_one_task_and_their_order_is_kept(
    grouping: Grouping, schema: Schema, records: Any, targets: int
) -> None:
    shares = positions_by_target(router(grouping, targets, schema), records)
    assert sorted(i for mine in shares.values() for i in mine) == list(range(len(records)))
    assert all(mine == sorted(mine) for mine in shares.values())
    assert all(0 <= target < targets for target in shares)


@pytest.mark.parametrize("grouping", PARTITIONS, ids=groupings.describe)
def test_single_task_gets_everything(grouping: Grouping) -> None:
    assert positions_by_target(router(grouping, 1), WORDS) == {0: list(range(len(WORDS)))}


# ---- shuffle, local_or_shuffle, none ------------------------------------------------------------


@given(st.integers(1, 12), st.lists(st.integers(1, 40), max_size=20), st.integers(0, 5))
def test_shuffle_is_even_after_every_batch(targets: int, sizes: list[int], seed: int) -> None:
    even = router(groupings.Shuffle(), targets, seed=seed)
    got = Counter(dict.fromkeys(range(targets), 0))
    for size in sizes:
        for target, mine in positions_by_target(even, WORDS[:size]).items():
            got[target] += len(mine)
        assert max(got.values()) - min(got.values()) <= 1


def test_shuffle_cuts_a_small_batch_into_pieces_and_is_even_in_the_long_run() -> None:
    even = router(groupings.Shuffle(), 4)
    assert isinstance(even, EvenRouter)
    even.piece = lambda _: 10
    got = Counter[int]()
    for size in (1, 39) * 400:
        shares = positions_by_target(even, WORDS[:size])
        assert sorted(map(len, shares.values())) == ([1] if size == 1 else [9, 10, 10, 10])
        got.update({target: len(mine) for target, mine in shares.items()})
    assert max(got.values()) < 1.1 * min(got.values())
    assert len(positions_by_target(even, WORDS[:40])) == 4


def test_shuffle_gives_a_slow_target_a_smaller_piece() -> None:
    even = router(groupings.Shuffle(), 2)
    assert isinstance(even, EvenRouter)
    even.piece = [1, 50].__getitem__
    for _ in range(20):
        assert len(positions_by_target(even, WORDS[:50]).get(0, ())) <= 1


def test_shuffle_begins_at_another_task_for_each_sender() -> None:
    firsts = {chosen(router(groupings.Shuffle(), 8, seed=s), WORDS[:1])[0] for s in range(40)}
    assert len(firsts) > 4, "otherwise all senders would begin with the same task"


def test_local_or_shuffle_stays_in_the_worker_and_is_even_there() -> None:
    local = router(groupings.LocalOrShuffle(), 5, local=[12, 15])
    shares = positions_by_target(local, WORDS)
    assert {target: len(mine) for target, mine in shares.items()} == {1: 150, 4: 150}


def test_local_or_shuffle_sends_to_all_tasks_if_none_is_local() -> None:
    assert len(positions_by_target(router(groupings.LocalOrShuffle(), 5), WORDS)) == 5


def test_none_is_random_and_no_round_robin() -> None:
    targets = chosen(router(groupings.NoneGrouping(), 3), WORDS)
    assert all(50 < targets.count(target) < 150 for target in range(3))
    assert any(left == right for left, right in pairwise(targets))
    assert targets == chosen(router(groupings.NoneGrouping(), 3), WORDS), "the seed decides"


# ---- fields, partial_key ------------------------------------------------------------------------


@several_targets
@pytest.mark.parametrize("fields", [("word",), ("n",), ("word", "n"), ("n", "word")])
def test_equal_keys_go_to_one_task_in_records_of_every_kind(
    fields: tuple[str, ...], targets: int
) -> None:
    answers = [
        chosen(router(groupings.Fields(fields), targets, schema, seed=seed), records)
        for seed, (schema, records) in enumerate(KEYED.values())
    ]
    assert all(answer == answers[0] for answer in answers)
    owners: dict[Any, set[int]] = {}
    for word, target in zip(WORDS, answers[0], strict=True):
        owners.setdefault(tuple(getattr(word, f) for f in fields), set()).add(target)
    assert all(len(tasks) == 1 for tasks in owners.values())


def owners_of_keys() -> dict[str, Any]:
    """Grouping → the task of each word. Another process with another hash seed calls it too."""
    routes = {
        g: router(g, 7)
        for g in (
            groupings.Fields(("word",)),
            groupings.Fields(("n",)),
            groupings.PartialKey(("word",)),
        )
    }
    return {groupings.describe(g): chosen(route, WORDS) for g, route in routes.items()}


def test_another_process_sends_every_key_to_the_same_task() -> None:
    program = (
        "import json; from tests.runtime.transport.test_routing import owners_of_keys\n"
        "print(json.dumps(owners_of_keys()))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "4242", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    )
    assert json.loads(done.stdout) == owners_of_keys()


def test_key_that_python_cannot_hash_is_grouped_too() -> None:
    schema = Schema(("key",))
    rows = [([i % 5, "a"],) for i in range(50)]
    lists = chosen(router(groupings.Fields(("key",)), 4, schema), rows)
    tuples = chosen(router(groupings.Fields(("key",)), 4, schema), [(tuple(k),) for (k,) in rows])
    assert lists == tuples


def test_missing_value_in_a_column_is_the_key_none() -> None:
    rows = [Word("a", 1), Word(None, 2), Word("b", 3), Word(None, 4)]  # type: ignore[arg-type]
    table = pa.table({"word": [r.word for r in rows], "n": [r.n for r in rows]})
    by_word = groupings.Fields(("word",))
    assert chosen(router(by_word, 5), table) == chosen(router(by_word, 5), rows)


def test_keys_in_a_dictionary_of_arrow_go_where_their_values_go() -> None:
    route = router(groupings.Fields(("word",)), 5)
    for words in (WORDS[:100], WORDS[100:]):  # each table has a dictionary of its own
        column = pa.array([word.word for word in words]).dictionary_encode()
        table = pa.table({"word": column, "n": [word.n for word in words]})
        assert chosen(route, table) == chosen(router(groupings.Fields(("word",)), 5), words)


def test_key_without_a_common_hash_is_refused() -> None:
    strange = Schema(("key",))
    with pytest.raises(BadEmit, match="a key of type object has no hash"):
        router(groupings.Fields(("key",)), 2, strange).shares([(object(),)], 1)


@given(st.integers(2, 9), st.lists(st.sampled_from("abcdefgh"), max_size=60))
def test_partial_key_takes_the_less_used_of_two_tasks_and_never_a_third(
    targets: int, words: list[str]
) -> None:
    route = router(groupings.PartialKey(("word",)), targets)
    sent = Counter(dict.fromkeys(range(targets), 0))
    for word in words:  # one by one, so that the loads are known
        first, second = route.choices(word)  # type: ignore[attr-defined]
        assert first != second
        (target,) = chosen(route, [Word(word, 0)])
        assert target == (first if sent[first] <= sent[second] else second)
        sent[target] += 1


def test_partial_key_pairs_every_task_with_every_other() -> None:
    route: Any = router(groupings.PartialKey(("word",)), 8)
    pairs = {route.choices(f"key{i:04}") for i in range(2_000)}
    assert len(pairs) == 8 * 7, "otherwise the others could take no load from a hot pair of tasks"


@every_kind
def test_partial_key_is_the_same_by_rows_and_by_columns(schema: Schema, records: Any) -> None:
    by_word = groupings.PartialKey(("word",))
    assert chosen(router(by_word, 5, schema), records) == chosen(router(by_word, 5), WORDS)


# ---- all, global, direct, custom ----------------------------------------------------------------


@every_kind
def test_all_is_a_copy_to_every_task(schema: Schema, records: Any) -> None:
    everything = list(range(len(records)))
    shares = positions_by_target(router(groupings.All(), 3, schema), records)
    assert shares == {0: everything, 1: everything, 2: everything}


@every_kind
def test_global_is_the_task_with_the_lowest_id(schema: Schema, records: Any) -> None:
    shares = positions_by_target(router(groupings.Global(), 3, schema), records)
    assert shares == {0: list(range(len(records)))}


def test_direct_stream_has_no_grouping_to_choose_a_task() -> None:
    with pytest.raises(BadEmit, match=r"name the task, with emit_direct"):
        router(groupings.Direct(), 3).shares(WORDS, len(WORDS))


class Chooser:
    """A custom grouping with a script: n → the chosen tasks."""

    def __init__(self, script: dict[int, list[int]]) -> None:
        self.script = script
        self.targets: list[int] = []

    def prepare(self, targets: Sequence[int]) -> None:
        self.targets = list(targets)

    def choose(self, record: Any) -> list[int]:
        return self.script[record["n"] if isinstance(record, dict) else record.n]


def test_custom_grouping_gets_its_targets_and_chooses_none_one_or_several() -> None:
    chooser = Chooser({0: [12], 1: [], 2: [13, 11], 3: [12]})
    custom = router(groupings.Custom(chooser), 3)
    prepare(custom)
    shares = positions_by_target(custom, WORDS[:4])
    assert chooser.targets == [11, 12, 13]
    assert shares == {0: [2], 1: [0, 3], 2: [2]}


def test_custom_grouping_that_chooses_a_task_twice_sends_once() -> None:
    chooser = Chooser({0: [12, 12], 1: []})
    shares = positions_by_target(router(groupings.Custom(chooser), 3), WORDS[:2])
    assert shares == {1: [0]}


def test_custom_grouping_sees_the_rows_of_a_table() -> None:
    table = pa.table({"word": ["a", "b"], "n": [0, 1]})
    shares = positions_by_target(router(groupings.Custom(Chooser({0: [11], 1: [12]})), 2), table)
    assert shares == {0: [0], 1: [1]}


def test_custom_grouping_that_chooses_a_foreign_task_is_refused() -> None:
    with pytest.raises(BadEmit, match=r"Chooser chose task 99; .* tasks are \[11, 12\]"):
        router(groupings.Custom(Chooser({0: [99]})), 2).shares(WORDS[:1], 1)


# ---- pick ---------------------------------------------------------------------------------------

counts = st.integers(1, 30)


@given(counts, st.data())
def test_pick_by_positions_is_a_plain_loop(count: int, data: st.DataObject) -> None:
    positions = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))
    which = np.array(positions)
    records, table = list(range(count)), pa.table({"n": list(range(count))})
    assert list(pick(records, which)) == positions
    assert pick(table, which)["n"].to_pylist() == positions


@given(counts, st.data())
def test_pick_of_a_slice_is_the_slice(count: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, count))
    end = data.draw(st.integers(start, count))
    records, table = list(range(count)), pa.table({"n": list(range(count))})
    assert list(pick(records, slice(start, end))) == records[start:end]
    assert pick(table, slice(start, end))["n"].to_pylist() == records[start:end]
    assert pick(records, slice(None)) is records
