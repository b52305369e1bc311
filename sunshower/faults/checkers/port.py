"""What a checker is, and how several are asked."""

from __future__ import annotations

from typing import Protocol

from sunshower.faults.facts import Facts
from sunshower.faults.history import History
from sunshower.faults.outcome import Finding


class Checker(Protocol):
    """A promise that can be looked up in a history."""

    @property
    def name(self) -> str:
        """Such as at-least-once."""

    def check(self, history: History, facts: Facts) -> Finding:
        """Whether it was kept. What this raises becomes UNKNOWN, with the error as reason."""
