"""Order: whether what a sink wrote of each key came in the order of its values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sunshower.faults.checkers.port import Weighed
from sunshower.faults.facts import Facts
from sunshower.faults.history import History
from sunshower.runtime.history import What


@dataclass(frozen=True)
class PerKeyOrder:
    """For each key, the values came in ascending order; what was there before may come again.

    Only where that is promised: replays break the order of a plain topology.
    """

    name: ClassVar[str] = "per-key-order"

    def check(self, history: History, facts: Facts) -> Weighed:
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
        said = f"{len(wrong):,} values came too late, such as {wrong[0]}" if wrong else ""
        return Weighed(
            f"the values of {len(highest):,} keys came in order",
            [said] if wrong else (),
            () if seen else ["no sink says what it has written"],
            wrong[:20],
        )
