"""Shrinking: from a failing plan to a short one that fails as well.

First fewer steps (delta debugging: Zeller and Hildebrandt, Simplifying and Isolating
Failure-Inducing Input, 2002), then shorter ones, then fewer messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, TypeAlias

from sunshower.faults.plans import Step

Steps: TypeAlias = tuple[Step, ...]
Trial: TypeAlias = Callable[[Steps, int | None], bool]
_SHORTEST_S = 0.001


@dataclass(frozen=True)
class Shrunk:
    """What is left, and how many runs that took."""

    steps: Steps
    messages: int | None  # after which the source is stopped; None: not at all
    tries: int


def shrink(
    steps: Sequence[Step],
    breaks: Trial,
    *,
    messages: int | None = None,
    tries_max: int = 200,
) -> Shrunk:
    """The shortest that is found, in at most `tries_max` runs, from steps that are known to fail.

    `breaks(steps, messages)`: whether a run with these steps, whose source is stopped after so many
    messages, still fails. It must give the same answer each time. `messages`: how many there are in
    the failing run, where that is known.
    """
    search = _Search(breaks, tries_max, tuple(steps))
    search.fewer_steps()
    search.shorter_steps()
    if messages is not None:
        search.fewer_messages(messages)
    return Shrunk(search.steps, search.messages, search.tries)


class _Search:
    """The best so far, and how many tries are left."""

    def __init__(self, breaks: Trial, tries_max: int, steps: Steps) -> None:
        self.steps = steps
        self.messages: int | None = None
        self.tries = 0
        self._breaks = breaks
        self._tries_max = tries_max

    def fewer_steps(self) -> None:
        """Leave out halves, quarters, eighths …, until no single step can be left out."""
        parts = 2
        while self.steps:
            size = max(1, -(-len(self.steps) // parts))
            starts = range(0, len(self.steps), size)
            if any(self._try(_without(self.steps, start, size)) for start in starts):
                parts = max(2, parts - 1)
            elif size == 1:
                return
            else:
                parts = min(2 * parts, len(self.steps))

    def shorter_steps(self) -> None:
        """Halve how long each is on, as often as it goes."""
        for place in range(len(self.steps)):
            while self._try(_shortened(self.steps, place)):
                pass

    def fewer_messages(self, messages: int) -> None:
        """Halve how many messages there are, as often as it goes."""
        while messages > 1 and self._try(self.steps, messages // 2):
            messages //= 2

    def _try(self, steps: Steps | None, messages: int | None = None) -> bool:
        """Keep it if it fails, too."""
        if steps is None or self.tries >= self._tries_max:
            return False
        self.tries += 1
        if not self._breaks(steps, messages):
            return False
        self.steps, self.messages = steps, messages
        return True


def _without(steps: Steps, start: int, size: int) -> Steps:
    return steps[:start] + steps[start + size :]


def _shortened(steps: Steps, place: int) -> Steps | None:
    """With half of the time for one step; None where that makes no sense."""
    step = steps[place]
    fault: Any = step.fault
    if not is_dataclass(fault) or fault.for_s / 2 < _SHORTEST_S:
        return None
    shorter = replace(step, fault=replace(fault, for_s=fault.for_s / 2))
    return (*steps[:place], shorter, *steps[place + 1 :])
