"""Commits beside the work, one at a time in a thread: a broker that is away stops nobody."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

from sunshower.errors import StaleGeneration, SunshowerError
from sunshower.kafka.partitions import Committed, Offsets, Partition

_LOG = logging.getLogger("sunshower.kafka")


class Committer:
    """Writes into `offsets`, and remembers what is kept there. `stale`: commits that were refused,
    because the partitions had changed hands; `failed`: those that did not get through."""

    def __init__(self, offsets: Offsets) -> None:
        self.kept: dict[Partition, Committed] = {}
        self.commits = self.stale = self.failed = 0
        self._offsets = offsets
        self._thread = ThreadPoolExecutor(1, "commits")
        self._wanted: dict[Partition, Committed] = {}
        self._underway: Future[None] | None = None

    def begin(self, wanted: Mapping[Partition, Committed]) -> None:
        """Write what is not kept yet; if a write is under way, leave it for the next time."""
        self._hear()
        new = {p: one for p, one in wanted.items() if self.kept.get(p) != one}
        if self._underway is None and new:
            self._wanted = new
            self._underway = self._thread.submit(self._offsets.write, new)

    def finish(self, wanted: Mapping[Partition, Committed], within_s: float) -> bool:
        """The same, and wait for it. Returns whether all of it is kept."""
        for _ in range(2):  # first for what is under way
            self.begin(wanted)
            if self._underway is not None:
                wait([self._underway], within_s)
                self._hear()
        return all(self.kept.get(partition) == one for partition, one in wanted.items())

    def forget(self, partition: Partition) -> None:
        """Somebody else may write it from now on."""
        self.kept.pop(partition, None)

    def close(self) -> None:
        """Let a write that hangs be; it ends with its client."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _hear(self) -> None:
        """Note what has become of the last write."""
        if self._underway is None or not self._underway.done():
            return
        done, self._underway = self._underway, None
        try:
            done.result()
        except StaleGeneration as error:
            self.stale += 1
            _LOG.warning("a commit is refused: %s", error)
        except SunshowerError as error:
            self.failed += 1
            _LOG.warning("a commit has failed, and is tried again: %s", error)
        else:
            self.commits += 1
            self.kept.update(self._wanted)
