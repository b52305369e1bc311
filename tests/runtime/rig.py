"""The tasks of a topology in one worker; tests call them by hand.

Batches that a task sends are in the inbox of their receiver; its reports are in `reports`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import reduce
from operator import xor
from typing import Any, NamedTuple

import numpy as np

from sunshower import Topology
from sunshower.failures import Failure
from sunshower.runtime.plan import Layout, Task, make_plan
from sunshower.runtime.tasks.user_code import context
from sunshower.runtime.tasks.wiring import wire
from sunshower.runtime.tracking.batch import Batch

ROOT = 1 << 48 | 1 << 24  # plus a slot


class Word(NamedTuple):
    word: str


class Number(NamedTuple):
    n: int


def sink(record: Any) -> None: ...


class Rig:
    """Every task of `topology`, opened and prepared."""

    def __init__(self, topology: Topology, seed: int = 0, *, adapts: bool = False) -> None:
        """`adapts`: `spout_pending` is the one of the topology; otherwise it is the number of
        slots."""
        graph = topology.graph()
        config = replace(graph.config, workers=1)
        if not adapts:
            config = replace(config, spout_pending=config.spout_slots)
        graph = replace(graph, config=config)
        self.plan = make_plan(graph, Layout.PACK)
        self.wired = wire(self.plan, 0, 1, np.random.default_rng(seed), {})
        for spout in self.wired.spouts.values():
            spout.open(context(self.plan, spout.task))
        for bolt in self.wired.bolts.values():
            bolt.prepare(context(self.plan, bolt.task))
        for channel in self.wired.channels.values():
            channel.window = 1_000
        self._inputs = np.random.default_rng(seed + 1)

    def task(self, component: str, index: int = 0) -> Task:
        return self.plan.tasks_of(component)[index]

    def spout(self, component: str) -> Any:
        return self.wired.spouts[self.task(component).id]

    def bolt(self, component: str) -> Any:
        return self.wired.bolts[self.task(component).id]

    def batch(
        self, component: str, records: Any, *trees: list[int], stream: str = "default"
    ) -> Batch:
        """Records as `component` sends them; `trees` are the slots of each record's roots.

        Without `trees` record i belongs to the tree of slot i; edges are drawn.
        """
        slots = list(trees) or [[slot] for slot in range(len(records))]
        roots = np.array([ROOT + slot for tree in slots for slot in tree], np.uint64)
        edges = self._inputs.integers(1, 1 << 64, len(roots), dtype=np.uint64)
        offsets = np.cumsum([0, *map(len, slots)]) if any(len(s) != 1 for s in slots) else None
        index = self.plan.stream(component, stream).index
        return Batch(index, self.task(component).id, records, roots, edges, offsets)

    def untracked(self, component: str, records: Any, stream: str = "default") -> Batch:
        """Records without anchors."""
        return Batch(self.plan.stream(component, stream).index, self.task(component).id, records)

    def sent(self, component: str) -> list[Batch]:
        """Remove and return the batches in the inboxes of the tasks of a component."""
        batches = []
        for task in self.plan.tasks_of(component):
            entries = self.wired.inboxes[task.id].entries
            batches += [entry[0] for entry in entries]
            entries.clear()
        return batches

    def reports(self) -> ReportedTrees:
        """Remove and return the reports since the last call, by root."""
        return ReportedTrees(self.wired.reports.take().values())


class ReportedTrees:
    """Reports to the ackers, root by root."""

    def __init__(self, reports: Any) -> None:
        self.starts: dict[int, int] = defaultdict(int)
        self.acks: dict[int, int] = defaultdict(int)
        self.fails: dict[int, list[Failure]] = defaultdict(list)
        for report in reports:
            for xors_by_root, pairs in ((self.starts, report.starts), (self.acks, report.acks)):
                for roots, xors in pairs:
                    for root, value in zip(roots.tolist(), xors.tolist(), strict=True):
                        xors_by_root[root] ^= value
            for root, failure in report.fails:
                self.fails[root].append(failure)


def edges_by_root(batches: list[Batch]) -> dict[int, int]:
    """Root → XOR of all its edges in `batches`."""
    xors: dict[int, int] = defaultdict(int)
    for batch in batches:
        for root, edge in zip(batch.roots.tolist(), batch.edges.tolist(), strict=True):
            xors[root] ^= edge
    return xors


def records_of(batches: list[Batch]) -> list[Any]:
    """All records, in order."""
    return [record for batch in batches for record in batch.records]


def xor_of(*values: int) -> int:
    return reduce(xor, values, 0)


def balance(xors_by_root: dict[int, int], inputs: Batch, *outputs: list[Batch]) -> None:
    """The report on each tree is the XOR of its input edges and of its output edges."""
    assert dict(xors_by_root) == dict(
        edges_by_root([inputs, *(batch for group in outputs for batch in group)])
    )
