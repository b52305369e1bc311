"""Tests that servers end with the process that started them; here they only wait."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sunshower.dev.servers import KeeperClient
from sunshower.dev.units import start_time
from sunshower.errors import ServerError

WAIT = ["sleep", "1000"]
STUBBORN = ["sh", "-c", "trap '' TERM; echo ready; while true; do sleep 1000; done"]
OWNER = """
import sys
from pathlib import Path
from sunshower.dev.servers import KeeperClient
client = KeeperClient(Path(sys.argv[1]), remove=True)
pids = [client.start(name, ["sleep", "1000"], Path(sys.argv[1]) / name) for name in "ab"]
if fork := "fork" in sys.argv:  # a child process that keeps all files of its parent open
    import os
    if not (pid := os.fork()):
        os.close(1)
        signal = __import__("signal")
        signal.pause()
    pids.append(pid)
print(client.pid, *pids, flush=True)
input()
"""


def gone(pid: int, within_s: float = 120) -> bool:
    """Whether a process ends in time; it need not be a child of this one."""
    try:
        file = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([file], [], [], within_s)[0])
    finally:
        os.close(file)


def owner(folder: Path, *more: str) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a process with two servers. Returns it, and the pids of keeper, servers and fork."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder), *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    return process, [int(pid) for pid in process.stdout.readline().split()]


def test_ending_the_keeper_ends_its_servers_and_removes_their_folder(tmp_path: Path) -> None:
    client = KeeperClient(tmp_path / "servers", remove=True)
    pid = client.start("one", ["sh", "-c", "echo here; exec sleep 1000"], tmp_path / "log")
    assert client.status("one") is None
    client.end()
    assert gone(pid)
    assert not (tmp_path / "servers").exists()


def test_a_folder_is_kept_with_remove_false(tmp_path: Path) -> None:
    client = KeeperClient(tmp_path, remove=False)
    pid = client.start("one", WAIT, tmp_path / "log")
    client.end()
    assert gone(pid)
    assert (tmp_path / "log").exists()


def test_the_exit_status_of_a_server_is_reported(tmp_path: Path) -> None:
    client = KeeperClient(tmp_path, remove=False)
    client.start("one", ["sh", "-c", "echo why; exit 3"], tmp_path / "log")
    assert client.wait("one", 120) == 3
    assert (tmp_path / "log").read_text() == "why\n"
    client.start("one", WAIT, tmp_path / "log")  # the name may be used again
    assert client.status("one") is None
    client.signal("one", signal.SIGKILL)
    assert client.wait("one", 120) == -signal.SIGKILL
    client.end()


def test_a_command_that_cannot_be_executed_is_an_error(tmp_path: Path) -> None:
    client = KeeperClient(tmp_path, remove=False)
    with pytest.raises(ServerError, match=r"one cannot be started: .*no/such/java"):
        client.start("one", ["no/such/java"], tmp_path / "log")
    client.end()


def test_a_server_that_ignores_sigterm_is_killed_after_the_grace_time(tmp_path: Path) -> None:
    log = tmp_path / "log"
    os.mkfifo(log)
    client = KeeperClient(tmp_path, remove=False, grace_s=0.2)
    reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    pid = client.start("one", STUBBORN, log)
    assert select.select([reader], [], [], 120)[0]  # it ignores SIGTERM from now on
    client.end()
    os.close(reader)
    assert gone(pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_servers_end_and_their_folder_is_removed_when_their_owner_is_killed(
    tmp_path: Path, number: int
) -> None:
    process, pids = owner(tmp_path / "servers")
    process.send_signal(number)
    process.communicate()
    assert [gone(pid) for pid in pids] == [True] * 3
    assert not (tmp_path / "servers").exists()


def test_servers_end_with_their_owner_although_a_fork_of_it_survives(tmp_path: Path) -> None:
    process, pids = owner(tmp_path / "servers", "fork")
    process.kill()
    process.wait()
    *others, fork = pids
    assert [gone(pid) for pid in others] == [True] * 3
    os.kill(fork, signal.SIGKILL)


def test_servers_end_when_their_keeper_is_killed(tmp_path: Path) -> None:
    client = KeeperClient(tmp_path, remove=False)
    pid = client.start("one", WAIT, tmp_path / "log")
    os.kill(client.pid, signal.SIGKILL)
    assert gone(pid)
    with pytest.raises(ServerError, match="keeper of the servers is gone"):
        client.wait("one", 120)
    client.end()


def test_servers_that_may_stay_survive_their_owner(tmp_path: Path) -> None:
    staying = OWNER.replace("print(", "client.stay(); print(")
    done = subprocess.run(
        [sys.executable, "-c", staying, str(tmp_path)],
        input="\n",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    keeper, *servers = map(int, done.stdout.split())
    assert all(start_time(pid) for pid in (keeper, *servers))
    os.kill(keeper, signal.SIGTERM)
    assert [gone(pid) for pid in (keeper, *servers)] == [True] * 3
