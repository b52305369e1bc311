"""A fake cluster and a fake run for tests of their callers: no topology runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sunshower.errors import ClusterError, LifecycleError
from sunshower.experiments.experiment import relayed
from sunshower.runtime.control.placement import placed, replan
from sunshower.runtime.events.event_log import Entry
from sunshower.runtime.events.injected_faults import InjectedFaults
from sunshower.runtime.events.metrics import Counts, Snapshot, TaskStats, WorkerStats
from sunshower.runtime.plan import Layout, Plan, make_plan
from sunshower.topologies.graph import Graph


class FakeRun:
    """A run in which time passes only in `wait`; it records each call with its time.

    `ends_s`: when the run is finished. `away`: how many of the next faults find no process.
    `raises`: a time, and the error that waiting raises from then on. `refuses`: the call that
    always fails.
    """

    def __init__(
        self,
        plan: Plan | None = None,
        *,
        ends_s: float = 1000.0,
        away: int = 0,
        raises: tuple[float, Exception] | None = None,
        refuses: str = "",
        entries: Sequence[Entry] = (),
    ) -> None:
        self.plan = plan or make_plan(relayed(parallelism=2, ackers=2).graph(), Layout.ISOLATE)
        self.at_s = 50.0
        self.begun_s = self.at_s
        self.done: list[tuple[float, str]] = []
        self.injected_list: list[InjectedFaults] = []
        self.ends_s, self.away, self.raises, self.refuses = ends_s, away, raises, refuses
        self.entries = list(entries)
        self.stopped = False
        self.emitted = 0
        self.refuses_moves = False
        self.watch: Callable[[], None] = lambda: None

    @property
    def seconds(self) -> float:
        return round(self.at_s - self.begun_s, 6)

    def note(self, words: str) -> None:
        if self.away > 0:
            self.away -= 1
            raise ClusterError("its process is not running")
        if words == self.refuses:
            raise ClusterError("it cannot be done")
        self.done.append((self.seconds, words))

    # ---- the methods of a run --------------------------------------------------------------

    def now(self) -> float:
        return self.at_s

    def finished(self) -> bool:
        if self.raises is not None and self.seconds >= self.raises[0]:
            raise self.raises[1]
        return self.seconds >= self.ends_s

    def wait(self, timeout_s: float | None = None) -> bool:
        end_s = self.ends_s if self.raises is None else min(self.ends_s, self.raises[0])
        left_s = max(0.0, end_s - self.seconds)
        self.at_s += left_s if timeout_s is None else min(timeout_s, left_s)
        self.watch()
        return self.finished()

    def snapshot(self) -> Snapshot:
        spout = TaskStats(1, "numbers", Counts(emitted=self.emitted))
        return Snapshot("fake", {0: WorkerStats(0, 1, (spout,))})

    def kill_worker(self, worker: int) -> int:
        self.note(f"kill worker {worker}")
        return 1

    def kill_master(self) -> int:
        self.note("kill the master")
        return 1

    def pause_worker(self, worker: int) -> None:
        self.note(f"pause worker {worker}")

    def resume_worker(self, worker: int) -> None:
        self.note(f"resume worker {worker}")

    def pause_master(self) -> None:
        self.note("pause the master")

    def resume_master(self) -> None:
        self.note("resume the master")

    def nodes(self) -> dict[str, list[int]]:
        return {"far": [2, 3], "near": [0, 1]}

    def kill_node(self, node: str) -> list[int]:
        self.note(f"kill node {node}")
        return [1, 2]

    def disturb(self, injected: InjectedFaults) -> None:
        self.note("disturb" if injected else "heal")
        self.injected_list.append(injected)

    def history(self) -> list[Entry]:
        return self.entries

    def activate(self) -> None:
        self.done.append((self.seconds, "activate"))

    def drain(self) -> None:
        self.note("drain")

    def rebalance(
        self,
        workers: int | None = None,
        layout: Layout | None = None,
        wait_s: float | None = None,
        *,
        waits: bool = True,
    ) -> None:
        assert not waits, "the caller must not wait: only it resumes paused processes"
        if self.refuses_moves:
            raise LifecycleError("it is rebalancing")
        self.note(f"rebalance to {workers} workers")
        self.plan = placed(self.plan, replan(self.plan, workers, layout or Layout.PACK))

    def stop(self) -> None:
        self.stopped = True


class FakeCluster:
    """A cluster that returns the given run from each submit."""

    name = "fake"

    def __init__(self, run: FakeRun) -> None:
        self.run = run
        self.submitted: list[tuple[str, Layout, bool, int | None]] = []

    def submit(
        self,
        graph: Graph,
        layout: Layout = Layout.PACK,
        *,
        active: bool = True,
        sample: int | None = None,
    ) -> FakeRun:
        self.submitted.append((graph.id, layout, active, sample))
        self.run.plan = make_plan(graph, layout)
        return self.run
