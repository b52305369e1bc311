"""Credits: limit a task's queue to the records of a quarter of a second (`window_s`).

Two estimates are kept, because they differ as soon as a task waits for other tasks:

    work     seconds of its own code for each input: how many inputs make a slice of `slice_s`, and
             a piece, the least that a sender with several receivers gives to one of them
    pace     seconds between two inputs that leave its inbox, while there are any: its own work, the
             time it is blocked because its receivers have no credit, and the time its worker
             spends on other tasks. The window, `window_s` at that pace, follows it.

Neither includes flush(): it costs the same per batch, however large it is. (Otherwise a sink whose
commit takes longer than a slice would get one record at a time.) So backpressure from a slow bolt
reaches the spouts after windows of a quarter of a second for each bolt on the path, however fast
the bolts in between are, and long before any timeout.
"""

from __future__ import annotations

from typing import NamedTuple

from sunshower.config import Config

_FIRST_SLICE = 1  # a bolt that takes 5 s a record must not look stuck
_FIRST_WINDOW = 2  # before anything is measured: a record may take seconds
_SLICE_GROWTH_MAX = 4  # each time
# For each window of processed inputs. Several fast bolts delay the effect of a slow bolt behind
# them: with 4, overload seed 16 has 87 open trees of 0.34 s each, and timeouts.
_WINDOW_GROWTH_MAX = 2
# A window of at most this much work may grow faster: a new topology fills its windows sooner.
_BRIEF_S, _BRIEF_GROWTH_MAX = 0.01, 8
_WINDOW_MIN, _SMALL_WINDOW, _WINDOW_MIN_S = 2, 4, 2.0
_PIECES = 5  # in a slice: a piece is 4 ms of work by default, and a batch costs 0.1 ms
_MEMORY = 0.75  # the weight of the old estimate against a new measurement


class Credit(NamedTuple):
    """What a receiver tells each of its senders."""

    window: int  # records that the sender may have unprocessed there
    piece: int  # records whose work is worth a batch of their own; at most the window


FIRST_CREDIT = Credit(_FIRST_WINDOW, _FIRST_SLICE)


class ServiceTime:
    """The smoothed seconds per record of a task, and the limits that follow."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._work_s: float | None = None
        self.busy_s = 0.0  # the sum of all measured `seconds`
        self.pace_s: float | None = None  # None: nothing was measured yet
        self.records_max = config.window_records_max  # the hard limit of a window
        self.at_once = 0  # records that the task processes at the same time: the least window
        self._last_s = 0.0  # seconds of the last slice
        self._measured = 0  # records since the window last grew
        self.slice_records = _FIRST_SLICE  # records in one slice of work
        self.window = FIRST_CREDIT.window  # as in Credit

    @property
    def patience_s(self) -> float:
        """How long inputs may wait for others, to be processed together: four times as long as the
        last slice took, which then takes a fifth of the time."""
        return min(4 * self._last_s, self._config.window_s)

    @property
    def credit(self) -> Credit:
        """The present limits of each sender."""
        return Credit(self.window, max(1, min(self.window, self.slice_records // _PIECES)))

    def measure(self, records: int, seconds: float, waited_s: float = 0.0) -> None:
        """`records` (≥ 1) took `seconds`, without flush(), after waiting `waited_s` for credit of
        the receivers or for the task's turn."""
        self.busy_s += seconds
        self._last_s = seconds
        self._work_s = _smoothed(self._work_s, seconds / records)
        self.pace_s = _smoothed(self.pace_s, (seconds + waited_s) / records)
        config = self._config
        slice_records = min(
            int(config.slice_s / self._work_s), self.slice_records * _SLICE_GROWTH_MAX
        )
        self.slice_records = max(1, slice_records)
        window = min(int(config.window_s / self.pace_s), self._largest_next(self.pace_s))
        least = max(_WINDOW_MIN, min(int(_WINDOW_MIN_S / self.pace_s), _SMALL_WINDOW))
        least = max(least, min(self.at_once, self.records_max))
        window = max(least, min(window, self.records_max))
        self._measured += records
        if window <= self.window:
            self.window = window
        elif self._measured >= self.window:  # the first inputs say little about the pace
            self.window, self._measured = window, 0

    def _largest_next(self, pace_s: float) -> int:
        """The largest window that may follow the present one."""
        brief = min(int(_BRIEF_S / pace_s), self.window * _BRIEF_GROWTH_MAX)
        return max(self.window * _WINDOW_GROWTH_MAX, brief)


def _smoothed(old_s: float | None, new_s: float) -> float:
    new_s = max(new_s, 1e-7)
    return new_s if old_s is None else _MEMORY * old_s + (1 - _MEMORY) * new_s
