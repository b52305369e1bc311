"""Prepares the graph of a topology for a test: replaced components, captured streams, crashes."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import partial, wraps
from typing import Any, Generic, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from sunshower.arguments import checked
from sunshower.errors import ConfigError, TopologyError, UnknownComponent, UnknownStream
from sunshower.failures import Failure
from sunshower.runtime.tasks.user_code import is_generator
from sunshower.simulation.worker import Killed
from sunshower.topologies.components import DEFAULT, Bolt, Context, Spout
from sunshower.topologies.graph import Component, Graph, Level, Subscription
from sunshower.topologies.groupings import Global
from sunshower.topologies.logs import LogSpout, Polled
from sunshower.topologies.operators.windows.watermarks import WATERMARKS
from sunshower.topologies.signatures import bolt_signature, spout_signature, tick_of
from sunshower.topologies.topology import Topology

Call: TypeAlias = Callable[..., Any]
_METHODS = {
    Level.FUNCTION: "__call__",
    Level.PROCESS: "process",
    Level.EXECUTE: "execute",
    Level.BATCH: "process",
}


# ---- feeder --------------------------------------------------------------------------------------
# The spout that a test feeds with records, and that shows which were acked and which failed.
#
# As in Storm: see org.apache.storm.testing.FeederSpout

R = TypeVar("R")


class Shared:
    """Base class of an object that all tasks of a test share, such as a fake database.

    Every task has a copy of its spout or bolt; the copy of a Shared object is the object itself.
    It outlives simulated processes, as a real database would. It exists in one process only.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> Any:
        raise ConfigError(
            f"a {type(self).__name__} cannot be sent to another process: run the topology with "
            "sunshower.testing, which uses one process"
        )


class _Fed(Shared, Generic[R]):
    """What the copies of one feeder share."""

    def __init__(self) -> None:
        self.records: list[R] = []  # the index is the message number
        self.ended = False
        self.begun = False
        self.acked: dict[int, None] = {}  # numbers, in the order of their acks
        self.failed: list[tuple[int, Failure]] = []


class Feeder(LogSpout[R]):
    """Emits the records that a test passes to `feed`, and ends after `end`.

    Each record is a message of its own. One that fails is emitted again, as the Retry of the spout
    says; a task that restarts continues with those that are not acked. `type` or `fields` declares
    the records; a feeder that takes the place of a spout needs neither. Each spout of each run has
    a feeder of its own.
    """

    @checked(TopologyError, "Feeder", records=None)
    def __init__(
        self, *records: R, type: type[R] | None = None, fields: Sequence[str] | None = None
    ) -> None:
        self.emits = type or fields
        self._fed = _Fed[R]()
        self.feed(*records)

    # ---- for the test ----------------------------------------------------------------------------

    def feed(self, *records: R) -> None:
        """Add records to emit. Raises TopologyError after `end`."""
        if records and self._fed.ended:
            raise TopologyError("this Feeder has ended; feed it before end()")
        self._fed.records += records

    def end(self) -> None:
        """Declare that no record follows, so that the topology can finish."""
        self._fed.ended = True

    @property
    def fed(self) -> list[R]:
        """All records, in the order in which they were fed."""
        return [*self._fed.records]

    @property
    def acks(self) -> list[R]:
        """The records whose trees are complete, and dead letters, in the order of their acks."""
        return [self._fed.records[number] for number in self._fed.acked]

    @property
    def pending(self) -> list[R]:
        """The records that are not acked, in the order in which they were fed."""
        numbered = enumerate(self._fed.records)
        return [record for number, record in numbered if number not in self._fed.acked]

    @property
    def failures(self) -> list[tuple[R, Failure]]:
        """Each failed attempt with its record, in the order of the failures."""
        return [(self._fed.records[number], failure) for number, failure in self._fed.failed]

    # ---- for the runtime -------------------------------------------------------------------------

    def begin(self, where: str) -> None:
        """Take part in a run, as the spout `where`. Raises TopologyError if it is not the first."""
        if self._fed.begun:
            raise TopologyError(
                f"{where}: this Feeder already feeds a spout of this run or of an earlier one; "
                "make a new Feeder for each spout and each run"
            )
        self._fed.begun = True

    def open(self, context: Context) -> None:
        self._next, self._step = context.index, context.parallelism

    def poll(self, limit: int) -> Polled[R]:
        fed, numbers = self._fed, list[int]()
        while self._next < len(fed.records) and len(numbers) < limit:
            if self._next not in fed.acked:
                numbers.append(self._next)
            self._next += self._step
        records = [fed.records[number] for number in numbers]
        ended = fed.ended and self._next >= len(fed.records)
        return Polled(np.array(numbers, np.int64), records, ended=ended)

    def has_read_first(self) -> bool:
        return self._next >= len(self._fed.records)

    def from_start(self) -> Feeder[R]:
        feeder = copy(self)
        feeder._fed = _Fed[R]()
        feeder._fed.records = self._fed.records
        return feeder

    def acked(self, numbers: NDArray[np.int64]) -> None:
        self._fed.acked.update(dict.fromkeys(numbers.tolist()))

    def fail(self, message_id: int, failure: Failure) -> None:
        self._fed.failed.append((message_id, failure))


# ---- prepared graph ------------------------------------------------------------------------------


class CapturedStream(Shared, Bolt[Any, None]):
    """Keeps the records of one stream, in the order in which they arrive."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def process(self, record: Any) -> None:
        self.records.append(record)


class CrashPoints(Shared):
    """After which calls of user code a process ends: component → how many records from now."""

    def __init__(self) -> None:
        self._left: Counter[str] = Counter()

    def add(self, component: str, records: int) -> None:
        self._left[component] = records

    def count(self, component: str, records: int = 1) -> None:
        """Count processed records. Raises Killed at the crash point."""
        if self._left[component] > 0:
            self._left[component] -= records
            if self._left[component] <= 0:
                raise Killed

    def left(self) -> dict[str, int]:
        """The crash points that are not reached: component → how many records are missing."""
        return dict(+self._left)


@dataclass(frozen=True)
class _CountedBolt(Component):
    """A bolt whose processed records are counted."""

    points: CrashPoints | None = None

    def instance(self) -> Any:
        bolt = super().instance()
        assert self.points is not None
        counted = partial(_counted, component=self.id, points=self.points)
        if self.level is not Level.OPERATORS:
            method, whole = _METHODS[self.level], self.level is Level.BATCH
            if self.level is Level.FUNCTION or inspect.isroutine(bolt):
                return counted(bolt, whole=whole)
            # not setattr: the bolt may be a frozen dataclass
            object.__setattr__(bolt, method, counted(getattr(bolt, method), whole=whole))
        elif bolt.passes:  # `expand` is not called
            bolt.gather = counted(bolt.gather, whole=True)
        else:
            bolt.prepare = partial(_prepare_counted, bolt, bolt.prepare, counted)
        return bolt


@dataclass(frozen=True)
class PreparedGraph:
    """A graph to run in a test, and what the test reads of it afterwards."""

    graph: Graph
    declared: Graph  # without captured streams
    feeders: Mapping[str, Feeder[Any]]  # spout → what feeds it
    streams: Mapping[tuple[str, str], CapturedStream]  # component, stream → its records
    points: CrashPoints

    def captured(self, component: str, stream: str | None) -> list[Any]:
        """The records of a stream; None: of the default one, or the only one. Raises
        UnknownComponent and UnknownStream."""
        where = check_component(self.declared, component)
        bolts = {id: bolt for (name, id), bolt in self.streams.items() if name == component}
        if stream is None:
            stream = next(iter(bolts)) if len(bolts) == 1 else DEFAULT
        if not isinstance(stream, str) or stream not in bolts:
            raise UnknownStream(
                f"{where}: no stream {stream!r} is captured; captured are: "
                f"{', '.join(map(repr, bolts)) or 'none'}. Direct streams cannot be, and the rows "
                "of an operator only if something reads them"
            )
        return [*bolts[stream].records]

    def check_can_crash(self, component: str) -> None:
        """Raise UnknownComponent, and TopologyError unless it is a bolt with plain functions."""
        where = check_component(self.declared, component)
        if not isinstance(self.graph.components[component], _CountedBolt):
            raise TopologyError(
                f"{where}: records are counted in bolts without async functions only; kill the "
                f"process of another component with inject(kill(component({component!r})))"
            )


def check_component(graph: Graph, component: str) -> str:
    """Return how errors name a component. Raises UnknownComponent, which lists all."""
    if not isinstance(component, str) or component not in graph.components:
        raise UnknownComponent(
            f"topology {graph.id!r}: there is no component {component!r}; its components are: "
            + ", ".join(graph.components)
        )
    return f"topology {graph.id!r}, component {component!r}"


def prepare_graph(topology: Topology, replaced: Mapping[str, Any]) -> PreparedGraph:
    """Return the graph of a topology with other code in some components.

    `replaced`: component → a Feeder, another Spout, or the records to feed, for a spout; a function
    or a Bolt for a bolt. Bolts that change their input records end the topology. Raises
    UnknownComponent, and TopologyError for code that does not fit and for a Feeder of another run.
    """
    declared = topology.graph()
    components, feeders = dict(declared.components), dict[str, Feeder[Any]]()
    for id, code in replaced.items():
        where = check_component(declared, id)
        replace_by = _with_source if components[id].level.is_spout else _with_bolt
        components[id] = replace_by(components[id], code, where)
    for id, component in components.items():
        if isinstance(component.implementation, Feeder):
            component.implementation.begin(check_component(declared, id))
            feeders[id] = component.implementation
    points = CrashPoints()
    declared = replace(declared, components=components)
    counted = {id: _with_points(component, points) for id, component in components.items()}
    streams = {place: CapturedStream() for place in _streams(components.values())}
    for (id, stream), bolt in streams.items():
        name = f"captured-{id}-{stream}"
        inputs = (Subscription(id, stream, Global()),)
        counted[name] = Component(name, Level.PROCESS, bolt, inputs=inputs)
    config = replace(declared.config, check_mutation=True)
    graph = replace(declared, components=counted, config=config)
    return PreparedGraph(graph, declared, feeders, streams, points)


def _with_source(spout: Component, source: Any, where: str) -> Component:
    if not isinstance(source, Spout) and not isinstance(source, type):
        if not isinstance(source, Iterable) or isinstance(source, str | bytes):
            raise TopologyError(
                f"{where}: {source!r:.80} is not a list of records, a Feeder or a Spout"
            )
        source = Feeder[Any](*source)
        source.end()
    level = spout_signature(source, where).level
    return replace(spout, implementation=source, level=level, tick_s=tick_of(source, None, where))


def _with_bolt(bolt: Component, code: Any, where: str) -> Component:
    level, tick_s = bolt_signature(code, where).level, tick_of(code, None, where)
    return replace(bolt, implementation=code, level=level, tick_s=tick_s, store=None)


def _streams(components: Iterable[Component]) -> Iterable[tuple[str, str]]:
    for component in components:
        for stream in component.streams.values():
            if not stream.direct and stream.id != WATERMARKS and stream.schema.fields:
                yield component.id, stream.id


def _with_points(component: Component, points: CrashPoints) -> Component:
    code, level = component.implementation, component.level
    if level is Level.OPERATORS:
        can_crash = not code.concurrency
    else:
        can_crash = level in _METHODS and not _is_async(code, _METHODS[level])
    if not can_crash:
        return component
    values = {part.name: getattr(component, part.name) for part in fields(Component)}
    return _CountedBolt(**values, points=points)


def _is_async(code: Any, method: str) -> bool:
    call = code if inspect.isroutine(code) else getattr(code, method)
    return inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call)


def _prepare_counted(
    bolt: Any, prepare: Call, counted: Callable[..., Call], context: Context
) -> None:
    prepare(context)  # this makes `expand`
    bolt.expand = counted(bolt.expand, yields=True)


def _counted(
    call: Call, component: str, points: CrashPoints, *, whole: bool = False, yields: bool = False
) -> Call:
    """`call`, which counts when it is done: one record, or `whole`, all rows that it is given.
    `yields`: it returns an iterable, and is done when that has ended."""
    if yields or is_generator(call):

        @wraps(call)
        def yielding(*arguments: Any) -> Any:
            yield from call(*arguments)
            points.count(component)

        return yielding

    @wraps(call)
    def calling(*arguments: Any) -> Any:
        result = call(*arguments)
        points.count(component, len(arguments[0]) if whole else 1)
        return result

    return calling
