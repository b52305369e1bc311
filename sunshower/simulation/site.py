"""What all processes of one simulated run have in common, and what outlives them."""

from __future__ import annotations

from dataclasses import dataclass, field
from mmap import mmap
from typing import TYPE_CHECKING

from sunshower.runtime.history import Entry
from sunshower.runtime.luggage import Luggage
from sunshower.runtime.plan import Plan
from sunshower.simulation.conditions import Conditions
from sunshower.simulation.network import Network
from sunshower.simulation.world import World
from sunshower.stores.memory import MemoryStore

if TYPE_CHECKING:
    import numpy as np


class Marked(dict[int, int]):
    """The fences of all spout tasks, kept where no machine's end reaches them."""

    def read(self, task: int) -> int:
        """See Marks."""
        return self.get(task, 0)

    def write(self, task: int, number: int) -> None:
        """See Marks."""
        self[task] = number


@dataclass(frozen=True)
class Site:
    """One run's share of the world."""

    world: World
    conditions: Conditions
    network: Network
    generator: np.random.Generator  # of all workers: one thread, one seed
    plan: Plan  # as submitted
    sample: int | None  # None: no history is kept
    check: bool  # look at the invariants of every worker after each slice of its work
    store: MemoryStore = field(default_factory=MemoryStore)  # the master's book
    luggage: dict[tuple[int, int], Luggage] = field(default_factory=dict)  # (move, task) → copies
    marks: Marked = field(default_factory=Marked)
    boxes: dict[int, tuple[str, mmap]] = field(default_factory=dict)  # worker → node, black box
    entries: list[list[Entry]] = field(default_factory=list)  # the history, by process
