"""A worker's flight recorder in a mapped file, which survives SIGKILL and segmentation faults."""

from __future__ import annotations

import contextlib
import errno
import logging
import mmap
import os
import shutil
import stat
import tempfile
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sunshower.runtime.plan import Plan
from sunshower.runtime.tasks.flight_recorder import CrashReport, FlightRecorder, Recorder, read

_FILE_BYTES_MAX = 1 << 30  # of a file that is read
_FETCH_S = 5.0  # for the crash report from another node; Ray may have to start a process there
_LOG = logging.getLogger("sunshower")


def find_on(node: str, run: str, worker: int) -> CrashReport | None:
    """The crash report that the former life of a worker left on a node (Ray's node id).

    None, and a log message, if that node does not answer: the crash then charges no attempt."""
    if node == ray.get_runtime_context().get_node_id():
        return find(run, worker)
    on_node = NodeAffinitySchedulingStrategy(node, soft=False)
    task = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=on_node)(find)
    try:
        crash_report: CrashReport | None = ray.get(task.remote(run, worker), timeout=_FETCH_S)
    except ray.exceptions.RayError as error:
        _LOG.warning(
            "worker %d: the crash report of its former process is on node %s, which does not "
            "answer (%s); what that process was executing is not charged",
            worker,
            node,
            type(error).__name__,
        )
        return None
    return crash_report


def find(run: str, worker: int) -> CrashReport | None:
    """The crash report that the former life of a worker left on this node, or None. A file that
    another user may have written is not read, and logged."""
    path = _path(run, worker)
    try:
        check_private(path.parent.parent)
        check_private(path.parent)
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # no link; no wait
        with os.fdopen(file, "rb") as opened:
            _check_file(os.fstat(file), path)
            return read(opened.read(), worker)
    except FileNotFoundError:
        return None
    except OSError as error:
        _LOG.warning("worker %d: no crash report is read: %s", worker, error)
        return None


def make_private(run: str, *below: str) -> Path:
    """Create the folder of a run's files on this node, and one below it; only this user may enter.
    Raises PermissionError if others may write there, and OSError."""
    folder = folder_of(run)
    for path in (folder.parent, folder, folder.joinpath(*below)):
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        check_private(path)
        path.chmod(0o700)  # earlier versions let others read it
    return folder.joinpath(*below)


def check_private(folder: Path) -> None:
    """Raise PermissionError unless the folder is this user's, no link, and only this user may
    write, replace or remove it."""
    status, above = folder.lstat(), folder.parent.stat()
    is_fixed = not above.st_mode & 0o022 or above.st_mode & stat.S_ISVTX
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    if not (is_fixed and is_own and not status.st_mode & 0o022):
        why = (
            "others may write there, or it is a link: remove it, or set TMPDIR to a folder of yours"
        )
        raise PermissionError(errno.EPERM, why, str(folder))


def _check_file(status: os.stat_result, path: Path) -> None:
    is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and status.st_nlink == 1
    if not is_own or status.st_mode & 0o022 or status.st_size > _FILE_BYTES_MAX:
        raise PermissionError(errno.EPERM, "it was not written by a worker", str(path))


def make(run: str, plan: Plan, worker: int, life: int) -> Recorder:
    """A flight recorder for this life. If no file can be written it is in this process's memory:
    for the watchdog, not for the next process (`Recorder.unwritable` says why)."""
    path, size = _path(run, worker), FlightRecorder.size_of(plan, worker)
    try:
        make_private(run)
        path.unlink(missing_ok=True)  # a new file: a process that maps the old one keeps it
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "r+b"):
            os.posix_fallocate(file, 0, size)  # a full disk raises here: no SIGBUS later
            return FlightRecorder(mmap.mmap(file, size), life)
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
