"""A real ZooKeeper of `sunshower dev`: it keeps data through SIGKILL, and ends with its owner."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from sunshower.dev.servers import HOST, Upkeep, answers
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.errors import ServerError
from tests.dev.test_keeper import gone

OWNER = """
from sunshower.dev.zookeeper import ZooKeeper
server = ZooKeeper().start()
print(server.keeper, server.pid, server.port, server.folder, flush=True)
input()
"""


def test_a_client_creates_a_node_and_finds_it_after_a_kill(zookeeper: ZooKeeper) -> None:
    client = KazooClient(zookeeper.connect, timeout=20)
    client.start(timeout=60)
    try:
        client.create("/here", b"to stay")
        before = zookeeper.pid
        zookeeper.kill()
        assert not answers(zookeeper.port)
        zookeeper.restart()
        assert zookeeper.pid != before
        assert client.retry(client.get, "/here")[0] == b"to stay"
    finally:
        client.stop()
        client.close()


def test_the_log_is_synced_to_disk_only_with_sync_true(
    zookeeper: ZooKeeper,
) -> None:
    with ZooKeeper(sync=True) as synced:
        assert sync_count(synced) > 0
    assert sync_count(zookeeper) == 0


def sync_count(server: ZooKeeper) -> int:
    """How often the server has synced its log, after the start of a session."""
    client = KazooClient(server.connect, timeout=20)
    client.start(timeout=60)
    client.stop()
    client.close()
    with socket.create_connection((HOST, server.port), timeout=20) as line, line.makefile() as text:
        line.sendall(b"mntr")
        return int(next(row for row in text if row.startswith("zk_cnt_fsynctime")).split()[1])


def test_a_server_ends_when_its_owner_is_killed(releases: None) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    keeper, pid, port, folder = process.stdout.readline().split()
    assert answers(int(port))
    process.kill()
    process.communicate()
    assert gone(int(pid))
    assert gone(int(keeper))
    assert not answers(int(port))
    assert not Path(folder).exists()


def test_the_error_of_a_server_that_fails_has_its_log_and_no_folder_is_left(
    tmp_path: Path, releases: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho this Java is too old\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    folder = tmp_path / "servers"
    with pytest.raises(ServerError) as failed:
        ZooKeeper(Upkeep(folder)).start()
    expected = f"instead of answering. The end of its log, {folder / 'zookeeper.log'}:"
    assert str(failed.value) == f"zookeeper has ended {expected}\nthis Java is too old"
    assert not folder.exists()


def test_a_server_that_was_not_started_cannot_be_killed() -> None:
    with pytest.raises(ServerError, match="zookeeper is not running"):
        ZooKeeper().kill()
