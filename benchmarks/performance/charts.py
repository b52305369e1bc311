"""The plots of the page, made from the rows and ratios of the results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.figures import Target
from benchmarks.performance.plots import Bar, Point, bars, lines

_TOTALS = ("classes", "stateful_map", "total")  # in names of variants with a total for each word
_SYSTEMS = {  # the rows of the chart in the README, with their labels
    ("word_count", "flink", "silent"): "Flink",
    ("word_count", "sunshower", "operators-columns"): "Sunshower, Arrow tables",
    ("word_count", "sunshower", "operators-rows"): "Sunshower",
    ("word_count", "spark", "local[2], 40 files a batch"): "Spark Structured Streaming",
    ("word_count", "bytewax", "count_final"): "Bytewax",
    ("word_count", "storm", "silent"): "Storm",
    ("word_count", "pathway", "silent"): "Pathway",
    ("word_count", "pyflink", "silent"): "PyFlink",
    ("word_count", "streamparse", "silent"): "streamparse on Storm",
    ("kafka_words", "sunshower", "operators"): "Sunshower, from Kafka",
    ("kafka_words", "quix", "expand"): "Quix Streams, from Kafka",
    ("kafka_words", "faust", "agent"): "Faust, from Kafka",
}
_PERCENTILE = re.compile(r"(?P<line>.+)-(?P<number>\d+)-(?P<percent>p\d+)")
_LOAD = re.compile(r"(?P<line>.+)-load-(?P<number>\d+)")
_RANGE = re.compile(r"(?P<line>.+)-(?P<number>\d+)")
_RANGES = {
    "record-bytes": "bytes of a record",
    "volume-of-record-bytes": "bytes of a record",
    "keys": "distinct keys",
    "fan-out": "derived records of each input",
    "tasks": "tasks of each component",
    "chain": "bolts in a row",
    "shards": "acker shards",
}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Plot:
    """A plot: the heading of its section, its file name without the ending, its text, the SVG."""

    section: str
    name: str
    description: str
    svg: str


def plots(results: Mapping[str, Any], targets: Iterable[Target]) -> list[Plot]:
    """All plots for which the results have figures."""
    rows = results["results"]
    return [
        *_systems(rows),
        *_words(rows),
        *_to_loop(results, {target.figure: target.at_least for target in targets}),
        *_latency(rows),
        *_ranges(rows),
    ]


def _systems(rows: Iterable[Row]) -> list[Plot]:
    """One bar for each system: files first, then Kafka, each from fast to slow."""
    chosen = [row for row in rows if (row["workload"], row["system"], row["variant"]) in _SYSTEMS]
    if not chosen:
        return []
    chosen.sort(key=lambda row: (row["workload"] == "kafka_words", -row["median"]))
    shown = []
    for row in chosen:
        label = _SYSTEMS[row["workload"], row["system"], row["variant"]]
        shown.append(Bar(label, row["median"], row["spread"], row["system"] == "sunshower"))
    title = "Words counted per second on two cores"
    return [Plot("Word count", "systems", title, bars(title, "millions of words a second", shown))]


def _words(rows: Iterable[Row]) -> list[Plot]:
    shown: dict[str, list[Row]] = {"plain tuples and columns": [], "a total for each word": []}
    for row in rows:
        if row["workload"] == "word_count":
            has_totals = any(part in row["variant"] for part in _TOTALS)
            shown["a total for each word" if has_totals else "plain tuples and columns"].append(row)
    all_plots = []
    for (title, chosen), name in zip(shown.items(), ("words", "totals"), strict=True):
        ordered = sorted(chosen, key=lambda row: -row["median"])
        if ordered:
            drawn = [_bar(row) for row in ordered]
            svg = bars(f"Words a second: {title}", "millions of words a second", drawn)
            all_plots.append(Plot("Word count", name, f"Words a second by system, {title}", svg))
    return all_plots


def _bar(row: Row) -> Bar:
    label = f"{row['system']} {row['variant']}"
    return Bar(label, row["median"], row["spread"], row["system"] == "sunshower")


def _to_loop(results: Mapping[str, Any], bounds: Mapping[str, float | None]) -> list[Plot]:
    shown = [
        Bar(name.rpartition("/")[0], value, results["ratio_spreads"][name], mark=bounds.get(name))
        for name, value in results["ratios"].items()
        if name.endswith("/loop")
    ]
    if not shown:
        return []
    shown.sort(key=lambda bar: -bar.value)
    svg = bars(
        "Speed as a multiple of a bare Python loop", "× bare loop; a line: the target", shown
    )
    return [Plot("Targets", "loop", "Speed as a multiple of a bare loop", svg)]


def _latency(rows: Iterable[Row]) -> list[Plot]:
    rows = list(rows)
    light = _series(rows, "latency", _PERCENTILE)
    loaded = _series(rows, "load", _LOAD)
    drawn = []
    for percent in ("p50", "p99"):
        chosen = {name: points for name, points in light.items() if name.endswith(percent)}
        if chosen:
            title = f"Latency under light load, {percent}"
            svg = lines(title, ("tuples a second", "ms"), chosen)
            drawn.append(Plot("Latency", f"latency-{percent}", f"{title}, against the rate", svg))
    if loaded:
        axes = ("% of the highest speed", "ms")
        svg = lines("Latency against load", axes, loaded)
        drawn.append(Plot("Latency", "load", "p50 and p99 against load", svg))
    return drawn


def _ranges(rows: Iterable[Row]) -> list[Plot]:
    drawn = []
    units = {row["variant"]: row["unit"] for row in rows if row["workload"] == "sweeps"}
    for name, points in _series(rows, "sweeps", _RANGE).items():
        line = name.removeprefix("sunshower ")
        unit = next(unit for variant, unit in units.items() if variant.startswith(f"{line}-"))
        axis = _RANGES.get(line, line)
        svg = lines(f"{unit} against {axis}", (axis, unit), {"sunshower": points})
        drawn.append(Plot("Ranges", line, f"{unit} against {axis}", svg))
    return drawn


def _series(rows: Iterable[Row], workload: str, pattern: re.Pattern[str]) -> dict[str, list[Point]]:
    """System, line and percentile → its points, in the order of their numbers."""
    series: dict[str, list[Point]] = {}
    for row in rows:
        parts = pattern.fullmatch(row["variant"])
        if row["workload"] != workload or not parts:
            continue
        percent = parts.groupdict().get("percent")
        name = " ".join(filter(None, (row["system"], parts["line"], percent)))
        points = series.setdefault(name, [])
        points.append(Point(float(parts["number"]), row["median"], row["spread"]))
    return {name: sorted(points, key=lambda point: point.number) for name, points in series.items()}
