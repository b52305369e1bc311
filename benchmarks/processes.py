"""Plain processes that begin together: what every peer runs in, fresh for each run."""

from __future__ import annotations

import gc
import multiprocessing as mp
import os
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gate import Gate
from benchmarks.measure import BenchmarkError, Outcome

_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Starter:
    """What a job is handed: tell that you are ready, then wait at the gate."""

    gate: Gate
    _post: Any

    def ready(self) -> None:
        """Say that everything is prepared; a job of several parts does so for each."""
        self._post.put(None)

    def wait(self) -> float:
        """Be ready, and sleep until all are. Returns when that was."""
        self.ready()
        self.gate.wait()
        return time.monotonic()


Job = Callable[[Starter], Outcome]


def run_together(jobs: Sequence[Job], folder: Path, ready: int | None = None) -> Outcome:
    """One process for each job (a function that can be pickled); the gate opens when `ready`
    (by default one for each job) have said so. Returns the sum over all."""
    context = mp.get_context("spawn")
    post = context.Queue()
    gate = Gate(folder)
    processes = [
        context.Process(target=_serve, args=(job, Starter(gate, post)), daemon=True) for job in jobs
    ]
    for process in processes:
        process.start()
    try:
        for _ in range(ready or len(jobs)):
            _hear(post)
        gate.open()
        outcomes: list[Outcome] = [_hear(post) for _ in jobs]
        for process in processes:
            process.join(_TIMEOUT_S)
    finally:
        for process in processes:
            process.kill()
    return sum(outcomes[1:], outcomes[0])


def _hear(post: Any) -> Any:
    said = post.get(timeout=_TIMEOUT_S)
    if isinstance(said, str):
        raise BenchmarkError(f"a process of a peer has failed:\n{said}")
    return said


def _serve(job: Job, starter: Starter) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # Bytewax tells there that it retries to connect
    os.dup2(nowhere, 2)
    gc.freeze()  # as in Sunshower's workers: Bytewax gains 10 to 20 % by it
    gc.set_threshold(100_000, 20, 50)
    try:
        starter._post.put(job(starter))
    except BaseException:
        starter._post.put(traceback.format_exc())
