"""Adaptive max pending compared with fixed limits: speed and complete latency of a word count."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.clusters import Arena
from benchmarks.figures import Key, Ratio
from benchmarks.measure import Entry, Match, Sample
from benchmarks.sweeps.runs import Runs
from benchmarks.topologies import word_count
from sunshower.runtime.plan import Layout

FIXED = (1_000, 4_000, 16_000, 32_000)  # lines of ten words, for each of two spout tasks
_NAME = "pending"
_MILLION = 1e6


def match(arena: Arena, path: Path, words: int) -> Match:
    """Operators over rows under full load, in two workers. `ms`: p50 from emit to ack."""
    chosen = _entries(arena, path, words, "auto", {})
    fixed = [_entries(arena, path, words, f"{n}", {"spout_pending": n}) for n in FIXED]
    ratios = [Ratio(f"{_NAME}/auto/{one[0].key.variant}", chosen[0].key, one[0].key)
              for one in fixed]  # fmt: skip
    return Match(_NAME, [one for each in (chosen, *fixed) for one in each], ratios)


def _entries(
    arena: Arena, path: Path, words: int, variant: str, settings: dict[str, int]
) -> list[Entry]:
    runs = Runs(partial(_run, arena, path, words, settings))
    speed = Key(_NAME, "sunshower", variant, "M words/s")
    latency = Key(_NAME, "sunshower", f"{variant}-p50", "ms")
    return [Entry(speed, partial(runs.take, "speed")), Entry(latency, partial(runs.take, "p50"))]


def _run(arena: Arena, path: Path, words: int, settings: dict[str, int]) -> dict[str, Sample]:
    gate = arena.gate()
    topology = word_count("operators", path, gate, **settings)
    found = arena.run(topology, gate, Layout.PACK).expect(words).sample(_MILLION)
    return {"speed": found, "p50": Sample(1e3 * found.more["p50_s"])}
