"""The results as three tables for the terminal: figures, ratios and targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.table import Table


def tables(report: Mapping[str, Any]) -> Group:
    """All tables of the content of a results file."""
    return Group(_results(report), _ratios(report), targets_table(report))


def _results(report: Mapping[str, Any]) -> Table:
    table = Table(title="Figures", title_justify="left")
    for name in ("workload", "system", "variant"):
        table.add_column(name)
    for name in ("median", "min – max", "unit", "cores", "others", "p50 s", "p99 s"):
        table.add_column(name, justify="left" if name == "unit" else "right")
    workload = None
    for row in report["results"]:
        if workload not in (None, row["workload"]):
            table.add_section()
        workload = row["workload"]
        low, high = row["spread"]
        table.add_row(
            *(row["workload"], row["system"], row["variant"], f"{row['median']:,.3g}"),
            *(f"{low:,.3g} – {high:,.3g}", row["unit"]),
            *(_or_dash(row.get(name)) for name in ("cores", "others", "p50_s", "p99_s")),
        )
    return table


def _ratios(report: Mapping[str, Any]) -> Table:
    table = Table("ratio", title="Ratios, computed in each round", title_justify="left")
    table.add_column("median", justify="right")
    table.add_column("min – max", justify="right")
    for name, value in report["ratios"].items():
        low, high = report["ratio_spreads"][name]
        table.add_row(name, f"{value:.2f}", f"{low:.2f} – {high:.2f}")
    return table


def targets_table(report: Mapping[str, Any]) -> Table:
    """The targets that were measured, and by how much they are missed."""
    table = Table("target", "bound", title="Targets", title_justify="left")
    table.add_column("value", justify="right")
    table.add_column("")
    for target in report["targets"]:
        if target["met"] is None:  # not measured
            continue
        table.add_row(
            target["figure"], target["bound"], _or_dash(target["value"]), _verdict(target)
        )
    return table


def _verdict(target: Mapping[str, Any]) -> str:
    if target["met"]:
        return "[green]met[/]"
    if target["bound"] == "≤ 0":
        return "[red]missed[/]"
    return f"[red]missed by {abs(target['off']):.0%}[/]"


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
