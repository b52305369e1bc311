"""The base of the collectors that user code gets, which any of its threads may call.

A call that the task's own thread makes while it runs the task takes effect directly. A call of any
other thread is checked at once, so that an error is raised in the offending line. It then waits in
a queue, wakes the worker, and is carried out by the task's thread:

    other threads ──check, claim, append──▶ calls ──▶ the task's next call of the collector, or the
                                                       worker's next step, if receivers have credit

So the calls of one thread take effect in their order, and a call that has returned takes effect
before every call that any thread makes afterwards. Only other threads take the lock, except to let
those go on that wait for room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from threading import Condition, get_ident
from typing import Any

from sunshower.errors import BadEmit, ProtocolError

_ROOM_S = 1.0  # how long an emit waits for room: the task's thread may itself wait for this one

Call = tuple[Callable[..., None], tuple[Any, ...]]  # a method of the task, and its arguments


class SharedCollector:
    """One for as long as the user's object lives, which may have kept it."""

    def __init__(self, name: str, calls_max: int) -> None:
        """`name`: of the task; `calls_max`: how many calls may wait before emits do."""
        self.calls: deque[Call] = deque()  # of other threads, to be carried out
        self.thread = 0  # the one that runs the task now; 0: none does
        self.home = get_ident()  # the one that runs the task from time to time
        self.wake: Callable[[], None] | None = None  # the worker; None: time is virtual
        self._name = name
        self._calls_max = calls_max
        self._lock = Condition()
        self._waiting = 0  # emits that wait for room
        self._end: str | None = None  # why no call has an effect any more

    # ---- called by the task's thread ------------------------------------------------------------

    def enter(self) -> None:
        """This thread runs the task from now on, until `leave`."""
        self.thread = self.home = get_ident()

    def leave(self) -> None:
        """The task does not run any more."""
        self.thread = 0

    def take(self, limit: int | None = None) -> Iterator[Call]:
        """Remove and yield the calls that wait now, in their order, `limit` at most."""
        count = len(self.calls)
        for _ in range(count if limit is None else min(count, limit)):
            yield self.calls.popleft()
        if self._waiting:
            with self._lock:
                self._lock.notify_all()

    def close(self) -> None:
        """The task is closed: calls raise ProtocolError from now on, and what waits is dropped."""
        with self._lock:
            self._end = (
                f"{self._name} is closed, because the topology has ended or the task has moved "
                "to another process: the call has no effect, and what is open there is emitted "
                "again. End the threads of a component in its cleanup() or close()"
            )
            self.calls.clear()
            self._lock.notify_all()

    # ---- called by other threads ----------------------------------------------------------------

    def hand_over(self, claim: Callable[[], Call], *, is_emit: bool = False) -> None:
        """Append the call that `claim` returns, and wake the worker. `claim` checks what other
        threads may change, and raises what the call raises.

        An emit waits for room, but never for longer than a second. Raises BadEmit if there is still
        none while the task's code runs, and ProtocolError if no call has an effect any more, or if
        time is virtual.
        """
        with self._lock:
            if is_emit and len(self.calls) >= self._calls_max and get_ident() != self.home:
                self._wait_for_room()
            if self._end is not None:
                raise ProtocolError(self._end)
            if self.wake is None and not self.thread and get_ident() != self.home:
                raise ProtocolError(
                    f"a thread of {self._name} calls its collector while no code of the task runs: "
                    "in virtual time (the simulator, sunshower.testing, a ManualClock), a thread "
                    "has no time of its own. Wait for it in execute, tick or next_tuple, or run "
                    "the topology with run_inline and its default clock, or on Ray"
                )
            was_empty = not self.calls
            self.calls.append(claim())
        if was_empty and self.wake is not None:
            self.wake()

    def _wait_for_room(self) -> None:
        self._waiting += 1
        try:
            has_room = self._lock.wait_for(
                lambda: len(self.calls) < self._calls_max or self._end is not None, _ROOM_S
            )
        finally:
            self._waiting -= 1
        if not has_room and self.thread:
            raise BadEmit(
                f"{len(self.calls):,} calls of the threads of {self._name} wait until the call of "
                "its code that runs now returns (window_records_max). Emit fewer during a call, "
                "or let execute and tick return sooner"
            )
