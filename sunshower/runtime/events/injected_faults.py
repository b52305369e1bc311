"""The faults that an experiment injects in workers: errors, delays and network faults.

The master keeps the current `InjectedFaults` in its state and sends them to every worker, also to
one that starts later, until they are replaced. `InjectedFaults()` injects nothing. Crashes and
pauses are injected through the `Cluster` port instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np

from sunshower.arguments import PROBABILITY, SECONDS_FROM_0, check_all
from sunshower.errors import ExperimentError
from sunshower.runtime.plan import ACKER, Plan

ANY = "*"


@dataclass(frozen=True, kw_only=True)
class Raise:
    """User code of a component raises InjectedError, for some of its records.

    With `unavailable` it raises InjectedOutage, as if a dependency of the component were away.

    In a spout the source raises when it is asked for the next record; task_faults.py says what that
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
            "raises": [dict(vars(one)) for one in self.raises],
            "slows": [dict(vars(one)) for one in self.slows],
            "links": [dict(vars(one)) for one in self.links],
            "expirations": self.expirations,
            "isolated": self.isolated,
        }

    @staticmethod
    def from_fields(found: Mapping[str, Any]) -> InjectedFaults:
        """Build the value from the result of `to_fields`."""
        return InjectedFaults(
            tuple(Raise(**one) for one in found["raises"]),
            tuple(SlowTask(**one) for one in found["slows"]),
            tuple(Link(**one) for one in found["links"]),
            found["expirations"],
            tuple(found.get("isolated", ())),
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
    names = [one.component for one in injected.raises] + [one.component for one in injected.slows]
    names += [end for link in injected.links for end in (link.source, link.target) if end != ANY]
    for name in names:
        if name not in tasks:
            raise ExperimentError(
                f"topology {plan.graph.id!r} has no {name!r} to disturb; it has: "
                + ", ".join(sorted(tasks))
            )
    if any(one.component == ACKER for one in injected.raises):
        raise ExperimentError("an acker runs no user code that could raise: slow or kill it")
    places = [(one.component, one.index) for one in injected.raises]
    for name, index in places + [(one.component, one.index) for one in injected.slows]:
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
