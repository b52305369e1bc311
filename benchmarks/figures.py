"""The arithmetic of the results: medians, spreads, ratios, targets, and the shape of the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Key:
    """What was measured: which workload, by whom, in which variant of it, in which unit."""

    workload: str
    system: str
    variant: str
    unit: str

    @property
    def name(self) -> str:
        return f"{self.workload}/{self.system}/{self.variant}"


@dataclass(frozen=True)
class Series:
    """The samples of one key, one for each round."""

    key: Key
    samples: Sequence[float]
    more: Mapping[str, float] = field(default_factory=dict)  # for who wants to know why

    @property
    def median(self) -> float:
        return median(self.samples)

    @property
    def spread(self) -> tuple[float, float]:
        """The smallest and the largest sample."""
        return min(self.samples), max(self.samples)


@dataclass(frozen=True)
class Ratio:
    """One key over another: how many times as fast."""

    name: str
    over: Key
    under: Key

    def of(self, series: Iterable[Series]) -> Series:
        """A ratio for each round: neighbours in time have shared the machine's moods."""
        found = {one.key: one.samples for one in series}
        pairs = zip(found[self.over], found[self.under], strict=True)
        workload, variant, peer = self.name.split("/")
        return Series(Key(workload, peer, variant, "ratio"), [a / b for a, b in pairs])


@dataclass(frozen=True)
class Target:
    """A bound on a ratio, or on another figure that has a name."""

    figure: str
    at_least: float | None = None
    at_most: float | None = None

    def judge(self, value: float | None) -> dict[str, Any]:
        """Whether it is met, and how far the figure is above (+) or below (-) its bound: as a
        part of it, or in units where the bound is nothing at all."""
        bound = self.at_least if self.at_least is not None else self.at_most
        assert bound is not None, f"{self.figure} has no bound"
        said = {
            "figure": self.figure,
            "bound": f"{'≤' if self.at_least is None else '≥'} {bound:g}",
        }
        if value is None:
            return {**said, "value": None, "met": None, "off": None}
        met = value <= bound if self.at_least is None else value >= bound
        off = round(value / bound - 1, 3) if bound else value
        return {**said, "value": significant(value), "met": met, "off": off}


def significant(value: float, digits: int = 4) -> float:
    """The value, rounded to so many digits that count."""
    return float(f"{value:.{digits}g}")


def report(
    place: Mapping[str, Any],
    series: Sequence[Series],
    ratios: Sequence[Ratio],
    targets: Sequence[Target],
) -> dict[str, Any]:
    """The content of the results file. `place`: machine, versions, commit and settings."""
    compared = {ratio.name: ratio.of(series) for ratio in ratios}
    known = {name: one.median for name, one in compared.items()}
    known |= {one.key.name: one.median for one in series}
    return {
        **place,
        "results": [_row(one) for one in series],
        "ratios": {name: significant(one.median) for name, one in compared.items()},
        "ratio_spreads": {name: _rounded(one.spread) for name, one in compared.items()},
        "targets": [target.judge(known.get(target.figure)) for target in targets],
    }


def _row(series: Series) -> dict[str, Any]:
    key = series.key
    return {
        "workload": key.workload,
        "system": key.system,
        "variant": key.variant,
        "median": significant(series.median),
        "spread": _rounded(series.spread),
        "unit": key.unit,
        "samples": _rounded(series.samples),
        **{name: significant(value, 3) for name, value in series.more.items()},
    }


def _rounded(values: Iterable[float]) -> list[float]:
    return [significant(value) for value in values]
