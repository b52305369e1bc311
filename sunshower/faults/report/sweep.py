"""Many runs of one experiment side by side: a parameter against verdicts and what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from sunshower.faults.outcome import Outcome, Verdict
from sunshower.faults.report.drawing import (
    BLUE,
    GREY,
    INK,
    MARKS,
    PALE,
    PURPLE,
    TONES,
    VERMILION,
    Chart,
    draw,
    new_figure,
    shortened,
)
from sunshower.faults.report.recovery import seconds_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ORDER = (Verdict.BROKEN, Verdict.UNKNOWN, Verdict.HOLDS)  # from below
_LABELS_MAX = 24  # of the values on an axis


@dataclass(frozen=True)
class Point:
    """One run, for tables and charts."""

    values: Mapping[str, Any]  # of each parameter that was swept, and its seed
    verdict: Verdict
    recovery_s: float | None  # the longest; None: nothing had to recover
    recovers: bool  # False: something never did
    throughput: float | None  # completed messages a second
    replays: float | None = None  # emits beyond the first of a message


def point(outcome: Outcome, swept: Sequence[str]) -> Point:
    """What a table or a chart shows of one run."""
    found = [seconds_of(recovery) for recovery in outcome.recoveries]
    known = [seconds for seconds in found if seconds is not None]
    return Point(
        {**{name: outcome.parameters.get(name) for name in swept}, "seed": outcome.seed},
        outcome.verdict,
        max(known, default=None),
        None not in found,
        outcome.figures.get("throughput"),
        outcome.figures.get("replays"),
    )


def sweep_chart(points: Sequence[Point], name: str) -> Chart:
    """All runs, by the values of one parameter (or by seed). Raises ExperimentError without
    the extra `experiments`.
    """
    caption = f"Each mark is a run; lines join the medians. Left to right: {name}."
    return draw(f"by-{name}", caption, lambda: _paint(points, name))


def _paint(points: Sequence[Point], name: str) -> Figure:
    by_value: dict[str, list[Point]] = {}
    for one in points:
        by_value.setdefault(str(one.values[name]), []).append(one)
    figure = new_figure(10.0, 7.6)
    figure.set_layout_engine("constrained")
    verdicts, recoveries, replays, throughputs = figure.subplots(
        4, 1, sharex=True, height_ratios=(0.8, 1, 1, 1)
    )
    groups = list(by_value.values())
    _verdicts(verdicts, groups)
    _measure(recoveries, "longest recovery (seconds)", VERMILION, "^",
             [[p.recovery_s for p in group] for group in groups])  # fmt: skip
    for x, group in enumerate(groups):
        if never := sum(not one.recovers for one in group):
            recoveries.annotate(f"{never} never", (x, 1), (0, -2), va="top", ha="center",
                                xycoords=("data", "axes fraction"), textcoords="offset points",
                                weight="bold")  # fmt: skip
    _measure(replays, "replays", PURPLE, "D",
             [[p.replays for p in group] for group in groups])  # fmt: skip
    _measure(throughputs, "throughput (messages a second)", BLUE, "o",
             [[p.throughput for p in group] for group in groups])  # fmt: skip
    every = -(-len(by_value) // _LABELS_MAX)
    labels = [shortened(value, 16) for value in by_value]
    turned = max(map(len, labels)) * len(labels[::every]) > 110
    throughputs.set_xticks(range(0, len(by_value), every), labels[::every])
    throughputs.tick_params(axis="x", rotation=45 if turned else 0)
    throughputs.set_xlabel(name)
    throughputs.set_xlim(-0.5, len(by_value) - 0.5)
    return figure


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


def _measure(
    ax: Axes, title: str, colour: str, mark: str, groups: Sequence[Sequence[float | None]]
) -> None:
    ax.set_title(title)
    known = [[value for value in group if value is not None] for group in groups]
    if not any(known):
        ax.text(0.5, 0.5, "none", transform=ax.transAxes, ha="center", va="center", color=GREY)
        ax.set_yticks([])
        return
    for x, values in enumerate(known):
        ax.plot([x] * len(values), values, mark, color=colour, alpha=0.55, markersize=5)
    some = [(x, median(values)) for x, values in enumerate(known) if values]
    ax.plot(*zip(*some, strict=True), "-", color=colour, linewidth=1.1)
    ax.set_ylim(0, max(value for values in known for value in values) * 1.2 or 1)
    ax.yaxis.set_major_formatter("{x:,g}")
    ax.grid(axis="y", color=PALE, linewidth=0.8)
