"""Claims local ports that no other process uses, outside the range of outgoing connections."""

from __future__ import annotations

import errno
import random
import socket
from itertools import chain
from pathlib import Path

from sunshower.errors import ServerError

HOST = "127.0.0.1"
_FIRST = 20_000
_USUALLY = 32_768
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Ports:
    """Claims on ports, held until they are released or this process ends.

    For outgoing connections the kernel chooses ports from a range. A client that repeatedly
    connects to a stopped server in that range can be connected to itself. So claims are below the
    range. A claim is an abstract socket name, which only one process can bind.
    """

    def __init__(self) -> None:
        self._claims: dict[int, socket.socket] = {}

    def claim(self) -> int:
        """A free port. Raises ServerError when there is none."""
        last = _first_outgoing()
        start = random.randrange(_FIRST, last)
        for port in chain(range(start, last), range(_FIRST, start)):
            claim = _claim(port)
            if claim and is_free(port):
                self._claims[port] = claim
                return port
            if claim:
                claim.close()
        raise ServerError(f"no port from {_FIRST} to {last - 1} is free on this machine")

    def release(self) -> None:
        """Release all claims."""
        for claim in self._claims.values():
            claim.close()
        self._claims.clear()


def is_free(port: int) -> bool:
    """Whether a server could listen there now. Raises ServerError for a privileged port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            probe.bind((HOST, port))
            probe.listen()  # with SO_REUSEADDR two sockets may bind, but only one may listen
        except PermissionError as error:
            raise ServerError(f"port {port} is reserved: choose one above 1023") from error
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
        return True


def answers(port: int) -> bool:
    """Whether a server accepts connections there."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def _claim(port: int) -> socket.socket | None:
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0sunshower-port-{port}")
    except OSError:
        claim.close()
        return None
    return claim


def _first_outgoing() -> int:
    try:
        first = int(_OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = _USUALLY
    return first if first > _FIRST + 1000 else _USUALLY
