"""Says which exceptions are errors of user code: all, except those that end the process."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeAlias

Handler: TypeAlias = Callable[[int, FrameType | None], Any]  # of a signal


class EndsProcess(BaseException):
    """Ends the process that runs user code, as SIGKILL would: no error of user code."""


class _Signals:
    """The signals of this process, all of which its main thread handles."""

    has_raised = False  # a handler has: the process, or what it runs, is to end


def user_errors() -> tuple[type[BaseException], ...]:
    """The types for an `except` clause around user code, which may raise anything:
    `asyncio.CancelledError`, the PanicException of an extension in Rust, `sys.exit()`.

    After a signal such as Ctrl-C only an Exception is an error of user code; an EndsProcess never
    is. To be called in the `except` clause itself, where the exception is known. Not for a block
    with a `yield`, at which GeneratorExit is raised when the generator is closed.
    """
    if isinstance(sys.exception(), EndsProcess):
        return ()
    return (Exception,) if _Signals.has_raised else (BaseException,)


@contextmanager
def user_errors_suppressed() -> Iterator[None]:
    """Ignore the errors of user code."""
    try:
        yield
    except user_errors():
        pass


def noting(handler: Handler) -> Handler:
    """A signal handler that calls `handler`, and notes if it raises: what it raises passes through
    all user code that it interrupts, until `forget_signals`."""

    def note(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except BaseException:
            _Signals.has_raised = True
            raise

    return note


def forget_signals() -> None:
    """What a handler raised has done its work: from now on user code raises errors only."""
    _Signals.has_raised = False


@contextmanager
def interruptible() -> Iterator[None]:
    """While entered, Ctrl-C ends what runs here, as the present handler has it, even in the middle
    of user code. A KeyboardInterrupt that user code raises itself is an error of user code."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    note = noting(handler)
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        forget_signals()
        if signal.getsignal(signal.SIGINT) is note:  # else user code has set another
            signal.signal(signal.SIGINT, handler)
