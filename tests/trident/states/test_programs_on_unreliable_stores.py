"""Whole programs whose state store loses answers and writes late or twice, while processes die."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from sunshower import Topology
from sunshower.errors import ClusterError
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from sunshower.topologies.operators.states import StateKind
from sunshower.trident import InMemory, Skip, batches, count, sum_
from sunshower.trident.states.stored_map import StoredMap
from tests.seeds import seeds
from tests.trident.rigs.group_rig import KEYS, Hook, Numbers, OpaqueNumbers
from tests.trident.rigs.programs import SETTINGS
from tests.trident.rigs.unsure import Trouble, Troubles, UnsureState

TOTAL = 40
COUNTS = Counter(number % KEYS for number in range(TOTAL))
SUMS = {key: sum(range(key, TOTAL, KEYS)) for key in range(KEYS)}


def unreliable(random: Random, kind: StateKind) -> UnsureState:
    return UnsureState(MemoryState(kind), Troubles(random, 0.25))


def run(spout: Any, kind: StateKind, seed: int) -> tuple[UnsureState, UnsureState]:
    """Count and sum up numbers by key, while two workers are killed."""
    counts, sums = unreliable(Random(seed), kind), unreliable(Random(seed + 1), kind)
    topology = Topology("numbers", **SETTINGS)
    numbers = batches(
        topology,
        "numbers",
        spout,
        store=InMemory(),
        max_batches=1 + seed % 3,
        interval_s=0.2,
        skip=Skip(attempts=10_000),
    ).group_by("key")
    numbers.aggregate(count(), state=counts, parallelism=2, name="counts")
    numbers.aggregate(sum_("number"), state=sums, name="sums")
    layout = (Layout.ISOLATE, Layout.PACK)[seed % 2]
    ran = SimCluster(seed, check=True).submit(topology.graph(), layout)
    for killed in range(2):
        ran.wait(0.3 + 0.17 * ((seed + killed) % 5))
        workers = sorted(ran.snapshot().workers)
        with suppress(ClusterError):  # it has just died
            ran.kill_worker(workers[(seed * 5 + killed) % len(workers)])
    assert ran.wait(3_000.0)
    for state in (counts, sums):
        state.troubles.calm()
    return counts, sums


@seeds(13, first=1, kinds=3)
def test_batches_whose_repeats_differ_count_once_in_opaque_states(seed: int) -> None:
    counts, sums = run(OpaqueNumbers(TOTAL, 5, Hook()), StateKind.OPAQUE, seed)
    assert dict(counts.items("counts")) == COUNTS
    assert dict(sums.items("sums")) == SUMS
    assert counts.troubles.count[Trouble.NONE] < sum(counts.troubles.count.values())


@seeds(6, kinds=2)
def test_batches_with_equal_repeats_count_once_in_transactional_states(seed: int) -> None:
    counts, sums = run(Numbers(TOTAL, 5), StateKind.TRANSACTIONAL, seed)
    assert dict(counts.items("counts")) == COUNTS
    assert dict(sums.items("sums")) == SUMS


def test_a_state_that_does_not_undo_earlier_attempts_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(StoredMap, "_undone", lambda *_: {})
    counts, _ = run(OpaqueNumbers(TOTAL, 5, Hook()), StateKind.OPAQUE, 0)
    assert dict(counts.items("counts")) != COUNTS
