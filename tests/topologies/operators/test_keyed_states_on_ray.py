"""Keyed states on a real Ray: worker processes are killed, and no record is missing in a state."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from sunshower import Bolt, Counter, KeyState, KeyValueState, Number, Topology
from sunshower.trident import SqliteState

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

TOTAL, KEYS, KILLS = 4_000, 50, 2


def key_of(number: Number) -> tuple[int, int]:
    return number.value % KEYS, number.value


def gather(record: tuple[int, int], state: KeyState[tuple[int, set[int]]]) -> None:
    times, numbers = state.value or (0, set())
    state.value = (times + 1, numbers | {record[1] // KEYS})


class Gather(Bolt[tuple[int, int], None]):
    """The same as a bolt."""

    state: KeyValueState[int, tuple[int, set[int]]]

    def process(self, record: tuple[int, int]) -> None:
        times, numbers = self.state.get(record[0], (0, set()))
        self.state[record[0]] = (times + 1, numbers | {record[1] // KEYS})


def test_each_record_is_in_its_state_although_workers_die(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    topology = Topology("states", workers=3)
    states = [SqliteState(tmp_path / f"{name}.db") for name in ("function", "bolt")]
    numbers = topology.spout("numbers", Counter(TOTAL))
    pairs = numbers.map(key_of, fields=["key", "number"])
    pairs.group_by("key").process(gather, state=states[0], parallelism=2)
    pairs.fields("key").bolt("bolt", Gather, 2, state=states[1])
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
    expected = set(range(TOTAL // KEYS))
    for found in (dict(state.items()) for state in states):
        assert {key: numbers for key, (_, numbers) in found.items()} == dict.fromkeys(
            range(KEYS), expected
        )
        assert all(times >= len(expected) for times, _ in found.values())
