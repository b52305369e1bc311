"""Finds regressions: ratios that are worse than in the last commit by more than a fifth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.figures import with_spread

ALLOWED = 0.2  # fraction of the old value


@dataclass(frozen=True)
class Regression:
    """A ratio that has become worse. The spreads are its smallest and largest value by round."""

    name: str
    before: float
    after: float
    before_spread: Sequence[float]
    after_spread: Sequence[float]

    def __str__(self) -> str:
        return (
            f"{self.name}: {with_spread(self.before, self.before_spread)} before, "
            f"{with_spread(self.after, self.after_spread)} now, {self.after / self.before - 1:+.0%}"
        )


def find_regressions(
    before: Mapping[str, Any], now: Mapping[str, Any], allowed: float = ALLOWED
) -> list[Regression]:
    """The ratios of `now` that are worse than in `before` by more than `allowed` of the old value.

    Both have the shape of the results file. A ratio of rates is worse if it is lower, a ratio of
    times or sizes if it is higher. Ratios that only one of them has are not compared.
    """
    worse = []
    for name, after in now["ratios"].items():
        old = before.get("ratios", {}).get(name)
        if not old:
            continue
        less_is_better = now["ratio_runs"][name]["better"] == "less"
        change = after / old - 1
        if (change if less_is_better else -change) > allowed:
            spreads = (file["ratio_spreads"].get(name, ()) for file in (before, now))
            worse.append(Regression(name, old, after, *spreads))
    return worse
