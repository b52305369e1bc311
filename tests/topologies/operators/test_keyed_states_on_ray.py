"""Keyed states on a real Ray: workers are killed, and no record is missing from a state."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sunshower import Bolt, JsonLines, KeyState, KeyValueState, Number, Topology
from sunshower.runtime.plan import Layout
from sunshower.state import SqliteState
from tests.actors.programs.evidence import Held, finish_with_kills, submitted

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

TOTAL, KEYS = 4_000, 50


def key_of(number: Number) -> tuple[int, int]:
    return number.value % KEYS, number.value


def gather(record: tuple[int, int], state: KeyState[tuple[int, set[int]]]) -> None:
    times, numbers = state.value or (0, set())
    state.value = (times + 1, numbers | {record[1] // KEYS})


def gather_for_a_while(record: tuple[int, int], state: KeyState[tuple[int, set[int]]]) -> None:
    gather(record, state)
    if state.timer is None:
        state.timer = state.time + 0.5


def report(key: int, state: KeyState[tuple[int, set[int]]]) -> Iterator[tuple[int, list[int]]]:
    assert state.value
    yield key, sorted(state.value[1])


class Gather(Bolt[tuple[int, int], None]):
    """`gather` as a bolt."""

    state: KeyValueState[int, tuple[int, set[int]]]

    def process(self, record: tuple[int, int]) -> None:
        times, numbers = self.state.get(record[0], (0, set()))
        self.state[record[0]] = (times + 1, numbers | {record[1] // KEYS})


def test_each_record_is_in_its_state_although_workers_die(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    topology = Topology("states", workers=2)
    states = [SqliteState(tmp_path / f"{name}.db") for name in ("function", "bolt")]
    gate = tmp_path / "gate"
    numbers = topology.spout("numbers", Held(TOTAL, gate))
    pairs = numbers.map(key_of, fields=["key", "number"])
    pairs.group_by("key").process(gather, state=states[0], parallelism=2)
    pairs.fields("key").bolt("bolt", Gather, 2, state=states[1])
    pairs.group_by("key").process(
        gather_for_a_while,
        on_timer=report,
        state=SqliteState(tmp_path / "timed.db"),
        fields=["key", "numbers"],
        parallelism=2,
    ).shuffle().bolt("fired", JsonLines(tmp_path / "fired.jsonl"))
    with submitted(ray_cluster, topology, layout=Layout.PACK) as run:
        tasks = [run.plan.tasks_of("gather")[0], run.plan.tasks_of("gather_for_a_while")[1]]
        finish_with_kills(run, "numbers", TOTAL, tasks, gate)
    expected = set(range(TOTAL // KEYS))
    for contents in (dict(state.items()) for state in states):
        assert {key: numbers for key, (_, numbers) in contents.items()} == dict.fromkeys(
            range(KEYS), expected
        )
        assert all(times >= len(expected) for times, _ in contents.values())
    fired: defaultdict[int, set[int]] = defaultdict(set)
    for file in tmp_path.glob("fired*"):
        for line in map(json.loads, file.read_text().splitlines()):
            fired[line["key"]].update(line["numbers"])
    assert fired == dict.fromkeys(range(KEYS), expected)
