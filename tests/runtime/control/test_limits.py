"""Whether a topology keeps up: what limits it, how far its sources are behind, and its history."""

from __future__ import annotations

from dataclasses import replace
from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import Counter, Number, Topology
from sunshower.failures import Cause, Failure, FailureGroup
from sunshower.runtime.control.limits import ProgressWatch
from sunshower.runtime.events.health import Health, Standing, TaskError, Wait, WaitKind
from sunshower.runtime.events.metrics import (
    Counts,
    EventTime,
    Snapshot,
    TaskStats,
    WorkerStats,
)
from sunshower.runtime.events.progress import FIELDS, HistoryRecorder, LimitKind, TopologyProgress
from sunshower.runtime.plan import Plan, Task, make_plan

BEGIN_S, NOW_S = 100.0, 130.0
FOR_S = NOW_S - BEGIN_S


def pass_on(number: Number) -> list[Number]:
    return [number]


def plan(*, keyed: bool = False) -> Plan:
    """Numbers → slow × 4, on two workers."""
    topology = Topology("chain", workers=2, spout_pending=100)
    numbers = topology.spout("numbers", Counter())
    read = numbers.fields("value") if keyed else numbers.shuffle()
    read.bolt("slow", pass_on, parallelism=4)
    return make_plan(topology.graph())


class Run:
    """A run whose counters a test sets: from nothing at BEGIN_S to what `tasks` says at NOW_S."""

    def __init__(self, *, keyed: bool = False) -> None:
        self.plan = plan(keyed=keyed)
        ids = (*self.plan.graph.components,)
        self.before = {t.id: TaskStats(t.id, t.component, Counts()) for t in self.tasks(*ids)}
        self.now = dict(self.before)
        self.state = "active"
        self.machine: tuple[float, int] | None = None  # busy seconds at NOW_S, processors
        # worker → the shares of the time that its thread had a processor, and waited for one
        self.threads: dict[int, tuple[float, float]] = {}

    def tasks(self, *components: str) -> list[Task]:
        return [task for task in self.plan.tasks if task.component in components]

    def busy(self, component: str, *shares: float, queue_s: float = 1.0) -> None:
        """How busy the tasks are; the last share is that of all further ones."""
        for task in self.tasks(component):
            share = shares[min(task.index, len(shares) - 1)]
            counts = Counts(executed=1_000, busy_s=share * FOR_S)
            self.now[task.id] = replace(self.now[task.id], counts=counts, queue_s=queue_s)

    def source(self, *, lag: float, before: float, settled: int) -> None:
        (task,) = self.tasks("numbers")
        old, new = self.before[task.id], self.now[task.id]
        self.before[task.id] = replace(old, figures={"lag": before})
        counts = replace(new.counts, acked=settled)
        self.now[task.id] = replace(new, figures={"lag": lag}, counts=counts)

    def blocked(self, share: float, *, pending: int = 0) -> None:
        (task,) = self.tasks("numbers")
        counts = Counts(blocked_s=share * FOR_S, pending=pending)
        self.now[task.id] = replace(self.now[task.id], counts=counts, limit=100, oldest_s=4.0)

    def snapshot(self, tasks: dict[int, TaskStats], busy_s: float) -> Snapshot:
        machine = None if self.machine is None else ("host", busy_s, self.machine[1])
        for_s = 0.0 if tasks is self.before else FOR_S

        def thread_of(worker: int) -> tuple[float, float] | None:
            ran, waited = self.threads.get(worker, (None, 0.0))
            return None if ran is None else (1.0 + ran * for_s, waited * for_s)

        workers = {
            number: WorkerStats(
                number,
                1,
                tuple(tasks[task.id] for task in self.plan.tasks_on(number) if task.id in tasks),
                machine=machine,
                thread=thread_of(number),
            )
            for number in self.plan.workers
        }
        return Snapshot("chain", workers, state=self.state)

    def progress(self) -> TopologyProgress:
        watch = ProgressWatch(lambda: 1_000_000.0)
        before = self.snapshot(self.before, 0.0)
        for worker in self.plan.workers:
            watch.see(before.workers, {}, worker, BEGIN_S)
        now = self.snapshot(self.now, 0.0 if self.machine is None else self.machine[0])
        added = watch.added(self.plan, now, NOW_S)
        assert added.progress is not None
        return added.progress


def limit(run: Run) -> tuple[LimitKind, str]:
    bound = run.progress().limit
    return bound.kind, bound.component


# ---- why is it not faster? ----------------------------------------------------------------------


def test_too_few_tasks() -> None:
    run = Run()
    run.busy("slow", 0.97)
    assert limit(run) == (LimitKind.COMPONENT, "slow")
    assert run.progress().limit.text == (
        "slow is full: its 4 tasks run its code 97% of the time. Give it more tasks, or make its "
        "code faster (each input takes 29.1 ms)."
    )


def test_a_few_keys_have_the_load() -> None:
    run = Run(keyed=True)
    run.busy("slow", 0.97, 0.1)
    assert limit(run) == (LimitKind.SKEW, "slow")
    assert "more tasks would not help" in run.progress().limit.text
    busy = run.progress().busy
    assert busy["slow"] == (pytest.approx(0.3175), pytest.approx(0.97), True)
    assert not busy["numbers"].is_uneven


def test_a_worker_whose_tasks_share_its_thread() -> None:
    run = Run()
    run.busy("slow", 0.6)
    bound = run.progress().limit
    assert bound.kind is LimitKind.WORKER
    assert "More workers would help" in bound.text


def test_full_processors_come_before_the_component_that_uses_them() -> None:
    run = Run()
    run.busy("slow", 0.97)
    run.machine = 2 * FOR_S * 0.99, 2
    bound = run.progress().limit
    assert bound.kind is LimitKind.PROCESSOR
    assert "host" in bound.text
    assert "slow" in bound.text
    run.machine = FOR_S, 2  # half of them
    assert limit(run) == (LimitKind.COMPONENT, "slow")


def test_processors_that_other_programs_fill_and_tasks_that_need_none() -> None:
    run = Run()
    run.busy("slow", 0.97)
    run.machine = 2 * FOR_S * 0.99, 2
    run.threads = {0: (0.2, 0.7), 1: (0.2, 0.7)}
    bound = run.progress().limit
    assert bound.kind is LimitKind.PROCESSOR
    assert "mostly by other programs (this topology uses 20%)" in bound.text
    run.threads = {0: (0.02, 0.05), 1: (0.02, 0.05)}  # the code waits for a store
    assert limit(run) == (LimitKind.COMPONENT, "slow")
    assert "mostly wait there for something else" in run.progress().limit.text
    assert "(each input takes 29.1 ms)" in run.progress().limit.text
    run.threads = {0: (0.99, 0.0), 1: (0.99, 0.0)}
    bound = run.progress().limit
    assert bound.kind is LimitKind.PROCESSOR
    assert "other programs" not in bound.text


def test_a_spout_and_a_bolt_that_fill_one_thread_do_not_keep_up() -> None:
    """Their own code is busy for a part of the time only: the runtime has the rest."""
    run = Run()
    run.busy("slow", 0.2, queue_s=0.0)
    run.busy("numbers", 0.3, queue_s=0.0)
    assert limit(run) == (LimitKind.IDLE, "")
    worker = run.tasks("numbers")[0].worker
    run.threads = {worker: (0.5, 0.48)}
    bound = run.progress().limit
    assert bound.kind is LimitKind.WORKER
    assert f"Worker {worker} is full (98%)" in bound.text
    run.busy("slow", 0.01, queue_s=0.0)
    assert limit(run) == (LimitKind.COMPONENT, "numbers")
    run.threads = {worker: (0.5, 0.2)}
    assert limit(run) == (LimitKind.IDLE, "")


def test_what_a_source_that_falls_behind_waits_for_although_nothing_is_full() -> None:
    run = Run(keyed=True)
    run.busy("slow", 0.7, 0.1)
    assert limit(run) == (LimitKind.IDLE, "")
    run.source(lag=40_000, before=0, settled=300)
    assert limit(run) == (LimitKind.SKEW, "slow")
    assert "One of the 4 tasks of slow is the slowest (70%)" in run.progress().limit.text
    assert run.progress().bottleneck == "slow"
    run.busy("slow", 0.7, 0.1, queue_s=0.0)
    bound = run.progress().limit
    assert bound.kind is LimitKind.UNKNOWN
    assert "what it reads from may deliver no more" in bound.text


def test_tuples_that_fail_again_and_again_let_a_source_fall_behind() -> None:
    run = Run()
    run.source(lag=150, before=0, settled=3_000)
    (task,) = run.tasks("numbers")
    failure = Failure(Cause.EXCEPTION, "slow", 1, "ValueError: '12,5'")
    counts = Counts(failed=300, acked=3_000)
    groups = (FailureGroup(failure, 300, 1.0, 2.0, 3.0),)
    run.now[task.id] = replace(run.now[task.id], counts=counts, failures=groups)
    run.source(lag=150 + 3_000, before=0, settled=3_000)
    assert limit(run) == (LimitKind.UNKNOWN, "numbers")  # far more than what fails
    run.now[task.id] = replace(run.now[task.id], counts=replace(counts, failed=3_000))
    assert limit(run) == (LimitKind.PROBLEM, "slow")
    text = run.progress().limit.text
    assert "because 100 tuples/s fail in slow (exception) and are emitted again." in text


def test_tuples_that_all_fail_come_before_what_is_idle() -> None:
    run = Run()
    (task,) = run.tasks("numbers")
    failure = Failure(Cause.EXCEPTION, "slow", 1, "KeyError: 'EUR'", "KeyError")
    group = FailureGroup(failure, 90, 1.0, 2.0, 3.0)
    counts = Counts(failed=90)
    run.now[task.id] = replace(run.now[task.id], counts=counts, failures=(group,))
    assert limit(run) == (LimitKind.PROBLEM, "slow")
    assert run.progress().limit.text == (
        "No tuple of numbers completes: 3.0 a second fail in slow (KeyError)."
    )
    run.now[task.id] = replace(run.now[task.id], counts=replace(counts, acked=1))
    assert limit(run) == (LimitKind.IDLE, "")


def test_a_task_that_cannot_be_opened() -> None:
    run = Run()
    task = run.tasks("slow")[0]
    errors = (TaskError("slow", 0, 0, "prepare of slow[0] raised KeyError: 'URL'"),)
    health = Health(Standing.WAITING, 1, errors)
    run.now[task.id] = replace(run.now[task.id], health=health)
    assert limit(run) == (LimitKind.PROBLEM, "slow")
    assert "cannot be opened" in run.progress().limit.text
    assert "KeyError: 'URL'" in run.progress().limit.text


def test_the_limit_of_open_trees_and_the_credit_of_receivers() -> None:
    run = Run()
    run.blocked(0.8, pending=100)
    assert limit(run) == (LimitKind.PENDING, "numbers")
    assert "spout_pending=100" in run.progress().limit.text
    run.blocked(0.8, pending=50)
    run.busy("slow", 0.1, queue_s=0.01)
    assert limit(run) == (LimitKind.CREDIT, "slow")


def test_a_source_that_has_nothing() -> None:
    run = Run()
    run.busy("slow", 0.1, queue_s=0.0)
    assert limit(run) == (LimitKind.IDLE, "")
    assert "its source numbers has nothing more to emit" in run.progress().limit.text


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (WaitKind.UNAVAILABLE, "waits for a dependency"),
        (WaitKind.DOUBT, "fails every input"),
        (WaitKind.FILLING, "fills its table again"),
    ],
)
def test_an_outage_comes_first(kind: WaitKind, words: str) -> None:
    run = Run()
    run.busy("slow", 0.97)
    task = run.tasks("slow")[0]
    wait = Wait(kind, 9.0, 3, TaskError("slow", 0, 0, "gone"), True)
    run.now[task.id] = replace(run.now[task.id], health=Health(wait=wait))
    assert limit(run) == (LimitKind.PROBLEM, "slow")
    assert words in run.progress().limit.text
    assert run.progress().bottleneck == "slow"


def test_a_topology_that_is_not_active() -> None:
    run = Run()
    run.state = "inactive"
    assert "`sunshower activate chain`" in run.progress().limit.text
    run.state = "failed"
    (task,) = run.tasks("numbers")
    groups = (
        FailureGroup(Failure(Cause.EXCEPTION, "slow", 1, "KeyError: 'URL'"), 5, 1.0, 2.0, 3.0),
    )
    run.now[task.id] = replace(run.now[task.id], failures=groups)
    assert run.progress().limit.text == (
        "It has failed, so its spouts emit nothing: its tuples failed in slow (exception)."
    )


def test_at_first_nothing_is_known() -> None:
    run = Run()
    watch = ProgressWatch(lambda: 0.0)
    first = run.snapshot(run.now, 0.0)
    assert watch.added(run.plan, first, BEGIN_S).progress is not None
    watch.see(first.workers, {}, 0, BEGIN_S)
    snapshot = watch.added(run.plan, first, BEGIN_S + 0.5)
    assert snapshot.progress is not None
    assert snapshot.progress.limit.kind is LimitKind.UNKNOWN


@pytest.mark.parametrize("restarted", [False, True])
def test_tasks_that_begin_later_are_measured_from_then_on(restarted: bool) -> None:
    """Nothing is known of them before that, or only of the process before."""
    run = Run()
    run.source(lag=4_000, before=0, settled=300)
    old = Counts(executed=9_000, busy_s=1e3, acked=90_000)
    of_old = {id: replace(stats, counts=old) for id, stats in run.before.items()}
    first = of_old if restarted else {}
    watch = ProgressWatch(lambda: 0.0)
    watch.see(run.snapshot(first, 0.0).workers, {}, 0, BEGIN_S - 20.0)
    watch.see(run.snapshot(first, 0.0).workers, {}, 0, BEGIN_S - 10.0)
    before = run.snapshot(run.before, 0.0).workers
    for worker in run.plan.workers:
        watch.see(before, {}, worker, BEGIN_S)
    run.busy("slow", 0.97)
    progress = watch.added(run.plan, run.snapshot(run.now, 0.0), NOW_S).progress
    assert progress is not None
    assert progress.busy["slow"] == (pytest.approx(0.97), pytest.approx(0.97), False)
    assert progress.limit.component == "slow"
    (source,) = progress.sources
    assert source.trend == "falls behind by 133 records/s"


def test_a_lag_is_compared_as_soon_as_it_is_known() -> None:
    run = Run()
    watch = ProgressWatch(lambda: 0.0)
    (spout,) = run.tasks("numbers")
    for second in range(6):  # the lag is known after two
        figures = {"lag": 100.0 * second} if second > 1 else {}
        run.now[spout.id] = replace(run.now[spout.id], figures=figures)
        now = run.snapshot(run.now, 0.0)
        watch.see(now.workers, {}, spout.worker, BEGIN_S + second)
    progress = watch.added(run.plan, now, BEGIN_S + 5.0).progress
    assert progress is not None
    assert progress.sources[0].trend == "falls behind by 100 records/s"


def test_a_lag_that_does_not_fall_is_not_called_catching_up() -> None:
    run = Run()
    run.source(lag=60_000, before=60_000, settled=30_000)
    assert "the lag of numbers does not fall" in run.progress().limit.text
    run.source(lag=60_000, before=90_000, settled=30_000)
    assert "numbers catches up" in run.progress().limit.text


# ---- sources ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "lag", "settled", "trend", "is_late"),
    [
        (1_000, 40_000, 30_000, "falls behind by 1,300 records/s", True),
        (90_000, 60_000, 60_000, "catches up in 60 s", False),
        (60_000, 60_000, 30_000, "the lag does not fall", False),
        (900, 800, 30_000, "keeps up", False),
        (0, 0, 0, "keeps up", False),
    ],
)
def test_the_trend_of_a_lag(before: int, lag: int, settled: int, trend: str, is_late: bool) -> None:
    run = Run()
    run.source(lag=lag, before=before, settled=settled)
    (source,) = run.progress().sources
    assert (source.trend, source.falls_behind) == (trend, is_late)


def test_a_lag_that_is_not_known_now() -> None:
    run = Run()
    run.source(lag=float("nan"), before=10, settled=0)
    (source,) = run.progress().sources
    assert (source.lag, source.trend) == (None, "the lag is not known now")


def test_ages_of_open_trees_and_of_event_time() -> None:
    run = Run()
    run.blocked(0.5, pending=7)
    (task,) = run.tasks("numbers")
    times = EventTime(999_940_000.0, 1e9, per_s=1_000)
    run.now[task.id] = replace(run.now[task.id], event_time=times)
    progress = run.progress()
    assert progress.oldest_s == {"numbers": 4.0 + FOR_S}  # the statistics are as old
    assert progress.event_age_s == pytest.approx(60.0)


# ---- history ------------------------------------------------------------------------------------


@given(st.lists(st.floats(0.05, 300.0), max_size=400))
def test_the_history_is_bounded_and_has_the_rates(steps: list[float]) -> None:
    """Whatever the times of the samples: it reaches back an hour at most, and the rate of a counter
    that grows evenly is the same everywhere."""
    recorder, now = HistoryRecorder(), 0.0
    for step_s in steps:
        now += step_s
        counters = [3.0 * now] * (len(FIELDS) - 2)
        row = [*counters, 5.0, now]
        recorder.note(now, lambda row=row: {"numbers": row})  # type: ignore[misc]
    history = recorder.at(now)
    assert len(history.ago_s) <= 130
    assert all(0 <= ago_s <= 3_700 for ago_s in history.ago_s)
    assert [*history.ago_s] == sorted(history.ago_s, reverse=True)
    assert all(
        value == pytest.approx(3.0, rel=1e-3) for value in history.series(["numbers"], "acked")
    )
    assert set(history.series(["numbers"], "pending")) <= {5.0}
    assert history.series(["none"], "lag") == [None] * len(history.ago_s)


def test_counters_that_go_back_and_components_that_come() -> None:
    recorder = HistoryRecorder()
    unknown = float("nan")
    for at_s, rows in [
        (0.0, {"a": [10.0] * 7 + [unknown]}),
        (10.0, {"a": [5.0] * 7 + [unknown], "b": [0.0] * 8}),
        (20.0, {"a": [25.0] * 7 + [unknown], "b": [10.0] * 8}),
    ]:
        recorder.note(at_s, lambda rows=rows: rows)  # type: ignore[misc]
    history = recorder.at(20.0)
    assert history.series(["a"], "acked") == [0.0, 2.0]
    assert history.series(["b"], "acked") == [None, 1.0]
    assert history.series(["a", "b"], "lag") == [0.0, 10.0]
    assert isnan(history.values[0, 0, -1])
