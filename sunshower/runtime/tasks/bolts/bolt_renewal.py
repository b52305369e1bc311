"""Replaces the object of a paused bolt if its own connection does not recover after an outage.

A bolt that opened a connection in prepare() may hold a dead one when the dependency is available
again. Storm restarts the whole worker then. Here a new object is tried, beside the old one:

    paused, third try and every second one after it ──▶ a new object is prepared, gets one input
        it fails    ──▶ the new object is closed; the old one continues
        it succeeds ──▶ the old object gets the next input
                            it succeeds ──▶ the old object stays, with its memory
                            it fails    ──▶ the old object is closed; the new one stays

So a bolt that reconnects by itself loses nothing. The input that the new object processed is
replayed and charged no attempt. If the class has snapshot() and restore(), the new object starts
with the old one's snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from sunshower.runtime.tasks.bolts.bolt_task import BoltTask
from sunshower.runtime.tasks.user_code import Raised, TaskError
from sunshower.topologies.components import BatchBolt, Bolt, Context

_FIRST_TRY = 3  # of a pause: shorter outages need no new object


class _Phase(Enum):
    NEW = "the new object has the next input"
    OLD = "the new object has succeeded; the old one has the next input"


@dataclass(slots=True)
class _Trial:
    other: Any  # the object that the task does not use now
    phase: _Phase = _Phase.NEW


class BoltRenewals:
    """The trials of one worker's bolts. `call` runs user code, as UserCodeCalls does."""

    def __init__(self, call: Callable[..., Any], context_of: Callable[[BoltTask], Context]) -> None:
        self._call = call
        self._context_of = context_of
        self._trials: dict[int, _Trial] = {}  # bolt task → its trial

    def begin(self, bolt: BoltTask) -> bool:
        """Called before a slice of a paused bolt. Returns whether it may process an input now."""
        care = bolt.supervision
        if bolt.task.id in self._trials:
            return True
        due = care.tries >= _FIRST_TRY and (care.tries - _FIRST_TRY) % 2 == 0
        if not due or not _has_prepare(bolt.bolt):
            return True
        old = bolt.bolt
        try:
            state = self._call(bolt.task, "snapshot", old.snapshot) if _keeps_state(old) else None
            self._call(bolt.task, "prepare", partial(bolt.prepare, self._context_of(bolt)))
            if _keeps_state(old):
                self._call(bolt.task, "restore", partial(bolt.bolt.restore, state))
        except Raised as raised:
            bolt.adopt(old)
            if care.wait is not None:
                care.pause(care.kind_of(raised), raised.error)
            return False
        self._trials[bolt.task.id] = _Trial(old)
        bolt.on_trial = True
        return True

    def end(self, bolt: BoltTask) -> None:
        """Called after a slice of a bolt: evaluate the trial, if one is under way."""
        trial = self._trials.get(bolt.task.id)
        if trial is None or bolt.unfinished is not None:
            return
        bolt.on_trial = False
        if trial.phase is _Phase.NEW and not bolt.last_failed:
            self._swap(bolt, trial)
            trial.phase = _Phase.OLD
            return
        del self._trials[bolt.task.id]
        if bolt.last_failed:
            self._swap(bolt, trial)
        self._close(bolt, trial.other)
        if trial.phase is _Phase.OLD and bolt.last_failed:
            self._tell(bolt)

    def is_on(self, bolt: BoltTask) -> bool:
        """Whether a trial is under way; the bolt then processes one input at a time."""
        return bolt.task.id in self._trials

    def _swap(self, bolt: BoltTask, trial: _Trial) -> None:
        current = bolt.bolt
        bolt.adopt(trial.other)
        trial.other = current

    def _close(self, bolt: BoltTask, other: Any) -> None:
        if hasattr(other, "cleanup"):
            bolt.notify("cleanup", other.cleanup)

    def _tell(self, bolt: BoltTask) -> None:
        memory = (
            "its snapshot was restored"
            if _keeps_state(bolt.bolt)
            else "what it held in memory is lost"
        )
        task = bolt.task
        text = (
            f"{task.name} was created again: the connections of the old object did "
            f"not come back after an outage; {memory}"
        )
        bolt.supervision.note(Raised(TaskError(task.component, task.index, task.worker, text)))


def _keeps_state(bolt: Any) -> bool:
    snapshot = getattr(type(bolt), "snapshot", None)
    return snapshot is not None and snapshot not in (Bolt.snapshot, BatchBolt.snapshot)


def _has_prepare(bolt: Any) -> bool:
    prepare = getattr(type(bolt), "prepare", None)
    return prepare is not None and prepare not in (Bolt.prepare, BatchBolt.prepare)
