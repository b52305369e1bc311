"""Starts and ends the head of a Ray on this machine that outlives the command which started it."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from sunshower.actors.starting import LOCAL_OPTIONS, SYSTEM_CONFIG, set_ray_variables
from sunshower.errors import ClusterError

_MARK = "_SUNSHOWER_RAY_HEAD"  # a variable that the processes of a head inherit, and no other has
_START_S, _END_S = 90.0, 5.0


@dataclass(frozen=True)
class LocalHead:
    """What `start` has started; `end` ends exactly the processes of its session."""

    address: str
    mark: str
    session: int  # the kernel's id of the session, which its processes share
    log: str

    def processes(self) -> list[int]:
        """The ids of its processes. Some replace their environment by a title, but all are in its
        session; that this is still its session, and no later one, the mark shows."""
        session = [pid for pid in map(_pid, Path("/proc").iterdir()) if self._has(pid)]
        sign = f"{_MARK}={self.mark}".encode()
        return session if any(sign in _environment(pid).split(b"\0") for pid in session) else []

    def _has(self, pid: int) -> bool:
        with suppress(OSError, ValueError):  # it has ended
            fields = (
                Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            )
            return fields[0] != "Z" and int(fields[3]) == self.session
        return False

    @property
    def answers(self) -> bool:
        """Whether something listens at its address."""
        host, _, port = self.address.rpartition(":")
        with suppress(OSError):
            socket.create_connection((host, int(port)), 1.0).close()
            return True
        return False


def find(folder: Path) -> LocalHead | None:
    """The head that `folder` has a note of; None, without the note, if its processes are gone."""
    note = folder / "head.json"
    try:
        head = LocalHead(**json.loads(note.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise ClusterError(
            f"{note} is not what `sunshower ray up` writes there ({error}). End the Ray by hand if "
            "there is one, and remove that file"
        ) from error
    if head.processes():
        return head
    note.unlink(missing_ok=True)
    return None


def start(folder: Path, port: int, cpus: int | None = None) -> LocalHead:
    """Start a head with the settings that `sunshower run` gives to a Ray of its own, and note it in
    `folder`. Raises ClusterError."""
    if port:
        _check_is_free(port)
    port, log = port or _free_port(), folder / "head.log"
    set_ray_variables()
    mark = uuid.uuid4().hex
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--disable-usage-stats"),
        *(f"--port={port}", "--include-dashboard=false"),
        f"--object-store-memory={LOCAL_OPTIONS['object_store_memory']}",
        f"--system-config={json.dumps(SYSTEM_CONFIG)}",
        *([f"--num-cpus={cpus}"] if cpus else ()),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env={**os.environ, _MARK: mark}, start_new_session=True,
        )  # fmt: skip
    head = LocalHead(f"127.0.0.1:{port}", mark, process.pid, str(log))
    _write(folder, head)  # before it is complete, so that `down` ends also what was interrupted
    try:
        status = process.wait(_START_S)
    except subprocess.TimeoutExpired:
        why = f"it did not start within {_START_S:g} s"
    except BaseException:
        end(folder, head)
        raise
    else:
        if status == 0:
            with suppress(OSError):  # of this machine, and not of its loopback
                if (address := _address_file().read_text().strip()).endswith(f":{port}"):
                    head = replace(head, address=address)
            _write(folder, head)
            return head
        why = f"`ray start` ended with status {status}"
    end(folder, head)
    raise ClusterError(
        f"cannot start the head of a Ray: {why}. Its output is in {log}; `sunshower doctor` shows "
        "what this machine lacks"
    )


def end(folder: Path, head: LocalHead) -> None:
    """End all processes of a head, and wait for that."""
    with ExitStack() as stack:
        processes = []
        for pid in head.processes():
            with suppress(ProcessLookupError):
                processes.append(stack.enter_context(_opened(pid)))
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in processes:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process, number)
            end_s = time.monotonic() + _END_S
            while processes and (left_s := end_s - time.monotonic()) > 0:
                ended = select.select(processes, [], [], left_s)[0]
                processes = [process for process in processes if process not in ended]
    with suppress(OSError):
        if (file := _address_file()).read_text(encoding="utf-8").strip() == head.address:
            file.unlink()
    (folder / "head.json").unlink(missing_ok=True)


@contextmanager
def _opened(pid: int) -> Iterator[int]:
    """A file of a process: a signal to it reaches no other one that gets the same id."""
    process = os.pidfd_open(pid)
    try:
        yield process
    finally:
        os.close(process)


def _write(folder: Path, head: LocalHead) -> None:
    (folder / "head.json").write_text(json.dumps(asdict(head)), encoding="utf-8")


def is_announced() -> bool:
    """Whether a Ray of this machine has left its address for `auto`; it may have ended since."""
    return _address_file().exists()


def _address_file() -> Path:
    """Where Ray looks for the address `auto`."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108
    return Path(folder) / "ray" / "ray_current_cluster"


def _pid(folder: Path) -> int:
    return int(folder.name) if folder.name.isdigit() else 0


def _environment(pid: int) -> bytes:
    with suppress(OSError):  # it has ended, or belongs to somebody else
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def _check_is_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise ClusterError(
                f"port {port} is in use, perhaps by another Ray ({error.strerror}). Choose another "
                "one: sunshower ray up --port N (0: any free one)"
            ) from error


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
