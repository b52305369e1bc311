"""The settings of a topology and the resources of its tasks, checked on construction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from types import MappingProxyType
from typing import Any, Literal

from sunshower.arguments import COUNT, FLAG, SECONDS, TEXT, Instance, Values, check_all
from sunshower.errors import ConfigError

LOCAL_RAY = "_SUNSHOWER_LOCAL_RAY"  # set in the processes of a Ray that ends with its program
SLOTS_MAX = 1 << 24  # a root id has 24 bits for its slot
_AUTO_SLOTS = 32_768
_STEPS = 4  # Ray counts resources in steps of 0.0001
_AMOUNT = Values(float, "an amount", least=0)
_CUSTOM = Instance((Mapping,), 'an amount for each name, as in {"license": 1}')
_BUILT_IN = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory", "object_store_memory": None}

# The allowed values of each setting, in a Config and in `--set name=value`.
LIMITS: dict[str, Values] = {
    "message_timeout_s": SECONDS,
    "message_timeout_max_s": SECONDS.or_else("none", None),
    "ackers": replace(COUNT, least=0).or_else("none", None),
    "workers": COUNT,
    "placement": Values(words={"spread": "spread", "pack": "pack"}),
    "spout_pending": replace(COUNT, most=SLOTS_MAX).or_else("auto", "auto"),
    "record_bytes_max": COUNT,
    "window_records_max": COUNT,
    "attempts_max": COUNT,
    "block_max_s": SECONDS,
    "worker_timeout_s": SECONDS,
    "check_mutation": FLAG,
    "generated_stages": FLAG,
    "unavailable_max_s": SECONDS,
    "task_errors_max": COUNT,
    "deaths_max": COUNT,
    "trace_share": Values(float, least=0, most=1),
}


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What one task of a component needs of its node. A worker requests the sum over its tasks.

    Ray reserves what is requested, as for any actor: it starts the worker on a node where that much
    is free, and limits nothing. By default nothing is requested. Raises ConfigError for an amount
    that is negative or not finite, has more than four decimals, or is a part of a byte, and for the
    name of a built-in resource in `custom`, of which it keeps a copy that cannot be changed. Ray:
    num_cpus, num_gpus, memory and resources of an actor.
    """

    num_cpus: float = 0.0  #: CPUs
    num_gpus: float = 0.0  #: GPUs
    memory: float = 0.0  #: Bytes
    #: Other resources of nodes, by name.
    custom: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _CUSTOM.check("Resources: custom", self.custom)
        amounts = {name: getattr(self, name) for name in ("num_cpus", "num_gpus", "memory")}
        for name, amount in self.custom.items():
            replace(TEXT, may_be_empty=False).check("Resources: a name in custom", name)
            if name in _BUILT_IN:
                instead = _BUILT_IN[name]
                hint = f"give {instead}=" if instead else "Ray sizes its object store by itself"
                raise ConfigError(
                    f"Resources: {name!r} in custom is a resource of Ray's own; {hint}"
                )
            amounts[f"custom[{name!r}]"] = amount
        for name, amount in amounts.items():
            _AMOUNT.check(f"Resources: {name}", amount)
            if round(amount, _STEPS) != amount:
                raise ConfigError(
                    f"Resources: {name} is {amount!r}; Ray counts in steps of 0.0001, so give four "
                    "decimals at most"
                )
        if self.memory != int(self.memory):
            raise ConfigError(
                f"Resources: memory is {self.memory!r}; it counts bytes: give a whole number"
            )
        object.__setattr__(self, "custom", MappingProxyType(dict(self.custom)))

    def __reduce__(self) -> tuple[Any, ...]:  # pickle cannot copy a MappingProxyType
        return partial(Resources, **{**vars(self), "custom": dict(self.custom)}), ()

    def __bool__(self) -> bool:
        return any(self.amounts.values())

    @property
    def amounts(self) -> dict[str, float]:
        """Ray's name of each resource → its amount, without those of which there is nothing."""
        amounts = {"CPU": self.num_cpus, "GPU": self.num_gpus, "memory": self.memory}
        return {name: amount for name, amount in {**amounts, **self.custom}.items() if amount}

    @classmethod
    def total(cls, parts: Iterable[Resources]) -> Resources:
        """The sum of these. More than one GPU is a whole number, as Ray wants it."""
        amounts: dict[str, float] = {}
        for part in parts:
            for name, amount in part.amounts.items():
                amounts[name] = round(amounts.get(name, 0.0) + amount, _STEPS)
        gpus = amounts.pop("GPU", 0.0)
        return cls(
            num_cpus=amounts.pop("CPU", 0.0),
            num_gpus=gpus if gpus <= 1 else ceil(gpus),
            memory=amounts.pop("memory", 0.0),
            custom=amounts,
        )

    def __str__(self) -> str:
        parts = [f"{amount:g} {name}" for name, amount in self.amounts.items() if name != "memory"]
        if self.memory:
            parts.append(f"{self.memory / 2**30:.3g} GiB of memory")
        return ", ".join(parts) or "nothing"


class Between(int):
    """A number of tasks or workers that follows the load: see `between`. Its value is the present
    number."""

    least: int
    most: int

    def __new__(cls, least: int, most: int, now: int | None = None) -> Between:
        number = super().__new__(cls, least if now is None else now)
        number.least, number.most = least, most
        return number

    def __reduce__(self) -> tuple[Any, ...]:  # for pickle and copies
        return Between, (self.least, self.most, int(self))

    def __str__(self) -> str:
        return int.__repr__(self)

    def __repr__(self) -> str:
        return f"between({self.least}, {self.most})"

    def clamp(self, number: int) -> int:
        """The number within the bounds that is nearest to this one."""
        return min(max(number, self.least), self.most)


def between(least: int, most: int) -> Between:
    """A number of tasks or workers that follows the load of the running topology, from `least`,
    with which it begins, to `most`: `parallelism=between(1, 8)`, `workers=between(1, 4)`.

    Raises ConfigError for numbers below 1, or `most` below `least`. What cannot scale is refused by
    `Topology.graph`. How it decides: docs/OPERATING.md, "Scaling by itself".
    """
    COUNT.check("between: least", least)
    replace(COUNT, least=least).check("between: most", most)
    return Between(least, most)


def with_value(declared: int, now: int) -> int:
    """A declared number with its present value; the bounds of a Between are kept."""
    return Between(declared.least, declared.most, now) if isinstance(declared, Between) else now


NOTHING = Resources()
RESOURCES = Instance((Resources,), "what a task needs, as in Resources(num_cpus=1)")


@dataclass(frozen=True, kw_only=True)
class Internals:
    """Values of the runtime that are not settings. Simulations and tests choose others."""

    frame_records_max: int = 16_384  # records of one frame on the wire
    packet_bytes_max: int = 1 << 20  # about the most that one packet to another worker carries
    calls_in_flight_max: int = 4  # unanswered packets to one worker
    slice_s: float = 0.02  # work on one task before the mailbox is checked again
    window_s: float = 0.25  # how much work may wait before a task, as time of its processing
    sweep_grace_s: float = 1.0  # after a crash, until affected trees that are still pending fail
    peer_link_retry_s: float = 2.0  # before a worker that did not answer is tried again
    replay_share: float = 0.5  # of a spout's emits, while it has new records
    idle_poll_s: float = 0.1  # the longest time between two polls of an idle spout
    task_backoff_s: float = 0.1  # before a task that raised is tried again; doubled each time
    restart_backoff_s: float = 0.5  # before a crashing worker opens its tasks; doubled each time
    scaling_s: float = 10.0  # the unit of the periods in scaling.py


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of a topology, with Storm's key where Storm has one. Units are in the names.

    Raises ConfigError for a value out of range or two values that contradict each other.
    """

    #: How long a tree may take from its emit. Storm: topology.message.timeout.secs
    message_timeout_s: float = 30.0
    #: A progress deadline: if set, a tree may live this long after its emit, while reports on it
    #: arrive at least every `message_timeout_s`.
    message_timeout_max_s: float | None = None
    #: Acker shards; None: one for each worker with a spout (with `--layout isolate` one in all);
    #: 0: nothing is tracked. Storm: topology.acker.executors
    ackers: int | None = None
    #: Worker processes of the layout `pack`; with `between(1, 4)` they follow the load. Storm:
    #: topology.workers
    workers: int = 2
    #: Where workers are: "spread" evenly over all nodes, or on as few as possible, "pack".
    placement: Literal["spread", "pack"] = "spread"
    #: Pending roots of each spout task; "auto": as many as the complete latency allows, up to
    #: 32,768. Storm: topology.max.spout.pending
    spout_pending: int | Literal["auto"] = "auto"
    record_bytes_max: int = 1 << 24  #: Bytes of one record on the wire, not within a worker.
    #: The hard limit of records that wait between two tasks. In a cycle, which has no window, trees
    #: fail beyond it.
    window_records_max: int = 262_144
    attempts_max: int = 5  #: Attempts of a tuple whose bolt fails it, if its spout has no `retry=`.
    block_max_s: float = 60.0  #: How long one call of user code may take before its process ends.
    #: A worker without heartbeats for this time is replaced. Storm: supervisor.worker.timeout.secs
    worker_timeout_s: float = 20.0
    check_mutation: bool = False  #: Refuse bolts that change their input; for tests.
    #: Compile the functions of a stage into one; off: call one after the other, which takes longer.
    generated_stages: bool = True
    #: How long a tuple may fail with `unavailable` while others of that component succeed; then
    #: each such failure is charged. While all of them fail there is no limit.
    unavailable_max_s: float = 3_600.0
    #: Errors of a task in a row, outside the processing of tuples, until it is quarantined.
    task_errors_max: int = 5
    deaths_max: int = 6  #: Crashes in a row that one task causes, until it is quarantined.
    #: The share of the trees that is recorded for `sunshower trace`, besides replays; 0: nothing.
    trace_share: float = 0.0002
    internals: Internals = field(default=Internals(), repr=False)  # for simulations and tests

    def __post_init__(self) -> None:
        check_all(self, LIMITS)
        longest = self.message_timeout_max_s
        if longest is not None and longest < self.message_timeout_s:
            raise ConfigError(
                f"message_timeout_max_s is {longest:g}, shorter than a message_timeout_s of "
                f"{self.message_timeout_s:g}; it is the maximum age of a tree"
            )

    @property
    def spout_slots(self) -> int:
        """The size of a spout task's pending table."""
        return _AUTO_SLOTS if self.spout_pending == "auto" else self.spout_pending

    @property
    def tracked(self) -> bool:
        """Whether the topology has ackers."""
        return self.ackers != 0
