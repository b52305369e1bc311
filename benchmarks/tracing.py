"""What traces cost: word count in one process, with and without them, in alternating pairs.

    python -m benchmarks.tracing [pairs] [lines]

CPU seconds of the process, so that other processes on the machine matter less. Each pair is one run
with the default `trace_share` and one with 0, in changing order; the median of the pairs counts.
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
    pairs, lines = [*map(int, arguments), *(9, 60_000)[len(arguments) :]]
    share = Config().trace_share
    run(lines // 10, share)
    ratios: dict[str, list[float]] = {"CPU": [], "wall": []}
    for pair in range(pairs):
        found = {}
        for one in (share, 0.0) if pair % 2 else (0.0, share):
            found[one] = run(lines, one)
        for at, name in enumerate(ratios):
            ratios[name].append(found[share][at] / found[0.0][at] - 1)
        print(
            f"pair {pair + 1}: {10 * lines / found[0.0][0] / 1e6:.3f} M words per CPU second, with "
            f"traces {10 * lines / found[share][0] / 1e6:.3f} ({found[share][2]} trees are kept)"
        )
    for name, own in ratios.items():
        print(f"{name}: {median(own):+.1%} (from {min(own):+.1%} to {max(own):+.1%})")


if __name__ == "__main__":
    main(sys.argv[1:])
