"""Random tests of recognised states: each seed draws a program, its faults and its restarts.

Processes die between a state's write and its note, writes come late or twice, tasks move, and the
program is stopped and started again with another number of tasks. In none of these cases may the
state be refused.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from sunshower import Topology
from sunshower.errors import ClusterError, StateMismatch
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster, SimRun
from sunshower.simulation.worker import Killed
from sunshower.state import MemoryState
from sunshower.state.tree import Tree
from sunshower.trident import Skip, StateKind, batches, count
from tests.simulation.swarm import FAULTS as ANY_FAULTS
from tests.trident.rigs.batch_swarm import SETTINGS, UnreliableStore, UnreliableTree
from tests.trident.rigs.numbers import OpaqueRowBatches, RowBatches, items
from tests.trident.rigs.programs import heal
from tests.trident.rigs.unsure import Troubles, UnsureState

TOTAL, KEYS = 48, 5
COUNTS = Counter(number % KEYS for number in range(TOTAL))
FAULTS = {kind: fault for kind, fault in ANY_FAULTS.items() if kind not in ("errors", "slowness")}
SHARE = 0.1  # the probability that a process dies before or after it writes a note


@dataclass
class CrashingStore(UnreliableStore):
    """A store of batches whose clients die before or after they write the note of a state."""

    deaths: int = 0

    def __call__(self) -> Tree:
        return CrashingTree(self)

    def die(self, path: str) -> None:
        if "/states/" in path and self.share and self.draw.random() < SHARE:
            self.deaths += 1
            raise Killed


class CrashingTree(UnreliableTree):
    store: CrashingStore

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
        self.store.die(path)
        super().create(path, value, ephemeral=ephemeral)
        self.store.die(path)

    def set(self, path: str, value: bytes, version: int | None = None) -> int:
        self.store.die(path)
        written = super().set(path, value, version)
        self.store.die(path)
        return written


class Program:
    """The program of a seed, which may be submitted several times."""

    def __init__(self, seed: int) -> None:
        self.seed, self.draw = seed, Random(seed)
        self.kind = (StateKind.OPAQUE, StateKind.TRANSACTIONAL)[seed % 2]
        self.state = UnsureState(MemoryState(self.kind), Troubles(Random(seed), 0.2))
        self.store = CrashingStore(Random(seed + 1))
        self.tasks, self.size = self.draw.choice((1, 2, 3)), self.draw.choice((1, 2, 5))

    def submit(self) -> SimRun:
        """Start it, with random numbers of spout tasks and workers."""
        spout_class = RowBatches if self.kind is StateKind.TRANSACTIONAL else OpaqueRowBatches
        spout = spout_class(items(TOTAL, KEYS), self.size, partitions=3)
        draw, topology = self.draw, Topology("recognised", **self._settings())
        stream = batches(
            topology,
            "numbers",
            spout,
            draw.choice((1, 2, 3)),
            store=self.store,
            max_batches=draw.choice((1, 2, 4)),
            interval_s=draw.choice((0.0, 0.05)),
            skip=Skip(attempts=10_000),
        )
        grouped = stream.shuffle(parallelism=2).group_by("key")
        grouped.aggregate(count(), state=self.state, parallelism=self.tasks, name="counts")
        cluster = SimCluster(draw.randrange(10**6), nodes=draw.choice((1, 2)), check=True)
        return cluster.submit(topology.graph(), draw.choice((Layout.PACK, Layout.ISOLATE)))

    def _settings(self) -> dict[str, Any]:
        return SETTINGS | {"workers": self.draw.choice((1, 2, 3))}

    def disturb(self, run: SimRun, times: int) -> None:
        """Cause random faults and rebalances, then end all faults."""
        draw = self.draw
        for _ in range(times):
            self.store.share = draw.choice((0.0, 0.05))
            run.wait(draw.expovariate(6.0))
            with suppress(ClusterError):  # the target is dead, or the run has finished
                if draw.random() < 0.2:
                    run.rebalance(draw.choice((1, 2, 3)), wait_s=0.5)
                else:
                    FAULTS[draw.choice(sorted(FAULTS))](run, draw)
        self.heal(run)

    def heal(self, run: SimRun) -> None:
        self.store.share = 0.0
        heal(run)

    @property
    def counts(self) -> dict[Any, Any]:
        self.state.troubles.calm()
        return dict(self.state.items("counts"))


def judge(seed: int) -> str:
    """Run a seed, and return what was wrong; empty if nothing was."""
    program = Program(seed)
    try:
        run = program.submit()
        program.disturb(run, 4)
        with suppress(ClusterError):  # it has finished
            run.kill(0.0)
        run = program.submit()
        program.disturb(run, 3)
        if not run.wait(300.0):
            return f"it does not end: {run._describe()}"
        if program.counts != COUNTS:
            return f"wrong: {program.counts}"
    except StateMismatch as error:
        return f"refused: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
