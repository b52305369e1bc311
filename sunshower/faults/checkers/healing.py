"""Healing: whether all goes on after the last fault, and how long each one was felt."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sunshower.failures import Cause
from sunshower.faults.checkers.delivery import excused
from sunshower.faults.checkers.port import Weighed
from sunshower.faults.evidence import messages_of, trees
from sunshower.faults.facts import UNTRACKED, Ending, Facts
from sunshower.faults.history import F64, History, values_of
from sunshower.faults.outcome import Recovery
from sunshower.runtime.history import NOTHING, What
from sunshower.runtime.ids import I64

_FULL = 0.9  # of a timeout: clocks drift
_MOMENT_S = 0.05  # a fault that is over so soon was done, and is not on
_OF_THE_MACHINERY = {Cause.ACTOR_DIED, Cause.BAD_FRAME, Cause.REBALANCED}


@dataclass(frozen=True)
class Liveness:
    """Within `within_s` after the last fault everything is completed."""

    within_s: float = 60.0
    name: ClassVar[str] = "liveness"

    def check(self, history: History, facts: Facts) -> Weighed:
        if not history.faults or any(band.ended_s is None for band in history.faults):
            return Weighed("", unknown=["the history has no end of the last fault"])
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
        return Weighed(
            holds,
            broken,
            unknown,
            trees(history, lost),
            {"settled_s": took_s},
        )


@dataclass(frozen=True)
class Recovers:
    """After each fault, all that it touched is completed within `within_s`: see `recoveries`.

    Not what nobody completes any more, and what is no loss: see `delivery.excused`.
    """

    within_s: float = 30.0
    name: ClassVar[str] = "recovery"

    def check(self, history: History, facts: Facts) -> Weighed:
        found = recoveries(history, excused(history, facts))
        times = [one.recovered_s - one.ended_s for one in found if one.recovered_s is not None]
        never = [one.fault for one in found if one.recovered_s is None]
        broken = [
            f"after {one.fault} it took {one.recovered_s - one.ended_s:.3f} s, and not "
            f"{self.within_s:g} s"
            for one in found
            if one.recovered_s is not None and one.recovered_s - one.ended_s > self.within_s
        ]
        unknown = [] if found else ["there was no fault to recover from"]
        unknown += [] if facts.tracked else [UNTRACKED]
        said = [f"after {fault} it never was whole again" for fault in never]
        if history.cut is None and facts.ending in (Ending.FINISHED, Ending.STUCK):
            broken += said
        else:
            unknown += said
        worst_s = max(times, default=0.0)
        which = "the only fault" if len(found) == 1 else f"each of {len(found):,} faults"
        return Weighed(
            f"after {which}, within {worst_s:.3f} s",
            broken,
            unknown,
            figures={"worst_s": worst_s},
        )


@dataclass(frozen=True)
class NoneTimedOut:
    """No tree had to wait for its deadline: whatever broke one was told.

    Only of topologies whose bolts neither forget nor dawdle, and of faults that are much shorter
    than the timeout. What `expire` ends is younger than its deadline, and is not meant.
    """

    name: ClassVar[str] = "none-timed-out"

    def check(self, history: History, facts: Facts) -> Weighed:
        emitted, failed = history.rows(What.EMITTED), history.rows(What.FAILED)
        timed_out = np.array([cause == Cause.TIMEOUT for cause in failed.details], np.bool_)
        roots = failed.roots[timed_out]
        age_s = failed.at_s[timed_out] - values_of(emitted.roots, emitted.at_s, roots)
        limits_s = [facts.timeouts_s.get(task, 0.0) for task in failed.tasks[timed_out].tolist()]
        late = roots[age_s >= _FULL * np.array(limits_s)]
        said = f"{len(late):,} trees failed at their deadline, and nothing had told before"
        return Weighed(
            "no tree had to wait for its deadline",
            [said] if len(late) else (),
            () if facts.tracked else [UNTRACKED],
            trees(history, messages_of(history, late)),
        )


def recoveries(history: History, but: I64 = NOTHING) -> tuple[Recovery, ...]:
    """How long each fault was felt; of one that has no end in the history nobody can say.

    Felt by what was open when it ended; after a kill, also by what was emitted before the next
    process was born; and by what the machinery has failed until another fault begins.
    Not by the messages `but`.
    """
    failed = history.rows(What.FAILED)
    causes = np.array([cause in _OF_THE_MACHINERY for cause in failed.details], np.bool_)
    failed_s, messages = failed.at_s[causes], failed.messages[causes]
    begun_s = np.array([band.begun_s for band in history.faults])
    born_s = history.rows(What.BORN).at_s
    found = []
    for band in history.faults:
        if band.ended_s is None:
            continue
        next_s = _first(begun_s, band.ended_s, math.inf)
        back_s = band.ended_s
        if band.ended_s - band.begun_s < _MOMENT_S:  # a process may be away from then on
            back_s = _first(born_s[born_s <= next_s], band.ended_s, band.ended_s)
        lost = messages[(failed_s >= band.begun_s) & (failed_s < next_s)]
        touched = history.accounts.touched(band.ended_s, back_s, lost, but)
        last_s = float(touched.max(initial=band.ended_s))
        whole_s = None if math.isinf(last_s) else last_s
        found.append(Recovery(band.words, band.begun_s, band.ended_s, whole_s))
    return tuple(found)


def _first(times_s: F64, after_s: float, otherwise: float) -> float:
    later_s = times_s[times_s > after_s]
    return float(later_s.min()) if len(later_s) else otherwise
