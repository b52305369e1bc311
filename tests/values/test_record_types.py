"""Records of every library are the same on every way, and are validated once, at the source."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict

import attrs
import msgpack
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import (
    Bolt,
    Context,
    DeadLetter,
    KeyState,
    Records,
    Retry,
    Topology,
    collect,
    count,
    max_,
    run_inline,
    sum_,
    tumbling,
)
from sunshower.clock import ManualClock
from sunshower.connectors.file_formats import ParquetWriter, parquet_records
from sunshower.errors import RecordMismatch, TopologyFailed, UnreadableRecord
from sunshower.json_values import json_text
from sunshower.kafka import Json, MessagePack
from sunshower.record_reader import record_reader
from sunshower.records import Schema
from sunshower.runtime.plan import Layout
from sunshower.runtime.tasks.bolts.dead_letters import LetterValues
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from sunshower.topologies.record_parts import RecordParts
from sunshower.trident import FixedBatchSpout, InMemory, batches

validated: list[str] = []  # whose validation has run


def _positive(value: float) -> float:
    validated.append("")
    if value < 0:
        raise ValueError("it is negative")
    return value


class Named(NamedTuple):
    number: int
    item: str
    amount: float
    at: datetime
    tags: list[str] = []  # noqa: RUF012


@dataclass
class Classed:
    number: int
    item: str
    amount: float
    at: datetime
    tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        _positive(self.amount)


@attrs.define
class Defined:
    _number: int
    item: str
    amount: float = attrs.field(validator=lambda _, __, value: _positive(value))
    at: datetime
    tags: list[str] = attrs.Factory(list)


class Struct(msgspec.Struct, rename="camel", tag=True):
    number: int
    item: str
    amount: float
    at: datetime
    tags: list[str] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        _positive(self.amount)


class Model(pydantic.BaseModel):
    number: int
    item: str
    amount: float
    at: datetime
    tags: list[str] = pydantic.Field(default=[], alias="item-tags")

    @pydantic.field_validator("amount")
    @classmethod
    def is_positive(cls, value: float) -> float:
        return _positive(value)


class Keyed(TypedDict):
    number: int
    item: str
    amount: float
    at: datetime
    tags: list[str]


KINDS: list[Any] = [Named, Classed, Defined, Struct, Model, Keyed]
every_kind = pytest.mark.parametrize("kind", KINDS)


def make(kind: Any, number: int = 1, amount: float = 1.5) -> Any:
    at = datetime(2026, 1, 1, 0, number % 60, tzinfo=UTC)
    values = {"number": number, "item": "abc"[number % 3], "amount": amount, "at": at}
    return kind(**values, **{"item-tags" if kind is Model else "tags": [str(number)]})


def annotated(function: Any, **annotations: Any) -> Any:
    """A function with these annotations, as if a user had written them."""
    function.__annotations__ = annotations
    return function


# ---- programs -----------------------------------------------------------------------------------


class Kept(Bolt[Any, None]):
    def prepare(self, context: Context) -> None:
        self.seen: list[str] = []

    def process(self, record: Any) -> None:
        self.seen.append(repr(record))

    def result(self) -> list[str]:
        return self.seen


def same(kind: Any) -> Any:
    return annotated(lambda record: record, record=kind, **{"return": kind})


def twice(kind: Any) -> Any:
    def generate(record: Any) -> Iterator[Any]:
        yield record
        yield record

    return annotated(generate, record=kind, **{"return": Iterator[kind]})


def latest(kind: Any) -> Any:
    """Each record together with the one before it, which was in the state."""

    def remember(record: Any, state: KeyState[Any]) -> Iterator[Any]:
        before = (state.value or {}).get("last", record)
        state.value = {"last": record}
        yield before

    state = KeyState[dict[str, kind]]  # type: ignore[valid-type]
    return annotated(remember, record=kind, state=state, **{"return": Iterator[kind]})


def source(topology: Topology, kind: Any, total: int = 40) -> Any:
    records = [make(kind, number) for number in range(total)]
    return topology.spout("source", Records(records, type=kind))


def hops(topology: Topology, kind: Any) -> Any:
    stream = source(topology, kind)
    for name in "ab":
        stream = stream.fields("item").stage(name, parallelism=2).map(same(kind))
    return stream.shuffle().bolt("twice", twice(kind), 2)


def keyed_state(topology: Topology, kind: Any) -> Any:
    return source(topology, kind).group_by("item").process(latest(kind), parallelism=2)


def windows(topology: Topology, kind: Any) -> Any:
    grouped = source(topology, kind).group_by("item")
    return grouped.window(tumbling(seconds=600, field="at"), count(), collect("tags"))


def totals(topology: Topology, kind: Any) -> Any:
    return source(topology, kind).group_by("item").aggregate(sum_("amount"), max_("amount"))


def joined(topology: Topology, kind: Any) -> Any:
    prices = topology.spout("prices", Records([("a", 2)], fields=("item", "price")))
    return source(topology, kind).join(prices.group_by("item").table(), "item", how="left")


def batched(topology: Topology, kind: Any) -> Any:
    records = [make(kind, number) for number in range(40)]
    spout = FixedBatchSpout(records, 7, type=kind)
    stream = batches(topology, "batches", spout, store=InMemory()).shuffle().map(same(kind))
    state = MemoryState()
    kept = stream.group_by("item").process(latest(kind), state=state, parallelism=2)
    return kept.records("back")


PROGRAMS: list[Callable[..., Any]] = [hops, keyed_state, windows, totals, joined, batched]


def topology_of(program: Callable[..., Any], kind: Any, workers: int) -> Topology:
    topology = Topology("records", workers=workers, ackers=1)
    program(topology, kind).shuffle().bolt("kept", Kept)
    validated.clear()
    return topology


@every_kind
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_gives_the_same_on_several_workers(
    program: Callable[..., Any], kind: Any
) -> None:
    graph = topology_of(program, kind, 1).graph()
    results = run_inline(graph, clock=ManualClock(), steps_max=99_999).results["kept"]
    expected = {line for part in results for line in part}
    assert expected
    assert validated == []
    with SimCluster(1) as cluster:
        run = cluster.submit(topology_of(program, kind, 3).graph(), layout=Layout.ISOLATE)
        assert run.wait(600)
        shown = {line for part in run.results("kept") for line in part}
    if program in (totals, joined):  # which rows there are depends on the order of arrival
        assert shown
    else:
        assert shown == expected
    assert validated == []


@every_kind
@pytest.mark.parametrize("workers", [1, 3])
def test_a_dead_letter_restores_the_record(kind: Any, workers: int, tmp_path: Path) -> None:
    def refuse(record: Any) -> None:
        raise ValueError("no")

    topology, file = Topology("letters", workers=workers), tmp_path / "letters.jsonl"
    retry = Retry(attempts=1, dead_letters=str(file))
    stream = topology.spout("source", Records([make(kind)], type=kind), retry=retry)
    stream.shuffle().bolt("refuse", annotated(refuse, record=kind, **{"return": None}))
    validated.clear()
    with SimCluster(1) as cluster:
        run = cluster.submit(topology.graph(), layout=Layout.ISOLATE)
        assert run.wait(600)
    (line,) = file.read_text().splitlines()
    letter = DeadLetter(**json.loads(line))
    schema = Schema.of(kind)
    values = LetterValues(schema).read(letter)
    (record,) = schema.build([[values[name] for name in schema.fields]])
    assert validated == []
    assert record == make(kind)


# ---- formats ------------------------------------------------------------------------------------


def as_json(record: Any) -> bytes:
    parts = RecordParts("test")
    parts.check(Schema.of(type(record) if type(record) is not dict else Keyed), [None])
    return json_text(parts.getter(None)(record)).encode()


def as_parquet(kind: Any, record: Any) -> Any:
    writer = ParquetWriter(Schema.of(kind), "test")
    (row,) = parquet_records("1", writer.joined([writer.encode([record])]), record_reader(kind))
    return row


FORMATS: dict[str, Callable[[Any, Any], Any]] = {
    "JSON": lambda kind, record: Json(kind).decoder("t", "value")(as_json(record)),
    "JSON of several": lambda kind, record: Json(kind).decoder("t", "value")(
        b"[" + as_json(record) + b"]"
    )[0],
    "MessagePack": lambda kind, record: MessagePack(kind).decoder("t", "value")(
        msgpack.packb(json.loads(as_json(record)))
    ),
    "Parquet": as_parquet,
}
every_format = pytest.mark.parametrize("form", FORMATS)


@every_kind
@every_format
@given(
    number=st.integers(-(2**63), 2**63 - 1),
    item=st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    amount=st.floats(0, allow_infinity=False),
    at=st.datetimes(timezones=st.just(UTC)),
    tags=st.lists(st.text("ab", max_size=2), max_size=2),
)
def test_a_record_is_the_same_in_every_format(kind: Any, form: str, **values: Any) -> None:
    if kind is Model:
        values["item-tags"] = values.pop("tags")
    record = kind(**values)
    validated.clear()
    assert FORMATS[form](kind, record) == record
    assert validated == ([] if kind in (Named, Keyed) else [""]), "once"


BAD = [
    ("number", "abc", r"number: 'abc'"),
    ("at", "today", r"at: 'today'"),
    ("item", None, r"item: None"),
    ("number", ..., r"without number"),
]


@every_kind
@pytest.mark.parametrize("form", ["JSON", "MessagePack"])
@pytest.mark.parametrize(("name", "value", "message"), BAD)
def test_a_value_that_does_not_fit_is_refused_with_its_field(
    kind: Any, form: str, name: str, value: Any, message: str
) -> None:
    content = json.loads(as_json(make(kind)))
    content = {key: value if key == name else old for key, old in content.items()}
    if value is ...:
        del content[name]
    data = json.dumps(content).encode() if form == "JSON" else msgpack.packb(content)
    read = (Json(kind) if form == "JSON" else MessagePack(kind)).decoder("t", "value")
    with pytest.raises(UnreadableRecord, match=message) as raised:
        read(data)
    assert kind.__name__ in str(raised.value)


@pytest.mark.parametrize("kind", [Classed, Defined, Struct, Model])
def test_what_the_class_itself_refuses_is_refused_at_the_source(kind: Any) -> None:
    content = json.loads(as_json(make(kind)))
    with pytest.raises(UnreadableRecord, match=r"it is negative"):
        Json(kind).decoder("t", "value")(json.dumps({**content, "amount": -1}).encode())


class Limited(msgspec.Struct, forbid_unknown_fields=True):
    amount: Annotated[float, msgspec.Meta(ge=0)]
    name: Annotated[str, msgspec.Meta(max_length=3)] = "a"


def test_the_limits_of_msgspec_hold_at_the_source() -> None:
    read = Json(Limited).decoder("t", "value")
    assert read(b'{"amount": 1}') == Limited(1)
    for data in (b'{"amount": -1}', b'{"amount": 1, "name": "long"}', b'{"amount": 1, "x": 2}'):
        with pytest.raises(UnreadableRecord, match="Limited"):
            read(data)


class Cat(msgspec.Struct, tag=True):
    name: str


class Dog(msgspec.Struct, tag=True):
    name: str


class Owner(pydantic.BaseModel):
    name: str
    pays: Decimal = Decimal(1)
    email: pydantic.NaiveDatetime | None = None


class Visit(NamedTuple):
    pet: Cat | Dog
    owner: Owner
    defined: Defined | None = None


def test_records_of_several_libraries_are_in_one() -> None:
    visit = Visit(Dog("Rex"), Owner(name="Ann", pays=Decimal("1.50")), make(Defined))
    assert Json(Visit).decoder("t", "value")(as_json(visit)) == visit
    with pytest.raises(UnreadableRecord, match=r"Visit\.owner: Owner without name"):
        Json(Visit).decoder("t", "value")(b'{"pet": {"type": "Dog", "name": "Rex"}, "owner": {}}')


# ---- what is no record type ---------------------------------------------------------------------


class Extra(pydantic.BaseModel, extra="allow"):
    number: int


class Private(pydantic.BaseModel):
    number: int
    _secret: int = 1


class Array(msgspec.Struct, array_like=True):
    number: int


class Sparse(TypedDict):
    number: NotRequired[int]


class Partial(TypedDict, total=False):
    number: int


class Empty(msgspec.Struct):
    pass


class Tags(pydantic.RootModel[list[str]]): ...


class Tagged(NamedTuple):
    tags: Tags


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Extra, "allows extra values"),
        (Tags, "is a RootModel"),
        (Tagged, "Tagged.tags: Tags is a RootModel"),
        (Private, "private attribute '_secret'.* make it a field"),
        (Array, "is array_like"),
        (Sparse, r"the key 'number'.* `number: … \| None`"),
        (Partial, "the key 'number'"),
        (Empty, "Empty has no fields"),
        (dict, "is not a record type: use a NamedTuple, a dataclass, a TypedDict"),
    ],
)
def test_a_class_whose_records_would_lose_something_is_refused(kind: Any, message: str) -> None:
    with pytest.raises(RecordMismatch, match=message):
        Topology("t").spout("source", Records([], type=kind))


@attrs.frozen(cache_hash=True)
class Hashed:
    number: int


def record_with(kind: Any, change: Callable[[Any], Any]) -> Any:
    record = make(kind)
    change(record)
    return record


@pytest.mark.parametrize(
    ("kind", "record", "message"),
    [
        (Keyed, {**make(Keyed), "more": 1}, r"a key 'more' that it does not declare"),
        (Keyed, {"number": 1}, r"a Keyed has no key 'item'"),
        (Model, Model.model_construct(number=1), r"Model has no value of its field 'item'"),
        (Keyed, make(Named), r"Keyed"),
        (Hashed, Hashed(1), r"without the caching of its hash"),
    ],
)
def test_a_record_that_would_lose_something_is_refused_at_the_source(
    kind: Any, record: Any, message: str
) -> None:
    topology = Topology("t")
    stream = topology.spout("source", Records([record] * 3, type=kind))
    stream.shuffle().bolt("kept", Kept)
    with pytest.raises(TopologyFailed, match=message):
        run_inline(topology.graph(), clock=ManualClock(), steps_max=9_999)
