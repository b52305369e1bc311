"""Records that bolts write in the formats of a schema registry are read back.

`SUNSHOWER_REGISTRY=http://…` runs the same tests with a real registry, beside the server here.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import KafkaSpout, Records, Topology, batches, run_inline
from sunshower.arrow.message_schemas import (
    avro_mismatch,
    avro_schema,
    json_mismatch,
    json_schema,
    kind_of_records,
)
from sunshower.dev.kafka import Kafka
from sunshower.errors import ConfigError, KafkaUnreachable, RecordMismatch, Unserialisable
from sunshower.kafka import (
    Avro,
    Json,
    JsonSchema,
    KafkaBolt,
    MessagePack,
    Protobuf,
    TransactionalKafkaBolt,
)
from sunshower.kafka.formats import Format
from sunshower.kafka.producing.producer import Composer
from sunshower.kafka.producing.record_writers import parsed_avro
from sunshower.records import Schema
from sunshower.trident import FixedBatchSpout, InMemory
from tests.kafka import sale_pb2
from tests.kafka.schema_registry import WritableRegistry, served
from tests.kafka.topics import new_topic
from tests.values.test_record_types import KINDS, Model

REAL = os.environ.get("SUNSHOWER_REGISTRY")


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Stop(NamedTuple):
    place: str
    days: list[int]


class Trip(NamedTuple):
    id: int
    at: datetime
    day: date
    clock: time
    wait: timedelta
    price: Decimal
    key: UUID
    color: Color
    first: Stop
    stops: list[Stop]
    by_number: dict[int, Stop]
    note: str | None
    share: float
    paid: bool


class Level(Enum):
    NONE = 0
    RED = 1


class Sale(NamedTuple):
    id: int
    item: str
    at: datetime | None
    color: Level
    stops: list[Stop]
    by_number: dict[int, Stop]
    wait: timedelta | None
    cents: int | None
    more: dict[str, Any] | None
    cash: bool | None
    raw: bytes


@pytest.fixture(scope="module", params=["own", *(["real"] if REAL else [])])
def registry(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    if request.param == "real":
        yield {"url": str(REAL)}
        return
    with served(WritableRegistry) as url:
        yield {"url": url}


def composer(form: Format, kind: Any, topic: str | None = None) -> Composer:
    new_composer = Composer("KafkaBolt", topic or f"topic-{uuid.uuid4().hex}", value=form)
    new_composer.check(kind if isinstance(kind, Schema) else Schema.of(kind))
    return new_composer


Made = tuple[Composer, Any]  # what writes, and what reads
MADE: dict[tuple[Any, ...], Made] = {}


def made_of(form: Any, kind: Any, registry: Any, **more: Any) -> Made:
    """What writes and reads a format: made once, because each asks the registry."""
    key = form, kind, registry and registry["url"]
    if key not in MADE:
        new_form = form(registry, kind, **more)
        MADE[key] = composer(new_form, kind), new_form.decoder("sales", "value")
    return MADE[key]


def read_back(pair: Made, records: list[Any]) -> list[Any]:
    """What the format reads of what it has written."""
    writer, read = pair
    return [read(writer.compose(record).value) for record in records]


def protobuf(registry: Any, kind: Any) -> Protobuf:
    return Protobuf(sale_pb2.Sale, kind, registry=registry)


def json(_: Any, kind: Any) -> Json:
    return Json(kind)


LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
MOMENTS = st.datetimes(timezones=st.just(UTC))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
STOPS = st.builds(Stop, TEXTS, st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=3))
DECIMALS = st.decimals(-(10**19), 10**19, places=18, allow_nan=False)
TRIPS = st.builds(
    Trip,
    *(LONGS, MOMENTS, st.dates(), st.times(), st.timedeltas(), DECIMALS, st.uuids()),
    *(st.sampled_from(Color), STOPS, st.lists(STOPS, max_size=3)),
    *(st.dictionaries(LONGS, STOPS, max_size=3), st.none() | TEXTS, FLOATS, st.booleans()),
)
YEARS = {"min_value": datetime(1970, 1, 1), "max_value": datetime(2200, 1, 1)}  # noqa: DTZ001
DAYS = {"min_value": timedelta(days=-3000), "max_value": timedelta(days=3000)}
INTS = st.integers(-(1 << 31), (1 << 31) - 1)
SALES = st.builds(
    Sale,
    *(INTS, TEXTS, st.none() | st.datetimes(**YEARS, timezones=st.just(UTC))),
    *(st.sampled_from(Level), st.lists(STOPS, max_size=3)),
    *(st.dictionaries(INTS, STOPS, max_size=3), st.none() | st.timedeltas(**DAYS)),
    *(st.none() | INTS, st.none() | st.dictionaries(TEXTS, FLOATS | TEXTS, max_size=3)),
    *(st.none() | st.booleans(), st.binary(max_size=5)),
)


@pytest.mark.parametrize("form", [Avro, JsonSchema])
@given(st.data())
def test_values_of_every_type_are_read_back(
    registry: dict[str, str], form: Any, data: st.DataObject
) -> None:
    trips = data.draw(st.lists(TRIPS, max_size=3))
    assert read_back(made_of(form, Trip, registry), trips) == trips


@pytest.mark.parametrize("framed", [False, True])
@given(st.data())
def test_protobuf_messages_are_read_back(
    registry: dict[str, str], framed: bool, data: st.DataObject
) -> None:
    pair = made_of(protobuf, Sale, registry if framed else None)
    sales = data.draw(st.lists(SALES, max_size=3))
    assert read_back(pair, sales) == sales


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", [Avro, JsonSchema, json])
@given(st.data())
def test_records_of_every_library_are_read_back(
    registry: dict[str, str], form: Any, kind: Any, data: st.DataObject
) -> None:
    if form is Avro and kind is Model:
        with pytest.raises(RecordMismatch, match="'item-tags' cannot be a name in Avro"):
            composer(form(registry, kind), kind)
        return
    amounts = st.floats(0, 1e9)
    tags = st.lists(TEXTS, max_size=2)
    values = st.tuples(LONGS, TEXTS, amounts, MOMENTS, tags)
    names = ["number", "item", "amount", "at", "item-tags" if kind is Model else "tags"]
    records = [
        kind(**dict(zip(names, row, strict=True)))
        for row in data.draw(st.lists(values, max_size=3))
    ]
    assert read_back(made_of(form, kind, registry), records) == records


def test_a_schema_of_the_user_decides_how_values_are_written(registry: dict[str, str]) -> None:
    class Event(NamedTuple):
        at: datetime
        color: Color

    millis = {"type": "long", "logicalType": "timestamp-millis"}
    color = {"type": "enum", "name": "Color", "symbols": ["red", "blue"]}
    fields = [{"name": "at", "type": millis}, {"name": "color", "type": color}]
    schema = {"type": "record", "name": "shop.Event", "fields": fields}
    event = Event(datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC), Color.RED)
    assert read_back(made_of(Avro, Event, registry, schema=schema), [event]) == [event]


def test_one_schema_has_one_id_and_subjects_are_those_of_the_topics(
    registry: dict[str, str],
) -> None:
    subject = f"orders-{uuid.uuid4().hex}"
    first = composer(Avro(registry, subject=subject), Stop).compose(Stop("a", [1])).value
    known = Avro(registry, subject=subject, register=False)
    assert composer(known, Stop).compose(Stop("a", [1])).value == first
    unknown = Avro(registry, subject=f"other-{uuid.uuid4().hex}", register=False)
    with pytest.raises(ConfigError, match="register it there, or give register=True"):
        composer(unknown, Stop).prepare()


def test_a_schema_that_is_not_compatible_ends_the_start() -> None:
    with served(WritableRegistry) as url:
        form = Avro({"url": url}, subject="closed")
        with pytest.raises(ConfigError, match="refuses the schema for subject 'closed'"):
            composer(form, Stop).prepare()


@pytest.mark.parametrize(
    "form",
    [Avro, JsonSchema, lambda registry: Protobuf(sale_pb2.Sale, registry=registry)],
)
def test_a_registry_that_does_not_answer_is_an_outage(form: Any) -> None:
    with served(WritableRegistry) as url:
        pass
    new_form = form({"url": url, "max.retries": 0})
    with pytest.raises(KafkaUnreachable, match="gives no id for subject 'sales-value'"):
        composer(new_form, Sale if isinstance(new_form, Protobuf) else Stop, "sales").prepare()


class Loose(NamedTuple):
    value: Any


@pytest.mark.parametrize(
    ("form", "kind", "message"),
    [
        (Avro({"url": "http://x"}), Schema(("a", "b")), "these are plain tuples"),
        (Avro({"url": "http://x"}, Sale), Schema.of(Stop), "writes Sale, and the records are Stop"),
        (Avro({"url": "http://x"}), Schema.of(Loose), "Loose.value is Any"),
        (JsonSchema({"url": "http://x"}), Schema.of(Sale), "Sale.more"),
        (Protobuf(sale_pb2.Sale), Schema.of(Trip), "has no field 'day' of Trip"),
        (Protobuf(sale_pb2.Sale, framed=True), Schema.of(Sale), "with the id that a registry"),
        (MessagePack(), Schema.of(Stop), "MessagePack reads messages; to write them"),
    ],
)
def test_what_cannot_be_written_is_refused_at_declaration(
    form: Format, kind: Schema, message: str
) -> None:
    bolt = KafkaBolt({"bootstrap.servers": "none:9"}, "sales", value=form)
    with pytest.raises((RecordMismatch, ConfigError), match=message):
        bolt.check_input(kind)


class Note(NamedTuple):
    text: str | None
    stops: list[Stop]
    at: datetime
    color: Color


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


def avro_of_note(**changed: Any) -> dict[str, Any]:
    """An Avro schema of notes, with other types of fields; None: without the field."""
    stop = [{"name": "place", "type": "string"}, {"name": "days", "type": LIST_OF_INTS}]
    types = {
        "text": ["null", "string"],
        "stops": {"type": "array", "items": {"type": "record", "name": "S", "fields": stop}},
        "at": MILLIS,
        "color": {"type": "enum", "name": "C", "symbols": ["red", "blue"]},
        **changed,
    }
    fields = [{"name": name, "type": kind} for name, kind in types.items() if kind is not None]
    return {"type": "record", "name": "Note", "fields": fields}


LIST_OF_INTS = {"type": "array", "items": "int"}
NO_PLACE = {"type": "record", "name": "S", "fields": [{"name": "days", "type": LIST_OF_INTS}]}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (avro_of_note(), ""),
        (avro_of_note(text="string"), "Note.text may be None, and the schema has no null"),
        (avro_of_note(text=["null", "long"]), "Note.text is written as string, and the .* long"),
        (avro_of_note(at="long"), "Note.at is written as timestamp, and the schema has long"),
        (avro_of_note(at=None), "the schema has no field 'at' of Note"),
        (avro_of_note(other="int"), "Note has no field 'other', which the schema has"),
        (avro_of_note(stops={"type": "array", "items": NO_PLACE}), "no field 'place' of Note.stop"),
        (avro_of_note(color={"type": "enum", "name": "C", "symbols": ["red"]}), "may be 'blue'"),
        ("{nonsense", "Avro: schema: it is not one of Avro"),
        ({"type": "nothing"}, "Avro: schema: it is not one of Avro"),
        ('"string"', "Note is written as record, and the schema has string"),
    ],
)
def test_an_avro_schema_of_the_user_is_compared_at_declaration(schema: Any, message: str) -> None:
    form = Avro({"url": "http://x"}, schema=schema, subject="notes")
    check_refusal(form, message)


STRING, WHOLE = {"type": "string"}, {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "object", "required": ["at"], "properties": {"at": STRING}}, ""),
        ({"oneOf": [{"$ref": "#/definitions/Note"}], "definitions": {"Note": {}}}, ""),
        ({"properties": {"text": {"oneOf": [{"type": "null"}, STRING]}}}, ""),
        ({"properties": {"text": STRING}}, "Note.text may be None, and the schema has no null"),
        ({"properties": {"at": WHOLE}}, "Note.at is written as string, and the schema has integer"),
        ({"required": ["zz"]}, "Note has no field 'zz', which the schema requires"),
        ({"additionalProperties": False}, "the schema has no field 'text' of Note"),
        ({"properties": {"color": {"enum": ["red"]}}}, "Note.color may be 'blue'"),
        (
            {"properties": {"stops": {"items": {"properties": {"place": WHOLE}}}}},
            r"Note.stops\[\].place is written as string",
        ),
        ("{nonsense", "JsonSchema: schema: it is not a JSON Schema"),
        ("5", "JsonSchema: schema: it is not a JSON Schema"),
        ({"required": 5}, "JsonSchema: schema: it is not a JSON Schema"),
    ],
)
def test_a_json_schema_of_the_user_is_compared_at_declaration(schema: Any, message: str) -> None:
    form = JsonSchema({"url": "http://x"}, schema=schema, subject="notes")
    check_refusal(form, message)


def check_refusal(form: Any, message: str) -> None:
    """A sink refuses to write notes in a format with a reason; empty: it writes them."""
    bolt = KafkaBolt({"bootstrap.servers": "none:9"}, "sales", value=form)
    if not message:
        bolt.check_input(Schema.of(Note))
        return
    with pytest.raises((RecordMismatch, ConfigError), match=message) as caught:
        bolt.check_input(Schema.of(Note))
    if isinstance(caught.value, RecordMismatch):
        assert f"{type(form).__name__}: schema: the one for subject 'notes'" in str(caught.value)
        assert "leave schema= out" in str(caught.value)


@pytest.mark.parametrize("record_type", [Trip, Note, Stop, *KINDS])
def test_the_schema_of_a_type_fits_it(record_type: Any) -> None:
    kind = kind_of_records(record_type)
    if record_type is not Model:  # whose names Avro cannot have
        _, parsed, named = parsed_avro(avro_schema(kind, {}))
        assert not avro_mismatch(kind, parsed, named)
    assert not json_mismatch(kind, json_schema(kind))


def test_a_value_that_the_schema_cannot_have_names_format_subject_and_field(
    registry: dict[str, str],
) -> None:
    fields = [{"name": "place", "type": "string"}, {"name": "days", "type": LIST_OF_INTS}]
    schema = {"type": "record", "name": "Stop", "fields": fields}
    subject = f"stops-{uuid.uuid4().hex}"
    writer = composer(Avro(registry, schema=schema, subject=subject), Stop)
    with pytest.raises(
        Unserialisable, match=f"Avro: a Stop does not fit .*{subject}.*Stop.days is"
    ):
        writer.compose(Stop("a", [1 << 31]))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("by_number", 5, "it takes a dict, and the value is 5"),
        ("stops", [5], "it takes a record or a dict for shop.Sale.Stop, and the value is 5"),
        ("stops", "ab", "it takes a list, and the value is 'ab'"),
        ("more", 5, "it takes JSON for google.protobuf.Struct, and the value is 5"),
        ("at", 5, "it takes a datetime, and the value is 5"),
        ("wait", "1 s", "it takes a timedelta, and the value is '1 s'"),
    ],
)
def test_a_value_that_protobuf_cannot_have_names_its_field(
    name: str, value: Any, message: str
) -> None:
    sale = Sale(1, "a", None, Level.RED, [], {}, None, None, None, None, b"")
    writer = composer(Protobuf(sale_pb2.Sale), Sale)
    with pytest.raises(ValueError, match=f"shop.Sale.{name}: {message}"):
        writer.compose(sale._replace(**{name: value}))


def test_a_value_that_avro_cannot_have_names_its_field(registry: dict[str, str]) -> None:
    writer = composer(Avro(registry), Stop)
    for stop, message in (
        (Stop("a", [1 << 63]), r"Stop.days\[\] is 9223372036854775808, and an int of Avro has 64"),
        (Stop(None, []), "Stop.place is None"),  # type: ignore[arg-type]
    ):
        with pytest.raises(Unserialisable, match=message):
            writer.compose(stop)


STOP = [Stop("a", [1]), Stop("b", []), Stop("ä", [2, 3])]


@pytest.mark.servers
@pytest.mark.parametrize("in_batches", [False, True], ids=["records", "batches"])
@pytest.mark.parametrize("transactional", [False, True])
def test_sinks_of_both_kinds_of_stream_write_a_topic_that_a_spout_reads(
    kafka: Kafka, registry: dict[str, str], in_batches: bool, transactional: bool
) -> None:
    settings, topic = {"bootstrap.servers": kafka.bootstrap}, new_topic(kafka.bootstrap)
    form = Avro(registry, Stop)
    topology = Topology("writes")
    if in_batches:
        rows = batches(topology, "in", FixedBatchSpout(STOP, 2, type=Stop), store=InMemory())
        stops = rows.records("rows")
    else:
        stops = topology.spout("in", Records(STOP, type=Stop))
    if transactional:
        sink: Any = TransactionalKafkaBolt(settings, topic, transactional_id=topic, value=form)
    else:
        sink = KafkaBolt(settings, topic, key="place", value=form)
    stops.shuffle().bolt("out", sink)
    run_inline(topology.graph())
    reading = Topology("reads")
    source = KafkaSpout({**settings, "group.id": topic}, topics=[topic], value=form)
    shown = reading.spout("back", source).show(3, within_s=60.0)
    assert sorted(shown.records) == sorted(STOP)
