"""The files of a run's event log: each life of a worker writes its own file.

An entry is in the file when `put` returns, and survives a SIGKILL, because the kernel has it. So a
worker logs every event before it reports the event to others. (Measured: a write of 44 bytes takes
1.9 µs and one of 24 kB 23 µs; into a mapped file 0.5 and 71 µs, because of page faults.)
"""

from __future__ import annotations

import json
import os
import platform
import threading
from dataclasses import astuple, dataclass
from pathlib import Path

from sunshower import versions
from sunshower.actors.flight_recorder import folder_of, make_private
from sunshower.actors.store import RayStore
from sunshower.arguments import COUNT
from sunshower.errors import ClusterError, ExperimentError
from sunshower.runtime.events.event_log import Entry, decode, encode

_NAME = "event-log"  # in the store: see store.py
_BOOT = Path("/proc/sys/kernel/random/boot_id")  # identifies machine and clock


@dataclass(frozen=True)
class EventLogFolder:
    """The location of a run's event log, and its sampling rate."""

    path: str
    sample: int
    machine: str

    def read(self) -> list[Entry]:
        """All entries so far, by time. Raises ClusterError if the files are on another machine."""
        self.check_machine("this program")
        entries: list[Entry] = []
        for path in sorted(Path(self.path).iterdir()):
            with path.open("rb") as file:
                remedy = "read it with the release that the topology runs with"
                versions.unstamp(str(path), file.readline(), versions.EVENT_LOG, remedy)
                entries += decode(file)
        return sorted(entries, key=lambda entry: entry.at_s)

    def check_machine(self, who: str) -> None:
        """Raise ClusterError on another machine, or after the topology was stopped."""
        if not (this_machine() == self.machine and Path(self.path).is_dir()):
            raise ClusterError(
                f"{who} cannot reach the event log in {self.path}: it is on the machine that "
                "submitted the topology until the topology is stopped. With workers "
                "on several machines, submit without `sample`"
            )


class EventLogFile:
    """Writes the entries of one life of a worker. Raises ClusterError on another machine."""

    def __init__(self, folder: EventLogFolder, worker: int, life: int) -> None:
        folder.check_machine(f"worker {worker}")
        self._path = Path(folder.path, f"worker-{worker}-{life}")
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._error: str | None = None
        self._lock = threading.Lock()  # user code writes from its own threads, too
        self._write(versions.stamp(versions.EVENT_LOG))

    def put(self, entry: Entry) -> None:
        """Write an entry; nothing more after a failed write: see `check`."""
        self._write(encode(entry))

    def _write(self, data: bytes) -> None:
        with self._lock:
            if self._error is not None or self._file < 0:
                return
            try:
                if os.write(self._file, data) < len(data):
                    self._error = "the disk is full"
            except OSError as error:
                self._error = error.strerror

    def check(self) -> None:
        """Called before anything is sent. Raises ClusterError if a write has failed."""
        if self._error is not None:
            raise ClusterError(
                f"the history cannot be written to {self._path}: {self._error}. Make room, set "
                "TMPDIR to a larger disk, or submit with a larger `sample`"
            )

    def close(self) -> None:
        """Close the file. Nothing is written afterwards: its number may be that of another file."""
        with self._lock:
            os.close(self._file)
            self._file = -1


def create(run: str, sample: int) -> None:
    """Create the folder of a run's event log; `flight_recorder.remove_all` removes it."""
    COUNT.check("the sample of a history", sample, ExperimentError)
    folder = folder_of(run) / "history"
    try:
        make_private(run, folder.name)
    except OSError as error:
        raise ClusterError(
            f"the history cannot be kept in {folder}: {error.strerror}. Set TMPDIR to a folder "
            "where you may write"
        ) from error
    log_folder = EventLogFolder(str(folder), sample, this_machine())
    RayStore(run).write(_NAME, json.dumps(astuple(log_folder)).encode())


def find(run: str) -> EventLogFolder | None:
    """The location of a run's event log; None if it has none."""
    stored = RayStore(run).read(_NAME)
    return EventLogFolder(*json.loads(stored)) if stored is not None else None


def this_machine() -> str:
    """A unique id of this machine, valid until it reboots."""
    return _BOOT.read_text(encoding="ascii").strip() if _BOOT.exists() else platform.node()
