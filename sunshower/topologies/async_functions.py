"""`async def` functions as operators and bolts: their concurrency and their timeout."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from sunshower.arguments import COUNT, FLAG, SECONDS, check_all
from sunshower.errors import ConfigError, TopologyError

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class CallLimits:
    """How many calls of a function run at a time in each task, how long one may take, and whether
    their results leave in the order of the inputs."""

    concurrency: int = 100  # as many connections as aiohttp and httpx open by default
    timeout_s: float = 10.0
    ordered: bool = True

    def __post_init__(self) -> None:
        rules = {"concurrency": COUNT, "timeout_s": SECONDS, "ordered": FLAG}
        check_all(self, rules, "asynchronous: ")


def asynchronous(
    *,
    concurrency: int = CallLimits.concurrency,
    timeout_s: float = CallLimits.timeout_s,
    ordered: bool = CallLimits.ordered,
) -> Callable[[F], F]:
    """Set the limits of an `async def` function, or of the `__call__` of a class.

    In each task at most `concurrency` calls run at a time. A call that has not returned after
    `timeout_s` is cancelled, and raises TimeoutError for its record alone. With `ordered=False` the
    results of a call are emitted, and its record is acked, as soon as it has ended, whatever calls
    before it do; the function comes first in its stage, or after plain functions. Raises
    ConfigError.
    """
    limits = CallLimits(concurrency, timeout_s, ordered)

    def mark(function: F) -> F:
        if not _is_async(function):
            raise ConfigError(f"asynchronous: {function!r:.200} is no `async def` function")
        function.__sunshower_limits__ = limits  # type: ignore[attr-defined]
        return function

    return mark


def limits_of(code: Any) -> CallLimits | None:
    """The limits of an `async def` function, or of an object that is called as one; None: calls of
    `code` are ordinary ones."""
    while isinstance(code, partial):
        code = code.func
    function = code
    if not inspect.isroutine(code):
        function = getattr(type(code), "__call__", None)  # noqa: B004
    if not _is_async(function):
        return None
    limits: CallLimits = getattr(function, "__sunshower_limits__", CallLimits())
    return limits


def check_call_time(limits: CallLimits, block_max_s: float, where: str) -> None:
    """Raise TopologyError if a task that waits for a call may be taken for one that is stuck."""
    if limits.timeout_s >= block_max_s:
        raise TopologyError(
            f"{where}: its task waits for a call for up to {limits.timeout_s:g} s, and a process "
            f"that waits for {block_max_s:g} s is ended: give @asynchronous a shorter timeout_s=, "
            "or raise block_max_s"
        )


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
