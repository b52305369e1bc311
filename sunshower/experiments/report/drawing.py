"""Draws the charts of experiments with matplotlib, and writes their HTML reports."""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import nan
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from sunshower.errors import ExperimentError
from sunshower.experiments.event_history import F64, Band, EventRows, History, is_repeat, lookup
from sunshower.experiments.outcome import Outcome, Recovery, Verdict, batches_of, gravest
from sunshower.installed import check_packages
from sunshower.runtime.events.event_log import What
from sunshower.runtime.tracking.ids import I64, incarnations_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

# Okabe and Ito's palette, for every kind of colour blindness. Whatever has a colour also has a line
# style, a marker, a hatch or a label.
INK = "#1a1a1a"
GREY = "#6b6b6b"
PALE = "#e9e9e9"
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, YELLOW = "#56B4E9", "#CC79A7", "#F0E442"
FILLS = (ORANGE, SKY, GREEN, VERMILION, PURPLE, YELLOW, BLUE, "#bbbbbb")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "||||", "----", "++++")
MARKS = {Verdict.HOLDS: "o", Verdict.UNKNOWN: "s", Verdict.BROKEN: "X"}
TONES = {Verdict.HOLDS: GREEN, Verdict.UNKNOWN: ORANGE, Verdict.BROKEN: VERMILION}

_LOOKS: Any = {
    "font.size": 9,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so it is the same everywhere
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.formatter.limits": (-4, 7),
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.fonttype": "path",  # the same letters on every machine, whatever fonts it has
    "svg.hashsalt": "sunshower",  # the same picture gives the same file
    "savefig.facecolor": "white",
}
_DOTS_PER_INCH = 150


@dataclass(frozen=True)
class Chart:
    """One chart as SVG and PNG."""

    name: str  # file name without suffix
    caption: str  # describes the chart
    svg: str  # a whole SVG file
    png: bytes

    @property
    def element(self) -> str:
        """The SVG element for a page, without a fixed size, with unique ids."""
        text = self.svg[self.svg.index("<svg") :].strip()
        opening, rest = text.split(">", 1)
        opening = re.sub(r'\s(width|height|xmlns(:\w+)?|version)="[^"]*"', "", opening)
        rest = re.sub(r"<metadata>.*?</metadata>", "", rest, count=1, flags=re.DOTALL)
        return f"{opening}>" + re.sub(r'(\sid="|url\(#|href="#)', rf"\g<1>{self.name}-", rest)


def draw(name: str, caption: str, paint: Callable[[], Figure]) -> Chart:
    """Return the figure of `paint` as a chart, in the common style. Raises ExperimentError without
    the extra `experiments`.
    """
    check_installed()
    import matplotlib as mpl

    with mpl.rc_context(_LOOKS):
        figure = paint()
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        figure.set_layout_engine("none")  # the PNG has the same layout, which takes long to compute
        figure.savefig(png, format="png", dpi=_DOTS_PER_INCH)
    return Chart(name, caption, svg.getvalue(), png.getvalue())


def new_figure(width_in: float, height_in: float) -> Figure:
    """Return an empty figure; call it only in the `paint` of `draw`."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width_in, height_in), layout="constrained")


def legend_above(ax: Axes) -> None:
    """Put the legend above the axes, to the right, where it covers no line."""
    ax.legend(loc="lower right", bbox_to_anchor=(1, 1.0), ncols=2, borderaxespad=0.2)


def no_values(ax: Axes) -> None:
    """Write "none" into empty axes."""
    ax.text(0.5, 0.5, "none", transform=ax.transAxes, ha="center", va="center", color=GREY)
    ax.set_yticks([])


def check_installed() -> None:
    """Raise ExperimentError, with the install command, without the extra `experiments`."""
    purpose = "which makes the report of an experiment"
    check_packages("experiments", purpose, "matplotlib", "jinja2", error=ExperimentError)


# ---- phrases -------------------------------------------------------------------------------------

_LETTERS_MAX = 34  # of a line of a label


def figure(value: Any) -> str:
    """Format a number with thousands separators, or with four significant digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if float(value).is_integer() or abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def words(name: str) -> str:
    """The name of a figure or a parameter for people: `latency p50` for latency_p50_s."""
    return name.removesuffix("_s").replace("_", " ")


def quantity(value: Any, name: str) -> str:
    """Format a figure or a parameter of this name; with its unit, if the name says it."""
    is_time = isinstance(value, int | float) and not isinstance(value, bool)
    is_time = is_time and (name.endswith("_s") or name == "seconds")
    return span(value) if is_time else figure(value)


def span(seconds: float) -> str:
    """Format a duration with three digits: `20.4 s`, `0.609 s`, `18.5 ms`, `0 s`."""
    if not seconds or seconds >= 0.1:
        return f"{seconds:,.3g} s" if seconds < 1_000 else f"{seconds:,.0f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds * 1e6:.3g} µs"


def moment(seconds: float) -> str:
    """Format a time from the start of a run, with two decimals."""
    return f"{seconds:,.2f} s"


def wrapped(words: str) -> str:
    """Return a label on at most two lines, cut to their length."""
    return "\n".join(textwrap.wrap(words, _LETTERS_MAX, max_lines=2, placeholder=" …"))


# ---- series --------------------------------------------------------------------------------------

_BINS_MAX = 240
_BINS_MIN = 12
_EVENTS_PER_BIN = 4  # on average at least; with fewer, rates are noise


@dataclass(frozen=True)
class Series:
    """One run over time. Arrays have shape (bins,), with one value for each bin."""

    edges_s: F64  # shape (bins + 1,): bin i is from edges_s[i] to edges_s[i + 1]
    emitted_per_s: F64  # including replays
    completed_per_s: F64
    replays_per_s: F64
    pending: I64  # the maximum in the bin
    p50_s: F64  # from the first emission of a message to its completion; NaN: none
    p99_s: F64
    batches_per_s: F64  # committed Trident batches
    failures: Mapping[str, I64]  # by cause, the most frequent first
    bands: tuple[Band, ...]  # by begin

    @property
    def seconds(self) -> float:
        return float(self.edges_s[-1])


def make_series(history: History, seconds: float | None = None) -> Series:
    """Compute the series of a history of `seconds` (default: until the last entry)."""
    emitted, completed, failed = map(history.rows, (What.EMITTED, What.COMPLETED, What.FAILED))
    edges_s = bins(
        max(history.seconds, seconds or 0.0), len(emitted) + len(completed) + len(failed)
    )
    widths_s = np.diff(edges_s)
    p50_s, p99_s = _latencies(edges_s, history)
    replays_s = emitted.at_s[is_repeat(emitted.messages)]
    return Series(
        edges_s=edges_s,
        emitted_per_s=_counts(edges_s, emitted.at_s) / widths_s,
        completed_per_s=_counts(edges_s, completed.at_s) / widths_s,
        replays_per_s=_counts(edges_s, replays_s) / widths_s,
        pending=_pending(edges_s, emitted.at_s, _ends(emitted, (completed, failed))),
        p50_s=p50_s,
        p99_s=p99_s,
        batches_per_s=_counts(edges_s, _committed(history)) / widths_s,
        failures=_failures(edges_s, failed.at_s, list(map(str, failed.details))),
        bands=history.faults,
    )


def bins(seconds: float, events: int) -> F64:
    """Return the edges of equal bins from 0 to `seconds`; more events give more bins."""
    count = min(max(events // _EVENTS_PER_BIN, _BINS_MIN), _BINS_MAX)
    return np.linspace(0.0, max(seconds, 1e-3), count + 1)


def _committed(history: History) -> F64:
    times_s = [batch.committed_s for batch in batches_of(history) if batch.committed_s is not None]
    return np.array(times_s, np.float64)


def _bin_of(edges_s: F64, at_s: F64) -> I64:
    places = np.searchsorted(edges_s, at_s, side="right") - 1
    return np.clip(places, 0, len(edges_s) - 2).astype(np.int64)


def _counts(edges_s: F64, at_s: F64) -> I64:
    return np.bincount(_bin_of(edges_s, at_s), minlength=len(edges_s) - 1)


def _ends(emitted: EventRows, settled: Sequence[EventRows]) -> F64:
    """Return when each emission ceased to be pending; infinite if it did not.

    It completed or failed, or its spout task was restarted.
    """
    ended_s = np.full(len(emitted), np.inf)
    for rows in settled:
        ended_s = np.minimum(ended_s, lookup(rows.roots, rows.at_s, emitted.roots, np.inf))
    lives = incarnations_of(emitted.roots)
    for task in np.unique(emitted.tasks):
        mine = emitted.tasks == task
        numbers = np.unique(lives[mine])
        begins = [emitted.at_s[mine & (lives == number)].min() for number in numbers]
        for number, successor_s in zip(numbers[:-1], begins[1:], strict=True):
            old = mine & (lives == number)
            ended_s[old] = np.minimum(ended_s[old], successor_s)
    return ended_s


def _latencies(edges_s: F64, history: History) -> tuple[F64, F64]:
    """Return the 50th and 99th percentile of the completions in each bin, from the first emission
    of a message."""
    emitted, completed = history.rows(What.EMITTED), history.rows(What.COMPLETED)
    accounts = history.accounts
    first_s = lookup(accounts.messages, accounts.emitted_s, completed.messages, np.nan)
    # A sampled or cut history may lack the emission of the completed attempt.
    known = np.isin(completed.roots, emitted.roots)
    at_s = completed.at_s[known]
    waited_s = at_s - first_s[known]
    bin_of = _bin_of(edges_s, at_s)
    order = np.lexsort((waited_s, bin_of))
    sizes = np.bincount(bin_of, minlength=len(edges_s) - 1)
    begins = np.cumsum(sizes) - sizes
    percentiles = []
    for ratio in (0.50, 0.99):
        ranks = np.ceil(ratio * sizes).astype(np.int64) - 1
        values = np.full(len(sizes), np.nan)
        not_empty = sizes > 0
        values[not_empty] = waited_s[order][(begins + ranks)[not_empty]]
        percentiles.append(values)
    return percentiles[0], percentiles[1]


def _pending(edges_s: F64, begun_s: F64, ended_s: F64) -> I64:
    """Return the maximum of open messages in each bin."""
    ended_s = ended_s[np.isfinite(ended_s)]
    changes = np.repeat([1, -1, 0], [len(begun_s), len(ended_s), len(edges_s) - 1])
    # A change of 0 at the begin of each bin makes its first value count.
    at_s = np.concatenate([begun_s, ended_s, edges_s[:-1]])
    order = np.lexsort((-np.abs(changes), at_s))
    open_ = np.cumsum(changes[order])
    begins = np.searchsorted(at_s[order], edges_s[:-1], side="left")
    return np.maximum.reduceat(open_, begins)


def _failures(edges_s: F64, at_s: F64, causes: Sequence[str]) -> dict[str, I64]:
    names, which = np.unique(np.array(causes, str), return_inverse=True)
    bin_of = _bin_of(edges_s, at_s)
    counts = {
        str(name): np.bincount(bin_of[which == index], minlength=len(edges_s) - 1)
        for index, name in enumerate(names)
    }
    return dict(sorted(counts.items(), key=lambda pair: (-int(pair[1].sum()), pair[0])))


# ---- timeline ------------------------------------------------------------------------------------

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
        f"{wrapped(name)} ×{len(alike)}" if len(alike) > 1 else wrapped(name): alike
        for name, alike in rows.items()
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
    intervals: list[tuple[float, float]] = []
    for band in sorted(bands, key=lambda band: band.begun_s):
        if is_moment(band, end_s):
            continue
        until_s = end_s if band.ended_s is None else band.ended_s
        if intervals and band.begun_s <= intervals[-1][1]:
            intervals[-1] = (intervals[-1][0], max(intervals[-1][1], until_s))
        else:
            intervals.append((band.begun_s, until_s))
    return intervals


def _paint(series: Series) -> Figure:
    rows = fault_rows(series.bands)
    panels: list[tuple[Callable[[Axes, Series], None], bool]] = [  # and whether it has data
        (_throughput, True),
        (partial(_hill, "pending (trees)", series.pending, GREEN), True),
        (_latency, bool(series.completed_per_s.any())),
        (
            partial(_hill, "replays (messages a second)", series.replays_per_s, PURPLE),
            bool(series.replays_per_s.any()),
        ),
    ]
    if series.batches_per_s.any():  # only of Trident programs
        batches = "batches committed (a second)"
        panels.append((partial(_hill, batches, series.batches_per_s, GREEN), True))
    panels.append((_failure_bars, bool(series.failures)))
    lane_in = _TWO_LINES_IN if any("\n" in label for label in rows) else _LANE_IN
    heights_in = [max(1, len(rows)) * lane_in]
    heights_in += [_PANEL_IN if has_values else _LANE_IN for _, has_values in panels]
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
    positive = values[values > 0]
    if not len(positive):
        return 0.0
    usual = 4 * float(np.percentile(positive, 75))
    return usual if values.max() > 1.5 * usual else float(values.max())


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
    marked = known[:: max(1, len(known) // _MARKS)]
    marks: list[int] = np.union1d(known[alone], marked).tolist()
    return marks


def _failure_bars(ax: Axes, series: Series) -> None:
    ax.set_title("failures, by cause")
    starts = np.arange(0, len(series.edges_s) - 1, -(-(len(series.edges_s) - 1) // _BARS_MAX))
    edges_s = np.append(series.edges_s[starts], series.edges_s[-1])
    bottom = np.zeros(len(starts))
    for style, (cause, each) in enumerate(_causes(series)):
        counts = np.add.reduceat(each, starts)
        seen = counts > 0
        ax.bar(
            edges_s[:-1][seen], counts[seen], np.diff(edges_s)[seen], bottom[seen], align="edge",
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
    causes = list(series.failures.items())
    if len(causes) <= _CAUSES_MAX:
        return causes
    rest = causes[_CAUSES_MAX - 1 :]
    return [
        *causes[: _CAUSES_MAX - 1],
        (f"{len(rest)} other causes", np.sum([counts for _, counts in rest], axis=0)),
    ]


def _hill(title: str, values: F64 | I64, colour: str, ax: Axes, series: Series) -> None:
    ax.set_title(title)
    if not values.any():
        no_values(ax)
        return
    ax.stairs(values, series.edges_s, color=colour, fill=True, alpha=0.3)
    ax.stairs(values, series.edges_s, color=colour, linewidth=1.2, baseline=None)
    _from_zero(ax)


def _from_zero(ax: Axes, form: str = "{x:,.0f}") -> None:
    from matplotlib.ticker import MaxNLocator

    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=form.endswith(".0f}")))
    ax.yaxis.set_major_formatter(form)


# ---- topology ------------------------------------------------------------------------------------

_COLUMN_IN, _ROW_IN = 2.2, 0.62
_BEND = 0.6  # rows by which an arrow passes below a box
_NAME_LINE = 22  # letters


def topology_chart(graph: Mapping[str, Mapping[str, Any]]) -> Chart:
    """Return the chart of a topology: component → `tasks`, and what it `reads`, as (source,
    grouping). Raises ExperimentError without the extra."""
    caption = (
        "The topology: each component with its number of tasks, and how its inputs are grouped."
    )
    return draw("topology", caption, lambda: _paint_topology(graph))


def columns_of(graph: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Return the components in columns: each is to the right of what it reads, but for cycles."""
    column: dict[str, int] = {}
    for id, component in graph.items():
        before = [column[source] for source, _ in component["reads"] if source in column]
        column[id] = 1 + max(before, default=-1)
    return [[id for id in graph if column[id] == at] for at in sorted(set(column.values()))]


def _paint_topology(graph: Mapping[str, Mapping[str, Any]]) -> Figure:
    columns = columns_of(graph)
    tallest = max(map(len, columns), default=1)
    width_in = max(10.0, _COLUMN_IN * len(columns))
    place = {id: x for x, ids in enumerate(columns) for id in ids}
    reads = [
        (source, id, grouping)
        for id, component in graph.items()
        for source, grouping in component["reads"]
        if source in place
    ]
    below = _BEND if any(place[id] - place[source] > 1 for source, id, _ in reads) else 0.0
    page = new_figure(width_in, _ROW_IN * (tallest + below) + 0.3)
    ax = page.subplots()
    ax.set_axis_off()
    ax.set_xlim(-0.5, max(len(columns), 1) - 0.5)
    ax.set_ylim(tallest - 0.5 + below, -0.5)
    boxes = {}
    for x, ids in enumerate(columns):
        for row, id in enumerate(ids):
            name = textwrap.fill(id, _NAME_LINE, max_lines=2, placeholder=" …")
            is_source = not graph[id]["reads"]
            look = {"boxstyle": "round,pad=0.5", "facecolor": PALE if is_source else "white",
                    "edgecolor": GREY}  # fmt: skip
            y = row + (tallest - len(ids)) / 2
            boxes[id] = ax.text(x, y, f"{name} × {graph[id]['tasks']}", ha="center", va="center",
                                color=INK, bbox=look, zorder=5)  # fmt: skip
    for source, id, grouping in reads:
        _paint_read(ax, boxes[source], boxes[id], grouping, width_in / max(len(columns), 1))
    return page


def _paint_read(ax: Axes, source: Text, target: Text, grouping: str, column_in: float) -> None:
    """Draw an arrow with its grouping; one that passes other columns is bent around the boxes."""
    start, end = source.get_position(), target.get_position()
    across = end[0] - start[0]
    bend = 0.0 if across in (0, 1) else _BEND
    rad = 2 * bend * _ROW_IN / (abs(across) * column_in) if bend else 0.0
    arrow = {"arrowstyle": "-|>", "color": GREY, "patchA": source.get_bbox_patch(),
             "patchB": target.get_bbox_patch(), "shrinkA": 1, "shrinkB": 1,
             "connectionstyle": f"arc3,rad={rad}"}  # fmt: skip
    ax.annotate("", end, start, arrowprops=arrow)
    y = (start[1] + end[1]) / 2 + (bend if across > 0 else -bend)
    ax.text((start[0] + end[0]) / 2, y, grouping, ha="center", va="center", fontsize=7, color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1}, zorder=4)  # fmt: skip


# ---- recovery chart ------------------------------------------------------------------------------

_RECOVERIES_SHOWN = 20
_BAR_IN = 0.26
_TWO_CHART_LINES_IN = 0.36


def longest(recoveries: Sequence[Recovery], count: int = _RECOVERIES_SHOWN) -> list[Recovery]:
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
    return draw("recovery", caption, lambda: _paint_recoveries(shown))


def _paint_recoveries(recoveries: Sequence[Recovery]) -> Figure:
    labels = [f"{wrapped(r.fault)}, at {moment(r.begun_s)}" for r in recoveries]
    each_in = _TWO_CHART_LINES_IN if any("\n" in label for label in labels) else _BAR_IN
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


# ---- sweep ---------------------------------------------------------------------------------------

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
    return draw(f"by-{name}", caption, lambda: _paint_sweep(points, name))


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
        of_groups = ([self.of(point) for point in group] for group in groups)
        return [[value for value in values if value is not None] for values in of_groups]


_RECOVERY = _Measure("longest recovery", VERMILION, "^", lambda point: point.recovery_s)
_THROUGHPUT = _Measure("throughput", BLUE, "o", lambda point: point.throughput)
_REPLAYS = _Measure("replays", PURPLE, "D", lambda point: point.replays, width=3.0)
# Often equal to the replays, whose wider line stays visible below.
_DUPLICATES = _Measure("duplicates", INK, "x", lambda point: point.duplicates, "--")


def _paint_sweep(points: Sequence[Point], name: str) -> Figure:
    by_value: dict[str, list[Point]] = {}
    for run in points:
        by_value.setdefault(figure(run.values[name]), []).append(run)
    groups = list(by_value.values())
    page = new_figure(10.0, 7.6)
    axes = page.subplots(4, 1, sharex=True, height_ratios=(0.8, 1, 1, 1))
    _verdicts(axes[0], groups)
    _measure(axes[1], "longest recovery (seconds)", groups, _RECOVERY)
    for x, group in enumerate(groups):
        if never := sum(not run.recovers for run in group):
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
            count = sum(run.verdict is verdict for run in group)
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
    for measure, values_of in known.items():
        for x, values in enumerate(values_of):
            ax.plot([x] * len(values), values, measure.mark, color=measure.colour, alpha=0.55,
                    markersize=5)  # fmt: skip
        medians = [median(values) if values else nan for values in values_of]
        ax.plot(medians, measure.line, linewidth=measure.width, color=measure.colour)
        ax.plot([], [], f"{measure.mark}{measure.line}", color=measure.colour, label=measure.label)
    if len(measures) > 1:
        legend_above(ax)
    ax.set_ylim(0, max(everything) * 1.2 or 1)
    ax.yaxis.set_major_formatter("{x:,g}")
    ax.grid(axis="y", color=PALE, linewidth=0.8)


# ---- page ----------------------------------------------------------------------------------------

SIGNS = {Verdict.HOLDS: "✔", Verdict.BROKEN: "✘", Verdict.UNKNOWN: "?"}
_EVIDENCE_MAX = 200  # lines of one checker on a page
_RECOVERIES_MAX = 50
_TILES = ("messages", "not completed", "replays", "failed", "duplicates")
_WORDS = {"failed": "failed attempts"}


@dataclass(frozen=True)
class Background:
    """What a page shows besides the outcome."""

    about: str = ""
    command: str = ""  # to run it again
    facts: Mapping[str, Any] = field(default_factory=dict)  # such as begun: 2026-01-31 …
    steps: Sequence[str] = ()  # of the plan, as they were carried out


def run_page(outcome: Outcome, background: Background, charts: Sequence[Chart]) -> str:
    """Return the page of one run. Raises ExperimentError without the extra."""
    return _render(
        "run.html",
        title=outcome.experiment,
        verdict=outcome.verdict,
        summary=outcome_summary(outcome),
        about=background.about,
        outcome=outcome,
        tiles=_tiles(outcome),
        facts={
            "cluster": outcome.cluster,
            "seed": outcome.seed,
            "length": f"{span(outcome.seconds)} on the cluster's clock",
            **background.facts,
        },
        steps=background.steps,
        command=background.command,
        charts=charts,
        evidence_max=_EVIDENCE_MAX,
        recoveries_max=_RECOVERIES_MAX,
    )


def group_page(
    title: str,
    runs: Sequence[tuple[str, Point]],
    parameters: Mapping[str, Any],
    background: Background,
    charts: Sequence[Chart],
) -> str:
    """Return the page of a group of (folder name, run). Raises as `run_page`."""
    verdicts = [point.verdict for _, point in runs]
    return _render(
        "group.html",
        title=title,
        verdict=gravest(verdicts),
        summary=counted(verdicts, "run"),
        about=background.about,
        runs=runs,
        names=list(runs[0][1].values) if runs else [],
        parameters=parameters,
        facts=background.facts,
        command=background.command,
        charts=charts,
    )


def outcome_summary(outcome: Outcome) -> str:
    """Return the outcome in one or two sentences."""
    if outcome.error:
        return f"The run did not finish: {outcome.error}"
    grave = [finding for finding in outcome.findings if finding.verdict is outcome.verdict]
    all_of_them = counted([finding.verdict for finding in outcome.findings], "checker")
    if outcome.verdict is Verdict.HOLDS or not grave:
        return all_of_them
    reason = "; ".join(grave[0].reasons[:1])
    return f"{grave[0].checker}: {reason}{'' if reason.endswith('.') else '.'} {all_of_them}"


def counted(verdicts: Sequence[Verdict], noun: str) -> str:
    """Count the verdicts: `Of 5 checkers: 3 HOLDS, 1 BROKEN, 1 UNKNOWN.`."""
    counts = {verdict: verdicts.count(verdict) for verdict in SIGNS}
    counts_text = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    return f"Of {len(verdicts)} {noun}{'s'[: len(verdicts) != 1]}: {counts_text}."


def _tiles(outcome: Outcome) -> dict[str, str]:
    """In the order and the words of the page of `sunshower ui`."""
    figures = dict(outcome.figures)
    if "messages" in figures:
        done = figures.get("completed", 0) + figures.get("dead", 0)
        figures["not completed"] = max(0, figures["messages"] - done)
    tiles = {_WORDS.get(name, name): figure(figures[name]) for name in _TILES if name in figures}
    if outcome.never_recovered:
        tiles["longest recovery"] = "never"
    elif outcome.recovery_s is not None:
        tiles["longest recovery"] = span(outcome.recovery_s)
    if "throughput" in figures:
        tiles["completed a second"] = figure(round(figures["throughput"]))
    if "latency_p99_s" in figures:
        tiles["latency p99"] = span(figures["latency_p99_s"])
    return tiles


def _render(template: str, **values: Any) -> str:
    check_installed()
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"figure": figure, "moment": moment, "span": span}
    environment.filters |= {"words": words, "quantity": quantity}
    return environment.get_template(template).render(signs=SIGNS, **values)
