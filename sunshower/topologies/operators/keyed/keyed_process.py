"""Processing with a state for each key: a function of a record and the state of its key.

    def sessions(click: Click, visit: KeyState[Visit]) -> Iterator[Session]:

States are read once for each batch of a task, and written once before the acks of the batch leave.
Storm: org.apache.storm.topology.IStatefulBolt, org.apache.storm.state.KeyValueState.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from datetime import date
from typing import Any, Generic, Self, TypeVar

from sunshower.errors import TopologyError, Unserialisable
from sunshower.records import Schema
from sunshower.topologies.components import Context
from sunshower.topologies.operators.grouping import group_keys
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore, check_key
from sunshower.topologies.operators.steps import FunctionOperator, RowOperator, check_rows
from sunshower.topologies.operators.windows.event_times import Time, TimeReader

V = TypeVar("V")
_TIMERS = TimeReader("the timer of a state", lambda value: value, None)


class KeyState(Generic[V]):
    """The state of one key, in one call of a function: `value` is what the last call has left
    there, and None at first. Assign to it, or change it in place; None removes the key. If the call
    raises, nothing has changed.

    `time` is the time of the call: the event time of the record, or when its batch began by the
    clock; of a timer, its own. `timer` is when `on_timer` is called for the key, None: never.
    `ended` is True while timers fire because all sources have ended: all that are set fire then, so
    a timer that is always set again stops there.
    """

    __slots__ = ("_reader", "_timer", "_value", "assigned", "ended", "time")

    def __init__(
        self,
        value: V | None,
        time: Any = 0.0,
        timer: Time | None = None,
        *,
        ended: bool = False,
        reader: TimeReader = _TIMERS,
    ) -> None:
        """`reader`: reads the times that the timer is set to."""
        self._value, self._reader = value, reader
        self.assigned, self.ended = False, ended
        self.time: float = time
        self._timer: Any = timer

    @property
    def value(self) -> V | None:
        """The state of the key."""
        return self._value

    @value.setter
    def value(self, value: V | None) -> None:
        self._value, self.assigned = value, True

    @property
    def timer(self) -> float | None:
        """The time at which `on_timer` is called for the key. A key has one timer."""
        timer: float | None = self._timer
        return timer

    @timer.setter
    def timer(self, time: Time | date | None) -> None:
        self._timer = None if time is None else self._reader.of_value(time)


class KeyedProcess(FunctionOperator, RowOperator):
    """Calls a function with each record and the state of its key.

    The runtime calls `announce(rows)`, `expand` for each row, and then `flush`. The state of a row
    is changed at the end of `expand`, when the following steps have processed what it makes: an
    exception of theirs ends the generator before.
    """

    by_row = False
    has_timers = False

    def __init__(
        self,
        function: Callable[..., Any],
        by: Sequence[str],
        reads: Schema,
        makes: Schema,
        store: KeyedStore,
    ) -> None:
        super().__init__(function)
        self.by, self.reads, self.schema, self.store = tuple(by), reads, makes, store
        self.tick_s = store.tick_s
        self._announced: Sequence[Any] = ()
        self._now = 0.0  # when this batch began

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self._context = context
        self._key = self.reads.key(self.by)
        self.open(context)
        self.generator = self.expand

    def open(self, context: Context) -> None:
        """Open the store."""
        self.store.open(context)

    def announce(self, rows: Sequence[Any]) -> None:
        """These rows are the next: their states are read at once, when the first is processed."""
        self._announced = rows

    def expand(self, row: Any) -> Iterator[Any]:
        if len(self._announced):
            self._read()
        key = self._key(row)
        state = self.state_of(key, row)
        kind, width = self.schema.type, len(self.schema.fields)
        for made in self.function(row, state) or ():
            if type(made) is not kind or (kind is tuple and len(made) != width):
                check_rows([made], self.schema, self.function)
            yield made
        self.keep(key, state)

    def state_of(self, key: Any, row: Any) -> KeyState[Any]:
        """The state of a key for the call with a row. Raises BadEmit for a reserved key."""
        check_key(key)
        return KeyState(self.store.get(key), self._now)

    def keep(self, key: Any, state: KeyState[Any]) -> None:
        """Put what a call has left. Raises Unserialisable."""
        if state.timer is not None and not self.has_timers:
            raise TopologyError(
                "there is no on_timer= for the timer of a state; give one to .process(…): a "
                "function (key, state)"
            )
        self.store.put(key, state.value, changed=state.assigned)

    def needed(self, keys: Iterable[Any]) -> Iterable[Any]:
        """What to read for the calls with these keys."""
        return keys

    def make_ready(self) -> None:
        """Open the store if another process has opened it, or it could not be opened again."""
        if not self.store.is_open:
            self.store.open(self._context)

    def flush(self) -> None:
        """Write the states of the batch. Raises StoreUnreachable."""
        if self.store.is_open:
            self.store.commit()

    def discard(self) -> None:
        """Forget the states of the batch."""
        self.store.discard()

    def tick(self) -> None:
        """Remove states that are too old."""
        self.flush()

    def snapshot(self) -> Any:
        """The states, for another process, if they are in memory."""
        return self.store.snapshot()

    def restore(self, state: Any) -> None:
        """Continue with what `snapshot` returned."""
        self.store.restore(state)

    def result(self) -> Any:
        """The states, if they are in memory: key → value."""
        return None if self.store.snapshot() is None else dict(self.store.items())

    def stored(self, keys: Sequence[Any]) -> list[Any]:
        """The committed states of keys; None where there is none."""
        return self.store.stored(keys)

    def stored_items(self) -> Iterator[tuple[Any, Any]]:
        """All keys and their committed states, in no order."""
        return self.store.stored_items()

    def cleanup(self) -> None:
        try:
            super().cleanup()
        finally:
            self.store.close()

    def __deepcopy__(self, memo: Any) -> Self:
        made = super().__deepcopy__(memo)
        made.store = deepcopy(self.store, memo)
        return made

    def _read(self) -> None:
        rows, self._now = self._announced, self._context.clock.now()
        self.make_ready()
        try:
            self.store.fetch(self.needed(group_keys(self.reads, self.by, rows)))
        except Unserialisable:
            """The record whose key it is fails when its own state is read."""
        self._announced = ()
