"""How a component opens what it needs while a store or a broker may be away.

That is no error of the task's: it would be given up after a few of them. So `open` and `prepare`
come back in any case, and each later call tries again, until all is there; meanwhile it raises what
is away, which fails tuples and blames no batch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from sunshower.clock import Clock
from sunshower.errors import Unavailable

_AGAIN_S = 0.5  # an attempt may take its time, and there are many tuples


class Opening:
    """Of one task: `attempt` is called until it raises no Unavailable.

    What else it raises is an error of the task's.
    """

    def __init__(self, attempt: Callable[[], None], clock: Clock) -> None:
        self.is_open = False
        self._attempt = attempt
        self._clock = clock
        self._away: Exception | None = None  # as of the last attempt
        self._again_s = 0.0
        with suppress(Unavailable):
            self.check()

    def check(self) -> None:
        """Raise Unavailable if it cannot be opened yet."""
        if self.is_open:
            return
        if self._away is not None and self._clock.now() < self._again_s:
            raise self._away.with_traceback(None)
        try:
            self._attempt()
        except Unavailable as error:
            self._away, self._again_s = error, self._clock.now() + _AGAIN_S
            raise
        self.is_open, self._away = True, None
