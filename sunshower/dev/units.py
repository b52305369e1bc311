"""Servers that outlive the command that started them, each with a note by which it is ended."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from sunshower.dev.ports import answers
from sunshower.dev.servers import END_WITHIN_S
from sunshower.errors import ServerError

_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Unit:
    """What one `up` has started, and `down` ends: exactly the keeper that this names."""

    name: str  # kafka or zookeeper
    release: str
    address: str  # host:port, with commas between them
    logs: tuple[str, ...]
    folder: str
    kept: bool  # whether the folder outlives the servers
    keeper: int  # pid
    born: str  # when that process started: another one may get its pid

    @property
    def servers(self) -> int:
        """How many processes answer clients when all is well."""
        return len(self.address.split(","))

    def silent(self) -> list[str]:
        """The addresses where nobody listens any more."""
        return [one for one in self.address.split(",") if not answers(int(one.split(":")[1]))]


def state() -> Path:
    """The folder for notes, and for data that nobody has given a place (XDG_STATE_HOME)."""
    root = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(root).expanduser() / "sunshower" / "dev"


@contextmanager
def alone() -> Iterator[None]:
    """Two commands that start or end servers do so one after the other."""
    state().mkdir(parents=True, exist_ok=True)
    with (state() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def record(unit: Unit) -> None:
    """Remember it."""
    note = _note(unit.name)
    draft = note.with_suffix(".new")
    draft.write_text(json.dumps(asdict(unit), indent=2), encoding="utf-8")
    draft.replace(note)


def find(name: str) -> Unit | None:
    """What is up under that name. A note whose keeper is gone is none; it is cleaned away."""
    try:
        found = json.loads(_note(name).read_text(encoding="utf-8"))
        unit = Unit(**(found | {"logs": tuple(found["logs"])}))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise ServerError(
            f"{_note(name)} is not what `sunshower dev up` writes there ({error}). End the server "
            "by hand if there is one, and remove that file."
        ) from error
    if born(unit.keeper) == unit.born:
        return unit
    _forget(unit)
    return None


def end(unit: Unit) -> None:
    """End it and wait for that. Raises ServerError."""
    with suppress(ProcessLookupError):
        keeper = os.pidfd_open(unit.keeper)
        try:
            if born(unit.keeper) == unit.born:  # looked at again: now the pid cannot be reused
                signal.pidfd_send_signal(keeper, signal.SIGTERM)
                if not select.select([keeper], [], [], END_WITHIN_S)[0]:
                    signal.pidfd_send_signal(keeper, signal.SIGKILL)  # its servers go with it
                    select.select([keeper], [], [], END_WITHIN_S)
        finally:
            os.close(keeper)
    _forget(unit)


def born(pid: int) -> str | None:
    """When a process started, in this life of the machine; None if there is no such process."""
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
