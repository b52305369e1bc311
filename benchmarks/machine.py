"""The machine: its hardware and versions, how busy it is, and what processes use."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sunshower.cli.doctor import is_optimised
from sunshower.record_loops import compiled

_PACKAGES = ("ray", "numpy", "msgpack", "pyarrow", "bytewax", "pyspark")
_PROC = Path("/proc")
_RESULT_PATHS = ("benchmarks/results", "docs/PERFORMANCE.md", "docs/performance")  # by each run
_SOURCE_PATHS = (":/", *(f":(top,exclude){path}" for path in _RESULT_PATHS))
_SAMPLE_S = 0.25
_IDLE_CORES = 0.15  # at most: what an idle Ray uses on an idle machine


def describe() -> dict[str, Any]:
    """Machine, versions and commit, in the form of the results file."""
    return {
        "machine": {"cpu": _cpu(), "cores": cores(), "memory_gib": _memory_gib()},
        "versions": {
            "python": f"{platform.python_version()} ({_build()})",
            **{package: _version(package) for package in _PACKAGES},
        },
        "commit": _commit(),
    }


def _build() -> str:
    optimised = "an optimised build" if is_optimised() else "not an optimised build"
    return f"{optimised}, {'compiled' if compiled else 'uncompiled'} loops"


def cores() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_s(pids: Iterable[int]) -> float | None:
    """The processor time that these processes have used; None if the machine does not report it."""
    try:
        return sum(_ticks(_PROC / str(pid) / "stat") for pid in pids) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return None


def resident(pids: Iterable[int]) -> int:
    """The resident memory of these processes in bytes. Raises OSError if it is not reported."""
    pages = (int((_PROC / str(pid) / "statm").read_text().split()[1]) for pid in pids)
    return sum(pages) * os.sysconf("SC_PAGE_SIZE")


def wait_until_idle(patience_s: float) -> float:
    """Wait until this machine is idle, for at most `patience_s`.

    Returns how many cores were busy in the last sample; 0 if there was none.
    """
    end_s = time.monotonic() + patience_s
    while patience_s > 0:
        busy = _busy_cores()
        if busy <= _IDLE_CORES or time.monotonic() >= end_s:
            return busy
    return 0.0


def _busy_cores() -> float:
    try:
        before = _idle_ticks()
        time.sleep(_SAMPLE_S)
        idle_s = (_idle_ticks() - before) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0.0
    return max(0.0, (os.cpu_count() or 1) - idle_s / _SAMPLE_S)


def _idle_ticks() -> int:
    fields = (_PROC / "stat").read_text().split(maxsplit=6)  # cpu user nice system idle iowait …
    return int(fields[4]) + int(fields[5])


def _ticks(stat: Path) -> int:
    fields = stat.read_text().rpartition(")")[2].split()  # the name may contain any character
    return int(fields[11]) + int(fields[12])


def _cpu() -> str:
    try:
        lines = (_PROC / "cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1)
    except (ValueError, OSError):
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The measured commit, with a + if files other than the results have changed since."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        commit = subprocess.check_output([*git, "rev-parse", "--short", "HEAD"], text=True).strip()
        status = [*git, "status", "--porcelain", "-uno", "--", *_SOURCE_PATHS]
        changed = subprocess.check_output(status, text=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("+" if changed.strip() else "")
