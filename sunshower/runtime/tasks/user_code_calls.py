"""Calls user code: guarded (user_code.py), and noted in the flight recorder.

A batch is noted as a whole. If the worker's previous process died in the code of a task, that task
notes each record for a while (2 µs each), so that the next crash report names one record instead of
the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from sunshower.clock import Clock
from sunshower.runtime.plan import Task
from sunshower.runtime.profiles import frame_of
from sunshower.runtime.tasks.bolts.bolt_task import BoltTask
from sunshower.runtime.tasks.flight_recorder import Recorder
from sunshower.runtime.tasks.user_code import guard
from sunshower.runtime.tracking.ids import NO_IDS, U64

T = TypeVar("T")


class UserCodeCalls:
    """Runs every call from a worker into user code."""

    def __init__(self, recorder: Recorder, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock
        self._watched: BoltTask | None = None
        self._watched_until_s = 0.0
        self._frames: dict[int, Callable[..., Any]] = {}  # of tasks, for profiles

    def __call__(self, task: Task, what: str, call: Callable[[], T], roots: U64 = NO_IDS) -> T:
        """Return the result of `call`; `roots`: of the records passed to it. Raises as guard."""
        self._recorder.begin(task.id, roots, self._clock.now())
        if (frame := self._frames.get(task.id)) is None:
            frame = self._frames[task.id] = frame_of(task.component, task.index)
        try:
            result: T = frame(guard, task, what, call)
        except Exception:
            self._recorder.end()
            raise
        self._recorder.end()
        return result

    @property
    def crash_reports(self) -> str | None:
        """Why the next process of this worker finds no crash report; None: it finds one."""
        return self._recorder.unwritable

    def rebuild(self, read: Callable[[], T]) -> T:
        """Return the result of `read`, which notes the records it rebuilds, because their
        constructors are user code."""
        try:
            result = read()
        except Exception:
            self._recorder.end()
            raise
        self._recorder.end()
        return result

    def watch(self, bolt: BoltTask, seconds: float) -> None:
        """Note each record of this bolt for `seconds`."""
        self._watched, self._watched_until_s = bolt, self._clock.now() + seconds
        bolt.note = partial(self._note_task, bolt.task)

    def is_watched(self, task: int) -> bool:
        """Whether each record of this task is noted."""
        watched = self._watched
        return watched is not None and watched.task.id == task and not self._is_over

    def note(self, task: int, roots: U64) -> None:
        """Note that a task executes or rebuilds records of these trees from now on."""
        self._recorder.begin(task, roots, self._clock.now())

    def limit(self, bolt: BoltTask) -> int:
        """How many records the bolt takes at once: one if it is watched, and takes tables or
        calls an async function.

        Ends the watch if its time is over.
        """
        if bolt is self._watched:
            if not self._is_over:
                return 1 if bolt.joins or bolt.at_once else bolt.inputs_max
            self._watched, bolt.note = None, None
        return bolt.inputs_max

    @property
    def _is_over(self) -> bool:
        return self._clock.now() >= self._watched_until_s

    def _note_task(self, task: Task, roots: U64) -> None:
        self.note(task.id, roots)
