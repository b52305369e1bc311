"""Keyed states on a real Ray: worker processes are killed, and no record is missing in a state."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from sunshower import Counter, KeyState, Number, Topology
from sunshower.trident import SqliteState

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

TOTAL, KEYS, KILLS = 4_000, 50, 2


def key_of(number: Number) -> tuple[int, int]:
    return number.value % KEYS, number.value


def gather(record: tuple[int, int], state: KeyState[tuple[int, set[int]]]) -> None:
    times, numbers = state.value or (0, set())
    state.value = (times + 1, numbers | {record[1] // KEYS})


def test_each_record_is_in_its_state_although_workers_die(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    topology, state = Topology("states", workers=3), SqliteState(tmp_path / "states.db")
    numbers = topology.spout("numbers", Counter(TOTAL))
    pairs = numbers.map(key_of, fields=["key", "number"])
    pairs.group_by("key").process(gather, state=state, parallelism=2)
    run = ray_cluster.submit(topology.graph())
    try:
        end_s, killed = time.monotonic() + 120, 0
        tasks = run.plan.tasks_of("gather")
        while time.monotonic() < end_s and not run.wait(0.05):
            done = run.snapshot().component("numbers").acked
            if killed < KILLS and done > (killed + 1) * TOTAL // 8:
                run.kill_worker(tasks[killed % 2].worker)
                killed += 1
        assert run.finished(), run.snapshot()
        assert killed == KILLS
        assert run.snapshot().restarts >= KILLS
    finally:
        run.stop()
    found = dict(state.items())
    expected = set(range(TOTAL // KEYS))
    assert {key: numbers for key, (_, numbers) in found.items()} == dict.fromkeys(
        range(KEYS), expected
    )
    assert all(times >= len(expected) for times, _ in found.values())
