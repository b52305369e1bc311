"""An experiment as a value: what runs, who is hurt when, and what must hold all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sunshower.faults.checkers.port import Checker
from sunshower.faults.plans import Step
from sunshower.runtime.plan import Layout
from sunshower.topologies.topology import Topology


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """All that a run needs but its cluster and its seed.

    `topology`, `plan`, and `checkers` and `messages` where they are functions, are called with
    those of the parameters that they name as arguments; `plan` may name `generator` too.
    """

    name: str
    topology: Callable[..., Topology]
    plan: Callable[..., Iterable[Step]]
    checkers: Sequence[Checker] | Callable[..., Sequence[Checker]]
    parameters: Mapping[str, Any] = field(default_factory=dict)  # name → default
    sweep: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # name → values to go through
    about: str = ""  # one sentence
    layout: Layout = Layout.ISOLATE
    hurt_s: float | None = None  # the plan is cut off here, and all that is on ends
    seconds_max: float = 120.0  # a run that is not finished by then is stuck
    sample: int = 1  # of every so manieth tree the edges are kept
    messages: int | Callable[..., int] | None = None  # in the source, if known
    messages_max: int | None = None  # drain the source after so many: it has no end of its own
