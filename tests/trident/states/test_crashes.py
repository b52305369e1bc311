"""Each row counts exactly once when a process dies at any step of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from sunshower.clock import ManualClock
from sunshower.runtime.inline import run_inline
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster, SimRun
from sunshower.simulation.worker import Killed
from sunshower.trident.states.factories import MemoryState
from tests.trident.rigs.every_store import state_in, stores
from tests.trident.rigs.group_rig import Numbers, OpaqueNumbers, Rig
from tests.trident.rigs.group_steps import Steps, Watched
from tests.trident.rigs.keyed_batches import MORE, NAMES, KeyedProgram, of_ordinary_streams
from tests.trident.rigs.moving_states import Life
from tests.trident.rigs.programs import SETTINGS
from tests.trident.rigs.real_states import InState

TOTAL, SIZE = 18, 3


def die() -> None:
    raise Killed


def rig_of(kind: str, steps: Steps, max_batches: int, *, real: bool = False) -> Rig:
    spout = (
        OpaqueNumbers(TOTAL, SIZE, steps) if kind == "opaque" else Numbers(TOTAL, SIZE, hook=steps)
    )
    rig = Rig(spout, steps, Watched(steps), max_batches)
    if real:
        rig.database = InState(MemoryState())
    rig.emitters = 1 if kind == "opaque" else 2
    return rig


def all_steps(kind: str) -> dict[str, int]:
    """The steps of a run without crashes, and how often each occurs."""
    steps = Steps()
    rig = rig_of(kind, steps, 3)
    run_inline(rig.topology().graph(), clock=ManualClock(), steps_max=50_000)
    return dict(sorted(steps.seen.items()))


STEPS = {kind: all_steps(kind) for kind in ("transactional", "opaque")}


def submitted(rig: Rig, seed: int, layout: Layout) -> SimRun:
    cluster = SimCluster(seed, check=True, nodes=1 + seed % 2)
    return cluster.submit(rig.topology(**SETTINGS).graph(), layout)


WAYS = ((1, 1, Layout.ISOLATE), (2, 3, Layout.ISOLATE), (3, 1, Layout.PACK), (4, 3, Layout.PACK))


def crashes() -> Iterator[ParameterSet]:
    """Each step in each way; without the mark `long` one possible way for each step."""
    steps = [(kind, step, times) for kind in STEPS for step, times in STEPS[kind].items()]
    for place, (kind, step, times) in enumerate(steps):
        possible = [way for way in WAYS if way[0] <= times]
        short = possible[place % len(possible)]
        for way in WAYS:
            yield pytest.param(kind, step, *way, marks=[] if way == short else pytest.mark.long)


@pytest.mark.parametrize(("kind", "step", "time", "max_batches", "layout"), list(crashes()))
def test_nothing_is_lost_or_counted_twice_when_a_process_dies_at_any_step(
    kind: str, step: str, time: int, max_batches: int, layout: Layout
) -> None:
    steps = Steps(step, time, die)
    rig = rig_of(kind, steps, max_batches, real=max_batches > 1)
    run = submitted(rig, time, layout)
    assert run.wait(300.0), run._describe()
    rig.check()
    assert run.snapshot().restarts == (steps.seen[step] >= time)


def killed_before_the_commit(component: str, seed: int) -> tuple[Rig, SimRun]:
    """A run in which the worker of a component dies between the last ack and the commit.

    While the process of the coordinator is stopped, the batches in progress are processed, but none
    is committed.
    """
    steps = Steps()
    rig = rig_of("opaque" if seed % 2 else "transactional", steps, 3, real=True)
    rig.spout.total = 60
    run = submitted(rig, seed, Layout.ISOLATE)
    run.wait(0.02 + 0.01 * seed)
    coordinator = run.plan.tasks_of("$mastercoord-g")[0].worker
    run.pause_worker(coordinator)
    run.wait(2.0)
    run.kill_worker(run.plan.tasks_of(component)[0].worker)
    run.wait(2.0)
    run.resume_worker(coordinator)
    return rig, run


COMPONENTS = ("$mastercoord-g", "numbers", "middle", "counts", "after")


@pytest.mark.parametrize("component", COMPONENTS)
def test_rows_count_once_when_a_process_dies_between_the_last_ack_and_the_commit(
    component: str,
) -> None:
    causes: set[str] = set()
    for seed in range(2):
        rig, run = killed_before_the_commit(component, seed)
        assert run.wait(120.0), run._describe()
        rig.check()
        causes |= set(run.snapshot().component("$mastercoord-g").causes)
    assert "timeout" not in causes, "the failure must be detected before the timeout"
    if component == "counts":
        assert "failed by bolt" in causes, "a task without all of a batch does not commit it"


# ---- the states of keyed operators ---------------------------------------------------------------

SEED = 1
KEYED = [*(name for name in NAMES if name != "versions"), *MORE]  # "as-of" has two


def states_of(name: str) -> tuple[str, ...]:
    return ("as-of", "versions") if name == "as-of" else (name,)


@cache
def expected() -> dict[str, Any]:
    return {**of_ordinary_streams(SEED, (*NAMES, *MORE))}


def ends_at(
    last: int, name: str, store: Callable[..., Any], *, is_opaque: bool, is_after: bool
) -> bool:
    """Let the process end at a write, and the next run, with another number of tasks, complete.
    Returns whether there was such a write."""
    program = KeyedProgram(SEED, is_opaque, store, states_of(name))
    tasks = dict.fromkeys((*NAMES, *MORE, "in"), 2)
    has_ended = not program.run(Life(last, is_after), tasks)
    if has_ended:
        assert program.run(Life(), dict.fromkeys(tasks, (2, 1, 3)[last % 3]))
    assert program.rows() == {name: expected()[name]}, (last, is_opaque, is_after)
    return has_ended


def each_way(step: int, name: str) -> Iterator[tuple[int, bool, bool]]:
    """Writes, with kinds of spouts, and before or after the write; a `step` leaves some out."""
    for last in range(1 + KEYED.index(name) % step, 1_000, step):
        for way in range(4) if step == 1 else [last // step % 4]:
            yield last, way % 2 == 1, way > 1


@pytest.mark.parametrize(
    ("store", "step"),
    [
        ("memory", 5),
        pytest.param("memory", 1, marks=pytest.mark.long),
        pytest.param("sqlite", 3, marks=pytest.mark.long),
        *(
            pytest.param(*server.values, 5, marks=(*server.marks, pytest.mark.long))
            for server in stores()
        ),
    ],
)
@pytest.mark.parametrize("name", KEYED)
def test_each_row_of_a_keyed_operator_is_made_once_when_the_process_ends_at_any_write(
    name: str, store: str, step: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Timers, order, patterns, all joins, tables, joins as of a time, and `distinct`, in each
    store."""

    def new_state(_: str, kind: Any) -> Any:
        return state_in(request, store, tmp_path, kind)

    for last, is_opaque, is_after in each_way(step, name):
        if not ends_at(last, name, new_state, is_opaque=is_opaque, is_after=is_after):
            assert last > 10
            return
    raise AssertionError("the run never completes")
