"""Writes the figures of a long run into docs/RELIABILITY.md, between two marks, and their plot.

Only a run of at least an hour that has met all targets is written. To write the page again:

    python -m benchmarks.endurance.page [FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.endurance.resources import ALL, ResourceUse
from benchmarks.performance.plots import Panel, panels

PAGE = Path(__file__).parents[2] / "docs/RELIABILITY.md"
PLOT = "images/long-run.svg"  # in the folder of the page
RESULT = Path(__file__).parents[1] / "results/soak.json"
BEGIN, END = "<!-- figures of the long run -->\n", "<!-- end -->\n"
LEAST_HOURS = 1.0
COUNTS = (
    ("numbers emitted", "drawn"),
    ("numbers lost in the first three chains", "lost"),
    ("words counted", "rows_counted"),
    ("words with a wrong count", "wrong_counts"),
    ("rows in Spark's table", "rows_of_spark"),
    ("messages missing in Spark's table", "missing_rows"),
    ("wrong or duplicate rows in Spark's table", "wrong_rows"),
    ("numbers missing in PostgreSQL", "lost_rows"),
    ("totals in PostgreSQL that are too low", "low_totals"),
)
_FIGURES = {"mib": "memory MiB", "files": "open files", "threads": "threads", "nodes": "nodes"}
_DRAWN = {"mib": "Memory (MiB)", "files": "Open files", "threads": "Threads"}
_SHOWN = (ALL, "actors", "Java processes", "ZooKeeper")


def write_figures(report: Mapping[str, Any], page: Path = PAGE) -> bool:
    """Put the figures into the page, and their plot next to it, if the run was long enough and
    missed no target. Returns whether it did."""
    is_short = report["soak"]["seconds"] < LEAST_HOURS * 3600
    if is_short or any(target["met"] is False for target in report["targets"]):
        return False
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(before + BEGIN + figures(report) + END + after, encoding="utf-8")
    file = page.parent / PLOT
    file.parent.mkdir(exist_ok=True)
    file.write_text(plot(report["soak"]["samples"]), encoding="utf-8")
    return True


def figures(report: Mapping[str, Any]) -> str:
    """The figures as Markdown."""
    run = report["soak"]
    faults = sum(run["faults"].values())
    summary = (
        f"{run['seconds'] / 3600:g} h, {faults} faults, {report['busy_cores']:g} cores busy with "
        f"other work before it. It ended {run['state']}, with {run['dead_letters']:,} dead "
        f"letters, {run['quarantined']:,} tasks in quarantine, {run['restarts']:,} "
        f"restarts and {run['replayed']:,} replayed tuples."
    )
    over_time = (
        "Resources during the run, in about 60 samples. A process and its successor are one line; "
        "the dips are processes that were killed and restart:"
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
        textwrap.fill(summary, 100),
        _table(("figure", "number"), counts, numbers=1),
        "The longest time from the end of a fault until all chains continued:",
        _table(("fault", "times", "s"), recovered, numbers=2),
        "Resources of the processes: medians after the warm-up, and at the end:",
        _table(("of", "figure", "first", "last"), held, numbers=2),
        textwrap.fill(over_time, 100),
        f"![Memory, open files and threads over the time of the run]({PLOT})",
    )
    return "\n\n".join(parts) + "\n"


def plot(samples: Sequence[Mapping[str, Any]]) -> str:
    """An SVG of memory, open files and threads: of all processes on the left, of each process on
    the right."""
    peaks: dict[str, float] = {}  # of memory: the names with most get the first colours
    for name, held in ((name, held) for sample in samples for name, held in sample.items()):
        if name not in ("at_s", ALL) and (mib := ResourceUse(*held).mib):
            peaks[name] = max(mib, peaks.get(name, 0.0))
    names = sorted(peaks, key=lambda name: -peaks[name])
    rows = []
    for field, title in _DRAWN.items():
        lines = {name: _over_time(samples, name, field) for name in (ALL, *names)}
        total = {ALL: lines.pop(ALL)}
        rows.append([Panel(f"{title}, {ALL}", total), Panel(f"{title}, each process", lines)])
    return panels("minutes", rows)


def _over_time(
    samples: Iterable[Mapping[str, Any]], name: str, field: str
) -> list[tuple[float, float]]:
    """The minutes of the samples, and what the processes of this name held."""
    return [
        (sample["at_s"] / 60, getattr(ResourceUse(*sample[name]), field))
        for sample in samples
        if name in sample
    ]


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], numbers: int) -> str:
    """A Markdown table, whose last columns are numbers."""
    rule = ["---"] * (len(names) - numbers) + ["--:"] * numbers
    lines = [f"| {' | '.join(row)} |" for row in (names, *rows)]
    return "\n".join([lines[0], f"|{'|'.join(rule)}|", *lines[1:]])


def main(given: list[str] | None = None, page: Path = PAGE) -> int:
    """Write the page from a result; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.endurance.page",
        description="Write the figures and the plot of a long run into docs/RELIABILITY.md.",
    )
    parser.add_argument("file", nargs="?", type=Path, default=RESULT, metavar="FILE")
    file: Path = parser.parse_args(given).file
    try:
        report = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        parser.error(f"{file} cannot be read: {error}; `make endurance HOURS=1` writes it")
    if not write_figures(report, page):
        sys.stderr.write(
            f"docs/RELIABILITY.md is not changed: the run in {file} was shorter than an hour, or "
            "missed a target\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
