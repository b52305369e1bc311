"""The arithmetic of the results: medians, spreads, ratios of each round, and targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Key:
    """The name of a figure: its workload, system, variant and unit."""

    workload: str
    system: str
    variant: str
    unit: str

    @property
    def name(self) -> str:
        return f"{self.workload}/{self.system}/{self.variant}"

    @property
    def is_rate(self) -> bool:
        """Whether higher is better, as for units per second or minute. For others, lower is."""
        return "/" in self.unit


@dataclass(frozen=True)
class Series:
    """The samples of one key, one for each round. `setup`: the configuration of the system."""

    key: Key
    samples: Sequence[float]
    more: Mapping[str, float] = field(default_factory=dict)
    setup: str = ""

    @property
    def median(self) -> float:
        return median(self.samples)

    @property
    def spread(self) -> tuple[float, float]:
        """The smallest and the largest sample."""
        return min(self.samples), max(self.samples)


@dataclass(frozen=True)
class Ratio:
    """One key divided by another."""

    name: str
    over: Key
    under: Key

    def of(self, series: Iterable[Series]) -> Series:
        """The ratio in each round, because the runs of one round had similar conditions.

        Raises KeyError if a key was not measured, ValueError if the numbers of rounds differ.
        """
        samples_of = {entry.key: entry.samples for entry in series}
        pairs = zip(samples_of[self.over], samples_of[self.under], strict=True)
        workload, variant, peer = self.name.split("/")
        return Series(Key(workload, peer, variant, "ratio"), [a / b for a, b in pairs])


@dataclass(frozen=True)
class Target:
    """A bound on a ratio or another figure.

    `row`: its row in the page's table; `against`: what the bound is a multiple of. `reason`: why
    it is missed; required only while it is missed.
    """

    figure: str
    at_least: float | None = None
    at_most: float | None = None
    row: str = ""
    against: str = ""
    reason: str = ""

    @property
    def bound(self) -> str:
        """The bound as text: `≥ 0.8`."""
        least = self.at_least is not None
        return f"{'≥' if least else '≤'} {self.at_least if least else self.at_most:g}"

    def judge(self, value: float | None) -> dict[str, Any]:
        """Whether the bound is met, and how far the value is above (+) or below (-) it: as a
        fraction of the bound, or in units if the bound is 0."""
        bound = self.at_least if self.at_least is not None else self.at_most
        assert bound is not None, f"{self.figure} has no bound"
        judged = {"figure": self.figure, "bound": self.bound}
        if value is None:
            return {**judged, "value": None, "met": None, "off": None}
        met = value <= bound if self.at_least is None else value >= bound
        off = round(value / bound - 1, 3) if bound else value
        return {**judged, "value": significant(value), "met": met, "off": off}


def significant(value: float, digits: int = 4) -> float:
    """The value, rounded to `digits` significant digits."""
    return float(f"{value:.{digits}g}")


def rounded(values: Iterable[float]) -> list[float]:
    """The values, each rounded to four significant digits."""
    return [significant(value) for value in values]


def with_spread(value: float, spread: Sequence[float] = ()) -> str:
    """The value to three significant digits, with the smallest and the largest in brackets."""
    if not spread or spread[0] == spread[1]:
        return _short(value)
    return f"{_short(value)} ({_short(spread[0])} to {_short(spread[1])})"


def _short(value: float) -> str:
    digits = f"{value:.3g}"
    return f"{float(digits):,.0f}" if "e+" in digits or abs(value) >= 1_000 else digits
