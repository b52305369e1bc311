"""A full disk, which is freed again: JSON lines of a plain sink, and a state in SQLite."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.measure import BenchmarkError
from benchmarks.outage_scenarios._measured_outage import Figures, Outage, loaded_topology, measure
from sunshower import JsonLines
from sunshower.state import SqliteState

_SIZE = 128 << 20
_BLOCK = bytes(1 << 16)


@contextmanager
def small_disk(size: int = _SIZE) -> Iterator[Path]:
    """A file system in memory of this size. Raises BenchmarkError without permission to mount."""
    with tempfile.TemporaryDirectory(prefix="sunshower-disk-") as folder:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
        done = subprocess.run(mount, check=False, capture_output=True, text=True)
        if done.returncode:
            raise BenchmarkError(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


def run(seconds: float) -> Figures:
    """The disk is full for `seconds`."""
    with small_disk() as disk, tempfile.TemporaryDirectory() as folder:
        lines, ballast = disk / "numbers.jsonl", disk / "ballast"
        state = SqliteState(disk / "counts.db", name="counts")
        topology = loaded_topology("disk", Path(folder), JsonLines(lines), state)

        def written() -> list[int]:
            return [json.loads(line)["value"] for line in lines.read_text().splitlines()]

        outage = Outage(
            partial(fill, ballast), ballast.unlink, written, lambda: dict(state.items())
        )
        return measure(topology, outage, seconds)


def fill(ballast: Path) -> None:
    """Fill the disk with one file."""
    handle = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    try:
        for size in (len(_BLOCK), 1):
            _fill_with(handle, _BLOCK[:size])
    finally:
        os.close(handle)


def _fill_with(handle: int, block: bytes) -> None:
    try:
        while os.write(handle, block):
            pass
    except OSError:
        return  # there is less space left than a block
