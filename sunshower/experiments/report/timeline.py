"""Draws the timeline of one run: faults, throughput, pending, latency, replays, failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sunshower.experiments.evidence.event_history import F64, Band
from sunshower.experiments.report.drawing import (
    BLUE,
    FILLS,
    GREEN,
    GREY,
    HATCHES,
    INK,
    PALE,
    PURPLE,
    VERMILION,
    Chart,
    draw,
    legend_above,
    new_figure,
    no_values,
)
from sunshower.experiments.report.phrases import wrapped
from sunshower.experiments.report.series import Series
from sunshower.runtime.tracking.ids import I64

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH_IN = 10.0
_PANEL_IN = 1.1
_MARGINS_IN, _GAP_IN = 0.76, 0.36  # above and below all panels, and between two
_LEGEND_IN = 0.24  # a row of causes, at the bottom
_LEGEND_COLUMNS = 4
_LANE_IN = 0.24
_TWO_LINES_IN = 0.34
_LANES_MAX = 10
_MOMENTS_MAX = 40  # drawn through all panels, if there are not more
_CAUSES_MAX = len(FILLS)
_MARKS = 30  # on a line
_BARS_MAX = 60  # of failures; more would hide their hatches
_NARROWEST = 0.003  # fraction of the width
_LOG_FROM = 50.0  # ratio of the largest and the smallest latency
CAPTION = (
    "Faults, and what they did: grey bands and dashed lines are faults that last and faults of a "
    "moment. Latency counts from a message's first emission, so replays are in it."
)


def timeline(series: Series) -> Chart:
    """Return the chart. Raises ExperimentError without the extra."""
    return draw("timeline", CAPTION, lambda: _paint(series))


def fault_rows(bands: Sequence[Band]) -> dict[str, list[Band]]:
    """Return label → faults: a row for each distinct fault; if these are too many, a row for each
    first word; if these are still too many, the last row has the rest.
    """
    rows = _grouped(bands, lambda words: words)
    if len(rows) > _LANES_MAX:
        rows = _grouped(bands, lambda words: words.partition(" ")[0])
    if len(rows) > _LANES_MAX:
        rest = [band for label in list(rows)[_LANES_MAX - 1 :] for band in rows.pop(label)]
        rows["other faults"] = sorted(rest, key=lambda band: band.begun_s)
    return {
        f"{wrapped(name)} ×{len(found)}" if len(found) > 1 else wrapped(name): found
        for name, found in rows.items()
    }


def is_moment(band: Band, run_s: float) -> bool:
    """Return whether a fault is too short to be drawn as a bar, such as a kill."""
    return band.ended_s is not None and band.ended_s - band.begun_s < _NARROWEST * run_s


def _grouped(bands: Sequence[Band], name: Callable[[str], str]) -> dict[str, list[Band]]:
    rows: dict[str, list[Band]] = {}
    for band in bands:
        rows.setdefault(name(band.words), []).append(band)
    return rows


def covered(bands: Sequence[Band], end_s: float) -> list[tuple[float, float]]:
    """Return the times with an active fault, as disjoint intervals."""
    found: list[tuple[float, float]] = []
    for band in sorted(bands, key=lambda band: band.begun_s):
        if is_moment(band, end_s):
            continue
        until_s = end_s if band.ended_s is None else band.ended_s
        if found and band.begun_s <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], until_s))
        else:
            found.append((band.begun_s, until_s))
    return found


def _paint(series: Series) -> Figure:
    rows = fault_rows(series.bands)
    panels: list[tuple[Callable[[Axes, Series], None], bool]] = [  # and whether it has data
        (_throughput, True),
        (_pending, True),
        (_latency, bool(series.completed_per_s.any())),
        (_replays, bool(series.replays_per_s.any())),
    ]
    if series.batches_per_s.any():  # only of Trident programs
        panels.append((_batches, True))
    panels.append((_failures, bool(series.failures)))
    lane_in = _TWO_LINES_IN if any("\n" in label for label in rows) else _LANE_IN
    heights_in = [max(1, len(rows)) * lane_in]
    heights_in += [_PANEL_IN if some else _LANE_IN for _, some in panels]
    legend_in = -(-len(_causes(series)) // _LEGEND_COLUMNS) * _LEGEND_IN
    margins_in = _MARGINS_IN + _GAP_IN * len(panels) + legend_in
    figure = new_figure(_WIDTH_IN, sum(heights_in) + margins_in)
    axes = figure.subplots(len(heights_in), sharex=True, height_ratios=heights_in)
    _faults(axes[0], rows, series.seconds)
    for ax, (panel, _) in zip(axes[1:], panels, strict=True):
        panel(ax, series)
        _shade(ax, series)
        ax.grid(axis="y", color=PALE, linewidth=0.8)
    axes[-1].set_xlim(0, series.seconds)
    axes[-1].set_xlabel("seconds from the start of the run")
    if series.failures:
        figure.legend(
            *axes[-1].get_legend_handles_labels(), loc="outside lower left",
            ncols=_LEGEND_COLUMNS, handlelength=2.4, columnspacing=1.4,
        )  # fmt: skip
    return figure


def _faults(ax: Axes, rows: Mapping[str, Sequence[Band]], end_s: float) -> None:
    ax.set_title("faults")
    ax.set_ylim(max(1, len(rows)), 0)
    ax.set_yticks([row + 0.5 for row in range(len(rows))], list(rows))
    ax.tick_params(length=0)
    ax.spines["left"].set_visible(False)
    if not rows:
        no_values(ax)
    for row, bands in enumerate(rows.values()):
        ax.axhline(row + 0.5, color=PALE, linewidth=0.8, zorder=0)
        style = row % len(FILLS)
        spans = [band for band in bands if not is_moment(band, end_s)]
        ax.broken_barh(
            [(b.begun_s, (end_s if b.ended_s is None else b.ended_s) - b.begun_s) for b in spans],
            (row + 0.15, 0.7),
            facecolor=FILLS[style],
            edgecolor=INK,
            linewidth=0.5,
            hatch=HATCHES[style],
        )
        moments = [band.begun_s for band in bands if is_moment(band, end_s)]
        if not moments:
            continue  # a line without points and without clipping would spoil the layout
        ax.plot(
            moments, [row + 0.5] * len(moments), linestyle="none", marker="v", markersize=6,
            markerfacecolor=FILLS[style], markeredgecolor=INK, markeredgewidth=0.6, clip_on=False,
        )  # fmt: skip


def _shade(ax: Axes, series: Series) -> None:
    end_s = series.seconds
    for begun_s, ended_s in covered(series.bands, end_s):
        ax.axvspan(begun_s, ended_s, color="#000000", alpha=0.08, linewidth=0, zorder=0)
    moments = sorted({band.begun_s for band in series.bands if is_moment(band, end_s)})
    if len(moments) <= _MOMENTS_MAX:
        for at_s in moments:
            ax.axvline(at_s, color=GREY, linewidth=0.7, linestyle=(0, (4, 3)), zorder=0.5)


def _throughput(ax: Axes, series: Series) -> None:
    unit = "messages a second"
    ax.stairs(
        series.emitted_per_s, series.edges_s, color=GREY, linestyle=(0, (2, 1.5)), label="emitted"
    )
    ax.stairs(series.completed_per_s, series.edges_s, color=BLUE, linewidth=1.4, label="completed")
    legend_above(ax)
    _from_zero(ax)
    both = np.concatenate([series.emitted_per_s, series.completed_per_s])
    limit = height_of(both)
    if limit < both.max(initial=0):
        ax.set_ylim(0, limit)
        unit += f"; peaks of up to {both.max():,.0f} are cut off"
    ax.set_title(f"throughput ({unit})")


def height_of(values: F64) -> float:
    """Return the upper limit of an axis from 0: the maximum, unless a few peaks are much higher.

    After a fault the delayed messages complete all at once.
    """
    some = values[values > 0]
    if not len(some):
        return 0.0
    usual = 4 * float(np.percentile(some, 75))
    return usual if values.max() > 1.5 * usual else float(values.max())


def _pending(ax: Axes, series: Series) -> None:
    ax.set_title("pending (trees)")
    _hill(ax, series.edges_s, series.pending, GREEN)


def _latency(ax: Axes, series: Series) -> None:
    ax.set_title("complete latency (seconds)")
    known = np.flatnonzero(~np.isnan(series.p50_s))
    if not len(known):
        no_values(ax)
        return
    at_s = (series.edges_s[:-1] + series.edges_s[1:]) / 2
    marks = _marks(known)  # bins without completions have no line
    ax.plot(at_s, series.p99_s, color=VERMILION, marker="^", markersize=3.5, markevery=marks,
            linewidth=1.0, linestyle=(0, (5, 1)), label="p99")  # fmt: skip
    ax.plot(at_s, series.p50_s, color=BLUE, marker="o", markersize=3, markevery=marks,
            linewidth=1.2, label="p50")  # fmt: skip
    legend_above(ax)
    values = np.concatenate([series.p50_s[known], series.p99_s[known]])
    positive = values[values > 0]
    if len(positive) and positive.max() > _LOG_FROM * positive.min():
        ax.set_yscale("log", nonpositive="mask")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter("")
    else:
        _from_zero(ax, "{x:g}")


def _marks(known: I64) -> list[int]:
    """Return the bins that get a marker: some with a value, and all isolated ones."""
    alone = (np.diff(known, prepend=-9) > 1) & (np.diff(known, append=known[-1] + 9) > 1)
    some = known[:: max(1, len(known) // _MARKS)]
    marks: list[int] = np.union1d(known[alone], some).tolist()
    return marks


def _replays(ax: Axes, series: Series) -> None:
    ax.set_title("replays (messages a second)")
    _hill(ax, series.edges_s, series.replays_per_s, PURPLE)


def _batches(ax: Axes, series: Series) -> None:
    ax.set_title("batches committed (a second)")
    _hill(ax, series.edges_s, series.batches_per_s, GREEN)


def _failures(ax: Axes, series: Series) -> None:
    ax.set_title("failures, by cause")
    starts = np.arange(0, len(series.edges_s) - 1, -(-(len(series.edges_s) - 1) // _BARS_MAX))
    edges_s = np.append(series.edges_s[starts], series.edges_s[-1])
    bottom = np.zeros(len(starts))
    for style, (cause, each) in enumerate(_causes(series)):
        counts = np.add.reduceat(each, starts)
        some = counts > 0
        ax.bar(
            edges_s[:-1][some], counts[some], np.diff(edges_s)[some], bottom[some], align="edge",
            color=FILLS[style], edgecolor=INK, linewidth=0.4, hatch=HATCHES[style],
            label=f"{cause} ({int(counts.sum()):,})",
        )  # fmt: skip
        bottom += counts
    if not series.failures:
        no_values(ax)
        return
    _from_zero(ax)


def _causes(series: Series) -> list[tuple[str, I64]]:
    """Return the causes with their counts; if they are too many, the rarest are summed."""
    found = list(series.failures.items())
    if len(found) <= _CAUSES_MAX:
        return found
    rest = found[_CAUSES_MAX - 1 :]
    return [
        *found[: _CAUSES_MAX - 1],
        (f"{len(rest)} other causes", np.sum([counts for _, counts in rest], axis=0)),
    ]


def _hill(ax: Axes, edges_s: F64, values: F64 | I64, colour: str) -> None:
    if not values.any():
        no_values(ax)
        return
    ax.stairs(values, edges_s, color=colour, fill=True, alpha=0.3)
    ax.stairs(values, edges_s, color=colour, linewidth=1.2, baseline=None)
    _from_zero(ax)


def _from_zero(ax: Axes, form: str = "{x:,.0f}") -> None:
    from matplotlib.ticker import MaxNLocator

    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=form.endswith(".0f}")))
    ax.yaxis.set_major_formatter(form)
