"""Batch groups in whole topologies: failures, skips, halts, outages, drains and rebalances."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sunshower import Context
from sunshower.clock import ManualClock
from sunshower.errors import (
    FailedBatch,
    KafkaUnreachable,
    ReportedFailedBatch,
    SourceError,
    SparkMissing,
    SparkUnavailable,
    StateMismatch,
    StoreForbidden,
    StoreUnreachable,
    TopologyError,
    TopologyFailed,
    Unavailable,
)
from sunshower.failures import Cause, Failure
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.inline import run_inline
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from sunshower.state.tree import MemoryTree, Tree
from sunshower.topologies.operators.port import Attempt
from sunshower.trident.coordination.master_batch_coordinator import is_to_blame
from sunshower.trident.stages.plan import Skip
from tests.trident.rigs.group_rig import Hook, Numbers, NumbersCoordinator, Rig
from tests.trident.rigs.group_steps import Steps, Watched


class TapeUnreachable(SourceError, Unavailable):
    """An error that a user has defined."""


class Poison(Hook):
    """Raises at one step of one batch, `times` times."""

    def __init__(
        self, step: str, txid: int, times: int = 1_000_000, error: type[Exception] = ValueError
    ) -> None:
        self.step, self.txid, self.times, self.error = step, txid, times, error

    def __call__(self, step: str, attempt: Attempt, context: Context | None) -> None:
        if (step, attempt.txid) == (self.step, self.txid) and self.times > 0:
            self.times -= 1
            raise self.error(f"no batch {self.txid}")


def run(rig: Rig) -> None:
    run_inline(rig.topology().graph(), clock=ManualClock(), steps_max=100_000)


STEPS = ["before metadata", "after metadata", "in the middle", "before the commit"]


@pytest.mark.parametrize("step", STEPS)
def test_a_batch_that_fails_three_times_is_tried_again(step: str) -> None:
    hook = Poison(step, 3, times=3)
    rig = Rig(Numbers(20, 3, hook), hook, max_batches=3)
    run(rig)
    rig.check()
    assert hook.times == 0


@pytest.mark.parametrize("step", STEPS)
def test_a_batch_that_keeps_failing_ends_the_topology_and_says_why(step: str) -> None:
    hook = Poison(step, 3)
    rig = Rig(Numbers(20, 3, hook), hook, skip=Skip(attempts=3))
    with pytest.raises(TopologyFailed) as caught:
        run(rig)
    text = str(caught.value)
    assert "batch 3 of group 'g' failed 3 times" in text
    assert "in attempt 2" in text
    assert "ValueError: no batch 3" in text
    assert "dead_letters=" in text
    assert rig.database.counts == Counter(range(6)), "the batches before it are committed"


def test_a_batch_that_keeps_failing_is_skipped_and_the_others_are_committed(tmp_path: Path) -> None:
    hook, letters = Poison("in the middle", 3), tmp_path / "dead.jsonl"
    rig = Rig(Numbers(20, 3, hook), hook, skip=Skip(2, letters), max_batches=2)
    run(rig)
    assert rig.database.counts == Counter([*range(6), *range(9, 20)])
    dead: list[Any] = [json.loads(line) for line in letters.read_text().splitlines()]
    assert sorted(letter["record"]["number"] for letter in dead) == [6, 7, 8]
    first = dead[0]
    assert (first["message_id"], first["attempts"], first["spout"]) == (3, 2, "numbers")
    assert first["component"] == "middle"
    assert "ValueError: no batch 3" in first["reason"]


def test_a_later_run_with_the_same_store_continues_where_the_first_ended() -> None:
    steps = Steps()
    store = Watched(steps)
    rig = Rig(Numbers(7, 3, steps), steps, store)
    run(rig)
    more = Rig(Numbers(20, 3, steps), steps, store, database=rig.database)
    run(more)
    more.check()
    tree = MemoryTree(store.forest)
    node = tree.get("/transactional/numbers/coordinator/epoch")
    assert node is not None
    assert node.value == b"2"


@pytest.mark.parametrize(
    ("failure", "counts"),
    [
        (Failure(Cause.EXCEPTION, exception="ValueError"), True),
        (Failure(Cause.TIMEOUT), True),
        (Failure(Cause.QUARANTINED), True),
        (Failure(Cause.ACTOR_DIED), False),
        (Failure(Cause.REBALANCED), False),
        (Failure(Cause.FAILED, reason="a later attempt has begun"), False),
        (Failure(Cause.FAILED, "counts", 0, reason="a later attempt has begun"), False),
        (Failure(Cause.FAILED, "kafka", 0, reason="the message is too large"), True),
        (Failure(Cause.UNAVAILABLE), False),
    ],
)
def test_which_failures_count_as_an_attempt(failure: Failure, counts: bool) -> None:
    assert is_to_blame(failure, {"counts"}) is counts


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (STEPS[0], StoreUnreachable),
        (STEPS[1], KafkaUnreachable),
        (STEPS[2], SparkUnavailable),
        (STEPS[3], TapeUnreachable),
        (STEPS[0], StoreForbidden),
    ],
)
def test_an_outage_is_waited_for_and_counts_no_attempt(step: str, error: type[Exception]) -> None:
    hook = Poison(step, 3, times=5, error=error)
    rig = Rig(Numbers(20, 3, hook), hook, skip=Skip(attempts=2))
    sim = SimCluster(4, check=True).submit(rig.topology().graph(), Layout.ISOLATE)
    assert sim.wait(120.0), sim._describe()
    rig.check()
    assert hook.times == 0


@pytest.mark.parametrize("error", [StateMismatch, SparkMissing])
def test_an_error_that_waiting_cannot_repair_ends_the_topology(error: type[Exception]) -> None:
    hook = Poison("in the middle", 3, error=error)
    with pytest.raises(TopologyFailed, match=f"failed 2 times.*{error.__name__}: no batch 3"):
        run(Rig(Numbers(20, 3, hook), hook, skip=Skip(attempts=2)))


class RefusingStore(Poison):
    """After the first failure, the store refuses to write how often batches have failed."""

    def __call__(self, step: str, attempt: Attempt, context: Context | None) -> None:
        if step == "before skipped" and self.times < 1_000_000:
            raise StoreForbidden("another password is wanted")
        super().__call__(step, attempt, context)


def test_a_group_that_gives_up_ends_even_if_the_store_refuses_to_record_it() -> None:
    hook = RefusingStore("in the middle", 3)
    with pytest.raises(TopologyFailed, match="ValueError: no batch 3"):
        run(Rig(Numbers(20, 3, hook), hook, Watched(hook), skip=Skip(attempts=1)))


def test_an_outage_in_a_function_is_reported() -> None:
    hook = Poison("in the middle", 3, times=5, error=TapeUnreachable)
    sim = SimCluster(3, check=True).submit(Rig(Numbers(20, 3, hook), hook).topology().graph())
    assert sim.wait(120.0), sim._describe()
    reports = [report.text for task in sim.snapshot().tasks() for report in task.health.last]
    assert any("TapeUnreachable: no batch 3" in text for text in reports)
    assert len(reports) < 5, "reports are rate-limited"


def test_a_group_continues_after_a_deactivation_and_a_rebalance() -> None:
    steps = Steps()
    rig = Rig(Numbers(60, 2, steps), steps, Watched(steps), max_batches=3)
    sim = SimCluster(5, check=True).submit(rig.topology().graph(), Layout.PACK)
    sim.wait(0.05)
    sim.deactivate()
    sim.wait(5.0)
    assert not sim.finished()
    sim.rebalance(layout=Layout.ISOLATE, wait_s=1.0)
    sim.activate()
    assert sim.wait(120.0), sim._describe()
    rig.check()


def test_a_deactivated_group_commits_what_it_has_begun_and_no_more() -> None:
    steps = Steps()
    rig = Rig(Numbers(10_000, 2, steps), steps, Watched(steps), max_batches=3)
    sim = SimCluster(6, check=True).submit(rig.topology().graph(), Layout.PACK)
    sim.wait(0.3)
    sim.deactivate()
    begun = steps.seen["before metadata"]
    sim.wait(5.0)
    assert sim.snapshot().state is State.INACTIVE
    # Up to three may begin before the command reaches the coordinator.
    assert 0 < begun <= steps.seen["before metadata"] <= begun + 3
    assert rig.database.counts == Counter(range(2 * steps.seen["before metadata"]))


def test_a_group_that_drains_commits_what_it_has_begun_and_no_more() -> None:
    steps = Steps()
    rig = Rig(Numbers(10_000, 2, steps), steps, Watched(steps), max_batches=3)
    sim = SimCluster(6, check=True).submit(rig.topology().graph(), Layout.PACK)
    sim.wait(0.3)
    sim.drain()
    assert sim.wait(60.0), sim._describe()
    counts = rig.database.counts
    assert counts == Counter(range(len(counts)))
    assert 0 < len(counts) < 10_000
    begun = steps.seen["before metadata"]
    assert len(counts) >= 2 * (begun - 3)


def test_an_untracked_topology_is_refused() -> None:
    with pytest.raises(TopologyError, match="ackers=0"):
        Rig(Numbers(1, 1)).topology(ackers=0)


def test_a_group_without_a_spout_is_refused() -> None:
    rig = Rig(Numbers(1, 1))
    rig.stages = lambda: iter(())  # type: ignore[method-assign]
    with pytest.raises(TopologyError, match="no spout"):
        rig.topology()


def test_a_former_topology_with_the_same_store_stops_and_writes_nothing_more() -> None:
    steps = Steps()
    store = Watched(steps)
    old = Rig(Numbers(60, 3, steps), steps, store, max_batches=2)
    first = SimCluster(1, check=True).submit(old.topology().graph())
    while not steps.seen["after the commit"]:
        first.wait(0.01)
    new = Rig(Numbers(60, 3, steps), steps, store, max_batches=2, database=old.database)
    second = SimCluster(2, check=True).submit(new.topology().graph())
    assert second.wait(60.0)
    new.check()
    written = {path: node.value for path, node in store.forest.nodes.items() if "/meta" not in path}
    with pytest.raises(TopologyFailed, match=r"of a later coordinator.*twice with one store"):
        first.wait(900.0)  # its doubt lasts ten minutes
    assert new.database.counts == Counter(range(60))
    assert all(store.forest.nodes[path].value == value for path, value in written.items())


def test_the_snapshot_has_figures_about_batches() -> None:
    rig = Rig(Numbers(20, 3), max_batches=2)
    done = run_inline(rig.topology().graph(), clock=ManualClock(), steps_max=100_000)
    figures = {task.component: task.figures for task in done.snapshot.tasks()}
    master = figures["$mastercoord-g"]
    assert (master["txid"], master["batches committed"], master["batches active"]) == (8, 7, 0)
    assert {"process seconds", "commit seconds", "mean seconds", "batches skipped"} <= set(master)
    rows = [t.figures["rows emitted"] for t in done.snapshot.tasks() if t.component == "numbers"]
    assert sum(rows) == 20


class KillsCoordinator(Poison):
    """Kills the coordinator in the first attempt to skip, after the dead letters were written."""

    kill: Callable[[], None] | None = None

    def __call__(self, step: str, attempt: Attempt, context: Context | None) -> None:
        super().__call__(step, attempt, context)
        if (step, attempt.txid) == ("before the commit", 3) and self.kill is not None:
            self.kill()
            self.kill, self.times = None, 0


def test_a_skipped_batch_stays_skipped_when_its_coordinator_is_killed(tmp_path: Path) -> None:
    hook, letters = KillsCoordinator("in the middle", 3), tmp_path / "dead.jsonl"
    rig = Rig(Numbers(20, 3, hook), hook, skip=Skip(2, letters))
    sim = SimCluster(3, check=True).submit(rig.topology(workers=9).graph(), Layout.ISOLATE)
    worker = sim.plan.tasks_of("$mastercoord-g")[0].worker
    hook.kill = lambda: sim.kill_worker(worker)
    assert sim.wait(120.0), sim._describe()
    assert hook.kill is None
    dead = [json.loads(line) for line in letters.read_text().splitlines()]
    assert {letter["record"]["number"] for letter in dead} == {6, 7, 8}
    assert rig.database.counts == Counter([*range(6), *range(9, 20)])


class Quiet(Numbers):
    """Has no rows for 20 s after the first ten numbers."""

    def coordinator(self, store: Tree, path: str, context: Context) -> NumbersCoordinator:
        return QuietCoordinator(self, context)


class FirstCall(Steps):
    """Also records when it was called first."""

    begun_s: float | None = None

    def __call__(self, step: str, attempt: Attempt, context: Context | None) -> None:
        super().__call__(step, attempt, context)
        if context is not None and self.begun_s is None:
            self.begun_s = context.clock.now()


class QuietCoordinator(NumbersCoordinator):
    def initialize(self, txid: int, previous: Any, current: Any) -> Any:
        metadata = super().initialize(txid, previous, current)
        if metadata["start"] >= 10 and self.context.clock.now() < self.spout.hook.begun_s + 20.0:
            return {"start": metadata["start"], "end": metadata["start"]}
        return metadata


@pytest.mark.parametrize("max_batches", [pytest.param(1, marks=pytest.mark.long), 3])
def test_a_source_without_rows_is_polled_at_a_low_rate(max_batches: int) -> None:
    steps = FirstCall()
    rig = Rig(Quiet(40, 1, steps), steps, Watched(steps), max_batches)
    sim = SimCluster(1, check=True).submit(rig.topology().graph())
    sim.wait(19.0)
    assert 10 + 3 * 19 < steps.seen["before metadata"] < 150, "up to five in a second"
    assert sim.wait(30.0), sim._describe()
    rig.check()


class FailsOnce(Hook):
    """Fails one batch once, with an error that is to be reported or not."""

    def __init__(self, error: type[FailedBatch]) -> None:
        self.errors = [error("the rates are missing")]

    def __call__(self, step: str, attempt: Attempt, context: Context | None) -> None:
        if (step, attempt.txid) == ("in the middle", 3) and self.errors:
            raise self.errors.pop()


@pytest.mark.parametrize("error", [FailedBatch, ReportedFailedBatch])
def test_a_failed_batch_is_reported_only_if_its_error_asks_for_it(error: type[FailedBatch]) -> None:
    hook = FailsOnce(error)
    rig = Rig(Numbers(20, 3, hook), hook)
    sim = SimCluster(3, check=True).submit(rig.topology().graph())
    assert sim.wait(120.0), sim._describe()
    rig.check()
    errors = [report.text for task in sim.snapshot().tasks() for report in task.health.last]
    if error is ReportedFailedBatch:
        assert len(errors) == 1
        assert "batch 3, attempt 0: exception in middle" in errors[0]
        assert "the rates are missing" in errors[0]
    else:
        assert errors == []


class UnavailableAtFirst(Watched):
    """A store that is unavailable at the first opens."""

    times = 30

    def __call__(self) -> Tree:
        self.times -= 1
        if self.times >= 0:
            raise StoreUnreachable("no answer")
        return super().__call__()


def test_a_store_that_is_unavailable_when_tasks_open_is_waited_for() -> None:
    steps = Steps()
    rig = Rig(Numbers(20, 3, steps), steps, UnavailableAtFirst(steps))
    sim = SimCluster(4, check=True).submit(rig.topology().graph())
    assert sim.wait(120.0), sim._describe()
    rig.check()
