"""Serves the page over HTTP, on a thread, until its context ends."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from sunshower.cli.ui.application import ExperimentFolders, make_application, own_hosts
from sunshower.cli.ui.source import TopologySource
from sunshower.errors import ConfigError

DEFAULT_PORT = 8127


@contextmanager
def served_page(
    source: TopologySource,
    token: str,
    host: str = "127.0.0.1",
    port: int | None = None,
    experiments: ExperimentFolders | None = None,
) -> Iterator[str]:
    """Serve the page; yields its address. `port`: 0 takes a free one; None takes 8127, or a free
    one if that is taken; `experiments`: None has no runs. Raises ConfigError if it cannot listen
    there."""
    with _listening(host, port) as listener:
        server = uvicorn.Server(
            uvicorn.Config(
                make_application(source, token, own_hosts(host), experiments),
                log_level="critical",  # not the requests that the end cancels
                access_log=False,
                lifespan="off",
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=1,
            )
        )
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        shown = f"[{host}]" if listener.family == socket.AF_INET6 else host
        try:
            yield f"http://{shown}:{listener.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join()


def _listening(host: str, port: int | None) -> socket.socket:
    try:
        return _listen(host, DEFAULT_PORT if port is None else port)
    except OSError as error:
        if port is None and error.errno == errno.EADDRINUSE:
            return _listening(host, 0)
        raise ConfigError(
            f"cannot listen at {host}, port {port}: {error}. Choose another --host or --port; "
            "--port 0 takes a free one"
        ) from error


def _listen(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    family, kind, protocol, _, address = found[0]
    # Without the protocol, asyncio leaves Nagle's algorithm on: 40 ms more for each answer.
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener
