"""The fault of an external dependency of the topology: a broker, a store, a service.

    outage("broker 1", partial(kafka.kill, 1), partial(kafka.restart, 1), for_s=5)

The experiment passes the functions that stop and restart the dependency.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from sunshower.errors import ExperimentError
from sunshower.experiments.faults.fault_kinds import ActiveFault, check_for_s, lasting
from sunshower.runtime.cluster import Run
from sunshower.runtime.plan import Plan


@dataclass(frozen=True)
class Outage:
    """The fault of `outage`."""

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
        """Accept every plan."""

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> ActiveFault:
        try:
            self.down()
        except BaseException as error:  # it may be partly down
            try:
                self.up()
            except Exception as second:
                error.add_note(f"and what brings {self.what} back raised, too: {second!r}")
            raise
        return ActiveFault(str(self), self._end)

    def _end(self, run: Run) -> None:
        self.up()

    def __str__(self) -> str:
        return f"outage of {self.what}{lasting(self.for_s)}"


def outage(
    what: str, down: Callable[[], object], up: Callable[[], object], *, for_s: float
) -> Outage:
    """Stop something outside of the topology with `down()`, and restart it with `up()` after
    `for_s` seconds. Both run in the experiment's own process. `up()` is also called if `down()`
    raises, and once more if `up()` raises.

    Raises ExperimentError for an endless outage.
    """
    return Outage(what, down, up, for_s)
