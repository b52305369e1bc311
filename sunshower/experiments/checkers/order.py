"""Order checker: whether a sink wrote the values of each key in ascending order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sunshower.experiments.checkers.checker import CheckResult
from sunshower.experiments.evidence.event_history import History
from sunshower.experiments.evidence.facts import Facts
from sunshower.runtime.events.event_log import What


@dataclass(frozen=True)
class PerKeyOrder:
    """For each key, the values came in ascending order; earlier values may be repeated.

    Use it only where order is guaranteed: replays break the order of a plain topology.
    """

    name: ClassVar[str] = "per-key-order"

    def check(self, history: History, facts: Facts) -> CheckResult:
        highest: dict[Any, Any] = {}
        seen: set[tuple[Any, Any]] = set()
        wrong: list[str] = []
        wrote = history.rows(What.WROTE)
        for at_s, (key, value) in zip(wrote.at_s.tolist(), wrote.details, strict=True):
            if (key, value) in seen:
                continue
            seen.add((key, value))
            if key in highest and value < highest[key]:
                wrong.append(f"{at_s:.3f} s: {key!r} got {value!r} after {highest[key]!r}")
            else:
                highest[key] = value
        reason = f"{len(wrong):,} values came too late, such as {wrong[0]}" if wrong else ""
        return CheckResult(
            f"the values of {len(highest):,} keys came in order",
            [reason] if wrong else (),
            () if seen else ["no sink says what it has written"],
            wrong[:20],
        )
