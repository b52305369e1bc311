"""An endless source and bolts that are slower than it: what must hold for one seed."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.simulated.shapes import TIMEOUTS, Shape, draw_shape
from sunshower.errors import SunshowerError
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.plan import Plan
from sunshower.simulation.cluster import SimCluster, SimRun
from sunshower.simulation.worker import SimWorker

SPEED_MIN = 0.9  # of the speed of the slowest worker alone; a seed below this is slow
_SPEED_FLOOR = 0.7  # … and below this BROKEN
LATENCY_MAX = 1 / 3  # p99 complete latency in message timeouts, with an adaptive limit
_SAMPLES = 21  # samples of the queues, two in each timeout
_CALL_S = 1e-5
_GROWTH_MAX = 2.0  # of the queues, from the first half of a run to the second
_QUEUE_MIN = 1_000  # records in all queues that are always allowed


@dataclass
class Run:
    """The result of one seed."""

    shape: Shape
    seconds: float = 0.0
    acked: dict[str, int] = field(default_factory=dict)  # by spout
    failed: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    latency_s: float = 0.0  # p99, the worst spout's
    queued: list[int] = field(default_factory=list)  # records in all inboxes, sample by sample
    busy: dict[int, float] = field(default_factory=dict)  # worker → the fraction of time it works
    speed: float = 0.0  # of the slowest worker's speed alone; of the slowest spout
    error: str = ""

    @property
    def is_slow(self) -> bool:
        """Whether its speed is below that which most seeds must have."""
        return not self.error and self.speed < SPEED_MIN

    @property
    def complaints(self) -> list[str]:
        """What did not hold, one sentence each."""
        if self.error:
            return [f"the topology ended after {self.seconds:.0f} s: {self.error[:300]}"]
        runs = []
        if self.failed:
            runs.append(f"{self.failed:,} failures: {self.causes}")
        if self.speed < _SPEED_FLOOR:
            runs.append(f"{self.speed:.2f} of the speed of the slowest worker alone")
        # A fixed limit is the user's own choice.
        adapts = self.shape.settings.get("spout_pending", "auto") == "auto"
        limit_s = (LATENCY_MAX if adapts else 1.0) * self.shape.timeout_s
        if not self.latency_s <= limit_s:
            runs.append(f"p99 latency {self.latency_s:.1f} s, and {limit_s:.1f} s are allowed")
        half = len(self.queued) // 2
        early, late = max(self.queued[:half], default=0), max(self.queued[half:], default=0)
        if late > max(_QUEUE_MIN, _GROWTH_MAX * early):
            runs.append(f"the queues grew from {early:,} to {late:,} records")
        return runs


def run_overload(seed: int, records_max: int = 20_000) -> Run:
    """Run the topology of that seed for more than ten message timeouts of virtual time."""
    shape = draw_shape(seed, records_max)
    measured = Run(shape)
    with SimCluster(seed, drift=0.0, call_s=_CALL_S) as cluster:
        run = cluster.submit(shape.topology().graph(), shape.layout)
        begun_s = run.now()
        try:
            for _ in range(_SAMPLES):
                run.wait(TIMEOUTS * shape.timeout_s / _SAMPLES)
                measured.queued.append(queued(run))
            snapshot = run.snapshot()
        except SunshowerError as error:
            measured.error, measured.seconds = str(error), run.now() - begun_s
            return measured
        measured.seconds = run.now() - begun_s
        _add_results(measured, snapshot, run.plan)
    return measured


def queued(run: SimRun) -> int:
    """The number of records in all inboxes."""
    processes = run._env.network.there.values()
    cores = [
        process.core
        for process in processes
        if isinstance(process, SimWorker) and process.core is not None
    ]
    return sum(
        len(entry[0])
        for core in cores
        for inbox in core._wired.inboxes.values()
        for entry in inbox.entries
    )


def _add_results(run: Run, snapshot: Snapshot, plan: Plan) -> None:
    shape = run.shape
    run.busy = dict.fromkeys(plan.workers, 0.0)
    works = {spout.id: shape.work(plan, spout.id) for spout in shape.spouts}
    for spout, work in works.items():
        counts = snapshot.component(spout)
        run.acked[spout] = counts.acked
        run.failed += counts.failed
        for cause, count in counts.causes.items():
            run.causes[cause] = run.causes.get(cause, 0) + count
        for worker, seconds in work.items():
            run.busy[worker] += counts.acked * seconds / run.seconds
        latency_s = snapshot.latencies(spout).percentile(99) or float("inf")
        run.latency_s = max(run.latency_s, latency_s)
    # For each spout, the busiest worker that processes its records must be busy enough.
    run.speed = min(max(run.busy[w] for w, s in work.items() if s) for work in works.values())
