"""Drives a batch spout by hand, batch after batch, with a store in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sunshower.clock import Clock, ManualClock
from sunshower.state.tree import MemoryForest, MemoryTree
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt
from sunshower.trident.declaration.declare import as_trident_spout

PATH = "/transactional/s"


class CollectedRows:
    """Collects the rows that are emitted."""

    records_max: int | None = None
    is_skipped = False

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def emit(self, rows: Sequence[Any]) -> None:
        self.rows += rows


class Drive:
    """A coordinator and the emitters of some tasks, called as a batch group calls them."""

    def __init__(
        self,
        spout: Any,
        tasks: int = 1,
        forest: MemoryForest | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.spout = as_trident_spout(spout)
        self.tree = MemoryTree(forest or MemoryForest())
        self.clock = clock or ManualClock()
        self.tasks = tasks
        self.metadata: dict[int, Any] = {}
        self.coordinator = self.spout.coordinator(
            self.tree, f"{PATH}/coordinator", self.context("$mastercoord-g", 0, 1)
        )
        self.emitters = [self.emitter(index) for index in range(tasks)]

    def context(self, component: str, index: int, tasks: int) -> Context:
        return Context("t", component, index, index, tasks, clock=self.clock)

    def emitter(self, index: int) -> Any:
        """A new life of a task; the former one is not closed."""
        context = self.context("s", index, self.tasks)
        return self.spout.emitter(self.tree, f"{PATH}/user", context)

    def restart(self, index: int = 0) -> None:
        self.emitters[index] = self.emitter(index)

    def close(self) -> None:
        self.coordinator.close()
        for emitter in self.emitters:
            emitter.close()

    def order(self, txid: int) -> Any:
        """The metadata that the coordinator gives a batch."""
        before = [at for at in self.metadata if at < txid]
        previous = self.metadata[max(before)] if before else None
        self.metadata[txid] = self.coordinator.initialize(txid, previous, self.metadata.get(txid))
        return self.metadata[txid]

    def emit(self, txid: int, attempt: int = 0) -> list[Any]:
        """Emit a batch in all tasks, and return its rows."""
        metadata, taken = self.order(txid), CollectedRows()
        for emitter in self.emitters:
            emitter.emit_batch(Attempt(txid, attempt, 1), metadata, taken)
        return taken.rows

    def commit(self, txid: int, attempt: int = 0) -> None:
        for emitter in self.emitters:
            if self.spout.commits:
                emitter.commit(Attempt(txid, attempt, 1))

    def success(self, txid: int, attempt: int = 0) -> None:
        self.coordinator.success(txid)
        for emitter in self.emitters:
            emitter.success(Attempt(txid, attempt, 1))

    def batch(self, txid: int, attempt: int = 0) -> list[Any]:
        """Run a batch from beginning to end, and return its rows."""
        rows = self.emit(txid, attempt)
        self.commit(txid, attempt)
        self.success(txid, attempt)
        return rows

    def tree_says(self, txid: int) -> None:
        """Store the first txid that is not committed, as the master does."""
        node = f"{PATH}/coordinator/currtx"
        if self.tree.get(node) is None:
            self.tree.create(node, str(txid).encode())
        else:
            self.tree.set(node, str(txid).encode())

    def is_last(self, txid: int) -> bool:
        """Ask a coordinator of its own, as the master has."""
        context = self.context("$mastercoord-g", 0, 1)
        asked = self.spout.coordinator(self.tree, f"{PATH}/coordinator", context)
        try:
            return asked.is_last(self.metadata[txid])
        finally:
            asked.close()

    def run(self, batches_max: int = 100) -> list[list[Any]]:
        """Run all batches to the last, and return the rows of each."""
        batches = []
        for txid in range(1, batches_max + 1):
            batches.append(self.batch(txid))
            if self.is_last(txid):
                break
        return batches
