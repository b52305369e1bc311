"""The faults that an experiment injects in workers: errors, delays and network faults.

The master keeps the current `InjectedFaults` in its state and sends them to every worker, also to
one that starts later, until they are replaced. `InjectedFaults()` injects nothing. Crashes and
pauses are injected through the `Cluster` port instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from sunshower.arguments import PROBABILITY, SECONDS_FROM_0, check_all
from sunshower.clock import Clock, SystemClock
from sunshower.errors import ExperimentError, InjectedError, InjectedOutage
from sunshower.records import Schema
from sunshower.runtime.plan import ACKER, Plan, Task
from sunshower.runtime.tracking.batch import Batch

ANY = "*"


@dataclass(frozen=True, kw_only=True)
class Raise:
    """User code of a component raises InjectedError, for some of its records.

    With `unavailable` it raises InjectedOutage, as if a dependency of the component were away.

    In a spout the source raises when it is asked for the next record; TaskFaults says what that
    means for `next_tuple`.
    """

    component: str
    probability: float = 1.0  # of each record
    where: Mapping[str, Any] | None = None  # only records with these field values; None: all
    index: int | None = None  # of one task; None: all of the component
    unavailable: bool = False

    def __post_init__(self) -> None:
        check_all(self, {"probability": PROBABILITY}, "errors: ", ExperimentError)


@dataclass(frozen=True, kw_only=True)
class SlowTask:
    """Each record takes the component's tasks `seconds` longer; each report, for an acker."""

    component: str
    seconds: float
    index: int | None = None  # of one task; None: all of the component

    def __post_init__(self) -> None:
        check_all(self, {"seconds": SECONDS_FROM_0}, "slow: ", ExperimentError)


@dataclass(frozen=True, kw_only=True)
class Link:
    """Network faults of packets from workers with a `source` task to workers with a `target` task
    (component ids, or ACKER, or ANY). In the `pack` layout several edges share a packet, and so its
    faults.

    All are probabilities per packet. Later packets overtake a delayed one, which its receiver then
    refuses, because peer links are ordered: that is the effect of reordering.
    """

    source: str = ANY
    target: str = ANY
    drop: float = 0.0  # does not arrive; the sender sees a failed call
    vanish: float = 0.0  # does not arrive, and the sender gets no answer
    forget: float = 0.0  # arrives, but the sender sees a failed call
    repeat: float = 0.0  # arrives twice
    corrupt: float = 0.0  # arrives with a bit flipped
    delay: float = 0.0  # arrives `delay_s` later, on average
    delay_s: float = 0.05

    def __post_init__(self) -> None:
        rates = ("drop", "vanish", "forget", "repeat", "corrupt", "delay")
        rules = {**dict.fromkeys(rates, PROBABILITY), "delay_s": SECONDS_FROM_0}
        check_all(self, rules, "the network: ", ExperimentError)


@dataclass(frozen=True, slots=True)
class Fate:
    """What a link does to one packet."""

    delays_s: tuple[float, ...] = (0.0,)  # of each copy that arrives
    corrupt: bool = False
    heard: bool = True  # whether the sender receives the answer
    fails: bool = True  # whether the sender learns that no copy arrives


WELL = Fate()


@dataclass(frozen=True)
class InjectedFaults:
    """All faults that are injected into a topology at one time."""

    raises: tuple[Raise, ...] = ()
    slows: tuple[SlowTask, ...] = ()
    links: tuple[Link, ...] = ()
    expirations: int = 0  # how many times so far all pending trees were made to time out
    isolated: tuple[int, ...] = ()  # workers whose process is cut off from the master

    def __bool__(self) -> bool:
        return bool(self.raises or self.slows or self.links or self.isolated)

    def to_fields(self) -> dict[str, Any]:
        """Return plain values, for MessagePack and JSON."""
        return {  # asdict() takes twenty times as long
            "raises": [dict(vars(fault)) for fault in self.raises],
            "slows": [dict(vars(fault)) for fault in self.slows],
            "links": [dict(vars(fault)) for fault in self.links],
            "expirations": self.expirations,
            "isolated": self.isolated,
        }

    @staticmethod
    def from_fields(values_of: Mapping[str, Any]) -> InjectedFaults:
        """Build the value from the result of `to_fields`."""
        return InjectedFaults(
            tuple(Raise(**values) for values in values_of["raises"]),
            tuple(SlowTask(**values) for values in values_of["slows"]),
            tuple(Link(**values) for values in values_of["links"]),
            values_of["expirations"],
            tuple(values_of.get("isolated", ())),
        )


def fate(links: tuple[Link, ...], generator: np.random.Generator) -> Fate:
    """Draw what happens to one packet that passes all these links."""
    delay_s, copies, corrupt, heard = 0.0, 1, False, True
    for link in links:
        drop, forget, repeat, flip, late = generator.random(5)
        if drop < link.drop or (link.vanish and generator.random() < link.vanish):
            return Fate((), heard=False, fails=drop < link.drop)
        heard = heard and forget >= link.forget
        copies += repeat < link.repeat
        corrupt = corrupt or flip < link.corrupt
        delay_s += float(generator.exponential(link.delay_s)) if late < link.delay else 0.0
    return Fate((delay_s,) * copies, corrupt, heard)


def flipped(data: bytes, generator: np.random.Generator) -> bytes:
    """Return a copy with one bit flipped."""
    bit = int(generator.integers(len(data) * 8))
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def check_places(injected: InjectedFaults, plan: Plan) -> None:
    """Raise ExperimentError for faults of unknown components or tasks, or not encodable ones."""
    tasks = Counter(task.component for task in plan.tasks)
    names = [fault.component for fault in injected.raises] + [
        fault.component for fault in injected.slows
    ]
    names += [end for link in injected.links for end in (link.source, link.target) if end != ANY]
    for name in names:
        if name not in tasks:
            raise ExperimentError(
                f"topology {plan.graph.id!r} has no {name!r} to disturb; it has: "
                + ", ".join(sorted(tasks))
            )
    if any(fault.component == ACKER for fault in injected.raises):
        raise ExperimentError("an acker runs no user code that could raise: slow or kill it")
    places = [(fault.component, fault.index) for fault in injected.raises]
    for name, index in places + [(fault.component, fault.index) for fault in injected.slows]:
        if index is not None and not 0 <= index < tasks[name]:
            raise ExperimentError(
                f"there is no task {index} of {name!r} to disturb: its tasks are "
                f"0 … {tasks[name] - 1}"
            )
    try:
        msgpack.packb(injected.to_fields())
    except (TypeError, ValueError, OverflowError) as error:
        raise ExperimentError(
            f"the `where` of an error must be plain values, by which to compare fields ({error})"
        ) from error


# ---- task faults ---------------------------------------------------------------------------------
# Applies injected faults to one task: its code raises, or takes longer.
#
# A task is wrapped only while a fault applies to it, and its code only for a batch that the fault
# affects. An injected error is handled as any exception of user code; an injected delay is inside
# the guarded call, where the flight recorder, the watchdog and the service time include it.
#
# A spout's source raises before it returns a chosen record. `next_tuple` emits on its own: a fault
# without `where` raises instead of a call, and one with `where` after a call that emitted such a
# record.

Call = Callable[..., Any]


class TaskFaults:
    """The faults that apply to one task; `generator` draws the records."""

    def __init__(
        self,
        task: Task,
        raises: Sequence[Raise],
        slow_s: float,
        clock: Clock,
        generator: np.random.Generator,
    ) -> None:
        self._task = task
        self._raises = raises
        self._slow_s = slow_s  # the extra time per record
        self._clock = clock
        self._generator = generator

    # ---- bolts ------------------------------------------------------------------------------

    def around(self, call: Call, batch: Batch, schema: Schema) -> Call:
        """Wrap `call`, which processes the records of `batch` one by one, with their faults."""
        if self is NO_FAULTS:
            return call
        hits = self._hits(batch, schema)
        if not self._slow_s and not hits.any():
            return call
        waiting = iter(hits.tolist())

        def disturbed(*arguments: Any) -> Any:
            self.slow_down(1)
            if next(waiting):
                raise self.error
            return call(*arguments)

        return disturbed

    def strike(self, batch: Batch, schema: Schema) -> None:
        """Apply the faults of a table: one chosen row fails all of it."""
        self.slow_down(len(batch))
        if self._raises and self._hits(batch, schema).any():
            raise self.error

    # ---- spouts -----------------------------------------------------------------------------

    def slow_down(self, records: int) -> None:
        """Sleep for the extra time of so many records."""
        if self._slow_s and records:
            self._clock.sleep(self._slow_s * records)

    def first_hit(self, records: Any, schema: Schema) -> int | None:
        """The index of the first record instead of which the source raises."""
        if not self._raises:
            return None
        hits = self._hits(Batch(0, self._task.id, records), schema)
        return int(hits.argmax()) if hits.any() else None

    def before_call(self) -> None:
        """Called before next_tuple or poll."""
        chances = [rule.probability for rule in self._raises if not rule.where]
        if chances and (self._generator.random(len(chances)) < chances).any():
            raise self.error

    def around_next_tuple(
        self, call: Callable[[], None], emitted: Collection[Any], schema_of: Callable[[str], Schema]
    ) -> Callable[[], None]:
        """Wrap `call`, which appends emits (`stream`, `record`) to `emitted`."""
        if not self._raises:
            return call
        where = [rule for rule in self._raises if rule.where]

        def disturbed() -> None:
            before = len(emitted)
            self.before_call()
            call()
            for emit in islice(emitted, before, None) if where else ():
                batch = Batch(0, self._task.id, [emit.record])
                if self._hits(batch, schema_of(emit.stream), where).any():
                    raise self.error

        return disturbed

    @property
    def error(self) -> InjectedError:
        """The error to raise: an outage if any fault of the task says `unavailable`."""
        place = self._task.name
        if any(rule.unavailable for rule in self._raises):
            return InjectedOutage(f"an experiment takes the dependency of {place} away")
        return InjectedError(f"an experiment raises this in the place of the code of {place}")

    # ---- how --------------------------------------------------------------------------------

    def _hits(
        self, batch: Batch, schema: Schema, rules: Iterable[Raise] | None = None
    ) -> NDArray[np.bool_]:
        """Return which records of the batch are chosen."""
        hits = np.zeros(len(batch), np.bool_)
        for rule in self._raises if rules is None else rules:
            chosen = self._generator.random(len(batch)) < rule.probability
            if rule.where and chosen.any():
                chosen &= _fitting(rule.where, batch, schema)
            hits |= chosen
        return hits


NO_FAULTS = TaskFaults(Task(0, "", 0, 0), (), 0.0, SystemClock(), np.random.default_rng(0))


def faults_of(
    injected: InjectedFaults, task: Task, clock: Clock, generator: np.random.Generator
) -> TaskFaults:
    """The injected faults that apply to a task; NO_FAULTS if there is none."""
    mine = (rule for rule in injected.raises if rule.component == task.component)
    raises = [rule for rule in mine if rule.index in (None, task.index)]
    slow_s = slowness(injected, task)
    return TaskFaults(task, raises, slow_s, clock, generator) if raises or slow_s else NO_FAULTS


def slowness(injected: InjectedFaults, task: Task) -> float:
    """Return the seconds by which each record of a task takes longer."""
    mine = (rule for rule in injected.slows if rule.component == task.component)
    return sum(rule.seconds for rule in mine if rule.index in (None, task.index))


def _fitting(where: Any, batch: Batch, schema: Schema) -> NDArray[np.bool_]:
    if not where.keys() <= set(schema.fields):  # of another stream
        return np.zeros(len(batch), np.bool_)
    get = schema.key(list(where))
    wanted = next(iter(where.values())) if len(where) == 1 else tuple(where.values())
    return np.array([bool(get(row) == wanted) for row in batch.rows(schema)], np.bool_)
