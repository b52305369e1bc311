"""Collects the rows that answer requests, beside the spout of the requests.

It runs in the same worker. A row is added to its request before it is acked, so all rows are there
when the tree is complete; the rows of an attempt that has failed are dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sunshower.errors import RequestFailed
from sunshower.failures import Failure
from sunshower.runtime.tasks.bolts.bolt_task import BoltTask
from sunshower.runtime.transport.batch import Anchors, Batch

if TYPE_CHECKING:
    from sunshower.runtime.tasks.spouts.request_source import RequestSource


class AnswerTask(BoltTask):
    """Passes rows on to `requests`. Rows that no request has caused are dropped."""

    requests: RequestSource

    def process(self, batch: Batch) -> Batch | None:
        self._begin_batch(batch)
        failures: dict[int, Failure] = {}
        anchors = Anchors(batch.roots, batch.offsets)
        schema = self._streams[batch.stream].spec.schema
        for index, row in enumerate(batch.rows(schema) if batch.tracked else ()):
            roots = batch.roots if batch.shared else anchors.select(slice(index, index + 1)).roots
            try:
                self.requests.add(roots, row)
            except RequestFailed as error:
                failures[index] = self.failure(error)
        made = np.zeros(len(batch.roots) if batch.shared else len(batch), np.uint64)
        self.settle(batch, made, failures)
        self._end_batch(len(batch))
        return None
