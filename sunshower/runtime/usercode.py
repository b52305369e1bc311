"""Calls of user code that is in no tuple's care: what it raises ends the topology."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import TypeVar

from sunshower.errors import ProtocolError, SunshowerError, TopologyFailed
from sunshower.runtime.plan import Task

T = TypeVar("T")


def guard(task: Task, what: str, call: Callable[[], T]) -> T:
    """What `call` returns. Raises TopologyFailed, naming the task, for what user code raises.

    `sys.exit()` counts as raising. Errors of our own tree that know their place pass.
    """
    try:
        return call()
    except ProtocolError as error:
        raise TopologyFailed(f"{task.component}[{task.index}]: {error}") from error
    except SunshowerError:
        raise
    except (Exception, SystemExit) as error:
        raise TopologyFailed(
            f"{what} of {task.component}[{task.index}] raised {type(error).__name__}: {error}. "
            f"Mend it and run again.\n{traceback.format_exc().rstrip()}"
        ) from error
