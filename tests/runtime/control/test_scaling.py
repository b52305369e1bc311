"""Decisions about numbers of tasks and workers: the bottleneck grows, what is idle shrinks."""

from __future__ import annotations

from collections import Counter as Counts
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import Counter, Number, Topology, between
from sunshower.config import Between
from sunshower.errors import LifecycleError
from sunshower.runtime.control.loads import BUSY, Load
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.placement import placed, replan, with_counts, with_present_numbers
from sunshower.runtime.control.scaling import (
    WORKERS,
    Change,
    LoadWindows,
    Scaling,
    bounds_of,
    decide,
)
from sunshower.runtime.events.health import Health, Standing, TaskError, Wait, WaitKind
from sunshower.runtime.events.metrics import Counts as TaskCounts
from sunshower.runtime.events.metrics import Snapshot, TaskStats, WorkerStats
from sunshower.runtime.plan import Layout, Plan, make_plan

NUMBERS = Between(1, 8)


def pass_on(number: Number) -> list[Number]:
    return [number]


def chain(
    first: int = NUMBERS, second: int = NUMBERS, *, keyed: bool = False, **settings: Any
) -> Plan:
    """Numbers → first → second; all numbers may be up to 8."""
    topology = Topology("chain", **{"workers": between(1, 8), **settings})
    numbers = topology.spout("numbers", Counter())
    read = numbers.fields("value") if keyed else numbers.shuffle()
    passed = read.bolt("first", pass_on, parallelism=first)
    passed.shuffle().bolt("second", pass_on, parallelism=second)
    return make_plan(topology.graph())


def moved(plan: Plan, change: Change) -> Plan:
    """The plan after a change."""
    plan = with_counts(plan, change.tasks)
    return placed(plan, replan(plan, change.workers, plan.layout))


def with_numbers(plan: Plan, workers: int, **tasks: int) -> Plan:
    return moved(plan, Change(tasks, workers, ""))


def loads(plan: Plan, queue_s: float = 0.0, **shares: float | list[float]) -> dict[str, Load]:
    """The same load of each task of a component, or that of each; the others do nothing."""
    by_component = {}
    for id in plan.graph.components:
        share, tasks = shares.get(id, 0.0), plan.tasks_of(id)
        each = share if isinstance(share, list) else [share] * len(tasks)
        busy = {task.id: value for task, value in zip(tasks, each, strict=True)}
        by_component[id] = Load(busy, queue_s=queue_s if max(each) > BUSY else 0.0)
    return by_component


def decided(plan: Plan, of: dict[str, Load], held: tuple[str, ...] = ()) -> Change | None:
    """The decision if the load has been so for long."""
    return decide(plan, LoadWindows(of, of, of), held).change


def why(plan: Plan, of: dict[str, Load], id: str) -> str:
    return decide(plan, LoadWindows(of, of, of)).whys[id]


# ---- the bottleneck ------------------------------------------------------------------------------


def test_a_busy_component_whose_inputs_wait_gets_twice_the_tasks_and_the_workers_for_them() -> None:
    change = decided(chain(), loads(chain(), 0.2, first=0.95))
    assert change is not None
    assert (change.tasks, change.workers) == ({"first": 2}, 2)
    assert change.why == (
        "first: 1 → 2 tasks, workers: 1 → 2: 'first' is busy 0.95, and its inputs wait 0.20 s"
    )


def test_a_source_that_falls_behind_says_how_many_tasks_are_needed() -> None:
    plan = chain()
    source = Load({1: 0.0}, settled=100.0, lag=5_000.0, growth=100.0)  # it emits half of the input
    change = decided(plan, loads(plan, first=1.0) | {"numbers": source})
    assert change is not None
    assert change.tasks == {"first": 4}
    assert "its source falls behind by 100.0 records a second" in change.why


@pytest.mark.parametrize("share", [0.5, BUSY])
def test_lag_alone_changes_nothing(share: float) -> None:
    plan = chain()
    source = Load({1: 0.0}, settled=100.0, lag=5_000.0, growth=100.0)
    of = loads(plan, first=share) | {"numbers": source}
    assert decided(plan, of) is None
    assert "but no component is busy: more tasks would not help" in why(plan, of, "first")


def test_only_the_last_busy_component_of_a_path_grows() -> None:
    plan = chain()
    change = decided(plan, loads(plan, 0.2, first=0.99, second=0.9))
    assert change is not None
    assert change.tasks == {"second": 2}


def test_what_is_before_a_bottleneck_with_a_fixed_number_does_not_grow() -> None:
    plan = chain(second=1)
    of = loads(plan, 0.2, first=0.99, second=0.9)
    assert decided(plan, of) is None
    assert "'second' is busy 0.90 and limits the rest, and the declaration fixes" in why(
        plan, of, "first"
    )


def test_a_busy_component_that_is_blocked_by_its_outputs_does_not_grow() -> None:
    plan = chain()
    of = loads(plan, 0.2, first=0.9)
    of["first"] = replace(of["first"], blocked=0.5)
    assert decided(plan, of) is None


def test_a_busy_component_without_waiting_inputs_does_not_grow() -> None:
    assert decided(chain(), loads(chain(), 0.01, first=0.99)) is None


def test_a_few_keys_with_most_of_the_load_change_nothing() -> None:
    plan = with_numbers(chain(keyed=True), 4, first=4)
    of = loads(plan, 0.2, first=[1.0, 0.1, 0.1, 0.1])
    assert decided(plan, of) is None
    assert "a few keys have most of the load, and more tasks cannot help" in why(plan, of, "first")


def test_uneven_tasks_that_may_get_any_record_grow() -> None:
    plan = with_numbers(chain(), 4, first=4)
    change = decided(plan, loads(plan, 0.2, first=[1.0, 0.6, 0.6, 0.6]))
    assert change is not None
    assert change.tasks["first"] > 4


def test_more_tasks_than_the_workers_have_time_for_are_not_made() -> None:
    plan = chain(workers=1)
    of = loads(plan, 0.2, first=0.95)
    assert decided(plan, of) is None
    assert "more tasks cannot help, more workers could" in why(plan, of, "first")


def test_workers_that_are_declared_and_have_no_task_yet_are_used() -> None:
    plan = chain(workers=3)
    assert len(plan.workers) == 1
    change = decided(plan, loads(plan, 0.2, first=0.95))
    assert change is not None
    assert (change.tasks, change.workers) == ({"first": 2}, 2)


def test_a_source_that_catches_up_needs_no_more_tasks() -> None:
    plan = chain()
    source = Load({1: 0.0}, settled=100.0, lag=5_000.0, growth=-50.0)
    of = loads(plan, 0.2, first=1.0) | {"numbers": source}
    assert decided(plan, of) is None
    assert "its source catches up within 100 s" in why(plan, of, "first")


def test_a_worker_with_several_busy_tasks_gets_others_beside_it() -> None:
    plan = chain()
    of = {
        id: replace(load, queue_s=0.2) for id, load in loads(plan, first=0.5, second=0.45).items()
    }
    change = decided(plan, of)
    assert change is not None
    assert (change.tasks, change.workers) == ({}, 3), "on two, the even numbers keep them together"


# ---- what is idle --------------------------------------------------------------------------------


def test_all_idle_components_and_workers_shrink_in_one_change() -> None:
    plan = with_numbers(chain(), 6, first=4, second=4)
    change = decided(plan, loads(plan, first=0.3, second=0.1))
    assert change is not None
    assert change.tasks == {"first": 2, "second": 1}
    assert change.workers is not None
    assert change.workers < 6


def test_nothing_shrinks_while_a_source_has_a_backlog() -> None:
    plan = with_numbers(chain(), 6, first=4)
    source = Load({1: 0.0}, settled=10.0, lag=200.0)
    assert decided(plan, loads(plan) | {"numbers": source}) is None


def test_nothing_shrinks_before_it_was_idle_for_long() -> None:
    plan = with_numbers(chain(), 6, first=4)
    assert decide(plan, LoadWindows(loads(plan), loads(plan))).change is None


# ---- any loads -----------------------------------------------------------------------------------

SHARES = st.floats(0, 1)
COUNTS, DEMANDS = st.integers(1, 8), st.floats(0, 1.2)  # at most a worker for each task


@given(st.data())
def test_changes_are_of_numbers_with_bounds_within_these(data: st.DataObject) -> None:
    fixed = data.draw(st.sampled_from([1, 3, NUMBERS]))
    keyed, workers = data.draw(st.booleans()), data.draw(st.sampled_from([1, 3, between(2, 5)]))
    plan = chain(second=fixed, keyed=keyed, workers=workers)
    plan = with_numbers(plan, data.draw(st.integers(1, 5)), first=data.draw(st.integers(1, 8)))
    held = data.draw(st.sampled_from([(), ("first",), (WORKERS,)]))
    of = {}
    for id in plan.graph.components:
        busy = {task.id: data.draw(SHARES) for task in plan.tasks_of(id)}
        lag = data.draw(st.none() | st.floats(0, 1e6)) if id == "numbers" else None
        growth = data.draw(st.floats(-1e3, 1e3))
        of[id] = Load(busy, data.draw(SHARES), data.draw(SHARES), 100.0, lag, growth)
    decision = decide(plan, LoadWindows(of, of, of), held)
    bounds = {id: number for id, number in bounds_of(plan).items() if id not in held}
    assert decision.whys.keys() == bounds.keys()
    if (change := decision.change) is None:
        return
    grows = [id for id, number in change.tasks.items() if number > len(plan.tasks_of(id))]
    assert len(grows) <= 1
    for id, number in change.tasks.items():
        assert bounds[id].clamp(number) == number != len(plan.tasks_of(id))
    if change.workers is not None and WORKERS in bounds:
        assert change.workers == bounds[WORKERS].clamp(change.workers)
    moved(plan, change)


def processed(plan: Plan, demand: dict[str, float]) -> tuple[dict[str, Load], float]:
    """The loads of a topology whose workers have one thread each, and the share of the input that
    it processes."""
    counts = Counts(task.component for task in plan.tasks)
    of_worker = dict.fromkeys(plan.workers, 0.0)
    for task in plan.tasks:
        of_worker[task.worker] += demand.get(task.component, 0.0) / counts[task.component]
    share = min(1.0, 1 / max(of_worker.values(), default=1.0)) if any(of_worker.values()) else 1.0
    full = {worker for worker, load in of_worker.items() if share < 1.0 and load * share > 0.999}
    of = {}
    for id in plan.graph.components:
        tasks = plan.tasks_of(id)
        busy = {task.id: demand.get(id, 0.0) * share / len(tasks) for task in tasks}
        waits = any(task.worker in full for task in tasks) and max(busy.values()) > 0
        of[id] = Load(busy, queue_s=0.25 * waits)
    rate = 100.0
    lag, growth = (1e5, rate * (1 - share)) if share < 1.0 else (0.0, 0.0)
    of["numbers"] = replace(of["numbers"], settled=rate * share, lag=lag, growth=growth)
    return of, share


@given(COUNTS, COUNTS, COUNTS, DEMANDS, DEMANDS)
def test_a_constant_load_is_processed_after_a_few_changes_and_then_nothing_changes(
    workers: int, first: int, second: int, first_demand: float, second_demand: float
) -> None:
    plan, history = with_numbers(chain(), workers, first=first, second=second), []
    demand = {"first": first_demand, "second": second_demand}
    for _ in range(8):
        of, share = processed(plan, demand)
        if (change := decided(plan, of)) is None:
            break
        history.append(change.why)
        plan = moved(plan, change)
    else:
        pytest.fail("\n".join(history))
    assert share > 0.999, history
    assert len(history) <= 5, history


# ---- the state machine ---------------------------------------------------------------------------


class Driven:
    """A Scaling whose topology has the same load all the time, seen every five seconds."""

    def __init__(self, plan: Plan, share: float) -> None:
        self.plan, self.share, self.stored = plan, share, MasterState()
        self.scaling, self.now, self.life = Scaling(self.stored), 0.0, 1
        self.health = Health()

    def snapshot(self) -> Snapshot:
        workers = {}
        for worker in self.plan.workers:
            tasks = tuple(
                TaskStats(
                    task.id,
                    task.component,
                    TaskCounts(busy_s=self.share * self.now * (task.component == "first")),
                    queue_s=0.25 * (task.component == "first"),
                    health=self.health,
                )
                for task in self.plan.tasks_on(worker)
            )
            workers[worker] = WorkerStats(worker, self.life, tasks)
        return Snapshot("chain", workers)

    def until_change(self, within_s: float) -> Change | None:
        end_s = self.now + within_s
        while self.now < end_s:
            self.now += 5.0
            if self.scaling.is_due(self.plan, self.now):
                change = self.scaling.look(self.plan, self.snapshot(), self.now)
                if change is not None:
                    return change
        return None


def test_it_rests_before_the_first_change_and_after_each() -> None:
    driven = Driven(chain(), 1.0)
    assert driven.until_change(60.0) is None
    assert "no change for" in driven.scaling.views[0].why
    assert driven.scaling.views[0].wanted == 2, "it says what it would do"
    change = driven.until_change(10.0)
    assert change is not None
    driven.scaling.began(driven.plan, 1, driven.now)
    driven.plan, driven.life = moved(driven.plan, change), 2
    assert driven.until_change(60.0) is None
    assert driven.until_change(10.0) is not None


WAITS = Wait(WaitKind.UNAVAILABLE, 1.0, 1, TaskError("first", 0, 0, "gone"), reached=True)


@pytest.mark.parametrize("health", [Health(wait=WAITS), Health(Standing.QUARANTINED)])
def test_an_outage_ends_what_was_measured(health: Health) -> None:
    driven = Driven(chain(), 1.0)
    driven.until_change(50.0)
    driven.health = health
    assert driven.until_change(300.0) is None
    assert "waits, or is quarantined" in driven.scaling.views[0].why
    driven.health = Health()
    assert driven.until_change(55.0) is None
    assert driven.until_change(10.0) is not None


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_change_that_failed_is_not_tried_again_for_ten_minutes(is_refused: bool) -> None:
    driven = Driven(chain(), 1.0)
    assert driven.until_change(70.0) is not None
    if is_refused:
        driven.scaling.failed(driven.plan, "no node has that much", driven.now)
    else:
        driven.scaling.began(driven.plan, 3, driven.now)
        driven.stored.cancelled[3] = "no node has that much"
    assert driven.until_change(590.0) is None
    assert "the last change failed: no node has that much" in driven.scaling.views[0].why
    assert driven.until_change(30.0) is not None


def test_a_topology_without_bounds_is_never_measured() -> None:
    plan = chain(1, 2, workers=2)
    assert not Scaling(MasterState()).is_due(plan, 1e9)


def test_a_hand_cannot_leave_the_bounds_and_holds_what_it_sets() -> None:
    plan, stored = chain(), MasterState()
    scaling = Scaling(stored)
    with pytest.raises(LifecycleError, match=r"cannot have 9 workers: declared is between\(1, 8\)"):
        scaling.by_hand(plan, 9, {}, False, lambda: pytest.fail("it was refused"))
    assert scaling.by_hand(plan, 3, {"first": 2}, False, lambda: 7) == 7
    assert stored.held == [WORKERS, "first"]
    assert MasterState.from_bytes(stored.to_bytes()).held == stored.held
    scaling.by_hand(plan, None, {"second": 2}, True, lambda: 8)
    assert stored.held == ["second"]


def test_what_a_hand_has_set_is_forgotten_if_its_change_is_cancelled() -> None:
    plan, stored = chain(), MasterState()
    scaling = Scaling(stored)
    scaling.by_hand(plan, 3, {}, False, lambda: 1)
    scaling.by_hand(plan, None, {"first": 2}, True, lambda: 2)
    stored = MasterState.from_bytes(replace(stored, change=2).to_bytes())
    assert stored.held == ["first"]
    stored.note_cancelled("no node has that much")
    assert stored.held == [WORKERS]
    stored.note_cancelled("again")
    assert stored.held == [WORKERS]


def test_as_many_workers_as_tasks_are_no_layout_within_bounds() -> None:
    """Else each further task would get a worker of its own, however many are declared."""
    plan = with_numbers(chain(workers=between(1, 3), ackers=0), 3)
    assert len(plan.workers) == len(plan.tasks) == 3
    assert bounds_of(plan)[WORKERS] == 3
    assert len(moved(plan, Change({"first": 4}, None, "")).workers) == 3
    assert with_numbers(plan, 3, first=2).layout is Layout.PACK
    alone = placed(plan := with_counts(plan, {"first": 2}), replan(plan, layout=Layout.ISOLATE))
    assert alone.layout is Layout.ISOLATE


# ---- other code, and savepoints ------------------------------------------------------------------


@pytest.mark.parametrize("layout", Layout)
def test_new_code_continues_with_the_present_numbers_as_far_as_its_bounds_allow(
    layout: Layout,
) -> None:
    present = with_numbers(chain(), 6, first=5, second=3)
    graph = chain(between(1, 4), 2).graph
    plan = with_present_numbers(make_plan(graph, layout), present.tasks)
    assert (len(plan.tasks_of("first")), len(plan.tasks_of("second"))) == (4, 2)
    assert plan.layout is layout
    assert len(plan.workers) == (6 if layout is Layout.PACK else len(plan.tasks))
    assert repr(plan.graph.components["first"].parallelism) == "between(1, 4)"
