"""The bolt of an `async def` function: an event loop, and the limits of its calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from sunshower.topologies.async_calls import AsyncCalls
from sunshower.topologies.components import Context
from sunshower.topologies.operators.steps import FunctionOperator


class AsyncBolt:
    """Calls the function for a record; for the rest it is the object that is called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._step = FunctionOperator(function)

    @property
    def calls(self) -> AsyncCalls | None:
        """The event loop; None before `prepare`."""
        return self._step.calls

    @property
    def concurrency(self) -> int:
        """How many calls run at a time."""
        return self._step.concurrency

    @property
    def ordered(self) -> bool:
        """Whether their results keep the order of the inputs."""
        return self._step.ordered

    def prepare(self, context: Context) -> None:
        """Begin, and call the object's `prepare`."""
        self._step.prepare(context)

    def __call__(self, record: Any) -> Awaitable[Any]:
        assert self._step.limited is not None, "it is not prepared"
        return self._step.limited(record)

    def cleanup(self) -> None:
        """Call the object's `cleanup`, and cancel what it has left running."""
        self._step.cleanup()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._step.function, name)
