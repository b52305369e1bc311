"""A pool of processes that end with their parent and share one seed for string hashes."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any, Self, TypeVar

T = TypeVar("T")
HASH_SEED = "PYTHONHASHSEED"


class JobPool:
    """A context manager for `count` processes; at its end they are killed, even if busy.

    Each process calls `start` first. Unless PYTHONHASHSEED is set, all have the same seed for
    string hashes, so that user code iterates over a set in the same order each time.
    """

    def __init__(self, count: int, start: Callable[[], None]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(count, context, start)
        self._had_seed = HASH_SEED in os.environ
        self._before = set(multiprocessing.active_children())
        self.pending: dict[Future[Any], Any] = {}  # unfinished job → its argument

    def __enter__(self) -> Self:
        os.environ.setdefault(HASH_SEED, "0")
        return self

    def each(
        self,
        work: Callable[[Any], T],
        arguments: Iterable[Any],
        quiet: Callable[[list[Any]], None],
        quiet_s: float,
    ) -> Iterator[T]:
        """Yield the results of `work` as they arrive. Raises what a job raises.

        `quiet` is called with the arguments in work whenever no result arrives for `quiet_s`.
        """
        done = SimpleQueue[Future[T]]()
        self.pending = {self._pool.submit(work, argument): argument for argument in arguments}
        for future in list(self.pending):
            future.add_done_callback(done.put)
        while self.pending:
            try:
                future = done.get(timeout=quiet_s)
            except Empty:
                quiet(self.busy())
                continue
            del self.pending[future]
            yield future.result()

    def busy(self) -> list[Any]:
        """Return the arguments of the running jobs."""
        return [argument for future, argument in self.pending.items() if future.running()]

    def __exit__(self, *error: object) -> None:
        if not self._had_seed:
            del os.environ[HASH_SEED]
        children = set(multiprocessing.active_children()) - self._before
        for child in children:
            child.kill()
        # The pool's thread must end before the interpreter does, which would find closed files.
        self._pool.shutdown(wait=True, cancel_futures=True)
        for child in children:
            child.join()


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def restart_with_hash_seed() -> None:
    """Replace this process by the same command with PYTHONHASHSEED=0, unless that is set.

    Python reads the seed at its start only. Does not return if the process is replaced.
    """
    if HASH_SEED not in os.environ:
        environment = {**os.environ, HASH_SEED: "0"}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606
