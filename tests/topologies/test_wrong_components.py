"""Code that cannot be a component is refused at its declaration, with what it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import InitVar, dataclass, field
from typing import Any, ClassVar, NamedTuple

import pytest

from sunshower import BatchBolt, Bolt, Counter, Derived, Records, Spout, Topology, batch, run_inline
from sunshower.errors import RecordMismatch, TopologyError
from sunshower.topologies.graph import Level
from sunshower.trident import FixedBatchSpout, batches
from tests.topologies.conftest import refused
from tests.topologies.examples import (
    Count,
    Everything,
    Manual,
    ManualSpout,
    Order,
    Total,
    Word,
    count,
    words,
)


class Neither(Bolt[Word, Total]):
    pass


class Both(Manual):
    def process(self, record: Word) -> Iterator[Total]:
        yield Total(record.word, 1)


class Silent(Spout[Word]):
    pass


class NeedsArgument(Count):
    def __init__(self, size: int) -> None:
        self.size = size


class Empty(BatchBolt[Word, Total]):
    pass


@pytest.mark.parametrize(
    ("impl", "message"),
    [
        (Neither, ["Neither", "nothing to run", "process or execute"]),
        (Both, ["Both", "process and execute", "not both"]),
        (Empty, ["Empty", "process"]),
        (NeedsArgument, ["NeedsArgument(...)", "instance"]),
        (7, ["7", "is not a bolt", "function of one record"]),
        (Counter, ["Counter", "is not a bolt"]),
        (Counter(5), ["Counter", "is not a bolt"]),
        (str, ["str", "is not a bolt"]),
    ],
)
def test_bolt_that_cannot_run_is_refused(lines: Any, impl: Any, message: list[str]) -> None:
    refused(TopologyError, lambda: lines.shuffle().bolt("it", impl), "'clicks'", "'it'", *message)


@pytest.mark.parametrize(
    ("impl", "message"),
    [
        (Silent, ["Silent", "nothing to run", "records, tables or next_tuple"]),
        (Count, ["Count", "is not a spout", "Records(...)"]),
        (count, ["count", "is not a spout", "Records(...)"]),
        (Records, ["Records(...)", "instance"]),
    ],
)
def test_spout_that_cannot_run_is_refused(topology: Any, impl: Any, message: list[str]) -> None:
    refused(TopologyError, lambda: topology.spout("it", impl), "'clicks'", "'it'", *message)


class Careless(Spout[Word]):
    replay = False

    def records(self) -> Iterator[Word]:
        yield Word("rain")


class CarelessTables(Spout[Word]):
    replay = False

    def tables(self) -> Iterator[Any]:
        yield None


@pytest.mark.parametrize("impl", [Careless, Careless(), CarelessTables])
def test_spout_that_refuses_replays_without_next_tuple_is_refused(topology: Any, impl: Any) -> None:
    refused(
        TopologyError,
        lambda: topology.spout("it", impl),
        "'it'",
        "Careless",
        "replay = False",
        "is for next_tuple",
    )


class ByHand(ManualSpout):
    replay = False


def test_manual_spout_may_replay_by_itself(topology: Any) -> None:
    topology.spout("it", ByHand)
    assert topology.graph().components["it"].level is Level.NEXT_TUPLE


@dataclass(kw_only=True)
class Named:
    word: str


@dataclass
class PartlyNamed:
    word: str
    times: int = field(default=1, kw_only=True)


@dataclass
class Computed:
    word: str
    length: int = field(init=False)


@dataclass
class Helped:
    word: str
    language: InitVar[str] = "en"


@dataclass
class HelpedByName:
    word: str
    language: InitVar[str] = field(default="en", kw_only=True)


@pytest.mark.parametrize("kind", [Named, PartlyNamed, Computed, Helped, HelpedByName])
def test_a_dataclass_may_have_any_constructor(topology: Any, kind: type[Any]) -> None:
    topology.spout("words", words(), streams={"late": kind})


@dataclass
class WordList(list[str]):
    word: str


@pytest.mark.parametrize(
    ("impl", "fields", "message"),
    [
        (count, Word, ["Total", "Word(word)"]),
        (Count, ("word", "times"), ["Total", "(word, times)"]),
        (Count, (), ["Total", "nothing"]),
        (Everything, Word, ["nothing", "Word(word)"]),
        (count, Order, ["Total", "Order(id, price)"]),
    ],
)
def test_annotation_and_fields_that_disagree_are_refused(
    lines: Any, impl: Any, fields: Any, message: list[str]
) -> None:
    refused(
        RecordMismatch,
        lambda: lines.shuffle().bolt("it", impl, fields=fields),
        "'it'",
        *message,
        "make them agree",
    )


def no_record() -> None: ...
def two_records(word: Word, other: Word) -> None: ...
def unannotated(word): ...  # type: ignore[no-untyped-def]
def single(word: Word) -> Word: ...
def size(word: Word) -> Iterator[int]: ...
def either(word: Word) -> Iterator[Word | Total]: ...
def pairs(word: Word) -> Iterator[tuple[str, int]]: ...
@batch
def columns(table: Any) -> Derived | None: ...


UNKNOWN = ["Iterator[Word]", "None for a sink", 'fields=("word", "count")']
REFUSED: list[tuple[Any, Any, dict[str, Any], list[str]]] = [
    (TopologyError, no_record, {}, ["no_record", "exactly one record"]),
    (TopologyError, two_records, {}, ["two_records", "exactly one record"]),
    (TopologyError, unannotated, {}, UNKNOWN),
    (TopologyError, lambda word: [word], {}, UNKNOWN),
    (TopologyError, print, {}, UNKNOWN),
    (RecordMismatch, single, {}, ["single", "returns Word", "Iterator[Word]"]),
    (RecordMismatch, size, {}, ["int", "NamedTuple"]),
    (RecordMismatch, either, {}, ["Word, Total", "OnStream"]),
    (TopologyError, pairs, {}, ["fields="]),
    (RecordMismatch, pairs, {"fields": ("word",)}, ["tuple[str, int]", "(word)"]),
    (TopologyError, columns, {}, ["fields=Word"]),
    (
        TopologyError,
        columns,
        {"fields": Word, "streams": {"late": Word}},
        ["late", "default stream alone"],
    ),
]


@pytest.mark.parametrize(("kind", "function", "settings", "texts"), REFUSED)
def test_a_function_that_cannot_be_a_bolt_is_refused(
    lines: Any, kind: Any, function: Any, settings: Any, texts: list[str]
) -> None:
    refused(kind, lambda: lines.shuffle().bolt("it", function, **settings), "'it'", *texts)


def test_records_that_cannot_be_read_again_or_have_no_type_are_refused(topology: Any) -> None:
    refused(TopologyError, lambda: Records(iter([Word("rain")]), type=Word), "Records", "only once")
    untyped = Records([Word("a")])
    refused(TopologyError, lambda: topology.spout("words", untyped), "'words'", "fields=Word")
    content: Any = {"late": WordList}
    refused(
        RecordMismatch,
        lambda: topology.spout("words", words(), streams=content),
        *("'words'", "'late'", "WordList is a list", "make the content a field"),
    )


# ---- record types without fields ----------------------------------------------------------------


@dataclass
class Marker:
    pass


@dataclass
class OfItsClass:
    version: ClassVar[int] = 1
    name = "no annotation"


@dataclass
class OfItsConstructor:
    given: InitVar[int]


class NamedMarker(NamedTuple):
    pass


@dataclass
class Holder:
    marker: Marker | None  # within a record it says which of several it is


NO_FIELDS = "has no fields, so its records would have no values: declare one, as in `number: int`"


@pytest.mark.parametrize("kind", [Marker, OfItsClass, OfItsConstructor, NamedMarker])
@pytest.mark.parametrize(
    "declare",
    [
        lambda topology, kind: topology.spout("in", Records([], type=kind)),
        lambda topology, kind: (
            topology.spout("in", Counter(1)).map(lambda number: number, fields=kind).keyed("number")
        ),
        lambda topology, kind: (
            topology.spout("in", Counter(1)).shuffle().bolt("out", Manual(), streams={"x": kind})
        ),
        lambda topology, kind: batches(topology, "in", FixedBatchSpout([], 1, type=kind)),
    ],
    ids=["spout", "operator", "stream", "batches"],
)
def test_a_record_type_without_fields_is_refused(kind: Any, declare: Any) -> None:
    with pytest.raises(RecordMismatch, match=f"{kind.__name__} {NO_FIELDS}"):
        declare(Topology("t"), kind)


def test_a_record_within_a_record_may_have_no_fields() -> None:
    topology = Topology("t")
    topology.spout("in", Records([Holder(Marker()), Holder(None)], type=Holder)).shuffle().bolt(
        "out", Held()
    )
    assert run_inline(topology.graph()).snapshot.component("out").executed == 2


class Held(Bolt[Holder, None]):
    def process(self, record: Holder) -> None:
        assert record in (Holder(Marker()), Holder(None))
