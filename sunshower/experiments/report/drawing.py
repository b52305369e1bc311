"""Draws charts with matplotlib, without a screen, in a palette for colour blindness."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sunshower.errors import ExperimentError
from sunshower.experiments.evidence.outcome import Verdict
from sunshower.installed import check_packages

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
        found = self.svg[self.svg.index("<svg") :].strip()
        opening, rest = found.split(">", 1)
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
