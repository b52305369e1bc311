"""The nemesis: carries out a fault plan on a run, and always ends the faults.

It uses the clock of the run, so that it works the same on a simulated and on a real cluster. The
history has what it did, `undone` what it could not do.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from sunshower.errors import ClusterError, LifecycleError, SunshowerError
from sunshower.experiments.faults.fault_kinds import ActiveFault, harmless
from sunshower.experiments.faults.fault_plan import Step
from sunshower.runtime.cluster import Run
from sunshower.runtime.events.event_log import Entry, What
from sunshower.runtime.events.injected_faults import InjectedFaults

T = TypeVar("T")
_RETRIES_S = 20.0  # for a target that is just starting
_RETRY_S = 0.05
_MOMENT_S = 1e-6  # shorter waits are rounding errors and might never end
_LOOK_S = 0.1  # between two looks at the run


class Nemesis:
    """Carries out the plan of one run. Times are seconds since it was created.

    `emits_max`: the sources are drained when they have emitted so much, or a little more. `look` is
    called with the time every tenth of a second. `entries` has a BEGUN and an ENDED entry for each
    fault, on the cluster's clock.
    """

    def __init__(
        self,
        run: Run,
        seed: int,
        *,
        emits_max: int | None = None,
        look: Callable[[float], None] | None = None,
    ) -> None:
        self.begun_s = run.now()
        self.entries: list[Entry] = []
        self.done: list[Step] = []
        self.undone: list[str] = []  # the steps it could not do, and why
        self.drained = False
        self._run = run
        self.plan = run.plan
        self._seed = seed
        self._emits_max = emits_max
        self._look = look
        self._on: list[ActiveFault] = []
        self._expirations = 0
        self._unsure = False  # whether the run received the last injected faults
        self._asked = False  # the master for a command that may move tasks

    def begin_ahead(self, steps: Sequence[Step]) -> Sequence[Step]:
        """Throttle sources that are to be slow from the start, before they are activated. Returns
        the other steps. Raises as `carry_out`."""
        ahead = [s for s in steps if s.at_s == 0 and harmless(s.fault) and s.fault.for_s]
        for step in ahead:
            self._begin(step, math.inf)
        return [step for step in steps if step not in ahead]

    def carry_out(self, steps: Sequence[Step], hurt_s: float = math.inf) -> bool:
        """Carry out all steps; all faults end at `hurt_s` at the latest. Returns whether the run is
        finished; the remaining steps are then skipped.

        Raises what `Run.wait` and a fault's own functions raise. All faults have ended when this
        returns or raises, or `undone` has the reason.
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
            self._end_all()
        return False

    def wait(self, until_s: float) -> bool:
        """Wait until that time. Returns whether the run is finished; raises as `Run.wait`."""
        while (left_s := until_s - self._now()) > _MOMENT_S:
            looks = self._look is not None or self._emits_max is not None
            if self._run.wait(min(left_s, _LOOK_S) if looks else left_s):
                return True
            if self._look is not None:
                self._look(self._now())
            self._drain_in_time()
        return False

    def _now(self) -> float:
        return self._run.now() - self.begun_s

    def _begin(self, step: Step, hurt_s: float) -> None:
        begun = self._retry(partial(self._start, step), str(step))
        if begun is None:
            return
        at_s, fault = begun
        self.done.append(step)
        self.entries.append(Entry(at_s, What.BEGUN, detail=fault.words))
        if step.fault.for_s:
            end_s = min(self._now() + step.fault.for_s, hurt_s)
            self._on.append(replace(fault, end_s=end_s))
        else:
            self._over(fault)

    def _start(self, step: Step) -> tuple[float, ActiveFault]:
        """Begin a step; each retry has the same generator, and so the same target."""
        at_s = self._run.now()
        generator = np.random.default_rng([self._seed, step.stream])
        if self._asked and not self._master_pauses:
            self.plan = self._run.plan
        fault = step.fault.begin(self._run, self.plan, generator)
        if fault.injected or fault.injected.expirations or fault.ask:
            self._wait_for_master()
            at_s = self._run.now()
        if fault.ask is not None:
            fault.ask(self._run)
            self._asked = True
        if fault.injected or fault.injected.expirations:
            self._inject(fault.injected)
        self._expirations += fault.injected.expirations
        return at_s, fault

    def _end(self, on: ActiveFault) -> None:
        self._on.remove(on)
        try:
            ended = self._retry(partial(self._stop, on), f"the end of {on.words}")
        except BaseException:  # a user's function may raise anything; _end_all ends it
            self._on.append(on)
            raise
        if ended:
            self._over(on)

    def _stop(self, fault: ActiveFault) -> bool:
        held = fault.paused and any(on.paused == fault.paused for on in self._on)
        if fault.end is not None and not held:
            fault.end(self._run)
        if fault.injected:
            self._wait_for_master()
            self._inject()
        return True

    def _wait_for_master(self) -> None:
        """Wait until the master is not paused any more."""
        while pauses := self._master_pauses:
            self.wait(pauses[0].end_s)
            self._end(pauses[0])

    @property
    def _master_pauses(self) -> list[ActiveFault]:
        return [on for on in self._on if on.pauses_master]

    def _end_all(self) -> None:
        """End all faults, even if one raises; then raise the first error of user functions."""
        raised: Exception | None = None
        while self._on:
            on = (self._master_pauses or self._on)[0]
            try:
                self._end(on)
            except Exception as error:  # the others must be ended, too
                self._on.remove(on)
                self.undone.append(f"the end of {on.words}: {error}")
                raised = raised or (None if isinstance(error, SunshowerError) else error)
        if self._unsure:  # the run may receive it after the last retry
            try:
                self._retry(self._inject, "the end of what may still be on")
            except SunshowerError as error:
                self.undone.append(f"the end of what may still be on: {error}")
        if raised is not None:
            raise raised

    def _inject(self, *more: InjectedFaults) -> None:
        """Send the injected faults of all active faults and `more`."""
        injected_list = [*(on.injected for on in self._on), *more]
        self._unsure = True
        self._run.disturb(
            InjectedFaults(
                tuple(one for injected in injected_list for one in injected.raises),
                tuple(one for injected in injected_list for one in injected.slows),
                tuple(one for injected in injected_list for one in injected.links),
                self._expirations + sum(injected.expirations for injected in more),
                tuple(sorted({one for injected in injected_list for one in injected.isolated})),
            )
        )
        self._unsure = False

    def _retry(self, act: Callable[[], T], what: str) -> T | None:
        """Retry until it works, the run is finished, or the time is over; then None. A
        LifecycleError is not retried: its cause may be an active fault."""
        give_up_s = self._now() + _RETRIES_S
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

    def _over(self, fault: ActiveFault) -> None:
        self.entries.append(Entry(self._run.now(), What.ENDED, detail=fault.words))

    def _drain_in_time(self) -> None:
        """Drain the sources if they have emitted enough. Skipped if the master does not answer."""
        if self._emits_max is None or self._master_pauses:
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
