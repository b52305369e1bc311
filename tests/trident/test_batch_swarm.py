"""Each row counts exactly once under random faults of a batch group and its store."""

from __future__ import annotations

from tests.seeds import seeds
from tests.trident.rigs.batch_swarm import faulty_run, judge


@seeds(40)
def test_every_row_is_counted_exactly_once_under_random_faults(seed: int) -> None:
    assert not judge(seed)


def test_the_random_faults_cause_failures_restarts_and_other_numbers_of_tasks() -> None:
    failed = restarts = 0
    tasks = set[tuple[int, int]]()
    for seed in range(10):
        run, _ = faulty_run(seed)
        assert run.wait(200.0)
        failed += run.snapshot().component("$mastercoord-g").failed
        restarts += run.snapshot().restarts
        tasks.add((len(run.plan.tasks_of("middle")), len(run.plan.tasks_of("counts"))))
    assert failed > 10
    assert restarts > 5
    assert len(tasks) > 3
