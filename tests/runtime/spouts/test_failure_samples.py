"""Tests of the newest failures in statistics: which are kept, how long their texts are."""

from __future__ import annotations

from collections.abc import Iterator

from sunshower import Counter, Number, Topology
from sunshower.failures import Cause, Failure
from sunshower.runtime.tasks.spouts.replays import FailureSamples
from sunshower.simulation.cluster import SimCluster


def failed(component: str, reason: str, cause: Cause = Cause.EXCEPTION) -> Failure:
    return Failure(cause, component, 0, reason)


def test_the_newest_of_each_cause_and_component_comes_first() -> None:
    samples = FailureSamples()
    samples.add([failed("a", "one"), failed("b", "two"), failed("a", "three")])
    samples.add([failed("b", "late", Cause.TIMEOUT)])
    found = [(one.cause, one.component, one.reason) for one in samples.newest()]
    assert found == [
        (Cause.TIMEOUT, "b", "late"),
        (Cause.EXCEPTION, "a", "three"),
        (Cause.EXCEPTION, "b", "two"),
    ]


def test_samples_are_few_and_short_whatever_fails() -> None:
    samples = FailureSamples()
    samples.add(
        Failure(Cause.EXCEPTION, f"bolt-{n}", 0, "é" * 9_000, traceback="x" * 90_000)
        for n in range(100)
    )
    found = samples.newest()
    assert [one.component for one in found] == [f"bolt-{n}" for n in range(99, 91, -1)]
    assert all(len(one.reason.encode()) <= 2048 for one in found)
    assert all(len(one.traceback) <= 2048 for one in found)


def refuse_sevens(number: Number) -> Iterator[Number]:
    if number.value == 7:
        raise ValueError("seven is refused")
    yield number


def test_the_snapshot_says_why_and_where_a_tree_failed() -> None:
    topology = Topology("numbers", attempts_max=1000, workers=2)
    counted = topology.spout("count", Counter(20))
    counted.shuffle().bolt("check", refuse_sevens, 2)
    run = SimCluster(1).submit(topology.graph())
    while not any(task.failures for task in run.snapshot().tasks()):
        assert not run.wait(0.01)
    (spout,) = (task for task in run.snapshot().tasks() if task.component == "count")
    (found,) = spout.failures
    assert (found.cause, found.component) == (Cause.EXCEPTION, "check")
    assert found.reason == "ValueError: seven is refused"
    assert "refuse_sevens" in found.traceback
