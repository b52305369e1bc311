"""A simulated worker's black box, and the price of calls: a death is found in the call it hit."""

from __future__ import annotations

from mmap import mmap

from sunshower.runtime.blackbox import BlackBox, Running
from sunshower.runtime.ids import NO_IDS, U64
from sunshower.simulation.clocks import ProcessClock
from sunshower.simulation.world import World

_NOBODY = -1


class SimBox(BlackBox):
    """Remembers what the real one notes, and notes it when its process dies.

    Each call of user code costs some time, too. A slice of work happens at one moment of the world,
    and its process may be killed while the slice lasts: so the box remembers when in the slice each
    call was.
    """

    def __init__(
        self, buffer: mmap, life: int, world: World, clock: ProcessClock, call_s: float
    ) -> None:
        super().__init__(buffer, life)
        self.begun_s = 0.0  # the call that runs, or has run last; in the world's time
        self._world = world
        self._clock = clock
        self._call_s = call_s
        self._task = _NOBODY
        self._since_s = 0.0  # on the process's clock
        self._called_with = NO_IDS
        self._calls: list[tuple[float, float, int, U64]] = []  # of this slice: from, to, what

    def begin(self, task: int, roots: U64, now: float) -> None:
        if self._task != _NOBODY:  # the next record of the same call
            self._note_call()
        self._task, self._called_with, self._since_s = task, roots, now
        self.begun_s = self._world.now_s + self._clock.ahead_s

    def end(self) -> None:
        if self._task == _NOBODY:
            return  # a packet without records
        self._clock.ahead_s += self._world.about(self._call_s)
        self._note_call()
        self._task = _NOBODY

    def running(self) -> Running | None:
        return None if self._task == _NOBODY else Running(self._task, self._since_s)

    def new_slice(self) -> None:
        """Nothing that the last one did can be hit any more."""
        self._calls.clear()

    def note_death(self, time_s: float) -> None:
        """The process dies at `time_s`: note what it was then doing."""
        hit = (self._task, self._called_with)  # it may have ended itself in a call
        for begun_s, ended_s, task, roots in self._calls:
            if begun_s <= time_s < ended_s:
                hit = (task, roots)
        if hit[0] != _NOBODY:
            super().begin(*hit, self._clock.now())

    def _note_call(self) -> None:
        ended_s = self._world.now_s + self._clock.ahead_s
        self._calls.append((self.begun_s, ended_s, self._task, self._called_with))
