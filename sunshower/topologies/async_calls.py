"""Runs calls of `async def` functions: concurrently for the records of a batch.

    run(call, records) ──▶ event loop ──▶ (result, error) of each record, in their order
    begin(call, record) ──▶ a call that continues within `run` and `wait_for_one`

The loop runs only within these methods, in the thread of the caller. `run` ends when all calls
have ended. On a clock that is not the machine's (a simulation, a test) the loop's time is that of
the clock: `asyncio.sleep` takes no real time, and what waits for something outside of the process
is refused.
"""

from __future__ import annotations

import asyncio
import inspect
import selectors
from collections.abc import (
    AsyncIterable,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeAlias, TypeVar, TypeVarTuple, Unpack

from sunshower.clock import Clock, SystemClock
from sunshower.errors import TopologyError, user_errors

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Outcome: TypeAlias = tuple[Any, BaseException | None]
BegunCall: TypeAlias = asyncio.Task[Outcome]
_CANCEL_S = 1.0  # within which a call that is cancelled ends


class AsyncCalls:
    """The event loop of a task, created with the first call."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._runner: asyncio.Runner | None = None
        self._ended_by: tuple[type[BaseException], ...] = ()

    def run(self, call: Callable[[Any], Awaitable[Any]], records: Iterable[Any]) -> list[Outcome]:
        """Call an `async def` function for each record, begun in their order. Returns the result or
        the error of each."""

        async def all_calls() -> list[Outcome]:
            return await asyncio.gather(*(_outcome(call, record) for record in records))

        return self._run(all_calls())

    def begin(self, call: Callable[[Any], Awaitable[Any]], record: Any) -> BegunCall:
        return self._open().get_loop().create_task(_outcome(call, record))

    def wait_for_one(self, tasks: Collection[BegunCall], wait_s: float) -> None:
        """Let the calls go on until one of them has ended, at most for `wait_s`."""
        self._run(_ended(tasks, wait_s, asyncio.FIRST_COMPLETED))

    def cancel(self, tasks: Collection[BegunCall]) -> None:
        """Cancel calls, and let them end."""
        for task in tasks:
            task.cancel()
        self._run(_ended(tasks, _CANCEL_S, asyncio.ALL_COMPLETED))

    def wait(self, result: Any) -> Any:
        """What a call of user code returned; the result of a coroutine is waited for."""
        return self._run(result) if inspect.iscoroutine(result) else result

    def close(self) -> None:
        """Cancel what user code has left running, and close the loop."""
        if self._runner is not None:
            with _no_running_loop(), suppress(*self._ended_by):  # which waiting tasks raise again
                self._runner.close()
            self._runner = None

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        with _no_running_loop():
            try:
                return self._open().run(coroutine)
            except (KeyboardInterrupt, SystemExit) as error:
                self._ended_by = (type(error),)
                raise

    def _open(self) -> asyncio.Runner:
        if self._runner is None:
            is_real = isinstance(self._clock, SystemClock)
            make = None if is_real else partial(_ClockLoop, self._clock)
            self._runner = asyncio.Runner(loop_factory=make)
        return self._runner


class Limited:
    """Calls an `async def` function: at most `concurrency` calls at a time, each with a time-out.
    The records that a generator yields are returned in a list."""

    def __init__(self, function: Callable[..., Any], concurrency: int, timeout_s: float) -> None:
        self._function, self._timeout_s = function, timeout_s
        self._permits = asyncio.Semaphore(concurrency)

    async def __call__(self, record: Any) -> Any:
        async with self._permits:
            limit = asyncio.timeout(self._timeout_s)
            try:
                async with limit:
                    result = self._function(record)
                    if isinstance(result, AsyncIterable):
                        return [item async for item in result]
                    return await result
            except TimeoutError as error:
                if not limit.expired():
                    raise
                name = getattr(self._function, "__name__", type(self._function).__name__)
                raise TimeoutError(
                    f"{name} has not returned after {self._timeout_s:g} s; "
                    "@asynchronous(timeout_s=…) gives it longer"
                ) from error


class Turns:
    """Lets records pass one after the other, in the order of their numbers: 0, 1, … Each of them
    leaves once, whether it has waited or not."""

    def __init__(self) -> None:
        self._next = 0  # whose turn it is
        self._left: set[int] = set()  # those after `_next` that have left
        self._waiting: dict[int, asyncio.Future[None]] = {}

    async def wait(self, number: int) -> None:
        """Wait until all records with a lower number have left."""
        if number != self._next:
            turn = self._waiting[number] = asyncio.get_running_loop().create_future()
            await turn

    def leave(self, number: int) -> None:
        """Let the next record pass, once those before this one have left, too."""
        self._waiting.pop(number, None)
        self._left.add(number)
        while self._next in self._left:
            self._left.remove(self._next)
            self._next += 1
        turn = self._waiting.get(self._next)
        if turn is not None and not turn.done():
            turn.set_result(None)


def begin_all(calls: Iterable[Awaitable[Any]]) -> list[Awaitable[Any]]:
    """Let calls begin, in this order, when the current one waits."""
    return [asyncio.ensure_future(_carried(call)) for call in calls]


async def all_of(calls: Sequence[Awaitable[Any]]) -> list[Any]:
    """The results of calls that run at the same time; a single one begins at once. Raises the first
    error, and cancels the others then."""
    if len(calls) < 2:
        return [await _uncarried(call) for call in calls]
    tasks = [
        call if isinstance(call, asyncio.Task) else asyncio.ensure_future(_carried(call))
        for call in calls
    ]
    try:
        return await _uncarried(asyncio.gather(*tasks))
    except GeneratorExit:  # the event loop may be closed: do not wait
        if asyncio._get_running_loop() is not None:
            _cancel(tasks)
        raise
    except BaseException:
        _cancel(tasks)
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


class _Carried(Exception):
    """Carries an exception that is no Exception out of an `asyncio.Task`: KeyboardInterrupt and
    SystemExit would end the event loop, and CancelledError mean that the task was cancelled."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


async def _carried(call: Awaitable[T]) -> T:
    try:
        return await call
    except (Exception, GeneratorExit):  # GeneratorExit also closes this coroutine
        raise
    except user_errors() as error:
        raise _Carried(error) from error


async def _uncarried(call: Awaitable[T]) -> T:
    try:
        return await call
    except _Carried as carried:
        raise carried.error from carried.error.__cause__


def _cancel(tasks: Iterable[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()


@contextmanager
def _no_running_loop() -> Iterator[None]:
    """Let another event loop run in this thread: one runs already in a notebook, where
    `asyncio.Runner` refuses to run a second one."""
    loop = asyncio._get_running_loop()
    if loop is None:
        yield
        return
    task = asyncio.current_task(loop)
    if task is not None:
        asyncio.tasks._leave_task(loop, task)
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)
        if task is not None:
            asyncio.tasks._enter_task(loop, task)


async def _ended(tasks: Collection[BegunCall], wait_s: float, which: str) -> None:
    if tasks:
        await asyncio.wait(tasks, timeout=wait_s, return_when=which)


async def _outcome(call: Callable[[Any], Awaitable[Any]], record: Any) -> Outcome:
    try:
        return await call(record), None
    except user_errors() as error:
        return None, error


class _ClockSelector(selectors.SelectSelector):
    """Moves a clock forward instead of waiting for events."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.is_open = True  # until the loop has registered what it needs itself

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if not self.is_open:
            raise _refusal("a socket")
        return super().register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise _refusal("something that nobody does")
        if timeout > 0:
            self._clock.sleep(timeout)
        return super().select(0)


class _ClockLoop(asyncio.SelectorEventLoop):
    """An event loop on the time of a clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock_of_task = clock
        selector = _ClockSelector(clock)
        super().__init__(selector)
        selector.is_open = False

    def time(self) -> float:
        return self._clock_of_task.now()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if "destroyed" not in context["message"]:  # as what a killed process has left running is
            super().call_exception_handler(context)

    def run_in_executor(
        self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        raise _refusal("a thread")


def _refusal(what: str) -> TopologyError:
    return TopologyError(
        f"an async function waits for {what}, and time is virtual here: only asyncio.sleep and "
        "waiting for other coroutines work in a simulation; hand in a stand-in for the service"
    )
