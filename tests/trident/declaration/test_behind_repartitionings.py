"""Which states are accepted behind a repartitioning; declarations without fields are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from sunshower.errors import TopologyError
from sunshower.topologies.operators.port import Operator
from sunshower.trident import StateKind, count, max_, sum_, tumbling
from tests.trident.rigs.one_process import StateStub, stub_stream


class Word(NamedTuple):
    word: str
    length: int


def one(word: Word) -> Word:
    return word


def is_any(row: Any) -> bool:
    return True


def update_any(state: Any, rows: Any) -> None: ...


def shuffled(stream: Any) -> Any:
    return stream.shuffle(parallelism=2)


def merged(stream: Any) -> Any:
    return stream.merge(stream.broadcast()).map(one)


def new_values(stream: Any) -> Any:
    return stream.partition_by("word").aggregate(count(), state=StateStub(), name="before")


@pytest.mark.parametrize("spread", [shuffled, merged])
def test_a_transactional_state_behind_a_repartitioning_by_its_keys_is_accepted(spread: Any) -> None:
    _, stream = stub_stream(Word)
    transactional = StateStub(StateKind.TRANSACTIONAL)
    words = spread(stream).filter(is_any)
    words.group_by("word").aggregate(count(), state=transactional, name="grouped")
    words.group_by("word").aggregate(max_("length"), state=transactional, name="reduced")
    words.aggregate(sum_("length"), state=transactional, name="all")
    words.group_by("word").window(
        tumbling(seconds=60, field="length"), count(), state=transactional
    )
    again = words.group_by("word").aggregate(count(), parallelism=2)
    again.group_by("count").aggregate(sum_("count"), state=transactional, name="counts")
    new = new_values(words).group_by("count")
    new.aggregate(sum_("count"), state=transactional, name="new")


MADE_OF_SEVERAL: list[Callable[[Any], Any]] = [
    lambda s: s.partition_aggregate(count()),
    lambda s: s.group_by("word").partition_aggregate(count()),
    lambda s: s.operate(Operator(), fields=("count",)),
    lambda s: s.partition_aggregate(count()).shuffle(parallelism=2).filter(is_any),
]


@pytest.mark.parametrize("make", MADE_OF_SEVERAL)
@pytest.mark.parametrize("spread", [shuffled, merged])
def test_results_of_several_rows_of_a_task_are_refused_after_any_repartitioning(
    spread: Any, make: Callable[[Any], Any]
) -> None:
    _, stream = stub_stream(Word)
    transactional = StateStub(StateKind.TRANSACTIONAL)
    results = make(spread(stream))
    results.group_by("count").aggregate(sum_("count"), state=StateStub(), name="opaque")
    for rows in (results, results.partition_by("count"), results.global_()):
        with pytest.raises(TopologyError, match="what is made of several rows of a task"):
            rows.group_by("count").aggregate(sum_("count"), state=transactional)
        with pytest.raises(TopologyError, match="what is made of several rows of a task"):
            rows.partition_persist(transactional, update_any)
    rows = make(stream.partition_by("word")).group_by("count")
    rows.aggregate(sum_("count"), state=transactional)


def test_the_first_rows_of_a_shuffled_stream_are_refused() -> None:
    """Which of several equal rows comes first depends on which task received which rows."""
    _, stream = stub_stream(Word)
    with pytest.raises(TopologyError, match="what is made of several rows of a task"):
        shuffled(stream).max_by("length").group_by("word").aggregate(
            count(), state=StateStub(StateKind.TRANSACTIONAL)
        )


def state_of(stream: Any) -> Any:
    return stream.group_by("word").aggregate(count(), state=StateStub())


NOTHING: list[Callable[[Any], Any]] = [
    lambda s: s.project(),
    lambda s: s.map(lambda row: row, fields=()),
    lambda s: s.flat_map(lambda row: [row], fields=()),
    lambda s: s.aggregate(count(), fields=()),
    lambda s: s.partition_aggregate(count(), fields=[]),
    lambda s: s.group_by("word").aggregate(count(), fields=()),
    lambda s: s.group_by("word").aggregate(count(), state=StateStub(), fields=()),
    lambda s: s.window(tumbling(count=2), count(), state=StateStub(), fields=()),
    lambda s: s.join(s, "word", fields=()),
    lambda s: s.partition_persist(StateStub(), update_any, fields=()),
    lambda s: s.state_query(state_of(s), fields=()),
    lambda s: s.group_by(),
    lambda s: s.partition_by(),
]


@pytest.mark.parametrize("declare", NOTHING)
def test_no_fields_are_refused_where_rows_need_some(declare: Callable[[Any], Any]) -> None:
    _, stream = stub_stream(Word)
    with pytest.raises(TopologyError, match=r"topology 't', batches 'given'.*(empty|field)"):
        declare(stream)
