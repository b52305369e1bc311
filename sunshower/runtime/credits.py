"""How much may wait before a task: measured in its own service time, not in a number to tune.

A task that needs 10 ms a record is given little work ahead, one that needs 1 µs a lot: what waits
is worth `window_s` of work either way, so a slow bolt slows its spout down long before any timeout.
"""

from __future__ import annotations

from sunshower.config import Config

_FIRST_SLICE = 1  # a bolt of 5 s a record must not look as if it did not return
FIRST_WINDOW = 16  # before anything is known: a bolt of 1 s a record must not time out
_GROWTH_MAX = 4
_WINDOW_MIN = 2
_MEMORY = 0.75  # how much of the old estimate a new measurement leaves


class ServiceTime:
    """Seconds a record costs a task, smoothed, and the limits that follow."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._record_s: float | None = None
        self.slice_records = _FIRST_SLICE  # records worth one slice of work
        self.window = FIRST_WINDOW  # records that may be on their way to the task, per sender

    def measure(self, records: int, seconds: float) -> None:
        """`records` (≥ 1) were processed within `seconds`."""
        each = max(seconds, 1e-7) / records
        old = self._record_s
        self._record_s = each if old is None else _MEMORY * old + (1 - _MEMORY) * each
        config = self._config
        self.slice_records = max(
            1, min(int(config.slice_s / self._record_s), self.slice_records * _GROWTH_MAX)
        )
        self.window = max(
            _WINDOW_MIN,
            min(
                int(config.window_s / self._record_s),
                self.window * _GROWTH_MAX,
                config.window_records_max,
            ),
        )
