"""The arithmetic of the results: medians, spreads, ratios of each round, and targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Key:
    """What was measured: which workload, by which system, in which variant, in which unit."""

    workload: str
    system: str
    variant: str
    unit: str

    @property
    def name(self) -> str:
        return f"{self.workload}/{self.system}/{self.variant}"

    @property
    def is_rate(self) -> bool:
        """Whether more is better: so many a second or a minute. Of all other units less is."""
        return "/" in self.unit


@dataclass(frozen=True)
class Series:
    """The samples of one key, one for each round. `setup`: how the system was set up."""

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
        """A ratio for each round: runs of one round had the same other work beside them.

        Raises KeyError if one of the two was not measured, ValueError if not in as many rounds.
        """
        found = {one.key: one.samples for one in series}
        pairs = zip(found[self.over], found[self.under], strict=True)
        workload, variant, peer = self.name.split("/")
        return Series(Key(workload, peer, variant, "ratio"), [a / b for a, b in pairs])


@dataclass(frozen=True)
class Target:
    """A bound on a ratio, or on another figure that has a name.

    `row`: the row of the page's table; `against`: what the bound is a multiple of. `reason`: why
    it is missed, needed only while it is.
    """

    figure: str
    at_least: float | None = None
    at_most: float | None = None
    row: str = ""
    against: str = ""
    reason: str = ""

    @property
    def bound(self) -> str:
        """The bound in words: `≥ 0.8`."""
        least = self.at_least is not None
        return f"{'≥' if least else '≤'} {self.at_least if least else self.at_most:g}"

    def judge(self, value: float | None) -> dict[str, Any]:
        """Whether it is met, and how far the figure is above (+) or below (-) its bound: as a
        part of it, or in units if the bound is 0."""
        bound = self.at_least if self.at_least is not None else self.at_most
        assert bound is not None, f"{self.figure} has no bound"
        said = {"figure": self.figure, "bound": self.bound}
        if value is None:
            return {**said, "value": None, "met": None, "off": None}
        met = value <= bound if self.at_least is None else value >= bound
        off = round(value / bound - 1, 3) if bound else value
        return {**said, "value": significant(value), "met": met, "off": off}


def significant(value: float, digits: int = 4) -> float:
    """The value, rounded to so many digits that count."""
    return float(f"{value:.{digits}g}")


def rounded(values: Iterable[float]) -> list[float]:
    """Each rounded to four digits that count."""
    return [significant(value) for value in values]


def with_spread(value: float, spread: Sequence[float] = ()) -> str:
    """The value to three digits that count, with the smallest and the largest in brackets."""
    if not spread or spread[0] == spread[1]:
        return _short(value)
    return f"{_short(value)} ({_short(spread[0])} to {_short(spread[1])})"


def _short(value: float) -> str:
    digits = f"{value:.3g}"
    return f"{float(digits):,.0f}" if "e+" in digits or abs(value) >= 1_000 else digits
