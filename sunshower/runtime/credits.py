"""How much may wait before a task: a quarter of a second at the pace at which its inputs leave.

Two estimates are kept, because they differ as soon as a task has to wait for others:

    work     seconds of its own code for each input: how many inputs make a slice of `slice_s`
    pace     seconds between two inputs that leave its inbox, while there are any: its own work, the
             time it is blocked because its receivers have no room, and the time its worker gives
             to other tasks. The window, `window_s` at that pace, follows it.

What flush() takes is in neither: a batch costs it once, however large it is. (With it, a sink whose
commit takes longer than a slice would be given one record at a time.)
So pressure from a slow bolt travels to the spouts in windows of a quarter of a second for each bolt
on the path, however fast the bolts in between are, and long before any timeout.
"""

from __future__ import annotations

from math import inf

from sunshower.config import Config

_FIRST_SLICE = 1  # a bolt of 5 s a record must not look as if it did not return
FIRST_WINDOW = 2  # before anything is known: a record may be the work of seconds
_GROWTH_MAX = 4
_WINDOW_GROWTH = 2  # in each `slice_s`: a slow bolt behind several fast ones is felt late
# The least window: as many records as are worth _WINDOW_MIN_S, but at least _WINDOW_MIN and at most
# _SMALL_WINDOW. With 2 for all, a worker was idle for 13 to 19 % of the time in simulated overload.
_WINDOW_MIN, _SMALL_WINDOW, _WINDOW_MIN_S = 2, 4, 2.0
_MEMORY = 0.75  # how much of the old estimate a new measurement leaves


class ServiceTime:
    """Seconds a record costs a task, smoothed, and the limits that follow."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._work_s: float | None = None
        self.pace_s: float | None = None  # None: nothing was measured yet
        self.records_max = config.window_records_max  # the hard limit of a window
        self._grows_s = -inf  # when the window may grow again
        self.slice_records = _FIRST_SLICE  # records worth one slice of work
        self.window = FIRST_WINDOW  # records that may be on their way to the task, per sender

    def measure(self, now: float, records: int, seconds: float, waited_s: float = 0.0) -> None:
        """`records` (≥ 1) were processed by `now`, within `seconds`, without flush(), after they
        had waited `waited_s` for room at the receivers or for their turn."""
        self._work_s = _smoothed(self._work_s, seconds / records)
        self.pace_s = _smoothed(self.pace_s, (seconds + waited_s) / records)
        config = self._config
        slice_records = min(int(config.slice_s / self._work_s), self.slice_records * _GROWTH_MAX)
        self.slice_records = max(1, slice_records)
        window = min(int(config.window_s / self.pace_s), self.window * _WINDOW_GROWTH)
        least = max(_WINDOW_MIN, min(int(_WINDOW_MIN_S / self.pace_s), _SMALL_WINDOW))
        window = max(least, min(window, self.records_max))
        if window <= self.window:
            self.window = window
        elif now >= self._grows_s:  # the first inputs say little of the pace
            self.window, self._grows_s = window, now + config.slice_s


def _smoothed(old_s: float | None, new_s: float) -> float:
    new_s = max(new_s, 1e-7)
    return new_s if old_s is None else _MEMORY * old_s + (1 - _MEMORY) * new_s
