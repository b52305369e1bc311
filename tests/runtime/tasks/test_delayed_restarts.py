"""Tests of a worker that restarts after deaths: with a delay, or with quarantined tasks."""

from __future__ import annotations

import numpy as np
import pytest

from sunshower import Bolt, Cause, Context
from sunshower.runtime.events.health import Quarantine, Standing, TaskError
from sunshower.runtime.worker import Worker
from tests.runtime.transport.test_worker import ACKER, BOLT, SPOUT, Number, SimEnvironment

WHY = TaskError("keep", 0, BOLT, "its process died 6 times in a row")


def start_again(
    env: SimEnvironment, worker: int, delay_s: float, **quarantined: TaskError
) -> Worker:
    """Start the second life of `worker`."""
    tasks = {task.component: task.id for task in env.plan.tasks}
    why = {tasks[name]: Quarantine(error, 30.0) for name, error in quarantined.items()}
    core = Worker(
        env.plan,
        worker,
        2,
        np.random.default_rng(1),
        env.clock,
        delay_s=delay_s,
        quarantined=why,
    )
    env.workers[worker] = core
    env.news()
    return core


def test_bolt_of_a_delayed_worker_opens_after_the_delay_and_its_inbox_waits() -> None:
    opened: list[float] = []

    class Late(Bolt[Number, None]):
        def prepare(self, context: Context) -> None:
            opened.append(env.clock.now())

        def process(self, record: Number) -> None: ...

    env = SimEnvironment(1, 2, bolt=Late)
    bolt = start_again(env, BOLT, 4.0)
    env.settle()
    assert opened == []
    assert bolt.step() == pytest.approx(4.0), "the worker wakes without a message"
    env.clock.advance(4.0)
    env.settle()
    assert opened == [4.0]
    assert env[SPOUT].stats().tasks[0].counts.acked == 2


def test_acker_of_a_delayed_worker_does_not_wait() -> None:
    env = SimEnvironment(1, 2)
    start_again(env, ACKER, 100.0)
    env.settle()
    assert env[SPOUT].stats().tasks[0].counts.acked == 2


def test_task_that_starts_in_quarantine_runs_no_user_code() -> None:
    instances: list[object] = []

    class Never(Bolt[Number, None]):
        def __init__(self) -> None:
            instances.append(self)

        def process(self, record: Number) -> None: ...

    env = SimEnvironment(1, bolt=Never, attempts_max=100)
    bolt = start_again(env, BOLT, 0.0, keep=WHY)
    env.settle()
    assert instances == []
    failure = env.spout().spout.failures[0]
    assert (failure.cause, failure.reason) == (Cause.QUARANTINED, WHY.text)
    assert bolt.stats().tasks[0].health.standing is Standing.QUARANTINED
    assert bolt.close() == []


def test_spout_that_starts_in_quarantine_emits_nothing_and_is_done() -> None:
    env = SimEnvironment(1)
    spout = start_again(env, SPOUT, 0.0, numbers=WHY)
    env.settle()
    assert env.spout().spout is None
    assert env.spout().output_streams.emitted == 0
    assert spout.finished
