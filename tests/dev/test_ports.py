"""Claimed ports are given to no other process, and are not used for outgoing connections."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from sunshower.dev import servers
from sunshower.dev.servers import HOST, Ports, answers, is_free
from sunshower.errors import ServerError
from tests.guarantee.deaths import until

CLAIM = (
    "from sunshower.dev.servers import Ports; p = Ports(); print(p.claim(), flush=True); input()"
)


def claims(holder: Ports, port: int) -> bool:
    """Whether the holder gets this port, the only one: servers of other tests may look for one."""
    with suppress(ServerError):
        return holder.claim() == port
    return False


def test_no_two_claims_are_the_same() -> None:
    first, second = Ports(), Ports()
    claimed = [holder.claim() for holder in (first, second) * 20]
    assert len(set(claimed)) == 40
    first.release()
    second.release()


def test_claims_are_outside_the_range_of_outgoing_connections() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    holder = Ports()
    assert all(20_000 <= holder.claim() < first for _ in range(10))
    holder.release()


def test_a_port_in_use_is_not_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HOST, 0)) as server:
        taken = server.getsockname()[1]
        monkeypatch.setattr(servers, "_FIRST", taken)
        monkeypatch.setattr(servers, "_first_outgoing", lambda: taken + 1)
        assert not is_free(taken)
        assert answers(taken)
        with pytest.raises(ServerError, match=f"no port from {taken} to {taken} is free"):
            Ports().claim()
    assert not answers(taken)


def test_a_claim_excludes_other_processes_until_its_process_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", CLAIM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout
    port = int(other.stdout.readline())
    monkeypatch.setattr(servers, "_FIRST", port)
    monkeypatch.setattr(servers, "_first_outgoing", lambda: port + 1)
    holder = Ports()
    with pytest.raises(ServerError):
        holder.claim()
    other.kill()
    other.communicate()
    until(partial(claims, holder, port))
    holder.release()


def test_released_ports_can_be_claimed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    holder = Ports()
    port = holder.claim()
    monkeypatch.setattr(servers, "_FIRST", port)
    monkeypatch.setattr(servers, "_first_outgoing", lambda: port + 1)
    holder.release()
    until(partial(claims, holder, port))
    holder.release()
