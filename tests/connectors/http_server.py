"""A real HTTP server that records its requests, and answers as the test defines."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Request(NamedTuple):
    path: str
    headers: Mapping[str, str]
    body: Any  # decoded JSON


class Answer(NamedTuple):
    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""
    is_endless: bool = False  # the body is repeated until the client closes the connection


class _Server(ThreadingHTTPServer):
    request_queue_size = 100
    daemon_threads, block_on_close = True, False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing about a connection that the client has closed."""


class HttpServer:
    """A server that keeps its port when it is killed and started again."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.requests: list[Request] = []
        self.answer: Callable[[Request], Answer] = lambda _: Answer()
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/in"

    @property
    def bodies(self) -> list[Any]:
        return [request.body for request in self.requests]

    def start(self) -> None:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                server._connections.add(self.connection)

            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(self.path, headers, json.loads(data))
                with server._lock:
                    server.requests.append(request)
                answer = server.answer(request)
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                length = len(answer.body) if not answer.is_endless else 1 << 60
                self.send_header("content-length", str(length))
                self.end_headers()
                self.wfile.write(answer.body)
                while answer.is_endless:  # a closed connection raises
                    self.wfile.write(answer.body)

            def log_message(self, *_: Any) -> None: ...

        self._server = _Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def kill(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._connections.clear()


@contextmanager
def http_server(port: int = 0) -> Iterator[HttpServer]:
    server = HttpServer(port)
    server.start()
    try:
        yield server
    finally:
        server.kill()
