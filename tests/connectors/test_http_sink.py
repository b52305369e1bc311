"""HttpSink with a real HTTP server: records are acked after the answer, refused alone, or wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import chain
from typing import Any, NamedTuple

import pytest

from sunshower import Records, Retry, Secret, Topology
from sunshower.clock import ManualClock
from sunshower.connectors import HttpSink, http_sink
from sunshower.dev.servers import Ports
from sunshower.errors import ConfigError, HttpError, HttpRefused, HttpUnavailable, UnknownField
from sunshower.runtime.events.health import WaitKind
from sunshower.testing import run
from tests.connectors.conftest import Drive
from tests.connectors.http_server import Answer, HttpServer, Request, http_server
from tests.kafka.stage import Seen, running


class Order(NamedTuple):
    id: int
    item: str


def orders(first: int, end: int) -> list[Order]:
    return [Order(number, f"item {number}") for number in range(first, end)]


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with http_server() as started:
        yield started


def topology(sink: HttpSink, records: list[Order], retry: Retry | None = None) -> Topology:
    shop = Topology("shop", workers=1)
    source = shop.spout("orders", Records(records, type=Order), retry=retry)
    source.shuffle().bolt("send", sink)
    if retry is not None and retry.dead_letters is True:
        source.stream("dead_letters").shuffle().bolt("letters", Seen())
    return shop


def test_each_record_is_a_request_and_is_acked_after_its_answer(server: HttpServer) -> None:
    sink = HttpSink(server.url, id="id", headers={"x-shop": "north"})
    done = run(topology(sink, orders(0, 100)))
    assert done.snapshot.component("orders").acked == 100
    assert sorted(body["id"] for body in server.bodies) == [*range(100)]
    request = next(request for request in server.requests if request.body["id"] == 7)
    assert request.body == {"id": 7, "item": "item 7"}
    assert request.headers["idempotency-key"] == "7"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-shop"] == "north"


def test_several_records_are_one_request(server: HttpServer) -> None:
    sink = HttpSink(server.url, value=lambda order: order.id, records_max=40)
    done = run(topology(sink, orders(0, 100)))
    assert done.snapshot.component("orders").acked == 100
    assert max(map(len, server.bodies)) == 40
    assert sorted([*chain(*server.bodies)]) == [*range(100)]


def refuse(*ids: int) -> Any:
    def answer(request: Request) -> Answer:
        items = request.body if isinstance(request.body, list) else [request.body]
        bad = any(item["id"] in ids for item in items)
        return Answer(422, body=b"no such item") if bad else Answer(204)

    return answer


@pytest.mark.parametrize("records_max", [1, 25])
def test_a_record_that_the_server_refuses_becomes_a_dead_letter_alone(
    server: HttpServer, records_max: int
) -> None:
    server.answer = refuse(3, 60)
    sink = HttpSink(server.url, records_max=records_max)
    done = run(topology(sink, orders(0, 100), Retry(attempts=2, dead_letters=True)))
    letters = done.emitted("orders", stream="dead_letters")
    assert sorted(letter.record["id"] for letter in letters) == [3, 60]
    assert "answers 422: no such item" in letters[0].reason
    assert letters[0].exception == "HttpRefused"
    assert done.snapshot.component("orders").failed == 4


@pytest.mark.parametrize(
    ("login", "query", "wanted"),
    [
        ("", "", "http://127.0.0.1:{port}/in answers"),
        ("me:hush-hush@", "?shop=north", "http://me:•••@127.0.0.1:{port}/in?••• answers"),
    ],
)
def test_a_dead_letter_names_the_url_without_its_secrets(
    server: HttpServer, login: str, query: str, wanted: str
) -> None:
    server.answer = refuse(0)
    sink = HttpSink(server.url.replace("//", f"//{login}") + query)
    done = run(topology(sink, orders(0, 2), Retry(attempts=1, dead_letters=True)))
    (letter,) = done.emitted("orders", stream="dead_letters")
    assert wanted.format(port=server.port) in letter.reason
    assert "hush" not in letter.reason
    assert "north" not in letter.reason


OF_EACH = [401, 402, 403, 404, 405, 407, 410, 421, 426]


@pytest.mark.parametrize("records_max", [1, 20])
@pytest.mark.parametrize("status", [408, 425, 429, 500, 503, 511, 599, 300, 302, 304, *OF_EACH])
def test_a_status_that_asks_for_a_retry_is_an_outage(
    drive: Drive, server: HttpServer, status: int, records_max: int
) -> None:
    driven = drive(HttpSink(server.url, records_max=records_max), ManualClock())
    driven.take(Order(0, "first"))
    server.answer = lambda _: Answer(status, {"location": "/elsewhere"})
    driven.take(*orders(1, records_max + 1))
    assert len(server.requests) == 2, "it is not tried record by record"
    assert len(driven.out.failed) == records_max
    assert {type(reason) for _, reason in driven.out.failed} == {HttpUnavailable}
    # The next record is sent alone, and raises: the runtime counts outages in a row.
    with pytest.raises(HttpUnavailable, match=f"answers {status}"):
        driven.give(Order(21, "the next one alone"))
    server.answer = lambda _: Answer()
    driven.take(Order(22, "b"))
    assert driven.out.acked == [Order(0, "first"), Order(22, "b")]


@pytest.mark.parametrize("is_date", [False, True])
def test_no_request_is_sent_before_the_time_in_retry_after(
    drive: Drive, server: HttpServer, is_date: bool
) -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=250), usegmt=True)
    server.answer = lambda _: Answer(429, {"retry-after": at if is_date else "250"})
    clock = ManualClock()
    driven = drive(HttpSink(server.url), clock)
    with pytest.raises(HttpUnavailable, match="answers 429"):
        driven.give(Order(1, "a"))
    clock.advance(200.0)
    with pytest.raises(HttpUnavailable, match="answers 429"):
        driven.give(Order(2, "b"))
    assert len(server.requests) == 1
    clock.advance(50.0)
    with pytest.raises(HttpUnavailable):
        driven.give(Order(2, "b"))
    assert len(server.requests) == 2


@pytest.mark.parametrize("later", [200, 503])
def test_the_answer_to_another_request_does_not_end_the_wait(
    drive: Drive, server: HttpServer, later: int
) -> None:
    clock, is_answered = ManualClock(), threading.Event()
    driven = drive(HttpSink(server.url, connections=2, timeout_s=120.0), clock)
    driven.take(Order(0, "first"))

    def answer(request: Request) -> Answer:
        if request.body["id"] == 1:
            return Answer(429, {"retry-after": "100"})
        is_answered.wait(60)
        return Answer(later)

    server.answer = answer
    driven.give(Order(1, "a"), Order(2, "b"))
    while not driven.out.failed:
        driven.bolt._settle_answered()
    is_answered.set()
    driven.bolt.flush()
    for _ in range(2):
        with pytest.raises(HttpUnavailable, match="answers"):
            driven.give(Order(3, "c"))
        assert len(server.requests) == 3
        clock.advance(99.0)
    clock.advance(2.0)
    server.answer = lambda _: Answer()
    driven.take(Order(3, "c"))
    assert len(server.requests) == 4


def test_a_server_that_does_not_answer_is_an_outage(drive: Drive) -> None:
    with claimed_port() as port:
        driven = drive(HttpSink(f"http://127.0.0.1:{port}/in", records_max=10), ManualClock())
        with pytest.raises(HttpUnavailable, match="ConnectError"):
            driven.give(Order(2, "b"))


def claimed_port() -> Any:
    ports = Ports()
    return closing(_Claim(ports))


class _Claim(int):
    """A port that is released at the end."""

    def __new__(cls, ports: Ports) -> _Claim:
        claim = super().__new__(cls, ports.claim())
        claim.close = ports.release  # type: ignore[attr-defined]
        return claim


@pytest.mark.parametrize("status", [400, 409, 413, 422, 451])
def test_any_other_status_refuses_the_record(drive: Drive, server: HttpServer, status: int) -> None:
    server.answer = lambda _: Answer(status)
    driven = drive(HttpSink(server.url), ManualClock())
    with pytest.raises(HttpRefused, match=str(status)):
        driven.give(Order(0, "first"))
    driven.take(*orders(1, 3))
    assert len(driven.out.failed) == 2
    assert all(isinstance(reason, HttpRefused) for _, reason in driven.out.failed)
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [302, 401, 403, 404, 503])
@pytest.mark.parametrize("total", [3, 200])
def test_a_refusal_of_every_record_creates_no_dead_letters(
    server: HttpServer, status: int, total: int
) -> None:
    is_allowed = False
    server.answer = lambda _: Answer(200 if is_allowed else status)
    # One attempt: a single one that is charged would end the topology.
    shop = topology(HttpSink(server.url), orders(0, total), Retry(attempts=1))
    with running(shop) as run:
        run.until_waiting(WaitKind.UNAVAILABLE)
        is_allowed = True
        run.until(lambda: run.core.finished)  # without dead letters it ends only if all are acked


@pytest.mark.parametrize("status", [200, 422, 503])
def test_an_endless_answer_is_not_read_to_its_end(
    drive: Drive, server: HttpServer, status: int
) -> None:
    server.answer = lambda _: Answer(status, body=b"word " * 100, is_endless=True)
    driven = drive(HttpSink(server.url), ManualClock())
    if status == 200:
        driven.take(Order(0, "first"))
        assert driven.out.acked == [Order(0, "first")]
        return
    with pytest.raises(HttpError, match=f"{status}: word word") as raised:
        driven.give(Order(0, "first"))
    assert len(str(raised.value)) < 1_000


def test_reading_a_slow_answer_ends_at_the_deadline(
    drive: Drive, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PassingClock(ManualClock):
        def now(self) -> float:
            self.advance(3.0)
            return super().now()

    monkeypatch.setattr(http_sink, "_READ_BYTES", 1 << 60)
    server.answer = lambda _: Answer(422, body=b"x", is_endless=True)
    driven = drive(HttpSink(server.url, timeout_s=60.0), PassingClock())
    with pytest.raises(HttpRefused, match="422: x"):
        driven.give(Order(0, "first"))


def test_an_id_may_have_any_characters(drive: Drive, server: HttpServer) -> None:
    driven = drive(HttpSink(server.url, id="item"), ManualClock())
    driven.take(Order(1, "größe\r\nx: y"), Order(2, "a/b:c"))
    assert {request.headers["idempotency-key"] for request in server.requests} == {
        "gr%C3%B6%C3%9Fe%0D%0Ax:%20y",
        "a/b:c",
    }


def test_wrong_declarations_are_refused_and_secrets_are_not_shown() -> None:
    for url in ("localhost:80", "ftp://host/x", "http:///path", "http://host:99999/"):
        with pytest.raises(ConfigError):
            HttpSink(url)
    with pytest.raises(ConfigError, match="records_max"):
        HttpSink("http://host/", id="id", records_max=2)
    with pytest.raises(ConfigError, match="connections"):
        HttpSink("http://host/", connections=0)
    stream = Topology("t").spout("orders", Records(orders(0, 1), type=Order))
    with pytest.raises(UnknownField, match="weight"):
        stream.shuffle().bolt("send", HttpSink("http://host/", value="weight"))
    sink = HttpSink("http://me:hush-hush@host/", headers={"Authorization": "Bearer hush-hush"})
    assert "hush" not in f"{sink.url}{sink.headers}"
    assert sink.headers["authorization"] == Secret("Bearer hush-hush")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("x-key", Secret(f"s3cr3t-value{end}")) for end in ("\n", " ", "\r\nx: y", "\0", "é")),
        *((name, "s3cr3t-value") for name in ("", "x key", "x-kéy", "x:")),
    ],
)
def test_a_header_that_cannot_be_sent_is_refused_and_not_shown(
    name: str, value: str | Secret
) -> None:
    with pytest.raises(ConfigError, match="headers") as raised:
        HttpSink("http://host/", headers={name: value})
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize("records_max", [1, 20])
def test_a_server_that_is_killed_under_load_loses_nothing(records_max: int) -> None:
    total, is_ready = 1_000, False

    def read() -> Iterator[Order | None]:
        for order in orders(0, total):
            while order.id >= total // 2 and not is_ready:
                yield None
            yield order

    with claimed_port() as port, http_server(port) as server:
        sink = HttpSink(server.url, records_max=records_max)
        shop = Topology("shop", workers=1, message_timeout_s=300)
        # One attempt: a single one that is charged would end the topology.
        source = shop.spout("orders", Records(read, type=Order), retry=Retry(attempts=1))
        source.shuffle().bolt("send", sink)
        with running(shop) as run:
            run.until(lambda: len(server.requests) * records_max > 100)
            server.kill()
            is_ready = True
            run.until_waiting()
            run.step_for(0.5)  # the sink retries
            server.start()
            run.until(lambda: run.core.finished)
        sent = server.bodies if records_max == 1 else [*chain(*server.bodies)]
        assert {message["id"] for message in sent} == {*range(total)}
