"""User code holds the interpreter's lock: its worker cannot send heartbeats, and is replaced."""

from __future__ import annotations

import ctypes
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.outage_scenarios._outage_watch import Figures
from benchmarks.outage_scenarios.frozen_worker import run_frozen
from sunshower import Number
from sunshower.actors.run import RayRun


def hold(_: Number, begin: Path, seconds: float) -> None:
    """Hold the lock once, when the file `begin` exists."""
    if begin.exists():
        begin.unlink()
        ctypes.PyDLL(None).sleep(int(seconds))  # PyDLL does not release the lock


def run(seconds: float) -> Figures:
    """One call of the only bolt holds the lock."""
    with tempfile.TemporaryDirectory() as folder:
        begin = Path(folder, "begin")

        def freeze(_: RayRun) -> None:
            begin.touch()

        return run_frozen(partial(hold, begin=begin, seconds=seconds), freeze, seconds)
