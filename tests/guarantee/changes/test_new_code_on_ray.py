"""Tests of upgrades on a real Ray under load, also with code that does not load or open."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ray import cloudpickle

from sunshower import KeyState, Number, Topology
from sunshower.actors.store import RayStore
from sunshower.errors import ClusterError, LifecycleError
from sunshower.runtime.control.lifecycle import State
from sunshower.state import SqliteState
from tests.actors.programs.evidence import Held
from tests.guarantee.deaths import RECOVERY_S, until

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster
    from sunshower.actors.run import RayRun

TOTAL, KEYS = 6_000, 50


def key_of(number: Number) -> tuple[int, int]:
    return number.value % KEYS, number.value


def gather(record: tuple[int, int], state: KeyState[tuple[int, set[int]]]) -> None:
    times, numbers = state.value or (0, set())
    state.value = (times + 1, numbers | {record[1]})


def gather_marked(record: tuple[int, int], state: KeyState[tuple[int, set[int]]]) -> None:
    """The same as `gather`; adds -1 to the numbers, so that its work can be recognised."""
    gather(record, state)
    assert state.value
    state.value = (state.value[0], state.value[1] | {-1})


class Raises:
    """A function whose `prepare` raises."""

    def prepare(self, context: object) -> None:
        raise ValueError("no such table")

    def __call__(self, record: tuple[int, int], state: KeyState[tuple[int, set[int]]]) -> None:
        """Never called."""


class BadToLoad:
    """Code that no other process can load."""

    def __deepcopy__(self, memo: object) -> BadToLoad:
        return self

    def __reduce__(self) -> object:
        return _fails, ()

    def __call__(self, record: tuple[int, int], state: KeyState[tuple[int, set[int]]]) -> None:
        """Never called."""


def _fails() -> None:
    raise ImportError("no module named 'prices'")


def topology(folder: Path, function: Any, tasks: int) -> Topology:
    gathered = Topology("gathered", workers=2)
    pairs = gathered.spout("numbers", Held(TOTAL, folder / "gate")).map(
        key_of, fields=["key", "number"]
    )
    state = SqliteState(folder / "gathered.db")
    grouped = pairs.group_by("key")
    grouped.process(function, state=state, name="gather", parallelism=tasks)
    return gathered


def until_executed(run: RayRun) -> None:
    until(lambda: run.snapshot().component("gather").executed > 0)


def check_each_is_there(folder: Path) -> None:
    entries = dict(SqliteState(folder / "gathered.db").items())
    for key in range(KEYS):
        times, numbers = entries[key]
        assert numbers - {-1} == {*range(key, TOTAL, KEYS)}
        assert times >= TOTAL // KEYS


def test_a_state_has_each_record_after_an_upgrade_under_load(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    run = ray_cluster.submit(topology(tmp_path, gather, 2).graph())
    try:
        until_executed(run)
        assert run.upgrade(topology(tmp_path, gather_marked, 3).graph()) == ["gather: 2 → 3 tasks"]
        assert len(RayStore(run.id).plan_numbers()) == 1, "the former plan was removed"
        run.kill_master()
        run.kill_worker(run.plan.workers[-1])
        (tmp_path / "gate").touch()
        assert run.wait(RECOVERY_S)
    finally:
        run.stop()
    check_each_is_there(tmp_path)
    assert all(-1 in numbers for _, (_, numbers) in SqliteState(tmp_path / "gathered.db").items())


@pytest.mark.long
def test_after_code_that_does_not_load_or_open_the_old_code_continues(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    run = ray_cluster.submit(topology(tmp_path, gather, 2).graph())
    try:
        until_executed(run)
        with pytest.raises(LifecycleError, match=r"does not load on the cluster: .*prices"):
            run.upgrade(topology(tmp_path, BadToLoad(), 2).graph())
        with pytest.raises(LifecycleError, match=r"(?s)did not open.*no such table"):
            run.upgrade(topology(tmp_path, Raises(), 2).graph())
        assert run.snapshot().state is State.ACTIVE
        assert RayStore(run.id).plan_numbers() == [0]
        (tmp_path / "gate").touch()
        assert run.wait(RECOVERY_S)
    finally:
        run.stop()
    check_each_is_there(tmp_path)


def test_code_that_does_not_load_on_a_node_is_not_reported_as_a_defect_of_sunshower(
    ray_cluster: RayCluster,
) -> None:
    store = RayStore("gathered-1")
    store.write("plan/7/", cloudpickle.dumps(BadToLoad()))
    try:
        with pytest.raises(ClusterError, match=r"does not load on node .*: ImportError: .*prices"):
            store.load_plan(7)
    finally:
        store.remove()
