"""Memory of a pending root: the difference of spout and acker between many and few roots.

It takes one round of two runs: 10 s.
"""

from __future__ import annotations

from functools import partial

from benchmarks import machine
from benchmarks.benchmark_cluster import BenchmarkCluster, wait, worker_pids
from benchmarks.figures import Key
from benchmarks.measure import Comparison, Entry, Sample
from benchmarks.sweeps import open_loop, sweep_topologies
from benchmarks.sweeps.shared_run import SharedRun
from sunshower.actors.shipping import ship
from sunshower.runtime.plan import ACKER, Layout

ROOTS = 200_000
FEW = 2_000
_NAME = "memory"
_PARTS = {"source": "spout", ACKER: "acker"}  # component → its part of the figure


def comparison(cluster: BenchmarkCluster, seconds: float) -> Comparison:
    """Bytes of resident memory for each pending root: of its spout, of its acker, and of both."""
    ship([open_loop, sweep_topologies])
    roots = ROOTS if seconds > 1 else ROOTS // 10
    runs = SharedRun(partial(_bytes_per_root, cluster, roots))
    return Comparison(
        _NAME,
        [
            Entry(
                Key(_NAME, "sunshower", f"{part}-per-pending-root", "bytes"),
                partial(runs.take, part),
            )
            for part in ("spout", "acker", "both")
        ],
        rounds=1,
    )


def _bytes_per_root(cluster: BenchmarkCluster, roots: int) -> dict[str, Sample]:
    many, few = _resident_bytes(cluster, roots), _resident_bytes(cluster, FEW)
    growth = {part: (many[part] - few[part]) / (roots - FEW) for part in many}
    growth["both"] = sum(growth.values())
    return {part: Sample(value, more={"roots": roots}) for part, value in growth.items()}


def _resident_bytes(cluster: BenchmarkCluster, roots: int) -> dict[str, int]:
    """The resident bytes of the processes of spout and acker with `roots` pending roots."""
    signal = cluster.start_signal()
    with cluster.running(sweep_topologies.never_acking(signal, roots), Layout.ISOLATE) as run:
        wait(lambda: all(result and result[0] for result in run.results("source")))
        signal.send()
        wait(lambda: run.snapshot().component("sink").executed >= roots)
        pids = dict(zip(run.plan.workers, worker_pids(run), strict=True))
        return {
            part: machine.resident(pids[task.worker] for task in run.plan.tasks_of(component))
            for component, part in _PARTS.items()
        }
