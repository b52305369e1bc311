"""Recovery checkers: whether the run completes after the last fault, and how soon after each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sunshower.arguments import SECONDS, check_all
from sunshower.errors import ExperimentError
from sunshower.experiments.checkers.checker import CheckResult
from sunshower.experiments.checkers.delivery import excused
from sunshower.experiments.evidence.event_history import F64, History
from sunshower.experiments.evidence.facts import UNTRACKED, Ending, Facts
from sunshower.experiments.evidence.outcome import Recovery
from sunshower.experiments.evidence.tuple_evidence import trees
from sunshower.failures import Cause
from sunshower.runtime.events.event_log import NOTHING, What
from sunshower.runtime.tracking.ids import I64

_MOMENT_S = 0.05  # a shorter fault is instantaneous, such as a kill
_OF_THE_MACHINERY = {Cause.ACTOR_DIED, Cause.BAD_FRAME, Cause.REBALANCED}


@dataclass(frozen=True)
class Liveness:
    """Everything is completed within `within_s` after the last fault."""

    within_s: float = 60.0
    name: ClassVar[str] = "liveness"

    def __post_init__(self) -> None:
        check_all(self, {"within_s": SECONDS}, "Liveness: ", ExperimentError)

    def check(self, history: History, facts: Facts) -> CheckResult:
        if not history.faults or any(band.ended_s is None for band in history.faults):
            return CheckResult("", unknown=["the history has no end of the last fault"])
        healed_s = max(band.ended_s or 0.0 for band in history.faults)
        completed = history.rows(What.COMPLETED if facts.tracked else What.WROTE)
        last_s = float(completed.at_s[-1]) if len(completed) else -math.inf
        took_s = max(0.0, last_s - healed_s)
        broken, unknown = [], []
        if facts.ending is Ending.STUCK:
            broken.append(f"it is stuck: {facts.error}")
        elif facts.ending is not Ending.FINISHED:
            unknown.append(f"the run did not finish: {facts.error}")
        elif took_s > self.within_s:
            broken.append(f"all was completed {took_s:.3f} s after the last fault, and not within "
                          f"{self.within_s:g} s")  # fmt: skip
        lost = history.accounts.open.tolist() if broken else []
        holds = f"all was completed {took_s:.3f} s after the last fault"
        if last_s < healed_s:
            holds = "all was completed while the last fault was on"
        return CheckResult(
            holds,
            broken,
            unknown,
            trees(history, lost),
            {"settled_s": took_s},
        )


@dataclass(frozen=True)
class Recovers:
    """After each fault, the messages it affected are completed within `within_s`: see `recoveries`.

    Excused messages do not count: see `delivery.excused`.
    """

    within_s: float = 30.0
    name: ClassVar[str] = "recovery"

    def __post_init__(self) -> None:
        check_all(self, {"within_s": SECONDS}, "Recovers: ", ExperimentError)

    def check(self, history: History, facts: Facts) -> CheckResult:
        found = recoveries(history, excused(history, facts))
        times = [(one.fault, one.seconds) for one in found if one.seconds is not None]
        broken = [
            f"after {fault} it took {seconds:.3f} s, and not {self.within_s:g} s"
            for fault, seconds in times
            if seconds > self.within_s
        ]
        unknown = [] if found else ["there was no fault to recover from"]
        unknown += [] if facts.tracked else [UNTRACKED]
        reason = [f"after {one.fault} it never recovered" for one in found if one.seconds is None]
        if history.cut is None and facts.ending in (Ending.FINISHED, Ending.STUCK):
            broken += reason
        else:
            unknown += reason
        worst_s = max((seconds for _, seconds in times), default=0.0)
        which = "the only fault" if len(found) == 1 else f"each of {len(found):,} faults"
        return CheckResult(
            f"after {which}, within {worst_s:.3f} s",
            broken,
            unknown,
            figures={"worst_s": worst_s},
        )


def recoveries(history: History, but: I64 = NOTHING) -> tuple[Recovery, ...]:
    """Return when the messages that each fault affected were complete; faults without an end in the
    history are left out.

    Affected are the messages that were open when the fault ended; after a kill, also those emitted
    before the next process started; and those that the runtime failed before the next fault. The
    messages `but` are left out.
    """
    failed = history.rows(What.FAILED)
    causes = np.array([cause in _OF_THE_MACHINERY for cause in failed.details], np.bool_)
    failed_s, messages = failed.at_s[causes], failed.messages[causes]
    begun_s = np.array([band.begun_s for band in history.faults])
    started_s = history.rows(What.STARTED).at_s
    found = []
    for band in history.faults:
        if band.ended_s is None:
            continue
        next_s = _first(begun_s, band.ended_s, math.inf)
        back_s = band.ended_s
        if band.ended_s - band.begun_s < _MOMENT_S:  # a process may be missing until the next start
            back_s = _first(started_s[started_s <= next_s], band.ended_s, band.ended_s)
        lost = messages[(failed_s >= band.begun_s) & (failed_s < next_s)]
        touched = history.accounts.touched(band.ended_s, back_s, lost, but)
        last_s = float(touched.max(initial=band.ended_s))
        whole_s = None if math.isinf(last_s) else last_s
        found.append(Recovery(band.words, band.begun_s, band.ended_s, whole_s))
    return tuple(found)


def _first(times_s: F64, after_s: float, otherwise: float) -> float:
    later_s = times_s[times_s > after_s]
    return float(later_s.min()) if len(later_s) else otherwise
