"""Pathway counts the words of a file, from a Python connector; run by `python_peers.py`."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

LINES, THREADS = sys.argv[1], sys.argv[2]
os.environ["PATHWAY_THREADS"] = THREADS  # Pathway reads it when it is imported

import pathway as pw  # noqa: E402

COMMIT_MS = 100  # as fast as a commit each second, or a single one


class Lines(pw.io.python.ConnectorSubject):
    """All lines, which are in memory before the start."""

    begun_s = begun_cpu_s = 0.0

    def __init__(self, path: str) -> None:
        super().__init__()
        with open(path, encoding="ascii") as file:
            self._lines = file.read().split("\n")

    def run(self) -> None:
        Lines.begun_s, Lines.begun_cpu_s = time.monotonic(), time.process_time()
        for line in self._lines:
            self.next(text=line)


class Line(pw.Schema):
    """One line of text."""

    text: str


class Totals:
    """The last total of each word, and the time of the end."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self.ended_s = self.ended_cpu_s = 0.0

    def change(self, key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            self.last[row["word"]] = row["total"]

    def end(self) -> None:
        self.ended_s, self.ended_cpu_s = time.monotonic(), time.process_time()


totals = Totals()
lines = pw.io.python.read(Lines(LINES), schema=Line, autocommit_duration_ms=COMMIT_MS)
split = lines.select(word=pw.apply_with_type(str.split, list[str], pw.this.text))
words = split.flatten(pw.this.word)
counts = words.groupby(pw.this.word).reduce(pw.this.word, total=pw.reducers.count())
pw.io.subscribe(counts, on_change=totals.change, on_end=totals.end)
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
result = {
    "begun_s": Lines.begun_s,
    "ended_s": totals.ended_s,
    "done": sum(totals.last.values()),
    "cpu_s": totals.ended_cpu_s - Lines.begun_cpu_s,
}
print(json.dumps(result))
