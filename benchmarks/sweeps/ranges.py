"""Speed against one number: record size, keys, fan-out, tasks, length of the chain, acker shards.

One round of 28 runs: 100 s.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.clusters import Arena
from benchmarks.figures import Key
from benchmarks.gate import Gate
from benchmarks.measure import Entry, Match, Sample
from benchmarks.sweeps import open_loop, shapes
from benchmarks.sweeps.runs import Runs
from sunshower import Topology
from sunshower.actors.shipping import ship
from sunshower.runtime.plan import Layout

SECONDS = 1.5
_NAME = "sweeps"
_UNIT = "records/s"
SIZES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
KEYS = (10, 1_000, 100_000, 1_000_000, 10_000_000)
FAN_OUTS = (1, 10, 100, 1_000)
TASKS = (1, 4, 16, 64)
LENGTHS = (1, 2, 4, 8, 16)
SHARDS = (1, 2, 4, 8)
_Make = Callable[[Gate, float], Topology]


def match(arena: Arena, seconds: float) -> Match:
    """Each number of each range, for `seconds`, at most 1.5.

    The number stands at the end of each variant. `record-bytes` and `keys` are isolated, so each
    record crosses two processes; the others have two workers. `fan-out` counts derived records.
    """
    ship([open_loop, shapes])
    seconds = min(seconds, SECONDS)
    isolated = partial(_entry, arena, Layout.ISOLATE, seconds)
    packed = partial(_entry, arena, Layout.PACK, seconds)
    entries = [one for size in SIZES for one in _sized(arena, seconds, size)]
    entries += [isolated(f"keys-{n}", partial(shapes.keyed, keys=n)) for n in KEYS]
    entries += [packed(f"fan-out-{n}", partial(shapes.fanned_out, times=n)) for n in FAN_OUTS]
    entries += [packed(f"tasks-{n}", partial(shapes.lined_up, tasks=n)) for n in TASKS]
    entries += [packed(f"chain-{n}", partial(shapes.lined_up, bolts=n)) for n in LENGTHS]
    entries += [packed(f"shards-{n}", partial(shapes.lined_up, ackers=n)) for n in SHARDS]
    return Match(_NAME, entries, rounds=1)


def _entry(arena: Arena, layout: Layout, seconds: float, variant: str, make: _Make) -> Entry:
    return Entry(
        Key(_NAME, "sunshower", variant, _UNIT), partial(_run, arena, layout, seconds, make)
    )


def _run(arena: Arena, layout: Layout, seconds: float, make: _Make) -> Sample:
    gate = arena.gate()
    return arena.run(make(gate, seconds), gate, layout).sample(1.0)


def _sized(arena: Arena, seconds: float, size: int) -> list[Entry]:
    """Records and megabytes a second, from one run."""

    def run() -> dict[str, Sample]:
        found = _run(arena, Layout.ISOLATE, seconds, partial(shapes.sized, size=size))
        return {_UNIT: found, "MB/s": Sample(found.value * size / 1e6, found.cores)}

    runs = Runs(run)
    names = {_UNIT: f"record-bytes-{size}", "MB/s": f"volume-of-record-bytes-{size}"}
    return [
        Entry(Key(_NAME, "sunshower", name, unit), partial(runs.take, unit))
        for unit, name in names.items()
    ]
