"""Processing with a state and a timer for each key, which watermarks fire.

    a record    ──▶ function(record, state) may set the timer ──▶ committed ──▶ acked
    a watermark ──▶ on_timer(key, state) of timers that are due ──▶ committed ──▶ rows of its tree

A timer is stored beside the state of its key. In memory there is, for each key with a timer, a time
that is not after it; the store is asked when that time comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import chain, count
from math import inf
from types import MethodType
from typing import Any, Self

from sunshower.errors import TopologyFailed
from sunshower.records import Schema
from sunshower.texts import describe
from sunshower.topologies.components import Context
from sunshower.topologies.graph import own_copy
from sunshower.topologies.operators.keyed.keyed_process import KeyedProcess, KeyState
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore, check_key
from sunshower.topologies.operators.keyed.moved_parts import TIMER, is_own
from sunshower.topologies.operators.steps import check_rows, prepare_code
from sunshower.topologies.operators.windows.event_times import (
    Time,
    TimeField,
    TimeReader,
    is_before,
    length_of,
)
from sunshower.topologies.operators.windows.watermarks import ReachedTime
from sunshower.topologies.operators.windows.window_operator import WindowOperator

_FIRINGS_MAX = 10_000  # of a key at the end of all sources; of timers set by timers, otherwise


class TimedProcess(KeyedProcess, WindowOperator):
    """Calls `on_timer` with each key whose timer is due, and its state."""

    word = "process"
    has_timers = True
    restore = WindowOperator.restore
    make_ready = WindowOperator.make_ready

    def __init__(
        self,
        function: Callable[..., Any],
        on_timer: Callable[..., Any],
        by: Sequence[str],
        reads: Schema,
        makes: Schema,
        store: KeyedStore,
        *,
        event_time: TimeField | None,
        late: float,
        zone: str | None,
    ) -> None:
        """`event_time`: None: timers are by the clock. `zone`: of timers without one."""
        KeyedProcess.__init__(self, function, by, reads, makes, store)
        WindowOperator.__init__(self, store, by, makes)
        self.event_time, self.zone, self.late = event_time, zone, length_of(late)
        self.on_timer = _with_object(on_timer, function, self.function)

    # ---- records ---------------------------------------------------------------------------------

    def open(self, context: Context) -> None:
        prepare_code(self.on_timer, context)
        if self.event_time is not None:
            self.reader = self.event_time.reader(self.reads)
        self._timers = TimeReader("the timer of a state", lambda value: value, self.zone)
        WindowOperator.prepare(self, context)

    def state_of(self, key: Any, row: Any) -> KeyState[Any]:
        check_key(key)
        time = self._now if self.reader is None else self.reader.time(row)
        timer = self.store.get((TIMER, key))
        return KeyState(self.store.get(key), time, timer, reader=self._timers)

    def keep(self, key: Any, state: KeyState[Any]) -> None:
        super().keep(key, state)
        self.store.put((TIMER, key), state.timer, changed=False)
        if state.timer is not None:
            self._expect(key, state.timer)

    def needed(self, keys: Iterable[Any]) -> Iterable[Any]:
        keys = list(keys)
        return chain(keys, ((TIMER, key) for key in keys))

    # ---- watermarks ------------------------------------------------------------------------------

    def forget(self) -> None:
        self._times: list[tuple[Time, int, Any]] = []  # a heap: time, a tie-breaker, key
        self._expected: dict[Any, Time] = {}  # key → its time in the heap
        self._order = count()

    def load(self, key: Any, value: Any) -> None:
        if is_own(key):
            self._expect(key[1], value)

    def time(self, reached: ReachedTime) -> Time:
        time = reached.time(self.late)
        return time if self.event_time is not None or time == inf else self.clock.now()

    def last_time(self, ended: Sequence[Sequence[Any]]) -> Time:
        return -inf

    def end(self, before: Time, time: Time) -> list[Sequence[Any]]:
        """Fire the timers that are due, in the order of their times, and those that they set and
        that are due, too. At the end of all sources every timer is due."""
        keys, is_end = self._due(time), time == inf
        self.store.fetch(self.needed(keys))
        for key in keys:
            if (at := self.store.get((TIMER, key))) is not None:
                self._expect(key, at)
        made: list[Sequence[Any]] = []
        waiting: list[tuple[Any, Time]] = []  # for the next watermark
        firings: dict[Any, int] = {}
        last: dict[Any, Time] = {}  # key → the time of its last timer
        room = len(keys) + _FIRINGS_MAX
        while (is_end or room > 0) and (due := self._next_due(time)) is not None:
            at, key = due
            is_later = is_before(last.get(key, -inf), at)
            if not is_end and not is_later:  # without this it might fire for ever
                waiting.append((key, at))
                continue
            firings[key] = firings.get(key, 0) + 1
            if is_end and firings[key] > _FIRINGS_MAX:
                raise self._endless(key)
            made += self._fire(key, at, is_end=is_end)
            last[key] = at
            room -= 1
        for key, at in waiting:
            self._expect(key, at)
        return made

    def records(self, rows: Iterable[Sequence[Any]]) -> list[Any]:
        return self.out.build(rows)  # `on_timer` has made records already

    def _fire(self, key: Any, at: Time, *, is_end: bool) -> Iterable[Sequence[Any]]:
        """Call `on_timer` for a key. Returns its rows."""
        state = KeyState(self.store.get(key), at, None, ended=is_end, reader=self._timers)
        rows = list(self.on_timer(key, state) or ())
        check_rows(rows, self.out, self.on_timer)
        self.keep(key, state)
        return self.out.rows(rows)

    def _endless(self, key: Any) -> TopologyFailed:
        name = getattr(self.on_timer, "__name__", type(self.on_timer).__name__)
        return TopologyFailed(
            f"process {self.store.name!r}: after the end of all sources, {name} has set the timer "
            f"of key {describe(key)} {_FIRINGS_MAX:,} times. A timer that is always set again ends "
            "there with: if not state.ended: state.timer = …"
        )

    def __deepcopy__(self, memo: Any) -> Self:
        made = super().__deepcopy__(memo)
        made.on_timer = _with_object(self.on_timer, self.function, made.function)
        return made

    def _expect(self, key: Any, time: Time) -> None:
        """Look at the timer of a key at `time`."""
        if is_before(time, self._expected.get(key, inf)):
            self._expected[key] = time
            heappush(self._times, (time, next(self._order), key))

    def _due(self, time: Time) -> list[Any]:
        """The keys to look at."""
        keys = []
        while (due := self._next_due(time)) is not None:
            keys.append(due[1])
        return keys

    def _next_due(self, time: Time) -> tuple[Time, Any] | None:
        """The next key to look at, and its time; None: no other up to `time`."""
        while self._times and not is_before(time, self._times[0][0]):
            at, _, key = heappop(self._times)
            if self._expected.get(key) == at:
                del self._expected[key]
                return at, key
        return None


def _with_object(on_timer: Any, before: Any, now: Any) -> Any:
    """`on_timer` for another copy of the function: a method of that object stays one."""
    if isinstance(on_timer, MethodType) and on_timer.__self__ is before:
        return MethodType(on_timer.__func__, now)
    return own_copy(on_timer, "a step of a stream")
