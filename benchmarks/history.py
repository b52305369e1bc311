"""The cost of an experiment's history: the same topology with and without one."""

from __future__ import annotations

from functools import partial

from benchmarks.clusters import Arena
from benchmarks.constants import FRAME, MILLION, PENDING
from benchmarks.figures import Key, Ratio
from benchmarks.measure import Entry, Match, Sample
from benchmarks.topologies import constants
from sunshower.runtime.plan import Layout

SAMPLES = (64, 1)  # the history has the edges of one tree in this number


def match(arena: Arena, seconds: float) -> Match:
    """Const → id → null, isolated, at full speed: the worst case, because the bolts do no work."""
    bare = _entry(arena, seconds, None)
    kept = {sample: _entry(arena, seconds, sample) for sample in SAMPLES}
    ratios = [Ratio(f"history/sample-{n}/none", one.key, bare.key) for n, one in kept.items()]
    return Match("history", [bare, *kept.values()], ratios, rounds=2)


def _entry(arena: Arena, seconds: float, sample: int | None) -> Entry:
    variant = "none" if sample is None else f"sample-{sample}"
    key = Key("history", "sunshower", variant, "M tuples/s")
    return Entry(key, partial(_run, arena, seconds, sample))


def _run(arena: Arena, seconds: float, sample: int | None) -> Sample:
    gate = arena.gate()
    topology = constants(2, gate, seconds, frame_records_max=FRAME, spout_pending=PENDING)
    return arena.run(topology, gate, Layout.ISOLATE, sample).sample(MILLION)
