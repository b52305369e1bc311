"""Memory of a pending root: the difference of spout and acker between many and few roots.

It takes one round of two runs: 10 s.
"""

from __future__ import annotations

from functools import partial

from benchmarks import machine
from benchmarks.clusters import Arena, wait, worker_pids
from benchmarks.figures import Key
from benchmarks.measure import Entry, Match, Sample
from benchmarks.sweeps import open_loop, shapes
from benchmarks.sweeps.runs import Runs
from sunshower.actors.shipping import ship
from sunshower.runtime.plan import ACKER, Layout

ROOTS = 200_000
FEW = 2_000
_NAME = "memory"
_PARTS = {"source": "spout", ACKER: "acker"}  # component → its part of the figure


def match(arena: Arena, seconds: float) -> Match:
    """Bytes of resident memory for each pending root: of its spout, of its acker, and of both."""
    ship([open_loop, shapes])
    roots = ROOTS if seconds > 1 else ROOTS // 10
    runs = Runs(partial(_bytes_per_root, arena, roots))
    return Match(
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


def _bytes_per_root(arena: Arena, roots: int) -> dict[str, Sample]:
    many, few = _held(arena, roots), _held(arena, FEW)
    found = {part: (many[part] - few[part]) / (roots - FEW) for part in many}
    found["both"] = sum(found.values())
    return {part: Sample(value, more={"roots": roots}) for part, value in found.items()}


def _held(arena: Arena, roots: int) -> dict[str, int]:
    """The resident bytes of the processes of spout and acker with `roots` pending roots."""
    gate = arena.gate()
    with arena.running(shapes.holding(gate, roots), Layout.ISOLATE) as run:
        wait(lambda: all(told and told[0] for told in run.results("source")))
        gate.open()
        wait(lambda: run.snapshot().component("sink").executed >= roots)
        pids = dict(zip(run.plan.workers, worker_pids(run), strict=True))
        return {
            part: machine.resident(pids[task.worker] for task in run.plan.tasks_of(component))
            for component, part in _PARTS.items()
        }
