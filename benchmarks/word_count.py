"""The word counts: A (plain tuples, a silent count), by columns, and B (classes, every total)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path

from benchmarks.bytewax_flows import Setup
from benchmarks.clusters import Arena
from benchmarks.figures import Key, Ratio
from benchmarks.loops import bare_loop, plain_process
from benchmarks.measure import Entry, Match, Sample, Tell
from benchmarks.processes import run_together
from benchmarks.topologies import word_count
from sunshower.runtime.plan import Layout

MILLION = 1e6
_NAME = "word_count"
_UNIT = "M words/s"
_PLACES = ((1, 1), (1, 2), (2, 1))  # processes, threads of each
_BATCHES = (100, 1_000, 10_000)  # lines; ten words each
_FINALISTS = 3
_VARIANTS = {"operators": "operators-rows", "operators-columns": "operators-columns"}


def rows_and_columns(arena: Arena, path: Path, words: int, tell: Tell) -> Match:
    """Word count A and the columns, beside Bytewax's count_final and a bare loop."""
    ours = partial(_ours, arena, path, words)
    rows, columns = ours("rows"), ours("columns")
    untracked = ours("rows", ackers=0)
    operators, by_kernels = ours("operators"), ours("operators-columns")
    bytewax = _bytewax("count_final", arena.folder, path, words, tell)
    loop = Entry(
        Key(_NAME, "loop", "rows", _UNIT),
        partial(_peer, [partial(bare_loop, path)], arena.folder, words),
    )
    return Match(
        "word-count",
        [rows, operators, bytewax, loop, columns, by_kernels, untracked],
        [
            _ratio(rows, "bytewax", bytewax),
            _ratio(rows, "loop", loop),
            _ratio(rows, "untracked", untracked),
            _ratio(operators, "loop", loop),
            _ratio(operators, "bytewax", bytewax),
            _ratio(columns, "loop", loop),
            _ratio(by_kernels, "loop", loop),
            _ratio(columns, "bytewax", bytewax),
        ],
    )


def rows(arena: Arena, path: Path, words: int) -> Entry:
    """Word count A alone, to compare others with."""
    return _ours(arena, path, words, "rows")


def classes(arena: Arena, path: Path, words: int, tell: Tell) -> Match:
    """Word count B, beside Bytewax's stateful_map and two processes without any runtime."""
    ours = _ours(arena, path, words, "classes")
    bytewax = _bytewax("stateful_map", arena.folder, path, words, tell)
    jobs = [partial(plain_process, path, index, 2) for index in range(2)]
    plain = Entry(
        Key(_NAME, "two-processes", "classes", _UNIT), partial(_peer, jobs, arena.folder, words)
    )
    return Match(
        "word-count-classes",
        [ours, plain, bytewax],
        [_ratio(ours, "two-processes", plain), _ratio(ours, "bytewax", bytewax)],
    )


def _ratio(ours: Entry, peer: str, theirs: Entry) -> Ratio:
    return Ratio(f"{_NAME}/{ours.key.variant}/{peer}", ours.key, theirs.key)


def _ours(arena: Arena, path: Path, words: int, variant: str, **settings: int) -> Entry:
    def run() -> Sample:
        gate = arena.gate()
        topology = word_count(variant, path, gate, **settings)
        return arena.run(topology, gate, Layout.PACK).expect(words).sample(MILLION)

    name = _VARIANTS.get(variant, f"pack-{variant}")
    if settings.get("ackers") == 0:
        name += "-untracked"
    return Entry(Key(_NAME, "sunshower", name, _UNIT), run)


def _peer(jobs: Sequence[partial], folder: Path, words: int) -> Sample:
    return run_together(jobs, folder).expect(words).sample(MILLION)


def _bytewax(operator: str, folder: Path, path: Path, words: int, tell: Tell) -> Entry:
    """Bytewax as it is fastest here and now: every set-up once, the best ones once more."""

    def speed(setup: Setup) -> Sample:
        outcome = run_together(setup.jobs(path), folder, ready=setup.workers)
        return outcome.expect(words).sample(MILLION)

    def trial(setup: Setup) -> float:
        value = speed(setup).value
        tell(f"looking for the best set-up of bytewax: {setup.name}: {value:.3g} {_UNIT}")
        return value

    setups = [Setup(operator, *place, lines) for place, lines in product(_PLACES, _BATCHES)]
    best = {setup: trial(setup) for setup in setups}
    for setup in sorted(best, key=best.__getitem__, reverse=True)[:_FINALISTS]:
        best[setup] = max(best[setup], trial(setup))
    chosen = max(best, key=best.__getitem__)
    return Entry(Key(_NAME, "bytewax", chosen.name, _UNIT), partial(speed, chosen))
