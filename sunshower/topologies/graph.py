"""The frozen graph: the checked declaration of a topology, as the runtime reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property, partial
from types import MethodType
from typing import Any

from sunshower.config import NOTHING, Config, Resources
from sunshower.errors import ConfigError, TopologyError, user_errors
from sunshower.records import Schema
from sunshower.topologies.components import BatchBolt, Bolt, Spout
from sunshower.topologies.groupings import Grouping
from sunshower.topologies.operators.windows.event_times import TimeField
from sunshower.topologies.programs import ProgramModules
from sunshower.topologies.retry import DEAD_LETTERS, Retry


def is_internal(name: str) -> bool:
    """Whether a component or a stream is the plumbing of batches or of watermarks, which no user
    has declared."""
    return name.startswith(("$", "__"))


class Level(Enum):
    """How the runtime calls a component's code."""

    RECORDS = "spout: records()"
    TABLES = "spout: tables()"
    LOG = "spout: poll(limit)"
    NEXT_TUPLE = "spout: next_tuple(out)"
    REQUESTS = "spout: requests of callers"
    FUNCTION = "bolt: a function of a record"
    PROCESS = "bolt: process(record)"
    EXECUTE = "bolt: execute(tuple, out)"
    BATCH = "bolt: columns"
    OPERATORS = "bolt: operators on rows"
    ANSWERS = "bolt: answers of requests"

    @property
    def is_spout(self) -> bool:
        return self.value.startswith("spout")

    @property
    def counts_records(self) -> bool:
        """Whether messages are numbered 0, 1, 2 … in the order of their source."""
        return self in (Level.RECORDS, Level.TABLES)

    @property
    def keeps_numbers(self) -> bool:
        """Whether a message keeps its number when the spout task restarts."""
        return self.counts_records or self is Level.LOG


@dataclass(frozen=True)
class StreamSpec:
    """One output stream of a component."""

    id: str
    schema: Schema
    direct: bool = False  # only emit_direct sends on it


@dataclass(frozen=True)
class Subscription:
    """One input of a bolt: a stream of another component, and its grouping."""

    source: str
    stream: str
    grouping: Grouping


def own_copy(code: Any, where: str) -> Any:
    """Return a copy of user code for one task. Functions, bound methods and classes are returned as
    they are. Raises TopologyError for an object that cannot be copied."""
    if isinstance(code, MethodType | partial):
        return code
    try:
        return deepcopy(code)
    except user_errors() as error:
        raise TopologyError(
            f"{where}: {type(code).__name__} cannot be copied, and each task needs a copy of its "
            f"own ({type(error).__name__}: {error}). Open files, locks and connections in prepare, "
            "or in open for a spout"
        ) from error


@dataclass(frozen=True)
class Component:
    """A spout or a bolt as declared. `implementation` is a function, a class, or an instance.

    `message_timeout_s` applies to a spout's trees; None: that of Config. `tick_s` is the time
    between two calls of `tick`; None: never.
    """

    id: str
    level: Level
    implementation: Any
    parallelism: int = 1
    streams: Mapping[str, StreamSpec] = field(default_factory=dict)
    inputs: tuple[Subscription, ...] = ()
    message_timeout_s: float | None = None
    tick_s: float | None = None
    retry: Retry | None = None  # spouts; None: Config.attempts_max and the defaults of Retry
    beside: str | None = None  # answers: the requests, which run in the same worker
    windows: int = 0  # spouts: how many windows are downstream
    # for those: stream → the field with the event time, and what is declared of it
    event_times: Mapping[str, TimeField] = field(default_factory=dict)
    event_time: Any = None  # spouts: a field, or a function of a record, instead of that field
    idle_s: float | None = None  # spouts: how long a silent partition holds windows back; None: 30
    silent_s: float | None = None  # spouts: windows end after so long without a record; None: never
    awaits: tuple[str, ...] = ()  # spouts: those that fill the tables which its records are joined
    # with; it draws no record before all that they had at first is in these tables
    refills: tuple[str, ...] = ()  # tables in memory: the spouts from whose sources a task is
    # filled again whose process has died
    store: Any = None  # bolts: the KeyedStore of its state, if its class has one
    resources: Resources = NOTHING  # of each task

    @property
    def reads_dead_letters(self) -> bool:
        return any(read.stream == DEAD_LETTERS for read in self.inputs)

    @property
    def is_of_batches(self) -> bool:
        """Whether it belongs to an exactly-once program."""
        return hasattr(self.implementation, "__sunshower_batches__")

    @property
    def operators(self) -> Sequence[Any]:
        """The operators of a stage of records or of batches, of a frozen graph."""
        is_stage = self.level is Level.OPERATORS or self.is_of_batches
        operators: Sequence[Any] = getattr(self.implementation, "operators", ()) if is_stage else ()
        return operators

    @property
    def continues(self) -> bool:
        """Whether it is a spout that may start where the one of a former run has stopped."""
        if not self.level.is_spout or self.level in (Level.RECORDS, Level.TABLES):
            return False
        return bool(getattr(self.implementation, "continues", True))

    def instance(self) -> Any:
        """Return the object (or function) of one task: no two tasks share an object, be it a
        spout, a bolt or a callable. Raises TopologyError for one that cannot be copied."""
        if isinstance(self.implementation, type):
            return self.implementation()
        return own_copy(self.implementation, f"component {self.id!r}")


# These need only a position; LOG spouts keep it themselves.
_MOVABLE = {Level.FUNCTION, Level.RECORDS, Level.TABLES, Level.LOG}
_MOVABLE |= {Level.REQUESTS, Level.ANSWERS}  # callers send their requests again


def can_move(component: Component) -> bool:
    """Whether a task of it can continue in another process without losing state.

    Functions, and the positions of records() and tables(), can move, and so can a bolt with a keyed
    state; other state in memory can if the class implements `snapshot` and `restore`.
    """
    code = component.implementation
    if component.level in _MOVABLE or hasattr(code, "__sunshower_batch__"):
        return True
    if component.store is not None:
        return True
    kind = code if isinstance(code, type) else type(code)
    bases = (Bolt, BatchBolt, Spout)
    base = next((base for base in bases if issubclass(kind, base)), None)
    hooks = ("snapshot", "restore")
    return base is not None and all(getattr(kind, h) is not getattr(base, h) for h in hooks)


def upstream(components: Mapping[str, Component], inputs: Iterable[Subscription]) -> list[str]:
    """The ids of all components whose records reach these inputs, in declared order."""
    ids, waiting = set[str](), [read.source for read in inputs]
    while waiting:
        if (id := waiting.pop()) not in ids:
            ids.add(id)
            waiting += [read.source for read in components[id].inputs]
    return [id for id in components if id in ids]


@dataclass(frozen=True)
class Graph:
    """A checked topology: every component, stream and field in a subscription exists. `modules`:
    those of this process when it was declared. `given`: settings of `config` that a command has
    instead of the program, with the value of the program.

    Raises ConfigError if a spout's own settings contradict `config`.
    """

    id: str
    components: Mapping[str, Component]
    config: Config = field(default_factory=Config)
    modules: ProgramModules | None = field(default=None, compare=False, repr=False)
    given: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def declared(self, setting: str) -> Any:
        """The value of a setting in the program."""
        return self.given.get(setting, getattr(self.config, setting))

    def __post_init__(self) -> None:
        for spout in self.spouts:
            try:
                self.config_of(spout)
            except ConfigError as error:
                raise ConfigError(f"topology {self.id!r}, spout {spout.id!r}: {error}") from None

    @property
    def spouts(self) -> list[Component]:
        return [c for c in self.components.values() if c.level.is_spout]

    @property
    def bolts(self) -> list[Component]:
        return [c for c in self.components.values() if not c.level.is_spout]

    @property
    def awaited(self) -> frozenset[str]:
        """The ids of the spouts that others wait for."""
        return frozenset(id for spout in self.spouts for id in spout.awaits)

    @cached_property
    def refilled(self) -> frozenset[str]:
        """The ids of the tables that are filled again after the death of their process."""
        return frozenset(bolt.id for bolt in self.bolts if bolt.refills)

    @property
    def unavailable(self) -> tuple[type[BaseException], ...]:
        """The exception types that the spouts' Retry declares as outages of a dependency."""
        retries = [spout.retry for spout in self.spouts if spout.retry is not None]
        return tuple({kind: None for retry in retries for kind in retry.unavailable})

    def begin_outputs(self) -> None:
        """Let sinks replace the files that a former run has written here. An adapter calls it for a
        new run, before any task runs; not if it resumes from a savepoint.

        A sink is told whether its output continues: that of dead letters does, which may still be
        replayed, and that of sources which decide themselves where they start: `next_tuple` and
        `poll` (Kafka, requests), and batches whose progress is stored. Then what they will emit
        follows what the file has. Sources with `records` or `tables` are read from their start.
        """
        for bolt in self.bolts:
            begin = getattr(bolt.implementation, "__sunshower_begin__", None)
            if callable(begin) and not isinstance(bolt.implementation, type):
                sources = upstream(self.components, bolt.inputs)
                begin(
                    bolt.parallelism,
                    continues=bolt.reads_dead_letters
                    or any(self.components[id].continues for id in sources),
                )

    def config_of(self, component: Component) -> Config:
        """Return the settings of `component`: its own over those of the topology."""
        if component.message_timeout_s is None:
            return self.config
        return replace(self.config, message_timeout_s=component.message_timeout_s)

    def subscribers(self, source: str, stream: str) -> Iterator[tuple[Component, Subscription]]:
        """Yield every (bolt, subscription) that reads `stream` of `source`, in declared order."""
        for bolt in self.bolts:
            for subscription in bolt.inputs:
                if (subscription.source, subscription.stream) == (source, stream):
                    yield bolt, subscription

    def may_hold(self, source: str) -> bool:
        """Whether a bolt downstream of `source` may keep tuples before it acks them."""
        reached = self.downstream(source)
        return any(bolt.id in reached and bolt.level is Level.EXECUTE for bolt in self.bolts)

    def combines_rows(self, source: str) -> bool:
        """Whether a stage downstream of `source` makes rows of several records of a batch."""
        stages = (self.components[id] for id in self.downstream(source))
        return any(
            stage.level is Level.OPERATORS and stage.implementation.stream is None
            for stage in stages
        )

    def downstream(self, source: str) -> set[str]:
        """Return the ids of all components that a record of `source` can reach."""
        ids: set[str] = set()
        frontier = [source]
        while frontier:
            here = frontier.pop()
            for bolt in self.bolts:
                if bolt.id not in ids and any(s.source == here for s in bolt.inputs):
                    ids.add(bolt.id)
                    frontier.append(bolt.id)
        return ids
