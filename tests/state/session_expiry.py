"""Ends the ZooKeeper session of a connected client, as if the session had expired."""

from __future__ import annotations

import re
import socket
import struct

from sunshower.dev.servers import HOST
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.state.zookeeper_tree import ZooKeeperTree

WITHIN_S = 120
_CLOSE = struct.pack(">iii", 8, 1, -11)  # length, number of the request, closeSession


def expire(server: ZooKeeper, tree: ZooKeeperTree) -> None:
    """Resume the session, and close it.

    The server keeps one connection for each session. The client, disconnected by the resumption,
    reconnects at once, and may disconnect this connection before it has closed the session. So
    both requests are sent in one packet, and repeated until the session is gone.
    """
    session = tree.client.client_id
    assert session
    number, password = session
    resume = struct.pack(">iqiqi", 0, 0, 10_000, number, len(password)) + password + b"\0"
    while number in sessions(server):
        with socket.create_connection((HOST, server.port), timeout=WITHIN_S) as connection:
            connection.sendall(struct.pack(">i", len(resume)) + resume + _CLOSE)
            connection.makefile("rb").read()  # until the server closes


def sessions(server: ZooKeeper) -> set[int]:
    """The ids of the server's sessions."""
    with socket.create_connection((HOST, server.port), timeout=WITHIN_S) as connection:
        connection.sendall(b"dump")
        text = connection.makefile().read()
    return {int(session, 16) for session in re.findall(r"^\t?0x([0-9a-f]+)", text, re.MULTILINE)}
