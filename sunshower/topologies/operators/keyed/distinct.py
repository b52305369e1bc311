"""The functions of `distinct`: the first record of each key, and again after its time.

Ordinary streams keep a record in the state of its key until a timer emits it, so it is stored until
it is processed, as all that timers emit: a replay of a record that was seen, and lost behind this
operator, would be dropped. In batches the record leaves at once: a batch that is repeated finds the
states from before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Any, TypedDict

from sunshower.arguments import SECONDS
from sunshower.config import Resources
from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.topologies.operators.keyed.key_states import KeyState
from sunshower.topologies.operators.states import StateFactory
from sunshower.topologies.operators.windows.event_times import Ahead, Unit


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

    def distinct(record: Any, state: Any) -> None:
        until, *waiting = state.value or [-inf]
        if until is not None and until <= state.time:
            state.value = [None if ttl_s is None else state.time + ttl_s, *waiting, record]
            if not waiting or state.timer is None:  # imported values have no timers
                state.timer = state.time

    def emit(_: Any, state: Any) -> Iterator[Any]:
        if state.value is None:  # it was removed from outside
            return
        until, *waiting = state.value
        state.value = [until]
        if until is not None and not state.ended:
            if until <= state.time:
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
