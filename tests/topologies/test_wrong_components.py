"""Code that cannot be a component is refused at its declaration, with what it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import InitVar, dataclass, field
from typing import Any, ClassVar, NamedTuple

import pytest

from sunshower import (
    BatchBolt,
    Bolt,
    Counter,
    Derived,
    Records,
    Spout,
    Topology,
    batch,
    run_inline,
)
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


def test_a_dataclass_with_content_besides_its_fields_is_refused(topology: Any) -> None:
    refused(
        RecordMismatch,
        lambda: topology.spout("words", words(), streams={"late": WordList}),
        "'words'",
        "'late'",
        "WordList is a list",
        "make the content a field",
    )


def no_record() -> None: ...
def two_records(word: Word, other: Word) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (no_record, "exactly one record"),
        (two_records, "exactly one record"),
    ],
)
def test_function_that_cannot_be_a_bolt_is_refused(lines: Any, function: Any, message: str) -> None:
    refused(
        TopologyError,
        lambda: lines.shuffle().bolt("it", function),
        "'it'",
        function.__name__,
        message,
    )


def test_function_without_an_output_type_is_refused(lines: Any) -> None:
    def unannotated(word): ...  # type: ignore[no-untyped-def]

    for function in (unannotated, lambda word: [word], print):
        refused(
            TopologyError,
            lambda function=function: lines.shuffle().bolt("it", function),
            "'it'",
            "Iterator[Word]",
            "None for a sink",
            'fields=("word", "count")',
        )


def test_function_that_returns_a_record_rather_than_several_is_refused(lines: Any) -> None:
    def single(word: Word) -> Word:
        return word

    refused(
        RecordMismatch,
        lambda: lines.shuffle().bolt("it", single),
        "'it'",
        "single",
        "returns Word",
        "Iterator[Word]",
    )


def test_function_that_emits_no_records_is_refused(lines: Any) -> None:
    def size(word: Word) -> Iterator[int]:
        yield len(word.word)

    refused(RecordMismatch, lambda: lines.shuffle().bolt("it", size), "'it'", "int", "NamedTuple")


def test_two_record_types_on_one_stream_are_refused(lines: Any) -> None:
    def either(word: Word) -> Iterator[Word | Total]:
        yield word

    refused(
        RecordMismatch,
        lambda: lines.shuffle().bolt("it", either),
        "'it'",
        "Word, Total",
        "OnStream",
    )


def test_plain_tuples_without_field_names_are_refused(lines: Any) -> None:
    def pairs(word: Word) -> Iterator[tuple[str, int]]:
        yield word.word, 1

    refused(TopologyError, lambda: lines.shuffle().bolt("it", pairs), "'it'", "fields=")
    refused(
        RecordMismatch,
        lambda: lines.shuffle().bolt("it", pairs, fields=("word",)),
        "'it'",
        "tuple[str, int]",
        "(word)",
    )


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


def test_batch_bolt_with_several_streams_is_refused(lines: Any) -> None:
    @batch
    def columns(table: Any) -> Derived | None: ...

    refused(
        TopologyError,
        lambda: lines.shuffle().bolt("it", columns, fields=Word, streams={"late": Word}),
        "'it'",
        "late",
        "default stream alone",
    )


def test_batch_function_without_declared_columns_is_refused(lines: Any) -> None:
    @batch
    def columns(table: Any) -> Derived | None: ...

    refused(TopologyError, lambda: lines.shuffle().bolt("it", columns), "'it'", "fields=Word")


def test_records_of_an_iterator_are_refused(topology: Any) -> None:
    refused(TopologyError, lambda: Records(iter([Word("rain")]), type=Word), "Records", "only once")


def test_records_without_a_type_are_refused(topology: Any) -> None:
    refused(
        TopologyError,
        lambda: topology.spout("words", Records([Word("a")])),
        "'words'",
        "fields=Word",
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
