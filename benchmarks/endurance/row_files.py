"""Files in which tasks record tuples, so that a SIGKILL of the task's process loses no row.

A file belongs to one life of one task. Each row is written to the operating system in one call, so
it is in the file completely or not at all. Times are of the monotonic clock, which all processes of
a machine share.
"""

from __future__ import annotations

import os
import struct
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sunshower import Context
from sunshower.failures import Cause

ROW = np.dtype([("number", "<i8"), ("ns", "<i8"), ("detail", "<i8")])
CAUSES = tuple(Cause)  # the detail of a failure is an index into these
Rows = NDArray[np.void]


class RowFile:
    """The rows of one kind that one life of a task writes."""

    def __init__(self, folder: Path, what: str, context: Context) -> None:
        name = f"{what}-{context.index}-{uuid.uuid4().hex}"
        self._file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
        self._pack = struct.Struct("<qqq").pack

    def write(self, number: int, detail: int = 0) -> None:
        """Write a row now. It is safe when this returns (1 µs)."""
        os.write(self._file, self._pack(number, time.monotonic_ns(), detail))

    def write_all(self, numbers: Iterable[int]) -> None:
        """Write a row for each of `numbers`, all with the same time."""
        now = time.monotonic_ns()
        os.write(self._file, b"".join(self._pack(number, now, 0) for number in numbers))


def read_rows(folder: Path, what: str) -> Rows:
    """All rows of one kind, in no order."""
    parts = [np.fromfile(path, ROW) for path in sorted(folder.glob(f"{what}-*"))]
    return np.concatenate(parts) if parts else np.empty(0, ROW)
