"""A fault of something that the topology depends on: a broker, a store, a service it calls.

    outage("broker 1", partial(kafka.kill, 1), partial(kafka.restart, 1), for_s=5)

What that is, and how it is taken down and brought back, the experiment's file knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from sunshower.errors import ExperimentError
from sunshower.faults.vocabulary import Hurt, check_for_s, lasting
from sunshower.runtime.cluster import Run
from sunshower.runtime.plan import Plan


@dataclass(frozen=True)
class Outage:
    """See `outage`."""

    what: str
    down: Callable[[], object] = field(repr=False)
    up: Callable[[], object] = field(repr=False)
    for_s: float

    def __post_init__(self) -> None:
        check_for_s(self)
        if not (self.what and callable(self.down) and callable(self.up)):
            raise ExperimentError(
                f"outage {self.what!r}: give it a name, a function that takes it down and one that "
                "brings it back"
            )

    def check(self, plan: Plan) -> None:
        """It is no part of the plan."""

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> Hurt:
        try:
            self.down()
        except BaseException as error:  # it may be half down
            try:
                self.up()
            except Exception as second:
                error.add_note(f"and what brings {self.what} back raised, too: {second!r}")
            raise
        return Hurt(str(self), self._end)

    def _end(self, run: Run) -> None:
        self.up()

    def __str__(self) -> str:
        return f"outage of {self.what}{lasting(self.for_s)}"


def outage(
    what: str, down: Callable[[], object], up: Callable[[], object], *, for_s: float
) -> Outage:
    """Take down something outside of the topology with `down()`, and back with `up()` after
    `for_s` seconds; both run in the experiment's own process. `up()` is called, too, where
    `down()` raises, and once more where `up()` does.

    Raises ExperimentError for what never comes back.
    """
    return Outage(what, down, up, for_s)
