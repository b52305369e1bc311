"""Takes rows out of their batches: an ordinary bolt whose stream any bolt may read.

    stage ──parts──▶ RecordsBolt ──a tuple for each row──▶ ordinary bolts

Each row is anchored to its part, so the batch waits until all rows are acked. There are no Counts,
because nothing finishes batches there. Storm:
org.apache.storm.trident.topology.TridentBoltExecutor, streams outside of batch groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sunshower.records import Schema
from sunshower.topologies.components import Bolt, Stateless
from sunshower.trident.coordination.attempts import Part


class RecordsBolt(Stateless, Bolt[Part, Any]):
    """Emits the rows of parts."""

    __sunshower_batches__ = True  # its tasks cannot change while they run

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def process(self, record: Part) -> Iterable[Any]:
        return self._schema.records(record.rows)
