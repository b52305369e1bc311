"""A simulated worker's flight recorder, which finds the call that a kill interrupted."""

from __future__ import annotations

from mmap import mmap

from sunshower.runtime.control.flight_recorder import FlightRecorder, Running
from sunshower.runtime.tracking.ids import NO_IDS, U64
from sunshower.simulation.world import ProcessClock, World

_NOBODY = -1


class SimFlightRecorder(FlightRecorder):
    """Keeps what the real one notes, and writes it when its process dies.

    It also adds the cost of each call to the clock. A slice is computed at one moment of the world,
    but the process may be killed while it lasts: so the time of each call in the slice is kept.
    """

    def __init__(
        self, buffer: mmap, life: int, world: World, clock: ProcessClock, call_s: float
    ) -> None:
        super().__init__(buffer, life)
        self.begun_s = 0.0  # start of the current or last call, in the world's time
        self._world = world
        self._clock = clock
        self._call_s = call_s
        self._task = _NOBODY
        self._since_s = 0.0  # on the process's clock
        self._called_with = NO_IDS
        self._calls: list[tuple[float, float, int, U64]] = []  # of this slice: start, end, call

    def begin(self, task: int, roots: U64, now: float) -> None:
        if self._task != _NOBODY:  # the next record of the same call
            self._note_call()
        self._task, self._called_with, self._since_s = task, roots, now
        self.begun_s = self._world.now_s + self._clock.ahead_s

    def end(self) -> None:
        if self._task == _NOBODY:
            return  # no records were noted
        self._clock.ahead_s += self._world.about(self._call_s)
        self._note_call()
        self._task = _NOBODY

    def running(self) -> Running | None:
        return None if self._task == _NOBODY else Running(self._task, self._since_s)

    def new_slice(self) -> None:
        """Forget the calls of the last slice: no kill can interrupt them any more."""
        self._calls.clear()

    def note_death(self, time_s: float) -> None:
        """Note what the process, which dies at `time_s`, was executing then."""
        hit = (self._task, self._called_with)  # a call may have ended the process itself
        for begun_s, ended_s, task, roots in self._calls:
            if begun_s <= time_s < ended_s:
                hit = (task, roots)
        if hit[0] != _NOBODY:
            super().begin(*hit, self._clock.now())

    def _note_call(self) -> None:
        ended_s = self._world.now_s + self._clock.ahead_s
        self._calls.append((self.begun_s, ended_s, self._task, self._called_with))
