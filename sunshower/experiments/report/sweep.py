"""Draws the runs of a group: verdict, recovery and throughput by a parameter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from statistics import median
from typing import TYPE_CHECKING, Any

from sunshower.experiments.evidence.outcome import Outcome, Verdict
from sunshower.experiments.report.drawing import (
    BLUE,
    INK,
    MARKS,
    PALE,
    PURPLE,
    TONES,
    VERMILION,
    Chart,
    draw,
    legend_above,
    new_figure,
    no_values,
)
from sunshower.experiments.report.phrases import figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ORDER = (Verdict.BROKEN, Verdict.UNKNOWN, Verdict.HOLDS)  # from below
_LABELS_MAX = 24  # of the values on an axis


@dataclass(frozen=True)
class Point:
    """One run, for tables and charts."""

    values: Mapping[str, Any]  # the swept parameters and the seed
    verdict: Verdict
    recovery_s: float | None  # the longest; None: no recovery
    recovers: bool  # False: a recovery never ended
    throughput: float | None  # completed messages a second
    replays: float | None = None  # from the figures of the run
    duplicates: float | None = None
    error: str | None = None  # why it did not finish


def point(outcome: Outcome, swept: Sequence[str]) -> Point:
    """Return what tables and charts show of one run."""
    return Point(
        values={**{name: outcome.parameters.get(name) for name in swept}, "seed": outcome.seed},
        verdict=outcome.verdict,
        recovery_s=outcome.recovery_s,
        recovers=not outcome.never_recovered,
        throughput=outcome.figures.get("throughput"),
        replays=outcome.figures.get("replays"),
        duplicates=outcome.figures.get("duplicates"),
        error=outcome.error,
    )


def sweep_chart(points: Sequence[Point], name: str) -> Chart:
    """Return the chart of all runs by one parameter or by seed. Raises ExperimentError without
    the extra `experiments`.
    """
    caption = f"Each mark is a run; lines join the medians. Left to right: {name}."
    return draw(f"by-{name}", caption, lambda: _paint(points, name))


@dataclass(frozen=True)
class _Measure:
    """One figure of every run, grouped by the values on the axis."""

    label: str
    colour: str
    mark: str
    of: Callable[[Point], float | None]
    line: str = "-"
    width: float = 1.1

    def values(self, groups: Sequence[Sequence[Point]]) -> list[list[float]]:
        """Return the known values of each group."""
        found = ([self.of(point) for point in group] for group in groups)
        return [[value for value in values if value is not None] for values in found]


_RECOVERY = _Measure("longest recovery", VERMILION, "^", lambda point: point.recovery_s)
_THROUGHPUT = _Measure("throughput", BLUE, "o", lambda point: point.throughput)
_REPLAYS = _Measure("replays", PURPLE, "D", lambda point: point.replays, width=3.0)
# Often equal to the replays, whose wider line stays visible below.
_DUPLICATES = _Measure("duplicates", INK, "x", lambda point: point.duplicates, "--")


def _paint(points: Sequence[Point], name: str) -> Figure:
    by_value: dict[str, list[Point]] = {}
    for one in points:
        by_value.setdefault(figure(one.values[name]), []).append(one)
    groups = list(by_value.values())
    page = new_figure(10.0, 7.6)
    axes = page.subplots(4, 1, sharex=True, height_ratios=(0.8, 1, 1, 1))
    _verdicts(axes[0], groups)
    _measure(axes[1], "longest recovery (seconds)", groups, _RECOVERY)
    for x, group in enumerate(groups):
        if never := sum(not one.recovers for one in group):
            axes[1].annotate(f"{never} never", (x, 1), (0, -2), va="top", ha="center",
                             xycoords=("data", "axes fraction"), textcoords="offset points",
                             weight="bold")  # fmt: skip
    _measure(axes[2], "throughput (messages a second)", groups, _THROUGHPUT)
    _measure(axes[3], "replays and duplicates (messages)", groups, _REPLAYS, _DUPLICATES)
    every = -(-len(by_value) // _LABELS_MAX)
    labels = [value if len(value) <= 16 else f"{value[:15]}…" for value in by_value]
    turned = max(map(len, labels)) * len(labels[::every]) > 110
    axes[3].set_xticks(range(0, len(by_value), every), labels[::every])
    axes[3].tick_params(axis="x", rotation=45 if turned else 0)
    axes[3].set_xlabel(name)
    axes[3].set_xlim(-0.5, len(by_value) - 0.5)
    return page


def _verdicts(ax: Axes, groups: Sequence[Sequence[Point]]) -> None:
    ax.set_title("verdicts")
    ax.set_yticks(range(len(_ORDER)), [str(verdict) for verdict in _ORDER])
    ax.set_ylim(-0.6, len(_ORDER) - 0.4)
    ax.grid(axis="y", color=PALE, linewidth=0.8)
    for x, group in enumerate(groups):
        for y, verdict in enumerate(_ORDER):
            count = sum(one.verdict is verdict for one in group)
            if count:
                ax.plot(x, y, MARKS[verdict], color=TONES[verdict], markeredgecolor=INK,
                        markersize=9, markeredgewidth=0.7)  # fmt: skip
            if count > 1:
                ax.annotate(f"×{count}", (x, y), (7, 0), textcoords="offset points", va="center")


def _measure(ax: Axes, title: str, groups: Sequence[Sequence[Point]], *measures: _Measure) -> None:
    ax.set_title(title)
    known = {measure: measure.values(groups) for measure in measures}
    everything = [value for groups in known.values() for values in groups for value in values]
    if not everything:
        no_values(ax)
        return
    for measure, found in known.items():
        for x, values in enumerate(found):
            ax.plot([x] * len(values), values, measure.mark, color=measure.colour, alpha=0.55,
                    markersize=5)  # fmt: skip
        medians = [median(values) if values else nan for values in found]
        ax.plot(medians, measure.line, linewidth=measure.width, color=measure.colour)
        ax.plot([], [], f"{measure.mark}{measure.line}", color=measure.colour, label=measure.label)
    if len(measures) > 1:
        legend_above(ax)
    ax.set_ylim(0, max(everything) * 1.2 or 1)
    ax.yaxis.set_major_formatter("{x:,g}")
    ax.grid(axis="y", color=PALE, linewidth=0.8)
