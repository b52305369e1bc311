"""Avro messages in the framing of Confluent's registry, read with a registry over HTTP."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any, NamedTuple

import fastavro
import pytest
from confluent_kafka.serialization import SerializationError

from sunshower.kafka.formats import Avro

SCHEMA = {
    "type": "record",
    "name": "Sale",
    "fields": [{"name": "shop", "type": "string"}, {"name": "cents", "type": "long"}],
}
SCHEMA_ID = 7  # the id under which the registry keeps it


class Sale(NamedTuple):
    shop: str
    cents: int


class Registry(BaseHTTPRequestHandler):
    """Answers GET /schemas/ids/7, as the registry's REST interface does."""

    def do_GET(self) -> None:
        found = self.path.partition("?")[0] == f"/schemas/ids/{SCHEMA_ID}"
        body = {"schema": json.dumps(SCHEMA)} if found else {"error_code": 40403, "message": "gone"}
        answer = json.dumps(body).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


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


@pytest.mark.parametrize("message", [b"\x00\x00\x00\x00\x07\xff", b"plain text", b""])
def test_bytes_that_are_no_framed_avro_are_an_error(registry: str, message: bytes) -> None:
    read = Avro({"url": registry}, Sale).decoder("sales", "value")
    with pytest.raises((SerializationError, EOFError, TypeError, ValueError, IndexError)):
        read(message)
