"""How one worker calls user code: guarded (usercode.py), and noted for its successor.

A batch is noted as a whole. The task in whose code the former life ended is watched more closely
for a while: it notes each record (2 µs), so that the next obituary names one record, and not
all those that had the bad luck to share its batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from sunshower.clock import Clock
from sunshower.runtime.blackbox import Recorder
from sunshower.runtime.bolt_task import BoltTask
from sunshower.runtime.ids import NO_IDS, U64
from sunshower.runtime.plan import Task
from sunshower.runtime.usercode import guard

T = TypeVar("T")


class Calls:
    """The only way from a worker to the code of its tasks."""

    def __init__(self, recorder: Recorder, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock
        self._watched: BoltTask | None = None
        self._watched_until_s = 0.0

    def __call__(self, task: Task, what: str, call: Callable[[], T], roots: U64 = NO_IDS) -> T:
        """What `call` returns; `roots` are of the records that it is given. Raises as guard."""
        self._recorder.begin(task.id, roots, self._clock.now())
        try:
            result = guard(task, what, call)
        except Exception:
            self._recorder.end()
            raise
        self._recorder.end()
        return result

    def watch(self, bolt: BoltTask, seconds: float) -> None:
        """Note each record of this bolt for so long."""
        self._watched, self._watched_until_s = bolt, self._clock.now() + seconds
        bolt.note = partial(self._note, bolt.task)

    def limit(self, bolt: BoltTask) -> int:
        """How many records the bolt takes at once: where a table is one call, one row if watched.

        Its time is up when this finds out.
        """
        if bolt is self._watched:
            if self._clock.now() < self._watched_until_s:
                return 1 if bolt.joins else bolt.inputs_max
            self._watched, bolt.note = None, None
        return bolt.inputs_max

    def _note(self, task: Task, roots: U64) -> None:
        self._recorder.begin(task.id, roots, self._clock.now())
