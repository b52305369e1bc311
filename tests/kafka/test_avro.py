"""Avro messages in the framing of Confluent's registry, read with a registry over HTTP."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from io import BytesIO
from typing import Any, NamedTuple

import fastavro
import pytest
from confluent_kafka import Message
from confluent_kafka.serialization import SerializationError

from sunshower.errors import ConfigError, KafkaUnreachable
from sunshower.kafka.consuming.decoding import MessageBatch, Translator, Undecodable
from sunshower.kafka.formats import Avro, Bytes
from tests.kafka.schema_registry import RegistryHandler, served

SCHEMA = {
    "type": "record",
    "name": "Sale",
    "fields": [{"name": "shop", "type": "string"}, {"name": "cents", "type": "long"}],
}
SCHEMA_ID = 7  # the id under which the registry keeps it


class Sale(NamedTuple):
    shop: str
    cents: int


class Reply(NamedTuple):
    status: int
    body: bytes = b""
    content_type: str = "text/html"
    location: str = ""


class Registry(RegistryHandler):
    """A registry of one schema, or one that replies as `reply` says."""

    reply: Reply | None = None

    def schema_of(self, id: str) -> Any | None:
        return SCHEMA if int(id) == SCHEMA_ID else None

    def respond(self) -> None:
        if self.reply is None:
            super().respond()
        else:
            reply = self.reply
            self.answer(reply.status, reply.content_type, reply.body, reply.location)


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with served(Registry) as url:
        yield url


def framed(sale: Sale, schema: int = SCHEMA_ID) -> bytes:
    """A zero byte, the id of the schema in four bytes, and the record in Avro."""
    body = BytesIO()
    fastavro.schemaless_writer(body, SCHEMA, sale._asdict())
    return struct.pack(">bI", 0, schema) + body.getvalue()


def test_a_message_names_its_schema_and_becomes_a_record(registry: str) -> None:
    read = Avro({"url": registry}, Sale).decoder("sales", "value")
    assert read(framed(Sale("north", 350))) == Sale("north", 350)
    plain = Avro({"url": registry}).decoder("sales", "key")
    assert plain(framed(Sale("south", -1))) == {"shop": "south", "cents": -1}


def test_a_schema_that_the_registry_does_not_have_is_an_error(registry: str) -> None:
    read = Avro({"url": registry}, Sale).decoder("sales", "value")
    with pytest.raises(Exception, match="gone"):
        read(framed(Sale("north", 1), schema=8))


JSON = "application/json"
REFUSALS = {
    "no login": Reply(401, b'{"error_code": 401, "message": "Unauthorized"}', JSON),
    "no right": Reply(403, b'{"error_code": 40301, "message": "Forbidden"}', JSON),
    "404 of a proxy": Reply(404, b"404 page not found", "text/plain"),
    "404 of a proxy, in JSON": Reply(404, b'{"detail": "Not Found"}', JSON),
    "404 of another version": Reply(404, b'{"error_code": 40402, "message": "version"}', JSON),
    "a page to log in": Reply(302, b"<html>", location="/login"),
    "a redirection to itself": Reply(307, location=f"/schemas/ids/{SCHEMA_ID}"),
    "timeout": Reply(408),
    "too many requests": Reply(429, b"slow down", "text/plain"),
    "500 in HTML": Reply(500, b"<html>oops</html>"),
    "200 in HTML": Reply(200, b"<html>log in</html>"),
    "200 of another service": Reply(200, b'{"status": "up"}', JSON),
    "200 with a list": Reply(200, b"[]", JSON),
    "200 without a body": Reply(200),
    "no content": Reply(204),
    "teapot": Reply(418, b"null", JSON),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_any_other_answer_of_the_registry_is_an_outage(
    registry: str, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"url": registry, "max.retries": 0}
    translator = Translator(Avro(settings, Sale), Bytes())
    sale = Sale("north", 350)
    messages = batch(framed(sale), b"no Avro", framed(sale, schema=8), framed(sale))
    with monkeypatch.context() as replied:
        replied.setattr(Registry, "reply", REFUSALS[case])
        with pytest.raises(KafkaUnreachable, match="does not give a schema"):
            translator.records(messages)
    (first, no_avro, no_schema, last), _ = translator.records(messages)
    assert first == last == sale
    assert isinstance(no_avro, Undecodable)
    assert isinstance(no_schema, Undecodable)
    assert "gone" in no_schema.reason


def batch(*values: bytes) -> Any:
    return MessageBatch.of(
        [
            Message(topic="sales", partition=0, offset=number, value=value)
            for number, value in enumerate(values)
        ]
    )


def test_a_registry_without_tls_is_an_outage_and_invalid_settings_are_an_error_of_them(
    registry: str,
) -> None:
    settings = {"url": registry.replace("http://", "https://"), "max.retries": 0}
    with pytest.raises(KafkaUnreachable, match="SSL"):
        Translator(Avro(settings, Sale), Bytes()).records(batch(framed(Sale("north", 1))))
    for wrong in (
        {"urll": registry},
        {"url": "nowhere"},
        {"url": registry, "cache.capacity": "many"},
    ):
        with pytest.raises(ConfigError, match="invalid settings of the registry"):
            Translator(Avro(wrong, Sale), Bytes()).records(batch(framed(Sale("north", 1))))


@pytest.mark.parametrize("message", [b"\x00\x00\x00\x00\x07\xff", b"plain text", b""])
def test_bytes_that_are_no_framed_avro_are_an_error(registry: str, message: bytes) -> None:
    read = Avro({"url": registry}, Sale).decoder("sales", "value")
    with pytest.raises((SerializationError, EOFError, TypeError, ValueError, IndexError)):
        read(message)
