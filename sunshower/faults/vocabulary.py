"""The faults: each is a frozen value that says whom it hurts, how, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from sunshower.runtime.cluster import Run
from sunshower.runtime.havoc import Havoc
from sunshower.runtime.plan import Plan


@dataclass(frozen=True)
class Hurt:
    """What a fault has done, now that it has begun."""

    words: str  # such as: kill relay[0]
    end: Callable[[Run], None] | None = None  # how to take it back
    havoc: Havoc = field(default_factory=Havoc)  # what the nemesis adds to all else that is on


class Fault(Protocol):
    """Something to be done to a running topology. Frozen; `str` of it are its words."""

    @property
    def for_s(self) -> float:
        """How long it is on; 0 for what is done in a moment and not taken back."""

    def check(self, plan: Plan) -> None:
        """Raise ExperimentError, before anything runs, for what this plan does not have."""

    def begin(self, run: Run, generator: np.random.Generator) -> Hurt:
        """Do it now. Raises ClusterError when the victim is not there: it is tried again soon."""
