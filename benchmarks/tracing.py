"""The cost of traces: a word count in one process, with and without them, in alternating pairs.

    python -m benchmarks.tracing [pairs] [lines]

It measures CPU seconds of the process, which depend less on other processes, and wall seconds. A
pair is one run with the default `trace_share` and one with 0, in alternating order. It prints the
median of the pairs, and the ratio of the fastest runs, which other processes disturbed least.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from sunshower import Bolt, Line, Spout, Topology
from sunshower.config import Config
from sunshower.runtime.inline import run_inline

_TEXT = "the cow jumped over the moon and the little dog laughed"


class Word(NamedTuple):
    word: str


class SameLines(Spout[Line]):
    def __init__(self, count: int) -> None:
        self._count = count

    def records(self) -> Iterator[Line]:
        line = Line(_TEXT)
        for _ in range(self._count):
            yield line


def split(line: Line) -> Iterator[Word]:
    for word in line.text.split():
        yield Word(word)


class Count(Bolt[Word, None]):
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def process(self, word: Word) -> None:
        self.counts[word.word] = self.counts.get(word.word, 0) + 1


def run(lines: int, share: float) -> tuple[float, float, int]:
    """CPU seconds, wall seconds, and how many trees are recorded at the end."""
    topology = Topology("tracing", trace_share=share)
    words = topology.spout("lines", SameLines(lines)).shuffle().bolt("split", split, 2)
    words.fields("word").bolt("count", Count(), 2)
    gc.collect()
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    done = run_inline(topology.graph())
    return time.process_time() - cpu_s, time.perf_counter() - wall_s, len(done.traces.trees)


def main(arguments: list[str]) -> None:
    pairs, lines = [*map(int, arguments), *(41, 30_000)[len(arguments) :]]
    share = Config().trace_share
    run(lines, share)
    pairs_of: dict[float, list[tuple[float, float, int]]] = {share: [], 0.0: []}
    for pair in range(pairs):
        for variant in (share, 0.0) if pair % 2 else (0.0, share):
            pairs_of[variant].append(run(lines, variant))
    for at, name in enumerate(("CPU", "wall")):
        on, off = ([pair_figures[at] for pair_figures in pairs_of[how]] for how in (share, 0.0))
        ratios = [a / b - 1 for a, b in zip(on, off, strict=True)]
        print(
            f"{name}: {10 * lines / min(off) / 1e6:.3f} M words/s; with traces the median of "
            f"{pairs} pairs is {median(ratios):+.1%}, the fastest run {min(on) / min(off) - 1:+.1%}"
        )
    print(f"{pairs_of[share][0][2]} trees were recorded in each run")


if __name__ == "__main__":
    main(sys.argv[1:])
