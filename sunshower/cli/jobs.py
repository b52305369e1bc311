"""Work shared out among processes of our own, none of which outlives us."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar

from sunshower.cli.hashes import HASH_SEED

T = TypeVar("T")


class Jobs:
    """So many processes. Use it as a context manager: at its end they are gone, busy or not.

    Each runs `start` first. Where nobody has chosen a seed for the hashes of strings, they all have
    the same, so that user code that goes through a set does the same each time.
    """

    def __init__(self, count: int, start: Callable[[], None]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(count, context, start)
        self._had_seed = HASH_SEED in os.environ
        self._before = set(multiprocessing.active_children())
        self.pending: dict[Future[Any], Any] = {}  # what is not done → its argument

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
        """The results in the order in which they come. Raises what one of them raises.

        `quiet` is called whenever none has come for `quiet_s`, with what is being worked on.
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
        """The arguments that are being worked on."""
        return [argument for future, argument in self.pending.items() if future.running()]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._had_seed:
            del os.environ[HASH_SEED]
        children = set(multiprocessing.active_children()) - self._before
        for child in children:
            child.kill()
        # Its own thread must be over before Python's end looks for it: it would find closed files.
        self._pool.shutdown(wait=True, cancel_futures=True)
        for child in children:
            child.join()


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))
