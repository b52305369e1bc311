"""Replays of dead letters in the background: one at a time for each topology, with its progress."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sunshower.cli.dead.letters import StoredLetter
from sunshower.cli.dead.replays import Ask, replayed
from sunshower.errors import ClusterError, SunshowerError
from sunshower.texts import clip, describe_error
from sunshower.topologies.retry import ACKED, DEAD_AGAIN

_ERRORS_MAX = 5  # that are shown
_ERROR_BYTES = 2_000


@dataclass
class _Replay:
    total: int
    outcomes: Counter[str | None] = field(default_factory=Counter)  # None: not settled
    errors: list[str] = field(default_factory=list)
    is_running: bool = True

    def note_error(self, error: BaseException) -> None:
        if len(self.errors) < _ERRORS_MAX:
            text = str(error) if isinstance(error, SunshowerError) else describe_error(error)
            self.errors.append(clip(text, _ERROR_BYTES))


class ReplaysByTopology:
    """The last replay of each topology."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        """`wall`: Unix time, in seconds."""
        self._wall = wall
        self._lock = threading.Lock()
        self._last: dict[str, _Replay] = {}

    def start(self, name: str, letters: Sequence[StoredLetter], ask: Ask) -> None:
        """Replay letters on a thread. Raises ClusterError while another replay runs."""
        with self._lock:
            before = self._last.get(name)
            if before is not None and before.is_running:
                raise ClusterError(f"dead letters of {name!r} are being replayed; wait for the end")
            self._last[name] = found = _Replay(len(letters))
        work = (found, name, letters, ask)
        threading.Thread(target=self._run, args=work, daemon=True).start()

    def progress(self, name: str) -> dict[str, Any]:
        """How many letters have ended in which way; `total` is 0 without a replay."""
        found = self._last.get(name)
        if found is None:
            return {"total": 0, "running": False}
        return {
            "total": found.total,
            "acked": found.outcomes[ACKED],
            "dead_again": found.outcomes[DEAD_AGAIN],
            "not_settled": found.outcomes[None],
            "errors": list(found.errors),
            "running": found.is_running,
        }

    def _run(self, found: _Replay, name: str, letters: Sequence[StoredLetter], ask: Ask) -> None:
        try:
            for _, outcome in replayed(ask, letters, name, self._wall):
                if isinstance(outcome, SunshowerError):
                    found.outcomes[None] += 1
                    found.note_error(outcome)
                else:
                    found.outcomes[outcome] += 1
        except Exception as error:  # the page shows it
            found.note_error(error)
        finally:
            found.outcomes[None] = found.total - found.outcomes[ACKED] - found.outcomes[DEAD_AGAIN]
            found.is_running = False
