"""Baselines: the same user code without a runtime, in one process or in two."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.corpus import read_lines
from benchmarks.measure import Outcome
from benchmarks.processes import Starter
from benchmarks.topologies import CountWords, Line, one_field, split, split_tuples
from sunshower import Context


def bare_loop(path: Path, starter: Starter) -> Outcome:
    """Word count A: one loop through the same generator, into one dictionary."""
    records = [one_field(line) for line in read_lines(path)]
    counts: dict[str, int] = {}
    begun_s, cpu_s = starter.wait(), time.process_time()
    for record in records:
        for (word,) in split_tuples(record):
            counts[word] = counts.get(word, 0) + 1
    return Outcome(begun_s, time.monotonic(), sum(counts.values()), time.process_time() - cpu_s)


def plain_process(path: Path, index: int, processes: int, starter: Starter) -> Outcome:
    """Word count B: the same functions over a share of the lines; totals are discarded."""
    lines = [Line(text) for text in read_lines(path)[index::processes]]
    count = CountWords()
    count.prepare(Context("", "", 0, index, processes))
    process = count.process
    begun_s, cpu_s = starter.wait(), time.process_time()
    for line in lines:
        for word in split(line):
            for _total in process(word):
                pass
    return Outcome(begun_s, time.monotonic(), count.result()[0], time.process_time() - cpu_s)
