"""A session whose Java dies while it opens: calls end, and the next session can open."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections import deque
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from sunshower.spark_integration.sessions.session_host import end_calls_with
from tests.spark.conftest import require_spark

PROGRAM = """
from sunshower.spark_integration.sessions import local_spark as local

lives, warm = [], local.LocalSession.warm


def warmed(session):
    lives.append(session)
    if len(lives) == 1:
        session._java.kill()
    warm(session)


local.LocalSession.warm = warmed
place = local.LocalSpark(cores=1, memory="512m")
try:
    local.LocalSession(place)
except Exception:
    print("did not open, java ended:", lives[0]._java.poll() is not None)
session = local.LocalSession(place)
print("opened:", session.alive(), session.owned)
session.stop()
"""


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_java_that_dies_while_a_session_opens_does_not_prevent_the_next_session() -> None:
    require_spark()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-2:] == [
        "did not open, java ended: True",
        "opened: True True",
    ], done.stderr


@dataclass(eq=False)
class Connection:
    socket: socket.socket


def test_calls_end_with_java_also_if_another_process_has_its_sockets() -> None:
    """Such as a child that Java was starting, and that inherited them; here it is this process."""
    java = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    pairs = [socket.socketpair() for _ in range(2)]
    idle, busy = (Connection(ours) for ours, _ in pairs)
    client = SimpleNamespace(deque=deque([idle]), _create_new_connection=lambda: busy)
    end_calls_with(java, SimpleNamespace(_gateway_client=client))
    connection = client._create_new_connection()
    java.kill()
    assert connection.socket.recv(1) == idle.socket.recv(1) == b""
    with pytest.raises(ConnectionError, match="Java has ended"):
        client._create_new_connection()
    for pair in pairs:
        for sock in pair:
            sock.close()
    assert java.stdin is not None
    java.stdin.close()
