"""An exception whose text cannot be encoded ends a run like any other exception."""

from __future__ import annotations

from typing import Any

import pytest

from sunshower import Bolt, Context, Counter, Number, Retry, Topology, run_inline
from sunshower.errors import TopologyFailed
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from tests.texts.hostile import ESCAPES, SilentError

ERRORS = {
    "surrogate": lambda: ValueError("cannot parse \ud800"),
    "silent": SilentError,
    "large": lambda: ValueError("x" * (1 << 24)),
    "escapes": lambda: ValueError(ESCAPES),
}


def topology(error: Any, **settings: Any) -> Topology:
    def bad(number: Number) -> None:
        raise error()

    program = Topology("hostile", attempts_max=1, **settings)
    program.spout("numbers", Counter(1)).shuffle().bolt("bad", bad)
    return program


@pytest.mark.parametrize("name", ERRORS)
def test_run_on_a_cluster_fails_with_the_reason_and_can_be_queried_and_killed(name: str) -> None:
    with SimCluster(1) as cluster:
        run = cluster.submit(topology(ERRORS[name]).graph(), Layout.ISOLATE, active=False)
        run.activate()
        with pytest.raises(TopologyFailed) as failed:
            run.wait(60)
        str(failed.value).encode()
        assert len(str(failed.value)) < 100_000
        assert type(ERRORS[name]()).__name__ in str(failed.value)
        run.kill_master()
        with pytest.raises(TopologyFailed) as stored:
            run.snapshot()
        assert str(stored.value) == str(failed.value), "the next master reads the same error"
        run.kill(0.0)


@pytest.mark.parametrize("name", ERRORS)
def test_worker_that_dies_after_an_unencodable_error_starts_again(name: str) -> None:
    """A bolt that cannot be opened is quarantined, which the master stores."""
    raises = ERRORS[name]

    class Bad(Bolt[Number, None]):
        def prepare(self, context: Context) -> None:
            raise raises()

        def process(self, record: Number) -> None: ...

    program = Topology("hostile", task_errors_max=1)
    numbers = program.spout("numbers", Counter(3), retry=Retry(attempts=10_000))
    numbers.shuffle().bolt("bad", Bad)
    with SimCluster(1) as cluster:
        run = cluster.submit(program.graph(), Layout.ISOLATE)
        assert not run.wait(5.0)
        (task,) = run.snapshot().degraded
        run.kill_master()
        run.kill_worker(run.plan.tasks_of("numbers")[0].worker)
        assert not run.wait(5.0)
        assert run.snapshot().degraded.keys() == {task}
        run.kill(0.0)


@pytest.mark.parametrize("name", ERRORS)
def test_run_in_one_process_fails_with_the_reason(name: str) -> None:
    with pytest.raises(TopologyFailed, match=type(ERRORS[name]()).__name__) as failed:
        run_inline(topology(ERRORS[name]).graph())
    str(failed.value).encode()
