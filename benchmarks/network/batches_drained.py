"""Drains two nodes under exactly-once batches; the second during an outage of the states' Redis.

numbers, in batches ─▶ call ─┬─▶ gathered    per key in the Redis: which numbers have arrived
                             └─▶ counted     per key in the Redis: how many have arrived

`call` takes 5 ms for each row. All settings are defaults. The rest is that of `node_drained`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.network.node_drained import Figures, Load, Paced, run_drains
from benchmarks.outage_scenarios import _keyed_bits
from benchmarks.outage_scenarios._keyed_bits import Keyed, gather, missing_numbers, wrong_keys
from sunshower import Number, Topology
from sunshower.actors.run import RayRun
from sunshower.state import RedisState
from sunshower.trident import InSqlite, PlainSpout, batches, count

_CALL_S = 0.005


def call(number: Number) -> Iterator[Keyed]:
    """Takes five milliseconds."""
    time.sleep(_CALL_S)
    yield from _keyed_bits.keyed(number.value)


def declare(topology: Topology, source: Paced, url: str, folder: Path) -> None:
    """Numbers to two states in the Redis. The nodes are on one machine, so all of them can read the
    file with the progress of the batches."""
    spout, store = PlainSpout(source, repeats=True), InSqlite(folder / "batches.db")
    rows = batches(topology, "numbers", spout, store=store).shuffle(parallelism=2).flat_map(call)
    keyed = rows.group_by("key")
    keyed.process(gather, state=RedisState(url, name="gathered"), parallelism=2)
    keyed.aggregate(count(), state=RedisState(url, name="counted"), parallelism=2)


def results(run: RayRun, url: str, total: int) -> Figures:
    """Evaluates the states."""
    del run
    gathered = dict(RedisState(url, name="gathered").items())
    counted = dict(RedisState(url, name="counted").items())
    expected = {key: len(range(key, total, _keyed_bits.KEYS)) for key in range(_keyed_bits.KEYS)}
    return {
        "lost": missing_numbers(gathered, total),
        "states_wrong": wrong_keys(gathered, total),
        "batch_counts_wrong": sum(counted.get(key) != n for key, n in expected.items()),
    }


def run(seconds: float) -> Figures:
    """The Redis is unavailable for `seconds`, while the second node is drained."""
    return run_drains(Load(__name__, "$mastercoord-numbers", declare, results), seconds)
