"""The experiment poison: poison tuples become dead letters, and the others keep their rate."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.endurance.topologies import FIRST_POISON, POISON_EVERY, FullSpeedSpout, PoisonBolt
from benchmarks.measure import BenchmarkError, Log
from benchmarks.start_signal import StartSignal
from sunshower import Retry, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.runtime.plan import Layout

ROUNDS = 5
ATTEMPTS = 5
TUPLES_PER_S = 100_000  # for each of --seconds: 6 million in a run, by default, which takes 4 s
_FINISH_MAX_S = 120.0


def run_poison(cluster: RayCluster, folder: Path, seconds: float, log: Log) -> dict[str, Any]:
    """Rounds without and with poison in turn. Raises BenchmarkError if a run does not finish."""
    folder.mkdir()
    total = int(seconds * TUPLES_PER_S)
    rates: dict[bool, list[float]] = {False: [], True: []}
    wrong: list[str] = []
    for turn in range(2 * ROUNDS):
        poisoned = turn % 2 == 1
        letters = folder / f"letters-{turn}.jsonl"
        rates[poisoned].append(_run(cluster, folder, total, letters, poisoned=poisoned))
        if poisoned:
            rows = map(json.loads, letters.read_text(encoding="utf-8").splitlines())
            wrong += find_mistakes(range(FIRST_POISON, total, POISON_EVERY), rows)
        log(f"poison {turn + 1}/{2 * ROUNDS}: {rates[poisoned][-1]:,.0f} tuples/s")
    return {
        "tuples": total,
        "poison": len(range(FIRST_POISON, total, POISON_EVERY)),
        "clean": [round(rate) for rate in rates[False]],
        "poisoned": [round(rate) for rate in rates[True]],
        "rate": round(median(p / c for p, c in zip(rates[True], rates[False], strict=True)), 3),
        "wrong": len(wrong),
        "examples": wrong[:5],
    }


def find_mistakes(poisoned: Iterable[int], letters: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is wrong with the dead letters of a run, one sentence for each mistake."""
    attempts: dict[int, int] = dict.fromkeys(poisoned, 0)
    wrong = []
    for letter in letters:
        number = letter["record"]["number"]
        if number not in attempts:
            wrong.append(f"{number} is not poison")
            continue
        attempts[number] += 1
        if letter["attempts"] != ATTEMPTS:
            wrong.append(f"{number} had {letter['attempts']} attempts")
        if f"{number} is poison" not in letter["traceback"]:
            wrong.append(f"{number} has no traceback")
    return wrong + [
        f"{number} has {times} dead letters" for number, times in attempts.items() if times != 1
    ]


def _run(cluster: RayCluster, folder: Path, total: int, letters: Path, *, poisoned: bool) -> float:
    """The rate of acks of all tuples that are not poison, from the first emit to the last ack."""
    signal = StartSignal(folder)
    topology = Topology("poison")
    retry = Retry(attempts=ATTEMPTS, dead_letters=letters)
    flood = topology.spout("flood", FullSpeedSpout(signal, total), parallelism=2, retry=retry)
    flood.shuffle().bolt("taster", PoisonBolt(poisoned=poisoned), parallelism=2)
    run = cluster.submit(topology.graph(), Layout.PACK)
    try:
        signal.send()
        if not run.wait(_FINISH_MAX_S):
            raise BenchmarkError(f"the run has not finished: {run.snapshot()}")
        results = run.results("flood")
    finally:
        run.stop()
    good = total - len(range(FIRST_POISON, total, POISON_EVERY))
    acks = sum(acks for acks, _, _ in results)
    if acks != good:
        raise BenchmarkError(f"{acks:,} good tuples were acked, not {good:,}")
    return good / (max(last for _, _, last in results) - min(begun for _, begun, _ in results))
