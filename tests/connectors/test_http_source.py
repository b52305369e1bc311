"""HttpSource with real HTTP clients: a request is answered when its tuple trees have ended."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import date
from math import inf
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
import pytest

from sunshower import Bolt, Collector, Secret, Topology, Tuple, Unavailable
from sunshower.clock import SystemClock
from sunshower.connectors import HttpSource
from sunshower.connectors.http_source import EndpointLimits, HttpEndpoint
from sunshower.dev.servers import Ports, answers
from sunshower.errors import ConfigError, RecordMismatch
from sunshower.testing import run as run_in_test
from sunshower.topologies.components import Context
from tests.connectors import http_program
from tests.kafka.stage import Run, Seen, running

WITHIN_S = 120.0
ROOT = Path(__file__).resolve().parents[2]


class Order(NamedTuple):
    id: int
    item: str
    day: date = date(2026, 1, 2)


class Held(Bolt[Order, None]):
    """Keeps inputs open until the test settles them; raises `error` if there is one."""

    inputs: list[tuple[Tuple[Order], Collector[Any]]]
    error: Exception | None = None

    def prepare(self, context: Any) -> None:
        self.inputs = []

    def execute(self, tuple: Tuple[Order], out: Collector[Any]) -> None:
        if Held.error is not None:
            raise Held.error
        self.inputs.append((tuple, out))

    def tick(self) -> None: ...


class Client:
    """Sends requests on threads, and steps the topology until they are answered."""

    def __init__(self, port: int, run: Run) -> None:
        self.url, self.run = f"http://127.0.0.1:{port}/orders", run
        self._client = httpx2.Client(timeout=WITHIN_S, trust_env=False)
        self._threads = ThreadPoolExecutor(16)

    def begin(self, body: Any, **more: Any) -> Future[httpx2.Response]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json", **more.pop("headers", {})}
        url = more.pop("url", self.url)
        method = more.pop("method", "POST")
        send = self._client.request
        return self._threads.submit(send, method, url, content=data, headers=headers)

    def post(self, body: Any, **more: Any) -> httpx2.Response:
        return self.answer(self.begin(body, **more))

    def answer(self, pending: Future[httpx2.Response]) -> httpx2.Response:
        self.run.until(pending.done, WITHIN_S)
        return pending.result()

    def process(self, pending: Future[httpx2.Response]) -> Order:
        """Ack the only record that is held; its request is answered with 200."""
        ((tuple, out),) = self.until_held(1)
        self.held().inputs.clear()
        out.ack(tuple)
        assert self.answer(pending).status_code == 200
        return tuple.record

    def held(self) -> Held:
        (bolt,) = [task.bolt for task in self.run._bolts("held")]
        return bolt  # type: ignore[no-any-return]

    def until_held(self, count: int) -> list[tuple[Tuple[Order], Collector[Any]]]:
        self.run.until(lambda: len(self.held().inputs) == count, WITHIN_S)
        return self.held().inputs

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait without stepping the topology."""
        clock = SystemClock()
        end_s = clock.now() + WITHIN_S
        while not condition():
            assert clock.now() < end_s
            clock.sleep(0.01)

    def close(self) -> None:
        self._threads.shutdown()
        self._client.close()


@pytest.fixture
def port() -> Iterator[int]:
    ports = Ports()
    yield ports.claim()
    ports.release()


@pytest.fixture
def client(request: pytest.FixtureRequest, port: int) -> Iterator[Client]:
    options = getattr(request, "param", {})
    topology = Topology("shop", workers=1)
    source = HttpSource(port, type=Order, path="/orders", **options)
    topology.spout("orders", source).shuffle().bolt("held", Held(), tick_s=0.01)
    Held.error = None
    with running(topology) as run:
        run.until(lambda: answers(port))
        new_client = Client(port, run)
        yield new_client
    new_client.close()


def test_a_request_is_answered_when_its_tree_is_complete(client: Client) -> None:
    pending = client.begin({"id": 1, "item": "tea", "day": "2026-02-03"})
    ((tuple, out),) = client.until_held(1)
    assert tuple.record == Order(1, "tea", date(2026, 2, 3))
    client.run.step_for(0.2)
    assert not pending.done()
    out.ack(tuple)
    answer = client.answer(pending)
    assert (answer.status_code, answer.json()) == (200, {"status": "processed"})


def test_an_array_is_answered_when_all_its_records_are_processed(client: Client) -> None:
    pending = client.begin([{"id": number, "item": "tea"} for number in range(3)])
    inputs = client.until_held(3)
    for tuple, out in inputs[:2]:
        out.ack(tuple)
    client.run.step_for(0.2)
    assert not pending.done()
    inputs[2][1].ack(inputs[2][0])
    assert client.answer(pending).status_code == 200
    assert client.post([]).status_code == 200


def test_a_record_that_fails_is_not_replayed_and_its_client_gets_500(client: Client) -> None:
    pending = client.begin([{"id": 1, "item": "tea"}, {"id": 2, "item": "tea"}])
    first, second = client.until_held(2)
    first[1].fail(first[0], "no such item")
    answer = client.answer(pending)
    assert answer.status_code == 500
    assert answer.json() == {"error": "not processed: failed by bolt in held"}
    second[1].ack(second[0])  # the request is answered already
    again = client.begin({"id": 3, "item": "tea"})
    *_, (tuple, out) = client.until_held(3)
    assert tuple.record.id == 3
    out.ack(tuple)
    assert client.answer(again).status_code == 200


def test_in_an_outage_the_client_gets_503_and_retry_after(client: Client) -> None:
    Held.error = Unavailable("the store is unavailable")
    answer = client.post({"id": 1, "item": "tea"})
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    Held.error = None
    client.process(client.begin({"id": 1, "item": "tea"}))


@pytest.mark.parametrize("client", [{"pending_max": 2}], indirect=True)
def test_records_beyond_the_pending_limit_get_503(client: Client) -> None:
    pending = client.begin([{"id": 1, "item": "tea"}, {"id": 2, "item": "tea"}])
    inputs = client.until_held(2)
    answer = client.post({"id": 3, "item": "tea"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "2 records are not processed yet" in answer.text
    for tuple, out in inputs:
        out.ack(tuple)
    assert client.answer(pending).status_code == 200
    assert client.post([{"id": number, "item": ""} for number in range(3)]).status_code == 413


@pytest.mark.parametrize("client", [{"body_bytes_max": 100}], indirect=True)
def test_a_body_that_is_no_record_is_refused(client: Client) -> None:
    cases: list[tuple[Any, int, str]] = [
        (b"{", 400, "truncated"),
        (b"\xff", 400, "malformed"),
        ({"id": 1}, 400, "Order without item"),
        ({"id": 1, "item": "tea", "day": "tomorrow"}, 400, "Order.day"),
        ([{"id": 1, "item": "tea"}, 7], 400, "Order[1]: 7 is no object"),
        ([[1, "tea"], [2, "milk"]], 400, "Order[0]: [1, 'tea'] is no object"),
        ([{"id": 1, "item": "tea"}, None], 400, "Order[1]: None is no object"),
        ({"id": "1", "item": "tea"}, 400, "Order.id: '1' is no int"),
        (b'{"id": NaN, "item": "tea"}', 400, "malformed"),
        (b'{"id": 1e400, "item": "tea"}', 400, "Order.id"),
        ({"id": 1, "item": "x" * 100}, 413, "above 100 bytes"),
    ]
    for body, status, expected in cases:
        answer = client.post(body)
        assert answer.status_code == status, body
        assert expected in answer.json()["error"]


def test_other_methods_paths_and_content_types_are_refused(client: Client) -> None:
    order = {"id": 1, "item": "tea"}
    assert client.post(order, method="GET").status_code == 405
    assert client.post(order, url=f"{client.url}/other").status_code == 404
    assert client.post(order, headers={"content-type": "text/plain"}).status_code == 415


def packed(data: bytes, wbits: int) -> bytes:
    compressor = zlib.compressobj(wbits=wbits)
    return compressor.compress(data) + compressor.flush()


TEA = b'{"id": 1, "item": "tea"}'


def test_a_compressed_body_is_read(client: Client) -> None:
    for encoding, body in (
        ("gzip", gzip.compress(TEA)),
        ("X-GZIP", gzip.compress(TEA)),
        ("gzip", gzip.compress(TEA[:9]) + gzip.compress(b"") + gzip.compress(TEA[9:])),
        ("deflate", packed(TEA, 15)),
        ("deflate", packed(TEA, -15)),
        ("identity", TEA),
        ("gzip", gzip.compress(TEA + b" " * 900_000)),
    ):
        pending = client.begin(body, headers={"content-encoding": encoding})
        assert client.process(pending) == Order(1, "tea")


@pytest.mark.parametrize("client", [{"body_bytes_max": 50_000}], indirect=True)
def test_a_body_that_cannot_be_decompressed_is_refused(client: Client) -> None:
    for encoding, body, status, expected in (
        ("gzip", gzip.compress(b" " * 10_000_000), 413, "above 50,000 bytes"),
        ("deflate", packed(b" " * 10_000_000, 15), 413, "above 50,000 bytes"),
        ("deflate", packed(b" " * 10_000_000, -15), 413, "above 50,000 bytes"),
        ("gzip", b"".join([gzip.compress(b" " * 30_000)] * 2), 413, "above 50,000 bytes"),
        ("gzip", gzip.compress(TEA)[:-1], 400, "the body is not gzip: its end is missing"),
        ("gzip", gzip.compress(TEA) + b"more", 400, "the body is not gzip"),
        ("gzip", gzip.compress(TEA)[:-5] + b"\0\0\0\0\0", 400, "incorrect data check"),
        ("gzip", TEA, 400, "incorrect header check"),
        ("gzip", b"", 400, "its end is missing"),
        ("deflate", packed(TEA, 15) + b"more", 400, "the body is not deflate"),
        ("deflate", TEA, 400, "the body is not deflate"),
        ("gzip", gzip.compress(b"[") * 2_000, 400, "Order"),
        ("br", TEA, 415, "the content-encoding is br: send gzip, deflate or identity"),
        ("gzip, gzip", gzip.compress(gzip.compress(TEA)), 415, "send gzip, deflate or identity"),
    ):
        answer = client.post(body, headers={"content-encoding": encoding})
        assert answer.status_code == status, (encoding, body[:99])
        assert expected in answer.json()["error"]
        wanted = "gzip, deflate" if status == 415 else None
        assert answer.headers.get("accept-encoding") == wanted


def test_a_page_in_a_browser_cannot_send_records_without_a_token(client: Client) -> None:
    for header in ("Origin", "Sec-Fetch-Site"):
        answer = client.post({"id": 1, "item": "tea"}, headers={header: "same-origin"})
        assert (answer.status_code, answer.json()["error"][:9]) == (403, "a page in")


@pytest.mark.parametrize("client", [{"token": Secret("hush-hush")}], indirect=True)
def test_a_token_is_required(client: Client) -> None:
    assert client.post({}).status_code == 401
    assert client.post({}, headers={"authorization": "Bearer wrong"}).status_code == 401
    right = {"authorization": "Bearer hush-hush", "origin": "http://shop"}
    assert client.post({}, headers=right).status_code == 400


def test_a_deactivated_topology_takes_no_records(client: Client) -> None:
    (task,) = client.run.core._wired.spouts.values()
    spout = task.spout
    spout.deactivate()
    assert client.post({"id": 1, "item": "tea"}).status_code == 503
    spout.activate()
    client.process(client.begin({"id": 1, "item": "tea"}))


def test_requests_that_wait_are_answered_when_the_topology_is_deactivated(client: Client) -> None:
    taken = client.begin({"id": 1, "item": "tea"})
    ((tuple, out),) = client.until_held(1)
    (task,) = client.run.core._wired.spouts.values()
    waits = client.begin([{"id": 2, "item": "tea"}, {"id": 3, "item": "tea"}])
    client.wait(lambda: task.spout.figures()["not settled"] == 3)
    task.spout.deactivate()
    assert waits.result(WITHIN_S).status_code == 503  # without a further step of the topology
    assert task.spout.figures() == {"not settled": 1}
    out.ack(tuple)
    assert client.answer(taken).status_code == 200


@pytest.mark.parametrize("client", [{"pending_max": 2}], indirect=True)
def test_waiting_records_of_a_disconnected_client_are_dropped(client: Client) -> None:
    (task,) = client.run.core._wired.spouts.values()
    body = json.dumps([{"id": number, "item": "tea"} for number in range(2)]).encode()
    address = urlsplit(client.url)
    for _ in range(3):
        with socket.create_connection((address.hostname, address.port)) as connection:
            connection.sendall(
                b"POST /orders HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                b"content-length: %d\r\n\r\n%s" % (len(body), body)
            )
            client.wait(lambda: task.spout.figures()["not settled"] == 2)
        client.wait(lambda: task.spout.figures()["not settled"] == 0)
    assert client.process(client.begin({"id": 7, "item": "tea"})).id == 7


def test_a_drain_finishes_the_accepted_records_and_accepts_no_more(
    client: Client,
) -> None:
    taken = client.begin({"id": 1, "item": "tea"})
    ((tuple, out),) = client.until_held(1)
    (task,) = client.run.core._wired.spouts.values()
    waits = client.begin({"id": 2, "item": "tea"})
    client.wait(lambda: task.spout.figures()["not settled"] == 2)
    client.run.core.drain()
    client.run.core.drain()
    assert waits.result(WITHIN_S).status_code == 503
    task.spout.activate()
    assert client.post({"id": 3, "item": "tea"}).status_code == 503
    out.ack(tuple)
    assert client.answer(taken).status_code == 200
    client.run.until(lambda: client.run.core.finished)


def test_open_requests_are_answered_with_503_when_the_topology_ends(port: int) -> None:
    topology = Topology("shop", workers=1)
    source = HttpSource(port, type=Order, path="/orders")
    topology.spout("orders", source).shuffle().bolt("held", Held(), tick_s=0.01)
    Held.error = None
    with running(topology) as run:
        run.until(lambda: answers(port))
        client = Client(port, run)
        pending = client.begin({"id": 1, "item": "tea"})
        client.until_held(1)
    assert pending.result(WITHIN_S).status_code == 503
    client.close()
    assert not answers(port)


def test_the_source_waits_for_a_port_that_is_in_use(port: int) -> None:
    topology = Topology("shop", workers=1)
    topology.spout("orders", HttpSource(port, type=Order)).shuffle().bolt("seen", Seen())
    with running(topology) as run:
        with socket.create_server(("127.0.0.1", port)):
            run.until_waiting()
        run.until(lambda: all(supervision.wait is None for supervision in run.core.supervisions))
        assert answers(port)


def test_a_host_of_another_machine_is_an_error_and_no_outage(port: int) -> None:
    source = HttpSource(port, type=Order, host="192.0.2.1")
    with pytest.raises(ConfigError, match=r"cannot listen at 192\.0\.2\.1"):
        source.open(Context("t", "orders", 0, 0, 1, clock=SystemClock()))


def test_a_body_that_does_not_arrive_in_time_is_answered_with_408(port: int) -> None:
    endpoint = HttpEndpoint(lambda body: body, "/", None, EndpointLimits(10, 1_000, body_s=0.05))
    endpoint.start("127.0.0.1", port)
    try:
        endpoint.accept(is_open=True)
        with socket.create_connection(("127.0.0.1", port), WITHIN_S) as connection:
            connection.sendall(
                b"POST / HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                b"content-length: 100\r\n\r\n["
            )
            assert connection.recv(1_000).startswith(b"HTTP/1.1 408")
    finally:
        endpoint.close()


def test_a_request_ends_the_wait_for_the_next_poll(port: int) -> None:
    asked = SimpleQueue[float]()
    place = Context("t", "orders", 0, 0, 1, clock=SystemClock(), ask=asked.put)
    source = HttpSource(port, type=Order)
    source.open(place)
    try:
        source.activate()
        with ThreadPoolExecutor(1) as pool, httpx2.Client(trust_env=False) as client:
            pending = pool.submit(
                client.post, f"http://127.0.0.1:{port}/", json={"id": 1, "item": "tea"}
            )
            assert asked.get(timeout=WITHIN_S) == -inf
            out = Outputs()
            source.next_tuple(out)
            source.ack(out.message_id)
            assert pending.result(WITHIN_S).status_code == 200
    finally:
        source.close()


class Outputs:
    """Notes the last emit."""

    message_id: Any = None

    def emit(self, record: Any, message_id: Any = None, *, stream: str = "") -> None:
        self.message_id = message_id

    def emit_direct(
        self, task: int, record: Any, message_id: Any = None, *, stream: str = ""
    ) -> None:
        raise NotImplementedError

    def finish(self) -> None: ...


def test_wrong_declarations_are_refused() -> None:
    with pytest.raises(ConfigError, match="a port"):
        HttpSource(0, type=Order)
    with pytest.raises(RecordMismatch, match="record type"):
        HttpSource(8080, type=dict)
    with pytest.raises(ConfigError, match="token"):
        HttpSource(8080, type=Order, token="plain")  # type: ignore[arg-type]


def test_in_a_test_a_list_replaces_the_source(port: int) -> None:
    topology = Topology("shop")
    orders = topology.spout("orders", HttpSource(port, type=Order))
    orders.filter(lambda order: order.id > 1)
    done = run_in_test(topology, {"orders": [Order(1, "tea"), Order(2, "tea")]})
    assert done.snapshot.component("orders").acked == 2


@pytest.mark.long
def test_no_answered_record_is_lost_when_the_process_is_killed(port: int, tmp_path: Path) -> None:
    path, clock, total = tmp_path / "lines.jsonl", SystemClock(), 120
    command = [sys.executable, "-m", http_program.__name__, str(port), str(path)]

    def post(number: int) -> int:
        """Repeat the request until the answer is 200. Returns the number of attempts."""
        for attempt in range(1, 10_000):
            try:
                answer = client.post(url, json={"value": number})
                if answer.status_code == 200:
                    return attempt
            except httpx2.TransportError:
                clock.sleep(0.02)
        raise AssertionError(number)

    url = f"http://127.0.0.1:{port}/"
    with httpx2.Client(trust_env=False) as client, ThreadPoolExecutor(4) as threads:
        process = subprocess.Popen(command, cwd=ROOT)
        try:
            pending = [threads.submit(post, number) for number in range(total)]
            pending[40].result(WITHIN_S)
            process.kill()
            process.wait()
            process = subprocess.Popen(command, cwd=ROOT)
            attempts = [future.result(WITHIN_S) for future in pending]
        finally:
            process.kill()
            process.wait()
    assert sum(attempts) > total  # the kill has interrupted requests
    stored = {json.loads(line)["value"] for line in path.read_text().splitlines()}
    assert stored == {*range(total)}
