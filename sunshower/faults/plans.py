"""Plans: when to do what, as plain iterators of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sunshower.faults.vocabulary import Fault


@dataclass(frozen=True)
class Step:
    """One fault at its time."""

    at_s: float  # from the start of the run
    fault: Fault

    def __lt__(self, other: Step) -> bool:
        return self.at_s < other.at_s

    def __str__(self) -> str:
        return f"{self.at_s:.3f} s: {self.fault}"

    def to_fields(self) -> dict[str, Any]:
        """Plain values, for plan.json."""
        return {"at_s": self.at_s, "fault": str(self.fault), "for_s": self.fault.for_s}
