"""Publishes the committed batches of a step, in a Spark job of its own."""

from __future__ import annotations

import logging
from contextlib import suppress

from sunshower.clock import Clock
from sunshower.errors import SparkError, Unavailable
from sunshower.spark_integration.sessions.spark_port import BatchInfo, Publication
from sunshower.spark_integration.submissions import Submission, Submissions

_LOG = logging.getLogger("sunshower.spark")
_DRAIN_S, _LOOK_S = 25.0, 0.05  # at the end; workers have 29 s to close their tasks
_BEHIND_MAX = 1  # committed batches that are not published; others wait


class Publisher:
    """Publishes all batches before `current`, at first those of former lives of the task. At most
    one job runs; the next one covers all batches that were committed meanwhile."""

    def __init__(self, submissions: Submissions, batches: str, current: int, clock: Clock) -> None:
        self._submissions, self._batches, self._clock = submissions, batches, clock
        self._current, self._done = current, 0  # batches before it: committed, published
        self._job: Submission | None = None
        self._submit()

    def publish(self, txid: int) -> None:
        """Publish the batches up to `txid`, soon; `poll` raises what goes wrong."""
        self._current = max(self._current, txid + 1)
        try:
            self.poll()
        except SparkError as error:  # a later call tries again
            _LOG.warning("batch %d is shown later: %s", txid, error)

    def poll(self) -> bool:
        """Continue. Returns whether another batch may begin: a job has ended, so that the tables
        are known to be ours, and at most one committed batch is not published. Raises SparkError,
        also SparkUnavailable; a later call tries again."""
        if self._job is None and self._done < self._current:
            self._submit()
        if self._job is not None and self._has_ended(self._job):
            publication = self._job.batch.publish
            assert publication is not None
            self._done, self._job = publication.current, None
            if self._done < self._current:
                self._submit()
        return self._done > 0 and self._current - self._done <= _BEHIND_MAX

    def drain(self) -> None:
        """Wait until everything is published, at most 25 s. Raises SparkError."""
        end_s = self._clock.now() + _DRAIN_S
        while self._done < self._current and self._clock.now() < end_s:
            with suppress(Unavailable):
                self.poll()
            self._clock.sleep(_LOOK_S)

    def _submit(self) -> None:
        publication = Publication(self._batches, self._current)
        batch = BatchInfo(f"up to {self._current - 1}", 0, publish=publication)
        self._job = self._submissions.add([], batch)

    def _has_ended(self, job: Submission) -> bool:
        try:
            return job.poll()
        except Unavailable:
            raise
        except BaseException:
            self._job = None
            raise
