"""Calls a function with each record and the state of its key.

    def sessions(click: Click, visit: KeyState[Visit]) -> Iterator[Session]:

States are read once for each batch of a task, and written once before the acks of the batch leave.
Storm: org.apache.storm.topology.IStatefulBolt, org.apache.storm.state.KeyValueState.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from math import inf
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypedDict

from sunshower.arguments import SECONDS
from sunshower.config import Resources
from sunshower.errors import TopologyError, Unserialisable
from sunshower.records import ConnectedSchema, Schema, key_of
from sunshower.topologies.components import Context
from sunshower.topologies.operators.aggregating import group_keys
from sunshower.topologies.operators.aggregators import described
from sunshower.topologies.operators.keyed.key_states import (
    TIMERS,
    KeyList,
    KeyMap,
    KeyRows,
    KeyState,
)
from sunshower.topologies.operators.keyed.long_values import (
    Additions,
    Call,
    LongValue,
    Outside,
    purity_of,
)
from sunshower.topologies.operators.states import Spread, StateFactory, check_key
from sunshower.topologies.operators.steps import FunctionOperator, RowOperator, check_rows
from sunshower.topologies.operators.windows.event_times import (
    Ahead,
    Time,
    Unit,
    is_before,
    length_of,
    plus,
)

if TYPE_CHECKING:
    from sunshower.topologies.operators.keyed.keyed_store import KeyedStore

AnyKeyState: TypeAlias = KeyState[Any] | KeyList[Any] | KeyMap[Any, Any]


class KeyedProcess(FunctionOperator, RowOperator):
    """Calls a function with each record and the state of its key. `reads` may be a ConnectedSchema:
    then the record is the last value of a row.

    The runtime calls `announce(rows)`, `expand` for each row, and then `flush`. The state of a row
    is changed at the end of `expand`, when the following steps have processed what it makes: an
    exception of theirs ends the generator before.
    """

    by_row = False
    has_timers = False
    kind: type[AnyKeyState] = KeyState  # what the function is handed for a key
    may_be_long = True  # whether its value may have many elements

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
        self._is_connected = isinstance(reads, ConnectedSchema)
        self._now: Time = 0.0  # when this batch began
        self.timers = TIMERS

    @property
    def described_values(self) -> str:
        """What is stored, as a text that the store has."""
        text = getattr(self.function, "described_values", None)
        if isinstance(text, str):
            is_broadcast = self.store.slot.spread is Spread.EVERYWHERE
            return f"broadcast {text}" if is_broadcast else text
        if not is_distinct(self.function):
            return "process"
        rows = f" rows {described(self.reads.fields)}" if self.reads.type is tuple else ""
        return f"distinct{rows}"

    def figures(self) -> Mapping[str, float]:
        """How many states were removed because they were too old, if they may be."""
        figures = super().figures()
        return {**figures, "expired": self.store.expired} if self.store.keeps_ages else figures

    def set_time(self, time: Time) -> None:
        """Set the time of the calls that follow, by which states expire, in batches."""
        self._now = self.store.time = time

    @property
    def functions(self) -> tuple[Any, ...]:
        """The functions that change states."""
        return (self.function,)

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self._context = context
        self._key = self.reads.key(self.by)
        self._outside, is_pure = Outside(self.store.classes), False
        if self.kind is KeyState and self.may_be_long and not self.store.keeps_ages:
            handed = (self.reads.type, *self.reads.classes, *self.store.classes)
            is_pure = purity_of(self.functions, handed)
        self.store.lends = is_pure
        self.open(context)

    def open(self, context: Context) -> None:
        self.store.open(context)

    def announce(self, rows: Sequence[Any]) -> None:
        self._announced = rows

    def expand(self, row: Any) -> Iterator[Any]:
        if len(self._announced):
            self._read()
        key = self._key(row)
        record = row[-1] if self._is_connected else row
        lent = self.lent(key) if self.store.long else None
        if lent is not None and (give := self._outside.giver(record)) is not None:
            yield from self.call_lent(key, lent, self.function, give, *self.when(key, row))
            return
        state = self.state_of(key, row)
        kind, width = self.schema.instances, len(self.schema.fields)
        for output in self.function(record, state) or ():
            if type(output) is not kind or (kind is tuple and len(output) != width):
                check_rows([output], self.schema, self.function)
            yield output
        self.keep(key, state)

    def state_of(self, key: Any, row: Any) -> AnyKeyState:
        """The state of a key for the call with a row. Raises BadEmit for a reserved key."""
        check_key(key)
        if self.kind is KeyState and not self.has_timers:  # without two calls
            return KeyState(self.store.get(key), self._now)
        return self.state_at(key, *self.when(key, row))

    def lent(self, key: Any) -> LongValue | None:
        """The value of a key, if it was long, and calls may change it in place: see long_values."""
        known = key_of(key)
        return self.store.lend(known) if known in self.store.long else None

    def call_lent(
        self,
        key: Any,
        lent: LongValue,
        function: Callable[..., Any],
        give: Callable[[], Any],
        time: Any,
        timer: Any,
        *,
        ended: bool = False,
        fired: Any = None,
    ) -> Iterator[Any]:
        """Call a function with what `give` returns, and with a value that was lent. Yields its
        records."""
        about: Any = {"time": time, "timer": timer, "ended": ended, "reader": self.timers}

        def run(value: Any) -> tuple[Any, int]:
            state: KeyState[Any] = KeyState(value, **about)
            self.tell_timers(key, state, fired)
            outputs = sum(1 for _ in function(give(), state) or ())
            return state.value, outputs

        additions, is_apart, outputs = Additions(lent.value), True, 0
        state = KeyState(lent.value, **about)
        self.tell_timers(key, state, fired)
        try:
            for record in function(give(), state) or ():
                if type(record) is not self.schema.instances or self.schema.type is tuple:
                    check_rows([record], self.schema, function)
                outputs += 1
                is_apart = is_apart and self._outside.has(record)
                yield record
            lent.value = state.value
            if lent.value is None:
                self.keep(key, state)
                return
            if (timers := state.used_timers) is not None and timers.was_read:
                is_apart = False  # the call cannot be repeated: they may be others then
            for element in additions.in_value(lent.value) if is_apart else ():
                is_apart = self.store.is_unchanging(self.store.convert(element)) and is_apart
            if is_apart:
                call = Call(run, outputs)
                self.keep(key, state, lambda: self.store.give_back(key_of(key), lent, call))
            else:
                self.keep(key, state, lambda: self.store.reclaim(key_of(key)))
        except BaseException:
            lent.value = None
            raise

    def when(self, key: Any, row: Any) -> tuple[Any, Any]:
        """The time of a call with a row, and when its timer is set to."""
        return self._now, None

    def tell_timers(self, key: Any, state: AnyKeyState, fired: Any) -> None:
        """Tell a state how to read the timers of its key, and which one has fired; if there are
        any."""

    def state_at(
        self, key: Any, time: Any, timer: Any, *, ended: bool = False, fired: Any = None
    ) -> AnyKeyState:
        """The state of a key for a call at this time. `fired`: the name of a timer, if one calls
        that has one."""
        if self.kind is KeyState:
            value = self.store.get(key)
            state: AnyKeyState = KeyState(value, time, timer, ended=ended, reader=self.timers)
        else:
            rows: Any = {"rows": KeyRows(self.store, key_of(key))}
            state = self.kind((), time, timer, ended=ended, reader=self.timers, **rows)
        self.tell_timers(key, state, fired)
        return state

    def keep(
        self, key: Any, state: AnyKeyState, give_back: Callable[[], None] | None = None
    ) -> None:
        """Put what a call has left; `give_back` does that for a value that was lent. Raises
        Unserialisable."""
        if not self.has_timers and (state.timer is not None or state.used_timers is not None):
            raise TopologyError(
                "there is no on_timer= for the timer of a state; give one to .process(…): a "
                "function (key, state)"
            )
        if give_back is not None:
            give_back()
        elif isinstance(state, KeyState):
            self.store.put(key, state.value, changed=state.assigned)
        else:
            state.keep()

    def needed(self, keys: Iterable[Any]) -> Iterable[Any]:
        """What to read for the calls with these keys."""
        return keys

    def make_ready(self) -> None:
        """Open the store if another process has opened it, or it could not be opened again."""
        if not self.store.is_open:
            self.store.open(self._context)

    def flush(self) -> None:
        if self.store.is_open:
            self.store.commit()

    def discard(self) -> None:
        self.store.discard()

    def tick(self) -> None:
        self.flush()

    def snapshot(self) -> Any:
        return self.store.snapshot()

    def restore(self, state: Any) -> None:
        self.store.restore(state)

    def result(self) -> Any:
        """The states, if they are in memory: key → value."""
        return None if self.store.snapshot() is None else dict(self.store.items())

    def stored(self, keys: Sequence[Any]) -> list[Any]:
        return self.store.stored(keys)

    def stored_items(self) -> Iterator[tuple[Any, Any]]:
        return self.store.stored_items()

    def cleanup(self) -> None:
        try:
            super().cleanup()
        finally:
            self.store.close()

    def __deepcopy__(self, memo: Any) -> Self:
        copy = super().__deepcopy__(memo)
        copy.store = deepcopy(self.store, memo)
        return copy

    def _read(self) -> None:
        rows = self._announced
        if self.store.time is None:
            self._now = self._context.clock.wall()
        self.make_ready()
        try:
            self.store.fetch(self.needed(group_keys(self.reads, self.by, rows)))
        except Unserialisable:
            """The record whose key it is fails when its own state is read."""
        self._announced = ()


# ---- distinct: the first record of each key, and again after its time ----------------------------

# Ordinary streams keep a record in the state of its key until a timer emits it, so it is stored
# until it is processed, as all that timers emit: a replay of a record that was seen, and lost
# behind this operator, would be dropped. In batches the record leaves at once: a batch that is
# repeated finds the states from before it.


class DistinctSettings(TypedDict, total=False):
    """The settings of `distinct` in ordinary streams.

    - `ttl_s`: so long after its first record a key is new again; None: never. In the unit of
      `event_time` if that is a number
    - the others: as of `process`; `event_time`: the field with the time of a record; None: by the
      clock
    """

    ttl_s: float | None
    state: StateFactory | None
    name: str | None
    parallelism: int
    resources: Resources
    event_time: str | None
    late: float
    zone: str | None
    ahead: Ahead
    unit: Unit


def is_distinct(function: Any) -> bool:
    """Whether a function is one of these."""
    return getattr(function, "__module__", "") == __name__


def first_in_batches(record: Any, state: KeyState[bool]) -> Iterator[Any]:
    """Emit a record whose key has no state; the state expires by its `ttl_s`."""
    if state.value is None:
        state.value = True
        yield record


def first_and_later(
    schema: Schema, ttl_s: float | None, where: str
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The functions of an ordinary stream, as for `process`. The state of a key is a list: the time
    from which on it is new (None: never), and records that a timer is about to emit."""
    SECONDS.or_else("none", None).check(f"{where}: ttl_s", ttl_s, TopologyError)
    length = None if ttl_s is None else length_of(ttl_s)

    def distinct(record: Any, state: Any) -> None:
        until, *waiting = state.value or [-inf]
        if until is not None and not is_before(state.time, until):
            state.value = [None if length is None else plus(state.time, length), *waiting, record]
            if not waiting or state.timer is None:  # imported values have no timers
                state.timer = state.time

    def emit(_: Any, state: Any) -> Iterator[Any]:
        if state.value is None:  # it was removed from outside
            return
        until, *waiting = state.value
        state.value = [until]
        if until is not None and not state.ended:
            if not is_before(state.time, until):
                state.value = None
            else:
                state.timer = until
        yield from waiting

    state: Any = KeyState
    kind: Any = schema.type
    annotation = state[Any if kind is tuple else list[kind | float | None]]
    for function in (distinct, emit):
        function.__annotations__ = {"state": annotation}
    return distinct, emit
