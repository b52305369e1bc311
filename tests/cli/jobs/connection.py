"""A TCP relay to Ray's dashboard that drops connections once a job has been submitted."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from urllib.parse import urlsplit

_SIZE = 1 << 16


class Relay(ThreadingTCPServer):
    """Forwards all connections, except the first `drops` after a job has been submitted."""

    daemon_threads = True

    def __init__(self, dashboard: str, drops: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        url = urlsplit(dashboard)
        assert url.hostname is not None
        assert url.port is not None
        self.dashboard = url.hostname, url.port
        self.drops, self.has_submitted = drops, False

    @property
    def address(self) -> str:
        """The address to use in place of the dashboard's."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Connection(BaseRequestHandler):
    server: Relay

    def handle(self) -> None:
        first = self.request.recv(_SIZE)
        if self.server.has_submitted and self.server.drops > 0:
            self.server.drops -= 1
            return
        if first.startswith(b"POST /api/jobs/ "):
            self.server.has_submitted = True
        with socket.create_connection(self.server.dashboard) as upstream:
            upstream.sendall(first)
            Thread(target=_copy, args=(self.request, upstream), daemon=True).start()
            _copy(upstream, self.request)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):  # the other side has closed it
        while chunk := source.recv(_SIZE):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def dropping(dashboard: str, drops: int) -> Iterator[Relay]:
    """A running relay."""
    with Relay(dashboard, drops) as relay:
        thread = Thread(target=relay.serve_forever, daemon=True)
        thread.start()
        try:
            yield relay
        finally:
            relay.shutdown()
            thread.join()
