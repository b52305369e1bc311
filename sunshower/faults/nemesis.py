"""The one who hurts: carries a plan out on a run, and heals whatever happens.

It asks the run what time it is, and waits there; so it does the same on a simulated and on a real
cluster. What it did is in the history, what it could not do in `undone`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from sunshower.errors import ClusterError, LifecycleError, SunshowerError
from sunshower.faults.plans import Step
from sunshower.faults.vocabulary import Hurt, harmless
from sunshower.runtime.cluster import Run
from sunshower.runtime.havoc import Havoc
from sunshower.runtime.history import Entry, What

T = TypeVar("T")
_PATIENCE_S = 20.0  # for a victim that is just being born
_RETRY_S = 0.05
_MOMENT_S = 1e-6  # less than that is a rounding error, and might never pass
_LOOK_S = 0.1  # between two looks at how much was emitted


@dataclass(eq=False)
class _On:
    """A fault that is on."""

    hurt: Hurt
    end_s: float


class Nemesis:
    """One run's. Times are in seconds from when it was made.

    `emits_max`: the sources are told to end when they have emitted so much, or a little more.
    `entries`: where BEGUN and ENDED are noted, on the cluster's clock.
    """

    def __init__(
        self,
        run: Run,
        seed: int,
        *,
        emits_max: int | None = None,
        entries: list[Entry] | None = None,
    ) -> None:
        self.begun_s = run.now()
        self.entries: list[Entry] = [] if entries is None else entries
        self.done: list[Step] = []
        self.undone: list[str] = []  # what it could not do, and why
        self.drained = False
        self._run = run
        self.plan = run.plan
        self._seed = seed
        self._emits_max = emits_max
        self._on: list[_On] = []
        self._expirations = 0
        self._unsure = False  # whether the last havoc was heard
        self._asked = False  # the master, for what may have moved tasks

    def begin_ahead(self, steps: Sequence[Step]) -> Sequence[Step]:
        """Throttle the sources that are to be slow from their first record on, before they are let
        loose. Returns the other steps. Raises as `carry_out`."""
        ahead = [s for s in steps if s.at_s == 0 and harmless(s.fault) and s.fault.for_s]
        for step in ahead:
            self._begin(step, math.inf)
        return [step for step in steps if step not in ahead]

    def carry_out(self, steps: Sequence[Step], hurt_s: float = math.inf) -> bool:
        """Do all of it; at `hurt_s` at the latest nothing is on any more. Returns whether the run
        is finished: then what was still to come is not done.

        Raises what `Run.wait` and a fault's own functions raise. Everything that is on has ended
        when this returns or raises, or `undone` says that it could not be.
        """
        waiting = deque(steps)
        try:
            while waiting or self._on:
                ends_s = min((on.end_s for on in self._on), default=math.inf)
                begins_s = waiting[0].at_s if waiting else math.inf
                if self.wait(min(ends_s, begins_s)):
                    self.undone += [f"{step}: the run was finished before" for step in waiting]
                    return True
                if ends_s <= begins_s:
                    self._end(next(on for on in self._on if on.end_s == ends_s))
                else:
                    self._begin(waiting.popleft(), hurt_s)
        finally:
            self._heal()
        return False

    def wait(self, until_s: float) -> bool:
        """Let the run go on until that time. Returns whether it is finished, raises as it does."""
        while (left_s := until_s - self._now()) > _MOMENT_S:
            if self._run.wait(left_s if self._emits_max is None else min(left_s, _LOOK_S)):
                return True
            self._look()
        return False

    def _now(self) -> float:
        return self._run.now() - self.begun_s

    def _begin(self, step: Step, hurt_s: float) -> None:
        begun = self._insist(partial(self._strike, step), str(step))
        if begun is None:
            return
        at_s, hurt = begun
        self.done.append(step)
        self.entries.append(Entry(at_s, What.BEGUN, detail=hurt.words))
        if step.fault.for_s:
            self._on.append(_On(hurt, min(self._now() + step.fault.for_s, hurt_s)))
        else:
            self._over(hurt)

    def _strike(self, step: Step) -> tuple[float, Hurt]:
        """The same dice for each try: the victim stays the same."""
        at_s = self._run.now()
        dice = np.random.default_rng([self._seed, step.lot])
        if self._asked and not self._deaf:
            self.plan = self._run.plan
        hurt = step.fault.begin(self._run, self.plan, dice)
        if hurt.havoc or hurt.havoc.expirations or hurt.ask:
            self._until_heard()
            at_s = self._run.now()
        if hurt.ask is not None:
            hurt.ask(self._run)
            self._asked = True
        if hurt.havoc or hurt.havoc.expirations:
            self._disturb(hurt.havoc)
        self._expirations += hurt.havoc.expirations
        return at_s, hurt

    def _end(self, on: _On) -> None:
        self._on.remove(on)
        try:
            ended = self._insist(partial(self._take_back, on.hurt), f"the end of {on.hurt.words}")
        except BaseException:  # whatever a user's function raises: it is still on, for _heal
            self._on.append(on)
            raise
        if ended:
            self._over(on.hurt)

    def _take_back(self, hurt: Hurt) -> bool:
        held = hurt.holds and any(on.hurt.holds == hurt.holds for on in self._on)
        if hurt.end is not None and not held:
            hurt.end(self._run)
        if hurt.havoc:
            self._until_heard()
            self._disturb()
        return True

    def _until_heard(self) -> None:
        """Wait until the master can hear a wish: until nobody pauses it any more."""
        while deaf := self._deaf:
            self.wait(deaf[0].end_s)
            self._end(deaf[0])

    @property
    def _deaf(self) -> list[_On]:
        return [on for on in self._on if on.hurt.deaf]

    def _heal(self) -> None:
        """End all that is on, whatever one end raises; what is no error of ours is raised then."""
        raised: Exception | None = None
        while self._on:
            on = (self._deaf or self._on)[0]
            try:
                self._end(on)
            except Exception as error:  # it is over anyway; the others must be ended, too
                self._on.remove(on)
                self.undone.append(f"the end of {on.hurt.words}: {error}")
                raised = raised or (None if isinstance(error, SunshowerError) else error)
        if self._unsure:  # it may be heard later than it was given up
            try:
                self._insist(self._disturb, "the end of what may still be on")
            except SunshowerError as error:
                self.undone.append(f"the end of what may still be on: {error}")
        if raised is not None:
            raise raised

    def _disturb(self, *more: Havoc) -> None:
        """All that is on, and `more`, from now on."""
        all_of_it = [*(on.hurt.havoc for on in self._on), *more]
        self._unsure = True
        self._run.disturb(
            Havoc(
                tuple(one for havoc in all_of_it for one in havoc.raises),
                tuple(one for havoc in all_of_it for one in havoc.slows),
                tuple(one for havoc in all_of_it for one in havoc.links),
                self._expirations + sum(havoc.expirations for havoc in more),
            )
        )
        self._unsure = False

    def _insist(self, act: Callable[[], T], what: str) -> T | None:
        """Try until it works, the run is finished, or patience is over; then None. What its state
        does not allow is not tried again: it may depend on what is on, and nobody else ends it."""
        give_up_s = self._now() + _PATIENCE_S
        while True:
            try:
                return act()
            except LifecycleError as error:
                self.undone.append(f"{what}: {error}")
                return None
            except ClusterError as error:
                reason = error
            if self._run.wait(_RETRY_S) or self._now() >= give_up_s:
                self.undone.append(f"{what}: {reason}")
                return None

    def _over(self, hurt: Hurt) -> None:
        self.entries.append(Entry(self._run.now(), What.ENDED, detail=hurt.words))

    def _look(self) -> None:
        """Whether the sources have emitted enough. Nobody to be asked: the next time, then."""
        if self._emits_max is None or self._deaf:
            return
        try:
            snapshot = self._run.snapshot()
            spouts = {spout.component for spout in self.plan.spouts}
            counts = map(snapshot.component, spouts)
            if sum(one.emitted - one.replayed for one in counts) >= self._emits_max:
                self._run.drain()
                self._emits_max, self.drained = None, True
        except ClusterError:
            return
