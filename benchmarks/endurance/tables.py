"""Tables of the endurance results for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table

from benchmarks.tables import targets_table

_MAPS = ("faults", "failures", "recovery_s")


def tables(report: Mapping[str, Any]) -> Group:
    """All tables of the report."""
    return Group(*_parts(report), targets_table(report))


def _parts(report: Mapping[str, Any]) -> Iterator[Table]:
    for run in report.get("chaos", {}).values():
        yield _victims(run)
    if "chaos" in report:
        yield _all_tuples(report["chaos"])
    if "slow" in report:
        yield _slow(report["slow"])
    if "poison" in report:
        yield _poison(report["poison"])
    if "programs" in report:
        yield _programs(report["programs"])
    if "load" in report:
        yield _load(report["load"])
    if "groups" in report:
        yield _groups(report["groups"])
    if "soak" in report:
        yield _soak(report["soak"])
        yield _growth(report["soak"]["growth"])


def _victims(run: Mapping[str, Any]) -> Table:
    table = Table("victim", title=f"Killed, layout {run['layout']}", title_justify="left")
    for name in ("kills", "touched", "successor s", "last ack s, median", "worst"):
        table.add_column(name, justify="right")
    for row in run["victims"]:
        figures = (row["back_s"], row["median_s"], row["worst_s"])
        table.add_row(
            row["victim"], f"{row['kills']}", f"{row['touched']:,.0f}", *map(_seconds, figures)
        )
    return table


def _all_tuples(runs: Mapping[str, Any]) -> Table:
    table = Table("layout", title="All tuples", title_justify="left")
    names = ("tuples", "lost", "acked_early", "rate", "timeouts", "replays", "duplicates")
    for name in names:
        table.add_column(name.replace("_", " "), justify="right")
    table.add_column("failures")
    for layout, run in runs.items():
        failures = ", ".join(f"{count:,} {cause}" for cause, count in run["failures"].items())
        table.add_row(layout, *(f"{run[name]:,}" for name in names), failures)
    return table


def _slow(run: Mapping[str, Any]) -> Table:
    table = Table("worker of", title="Behind a slow bolt: resident MiB", title_justify="left")
    for name in ("start", "peak", "may grow by"):
        table.add_column(name, justify="right")
    for worker, sizes in run["memory_mib"].items():
        table.add_row(worker, f"{sizes['start']}", f"{sizes['peak']}", f"{run['bound_mib']}")
    return table


def _poison(run: Mapping[str, Any]) -> Table:
    table = Table("stream", title="Tuples/s, round by round", title_justify="left")
    for number in range(1, len(run["clean"]) + 1):
        table.add_column(f"{number}", justify="right")
    for name in ("clean", "poisoned"):
        table.add_row(name, *(f"{rate:,}" for rate in run[name]))
    return table


def _programs(run: Mapping[str, Any]) -> Table:
    title = "Programs over event time; others: rows that a plain program does not have; repeated: "
    title += "rows that batches have more often"
    table = Table("program", "stages", title=title, title_justify="left")
    for name in ("kills", "upgrades", "rows", "missing", "repeated", "others"):
        table.add_column(name, justify="right")
    for row in run["each"]:
        figures = (
            row[name] for name in ("kills", "upgrades", "rows", "missing", "repeated", "other")
        )
        table.add_row(row["name"], row["stages"], *(f"{figure:,}" for figure in figures))
    return table


def _load(run: Mapping[str, Any]) -> Table:
    table = Table("load", title="Tasks that follow a load", title_justify="left")
    for name in ("tasks", "workers", "lag s"):
        table.add_column(name, justify="right")
    table.add_column("s after the step, and the change")
    for step in run["steps"]:
        changes = "\n".join(f"{at_s}  {text}" for at_s, text in step["changes"])
        numbers = (step[name] for name in ("load", "tasks", "workers", "lag_s"))
        table.add_row(*map(str, numbers), changes)
    return table


def _groups(run: Mapping[str, Any]) -> Table:
    title = f"Batches of 10,000 events, with {run['open']:,} open sessions"
    table = Table(title=title, title_justify="left")
    for name in ("batches", "seconds of each", "resident MiB"):
        table.add_column(name, justify="right")
    for sample in run["samples"]:
        table.add_row(*(f"{sample[name]:,}" for name in ("batches", "batch_s", "mib")))
    return table


def _soak(run: Mapping[str, Any]) -> Table:
    table = Table("figure", "value", title="The long run", title_justify="left")
    for name, value in run.items():
        if name not in ("growth", "samples"):
            shown = (
                ", ".join(f"{n} {what}" for what, n in value.items()) if name in _MAPS else value
            )
            table.add_row(
                name.replace("_", " "), f"{shown:,}" if type(shown) is int else str(shown)
            )
    return table


def _growth(rows: Sequence[Mapping[str, Any]]) -> Table:
    title = "What the processes held: medians after the warm-up, and at the end"
    table = Table("of", "figure", title=title, title_justify="left")
    for name in ("first", "last", "flat"):
        table.add_column(name, justify="right")
    for row in rows:
        flat = "yes" if row["flat"] else "NO"
        table.add_row(row["of"], row["figure"], f"{row['first']:,}", f"{row['last']:,}", flat)
    return table


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
