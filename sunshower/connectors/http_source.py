"""HttpSource: takes POSTed JSON as records, and answers when their tuple trees are complete."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
import zlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hmac import compare_digest
from types import NoneType
from typing import Any, NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sunshower.arguments import COUNT, Instance, Values
from sunshower.errors import ConfigError, Unavailable, UnreadableRecord
from sunshower.failures import Cause, Failure
from sunshower.field_types import record_fields
from sunshower.installed import check_packages
from sunshower.record_reader import json_reader
from sunshower.secret import Secret, reveal
from sunshower.texts import clip, message_of
from sunshower.topologies.components import Context, Spout, SpoutCollector

_PORT = Values(int, "a port, a whole number", least=1, most=65535)
_TOKEN = Instance(
    (Secret, NoneType), 'a Secret, such as Secret.from_environment("TOKEN")', is_secret=True
)
_PATH = Instance((str,), 'a path, such as "/orders"', may_be_empty=False)
_HOST = Instance((str,), 'an address of this machine, such as "0.0.0.0"', may_be_empty=False)
_OF_CODE = {Cause.EXCEPTION, Cause.FAILED}


# ---- http endpoint -------------------------------------------------------------------------------

_CLOSE_S = 5.0
_HEADERS = {415: {"accept-encoding": "gzip, deflate"}, 503: {"retry-after": "1"}}
# Browsers add these to a POST. A page of another site could send one, if its name leads here.
_OF_BROWSERS = ("origin", "sec-fetch-site")
_ERROR_BYTES = 500
# Content-Encoding → the `wbits` of zlib: 16 + 15 is gzip's format, 15 zlib's.
_ENCODINGS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
_RAW_DEFLATE = -15
_PIECE_BYTES = 4096  # unpacked at a time: what follows the end of a part of gzip is copied
_CONNECTIONS = 1_000  # at a time; more only if as many records may be unsettled
_FURTHER = 100  # connections that get an answer while each of those waits for one record


class HttpAnswer(NamedTuple):
    """The status of an answer, and what is wrong if it is not 200."""

    status: int
    error: str = ""


class EndpointLimits(NamedTuple):
    """How many records may be unsettled; the largest body, and how long it may take to arrive."""

    pending_max: int
    body_bytes_max: int
    body_s: float = 30.0


@dataclass
class _Posted:
    """A request whose records are not all settled."""

    answer: Callable[[HttpAnswer], None]
    left: int  # records
    is_taken: bool = False  # one of its records was emitted


class HttpEndpoint:
    """Takes requests on a thread of its own; the other methods are called by one other thread.

    `read` makes a record of a body, or a list of several. It raises UnreadableRecord. `wake` is
    called when records wait.
    """

    def __init__(
        self,
        read: Callable[[bytes], Any],
        path: str,
        token: str | None,
        limits: EndpointLimits,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._read, self._token, self._limits, self._wake = read, token, limits, wake
        self._lock = threading.Lock()  # of the attributes below
        self._posted: dict[int, _Posted] = {}
        self._waiting: deque[tuple[int, int, Any]] = deque()  # request, index, record
        self._number = self._pending = 0
        self._is_open = False
        self._application = Starlette(routes=[Route(path, self._post, methods=["POST"])])

    @property
    def pending(self) -> int:
        return self._pending

    def start(self, host: str, port: int) -> None:
        """Listen. Raises Unavailable if the port is taken, else ConfigError."""
        listener = _listen(host, port)
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._application,
                log_level="critical",
                access_log=False,
                lifespan="off",
                server_header=False,
                proxy_headers=False,
                limit_concurrency=max(_CONNECTIONS, self._limits.pending_max + _FURTHER),
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=self._server.run, args=([listener],), daemon=True)
        self._thread.start()

    def accept(self, *, is_open: bool) -> None:
        """Take requests from now on; or answer each with 503, and those whose records were not all
        taken."""
        with self._lock:
            self._is_open = is_open
            ended = set() if is_open else {number for number, *_ in self._waiting}
            if ended:
                self._waiting.clear()
        for number in ended:
            self._end(number, _ENDS)

    def take(self) -> tuple[tuple[int, int], Any] | None:
        with self._lock:
            while self._waiting:
                number, index, record = self._waiting.popleft()
                if (posted := self._posted.get(number)) is not None:  # else another record failed
                    posted.is_taken = True
                    return (number, index), record
        return None

    def settle(self, id: tuple[int, int], failed: HttpAnswer | None = None) -> None:
        """A record is processed, or its tree failed: then its request has this answer at once."""
        with self._lock:
            posted = self._posted.get(id[0])
            if posted is not None and posted.left > 1 and failed is None:
                posted.left -= 1
                self._pending -= 1
                return
        self._end(id[0], failed or HttpAnswer(200))

    def close(self) -> None:
        """Answer all requests with 503, and stop listening."""
        self.accept(is_open=False)
        for number in [*self._posted]:
            self._end(number, _ENDS)
        self._server.should_exit = True
        self._thread.join(_CLOSE_S)

    def _end(self, number: int, answer: HttpAnswer) -> None:
        with self._lock:
            if (posted := self._posted.pop(number, None)) is None:
                return
            self._pending -= posted.left
        posted.answer(answer)

    async def _post(self, request: Request) -> Response:
        answer = await self._answer(request)
        if answer.status == 200:
            return JSONResponse({"status": "processed"})
        headers = _HEADERS.get(answer.status)
        return JSONResponse({"error": answer.error}, answer.status, headers)

    async def _answer(self, request: Request) -> HttpAnswer:
        authorization = request.headers.get("authorization", "")
        if self._token is not None and not compare_digest(
            authorization.encode(), f"Bearer {self._token}".encode()
        ):
            return HttpAnswer(401, "the header Authorization lacks the token")
        if self._token is None and any(header in request.headers for header in _OF_BROWSERS):
            return HttpAnswer(403, "a page in a browser needs a token")
        if not self._is_open:
            return _ENDS
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return HttpAnswer(415, "the content-type is not application/json")
        encoding = ", ".join(request.headers.getlist("content-encoding")).strip().lower()
        if encoding not in ("", "identity", *_ENCODINGS):
            text = f"the content-encoding is {encoding}: send gzip, deflate or identity"
            return HttpAnswer(415, clip(text, _ERROR_BYTES))
        try:
            body = await asyncio.wait_for(self._body(request, encoding), self._limits.body_s)
            if body is None:
                return HttpAnswer(413, f"the body is above {self._limits.body_bytes_max:,} bytes")
            decoded = self._read(body)
            records = decoded if type(decoded) is list else [decoded]
        except TimeoutError:
            return HttpAnswer(408, f"the body did not arrive within {self._limits.body_s:g} s")
        except ClientDisconnect:
            return _CLOSED
        except UnreadableRecord as error:
            return HttpAnswer(400, clip(message_of(error), _ERROR_BYTES))
        if not records:
            return HttpAnswer(200)
        if len(records) > self._limits.pending_max:
            return HttpAnswer(413, f"a request may have {self._limits.pending_max:,} records")
        return await self._wait(request, records)

    async def _body(self, request: Request, encoding: str) -> bytes | None:
        """The decompressed body; None if it is too large. Raises UnreadableRecord."""
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > self._limits.body_bytes_max:
                return None
            parts.append(part)
        body = b"".join(parts)
        is_packed = encoding in _ENCODINGS
        return _unpacked(body, encoding, self._limits.body_bytes_max) if is_packed else body

    async def _wait(self, request: Request, records: list[Any]) -> HttpAnswer:
        """Queue the records, and wait until they are settled, or the client is gone."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[HttpAnswer] = loop.create_future()

        def set_answer(answer: HttpAnswer) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_resolve, answered, answer)

        with self._lock:
            if not self._is_open:
                return _ENDS
            if self._pending + len(records) > self._limits.pending_max:
                return HttpAnswer(503, f"{self._pending:,} records are not processed yet")
            self._number = number = self._number + 1
            self._posted[number] = _Posted(set_answer, len(records))
            self._waiting += [(number, index, record) for index, record in enumerate(records)]
            self._pending += len(records)
        self._wake()
        is_gone = asyncio.ensure_future(request.receive())  # after the body: a disconnect
        await asyncio.wait((answered, is_gone), return_when=asyncio.FIRST_COMPLETED)
        if answered.done():
            is_gone.cancel()
            return answered.result()
        self._forget(number)
        return _CLOSED

    def _forget(self, number: int) -> None:
        """Remove a request whose client is gone, if none of its records was taken."""
        with self._lock:
            posted = self._posted.get(number)
            if posted is None or posted.is_taken:
                return
            self._waiting = deque(entry for entry in self._waiting if entry[0] != number)
            self._pending -= posted.left
            del self._posted[number]


_CLOSED = HttpAnswer(400, "the connection was closed")
_ENDS = HttpAnswer(503, "the topology takes no records at the moment")


def _unpacked(data: bytes, encoding: str, bytes_max: int) -> bytes | None:
    """Decompress a body; None if it becomes too large. Raises UnreadableRecord.

    A body of gzip may have several parts, as from a client that appends to it. `deflate` is zlib's
    format (RFC 9110), but some clients send it without zlib's header.
    """
    bits = _ENCODINGS[encoding]
    try:
        return _inflated(data, bits, bytes_max)
    except (zlib.error, EOFError) as error:
        if encoding == "deflate":
            with suppress(zlib.error, EOFError):
                return _inflated(data, _RAW_DEFLATE, bytes_max)
        raise UnreadableRecord(f"the body is not {encoding}: {error}") from error


def _inflated(data: bytes, bits: int, bytes_max: int) -> bytes | None:
    """As `_unpacked`. Raises zlib.error, and EOFError if the end is missing."""
    inflater, parts, size, at = zlib.decompressobj(bits), list[bytes](), 0, 0
    while at < len(data):
        if inflater.eof:
            if bits != _ENCODINGS["gzip"]:
                raise zlib.error("there is something after its end")
            inflater = zlib.decompressobj(bits)
        piece = data[at : at + _PIECE_BYTES]
        parts.append(inflater.decompress(piece, bytes_max - size + 1))
        size += len(parts[-1])
        if size > bytes_max:
            return None
        at += len(piece) - len(inflater.unused_data)
    if not inflater.eof:
        raise EOFError("its end is missing")
    return b"".join(parts)


def _resolve(future: asyncio.Future[HttpAnswer], answer: HttpAnswer) -> None:
    if not future.done():
        future.set_result(answer)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
    except OSError as error:
        raise ConfigError(f"HttpSource: {host!r} is not a host to listen at: {error}") from error
    # With its protocol: asyncio sets TCP_NODELAY for it, without which an answer takes 40 ms more.
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        text = f"HttpSource cannot listen at {host}, port {port}: {error}"
        if error.errno == errno.EADDRINUSE:
            raise Unavailable(text) from error
        raise ConfigError(f"{text}; give another port or host") from error
    return listener


# ---- http source ---------------------------------------------------------------------------------


class HttpSource(Spout[Any]):
    """Records of `type` that clients POST to `path` as a JSON object, or as an array of several.

    A request is answered when the tuple trees of its records have ended: at least once, if its
    client repeats it until the answer is 200 (docs/CONNECTORS.md has the answers). Nothing is
    replayed. Task i listens on `port` + i; with a `token`, requests need `Authorization: Bearer
    TOKEN`. At most `pending_max` records are not settled, and a body has at most `body_bytes_max`
    bytes, also after it was decompressed. Raises ConfigError and RecordMismatch when it is
    declared.
    """

    replay = False

    def __init__(
        self,
        port: int,
        *,
        type: type[Any],
        path: str = "/",
        host: str = "127.0.0.1",
        token: Secret | None = None,
        pending_max: int = 1_000,
        body_bytes_max: int = 1_000_000,
    ) -> None:
        check_packages("http", "which HttpSource needs", "starlette", "uvicorn")
        _PORT.check("HttpSource: port", port)
        _PATH.check("HttpSource: path", path)
        _HOST.check("HttpSource: host", host)
        _TOKEN.check("HttpSource: token", token)
        COUNT.check("HttpSource: pending_max", pending_max)
        COUNT.check("HttpSource: body_bytes_max", body_bytes_max)
        record_fields(type)
        self.emits, self.port, self.path, self.host = type, port, path, host
        self.token, self.pending_max, self.body_bytes_max = token, pending_max, body_bytes_max
        self._endpoint: HttpEndpoint
        self._drains = False

    def open(self, context: Context) -> None:
        """Begin to listen. Raises Unavailable if the port is taken, else ConfigError."""
        limits = EndpointLimits(self.pending_max, self.body_bytes_max)
        path = self.path if self.path.startswith("/") else f"/{self.path}"
        read, token = json_reader(self.emits), reveal(self.token)
        endpoint = HttpEndpoint(read, path, token, limits, context.wake)
        endpoint.start(self.host, self.port + context.index)
        self._endpoint = endpoint

    def next_tuple(self, out: SpoutCollector[Any]) -> None:
        if (taken := self._endpoint.take()) is not None:
            id, record = taken
            out.emit(record, id)

    def ack(self, message_id: Any) -> None:
        self._endpoint.settle(message_id)

    def fail(self, message_id: Any, failure: Failure) -> None:

        is_of_code = failure.cause in _OF_CODE and failure.is_charged
        place = f" in {failure.component}" if failure.component else ""
        failed = HttpAnswer(500 if is_of_code else 503, f"not processed: {failure.cause}{place}")
        self._endpoint.settle(message_id, failed)

    def activate(self) -> None:
        self._endpoint.accept(is_open=not self._drains)

    def deactivate(self) -> None:
        self._endpoint.accept(is_open=False)

    def drain(self) -> None:
        self._drains = True
        self._endpoint.accept(is_open=False)

    def figures(self) -> dict[str, float]:
        return {"not settled": self._endpoint.pending}

    def close(self) -> None:
        self._endpoint.close()
