"""Servers that outlive the command that started them, each identified by a note file."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from sunshower.dev import jars
from sunshower.dev.servers import END_WITHIN_S, answers
from sunshower.errors import ServerError

_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Unit:
    """What one `up` has started; `down` ends exactly the keeper recorded here."""

    name: str  # kafka or zookeeper
    release: str
    address: str  # host:port, separated by commas
    logs: tuple[str, ...]
    folder: str
    kept: bool  # whether the folder outlives the servers
    keeper: int  # its process id
    started: str  # its start time: another process may get its id
    processes: tuple[int, ...] = ()  # the ids of the servers

    def silent(self) -> list[str]:
        """The addresses where no server listens."""
        return [
            server for server in self.address.split(",") if not answers(int(server.split(":")[1]))
        ]


def state() -> Path:
    """The folder for notes, and for data without a given folder (XDG_STATE_HOME)."""
    root = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(root).expanduser() / "sunshower" / "dev"


def locked() -> AbstractContextManager[None]:
    """Serialise commands that start or end servers."""
    return jars.locked(state())


def record(unit: Unit) -> None:
    """Write the note of a unit."""
    note = _note(unit.name)
    draft = note.with_suffix(".new")
    draft.write_text(json.dumps(asdict(unit), indent=2), encoding="utf-8")
    draft.replace(note)


def find(name: str) -> Unit | None:
    """The unit of that name. If its keeper has ended, removes the note and returns None."""
    try:
        note = json.loads(_note(name).read_text(encoding="utf-8"))
        note = {"processes": (), **note}
        unit = Unit(**(note | {key: tuple(note[key]) for key in ("logs", "processes")}))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise ServerError(
            f"{_note(name)} is not what `sunshower dev up` writes there ({error}). End the server "
            "by hand if there is one, and remove that file."
        ) from error
    if start_time(unit.keeper) == unit.started:
        return unit
    _forget(unit)
    return None


def end(unit: Unit) -> None:
    """End a unit and wait for that. Raises ServerError."""
    with suppress(ProcessLookupError):
        keeper = os.pidfd_open(unit.keeper)
        try:
            if start_time(unit.keeper) == unit.started:  # the open pidfd prevents id reuse
                signal.pidfd_send_signal(keeper, signal.SIGTERM)
                if not select.select([keeper], [], [], END_WITHIN_S)[0]:
                    signal.pidfd_send_signal(keeper, signal.SIGKILL)  # its servers end with it
                    select.select([keeper], [], [], END_WITHIN_S)
        finally:
            os.close(keeper)
    _forget(unit)


def start_time(pid: int) -> str | None:
    """The boot id and start time of a process; None if it does not exist."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else f"{_BOOT.read_text().strip()} {fields[19]}"


def _forget(unit: Unit) -> None:
    _note(unit.name).unlink(missing_ok=True)
    if not unit.kept:
        shutil.rmtree(unit.folder, ignore_errors=True)


def _note(name: str) -> Path:
    return state() / f"{name}.json"
