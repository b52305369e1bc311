"""Records of every library are the same on every way, and are validated once, at the source."""

from __future__ import annotations

import csv
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from io import BytesIO, StringIO
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict

import attrs
import fastavro
import msgpack
import msgspec
import pyarrow as pa
import pydantic
import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import Default
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

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
from sunshower.connectors.file_formats import Misread, ParquetWriter, RecordReaders
from sunshower.errors import RecordMismatch, SourceError, TopologyFailed, UnreadableRecord
from sunshower.failures import Cause, Failure
from sunshower.json_values import StoredValues, json_text, text_of, values_of
from sunshower.kafka import Avro, Json, JsonSchema, MessagePack, Protobuf
from sunshower.kafka.producing.producer import Composer
from sunshower.records import Schema
from sunshower.runtime.plan import Layout, PlannedStream
from sunshower.runtime.tasks.bolts.dead_letters import LetterValues, dead_letter
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.transport.packets import decode_frame, encode_frame
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from sunshower.topologies.graph import StreamSpec
from sunshower.topologies.record_parts import RecordParts
from sunshower.trident import FixedBatchSpout, InMemory, batches
from tests.kafka.schema_registry import WritableRegistry, served

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
    latest_rows = stream.group_by("item").process(latest(kind), state=state, parallelism=2)
    return latest_rows.records("back")


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


# ---- formats and ways ---------------------------------------------------------------------------
# Every record type, in every format, on every way.


class Simple(pydantic.BaseModel):
    """A model whose names all formats can have."""

    number: int
    item: str
    amount: Annotated[float, pydantic.AfterValidator(_positive)]
    at: datetime
    tags: list[str] = []


class Row(TypedDict):
    """CSV has no lists, and a TypedDict no defaults."""

    number: int
    item: str
    amount: float
    at: datetime


@pytest.fixture(scope="module")
def registry() -> Iterator[dict[str, str]]:
    with served(WritableRegistry) as url:
        yield {"url": url}


@cache
def sent_message() -> Any:
    """The class of Protobuf's messages. A Struct of msgspec has a tag, in the field `type`."""
    assert timestamp_pb2
    kinds = {"number": "INT64", "item": "STRING", "amount": "DOUBLE", "at": "MESSAGE",
             "tags": "STRING", "type": "STRING"}  # fmt: skip
    fields: list[dict[str, Any]] = [
        {"name": name, "number": place, "type": f"TYPE_{kind}",
         "label": "LABEL_REPEATED" if name == "tags" else "LABEL_OPTIONAL"}
        for place, (name, kind) in enumerate(kinds.items(), start=1)
    ]  # fmt: skip
    fields[3]["typeName"] = ".google.protobuf.Timestamp"
    described = {
        "name": "record_types.proto", "package": "record_types", "syntax": "proto3",
        "dependency": ["google/protobuf/timestamp.proto"],
        "messageType": [{"name": "Sent", "field": fields}],
    }  # fmt: skip
    file = ParseDict(described, FileDescriptorProto())
    Default().AddSerializedFile(file.SerializeToString())
    return GetMessageClass(Default().FindMessageTypeByName("record_types.Sent"))


def schema_of(record: Any) -> Schema:
    is_keyed = type(record) is dict
    return Schema.of((Keyed if "tags" in record else Row) if is_keyed else type(record))


def as_json(record: Any) -> bytes:
    parts = RecordParts("test")
    parts.check(schema_of(record), [None])
    return json_text(parts.getter(None)(record)).encode()


def csv_of(content: dict[str, Any]) -> bytes:
    file = StringIO(newline="")
    rows = csv.DictWriter(file, [*content], lineterminator="\n", quoting=csv.QUOTE_ALL)
    rows.writeheader()
    rows.writerow(content)
    return file.getvalue().encode()


def as_csv(record: Any) -> bytes:
    values = json.loads(as_json(record)).items()
    return csv_of({name: value for name, value in values if not name.endswith("tags")})


def as_parquet(record: Any) -> bytes:
    writer = ParquetWriter(schema_of(record), "test")
    return bytes(writer.joined([writer.encode([record])]))


def file_of(name: str, write: Callable[[Any], bytes]) -> Callable[..., Any]:
    """What writes and reads files of this name."""

    def made(kind: Any, _: Any) -> Any:
        def read(data: bytes) -> Any:
            (record,) = RecordReaders(kind).records(name, data)
            if isinstance(record, Misread):
                raise UnreadableRecord(record.reason)
            return record

        return write, read

    return made


def message_of(form: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """What writes and reads messages of Kafka in this format."""

    @cache
    def made(kind: Any, url: str) -> Any:
        message = form(kind, {"url": url})
        composer = Composer("KafkaBolt", f"{kind.__name__}-{form}", value=message)
        composer.check(Schema.of(kind))
        return (lambda record: composer.compose(record).value), message.decoder("t", "value")

    return made


def packed(kind: Any, _: Any) -> Any:
    return (
        lambda record: msgpack.packb(json.loads(as_json(record))),
        MessagePack(kind).decoder("t", "value"),
    )


def several(kind: Any, _: Any) -> Any:
    read = Json(kind).decoder("t", "value")
    return (lambda record: b"[" + as_json(record) + b"]"), lambda data: read(data)[0]


FORMATS: dict[str, Callable[..., Any]] = {  # format → what writes a record, and what reads it
    "JSON": message_of(lambda kind, _: Json(kind)),
    "JSON of several": several,
    "JSON lines": file_of("a.jsonl", lambda record: as_json(record) + b"\n"),
    "CSV": file_of("a.csv", as_csv),
    "Parquet": file_of("a.parquet", as_parquet),
    "MessagePack": packed,
    "Avro": message_of(lambda kind, registry: Avro(registry, kind)),
    "JSON Schema": message_of(lambda kind, registry: JsonSchema(registry, kind)),
    "Protobuf": message_of(lambda kind, _: Protobuf(sent_message(), kind)),
    "framed Protobuf": message_of(
        lambda kind, registry: Protobuf(sent_message(), kind, registry=registry)
    ),
}
TYPED_NAMES = {"Avro", "Protobuf", "framed Protobuf"}  # which have no name item-tags


def by_hop(kind: Any, record: Any) -> Any:
    schema = Schema.of(kind)
    stream = PlannedStream(0, "source", StreamSpec("default", schema), schema.classes)
    packet = msgpack.packb(encode_frame(3, 1, Batch(0, 7, [record]), stream, 1 << 24))
    frame = decode_frame(msgpack.unpackb(packet), [stream])
    assert frame.error is None
    return frame.batch.records[0]


def by_state(kind: Any, record: Any) -> Any:
    store = StoredValues(dict.fromkeys([kind, *Schema.of(kind).classes]), "state")
    return store.value(values_of([text_of(store.plain({"last": record}))])[0])["last"]


def by_letter(kind: Any, record: Any) -> Any:
    schema = Schema.of(kind)
    failure = Failure(Cause.EXCEPTION, "bolt", 1, 0, "why")
    forms = LetterValues(schema)
    values = dict(zip(schema.fields, schema.rows([record])[0], strict=True))
    letter = dead_letter("source", 1, values, failure, 1, time=0.0, forms=forms)
    read = forms.read(DeadLetter(**json.loads(json_text(letter._asdict()))))
    return schema.build([[read[name] for name in schema.fields]])[0]


def by_batch(kind: Any, record: Any) -> Any:
    seen: list[Any] = []
    topology = Topology("batches")
    stream = batches(topology, "rows", FixedBatchSpout([record], 1, type=kind), store=InMemory())
    moved = stream.shuffle().map(same(kind)).group_by("item")
    moved.process(latest(kind), state=MemoryState()).peek(seen.append)
    run_inline(topology.graph(), clock=ManualClock(), steps_max=9_999)
    return seen[0]


WAYS = {"hop": by_hop, "state": by_state, "letter": by_letter, "batch": by_batch}
every_format = pytest.mark.parametrize("form", FORMATS)
ALL_KINDS = [*KINDS, Simple]
ROWS = {
    "number": st.integers(-(2**63), 2**63 - 1),
    "item": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5),
    "amount": st.floats(0, allow_infinity=False),
    "at": st.datetimes(timezones=st.just(UTC)),
    "tags": st.lists(st.text("ab", max_size=2), max_size=2),
}


@pytest.mark.parametrize("kind", ALL_KINDS)
@every_format
@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=20)
@given(values=st.fixed_dictionaries(ROWS))
def test_a_record_is_the_same_in_every_format_on_every_way(
    registry: dict[str, str], kind: Any, form: str, way: str, values: dict[str, Any]
) -> None:
    """Its constructor runs once, at the source."""
    if kind is Model and form in TYPED_NAMES:
        with pytest.raises(RecordMismatch, match="item-tags"):
            FORMATS[form](kind, registry["url"])
        return
    if form == "CSV":
        kind = Row if kind is Keyed else kind
        values = {name: [] if name == "tags" else value for name, value in values.items()}
    tags = {"item-tags" if kind is Model else "tags": values.pop("tags")}
    record = kind(**values, **(tags if kind is not Row else {}))
    write, read = FORMATS[form](kind, registry["url"])
    data = write(record)
    validated.clear()
    received = read(data)
    assert received == record
    assert WAYS[way](kind, received) == record
    assert validated == ([] if kind in (Named, Keyed, Row) else [""]), "once"


def in_file(name: str, write: Callable[[dict[str, Any]], bytes]) -> Callable[..., Any]:
    return lambda kind, content, _: file_of(name, write)(kind, None)[1](write(content))


def parquet_of(content: dict[str, Any]) -> bytes:
    file = BytesIO()
    parquet.write_table(pa.Table.from_pylist([content]), file)
    return file.getvalue()


def avro_of(content: dict[str, Any]) -> tuple[Any, bytes]:
    """The schema that these values have, and the bytes of Avro."""
    names: dict[type, Any] = {int: "long", str: "string", float: "double", type(None): "null",
                              list: {"type": "array", "items": "string"}}  # fmt: skip
    fields = [{"name": name, "type": names[type(value)]} for name, value in content.items()]
    schema = {"type": "record", "name": "Sent", "fields": fields}
    body = BytesIO()
    fastavro.schemaless_writer(body, schema, content)
    return schema, body.getvalue()


def read_avro(kind: Any, content: dict[str, Any], registry: dict[str, str]) -> Any:
    schema, data = avro_of(content)
    key = "AVRO", json.dumps(schema)
    id = WritableRegistry.schemas.setdefault(key, len(WritableRegistry.schemas) + 1)
    return Avro(registry, kind).decoder("t", "value")(struct.pack(">bI", 0, id) + data)


WRONG: dict[str, Callable[..., Any]] = {  # what reads values that another program has written
    "JSON": lambda kind, content, _: Json(kind).decoder("t", "value")(json.dumps(content).encode()),
    "MessagePack": lambda kind, content, _: MessagePack(kind).decoder("t", "value")(
        msgpack.packb(content)
    ),
    "JSON Schema": lambda kind, content, registry: JsonSchema(registry, kind).decoder("t", "value")(
        struct.pack(">bI", 0, 1) + json.dumps(content).encode()
    ),
    "JSON lines": in_file("a.jsonl", lambda content: json.dumps(content).encode() + b"\n"),
    "CSV": in_file("a.csv", csv_of),
    "Parquet": in_file("a.parquet", parquet_of),
    "Avro": read_avro,
}
BAD = [
    ("number", "abc", r"number: 'abc'"),
    ("at", "today", r"at: 'today'"),
    ("item", None, r"item: None"),
    ("number", ..., r"without number|no column 'number'"),
]


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("form", WRONG)
@pytest.mark.parametrize(("name", "value", "message"), BAD)
def test_a_value_that_does_not_fit_is_refused_with_its_field(
    registry: dict[str, str], kind: Any, form: str, name: str, value: Any, message: str
) -> None:
    if form == "CSV":
        if value is None:
            return  # CSV has no value for it: an empty text is one
        kind = Row if kind is Keyed else kind
    if form == "Avro" and kind is Model:
        return  # its alias is not a name in Avro
    record = make(Keyed if kind is Row else kind)
    content = json.loads(as_json(record))
    content = {key: value if key == name else old for key, old in content.items()}
    if value is ...:
        del content[name]
    if form == "CSV":
        content = {key: old for key, old in content.items() if not key.endswith("tags")}
    with pytest.raises((UnreadableRecord, SourceError), match=message) as raised:
        WRONG[form](kind, content, registry)
    assert kind.__name__ in str(raised.value)


@pytest.mark.parametrize("kind", [Classed, Defined, Struct, Model])
def test_what_the_class_itself_refuses_is_refused_at_the_source(kind: Any) -> None:
    content = json.loads(as_json(make(kind)))
    with pytest.raises(UnreadableRecord, match=r"it is negative"):
        Json(kind).decoder("t", "value")(json.dumps({**content, "amount": -1}).encode())


class Limited(msgspec.Struct, forbid_unknown_fields=True):
    amount: Annotated[float, msgspec.Meta(ge=0)]
    name: Annotated[str, msgspec.Meta(max_length=3)] = "a"
    age: Annotated[int | None, msgspec.Meta(ge=0)] = None


class WrongLimit(NamedTuple):
    name: Annotated[str, msgspec.Meta(ge=0)]


def test_the_limits_of_msgspec_hold_at_the_source() -> None:
    read = Json(Limited).decoder("t", "value")
    assert read(b'{"amount": 1, "age": null}') == Limited(1)
    for wrong in (b'"amount": -1', b'"name": "long"', b'"x": 2', b'"age": -1'):
        with pytest.raises(UnreadableRecord, match="Limited"):
            read(b'{"amount": 1, %s}' % wrong)
    with pytest.raises(RecordMismatch, match=r"WrongLimit .*: Can only set `ge` on a numeric type"):
        Json(WrongLimit).decoder("t", "value")


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
