"""The rows of a batch with the least or greatest values of a field.

Storm: org.apache.storm.trident.operation.builtin.MinWithComparator, MaxWithComparator, FirstN.
"""

from __future__ import annotations

import heapq
from typing import Any

from sunshower.records import Schema
from sunshower.topologies.operators.port import Attempt, Emit, Rows
from sunshower.topologies.operators.steps import BaseOperator


class Ranking(BaseOperator):
    """Emits the `n` rows with the greatest (or least) values of a field, in that order. It runs
    twice: on the rows of each task, and on the results of these."""

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
