"""The memory, files, threads and nodes that the processes of a run hold, and whether they grow.

A sample covers this process and all its descendants: Ray's processes, workers and servers. A
killed process and its successor have the same name, so they are one series.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

_PROC = Path("/proc")
_ANSWER_S = 2.0
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)
SPARK = "Java: Spark"
# Spark's block manager has up to 100 threads for each of two purposes, and a few more after each
# batch. Each new Java starts without them, so their number depends on the kills: not counted.
_POOLS = "block-manager-"
_NAMES = (  # the first pattern that matches a command determines the name of the process
    (re.compile(rb"^ray::Sunshower(Worker|Master)"), "workers that have just started or ended"),
    (re.compile(rb"^ray::"), "other processes of Ray"),
    (re.compile(rb"/gcs_server"), "GCS"),
    (re.compile(rb"/raylet/raylet"), "raylet"),
    (re.compile(rb"kafka\.Kafka"), "Java: Kafka"),
    (re.compile(rb"org\.apache\.zookeeper"), "Java: ZooKeeper"),
    (re.compile(rb"apache\.spark"), SPARK),
    (re.compile(rb"^[^\0]*java\0"), "Java: others"),
    (re.compile(rb"ray/"), "other processes of Ray"),
)
JAVA = "Java: "


class ResourceUse(NamedTuple):
    """What the processes of one name hold."""

    mib: float = 0.0  # resident
    files: int = 0
    threads: int = 0
    processes: int = 0
    nodes: int = 0  # of ZooKeeper

    def __add__(self, other: object) -> ResourceUse:
        assert isinstance(other, ResourceUse)
        return ResourceUse(*(amount + more for amount, more in zip(self, other, strict=True)))


Sample = Mapping[str, ResourceUse]
ALL = "all processes"


@dataclass(frozen=True)
class Tolerance:
    """How much a median may grow: by a fraction of it, or by a number if that is more."""

    part: float
    least: float

    def allows(self, before: float, after: float) -> bool:
        """Whether a growth from `before` to `after` is within the tolerance."""
        return after - before <= max(self.part * before, self.least)


TOLERANCES = {
    "mib": Tolerance(0.15, 32.0),
    "files": Tolerance(0.10, 10),
    "threads": Tolerance(0.10, 6),
    "processes": Tolerance(0.0, 0),
    "nodes": Tolerance(0.10, 10),
}
WARM_UP = 0.2  # fraction of the samples, the first ones, that are ignored
WINDOW = 0.2  # fraction of the samples whose medians are compared: after the warm-up, and the last


def sample(actors: Mapping[int, str]) -> dict[str, ResourceUse]:
    """What is held now, by name. `actors`: process id → name of Ray's live actors."""
    uses: dict[str, ResourceUse] = defaultdict(ResourceUse)
    for pid in descendants(os.getpid()):
        try:
            held = _use_of(pid)
            command = (_PROC / str(pid) / "cmdline").read_bytes()
        except OSError:  # it has just ended
            continue
        name = actors.get(pid) or name_of(command, pid == os.getpid())
        if name == SPARK:
            held = held._replace(threads=held.threads - _pool_threads(pid))
        uses[name] = uses[name] + held
        uses[ALL] = uses[ALL] + held
    uses["actors"] = ResourceUse(processes=len(actors))
    java = [held.processes for name, held in uses.items() if name.startswith(JAVA)]
    uses["Java processes"] = ResourceUse(processes=sum(java))
    return dict(uses)


def zookeeper_nodes(address: str) -> int | None:
    """The number of nodes of the server, or None if it does not answer."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), _ANSWER_S) as server:
            server.sendall(b"srvr")
            answer = b"".join(iter(partial(server.recv, 4096), b""))
    except OSError:
        return None
    match = re.search(rb"Node count: (\d+)", answer)
    return int(match[1]) if match else None


def name_of(command: bytes, is_self: bool = False) -> str:
    """The name under which a process is counted."""
    if is_self:
        return "this program"
    for pattern, name in _NAMES:
        if pattern.search(command):
            return name
    return "others"


def descendants(root: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = defaultdict(list)
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            children[int(stat.rpartition(")")[2].split()[1])].append(int(folder.name))
    processes = [root]
    for pid in processes:
        processes += children[pid]
    return processes


def growth(samples: Sequence[Sample]) -> list[dict[str, object]]:
    """A row for each name and figure: its first and last median, and whether it is flat.

    Processes may start and end, so only the numbers of actors and of Java processes are checked.
    """
    count = max(1, int(len(samples) * WINDOW))
    start = int(len(samples) * WARM_UP)
    windows = samples[start : start + count], samples[-count:]
    rows: list[dict[str, object]] = []
    for name in sorted({name for sample in samples for name in sample}):
        for figure, tolerance in TOLERANCES.items():
            if figure == "processes" and name not in ("actors", "Java processes"):
                continue
            before, after = (
                median(getattr(sample.get(name, ResourceUse()), figure) for sample in window)
                for window in windows
            )
            if before or after:
                flat = tolerance.allows(before, after)
                values = {"first": round(before, 1), "last": round(after, 1), "flat": flat}
                rows.append({"of": name, "figure": figure, **values})
    return rows


def _use_of(pid: int) -> ResourceUse:
    folder = _PROC / str(pid)
    pages = int((folder / "statm").read_text(encoding="ascii").split()[1])
    threads = len(os.listdir(folder / "task"))
    return ResourceUse(pages * _PAGE_MIB, len(os.listdir(folder / "fd")), threads, 1)


def _pool_threads(pid: int) -> int:
    """How many threads of Spark's block manager a process has."""
    total = 0
    for file in (_PROC / str(pid) / "task").glob("*/comm"):
        with contextlib.suppress(OSError):  # it has just ended
            total += file.read_text(encoding="utf-8", errors="replace").startswith(_POOLS)
    return total
