"""Each row counts exactly once under random faults of a batch group and its store."""

from __future__ import annotations

from tests.seeds import seeds
from tests.trident.rigs.batch_swarm import faulty_run, judge


@seeds(40)
def test_every_row_is_counted_exactly_once_under_random_faults(seed: int) -> None:
    assert not judge(seed)


def test_the_random_faults_cause_failures_and_restarts() -> None:
    failed = restarts = 0
    for seed in range(10):
        run, _ = faulty_run(seed)
        assert run.wait(200.0)
        failed += run.snapshot().component("$mastercoord-g").failed
        restarts += run.snapshot().restarts
    assert failed > 10
    assert restarts > 5
