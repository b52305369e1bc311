"""A worker's black box as a mapped file: its pages survive SIGKILL and segmentation faults."""

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

from sunshower.runtime.blackbox import BlackBox, Recorder, read
from sunshower.runtime.obituary import Obituary
from sunshower.runtime.plan import Plan

_FETCH_S = 5.0  # for the crash report from another node; Ray may have to start a process there
_LOG = logging.getLogger("sunshower")


def find_on(node: str, run: str, worker: int) -> Obituary | None:
    """What the former life of a worker has left on a node, by Ray's id of it.

    None, and a line in the log, if that node is gone or does not answer: then no attempt is charged
    for the death."""
    if node == ray.get_runtime_context().get_node_id():
        return find(run, worker)
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    task = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(find)
    try:
        found: Obituary | None = ray.get(task.remote(run, worker), timeout=_FETCH_S)
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


def find(run: str, worker: int) -> Obituary | None:
    """What the former life of a worker has left on this node."""
    with contextlib.suppress(OSError):
        return read(_path(run, worker).read_bytes(), worker)
    return None


def make(run: str, plan: Plan, worker: int, life: int) -> Recorder:
    """A box for this life. Where no file can be written it is in this process's memory: the
    watchdog reads it, and no successor does (`Recorder.unwritable` says why)."""
    path, size = _path(run, worker), BlackBox.size_of(plan, worker)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # a new file: who still maps the old one keeps that
        with path.open("x+b") as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk says so here, not by SIGBUS
            return BlackBox(mmap.mmap(file.fileno(), size), life)
    except OSError as error:
        box = BlackBox(mmap.mmap(-1, size), life)
        box.unwritable = f"{path.parent}: {error.strerror or error}"
        return box


def remove(run: str, worker: int) -> None:
    """Nobody will succeed this worker."""
    with contextlib.suppress(OSError):
        _path(run, worker).unlink()
        _path(run, worker).parent.rmdir()  # the last one


def remove_all(run: str) -> None:
    """Take away all files of a run on this node, also of workers that were killed."""
    shutil.rmtree(folder_of(run), ignore_errors=True)


def folder_of(run: str) -> Path:
    """Where a run's files are on this node."""
    return Path(tempfile.gettempdir(), f"sunshower-{os.getuid()}", run)


def _path(run: str, worker: int) -> Path:
    return folder_of(run) / f"worker-{worker}"
