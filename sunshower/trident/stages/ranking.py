"""The first rows of a batch by the value of a field: least, greatest, or the top ones.

Storm: org.apache.storm.trident.operation.builtin.MinWithComparator, MaxWithComparator, FirstN.
"""

from __future__ import annotations

import heapq
from typing import Any

from sunshower.records import Schema
from sunshower.trident.attempts import Attempt
from sunshower.trident.stages.port import Emit, Rows
from sunshower.trident.stages.steps import Step


class Ranking(Step):
    """The `n` rows with the greatest (or least) values of a field, in that order.

    It runs twice: over the rows of each task, and over what those have left.
    """

    def __init__(self, schema: Schema, field: str, n: int, *, greatest: bool) -> None:
        self.key, self.n = schema.key([field]), n
        self.greatest = greatest

    def start(self, attempt: Attempt) -> list[Any]:
        return []

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        choose = heapq.nlargest if self.greatest else heapq.nsmallest
        batch[:] = choose(self.n, [*batch, *rows], key=self.key)

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        if batch:
            emit(batch)
