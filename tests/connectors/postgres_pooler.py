"""A pooler of PostgreSQL's transactions: each transaction gets another connection of the server."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

_NO_TLS = {struct.pack(">I", code) for code in (80877103, 80877104)}


@contextmanager
def pooler(path: str) -> Iterator[int]:
    """The port of a pooler for the server with this socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as clients:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    clients.callback(client.close)
                    threading.Thread(target=_serve, args=(client, path), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def _serve(client: socket.socket, path: str) -> None:
    with ExitStack() as stack, suppress(EOFError, OSError):
        stack.enter_context(client)
        startup = _message(client, has_type=False)
        while startup[4:8] in _NO_TLS:
            client.sendall(b"N")
            startup = _message(client, has_type=False)
        servers = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2)]
        for server in servers:
            server.connect(path)
            server.sendall(startup)
            answer = _until_ready(server)
        client.sendall(answer)
        while (request := _message(client))[:1] != b"X":
            servers[0].sendall(request)
            if request[:1] in (b"Q", b"S"):
                answer = _until_ready(servers[0])
                client.sendall(answer)
                if answer[-1:] == b"I":  # no transaction is open
                    servers.reverse()


def _until_ready(server: socket.socket) -> bytes:
    """All messages up to ReadyForQuery."""
    answer = b""
    while True:
        message = _message(server)
        answer += message
        if message[:1] == b"Z":
            return answer


def _message(source: socket.socket, *, has_type: bool = True) -> bytes:
    head = _exactly(source, 5 if has_type else 4)
    return head + _exactly(source, struct.unpack(">I", head[-4:])[0] - 4)


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data
