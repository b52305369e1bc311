"""Tests of changed numbers of tasks of windows, joins, tables, timers and totals under load."""

from __future__ import annotations

from random import Random

from sunshower.errors import LifecycleError
from sunshower.runtime.control.placement import refusal
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from tests.seeds import seeds
from tests.topologies.operators.moves.test_changed_tasks import PROGRAMS, TOTAL, Bolts

OPERATORS = [kind for kind in PROGRAMS if kind is not Bolts]  # a class with a state is refused


@seeds(300, kinds=len(OPERATORS))
def test_the_result_is_that_of_a_program_without_sunshower(seed: int) -> None:
    draw, state = Random(seed), MemoryState()
    program = OPERATORS[seed % len(OPERATORS)](seed)
    for source in program.sources:
        source.bound = TOTAL
    with SimCluster(seed, latency_s=0.005) as cluster:
        run = cluster.submit(program.topology(state=state, parallelism=2).graph())
        changed = 0
        for _ in range(3):
            if run.wait(draw.uniform(0.0, 0.6)):
                break
            able = [
                bolt.id for bolt in run.plan.graph.bolts if refusal(run.plan, bolt.id, 2) is None
            ]
            try:
                run.rebalance(tasks={name: draw.randint(1, 5) for name in able})
            except LifecycleError:
                assert run.finished(), "a rebalance may be refused only if the run is finished"
                break
            changed += len(able)
        assert changed
        assert run.wait(600), run._describe()
    program.check(program.rows, state, is_exact=True)
