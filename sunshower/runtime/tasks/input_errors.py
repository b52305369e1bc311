"""Classifies an exception that user code raises for an input: outage, bug, poison or doubt.

    outage   outages.py classifies it so: no attempt is charged; two in a row pause the task
    bug      the component has never succeeded, in any task and any life: an attempt is charged, so
             that the topology fails fast or writes dead letters
    poison   other inputs of the component succeed: an attempt is charged; likewise for an error
             that sunshower itself raises for an input, because waiting does not help
    doubt    the component has succeeded before, and ten different inputs in a row have failed: the
             task pauses, charging nothing; after ten minutes the topology ends (supervision.py).
             One failed input is enough while another task of the component is in doubt, because
             that pause may keep further inputs from this one; and for two minutes after an outage,
             because a server that starts again may first refuse with other errors

A paused task tries one input at a time. The first success ends the pause.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sunshower.errors import SunshowerError, TopologyFailed, user_errors
from sunshower.failures import Cause, Failure
from sunshower.runtime.tasks.supervision import Supervision, WaitKind
from sunshower.runtime.tasks.user_code import TaskError

_OUTAGE_INPUTS = 2  # a single input may have its own dependency: a URL, a file
_DOUBT_INPUTS = 10  # fewer may be poison
_AFTER_OUTAGE_S = 120.0  # a server that starts again may first refuse with other errors


class InputErrors:
    """Counts the failed inputs of one bolt task since its last success."""

    def __init__(self, supervision: Supervision) -> None:
        self._supervision = supervision
        self._in_a_row = 0  # outage failures since the last success
        self._different: list[Any] = []  # distinct records that failed with other errors
        self._follows_outage = False  # other errors have followed an outage, and no success
        self.stops = False  # stop the batch: its remaining inputs wait until the pause ends

    def judge(self, failure: Failure, record: Any, error: BaseException) -> Failure:
        """Classify an input that failed with `error`. Returns what to report; may set `stops`.

        Raises TopologyFailed if user code raised it.
        """
        if isinstance(error, TopologyFailed):
            raise error
        care = self._supervision
        if failure.cause is Cause.UNAVAILABLE:
            self._in_a_row += 1
            if care.wait is not None or self._in_a_row >= _OUTAGE_INPUTS:
                self._pause(WaitKind.UNAVAILABLE, failure)
            return failure
        if isinstance(error, SunshowerError) or not care.proven or care.others_succeed:
            return failure
        self._note_different(record)
        sure = len(self._different) >= _DOUBT_INPUTS
        if sure or care.others_doubt or self._is_after_outage():
            self._pause(WaitKind.DOUBT, failure, sure=sure)
            return replace(failure, in_doubt=True)
        self._follows_outage = False
        if care.wait is WaitKind.DOUBT:  # nothing else is in doubt: it was this input
            care.end_wait()
        return failure

    def _is_after_outage(self) -> bool:
        """Whether the task waits since an outage, and has not been in doubt for long since then."""
        care = self._supervision
        if care.wait is WaitKind.UNAVAILABLE:
            self._follows_outage = True
        return self._follows_outage and care.doubted_s < _AFTER_OUTAGE_S

    def succeed(self) -> None:
        """Reset the counts: an input succeeded."""
        self._supervision.succeed()
        self._in_a_row, self._follows_outage = 0, False
        self._different.clear()

    def _pause(self, kind: WaitKind, failure: Failure, *, sure: bool = True) -> None:
        self.stops = True
        task = self._supervision.task
        text = f"{task.name} raised {failure.reason}"
        trace = failure.traceback.rstrip()
        place = (task.component, task.index, task.worker)
        error = TaskError(*place, text, failure.exception, trace)
        self._supervision.pause(kind, error, sure=sure)

    def _note_different(self, record: Any) -> None:
        if len(self._different) < _DOUBT_INPUTS and not any(
            _are_equal(record, other) for other in self._different
        ):
            self._different.append(record)


def _are_equal(one: Any, other: Any) -> bool:
    """Whether two records are equal, as two emits of one message are."""
    try:
        return one is other or bool(one == other)
    except user_errors():  # __eq__ of a user's class may raise anything
        return False
