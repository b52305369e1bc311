"""Draws the longest recoveries as bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sunshower.experiments.evidence.outcome import Recovery
from sunshower.experiments.report.drawing import (
    BLUE,
    GREY,
    INK,
    PALE,
    SKY,
    VERMILION,
    Chart,
    draw,
    new_figure,
)
from sunshower.experiments.report.phrases import moment, span, wrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BARS_MAX = 20
_BAR_IN = 0.26
_TWO_LINES_IN = 0.36


def longest(recoveries: Sequence[Recovery], count: int = _BARS_MAX) -> list[Recovery]:
    """Return the worst `count` recoveries, sorted by begin. One that never ends is worst."""

    def duration(recovery: Recovery) -> float:
        return math.inf if recovery.seconds is None else recovery.seconds

    worst = sorted(recoveries, key=duration, reverse=True)[:count]
    return sorted(worst, key=lambda recovery: recovery.begun_s)


def recovery_chart(recoveries: Sequence[Recovery]) -> Chart:
    """Return the chart of recoveries. Raises ExperimentError without the extra."""
    shown = longest(recoveries)
    caption = "From the end of each fault until all messages that it affected were completed."
    if len(shown) < len(recoveries):
        caption += f" The {len(shown)} longest of {len(recoveries):,}."
    return draw("recovery", caption, lambda: _paint(shown))


def _paint(recoveries: Sequence[Recovery]) -> Figure:
    labels = [f"{wrapped(r.fault)}, at {moment(r.begun_s)}" for r in recoveries]
    each_in = _TWO_LINES_IN if any("\n" in label for label in labels) else _BAR_IN
    height_in = 0.75 + each_in * len(recoveries)
    page = new_figure(10.0, height_in)
    ax = page.subplots()
    durations = [recovery.seconds for recovery in recoveries]
    most_s = max((d for d in durations if d is not None), default=0.0) or 1.0
    for row, seconds in enumerate(durations):
        if seconds is None:
            ax.barh(row, most_s, color="white", edgecolor=VERMILION, hatch="xxxx", height=0.6)
            ax.text(most_s * 1.01, row, "never", va="center", color=INK, weight="bold")
        else:
            ax.barh(row, seconds, color=SKY, edgecolor=BLUE, height=0.6)
            ax.text(seconds + most_s * 0.01, row, span(seconds), va="center", color=INK)
    ax.set_yticks(range(len(recoveries)), labels)
    ax.set_ylim(len(recoveries) - 0.5, -0.5)
    ax.set_xlim(0, most_s * 1.1)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("seconds until recovered", color=GREY)
    ax.grid(axis="x", color=PALE, linewidth=0.8)
    return page
