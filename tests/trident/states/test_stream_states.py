"""States of streams: aggregates, updates, queries, and the stream of new values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from sunshower import KeyState
from sunshower.errors import BatchError
from sunshower.topologies.operators.aggregating import Combine
from sunshower.topologies.operators.aggregators import ReducerAggregator, average, count, sum_
from sunshower.topologies.operators.states import MapState, StateKind
from sunshower.trident import BatchStream
from sunshower.trident.states.factories import MemoryState
from tests.trident.rigs.one_process import Runner, StateStub, collected, stub_stream


class Click(NamedTuple):
    page: str
    user: str
    ms: int


class Total(NamedTuple):
    page: str
    times: int


class LastUser(ReducerAggregator[Click, str]):
    name = "last"

    def init(self) -> str:
        return ""

    def reduce(self, value: str, record: Click) -> str:
        return max(value, record.user)


clicks = st.lists(
    st.builds(Click, st.sampled_from("abc"), st.sampled_from("xy"), st.integers(0, 9)), max_size=12
)


@pytest.mark.parametrize("kind", [StateKind.OPAQUE, StateKind.TRANSACTIONAL])
@hypothesis_given(given_batches=st.lists(st.tuples(clicks, st.integers(0, 2)), max_size=5))
def test_a_state_counts_each_batch_once_however_often_it_is_committed(
    kind: StateKind, given_batches: list[tuple[list[Click], int]]
) -> None:
    topology, stream = stub_stream(Click, parallelism=2)
    stub = StateStub(kind)
    stream.group_by("page", "user").aggregate(count(), state=stub, parallelism=2)
    stream.aggregate(sum_("ms"), state=stub)
    runner = Runner(topology)
    for rows, repeats in given_batches:
        runner.batch(rows)
        for _ in range(repeats):
            runner.restart()
            runner.again(rows)
    rows = [row for batch, _ in given_batches for row in batch]
    expected: dict[Any, int] = dict(Counter((row.page, row.user) for row in rows))
    if rows:
        expected["$GLOBAL$"] = sum(row.ms for row in rows)
    assert stub.plain() == expected


def test_an_opaque_state_takes_the_last_attempt_of_a_batch() -> None:
    topology, stream = stub_stream(Click)
    stub = StateStub()
    new = collected(stream.group_by("page").aggregate(count(), state=stub))
    runner = Runner(topology)
    runner.batch([Click("a", "x", 1)])
    runner.batch([Click("a", "x", 1)] * 5)
    runner.again([Click("a", "x", 1)] * 2)
    assert stub.plain() == {"a": 3}
    assert new == [("a", 1), ("a", 6), ("a", 3)]


def test_rows_are_combined_before_they_are_sent() -> None:
    topology, stream = stub_stream(Click)
    stream.group_by("page").aggregate(count(), state=StateStub(), parallelism=2)
    (source, stage) = Runner(topology).group.stages
    assert isinstance(source.nodes[0].operator, Combine)
    assert (stage.parallelism, stage.commits, source.commits) == (2, True, False)


def test_new_values_are_a_stream_like_any_other() -> None:
    topology, stream = stub_stream(Click)
    state = stream.group_by("page").aggregate(count(), state=StateStub(), fields=Total)
    best = collected(state.named("totals").max_by("times"))
    runner = Runner(topology)
    runner.batch([Click("a", "x", 1), Click("b", "x", 1), Click("a", "y", 1)])
    runner.batch([Click("b", "x", 1)] * 3)
    assert best == [Total("a", 2), Total("b", 4)]
    assert "totals" in runner.stages


def test_a_reducer_receives_all_rows_of_its_group() -> None:
    topology, stream = stub_stream(Click)
    stub = StateStub()
    stream.group_by("page").aggregate(LastUser(), state=stub, parallelism=2)
    runner = Runner(topology)
    runner.batch([Click("a", "x", 1), Click("b", "z", 1), Click("a", "y", 1)])
    runner.batch([Click("b", "x", 1)])
    assert stub.plain() == {"a": "y", "b": "z"}


def test_a_state_stores_the_combinable_value_and_returns_the_result() -> None:
    topology, stream = stub_stream(Click)
    stub = StateStub()
    state = stream.group_by("page").aggregate(average("ms"), state=stub)
    new = collected(state)
    asked = collected(stream.group_by("page").state_query(state, fields="mean"))
    runner = Runner(topology)
    runner.batch([Click("a", "x", 1), Click("a", "x", 4)])
    assert stub.plain() == {"a": [5, 2]}
    assert new == [("a", 2.5)]
    assert asked == [("a", "x", 1, 2.5), ("a", "x", 4, 2.5)]


def test_a_query_in_the_program_sees_the_values_written_so_far() -> None:
    topology, stream = stub_stream(Click, parallelism=2)
    _, questions = stub_stream(("q",), "questions", topology, group="given")
    state = stream.group_by("page").aggregate(count(), state=StateStub(), parallelism=3)
    answers = collected(questions.group_by("q").state_query(state, fields=("times",)))
    runner = Runner(topology)
    runner.batch(given=[Click("a", "x", 1)] * 4, questions=[("a",), ("b",)])
    runner.batch(questions=[("a",)])
    assert sorted(answers, key=str) == [("a", 4), ("a", 4), ("b", None)]
    (stage,) = [candidate for candidate in runner.group.stages if candidate.commits]
    assert len({node.operator.slot for node in stage.nodes[:2]}) == 1


@pytest.mark.parametrize("lives", [1, 2])
def test_a_query_in_a_repeat_sees_nothing_of_the_attempt_before(lives: int) -> None:
    """The query runs after the state's writer, which undoes that attempt, even without rows."""
    topology, stream = stub_stream(Click)
    _, questions = stub_stream(("q",), "questions", topology, group="given")
    state = stream.group_by("page").aggregate(count(), state=MemoryState(), parallelism=2)
    answers = collected(questions.group_by("q").state_query(state, fields=("times",)))
    runner = Runner(topology)
    asked = [("a",), ("b",)]
    runner.batch(given=[Click("a", "x", 1)], questions=asked)
    runner.batch(given=[Click("a", "x", 1), Click("b", "x", 1)], questions=asked)
    answers.clear()
    if lives > 1:
        runner.restart()
    runner.again(given=[], questions=asked)
    assert sorted(answers, key=str) == [("a", 1), ("b", None)]


def test_a_query_of_a_state_without_groups_needs_no_group() -> None:
    topology, stream = stub_stream(Click)
    _, questions = stub_stream(("q",), "questions", topology, group="given")
    state = stream.aggregate(count(), state=StateStub())
    answers = collected(questions.state_query(state))
    Runner(topology).batch(given=[Click("a", "x", 1)] * 4, questions=[("?",)])
    assert answers == [("?", 4)]


def test_a_static_state_is_queried_by_group_or_by_a_function() -> None:
    names = StateStub(values={(0, "x"): (1, "Xenia", None)})

    def two(state: MapState, rows: Sequence[Click]) -> list[tuple[Any, int]]:
        return [(name, 1) for name in state.multi_get([row.user for row in rows])]

    topology, stream = stub_stream(Click)
    grouped = collected(stream.group_by("user").state_query(names, fields="name"))
    by_code = collected(stream.state_query(names, two, fields=("name", "one")))
    Runner(topology).batch([Click("a", "x", 1), Click("a", "y", 2)])
    assert grouped == [("a", "x", 1, "Xenia"), ("a", "y", 2, None)]
    assert by_code == [("a", "x", 1, "Xenia", 1), ("a", "y", 2, None, 1)]


def test_a_query_with_too_few_answers_fails_its_batch() -> None:
    def forgetful(state: MapState, rows: Sequence[Click]) -> list[int]:
        return [1]

    topology, stream = stub_stream(Click)
    stream.state_query(StateStub(), forgetful)
    with pytest.raises(BatchError, match="1 answers to 2 rows"):
        Runner(topology).batch([Click("a", "x", 1), Click("a", "y", 2)])


def longest(state: MapState, rows: Sequence[Click]) -> Iterator[Total]:
    click = max(rows, key=lambda row: row.ms)
    state.multi_put([click.page], [click.ms])
    yield Total(click.page, click.ms)


def name_of(state: BatchStream[Any]) -> str:
    assert state.written is not None
    return state.written.slot.name


def test_an_updater_may_write_any_keys() -> None:
    topology, stream = stub_stream(Click)
    stub = StateStub()
    state = stream.partition_by("page", parallelism=2).partition_persist(stub, longest)
    totals = collected(state.filter(lambda total: total.times > 1))
    runner = Runner(topology)
    runner.batch([Click("a", "x", 1), Click("a", "x", 4)])
    runner.batch([])
    assert stub.plain() == {"a": 4}
    assert totals == [Total("a", 4)]
    assert name_of(state) == "longest"
    unnamed = stream.partition_persist(
        StateStub(), lambda state, rows: state.multi_put(["n"], [len(rows)])
    )
    assert name_of(unnamed) == "lambda"


def test_a_batch_whose_commit_fails_is_written_by_the_next_attempt() -> None:
    topology, stream = stub_stream(Click)
    stub = StateStub(failing=["commit"])
    new = collected(stream.group_by("page").aggregate(count(), state=stub))
    runner = Runner(topology)
    with pytest.raises(OSError, match="full"):
        runner.batch([Click("a", "x", 1)])
    assert (new, stub.plain()) == ([], {})
    runner.again([Click("a", "x", 1)])
    assert (new, stub.plain()) == ([("a", 1)], {"a": 1})


def test_a_batch_without_rows_writes_no_state() -> None:
    topology, stream = stub_stream(Click)
    stub = StateStub()
    stream.aggregate(count(), state=stub)
    Runner(topology).batch([])
    assert stub.values == {}


@pytest.mark.parametrize("rest", [[], [Click("b", "x", 1)]])
def test_an_attempt_without_rows_undoes_what_an_earlier_one_wrote(rest: list[Click]) -> None:
    """With an opaque spout the row may be in the next batch instead; Storm counts it twice."""
    topology, stream = stub_stream(Click, parallelism=2)
    state = MemoryState()
    stream.group_by("page").aggregate(count(), state=state, parallelism=2)
    runner = Runner(topology)
    runner.batch([Click("a", "x", 1)])
    runner.batch([Click("a", "x", 1)])
    runner.again(rest)
    assert dict(state.items()) == {"a": 1, **{click.page: 1 for click in rest}}
    runner.batch([Click("a", "x", 1)])
    assert dict(state.items()) == {"a": 2, **{click.page: 1 for click in rest}}


def test_a_state_of_a_user_forgets_a_key_that_a_repeat_puts_and_removes() -> None:
    """It undoes nothing by itself, so the removal is written, although the key was not there."""

    def visits(click: Click, state: KeyState[int]) -> Iterator[Total]:
        state.value = (state.value or 0) + 1
        yield Total(click.page, state.value)
        if not click.ms:
            state.value = None

    topology, stream = stub_stream(Click)
    stub = StateStub()
    rows = collected(stream.group_by("page").process(visits, state=stub))
    runner = Runner(topology)
    runner.batch([Click("a", "x", 1)])
    runner.again([Click("a", "x", 1), Click("a", "x", 0)])
    assert stub.plain() == {}
    runner.batch([Click("a", "x", 1)])
    assert rows[-1] == ("a", 1)
