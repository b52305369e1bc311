"""Random tests of batch groups: each seed draws a group, its faults, and those of its store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from sunshower.config import Internals
from sunshower.errors import ClusterError, StoreUnreachable
from sunshower.runtime.events.injected_faults import InjectedFaults, Raise, SlowTask
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster, SimRun
from sunshower.state.tree import MemoryForest, MemoryTree, Tree
from sunshower.trident.stages.plan import Skip
from sunshower.trident.states.factories import MemoryState
from tests.simulation.swarm import FAULTS as ANY_FAULTS
from tests.trident.rigs.group_rig import Hook, Numbers, OpaqueNumbers, Rig, Shared
from tests.trident.rigs.programs import heal
from tests.trident.rigs.real_states import InState

TOTAL = 40
FAULT_COUNT = 6
SETTINGS = {
    "internals": Internals(
        sweep_grace_s=0.2,
        peer_link_retry_s=0.2,
        restart_backoff_s=0.05,
        task_backoff_s=0.05,
        idle_poll_s=0.02,
    ),
    "deaths_max": 1_000,
    "task_errors_max": 1_000,
}


@dataclass
class UnreliableStore(Shared):
    """A store in memory that sometimes does not answer, before or after it has written."""

    draw: Random
    share: float = 0.0  # of the writes
    forest: MemoryForest = field(default_factory=MemoryForest)

    def __call__(self) -> Tree:
        return UnreliableTree(self)

    def maybe_fail(self) -> None:
        if self.share and self.draw.random() < self.share:
            raise StoreUnreachable("the store does not answer")


class UnreliableTree(MemoryTree):
    def __init__(self, store: UnreliableStore) -> None:
        super().__init__(store.forest)
        self.store = store

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
        self.store.maybe_fail()
        super().create(path, value, ephemeral=ephemeral)
        self.store.maybe_fail()

    def set(self, path: str, value: bytes, version: int | None = None) -> int:
        self.store.maybe_fail()
        written = super().set(path, value, version)
        self.store.maybe_fail()
        return written

    def delete(self, path: str, version: int | None = None) -> None:
        self.store.maybe_fail()
        super().delete(path, version)
        self.store.maybe_fail()


class Pacing(Hook):
    """Makes each step take a while, so that faults hit the middle of batches."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, step: str, attempt: object, context: object) -> None:
        if context is not None:
            context.clock.sleep(self.seconds)  # type: ignore[attr-defined]


def errors(run: SimRun, draw: Random) -> None:
    component = draw.choice(("numbers", "middle", "counts", "after"))
    run.disturb(InjectedFaults(raises=(Raise(component=component, probability=draw.random() / 4),)))


def slowness(run: SimRun, draw: Random) -> None:
    component = draw.choice(("numbers", "middle", "counts"))
    run.disturb(InjectedFaults(slows=(SlowTask(component=component, seconds=draw.random() / 20),)))


def other_tasks(run: SimRun, draw: Random) -> None:
    """Other numbers of tasks, while batches are open: not of `counts` if its values cannot move."""
    names = ["middle"]
    if run.plan.graph.components["counts"].implementation.operators[0].database.moves:
        names.append("counts")
    tasks = {name: draw.randint(1, 3) for name in draw.sample(names, k=draw.randint(1, len(names)))}
    run.rebalance(tasks=tasks, wait_s=draw.choice((0.0, 0.3, None)), waits=False)


FAULTS: dict[str, Callable[[SimRun, Random], object]] = {
    **{kind: fault for kind, fault in ANY_FAULTS.items() if kind not in ("errors", "slowness")},
    "errors": errors,
    "slowness": slowness,
    "other tasks": other_tasks,
}


def faulty_run(seed: int) -> tuple[SimRun, Rig]:
    """A run that had some faults and has none any more; it need not have finished."""
    draw = Random(seed)
    hook, store = Pacing(draw.choice((0.002, 0.02))), UnreliableStore(Random(seed + 1))
    size = draw.choice((2, 3, 7))
    spout = Numbers(TOTAL, size, hook) if seed % 2 else OpaqueNumbers(TOTAL, size, hook)
    rig = Rig(spout, hook, store, draw.choice((1, 2, 4)), skip=Skip(attempts=1_000))
    if seed // 2 % 2:
        rig.database = InState(MemoryState(), moves=True)
    rig.emitters, rig.writers = draw.choice((1, 2)), draw.choice((1, 2, 3))
    cluster = SimCluster(seed, nodes=1 + seed % 3 // 2, check=True)
    graph = rig.topology(workers=draw.choice((2, 3)), **SETTINGS).graph()
    run = cluster.submit(graph, draw.choice((Layout.PACK, Layout.PACK, Layout.ISOLATE)))
    faults = draw.sample(list(FAULTS), k=draw.randint(1, len(FAULTS)))
    for _ in range(FAULT_COUNT):
        run.wait(draw.expovariate(4.0))
        store.share = draw.choice((0.0, 0.0, 0.1))
        with suppress(ClusterError):  # the target of the fault is dead already
            FAULTS[draw.choice(faults)](run, draw)
    store.share = 0.0
    heal(run)
    return run, rig


def judge(seed: int) -> str:
    """Run a seed, and return what was wrong; empty if nothing was."""
    try:
        run, rig = faulty_run(seed)
        if not run.wait(120.0):
            return "it does not end"
        rig.check()
    except AssertionError as error:
        return f"wrong: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
