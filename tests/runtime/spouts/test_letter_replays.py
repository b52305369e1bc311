"""Tests of replays of dead letters, for each kind of spout, with values and types restored."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pytest

from sunshower import Bolt, Context, DeadLetter, Records, Retry, Spout, Topology, run_inline
from sunshower.clock import ManualClock
from sunshower.errors import RequestRefused
from sunshower.runtime.inline import Finished
from tests.contract.topologies import Item
from tests.runtime.logs import Log, Reader

POISON = 7
RETRY = Retry(attempts=2, dead_letters=True)
LETTER = DeadLetter(POISON, {"number": POISON}, "spout", 2, "exception", "picky", 0, 0, "", "", "")


class NotesVerdicts(Spout[Any]):
    """A source of the numbers 0, 1, 2 that notes its acks and failures."""

    emits = Item

    def open(self, context: Context) -> None:
        self.verdicts: list[Any] = []
        self.left = iter(range(3))

    def ack(self, message_id: Any) -> None:
        self.verdicts.append(message_id)

    def fail(self, message_id: Any, failure: Any) -> None:
        self.verdicts.append(("failed", message_id))

    def result(self) -> list[Any]:
        return sorted(self.verdicts)


class RowSpout(NotesVerdicts):
    def records(self) -> Iterator[Item]:
        return map(Item, range(3))


class TableSpout(NotesVerdicts):
    def tables(self) -> Iterator[pa.Table]:
        yield pa.table({"number": range(3)})


class NextTupleSpout(NotesVerdicts):
    def next_tuple(self, out: Any) -> None:
        number = next(self.left, None)
        if number is None:
            out.finish()
        else:
            out.emit(Item(number), number)


def polled() -> Reader:
    log = Log([Item(number) for number in range(3)])
    return Reader(log)


class Picky(Bolt[Any, None]):
    """Raises for POISON, `bad` times."""

    def __init__(self, bad: int = 0) -> None:
        self.bad = bad

    def prepare(self, context: Context) -> None:
        self.seen: list[Any] = []

    def process(self, record: Any) -> None:
        if record[0] == POISON and self.bad:
            self.bad -= 1
            raise ValueError("no seven")
        self.seen.append(record)

    def result(self) -> list[Any]:
        return self.seen


class KeepsLetters(Bolt[DeadLetter, None]):
    def prepare(self, context: Context) -> None:
        self.seen: list[DeadLetter] = []

    def process(self, record: DeadLetter) -> None:
        self.seen.append(record)

    def result(self) -> list[DeadLetter]:
        return self.seen


def replayed(spout: Spout[Any], letters: list[Any], bad: int = 0, **settings: Any) -> Finished:
    topology = Topology("t", trace_share=1.0)
    stream = topology.spout("spout", spout, retry=RETRY, **settings)
    stream.shuffle().bolt("picky", Picky(bad))
    stream.stream("dead_letters").shuffle().bolt("kept", KeepsLetters())
    clock = ManualClock(1_000.0)
    return run_inline(topology.graph(), clock=clock, steps_max=9_999, requests={"spout": letters})


each_kind = pytest.mark.parametrize(
    "kind",
    [RowSpout, TableSpout, NextTupleSpout, polled],
    ids=["records", "tables", "next_tuple", "poll"],
)


@each_kind
def test_a_letter_is_emitted_again_and_acked_without_a_call_of_its_spout(
    kind: Callable[[], Spout[Any]],
) -> None:
    done = replayed(kind(), [LETTER])
    assert done.answers == {"spout": [["acked"]]}
    assert sorted(done.results["picky"][0]) == [Item(0), Item(1), Item(2), Item(POISON)]
    assert done.results["spout"] == [[0, 1, 2]]
    assert str(POISON) in {trace.message_id for trace in done.traces.trees}
    counts = done.snapshot.component("spout")
    assert (counts.acked, counts.failed, counts.pending, counts.dead) == (4, 0, 0, 0)


@each_kind
def test_a_letter_that_uses_up_its_attempts_is_a_dead_letter_again(
    kind: Callable[[], Spout[Any]],
) -> None:
    done = replayed(kind(), [LETTER], bad=2)
    assert done.answers == {"spout": [["dead letter"]]}
    assert sorted(done.results["picky"][0]) == [Item(0), Item(1), Item(2)]
    (letter,) = done.results["kept"][0]
    assert (letter.message_id, letter.record, letter.attempts) == (POISON, {"number": POISON}, 2)
    reason = "ValueError: no seven (step `Picky.process`, record Item(number=7))"
    assert (letter.reason, letter.stream) == (reason, "default")
    assert letter.time >= 1_000
    assert done.results["spout"] == [[0, 1, 2]], "neither acks nor failures of the letter"
    counts = done.snapshot.component("spout")
    assert (counts.acked, counts.failed, counts.dead) == (4, 2, 1)


def test_a_letter_that_fails_once_is_tried_again_and_acked() -> None:
    done = replayed(RowSpout(), [LETTER], bad=1)
    assert done.answers == {"spout": [["acked"]]}
    assert Item(POISON) in done.results["picky"][0]
    assert not done.results["kept"][0]


def test_many_letters_are_emitted_once_each() -> None:
    letters = [LETTER._replace(record={"number": number}) for number in range(10, 60)]
    done = replayed(RowSpout(), letters)
    assert done.answers == {"spout": [["acked"]] * 50}
    assert sorted(done.results["picky"][0]) == [*map(Item, [0, 1, 2, *range(10, 60)])]


# ---- values -------------------------------------------------------------------------------------


class Colour(Enum):
    RED = 1


@dataclass(frozen=True)
class Part:
    name: str


class Sale(NamedTuple):
    number: int
    day: date
    at: datetime
    price: Decimal
    id: UUID
    colour: Colour
    part: Part
    data: bytes | None
    tags: list[str]


SALE = Sale(
    POISON,
    date(2026, 1, 2),
    datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    Decimal("1.50"),
    UUID(int=5),
    Colour.RED,
    Part("wheel"),
    b"\x00'\"\xff",
    ["a", "b"],
)


def dead_letter_of(record: Any, *, fields: Any = None) -> DeadLetter:
    """The dead letter of a record, after it was written as JSON and read back."""
    topology = Topology("t")
    source = Records([record], type=fields or type(record))
    stream = topology.spout("spout", source, retry=RETRY)
    stream.shuffle().bolt("picky", Picky(9))
    stream.stream("dead_letters").shuffle().bolt("kept", KeepsLetters())
    done = run_inline(topology.graph(), clock=ManualClock(), steps_max=9_999)
    (letter,) = done.results["kept"][0]
    return DeadLetter(**json.loads(json.dumps(letter._asdict())))


def test_a_replayed_record_has_its_values_and_types() -> None:
    letter = dead_letter_of(SALE)
    assert letter.as_text == ["day", "at", "price", "id", "colour", "part", "data"]
    done = replayed(Records(list[Sale](), type=Sale), [letter])
    assert done.answers == {"spout": [["acked"]]}
    (record,) = done.results["picky"][0]
    assert record == SALE
    assert [*map(type, record)] == [*map(type, SALE)]


class Loose(NamedTuple):
    number: int
    value: Any


@pytest.mark.parametrize(
    "value",
    [{1, 2}, {"b": ("a", 1 << 70)}, date(2026, 1, 2), [date(2026, 1, 2)], -math.inf, {1: b"a"}],
    ids=["set", "tuple", "date", "list of dates", "infinity", "dictionary of integers"],
)
def test_a_value_of_any_type_has_marks_and_is_restored(value: Any) -> None:
    letter = dead_letter_of(Loose(POISON, value))
    assert (letter.as_text, letter.marked) == ([], ["value"])
    done = replayed(Records(list[Loose](), type=Loose), [letter])
    assert repr(done.results["picky"][0]) == repr([Loose(POISON, value)])


def test_marks_are_as_the_states_have_them_and_can_be_corrected() -> None:
    letter = dead_letter_of(Loose(POISON, [(1, 2), {"b", "a"}, UUID(int=5)]))
    marked = [{"()": [1, 2]}, {"(set)": ["a", "b"]}, {"(UUID)": str(UUID(int=5))}]
    assert letter.record == {"number": POISON, "value": marked}
    corrected = letter._replace(record={"number": 9, "value": {"()": [9]}})
    done = replayed(Records(list[Loose](), type=Loose), [corrected])
    assert done.results["picky"][0] == [Loose(9, (9,))]


def test_what_looks_like_a_mark_is_no_mark_in_a_letter_without_marks() -> None:
    value = {"()": [1, 2]}
    old = DeadLetter(*LETTER[:1], {"number": 9, "value": value}, *LETTER[2:])
    done = replayed(Records(list[Loose](), type=Loose), [old])
    assert done.results["picky"][0] == [Loose(9, value)]
    letter = dead_letter_of(Loose(POISON, value))
    assert letter.marked == ["value"] or letter.record["value"] == value
    done = replayed(Records(list[Loose](), type=Loose), [letter])
    assert done.results["picky"][0] == [Loose(POISON, value)]


@pytest.mark.parametrize(
    "value",
    [bytes(1 << 23), {"a" * (1 << 24)}, Part("a"), [Part("a")]],
    ids=["8 MiB", "set of 16 MiB", "dataclass", "list of dataclasses"],
)
def test_a_value_that_the_letter_has_only_as_text_is_not_replayed(value: Any) -> None:
    letter = dead_letter_of(Loose(POISON, value))
    with pytest.raises(RequestRefused, match="only a text in place of"):
        replayed(Records(list[Loose](), type=Loose), [letter])


class Text(NamedTuple):
    number: int
    text: str


def test_bytes_of_a_field_of_any_type_are_restored() -> None:
    letter = dead_letter_of(Loose(POISON, b"\x00a'"))
    done = replayed(Records(list[Loose](), type=Loose), [letter])
    assert done.results["picky"][0] == [Loose(POISON, b"\x00a'")]
    text = LETTER._replace(record={"number": POISON, "value": "b'a'"})
    done = replayed(Records(list[Loose](), type=Loose), [text])
    assert done.results["picky"][0] == [Loose(POISON, "b'a'")]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"record": {"number": POISON}}, r"its fields are \['number'\]"),
        ({"record": {"number": "7", "text": "a"}}, "field 'number': '7' is not a valid int"),
        ({"record": {"number": POISON, "text": 5}}, "field 'text': 5 is not a valid str"),
        ({"stream": "others"}, "others"),
        ({"as_text": ("text",)}, "only a text in place of the value of field 'text'"),
    ],
)
def test_a_letter_that_does_not_fit_its_stream_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    letter = LETTER._replace(**{"record": {"number": POISON, "text": "a"}, **changes})
    with pytest.raises(RequestRefused, match=message):
        replayed(Records(list[Text](), type=Text), [letter])


def test_a_spout_accepts_no_requests_except_letters() -> None:
    with pytest.raises(RequestRefused, match="it takes only dead letters"):
        replayed(RowSpout(), [{"number": 1}])


def test_plain_tuples_are_restored_by_position() -> None:
    done = replayed(
        Records([(1, "a")], fields=("number", "text")),
        [LETTER._replace(record={"number": POISON, "text": "b"})],
    )
    assert sorted(done.results["picky"][0]) == [(1, "a"), (POISON, "b")]
