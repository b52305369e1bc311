"""The result of each stream operation on a batch, compared with plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from sunshower.topologies.operators.aggregators import (
    Aggregator,
    CombinerAggregator,
    ReducerAggregator,
    average,
    collect,
    count,
    max_,
    min_,
    sum_,
)
from sunshower.topologies.operators.port import Attempt, Operator
from sunshower.topologies.operators.ranking import top
from tests.trident.rigs.one_process import Runner, collected, plans, stub_stream


class Line(NamedTuple):
    text: str


class Word(NamedTuple):
    word: str


@dataclass(frozen=True)
class Sale:
    shop: str
    item: str
    price: int


def split(line: Line) -> Iterator[Word]:
    for word in line.text.split():
        yield Word(word)


def length(word: Word) -> tuple[str, int]:
    return word.word, len(word.word)


def is_long(word: Word) -> bool:
    return len(word.word) > 3


SALES = [Sale(f"s{i % 3}", f"i{i % 5}", i * 7 % 11) for i in range(40)]
sales = st.lists(
    st.builds(Sale, st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(-9, 9)), max_size=30
)


@pytest.mark.parametrize("parallelism", [1, 3])
@hypothesis_given(rows=sales)
def test_aggregated_groups_equal_those_of_a_dictionary(rows: list[Sale], parallelism: int) -> None:
    topology, stream = stub_stream(Sale, parallelism=2)
    by = stream.group_by("shop", "item")
    results = collected(
        by.aggregate(
            *(count(), sum_("price"), min_("price"), max_("price"), average("price")),
            collect("price"),
            parallelism=parallelism,
        )
    )
    Runner(topology).batch(rows)
    groups: dict[Any, list[int]] = {}
    for sale in rows:
        groups.setdefault((sale.shop, sale.item), []).append(sale.price)
    assert sorted((*row[:-1], sorted(row[-1])) for row in results) == sorted(
        (*key, len(of), sum(of), min(of), max(of), sum(of) / len(of), sorted(of))
        for key, of in groups.items()
    )


class Longest(ReducerAggregator[Sale, str]):
    name = "longest"

    def init(self) -> str:
        return ""

    def reduce(self, value: str, record: Sale) -> str:
        return max(value, record.item)


class Prices(Aggregator[Sale, list[int]]):
    fields = ("least", "greatest")

    def init(self, attempt: Attempt) -> list[int]:
        return []

    def aggregate(self, state: list[int], record: Sale) -> None:
        state.append(record.price)

    def complete(self, state: list[int]) -> Iterator[tuple[int, int]]:
        if state:
            yield min(state), max(state)


class Products(CombinerAggregator[Sale, int]):
    def init(self, record: Sale) -> int:
        return record.price

    def combine(self, first: int, second: int) -> int:
        return first * second

    def zero(self) -> int:
        return 1


def test_the_three_kinds_of_aggregators_can_be_combined() -> None:
    topology, stream = stub_stream(Sale, parallelism=2)
    results = collected(
        stream.group_by("shop").aggregate(Longest(), Prices(), Products(), parallelism=2)
    )
    Runner(topology).batch([Sale("a", "x", 2), Sale("b", "y", 5), Sale("a", "z", 3)])
    assert sorted(results) == [("a", "z", 2, 3, 6), ("b", "y", 5, 5, 5)]


def test_a_chain_of_aggregators_yields_all_combinations_of_their_rows() -> None:
    class Twice(Prices):
        fields = ("price",)

        def complete(self, state: list[int]) -> Iterator[tuple[int, ...]]:
            yield from ((price,) for price in state)

    topology, stream = stub_stream(Sale)
    results = collected(stream.aggregate(Twice(), count()))
    Runner(topology).batch([Sale("a", "x", 2), Sale("b", "y", 5)])
    assert sorted(results) == [(2, 2), (5, 2)]


def test_a_batch_without_rows_has_a_count_of_zero_once() -> None:
    topology, stream = stub_stream(Sale, parallelism=3)
    whole = collected(stream.aggregate(count(), min_("price"), average("price"), parallelism=2))
    reduced = collected(stream.aggregate(Longest()))
    parts = collected(stream.partition_aggregate(count()))
    grouped = collected(stream.group_by("shop").aggregate(count()))
    runner = Runner(topology)
    runner.batch([])
    runner.batch([])
    assert whole == [(0, None, None)] * 2
    assert reduced == [("",)] * 2
    assert parts == [(0,)] * 6
    assert grouped == []


def test_partitions_are_aggregated_where_they_are() -> None:
    topology, stream = stub_stream(Sale)
    shared = stream.shuffle(parallelism=4)
    counts = collected(shared.partition_aggregate(count()))
    grouped = collected(shared.group_by("shop").partition_aggregate(count()))
    runner = Runner(topology)
    runner.batch(SALES)
    assert counts == [(10,)] * 4
    assert sum(times for _, times in grouped) == 40
    assert len(runner.group.stages) == 2


@hypothesis_given(rows=sales)
def test_the_best_rows_of_a_batch(rows: list[Sale]) -> None:
    topology, stream = stub_stream(Sale, parallelism=2)
    best = collected(stream.aggregate(top(3, by="price")))
    least, greatest = collected(stream.min_by("price")), collected(stream.max_by("price"))
    Runner(topology).batch(rows)
    prices = sorted(sale.price for sale in rows)
    assert [[row[2] for row in rows] for (rows,) in best] == [prices[::-1][:3]]
    assert [sale.price for sale in least] == prices[:1]
    assert [sale.price for sale in greatest] == prices[-1:]


@pytest.mark.parametrize("how", ["inner", "left"])
@hypothesis_given(left=sales, right=sales)
def test_a_join_pairs_rows_of_one_batch(how: Any, left: list[Sale], right: list[Sale]) -> None:
    topology, ours = stub_stream(Sale, "ours", group="g", parallelism=2)
    _, theirs = stub_stream(Sale, "theirs", topology, group="g")
    names = ("shop", "item", "price", "theirs")
    joined = ours.join(theirs, ["shop", "item"], how=how, parallelism=2, fields=names)
    pairs = collected(joined)
    runner = Runner(topology)
    runner.batch(ours=left, theirs=right)
    expected = Counter(
        (row.shop, row.item, row.price, other.price)
        for row in left
        for other in right
        if (row.shop, row.item) == (other.shop, other.item)
    )
    if how == "left":
        keys = {(other.shop, other.item) for other in right}
        alone = (row for row in left if (row.shop, row.item) not in keys)
        expected += Counter((row.shop, row.item, row.price, None) for row in alone)
    assert Counter(pairs) == expected
    pairs.clear()
    runner.batch(ours=left, theirs=[])
    assert len(pairs) == (len(left) if how == "left" else 0)


def test_keys_of_a_join_may_have_two_names() -> None:
    topology, words = stub_stream(("word", "n"), "words", group="g")
    _, texts = stub_stream(("text", "m"), "texts", topology, group="g")
    joined = words.join(texts, "word", "text")
    pairs = collected(joined)
    Runner(topology).batch(words=[("a", 1), ("b", 2)], texts=[("b", 3), ("b", 4)])
    assert joined.schema.fields == ("word", "n", "m")
    assert sorted(pairs) == [("b", 2, 3), ("b", 2, 4)]


def test_merged_streams_need_no_repartitioning() -> None:
    topology, ours = stub_stream(Word, "ours", group="g")
    _, theirs = stub_stream(Word, "theirs", topology, group="g", parallelism=2)
    merged = ours.merge(theirs, ours)
    counts = collected(merged.filter(is_long).group_by("word").aggregate(count()))
    runner = Runner(topology)
    runner.batch(ours=[Word("wind"), Word("ox")], theirs=[Word("wind"), Word("rain")])
    assert sorted(counts) == [("rain", 1), ("wind", 3)]
    assert [stage.id for stage in runner.group.stages] == ["ours", "theirs", "ours-2"]


def test_merged_streams_meet_in_one_stage_for_a_partition_aggregate() -> None:
    topology, ours = stub_stream(Word, "ours", group="g")
    _, theirs = stub_stream(Word, "theirs", topology, group="g", parallelism=2)
    counts = collected(ours.merge(theirs).partition_aggregate(count()))
    Runner(topology).batch(ours=[Word("wind")] * 3, theirs=[Word("rain")] * 3)
    assert counts == [(3,), (3,)]


def test_a_diamond_within_a_stage_needs_no_repartitioning() -> None:
    topology, words = stub_stream(Word)
    short = words.filter(lambda word: not is_long(word))
    both = collected(words.filter(is_long).merge(short).map(length, fields=("word", "length")))
    runner = Runner(topology)
    runner.batch([Word("wind"), Word("ox")])
    assert sorted(both) == [("ox", 2), ("wind", 4)]
    assert len(runner.group.stages) == 1


def test_a_repartitioning_of_a_repartitioning_is_a_stage_between() -> None:
    topology, words = stub_stream(Word)
    twice = collected(words.broadcast(parallelism=2).shuffle(parallelism=3))
    runner = Runner(topology)
    runner.batch([Word("wind"), Word("ox")])
    assert Counter(twice) == {Word("wind"): 2, Word("ox"): 2}
    assert [stage.parallelism for stage in runner.group.stages] == [1, 2, 3]


def test_an_assembly_is_a_piece_of_a_program() -> None:
    def long_words(stream: Any) -> Any:
        return stream.flat_map(split).filter(is_long)

    topology, lines = stub_stream(Line)
    words = collected(lines.apply(long_words))
    Runner(topology).batch([Line("a long line")])
    assert words == [Word("long"), Word("line")]


class Together(Operator):
    """Emits how many rows of a batch each input had."""

    def start(self, attempt: Attempt) -> Any:
        return [], []

    def process(self, batch: Any, source: int, rows: Sequence[Any], emit: Any) -> None:
        batch[source].extend(rows)

    def finish(self, batch: Any, attempt: Attempt, emit: Any) -> None:
        emit([(attempt.txid, len(batch[0]), len(batch[1]))])


def test_a_custom_operator_may_have_several_inputs() -> None:
    topology, ours = stub_stream(Word, "ours", group="g", parallelism=2)
    _, theirs = stub_stream(Line, "theirs", topology, group="g")
    results = collected(ours.operate(Together(), theirs, fields=("txid", "words", "lines")))
    alone = collected(ours.operate(Together(), fields=("txid", "words", "lines")))
    ours.operate(Together(), fields=())
    Runner(topology).batch(ours=[Word("a"), Word("b"), Word("c")], theirs=[Line("d")])
    assert results == [(1, 3, 1)]
    assert alone == [(1, 2, 0), (1, 1, 0)]


def test_stages_have_readable_names() -> None:
    topology, words = stub_stream(Word, "clicks")
    words.shuffle().flat_map(split_again).group_by("word").aggregate(count()).named("totals")
    words.shuffle().filter(is_long)
    words.shuffle()  # without a reader it becomes no stage
    (group,) = plans(topology)
    assert {stage.id for stage in group.stages} == {"clicks", "clicks-2", "totals", "clicks-4"}
    streams = {output.stream for stage in group.stages for output in stage.outputs}
    assert streams == {"to-clicks-2", "to-totals", "to-clicks-4"}


def split_again(word: Word) -> Iterator[Word]:
    yield from map(Word, word.word)


class TwoTasks:
    def prepare(self, targets: Sequence[int]) -> None:
        self.targets = targets

    def choose(self, record: Word) -> Sequence[int]:
        return self.targets if record.word == "all" else self.targets[:1]


def test_rows_go_where_the_repartitioning_says() -> None:
    topology, words = stub_stream(Word)
    ways = {
        "shuffle": words.shuffle(parallelism=4),
        "broadcast": words.broadcast(parallelism=4),
        "global": words.global_(),
        "batch global": words.batch_global(parallelism=4),
        "custom": words.partition(TwoTasks(), parallelism=4),
        "fields": words.partition_by("word", parallelism=4),
    }
    counts = {name: collected(way.partition_aggregate(count())) for name, way in ways.items()}
    runner = Runner(topology)
    runner.batch([Word("all"), *[Word("one")] * 9])
    task_counts = {name: [row[0] for row in rows] for name, rows in counts.items()}
    fields = task_counts.pop("fields")
    assert sorted(fields) in ([0, 0, 0, 10], [0, 0, 1, 9])
    assert max(task_counts.pop("shuffle")) == 3
    assert task_counts == {
        "broadcast": [10] * 4,
        "global": [10],
        "batch global": [0, 10, 0, 0],
        "custom": [10, 1, 1, 1],
    }
