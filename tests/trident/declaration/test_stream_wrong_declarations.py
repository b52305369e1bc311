"""A wrong stream program is refused where it is declared, with an error that says what is valid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from sunshower import Topology
from sunshower.errors import (
    ConfigError,
    DuplicateComponent,
    RecordMismatch,
    SunshowerError,
    TopologyError,
    UnknownField,
)
from sunshower.topologies.operators.totals import Persist
from sunshower.trident import BatchSpout, Skip, SpoutKind, StateKind, batches, count, sum_, tumbling
from sunshower.trident.declaration.stage_builder import InMemory
from sunshower.trident.stages.persisting import BatchSlot
from tests.trident.rigs.one_process import SpoutStub, StateStub, plans, stub_stream


class Word(NamedTuple):
    word: str
    length: int


class Line(NamedTuple):
    text: str


def one(word: Word) -> Word:
    return word


def query_of_lines(state: Any, lines: Sequence[Line]) -> list[int]:
    return []


def update(state: Any, words: Sequence[Word]) -> None: ...


def update_one(state: Any, word: Word) -> None: ...


def words() -> Any:
    return stub_stream(Word, "words")[1]


def state_of(stream: Any) -> Any:
    return stream.aggregate(count(), state=StateStub())


Wrong = Callable[[Any], Any]
CASES: list[tuple[type[SunshowerError], Wrong, str]] = [
    (UnknownField, lambda s: s.partition_by("wrod"), "no field 'wrod'"),
    (
        DuplicateComponent,
        lambda s: (state_of(s), state_of(s.shuffle())),
        "there is a state 'count' already, of topology 't', batches 'words', aggregate",
    ),
    (RecordMismatch, lambda s: s.partition_persist(StateStub(), update_one), r"Sequence\[Word\]"),
    (
        TopologyError,
        lambda s: s.partition_persist(StateStub(), one),
        "must take a state and the records",
    ),
    (RecordMismatch, lambda s: s.state_query(state_of(s), query_of_lines), "it reads Line"),
    (TopologyError, lambda s: s.state_query("counts.db"), "is not a state"),
    (TopologyError, lambda s: s.group_by("word").state_query(state_of(s)), "keys of the state"),
    (
        TopologyError,
        lambda s: state_of(s).shuffle().state_query(state_of_whole(s), fields="n"),
        "different groups",
    ),
    (
        TopologyError,
        lambda s: query_in_a_cycle(state_of(s)),
        "have to go back",
    ),
    (
        TopologyError,
        lambda s: s.state_query(
            s.group_by("word").aggregate(count(), state=StateStub(), parallelism=2), query
        ),
        "the state has 2 tasks",
    ),
    (RecordMismatch, lambda s: s.state_query(StateStub(), fields=Line), "its answer after"),
    (TopologyError, lambda s: s.state_query(windows_of(s)), "function.state, rows."),
    (TopologyError, lambda s: s.aggregate(count(), state=kept_text()), "StateKind"),
    (TopologyError, lambda s: s.operate("top", fields=()), "'top' is no Operator"),
    (UnknownField, lambda s: s.join(s, "wrod"), "no field 'wrod'"),
    (TopologyError, lambda s: s.join(s, "word", how="outer"), '"inner" or "left"'),
    (TopologyError, lambda s: s.join(s, "word", within=1), "give field="),
    (TopologyError, lambda s: s.join(s, "word", how="anti"), "is for a join across batches"),
    (TopologyError, lambda s: s.join(s, "word", how="semi", keep_s=None), "is not a state"),
    (TopologyError, lambda s: s.group_by("word").table(), "is not a state"),
    (TopologyError, lambda s: s.window(tumbling(count=2), count()), "None is not a state"),
    (TopologyError, lambda s: s.group_by("word").map(one), "Call it before group_by, or in new"),
    (
        TopologyError,
        lambda s: s.group_by("word").in_order("length").aggregate(count()),
        r"aggregate\(…\) is called on a stream.* before group_by and in_order, or behind what",
    ),
    (
        TopologyError,
        lambda s: s.group_by("word").connect(s.group_by("word")).map(one),
        r"before group_by and connect, or behind what process\(…\) makes",
    ),
    (
        TopologyError,
        lambda s: s.join(s, "word", as_of="at"),
        "pairs the rows of one batch, and as_",
    ),
    (TopologyError, lambda s: s.join(s, "word", ["word", "length"]), "same number of fields"),
    (RecordMismatch, lambda s: s.join(s, "word"), "one name: word, length, length"),
    (TopologyError, lambda s: s.shuffle(parallelism=0), "parallelism is 0"),
    (TopologyError, lambda s: s.partition(ByHand()), "prepare.targets. and choose"),
    (TopologyError, lambda s: s.named("other"), "still in the bolt of the spout 'words'"),
    (TopologyError, lambda s: s.shuffle().named("two words"), "cannot be an id"),
]


class ByHand:
    pass


def kept_text() -> Any:
    return StateStub("opaque")  # type: ignore[arg-type]


def windows_of(stream: Any) -> Any:
    return stream.window(tumbling(count=2), count(), state=StateStub())


def query(state: Any, rows: Sequence[Word]) -> list[int]:
    return []


def state_of_whole(stream: Any) -> Any:
    return stub_stream(Word, "others")[1].aggregate(count(), state=StateStub())


def query_in_a_cycle(state: Any) -> Any:
    return state.shuffle().state_query(state)


@pytest.mark.parametrize(("error", "wrong", "message"), CASES)
def test_a_wrong_operation_is_refused_with_an_explanation(
    error: type[SunshowerError], wrong: Wrong, message: str
) -> None:
    with pytest.raises(error, match=f"(?s){message}") as refused:
        wrong(words())
    assert "topology 't', batches 'words'" in str(refused.value)


@pytest.mark.parametrize("word", ["merge", "join"])
def test_streams_of_different_groups_cannot_be_merged_or_joined(word: str) -> None:
    topology, ours = stub_stream(Word, "ours")
    _, theirs = stub_stream(Word, "theirs", topology)
    arguments = ["word"] if word == "join" else []
    with pytest.raises(TopologyError, match="'ours' and 'theirs' are of different groups") as error:
        getattr(ours, word)(theirs, *arguments)
    assert 'group="orders"' in str(error.value)


def test_a_wrong_batch_spout_is_refused() -> None:
    with pytest.raises(TopologyError, match="makes no batches"):
        batches(Topology("t"), "lines", ["a"])  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="nothing says which fields"):
        stub_stream(None)
    spout: Any = SpoutStub(Word)
    spout.parallelism_max = 1
    with pytest.raises(TopologyError, match="parallelism is 2, but SpoutStub has at most 1"):
        batches(Topology("t"), "lines", spout, parallelism=2)
    with pytest.raises(DuplicateComponent, match="one of that id already"):
        stub_stream(Word, "given", stub_stream(Word, "given")[0])


@pytest.mark.parametrize(
    "write",
    [
        lambda s, **more: s.aggregate(count(), state=StateStub(StateKind.TRANSACTIONAL), **more),
        lambda s, **more: s.window(
            tumbling(count=2), count(), state=StateStub(StateKind.TRANSACTIONAL), **more
        ),
        lambda s, **more: s.partition_persist(StateStub(StateKind.TRANSACTIONAL), update, **more),
    ],
)
def test_a_pair_that_is_not_exactly_once_must_be_accepted(write: Any) -> None:
    topology = Topology("t")
    opaque = batches(topology, "lines", SpoutStub(Word, SpoutKind.OPAQUE))
    with pytest.raises(TopologyError, match=r"'lines'.*do not count exactly once"):
        write(opaque.shuffle())
    with pytest.warns(UserWarning, match=r"'lines'.*do not count exactly once"):
        write(opaque.shuffle(), not_exactly_once=True)


def test_an_operator_that_commits_is_checked_like_a_state() -> None:
    plain = batches(Topology("t"), "lines", SpoutStub(Word, SpoutKind.NON_TRANSACTIONAL))
    with pytest.raises(TopologyError, match=r"operate.*do not count exactly once"):
        plain.operate(Persist(BatchSlot(StateStub(), "own")), fields=())
    with pytest.warns(UserWarning, match="do not count exactly once"):
        plain.operate(Persist(BatchSlot(StateStub(), "own")), fields=(), not_exactly_once=True)


def test_a_spout_with_a_wrong_kind_is_refused() -> None:
    spout: Any = BatchSpout()
    spout.emits, spout.kind = Word, "transactional"
    with pytest.raises(TopologyError, match=r"'lines'.*kind is 'transactional'.*SpoutKind"):
        batches(Topology("t"), "lines", spout)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"skip": "dead.jsonl"}, r"skip is 'dead.jsonl'.*Skip\(dead_letters"),
        ({"store": "x.db"}, r"store is 'x.db'.*InSqlite\("),
        ({"max_batches": 1.5}, "max_batches is 1.5"),
        ({"max_batches": True}, "max_batches is True"),
        ({"interval_s": "1"}, "interval_s is '1'"),
        ({"interval_s": float("nan")}, "interval_s is nan"),
    ],
)
def test_invalid_settings_of_a_group_are_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s)batches 'words': {message}"):
        stub_stream(Word, "words", **setting)


def test_the_settings_of_a_group_cannot_be_changed_later() -> None:
    store = InMemory()
    topology, _ = stub_stream(Word, "ours", group="g", max_batches=3, store=store)
    stub_stream(Word, "theirs", topology, group="g")
    with pytest.raises(ConfigError, match="group 'g' has max_batches=3 already"):
        stub_stream(Word, "others", topology, group="g", max_batches=2)
    with pytest.raises(ConfigError, match="max_batches is 0"):
        stub_stream(Word, max_batches=0)
    with pytest.raises(ConfigError, match="interval_s is -1"):
        stub_stream(Word, interval_s=-1.0)


def test_two_stages_with_the_same_name_are_refused() -> None:
    topology, stream = stub_stream(Word)
    for _ in range(2):
        stream.shuffle().map(one).named("same")
    with pytest.raises(DuplicateComponent, match="several stages are called 'same'"):
        plans(topology)


def test_batches_that_may_be_skipped_need_states_that_can_undo() -> None:
    skip = Skip(dead_letters="dead.jsonl")
    topology, stream = stub_stream(Word, skip=skip)
    stream.aggregate(count(), state=StateStub(StateKind.TRANSACTIONAL), name="sums")
    with pytest.raises(TopologyError, match="state 'sums' is of kind transactional, so what an"):
        plans(topology)
    topology, stream = stub_stream(Word, skip=skip)
    with pytest.warns(UserWarning, match="do not count exactly once"):
        stream.aggregate(
            count(), state=StateStub(StateKind.NON_TRANSACTIONAL), not_exactly_once=True
        )
    stream.aggregate(sum_("length"), state=StateStub())
    assert plans(topology)


def shuffled(stream: Any) -> Any:
    return stream.shuffle(parallelism=2)


def merged(stream: Any) -> Any:
    return stream.merge(stream.broadcast()).map(one)


@pytest.mark.parametrize("spread", [shuffled, merged])
def test_tasks_whose_rows_change_with_each_attempt_need_states_that_can_undo(spread: Any) -> None:
    _, stream = stub_stream(Word)
    spread(stream).partition_persist(StateStub(), update, name="opaque")
    spread(stream).partition_by("word").partition_persist(
        StateStub(StateKind.TRANSACTIONAL), update
    )
    with pytest.raises(TopologyError, match="which task gets which rows"):
        spread(stream).partition_persist(StateStub(StateKind.TRANSACTIONAL), update, name="other")
    with pytest.warns(UserWarning, match="which task gets which rows"):
        spread(stream).partition_persist(
            StateStub(StateKind.TRANSACTIONAL), update, name="accepted", not_exactly_once=True
        )


def test_names_of_states_must_differ_in_more_than_case() -> None:
    _, stream = stub_stream(Word)
    stream.aggregate(count(), state=StateStub(), name="Sums")
    with pytest.raises(DuplicateComponent, match="there is a state 'Sums' already"):
        stream.aggregate(count(), state=StateStub(), name="sums")
