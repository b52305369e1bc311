"""Calls a function with the records of each key in the order of their event times.

    a record    ──▶ waits in the store ──▶ committed ──▶ acked          late ones are emitted
    a watermark ──▶ function(record, state) of the records before it, and on_timer(key, state) of
                    timers, in the order of their times ──▶ removed, states changed, committed
                    ──▶ rows of its tree

A watermark that comes again finds no record, and brings the rows that are owed. At equal times a
timer is first, because at the time of a watermark another record may come, and records are in the
order in which they arrived.

    (WAITING, key, number)   [time, values of the record]

The order is in memory: these entries in a heap, as those of timers in `DueTimes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from heapq import heapify, heappop, heappush
from itertools import count, islice
from math import inf
from typing import Any

from sunshower.errors import StateMismatch
from sunshower.records import key_of
from sunshower.topologies.operators.aggregators import described
from sunshower.topologies.operators.keyed.keyed_process import AnyKeyState, KeyedProcess
from sunshower.topologies.operators.states import TIME, TIMER, WAITING, Key, check_key, is_own
from sunshower.topologies.operators.windows.event_times import (
    Time,
    highest,
    is_before,
    just_after,
    minus,
    place_of_time,
    plus,
)
from sunshower.topologies.operators.windows.window_operator import TimedProcess

_AT_ONCE = 1_000  # records that are read together


class OrderedProcess(TimedProcess):
    """Calls `function` with each record that is before the watermark, in their order."""

    def __init__(self, *args: Any, hold: Time = 0, steps: Sequence[Any] = (), **times: Any) -> None:
        """As TimedProcess, whose `event_time` is given, and `on_timer` None for none. `hold`: how
        much earlier than its record what it emits may be. `steps`: of a pattern, for upgrades."""
        super().__init__(*args, **times)
        self.has_timers = self.on_timer is not None
        self.hold, self._steps = hold, steps

    @property
    def functions(self) -> tuple[Any, ...]:
        return super().functions if self.has_timers else (self.function,)

    @property
    def described_values(self) -> str:
        return f"process in order rows {described(self.reads.fields)}"

    @property
    def declared(self) -> dict[str, Any]:
        """What must be equal where its state continues, beside what is of all processes."""
        return {"fields": self.reads.fields, "hold": self.hold, "steps": self._steps}

    # ---- records ---------------------------------------------------------------------------------

    def expand(self, row: Any) -> Iterator[Any]:
        if len(self._announced):
            self.make_ready()
            self._announced = ()
        assert self.reader is not None
        key, time = self._key(row), self.reader.time(row)
        check_key(key)
        if is_before(time, self._time):
            self._late_now.append((1, minus(self._time, time)))
            yield row
            return
        self.late_records.in_time = True
        entry = key_of((WAITING, key, self._next))
        values = self.store.convert([time, *self.reads.rows([row])[0]])
        self.store.put_stored({entry: values})
        self._added.append((time, self._next, entry))
        self._next += 1

    def flush(self) -> None:
        if self.store.is_open:
            self.store.commit()
        for time, number, entry in self._added:
            self._wait(time, number, entry)
        self._added.clear()
        self._count_late()

    def discard(self) -> None:
        self.store.discard()
        self._added.clear()
        self._late_now.clear()

    def needed(self, keys: Iterable[Any]) -> Iterable[Any]:
        return super().needed(keys) if self.has_timers else keys

    def keep(
        self, key: Any, state: AnyKeyState, give_back: Callable[[], None] | None = None
    ) -> None:
        if self.has_timers:
            super().keep(key, state, give_back)
        else:
            KeyedProcess.keep(self, key, state, give_back)

    # ---- watermarks ------------------------------------------------------------------------------

    def forget(self) -> None:
        super().forget()
        # a heap: place of the time, number, a tie-breaker for keys of several former tasks, time,
        # entry
        self._waiting: list[tuple[float, int | Decimal, int, int, Time, Key]] = []
        self._ties = count()
        self._added: list[tuple[Time, int, Key]] = []  # by the batch
        self._next = 0  # the number of the next record
        self._latest: Time = -inf  # a time after that of all records that were removed

    def load(self, key: Any, stored: Any) -> None:
        if is_own(key) and key[0] == WAITING:
            self._next = max(self._next, key[2] + 1)
            self._wait(self.store.read(stored)[0], key[2], key)
        elif is_own(key) and key[0] == TIMER and not self.has_timers:
            raise StateMismatch(
                f"process {self.store.name!r}: its state has timers, and there is no on_timer=: "
                "give the one that it had, or the state another name=, with which it begins empty"
            )
        else:
            super().load(key, stored)

    def take_back(self, before: Mapping[Any, Any], after: Mapping[Any, Any]) -> None:
        super().take_back(before, after)
        added = {
            key
            for key, stored in after.items()
            if is_own(key) and key[0] == WAITING and stored is not None
        }
        if added:
            self._waiting = [entry for entry in self._waiting if entry[-1] not in added]
            heapify(self._waiting)

    def last_time(self, ended: Sequence[Sequence[Any]]) -> Time:
        return self._latest

    def end_of(self, time: Time) -> Time:
        return just_after(time)

    def front(self, time: Time) -> Time:
        return minus(super().front(time), self.hold)

    def closing_time(self, newest: Time) -> Time:
        return just_after(plus(newest, self.hold))

    @property
    def has_open(self) -> bool:
        return bool(self._waiting) or super().has_open

    def end(self, before: Time, time: Time) -> list[Sequence[Any]]:
        rows = list[Sequence[Any]]()
        is_changed = self._due.first < inf and not is_before(time, self._due.first)
        while entries := [*islice(self._taken(time), _AT_ONCE)]:
            is_changed = True
            stored = self.store.get_all(entries)
            self.store.put_stored(dict.fromkeys(entries))
            self.store.fetch(self.needed(entry[1] for entry in entries))
            for at, *values in stored:
                if not is_before(at, self._due.first):
                    rows += self.fire_due(at, inf)
                rows += self._process(at, values)
            self._latest = highest([self._latest, just_after(at)])
        rows += super().end(before, time)
        if is_changed:  # who comes now is late, also after a restart
            self.store.put((TIME,), time if time != inf else highest([before, self.last_ended(())]))
        return rows

    def _wait(self, time: Time, number: int, entry: Key) -> None:
        place = place_of_time(time)
        heappush(self._waiting, (*place, number, next(self._ties), time, entry))

    def _taken(self, time: Time) -> Iterator[Any]:
        """Take the records before a time, in their order; inf: all."""
        while self._waiting and (time == inf or is_before(self._waiting[0][-2], time)):
            yield heappop(self._waiting)[-1]

    def _process(self, at: Time, values: Sequence[Any]) -> Iterable[Sequence[Any]]:
        (record,) = self.reads.build([values])
        key = self._key(record)
        give = self._outside.giver(record) if self.store.long else None
        timer = self.store.get((TIMER, key)) if self.has_timers else None
        return self.rows_of_call(self.function, key, give, at, timer, argument=record)
