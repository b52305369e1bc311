"""What a record type may declare, and what of a record is refused because it would be lost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import pytest

from sunshower import (
    Bolt,
    Records,
    Spout,
    Topology,
    run_inline,
)
from sunshower.clock import ManualClock
from sunshower.codec import Codec
from sunshower.errors import RecordMismatch, TopologyFailed, Unserialisable
from sunshower.json_values import StoredValues
from sunshower.record_reader import field_readers, record_reader
from sunshower.records import Schema
from sunshower.simulation.cluster import SimCluster
from sunshower.trident import FixedBatchSpout, InMemory, batches

T = TypeVar("T")


@dataclass
class Line:
    """Has an attribute that is not declared."""

    text: str

    def __post_init__(self) -> None:
        self.words = self.text.split()


@dataclass
class Declared:
    text: str
    words: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.words = self.text.split()


@dataclass(frozen=True)
class FrozenLine:
    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", self.text.split())


@dataclass
class SlotLine:
    __slots__ = ("_words", "text")
    text: str

    def __post_init__(self) -> None:
        self._words = self.text.split()


@dataclass
class Replaced:
    """Has as many attributes as fields, and one of another name."""

    text: str
    count: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.words = self.text.split()


@dataclass
class Remembers:
    text: str
    scale: InitVar[int] = 2

    def __post_init__(self, scale: int) -> None:
        self.scale = scale


@dataclass
class Counts:
    text: str
    number: ClassVar[int] = 0

    def __post_init__(self) -> None:
        self.number = 1


class Plain(Declared):
    """Is not decorated."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.size = len(text)


class Named(NamedTuple):
    text: str


class NamedLine(Named):
    def __init__(self, text: str) -> None:
        self.words = text.split()


@dataclass
class Unset:
    text: str
    words: list[str] = field(init=False)


@dataclass
class UnsetSlot:
    __slots__ = ("text", "words")
    text: str
    words: list[str]

    def __init__(self, text: str) -> None:
        self.text = text


@dataclass
class Property:
    text: str

    @property  # type: ignore[no-redef]
    def text(self) -> str:
        return self._text

    @text.setter
    def text(self, value: str) -> None:
        self._text = value


@dataclass
class Within:
    line: Line | None
    lines: dict[str, list[Line]] = field(default_factory=dict)


class NamedWithin(NamedTuple):
    line: tuple[Line, ...]


@dataclass(slots=True)
class Box(Generic[T]):
    content: T


REFUSED = [
    (Line("a b"), "Line has an attribute 'words'", "`words: … = field(init=False)`"),
    (FrozenLine("a b"), "attribute 'words'", "field(init=False)"),
    (SlotLine("a b"), "attribute '_words'", "`_words: … = field(init=False)`"),
    (Replaced("a"), "attribute 'words'", "field(init=False)"),
    (Remembers("a"), "attribute 'scale'", "It is an InitVar or ClassVar"),
    (Counts("a"), "attribute 'number'", "It is an InitVar or ClassVar"),
    (Plain("a"), "attribute 'size'", "decorate Plain with @dataclass"),
    (NamedLine("a"), "attribute 'words'", "Make it a field"),
    (Unset("a"), "no value of its field 'words'", "set it in __post_init__"),
    (UnsetSlot("a"), "no value of its field 'words'", "set it"),
    (Property("a"), "attribute '_text'", "field(init=False)"),
    (Within(Line("a")), "Line has an attribute 'words'", "field(init=False)"),
    (Within(None, {"a": [Line("a")]}), "Line has an attribute 'words'", "field(init=False)"),
    (NamedWithin((Line("a"),)), "Line has an attribute 'words'", "field(init=False)"),
    (Box(Line("a")), "Line has an attribute 'words'", "field(init=False)"),
]
every_refused = pytest.mark.parametrize(
    ("record", "what", "remedy"), REFUSED, ids=[type(case[0]).__name__ for case in REFUSED]
)


def ignore(record: Any) -> None: ...


@every_refused
def test_a_value_that_no_field_declares_is_refused_where_it_is_first_emitted(
    record: Any, what: str, remedy: str
) -> None:
    kind = type(record)

    def emit(line: Named) -> Iterator[Any]:
        yield record

    def make(line: Named) -> Any:
        return record

    for name in ("spout", "bolt", "map"):
        topology = Topology("t")
        source: Spout[Any] = Records([Named("a")], type=Named)
        if name == "spout":
            stream = topology.spout("here", Records([record] * 9, type=kind))
        elif name == "bolt":
            stream = topology.spout("in", source).shuffle().bolt("here", emit, fields=kind)
        else:
            stream = topology.spout("in", source).shuffle().stage("here").map(make, fields=kind)
        stream.shuffle().bolt("out", ignore)
        with pytest.raises(TopologyFailed) as raised:
            run_inline(topology.graph(), clock=ManualClock(), steps_max=9_999)
        assert what in str(raised.value)
        assert remedy in str(raised.value)
        assert "here" in str(raised.value)


@every_refused
def test_it_is_refused_in_a_state_and_on_the_wire(record: Any, what: str, remedy: str) -> None:
    classes = (*Schema.of(type(record)).classes, Line)
    with pytest.raises(Unserialisable, match="has") as raised:
        StoredValues(dict.fromkeys(classes), "state 's'").plain([record])
    assert what in str(raised.value)
    with pytest.raises(Unserialisable, match="has") as raised:
        Codec(dict.fromkeys(classes)).encode({"a": record})
    assert what in str(raised.value)
    assert remedy in str(raised.value)


def test_a_batch_of_many_is_refused_if_one_has_more(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema.of(Declared)
    records = [Declared("a") for _ in range(50)]
    assert schema.misfit(records) is None
    vars(records[7])  # which is laid out otherwise from now on
    assert schema.misfit(records) is None
    records[31].more = 1  # type: ignore[attr-defined]
    assert schema.misfit(records) == 31
    del records[31].more  # type: ignore[attr-defined]
    records[3].more = 1  # type: ignore[attr-defined]
    vars(records[5])
    assert schema.misfit(records) == 3


def test_a_batch_spout_is_refused_likewise() -> None:
    topology = Topology("t", attempts_max=1)
    spout = FixedBatchSpout([Line("a")], 1, type=Line)
    batches(topology, "here", spout, store=InMemory()).peek(ignore)
    with pytest.raises(TopologyFailed, match="attribute 'words'"):
        run_inline(topology.graph())


# ---- what is not refused ------------------------------------------------------------------------


@dataclass
class Cached:
    text: str

    @cached_property
    def words(self) -> list[str]:
        return self.text.split()


class Base(ABC):
    @abstractmethod
    def size(self) -> int: ...


@dataclass(kw_only=True, slots=True)
class Sized(Base):
    text: str = "a"
    number: int

    def size(self) -> int:
        return self.number


def test_cached_properties_are_dropped_and_computed_again() -> None:
    record = Cached("a b")
    assert record.words == ["a", "b"]
    schema = Schema.of(Cached)
    assert schema.misfit([record]) is None
    (rebuilt,) = schema.build(schema.rows([record]))
    assert vars(rebuilt) == {"text": "a b"}
    assert rebuilt.words == ["a", "b"]


def test_a_generic_record_may_be_made_with_its_type() -> None:
    @dataclass
    class Generics(Generic[T]):
        content: T

    assert Schema.of(Generics).misfit([Generics[int](1)] * 9) is None


def test_records_of_an_abstract_class_with_keywords_alone_travel() -> None:
    seen: list[Any] = []

    class Keeps(Bolt[Sized, None]):
        def process(self, record: Sized) -> None:
            seen.append(record)

    def make(line: Named) -> Sized:
        return Sized(number=len(line.text))

    topology = Topology("t", workers=2)
    lines = topology.spout("lines", Records([Named("abc")] * 6, type=Named))
    lines.shuffle().stage("make", parallelism=2).map(make).shuffle().bolt("keeps", Keeps, 2)
    with SimCluster(1) as cluster:
        cluster.submit(topology.graph()).wait(60)
    assert seen == [Sized(number=3)] * 6


@pytest.mark.parametrize("base", [list, dict, Exception])
def test_a_dataclass_with_content_beside_its_fields_is_refused(base: type[Any]) -> None:
    kind = dataclass(type("Odd", (base,), {"__annotations__": {"text": str}}))
    with pytest.raises(
        RecordMismatch, match=rf"Odd is a {base.__name__}.* make the content a field"
    ):
        Schema.of(kind)


# ---- where the constructor runs -----------------------------------------------------------------


@dataclass
class Order:
    """Reads cents from euros."""

    euros: InitVar[float]
    cents: int = field(init=False)
    note: str = field(default="none", kw_only=True)

    def __post_init__(self, euros: float) -> None:
        self.cents = round(euros * 100)


class Delivery(NamedTuple):
    order: Order


def test_a_reader_of_a_source_calls_the_constructor_with_what_it_takes() -> None:
    read = record_reader(Order)
    assert read({"euros": 1.5, "note": "x"}).cents == 150
    assert read({"euros": 2, "note": "y"}).note == "y"
    with pytest.raises(ValueError, match="Order without euros"):
        read({"cents": 1})
    restore = field_readers(Delivery)["order"]
    assert vars(restore({"cents": 1, "note": "x"})) == {"cents": 1, "note": "x"}
    assert vars(restore({"cents": 1})) == {"cents": 1, "note": "none"}


@dataclass
class Total:
    name: str
    count: int

    def __post_init__(self) -> None:
        self.name = f"<{self.name}>"


def test_an_operator_calls_the_constructor_of_the_records_that_it_makes_once() -> None:
    from sunshower import count

    seen: list[Any] = []

    class Keeps(Bolt[Total, None]):
        def process(self, record: Total) -> None:
            seen.append(record)

    topology = Topology("t", workers=2)
    lines = topology.spout("lines", Records([(n,) for n in "aab"], fields=["name"]))
    totals = lines.group_by("name").aggregate(count(), fields=Total)
    totals.shuffle().bolt("keeps", Keeps, 2)
    with SimCluster(1) as cluster:
        cluster.submit(topology.graph()).wait(60)
    assert {(row.name, row.count) for row in seen} >= {("<a>", 2), ("<b>", 1)}


def test_an_operator_cannot_make_records_whose_constructor_takes_something_else() -> None:
    from sunshower import count

    topology = Topology("t")
    lines = topology.spout("lines", Records([(n,) for n in "aab"], fields=["name"]))
    with pytest.raises(RecordMismatch, match=r"Halves .* constructor must take its fields"):
        lines.group_by("name").aggregate(count(), fields=Halves)


@dataclass
class Halves:
    name: str
    count: int = field(init=False)
