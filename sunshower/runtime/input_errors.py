"""What an exception that user code raises for an input means: poison, a bug, an outage, or doubt.

    outage   outages.py says so. The second input in a row pauses the task; nothing is charged
    bug      the component has never succeeded, in any task and any life: charged, so that it fails
             fast, or fills the dead letters
    poison   other inputs of the component succeed: charged; so is what sunshower itself raises for
             an input, as waiting does not help there
    doubt    it has succeeded before, and ten different inputs in a row have failed: it pauses, and
             nothing more is charged; after ten minutes the topology ends (supervision.py)

A paused task tries one input at a time. One that succeeds ends the pause.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sunshower.errors import SunshowerError, TopologyFailed
from sunshower.failures import Cause, Failure
from sunshower.runtime.supervision import Supervision, WaitKind
from sunshower.runtime.usercode import TaskError

_OUTAGE_INPUTS = 2  # one alone may have a dependency of its own: a URL, a file
_DOUBT_INPUTS = 10  # fewer may be poison


class InputErrors:
    """The failed inputs of one bolt task since its last success."""

    def __init__(self, supervision: Supervision) -> None:
        self._supervision = supervision
        self._in_a_row = 0  # of an outage
        self._different: list[Any] = []  # records that failed with anything else
        self.stops = False  # the batch: what follows in it waits for the end of the pause

    def judge(self, failure: Failure, record: Any, error: BaseException) -> Failure:
        """An input has failed with `error`. Returns what to report of it, and may set `stops`.

        Raises TopologyFailed where that is what user code has raised.
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
        if care.wait is None and len(self._different) < _DOUBT_INPUTS:
            return failure
        self._pause(WaitKind.DOUBT, failure)
        return replace(failure, in_doubt=True)

    def succeed(self) -> None:
        """An input has been processed."""
        self._supervision.succeed()
        self._in_a_row = 0
        self._different.clear()

    def _pause(self, kind: WaitKind, failure: Failure) -> None:
        self.stops = True
        task = self._supervision.task
        text = f"{task.component}[{task.index}] raised {failure.reason}"
        trace = failure.traceback.rstrip()
        place = (task.component, task.index, task.worker)
        self._supervision.pause(kind, TaskError(*place, text, failure.exception, trace))

    def _note_different(self, record: Any) -> None:
        if len(self._different) < _DOUBT_INPUTS and not any(
            _are_equal(record, other) for other in self._different
        ):
            self._different.append(record)


def _are_equal(one: Any, other: Any) -> bool:
    """Whether two records are one message that was emitted twice."""
    try:
        return one is other or bool(one == other)
    except Exception:  # whatever __eq__ of somebody's class may raise
        return False
