"""Protobuf messages become records, with and without the framing of Confluent's registry."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, NamedTuple

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from sunshower import Topology
from sunshower.dev.kafka import Kafka
from sunshower.errors import ConfigError, UnreadableRecord
from sunshower.kafka import KafkaBolt, KafkaSpout, Protobuf
from tests.kafka import sale_pb2
from tests.kafka.stage import Seen, running
from tests.kafka.topics import fill, new_topic, read_all

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Color(Enum):
    NONE = 0
    RED = 1


class Stop(NamedTuple):
    place: str
    days: list[int]


class Sale(NamedTuple):
    id: int
    item: str
    at: datetime | None
    color: Color
    stops: list[Stop]
    by_number: dict[int, Stop]
    note: str | None
    wait: timedelta | None
    cents: int | None
    more: dict[str, Any] | None
    cash: bool | None
    raw: bytes


def sale(id: int = 7) -> Any:
    message = sale_pb2.Sale(id=id, item="tea", price=1.5, color=1, raw=b"\0\xff", cash=True)
    message.at.FromDatetime(AT)
    message.wait.FromTimedelta(timedelta(seconds=90))
    message.cents.value = 0
    message.more["k"] = [1, None]
    message.stops.add(place="north", days=[1, 2])
    message.by_number[3].place = "south"
    message.next.id = 8
    return message


READ = Sale(
    *(7, "tea", AT, Color.RED, [Stop("north", [1, 2])], {3: Stop("south", [])}),
    *(None, timedelta(seconds=90), 0, {"k": [1.0, None]}, True, b"\0\xff"),
)


def decode(form: Protobuf, data: bytes) -> Any:
    return form.decoder("sales", "value")(data)


def test_a_message_becomes_a_record_with_the_types_of_its_fields() -> None:
    data = sale().SerializeToString()
    assert decode(Protobuf(sale_pb2.Sale, Sale), data) == READ
    fields = decode(Protobuf(sale_pb2.Sale), data)
    assert fields["price"] == 1.5
    assert fields["color"] == 1
    assert fields["stops"] == [{"place": "north", "days": [1, 2]}]
    assert fields["next"]["id"] == 8
    assert fields["next"]["next"] is None


def test_a_field_that_is_not_set_is_none_or_the_default() -> None:
    fields = decode(Protobuf(sale_pb2.Sale), b"")
    unset = ("at", "note", "wait", "cents", "more", "next", "card", "cash")
    assert {name for name, value in fields.items() if value is None} == set(unset)
    assert (fields["id"], fields["item"], fields["stops"], fields["by_number"]) == (0, "", [], {})


def framed(message: Any) -> bytes:
    """The bytes that Confluent's own serializer writes."""
    registry = SchemaRegistryClient.new_client({"url": "mock://"})
    write = ProtobufSerializer(type(message), registry, {"use.deprecated.format": False})
    data = write(message, SerializationContext("sales", MessageField.VALUE))
    assert isinstance(data, bytes)
    return data


def test_framed_messages_are_read_without_a_registry() -> None:
    assert decode(Protobuf(sale_pb2.Sale, Sale, framed=True), framed(sale())) == READ
    inner = framed(sale_pb2.Inner(name="x"))
    assert decode(Protobuf(sale_pb2.Inner, framed=True), inner) == {"name": "x"}


def test_the_first_type_of_a_file_may_have_a_shorter_frame() -> None:
    from google.protobuf.timestamp_pb2 import Timestamp

    data = b"\0\0\0\0\7\0" + Timestamp(seconds=90).SerializeToString()
    read = decode(Protobuf(Timestamp, framed=True), data)
    assert read == datetime(1970, 1, 1, 0, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"plain", b"\0\0\0\0\7", b"\0\0\0\0\7\2", b"\0\0\0\0\7" + b"\xff" * 9),
        b"\0\0\0\0\7\2\4\12",
        b"\0\0\0\0\7\2\2\xff",
    ],
)
def test_bytes_that_are_no_framed_message_cannot_be_read(data: bytes) -> None:
    with pytest.raises(Exception, match=r"zero|indexes|message type|parsing"):
        decode(Protobuf(sale_pb2.Sale, framed=True), data)


def test_a_message_of_another_type_cannot_be_read() -> None:
    with pytest.raises(ValueError, match=r"message type \[0, 0\] of its file, and \[1\]"):
        decode(Protobuf(sale_pb2.Sale, framed=True), framed(sale_pb2.Inner(name="x")))


def test_only_messages_of_the_given_schema_ids_are_read() -> None:
    data = framed(sale_pb2.Sale(id=7))
    id = int.from_bytes(data[1:5])
    assert decode(Protobuf(sale_pb2.Sale, framed=[id, id + 1]), data)["id"] == 7
    with pytest.raises(ValueError, match=rf"id {id}; expected: \[{id + 1}\]"):
        decode(Protobuf(sale_pb2.Sale, framed={id + 1}), data)
    for wrong in ("7", 7, {"7"}, {-1}, ()):
        with pytest.raises(ConfigError, match="framed"):
            Protobuf(sale_pb2.Sale, framed=wrong)  # type: ignore[arg-type]


def test_only_a_generated_class_is_a_format() -> None:
    for wrong in (Sale, sale_pb2.Sale(), "shop.Sale", sale_pb2):
        with pytest.raises(ConfigError, match="protoc"):
            Protobuf(wrong)  # type: ignore[arg-type]


def test_messages_are_read_from_a_broker_and_written_again(kafka: Kafka) -> None:
    topic, out = new_topic(kafka.bootstrap), new_topic(kafka.bootstrap)
    fill(kafka.bootstrap, topic, [sale(number).SerializeToString() for number in range(10)])
    settings = {"bootstrap.servers": kafka.bootstrap}
    spout = KafkaSpout(
        {**settings, "group.id": topic}, topics=[topic], value=Protobuf(sale_pb2.Sale, Sale)
    )
    topology = Topology("kafka", workers=1)
    sales = topology.spout("in", spout)
    sales.shuffle().bolt("seen", Seen())
    write = lambda sale: sale_pb2.Sale(id=sale.id, item=sale.item).SerializeToString()  # noqa: E731
    sales.shuffle().bolt("out", KafkaBolt(settings, out, value=write))
    with running(topology) as run:
        run.until(lambda: len(run.records()) == 10 == len(read_all(kafka.bootstrap, out)))
        assert sorted(record.id for record in run.records()) == [*range(10)]
        assert run.records()[0]._replace(id=7) == READ
    messages = [
        sale_pb2.Sale.FromString(message.value()) for message in read_all(kafka.bootstrap, out)
    ]
    assert {record.id for record in messages} == {*range(10)}


@pytest.mark.parametrize(("part", "nanos"), [("at", 1), ("at", 1_999), ("wait", 999)])
def test_parts_of_microseconds_make_a_message_unreadable(part: str, nanos: int) -> None:
    message = sale()
    getattr(message, part).nanos = nanos
    for kind in (Sale, None):
        with pytest.raises(UnreadableRecord, match=f"{nanos} nanoseconds"):
            Protobuf(sale_pb2.Sale, kind).decoder("sales", "value")(message.SerializeToString())
    getattr(message, part).nanos = 7_000
    read = Protobuf(sale_pb2.Sale, Sale).decoder("sales", "value")(message.SerializeToString())
    assert AT.microsecond + (read.at - AT).microseconds in (0, 7)


class Typed(NamedTuple):
    item: int


@pytest.mark.parametrize("data", [b"\xff", b"\x12\x01\xff", b"\x08"])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        Protobuf(sale_pb2.Sale, Sale).decoder("sales", "value")(data)
    with pytest.raises(UnreadableRecord, match=r"Typed\.item: 'tea' is no int"):
        Protobuf(sale_pb2.Sale, Typed).decoder("sales", "value")(sale().SerializeToString())
