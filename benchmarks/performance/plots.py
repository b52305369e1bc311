"""Plots as SVG: bars, and lines over a number or a time; the same figures give the same bytes."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, for colour blindness of every kind; visible on white and on black.
OURS, PEER, TARGET = "#0086d1", "#999999", "#D55E00"
LINES = ("#0086d1", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#999999")
MARKS = "osD^vPX"
_TEXT = "#123456"  # replaced by the reader's text colour in _for_both_themes
_LOOKS: Any = {
    "font.size": 9,
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same sizes on every machine
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.edgecolor": _TEXT,
    "axes.labelcolor": _TEXT,
    "axes.titlecolor": _TEXT,
    "text.color": _TEXT,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#888888",
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.fonttype": "none",  # text stays text: small files
    "svg.hashsalt": "sunshower",  # the same ids in each run
}
_STYLE = (
    "<style>svg{color:#24292f;font-family:sans-serif}"
    "@media(prefers-color-scheme:dark){svg{color:#d1d7e0}}</style>"
)


@dataclass(frozen=True)
class Bar:
    """One bar. `mark`: the position of a line across it."""

    label: str
    value: float
    spread: Sequence[float]
    is_ours: bool = True
    mark: float | None = None


@dataclass(frozen=True)
class Panel:
    """Lines over a time, name → (time, value) …, with a title."""

    title: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class Point:
    """A value at a number, with the smallest and the largest sample."""

    number: float
    value: float
    spread: Sequence[float]


def bars(title: str, axis: str, shown: Sequence[Bar]) -> str:
    """Horizontal bars, the first on top, each with its spread and its value."""

    def paint(ax: Axes) -> None:
        highest = max(max(bar.spread[1], bar.mark or 0.0) for bar in shown)
        for row, bar in enumerate(shown):
            ax.barh(row, bar.value, height=0.62, color=OURS if bar.is_ours else PEER)
            ax.plot(bar.spread, (row, row), color=_TEXT, linewidth=1, solid_capstyle="butt")
            if bar.mark is not None:
                ax.plot((bar.mark, bar.mark), (row - 0.42, row + 0.42), color=TARGET, linewidth=2)
            end = max(bar.spread[1], bar.mark or 0.0)
            ax.text(end + highest * 0.012, row, f"{bar.value:,.3g}", va="center")
        ax.set_yticks(range(len(shown)), [bar.label for bar in shown])
        ax.set_ylim(len(shown) - 0.4, -0.6)
        ax.set_xlim(0, highest * 1.12)
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x")
        ax.set_xlabel(axis)

    return _draw(title, 0.9 + 0.27 * len(shown), paint)


def lines(title: str, axes: tuple[str, str], shown: Mapping[str, Sequence[Point]]) -> str:
    """A line for each name, value against number, with the spread as a vertical bar; both axes
    are logarithmic."""

    def paint(ax: Axes) -> None:
        from matplotlib.ticker import LogLocator

        for index, (name, points) in enumerate(shown.items()):
            _line(ax, index, name, points)
        ax.set_xscale("log")
        ax.set_yscale("log")
        numbers = sorted({point.number for points in shown.values() for point in points})
        ax.set_xticks(numbers, [_short(number) for number in numbers])
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=8))
        ax.yaxis.set_major_formatter(lambda value, _: _short(value))
        ax.minorticks_off()
        ax.grid(visible=True)
        ax.set_xlabel(axes[0])
        ax.set_ylabel(axes[1])
        if len(shown) > 1:
            ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)

    return _draw(title, 3.0, paint)


def panels(axis: str, rows: Sequence[Sequence[Panel]]) -> str:
    """Rows of panels over the same time, with one legend: a name has one colour in all panels."""
    names = dict.fromkeys(name for row in rows for panel in row for name in panel.lines)
    indexes = {name: index for index, name in enumerate(names)}

    def paint(figure: Figure) -> None:
        grid = figure.subplots(len(rows), len(rows[0]), sharex=True, squeeze=False)
        for axes, row in zip(grid, rows, strict=True):
            for ax, panel in zip(axes, row, strict=True):
                ax.set_title(panel.title)
                for name, points in panel.lines.items():
                    ax.plot(*zip(*points, strict=True), label=name, **_line_look(indexes[name]))
                ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
                ax.set_ylim(bottom=0)
                ax.margins(x=0.01)
                ax.grid(visible=True)
        for ax in grid[-1]:
            ax.set_xlabel(axis)
        shown = {
            name: line
            for ax in grid.flat
            for line, name in zip(*ax.get_legend_handles_labels(), strict=True)
        }
        figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=4)

    return _render(0.8 + 1.9 * len(rows), paint)


def _line(ax: Axes, index: int, name: str, points: Sequence[Point]) -> None:
    values = [point.value for point in points]
    ax.errorbar(
        [point.number for point in points],
        values,
        yerr=(
            [max(point.value - point.spread[0], 0.0) for point in points],
            [max(point.spread[1] - point.value, 0.0) for point in points],
        ),
        marker=MARKS[index % len(MARKS)],
        markersize=4,
        elinewidth=0.8,
        label=name,
        **_line_look(index),
    )


def _line_look(index: int) -> dict[str, Any]:
    """Colour and dashes of the line with this number."""
    dashes = "-" if index < len(LINES) else "--"
    return {"color": LINES[index % len(LINES)], "linestyle": dashes, "linewidth": 1.3}


def _short(value: float) -> str:
    """10, 2 k, 1 M."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g}"


def _draw(title: str, height_in: float, paint: Callable[[Axes], None]) -> str:
    """A plot of one panel."""

    def paint_figure(figure: Figure) -> None:
        ax = figure.subplots()
        ax.set_title(title)
        paint(ax)

    return _render(height_in, paint_figure)


def _render(height_in: float, paint: Callable[[Figure], None]) -> str:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({**mpl.rcParamsDefault, **_LOOKS}):
        figure = Figure(figsize=(8.6, height_in), layout="constrained")
        paint(figure)
        file = io.StringIO()
        metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(file, format="svg", transparent=True, metadata=metadata)
    return _for_both_themes(file.getvalue())


def _for_both_themes(svg: str) -> str:
    """Text, axes and spreads are dark on a light page, and light on a dark page."""
    head, start, rest = svg.partition("<defs>")
    body = (start + rest).replace(_TEXT, "currentColor").replace("'DejaVu Sans', ", "")
    return "\n".join(line.rstrip() for line in (head + _STYLE + body).splitlines()) + "\n"
