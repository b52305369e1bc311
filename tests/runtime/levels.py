"""Spouts and bolts of every level; each bolt emits each number twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from sunshower import (
    BatchBolt,
    Bolt,
    Collector,
    Context,
    Derived,
    Retry,
    Spout,
    SpoutCollector,
    Topology,
    Tuple,
)
from tests.runtime.rig import Number, sink

COUNT = 12
BAD = 5


class Rows(Spout[Number]):
    def records(self) -> Iterator[Number]:
        return map(Number, range(COUNT))


class Columns(Spout[Any]):
    emits = Number

    def tables(self) -> Iterator[pa.Table]:
        yield pa.table({"n": range(COUNT)})


class Own(Spout[Number]):
    """Has its own message ids; every third record is untracked."""

    def open(self, context: Context) -> None:
        self.left = iter(range(COUNT))

    def next_tuple(self, out: SpoutCollector[Number]) -> None:
        n = next(self.left, None)
        if n is None:
            out.finish()
        else:
            out.emit(Number(n), None if n % 3 == 0 else f"id {n}")


class FailsOnce:
    """Raises for BAD the first time; all copies of it share the memory."""

    def __init__(self) -> None:
        self.failed = False

    def __deepcopy__(self, memo: object) -> FailsOnce:
        return self

    def look(self, numbers: list[int]) -> None:
        if BAD in numbers and not self.failed:
            self.failed = True
            raise ValueError("no 5")


class Automatic(FailsOnce, Bolt[Number, Number]):
    def process(self, record: Number) -> Iterator[Number]:
        yield record
        self.look([record.n])
        yield record


class Manual(FailsOnce, Bolt[Number, Number]):
    def execute(self, tuple: Tuple[Number], out: Collector[Number]) -> None:
        out.emit(tuple.record, tuple)
        if tuple.record.n == BAD and not self.failed:
            self.failed = True
            out.fail(tuple, "no 5")
        else:
            out.emit(tuple.record, tuple)
            out.ack(tuple)


class Table(FailsOnce, BatchBolt[Number, Number]):
    emits = Number

    def process(self, table: pa.Table) -> Derived:
        self.look(table["n"].to_pylist())
        parents = np.repeat(np.arange(len(table)), 2)
        return Derived(table.take(parents), parents)


def chain(spout: Any, bolt: Any, **settings: Any) -> Topology:
    """The topology spout ──▶ bolt ──▶ sink, without a sink if the bolt emits nothing."""
    defaults = {"ackers": 1, "workers": 1, "spout_pending": 32_768}
    topology = Topology("t", **{**defaults, **settings})
    numbers = topology.spout("numbers", spout, retry=Retry(initial_s=0.1))
    outputs = numbers.shuffle().bolt("bolt", bolt)
    if topology.component("bolt").streams:
        outputs.shuffle().bolt("sink", sink)
    return topology
