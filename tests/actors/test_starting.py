"""A Ctrl-C while a local Ray starts, and addresses where no Ray is, with a stub of `ray.init`."""

from __future__ import annotations

import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from sunshower.actors import starting
from sunshower.actors.starting import call, call_once, start_ray
from sunshower.errors import ClusterError
from sunshower.experiments.runner.interrupts import Interrupts
from sunshower.runtime.control import events


class Starts:
    """Stubs of `ray.init`, with `interrupts` in the middle of it, and of `ray.shutdown`."""

    def __init__(self, interrupts: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.interrupts, self.steps = interrupts, list[str]()
        monkeypatch.setattr(ray, "init", self.init)
        monkeypatch.setattr(ray, "shutdown", self.shutdown)
        monkeypatch.setattr("sunshower.actors.starting._print_notices_apart", lambda: None)

    def init(self, **_: Any) -> None:
        self.steps.append("begin")
        for _ in range(self.interrupts):
            signal.raise_signal(signal.SIGINT)
        self.steps.append("end")

    def shutdown(self) -> None:
        self.steps.append("shutdown")


@pytest.mark.parametrize("handled", [nullcontext, Interrupts], ids=["by Python", "by a command"])
@pytest.mark.parametrize(
    ("interrupts", "steps"), [(1, ["begin", "end", "shutdown"]), (2, ["begin"])]
)
def test_one_interrupt_waits_until_a_local_ray_has_started_and_ends_it_and_a_second_does_not(
    interrupts: int,
    steps: list[str],
    handled: Callable[[], AbstractContextManager[object]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts = Starts(interrupts, monkeypatch)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), handled():
            start_ray(None, quiet=True)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert starts.steps == steps


def test_a_handler_of_interrupts_that_does_not_raise_is_called_once_ray_has_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts = Starts(1, monkeypatch)
    before = signal.signal(signal.SIGINT, lambda *_: starts.steps.append("handled"))
    try:
        start_ray(None, quiet=True)
    finally:
        signal.signal(signal.SIGINT, before)
    assert starts.steps == ["begin", "end", "handled"]


# ---- addresses -----------------------------------------------------------------------------------


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """A program at a port that answers each client so, and ends the connection; None: it does
    neither."""
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as clients:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client = clients.enter_context(server.accept()[0])
                    if answer is not None:
                        client.recv(1024)
                        client.sendall(answer)
                        client.close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "answer",
    [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"-ERR unknown command\r\n", b"\0\0\0"],
    ids=["nothing", "the end", "HTTP", "Redis", "a part of a frame"],
)
def test_another_program_at_the_address_of_ray_is_named_at_once(
    answer: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = Starts(0, monkeypatch)
    monkeypatch.setattr(starting, "_ANSWER_S", 0.2)
    with listening(answer) as address:
        with pytest.raises(ClusterError, match=f"what listens at {address} is not the head of a"):
            start_ray(address, quiet=True)
        monkeypatch.setattr(starting, "address_here", lambda: address)
        with pytest.raises(ClusterError, match=f"what listens at {address} is not the head of a"):
            start_ray("auto", quiet=True)
    assert starts.steps == []


def test_a_server_of_http_2_is_left_to_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = Starts(0, monkeypatch)
    with listening(b"\0\0\x06\4\0\0\0\0\0\0\5\0\0\x40\0") as address:
        start_ray(address, quiet=True)
    assert starts.steps == ["begin", "end"]


# ---- calls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [call, call_once])
@pytest.mark.parametrize(
    ("error", "says", "advises"),
    [
        (
            ray.exceptions.GetTimeoutError("Get timed out"),
            "has not answered in time, and its actors have not ended",
            "`sunshower status words` shows it. Submit nothing again before",
        ),
        (ray.exceptions.WorkerCrashedError(), "does not answer: WorkerCrashedError", "submit it"),
    ],
    ids=["paused", "killed"],
)
def test_a_master_that_is_paused_is_not_reported_as_gone(
    by: Callable[..., Any],
    error: Exception,
    says: str,
    advises: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def get(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(ray, "get", get)
    method = SimpleNamespace(remote=lambda *_: None)
    method.options = lambda **_: method
    called = method if by is call else SimpleNamespace(apply=method)
    more = () if by is call else (events.RebalanceTasks(),)
    with pytest.raises(ClusterError) as failed:
        by("words", called, *more)
    assert says in str(failed.value)
    assert advises in str(failed.value)


# ---- the temporary folder of a local Ray --------------------------------------------------------


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Starts:
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    return Starts(0, monkeypatch)


@contextmanager
def full_disk() -> Iterator[None]:
    """Files of this process cannot become large: as on a full disk, `write` fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("variable", ["TMPDIR", "RAY_TMPDIR"])
@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("/proc", "Ray cannot write its files in the temporary folder '/proc'"),
        ("/proc/none/there", "Ray cannot write its files in the temporary folder"),
        ("{0}/file", r"Ray cannot write its files in the temporary folder .*File exists"),
        ("{0}/file/below", r"Ray cannot write its files in the temporary folder .*Not a directory"),
        ("{0}/" + "x" * 90, "longer than the 107 that are possible"),
        ("{0}/" + "ü" * 30, "longer than the 107 that are possible"),
        ("", "is '', which is not an absolute path"),
        ("there", "is 'there', which is not an absolute path"),
    ],
)
def test_a_temporary_folder_that_ray_cannot_use_is_named(
    folder: str,
    why: str,
    variable: str,
    started: Starts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with TemporaryDirectory(dir="/tmp") as short:
        Path(short, "file").touch()
        monkeypatch.setenv(variable, folder.format(short))
        with pytest.raises(ClusterError, match=why) as raised:
            start_ray(None, quiet=True)
    assert started.steps == []
    assert f"such as {variable}=/tmp" in str(raised.value)
    monkeypatch.setenv(variable, "/tmp")
    start_ray(None, quiet=True)
    assert started.steps == ["begin", "end"]


def test_a_full_disk_is_named(started: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    with full_disk(), pytest.raises(ClusterError, match=r"such as TMPDIR=/var/tmp, or make room"):
        start_ray(None, quiet=True)


def test_the_temporary_folder_does_not_matter_for_a_ray_that_runs(
    started: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/proc")
    monkeypatch.setattr("sunshower.actors.starting._check_is_ray", lambda _: None)
    start_ray("127.0.0.1:1", quiet=True)
    assert started.steps == ["begin", "end"]
