"""A worker's flight recorder in a mapped file, which survives SIGKILL and segmentation faults."""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import shutil
import tempfile
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sunshower.runtime.control.crash_report import CrashReport
from sunshower.runtime.control.flight_recorder import FlightRecorder, Recorder, read
from sunshower.runtime.plan import Plan

_FETCH_S = 5.0  # for the crash report from another node; Ray may have to start a process there
_LOG = logging.getLogger("sunshower")


def find_on(node: str, run: str, worker: int) -> CrashReport | None:
    """The crash report that the former life of a worker left on a node (Ray's node id).

    None, and a log message, if that node does not answer: the crash then charges no attempt."""
    if node == ray.get_runtime_context().get_node_id():
        return find(run, worker)
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    task = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(find)
    try:
        found: CrashReport | None = ray.get(task.remote(run, worker), timeout=_FETCH_S)
    except ray.exceptions.RayError as error:
        _LOG.warning(
            "worker %d: the crash report of its former process is on node %s, which does not "
            "answer (%s); what that process was executing is not charged",
            worker,
            node,
            type(error).__name__,
        )
        return None
    return found


def find(run: str, worker: int) -> CrashReport | None:
    """The crash report that the former life of a worker left on this node, or None."""
    with contextlib.suppress(OSError):
        return read(_path(run, worker).read_bytes(), worker)
    return None


def make(run: str, plan: Plan, worker: int, life: int) -> Recorder:
    """A flight recorder for this life. If no file can be written it is in this process's memory:
    for the watchdog, not for the next process (`Recorder.unwritable` says why)."""
    path, size = _path(run, worker), FlightRecorder.size_of(plan, worker)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # a new file: a process that maps the old one keeps it
        with path.open("x+b") as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk raises here: no SIGBUS later
            return FlightRecorder(mmap.mmap(file.fileno(), size), life)
    except OSError as error:
        box = FlightRecorder(mmap.mmap(-1, size), life)
        box.unwritable = f"{path.parent}: {error.strerror or error}"
        return box


def remove(run: str, worker: int) -> None:
    """Remove a worker's file: the worker has no next life."""
    with contextlib.suppress(OSError):
        _path(run, worker).unlink()
        _path(run, worker).parent.rmdir()  # empty after the last worker


def remove_all(run: str) -> None:
    """Remove all files of a run on this node, also those of killed workers."""
    shutil.rmtree(folder_of(run), ignore_errors=True)


def folder_of(run: str) -> Path:
    """The folder of a run's files on this node."""
    return Path(tempfile.gettempdir(), f"sunshower-{os.getuid()}", run)


def _path(run: str, worker: int) -> Path:
    return folder_of(run) / f"worker-{worker}"
