"""Commits offsets in the background, one write at a time, so that no write blocks the spout.

KafkaSpout.poll decides when, partition_progress.py up to which offset. The write itself is in
partitions/broker_offsets.py for Kafka's consumer groups, otherwise in
zookeeper/stored_offsets.py.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

from sunshower.errors import StaleGeneration, SunshowerError
from sunshower.kafka.partitions.ports import Committed, Offsets, Partition

_LOG = logging.getLogger("sunshower.kafka")

Wanted = Mapping[Partition, Committed]


class Committer:
    """Writes to `offsets` and keeps the last written value of each partition in `kept`.

    `stale` counts commits that were refused because the partitions had been reassigned; `failed`
    counts commits that failed otherwise. A thread runs the write where a store has no `write_soon`.
    """

    def __init__(self, offsets: Offsets) -> None:
        self.kept: dict[Partition, Committed] = {}
        self.commits = self.stale = self.failed = 0
        self._offsets = offsets
        self._thread = ThreadPoolExecutor(1, "commits")
        self._submitted: Future[None] | None = None  # the last write submitted to the thread
        self._underway: tuple[Future[None], Wanted] | None = None

    def begin(self, wanted: Wanted) -> None:
        """Start a write of the changed offsets; do nothing while a write is in progress."""
        if self._underway is not None and self._underway[0].done():
            underway, self._underway = self._underway, None
            self._record_outcome(*underway)
        new = self._new(wanted)
        if self._underway is None and new:
            self._underway = self._offsets.write_soon(new) or self._in_thread(new), new

    def send(self, wanted: Wanted, within_s: float) -> bool:
        """Write the changed offsets also if an older write is in progress: the last ones before
        partitions are given away, or the spout closes. Returns False if some are not stored.

        Kafka's client completes a commit before either, so this does not wait for its answer, which
        may not come during an outage. For other stores it waits.
        """
        new = self._new(wanted)
        write = self._offsets.write_soon(new) if new else None
        if write is None:
            return self.finish(wanted, within_s)
        self._underway = write, new
        return True

    def finish(self, wanted: Wanted, within_s: float) -> bool:
        """Write the changed offsets and wait. Returns whether all of `wanted` is stored."""
        if self._underway is not None:
            write, new = self._underway
            if write is self._submitted:  # the single thread runs it first, and it may hang
                wait([write], within_s)
                if not write.done():
                    return False
            self._underway = None  # an unfinished write carries older offsets: ignore its result
            if write.done():
                self._record_outcome(write, new)
        if new := self._new(wanted):
            write = self._in_thread(new)
            wait([write], within_s)
            if write.done():
                self._record_outcome(write, new)
        return not self._new(wanted)

    def forget(self, partition: Partition) -> None:
        """Drop the stored value: another reader may commit this partition from now on."""
        self.kept.pop(partition, None)
        if self._underway is not None:  # a thread may read what it writes
            write, new = self._underway
            self._underway = write, {one: new[one] for one in new if one != partition}

    def close(self) -> None:
        """Stop the thread without waiting; a hanging write ends when its client is closed."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _new(self, wanted: Wanted) -> dict[Partition, Committed]:
        return {p: one for p, one in wanted.items() if self.kept.get(p) != one}

    def _in_thread(self, wanted: Wanted) -> Future[None]:
        self._submitted = self._thread.submit(self._offsets.write, wanted)
        return self._submitted

    def _record_outcome(self, done: Future[None], wanted: Wanted) -> None:
        """Record the outcome of a write."""
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
            self.kept.update(wanted)
