"""What an experiment does to a topology from within: errors, slowness, and a bad network.

A `Havoc` is a wish like any other: the master keeps it in its book and tells every worker, new ones
too, until the next one. `Havoc()` is peace. Deaths and pauses are not here: they come from without,
through the `Cluster` port.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np

from sunshower.errors import ExperimentError
from sunshower.runtime.plan import ACKER, Plan

ANY = "*"


@dataclass(frozen=True, kw_only=True)
class Raise:
    """User code of a component raises InjectedError, for some of its records.

    With `unavailable` it raises InjectedOutage, as if a dependency of the component were away.

    Of a spout it is the source that raises, when it is asked for the next record; what that means
    for `next_tuple` is told in injection.py.
    """

    component: str
    probability: float = 1.0  # of each record
    where: Mapping[str, Any] | None = None  # only records with these fields; None: all
    index: int | None = None  # of the one task; None: all of the component
    unavailable: bool = False

    def __post_init__(self) -> None:
        check_ratio("the probability of an error", self.probability)


@dataclass(frozen=True, kw_only=True)
class Slow:
    """Each record takes the component's tasks so much longer; of an acker, each report."""

    component: str
    seconds: float
    index: int | None = None  # of the one task; None: all of the component

    def __post_init__(self) -> None:
        check_seconds("the slowness of a task", self.seconds)


@dataclass(frozen=True, kw_only=True)
class Link:
    """The network between some workers is bad: packets from those with a task of `source` to those
    with a task of `target` (component ids, or ACKER, or ANY). In the `pack` layout several edges
    share a packet, and so its fate.

    All are probabilities of a packet. One that is delayed is overtaken by those behind it, and
    then refused by its receiver, as lanes are in order: that is how reordering shows.
    """

    source: str = ANY
    target: str = ANY
    drop: float = 0.0  # never arrives, and its sender learns that the call failed
    forget: float = 0.0  # arrives, but its sender learns that the call failed
    repeat: float = 0.0  # arrives twice
    corrupt: float = 0.0  # arrives with a bit flipped
    delay: float = 0.0  # arrives `delay_s` later, on the average
    delay_s: float = 0.05

    def __post_init__(self) -> None:
        for name in ("drop", "forget", "repeat", "corrupt", "delay"):
            check_ratio(f"the probability {name!r} of a link", getattr(self, name))
        check_seconds("the delay of a link", self.delay_s)


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one packet."""

    delays_s: tuple[float, ...] = (0.0,)  # of each copy that arrives
    corrupt: bool = False
    heard: bool = True  # whether the sender hears the answer


WELL = Fate()


@dataclass(frozen=True)
class Havoc:
    """All that disturbs a topology at one time."""

    raises: tuple[Raise, ...] = ()
    slows: tuple[Slow, ...] = ()
    links: tuple[Link, ...] = ()
    expirations: int = 0  # so far: with each, all that is pending then has timed out

    def __bool__(self) -> bool:
        return bool(self.raises or self.slows or self.links)

    def to_fields(self) -> dict[str, Any]:
        """Plain values, for MessagePack and JSON."""
        return {  # asdict() takes twenty times as long
            "raises": [dict(vars(one)) for one in self.raises],
            "slows": [dict(vars(one)) for one in self.slows],
            "links": [dict(vars(one)) for one in self.links],
            "expirations": self.expirations,
        }

    @staticmethod
    def from_fields(found: Mapping[str, Any]) -> Havoc:
        """What `to_fields` was called of."""
        return Havoc(
            tuple(Raise(**one) for one in found["raises"]),
            tuple(Slow(**one) for one in found["slows"]),
            tuple(Link(**one) for one in found["links"]),
            found["expirations"],
        )


def fate(links: tuple[Link, ...], generator: np.random.Generator) -> Fate:
    """Throw the dice for one packet that goes over all these links."""
    delay_s, copies, corrupt, heard = 0.0, 1, False, True
    for link in links:
        drop, forget, repeat, flip, late = generator.random(5)
        if drop < link.drop:
            return Fate((), heard=False)
        heard = heard and forget >= link.forget
        copies += repeat < link.repeat
        corrupt = corrupt or flip < link.corrupt
        delay_s += float(generator.exponential(link.delay_s)) if late < link.delay else 0.0
    return Fate((delay_s,) * copies, corrupt, heard)


def flipped(data: bytes, generator: np.random.Generator) -> bytes:
    """The same with one bit wrong."""
    bit = int(generator.integers(len(data) * 8))
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def check_places(havoc: Havoc, plan: Plan) -> None:
    """Raise ExperimentError for havoc that a topology has no place for, or that cannot travel."""
    tasks = Counter(task.component for task in plan.tasks)
    names = [one.component for one in havoc.raises] + [one.component for one in havoc.slows]
    names += [end for link in havoc.links for end in (link.source, link.target) if end != ANY]
    for name in names:
        if name not in tasks:
            raise ExperimentError(
                f"topology {plan.graph.id!r} has no {name!r} to disturb; it has: "
                + ", ".join(sorted(tasks))
            )
    if any(one.component == ACKER for one in havoc.raises):
        raise ExperimentError("an acker runs no user code that could raise: slow or kill it")
    places = [(one.component, one.index) for one in havoc.raises]
    for name, index in places + [(one.component, one.index) for one in havoc.slows]:
        if index is not None and not 0 <= index < tasks[name]:
            raise ExperimentError(
                f"there is no task {index} of {name!r} to disturb: its tasks are "
                f"0 … {tasks[name] - 1}"
            )
    try:
        msgpack.packb(havoc.to_fields())
    except (TypeError, ValueError, OverflowError) as error:
        raise ExperimentError(
            f"the `where` of an error must be plain values, by which to compare fields ({error})"
        ) from error


def check_ratio(what: str, value: float) -> None:
    """Raise ExperimentError unless it is a probability."""
    if not 0 <= value <= 1:
        raise ExperimentError(f"{what} is {value}; a probability is between 0 and 1")


def check_seconds(what: str, value: float) -> None:
    """Raise ExperimentError unless it is a duration."""
    if not 0 <= value < float("inf"):
        raise ExperimentError(f"{what} is {value}; it must be a number of seconds, 0 or more")
