"""Shrinks a failing plan to a shorter one that still fails.

First fewer steps (delta debugging: Zeller and Hildebrandt, Simplifying and Isolating
Failure-Inducing Input, 2002), then shorter ones, then fewer messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, TypeAlias

from sunshower.experiments.faults.fault_plan import Step

Steps: TypeAlias = tuple[Step, ...]
Trial: TypeAlias = Callable[[Steps, int | None], bool]
_SHORTEST_S = 0.001


@dataclass(frozen=True)
class Shrunk:
    """The shrunk plan, and the number of runs that were needed."""

    steps: Steps
    messages: int | None  # after which the source is drained; None: not drained
    tries: int


def shrink(
    steps: Sequence[Step],
    breaks: Trial,
    *,
    messages: int | None = None,
    tries_max: int = 200,
) -> Shrunk:
    """Return the shortest failing plan that is found in at most `tries_max` runs.

    `steps` are known to fail. `breaks(steps, messages)`: whether a run with these steps, whose
    source is drained after so many messages, still fails; it must be deterministic. `messages`: the
    number of messages in the failing run, if known.
    """
    search = _Search(breaks, tries_max, tuple(steps))
    search.fewer_steps()
    search.shorter_steps()
    if messages is not None:
        search.fewer_messages(messages)
    return Shrunk(search.steps, search.messages, search.tries)


class _Search:
    """The shortest failing plan so far."""

    def __init__(self, breaks: Trial, tries_max: int, steps: Steps) -> None:
        self.steps = steps
        self.messages: int | None = None
        self.tries = 0
        self._breaks = breaks
        self._tries_max = tries_max

    def fewer_steps(self) -> None:
        """Remove halves, quarters, eighths …, until no single step can be removed."""
        parts = 2
        while self.steps:
            size = max(1, -(-len(self.steps) // parts))
            starts = range(0, len(self.steps), size)
            if any(self._try(self.steps[:at] + self.steps[at + size :]) for at in starts):
                parts = max(2, parts - 1)
            elif size == 1:
                return
            else:
                parts = min(2 * parts, len(self.steps))

    def shorter_steps(self) -> None:
        """Halve the duration of each step, as often as it still fails."""
        for place in range(len(self.steps)):
            while self._try(_shortened(self.steps, place)):
                pass

    def fewer_messages(self, messages: int) -> None:
        """Halve the number of messages, as often as it still fails."""
        while messages > 1 and self._try(self.steps, messages // 2):
            messages //= 2

    def _try(self, steps: Steps | None, messages: int | None = None) -> bool:
        """Keep a shorter plan if it fails, too."""
        if steps is None or self.tries >= self._tries_max:
            return False
        self.tries += 1
        if not self._breaks(steps, messages):
            return False
        self.steps, self.messages = steps, messages
        return True


def _shortened(steps: Steps, place: int) -> Steps | None:
    """Return the steps with half the duration for one; None if it has none."""
    step = steps[place]
    fault: Any = step.fault
    can_change = is_dataclass(fault)
    if not can_change or fault.for_s / 2 < _SHORTEST_S:
        return None
    shorter = replace(step, fault=replace(fault, for_s=fault.for_s / 2))
    return (*steps[:place], shorter, *steps[place + 1 :])
