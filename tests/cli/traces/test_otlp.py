"""Tests of the export of traced trees to a real HTTP receiver, which decodes them."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.semconv._incubating.attributes import messaging_attributes

from sunshower.cli.traces import export_trees, spans
from sunshower.errors import ClusterError, ConfigError
from tests.cli.traces.samples import BEGUN_S, FAILED, FOUND, REPLAY


class Receiver:
    """A server that keeps the spans that it receives, and answers with `status`."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.paths: list[str] = []
        self.status = 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.paths.append(self.path)
                receiver.requests.append(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(receiver.status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    otlp_receiver = Receiver()
    thread = threading.Thread(target=otlp_receiver.server.serve_forever, args=(0.01,))
    thread.start()
    yield otlp_receiver
    otlp_receiver.server.shutdown()
    otlp_receiver.server.server_close()
    thread.join()


def attributes(span: Any) -> dict[str, Any]:
    return {
        attribute.key: getattr(attribute.value, str(attribute.value.WhichOneof("value")))
        for attribute in span.attributes
    }


def test_a_tree_is_a_trace_with_a_span_for_the_message_and_one_for_each_edge(
    receiver: Receiver,
) -> None:
    assert export_trees("words", FOUND.trees, FOUND.trees, receiver.url) == 8
    assert receiver.paths == ["/v1/traces"]
    (resource,) = receiver.requests[0].resource_spans
    assert attributes(resource.resource)["service.name"] == "words"
    replay, *_ = receiver.spans
    message, split, failed, open_one, lost = receiver.spans[3:]
    assert [span.name for span in (message, split)] == ["emit lines", "process split"]
    assert {span.trace_id for span in receiver.spans[3:]} == {message.trace_id}
    assert split.parent_span_id == message.span_id
    assert failed.parent_span_id == open_one.parent_span_id == lost.parent_span_id == split.span_id
    assert message.start_time_unix_nano == pytest.approx(BEGUN_S * 1e9, abs=1000)
    assert message.end_time_unix_nano - message.start_time_unix_nano == pytest.approx(25e7, 1e-3)
    assert [event.name for event in split.events] == ["delivered"]
    assert not lost.events
    (link,) = replay.links
    assert (link.trace_id, link.span_id) == (message.trace_id, message.span_id)
    assert not message.links


def test_failures_are_errors_with_their_type(receiver: Receiver) -> None:
    export_trees("words", [FAILED], FOUND.trees, receiver.url)
    message, split, failed, *_ = receiver.spans
    assert message.status.code == failed.status.code == 2
    assert "no\nsuch word" in message.status.message
    assert split.status.code == 0
    assert attributes(failed)["error.type"] == "exception"


def test_attributes_have_the_names_of_the_conventions(receiver: Receiver) -> None:
    export_trees("words", FOUND.trees, FOUND.trees, receiver.url)
    conventions = {
        value for name, value in vars(messaging_attributes).items() if name.startswith("MESSAGING_")
    }
    for span in receiver.spans:
        names = attributes(span)
        ours = {name for name in names if name.startswith("sunshower.")}
        assert set(names) - ours - {"error.type"} <= conventions
        assert names["messaging.system"] == "sunshower"
        assert names["messaging.operation.type"] in ("send", "process")
    assert attributes(receiver.spans[1])["sunshower.record"] == "Word(word='cat')"


def test_a_tree_that_is_exported_twice_has_the_same_ids(receiver: Receiver) -> None:
    for _ in range(2):
        export_trees("words", [REPLAY], [], receiver.url)
    ids = [(span.trace_id, span.span_id) for span in receiver.spans]
    assert ids[:3] == ids[3:]
    assert len(set(ids)) == 3


def test_many_spans_are_sent_in_several_requests(receiver: Receiver) -> None:
    assert export_trees("words", [FAILED] * 300, [], receiver.url + "/other/path") == 1500
    assert receiver.paths == ["/other/path"] * 3
    assert len(receiver.spans) == 1500


def test_the_error_names_a_receiver_that_refuses_without_its_password(receiver: Receiver) -> None:
    receiver.status = 400
    host = receiver.url.removeprefix("http://")
    with pytest.raises(ClusterError, match="does not take spans by OTLP over HTTP") as caught:
        export_trees("words", [FAILED], [], f"http://me:hunter2@{host}")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["localhost:4318", "ftp://host", "", "http://"])
def test_invalid_addresses_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="it must be like http://localhost:4318"):
        export_trees("words", [FAILED], [], url)


def test_all_spans_end_after_they_begin() -> None:
    for span in spans("words", FOUND.trees, ()):
        assert span.start_time <= span.end_time
