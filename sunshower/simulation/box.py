"""A simulated worker's black box, and the price of calls: a death is found in the call it hit."""

from __future__ import annotations

from sunshower.runtime.blackbox import BlackBox
from sunshower.runtime.ids import U64
from sunshower.simulation.clocks import ProcessClock
from sunshower.simulation.world import World


class SimBox(BlackBox):
    """Notes what the real one does. Each call of user code costs some time, too.

    A slice of work happens at one moment of the world, and its process may then be killed while the
    slice lasts: so the box remembers when in the slice each call was, and can be turned back.
    """

    def __init__(
        self, buffer: bytearray, life: int, world: World, clock: ProcessClock, call_s: float
    ) -> None:
        super().__init__(buffer, life)
        self.buffer = buffer
        self._world = world
        self._clock = clock
        self._call_s = call_s
        self._now: tuple[float, int, U64] | None = None  # the call that is running, and its begin
        self._calls: list[tuple[float, float, int, U64]] = []  # of this slice, in the world's time

    def begin(self, task: int, roots: U64, now: float) -> None:
        super().begin(task, roots, now)
        self._now = (self._world.now_s + self._clock.ahead_s, task, roots)

    def end(self) -> None:
        self._clock.ahead_s += self._world.about(self._call_s)
        if self._now is not None:
            self._calls.append(
                (self._now[0], self._world.now_s + self._clock.ahead_s, *self._now[1:])
            )
            self._now = None
        super().end()

    def new_slice(self) -> None:
        """What was in the last one can no more be hit."""
        self._calls.clear()

    def turn_back(self, time_s: float) -> None:
        """The process dies at `time_s`: note what it was then doing."""
        for begun_s, ended_s, task, roots in self._calls:
            if begun_s <= time_s < ended_s:
                super().begin(task, roots, self._clock.now())
