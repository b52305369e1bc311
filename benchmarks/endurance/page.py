"""Writes the figures of a long run into docs/RELIABILITY.md, between two marks.

Only a run of an hour or more that has met all targets is written there.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.endurance.resources import ALL

PAGE = Path(__file__).parents[2] / "docs/RELIABILITY.md"
BEGIN, END = "<!-- figures of the long run -->\n", "<!-- end -->\n"
LEAST_HOURS = 1.0
COUNTS = (
    ("numbers drawn", "drawn"),
    ("numbers lost, of the first three chains", "lost"),
    ("words counted", "rows_counted"),
    ("words with a wrong count", "wrong_counts"),
    ("rows in Spark's table", "rows_of_spark"),
    ("messages missing there", "missing_rows"),
    ("rows there that are wrong or twice", "wrong_rows"),
    ("numbers lost on the way to PostgreSQL", "lost_rows"),
    ("totals there that are too low", "low_totals"),
)
_FIGURES = {"mib": "memory MiB", "files": "open files", "threads": "threads", "nodes": "nodes"}
_SHOWN = (ALL, "actors", "Java processes", "ZooKeeper")


def write_figures(report: Mapping[str, Any], page: Path = PAGE) -> bool:
    """Put the figures into the page if the run was long enough and missed no target; returns
    whether it did."""
    is_short = report["soak"]["seconds"] < LEAST_HOURS * 3600
    if is_short or any(target["met"] is False for target in report["targets"]):
        return False
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(before + BEGIN + figures(report) + END + after, encoding="utf-8")
    return True


def figures(report: Mapping[str, Any]) -> str:
    """The figures as Markdown."""
    run = report["soak"]
    faults = sum(run["faults"].values())
    said = (
        f"{run['seconds'] / 3600:g} h, {faults} faults, {report['busy_cores']:g} cores busy with "
        f"other work before it. It ended {run['state']}, with {run['dead_letters']:,} dead "
        f"letters, {run['quarantined']:,} tasks in quarantine, {run['restarts']:,} "
        f"restarts and {run['replayed']:,} replayed tuples."
    )
    counts = [(name, f"{run[key]:,}") for name, key in COUNTS]
    recovered = [
        (name, f"{times}", f"{run['recovery_s'][name]:.1f}")
        for name, times in sorted(run["faults"].items())
    ]
    held = [
        (row["of"], _FIGURES.get(row["figure"], "number"), f"{row['first']:,}", f"{row['last']:,}")
        for row in run["growth"]
        if row["of"] in _SHOWN
    ]
    parts = (
        textwrap.fill(said, 100),
        _table(("figure", "number"), counts, numbers=1),
        "The longest time from the end of a fault until all chains continued:",
        _table(("fault", "times", "s"), recovered, numbers=2),
        "What the processes held: medians after the warm-up, and at the end:",
        _table(("of", "figure", "first", "last"), held, numbers=2),
    )
    return "\n\n".join(parts) + "\n"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], numbers: int) -> str:
    """A Markdown table, whose last columns are numbers."""
    rule = ["---"] * (len(names) - numbers) + ["--:"] * numbers
    lines = [f"| {' | '.join(row)} |" for row in (names, *rows)]
    return "\n".join([lines[0], f"|{'|'.join(rule)}|", *lines[1:]])
