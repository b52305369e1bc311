"""Functions that are named after a task, so that the stacks of a profile show which task runs."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

TASK_FILE = "<task>"  # no path of a source file looks like this


def _call(call: Callable[..., Any], *given: Any) -> Any:
    return call(*given)


def frame_of(component: str, index: int) -> Callable[..., Any]:
    """A function that calls its first argument with the others. In stacks and tracebacks it is
    `component[index]`, in the file TASK_FILE."""
    name = f"{component}[{index}]"
    code = _call.__code__.replace(co_name=name, co_qualname=name, co_filename=TASK_FILE)
    return FunctionType(code, {})
