"""Starts the plain processes of a peer's run, which begin their work at the same time."""

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

from benchmarks.measure import BenchmarkError, Outcome
from benchmarks.start_signal import StartSignal

_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Starter:
    """Given to each job: reports that the job is ready, and waits for the start signal."""

    signal: StartSignal
    _queue: Any

    def ready(self) -> None:
        """Report that everything is prepared; a job of several parts does so for each part."""
        self._queue.put(None)

    def wait(self) -> float:
        """Report ready, and sleep until the start signal. Returns the time of the return."""
        self.ready()
        self.signal.wait()
        return time.monotonic()


Job = Callable[[Starter], Outcome]


def run_together(jobs: Sequence[Job], folder: Path, ready: int | None = None) -> Outcome:
    """Run each job (a function that can be pickled) in a process of its own. The start signal is
    sent after `ready` reports, by default one for each job. Returns the sum of all outcomes."""
    context = mp.get_context("spawn")
    queue = context.Queue()
    signal = StartSignal(folder)
    processes = [
        context.Process(target=_run_job, args=(job, Starter(signal, queue)), daemon=True)
        for job in jobs
    ]
    for process in processes:
        process.start()
    try:
        for _ in range(ready or len(jobs)):
            _receive(queue)
        signal.send()
        outcomes: list[Outcome] = [_receive(queue) for _ in jobs]
        for process in processes:
            process.join(_TIMEOUT_S)
    finally:
        for process in processes:
            process.kill()
    return sum(outcomes[1:], outcomes[0])


def _receive(queue: Any) -> Any:
    message = queue.get(timeout=_TIMEOUT_S)
    if isinstance(message, str):
        raise BenchmarkError(f"a process of a peer has failed:\n{message}")
    return message


def _run_job(job: Job, starter: Starter) -> None:
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)  # Bytewax prints there that it retries to connect
    os.dup2(devnull, 2)
    gc.freeze()  # as in Sunshower's workers: Bytewax is 10 to 20 % faster with it
    gc.set_threshold(100_000, 20, 50)
    try:
        starter._queue.put(job(starter))
    except BaseException:
        starter._queue.put(traceback.format_exc())
