"""The Topology class: declares spouts and bolts, and checks each declaration."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import NoneType
from typing import Any, Literal, Never, Protocol, TypeVar, Unpack, overload

from sunshower.arguments import SECONDS, TASKS, Each, Instance, check_names
from sunshower.config import (
    LIMITS,
    NOTHING,
    RESOURCES,
    Config,
    Internals,
    Resources,
)
from sunshower.errors import (
    ConfigError,
    DuplicateComponent,
    RecordMismatch,
    TopologyError,
    UnknownComponent,
)
from sunshower.topologies.components import BatchFunction, Bolt, In, Out, R, Spout
from sunshower.topologies.describe import as_html, as_text
from sunshower.topologies.graph import (
    Component,
    Graph,
    Level,
    StreamSpec,
    Subscription,
    own_copy,
    upstream,
)
from sunshower.topologies.groupings import (
    All,
    Custom,
    Direct,
    Fields,
    Grouping,
    PartialKey,
    describe,
)
from sunshower.topologies.operators.joins.keyed_tables import with_waits
from sunshower.topologies.operators.keyed.process_settings import (
    BoltOptions,
    StateSettings,
    bolt_store,
)
from sunshower.topologies.operators.schemas import check_equal
from sunshower.topologies.operators.stages import RecordStage, StageRows, check_call_times
from sunshower.topologies.operators.state_shapes import check_states
from sunshower.topologies.operators.updates import Lineage, merged_lineage
from sunshower.topologies.operators.windows.declaring import with_watermarks
from sunshower.topologies.outputs import (
    COLUMNS,
    STREAMS,
    Declared,
    Streams,
    check_id,
    output_streams,
)
from sunshower.topologies.previews import failing_bolts, only
from sunshower.topologies.programs import ProgramModules
from sunshower.topologies.requests import answer_bolt, check_requests, request_spout
from sunshower.topologies.rescaling import check_bounds
from sunshower.topologies.retry import DEAD_LETTERS, DeadLetter, Retry, retry_streams
from sunshower.topologies.signatures import (
    BoltCode,
    Signature,
    bolt_signature,
    fits,
    name_of,
    spout_signature,
    tick_of,
)
from sunshower.topologies.sinks import JsonLines
from sunshower.topologies.streams import Grouped, Inputs, Stream


class Extension(Protocol):
    """An extension of a topology (such as Trident); created once, it adds components at the end."""

    def __init__(self, topology: Topology) -> None: ...
    def finish(self) -> None:
        """Add the remaining components. Called once, by `Topology.graph`."""

    def reopen(self) -> None:
        """Allow declarations again, and another `finish`."""

    def reduce_to(self, components: Collection[str]) -> None:
        """Leave out what none of these depends on."""


G = TypeVar("G", bound=Extension)
_CONFIG = Instance((Config, NoneType), "Config(workers=4), or the settings by name: workers=4")
_EVENT_TIME = Instance((str, Callable, NoneType), "a field, or a function of a record")
_TIMEOUT = SECONDS.or_else("none", None)
_INPUTS = Each(Instance((object,), "an input"), "a list of them: [stream.shuffle()]")


class Topology:
    """Spouts and bolts under one id. Each declaration is checked when it is made.

    `settings` are those of Config, over the ones in `config`. Raises ConfigError for a setting that
    Config does not have or refuses.
    """

    def __init__(
        self,
        id: str,
        *,
        config: Config | None = None,
        **settings: float | Literal["auto"] | Internals | None,
    ) -> None:
        check_id(id, "topology")
        _CONFIG.check(f"topology {id!r}: config", config)
        self.id = id
        changes: dict[str, Any] = settings
        named = [name for name in settings if name != "internals"]
        check_names(named, LIMITS, f"topology {id!r}")
        try:
            self.config = replace(config or Config(), **changes)
        except ConfigError as error:
            raise ConfigError(f"topology {id!r}: {error}") from None
        self._modules = ProgramModules()
        self._components: dict[str, Component] = {}
        self._extensions: dict[type[Extension], Extension] = {}
        self._finished: set[type[Extension]] = set()
        self._places: dict[str, str] = {}  # folder, or id of a sink → the declaration of its writer
        self._declared: dict[str, Component] | None = None  # before extensions added the rest

    def extension(self, kind: type[G]) -> G:
        """Return the extension of this type, created on the first call."""
        if kind not in self._extensions:
            self._extensions[kind] = kind(self)
        extension = self._extensions[kind]
        assert isinstance(extension, kind), f"{extension!r} is no {kind.__name__}"
        return extension

    def spout(
        self,
        id: str,
        impl: Spout[Out] | type[Spout[Out]],
        parallelism: int = 1,
        fields: Declared | None = None,
        streams: Streams | None = None,
        retry: Retry | None = None,
        message_timeout_s: float | None = None,
        tick_s: float | None = None,
        resources: Resources = NOTHING,
        event_time: str | Callable[[Any], Any] | None = None,
        idle_s: float | None = None,
        silent_s: float | None = None,
    ) -> Stream[Out]:
        """Declare a spout of `parallelism` tasks. `fields`, `streams`, `tick_s`, `resources` as for
        `bolt`.

        `event_time`: the event time of its records for the windows downstream: a field, or a
        function of a record, instead of its method `event_time`; None: that method, else the field
        of the window. `idle_s`: windows do not wait for a partition without a record for so long,
        or for a task without partitions; None: 30. `silent_s`: if no source of a window has had a
        record for so long, open windows end by the clock; None: they wait for the next record.

        `retry` is the policy for failed tuples. By default a tuple is emitted again until it has
        failed `attempts_max` times, and then the topology halts. `message_timeout_s` applies to
        this spout's trees; None: that of the topology.
        """
        where = f"topology {self.id!r}, spout {id!r}"
        self.check_new(id, parallelism, where, resources)
        signature = spout_signature(impl, where)
        STREAMS.check(f"{where}: streams", streams, TopologyError)
        streams = retry_streams(retry, impl, streams, where)
        outputs = output_streams(signature, impl, fields, streams, where)
        tick_s = tick_of(impl, tick_s, where)
        silence: dict[str, Any] = {"idle_s": idle_s, "silent_s": silent_s}
        for name, seconds in {"message_timeout_s": message_timeout_s, **silence}.items():
            _TIMEOUT.check(f"{where}: {name}", seconds, TopologyError)
        _check_event_time(event_time, outputs.values(), f"{where}: event_time")
        spout = Component(
            id,
            signature.level,
            impl,
            parallelism,
            outputs,
            retry=retry,
            message_timeout_s=message_timeout_s,
            tick_s=tick_s,
            resources=resources,
            event_time=event_time,
            **silence,
        )
        Graph(self.id, {id: spout}, self.config)  # raises if the two contradict each other
        self._components[id] = spout
        if retry is not None and not isinstance(retry.dead_letters, bool):
            letters = Stream[DeadLetter](self, id, DEAD_LETTERS)
            letters.shuffle().bolt(f"{id}-dead-letters", JsonLines(retry.dead_letters))
        return Stream(self, id)

    @overload
    def bolt(
        self,
        id: str,
        impl: BoltCode[In, Never],
        inputs: Inputs[In] = (),
        parallelism: int = 1,
        **out: Unpack[BoltOptions],
    ) -> Stream[Never]: ...
    @overload
    def bolt(
        self,
        id: str,
        impl: BoltCode[In, Out],
        inputs: Inputs[In] = (),
        parallelism: int = 1,
        **out: Unpack[BoltOptions],
    ) -> Stream[Out]: ...
    @overload
    def bolt(
        self,
        id: str,
        impl: BatchFunction,
        inputs: Sequence[Grouped[Any]] = (),
        parallelism: int = 1,
        *,
        fields: type[Out],
    ) -> Stream[Out]: ...
    @overload
    def bolt(
        self,
        id: str,
        impl: BatchFunction,
        inputs: Sequence[Grouped[Any]] = (),
        parallelism: int = 1,
        fields: Declared | None = None,
    ) -> Stream[Any]: ...
    def bolt(
        self,
        id: str,
        impl: Any,
        inputs: Any = (),
        parallelism: int = 1,
        fields: Declared | None = None,
        streams: Streams | None = None,
        tick_s: float | None = None,
        resources: Resources = NOTHING,
        **state: Unpack[StateSettings],
    ) -> Stream[Any]:
        """Declare a bolt of `parallelism` tasks that reads `inputs`; `into` adds more. The number
        may follow the load: `between(1, 8)`.

        Each task has an object of its own. If the bolt keeps a state, and there are several tasks,
        group its input by the key, as in `.fields("word")`: with `shuffle` each task sees a part of
        every key.

        `fields` declares the default stream's records if annotations do not: field names of plain
        tuples, a record type, or DirectStream of either. `streams` adds further streams by id.
        `tick_s` is the time between two calls of `tick`, for a class that has one. `resources`:
        what each task requests of its node. `state`: see StateSettings, for a class that declares
        `state: KeyValueState[…]`. Raises TopologyError or a subclass for an invalid declaration.
        """
        where = f"topology {self.id!r}, bolt {id!r}"
        self.check_new(id, parallelism, where, resources)
        signature = bolt_signature(impl, where)
        outputs = output_streams(signature, impl, fields, streams, where)
        store = bolt_store(impl, id, state, where)
        tick_s = tick_of(impl, tick_s, where)
        if store is not None and tick_s is None:
            tick_s = store.tick_s
        bolt = Component(id, signature.level, impl, parallelism, outputs, tick_s=tick_s)
        bolt = replace(bolt, store=store, resources=resources)
        _INPUTS.check(f"{where}: inputs", inputs, TopologyError)
        for grouped in inputs:
            bolt = self._with_input(bolt, grouped)
        self._components[id] = bolt
        return Stream(self, id)

    def requests(
        self,
        id: str,
        type: type[R] | Sequence[str],
        *,
        pending_max: int = 1_000,
        retry: Retry | None = None,
        message_timeout_s: float | None = None,
    ) -> Stream[R]:
        """Declare a stream of requests, which `run.ask` sends: records of `type`, or plain tuples
        with these fields. Some stream that follows from it ends with `answer()`.

        `pending_max`: further requests are refused. `retry`: by default a request whose tree user
        code fails is not tried again, so its caller has the failure at once.
        """
        where = f"topology {self.id!r}, requests {id!r}"
        self.check_new(id, 1, where)
        COLUMNS.check(f"{where}: type", type, TopologyError)
        outputs = output_streams(Signature(Level.REQUESTS, NoneType, Any), None, type, None, where)
        _TIMEOUT.check(f"{where}: message_timeout_s", message_timeout_s, TopologyError)
        spout = request_spout(id, outputs, pending_max, retry, message_timeout_s, where)
        self._components[id] = spout
        return Stream(self, id)

    def answer(self, stream: Stream[Any]) -> None:
        """Make the records of a stream answers of the requests that they follow from."""
        grouped, last = stream.global_(), stream.component
        graph = Graph(self.id, self._components, self.config)
        asked = [
            spout.id
            for spout in graph.spouts
            if spout.level is Level.REQUESTS and last in {spout.id, *graph.downstream(spout.id)}
        ]
        if not asked:
            raise TopologyError(
                f"{stream}, answer: no request leads there; its records must follow from "
                f"those of topology.requests(…)"
            )
        for id in asked:
            bolt = answer_bolt(id)
            if bolt.id not in self._components:
                self.check_new(bolt.id, 1, f"topology {self.id!r}, requests {id!r}")
                self._components[bolt.id] = bolt
            self.add_input(bolt.id, grouped)

    def begin_stage(
        self,
        id: str,
        inputs: Sequence[Grouped[Any]],
        parallelism: int,
        resources: Resources = NOTHING,
    ) -> StageRows[RecordStage]:
        """Declare a bolt for operators on the rows of `inputs`, which have one record type. Returns
        those rows."""
        where = f"topology {self.id!r}, stage {id!r}"
        self.check_new(id, parallelism, where, resources)
        has_columns = all(grouped.stream.has_columns for grouped in inputs)
        stage = RecordStage(id, inputs[0].stream.spec.schema, has_columns=has_columns)
        bolt = Component(id, Level.OPERATORS, stage, parallelism, resources=resources)
        for grouped in inputs:
            bolt = self._with_input(bolt, grouped)
        self._components[id] = bolt
        stage.input.lineage = merged_lineage([_lineage(grouped) for grouped in inputs])
        stage.input.on_updates = partial(self._read_updates, stage, inputs)
        return stage.input

    def _read_updates(self, stage: RecordStage, inputs: Sequence[Grouped[Any]]) -> None:
        """Let the rows of a stage arrive as updates."""
        bolt = self._components[stage.id]
        reads = tuple(
            Subscription(
                grouped.stream.component,
                grouped.stream.updates(stage).id,
                _of_updates(grouped.grouping),
            )
            for grouped in inputs
        )
        self._components[stage.id] = replace(bolt, inputs=reads)

    def declare_stream(self, component: str, spec: StreamSpec) -> None:
        """Add an output stream to a stage."""
        stage = self.component(component)
        self._components[component] = replace(stage, streams={**stage.streams, spec.id: spec})

    def unused_id(self, wish: str) -> str:
        """`wish` as the id of a component, or the same with a number."""
        names = (wish, *(f"{wish}-{number}" for number in range(2, len(self._components) + 3)))
        return next(name for name in names if name not in self._components)

    def component(self, id: str) -> Component:
        """Return the component declared under `id`. Raises UnknownComponent, which lists all."""
        if not isinstance(id, str) or id not in self._components:
            names = ", ".join(self._components) or "none yet"
            raise UnknownComponent(
                f"topology {self.id!r}: there is no component {id!r}; its components are: {names}"
            )
        return self._components[id]

    def add_input(self, bolt: str, grouped: Grouped[Any]) -> None:
        """Add an input to a bolt, for `grouped.into(bolt)`."""
        self._components[bolt] = self._with_input(self.component(bolt), grouped)

    def graph(self) -> Graph:
        """Return the frozen graph. Extensions add their components first, in the order of creation.

        Raises TopologyError if no spout feeds some bolt, no bolt reads the dead letters, or what
        has `between` cannot scale.
        """
        if self._declared is None:
            self._declared = dict(self._components)
        for kind, extension in self._extensions.items():
            if kind not in self._finished:
                extension.finish()
                self._finished.add(kind)
        components = with_waits(self._components, self.id)
        components = with_watermarks(components, self.id, tracked=self.config.tracked)
        _note_readers(components)
        compiled = {component.id: _compiled(component) for component in components.values()}
        graph = Graph(self.id, compiled, self.config, self._modules)
        fed = set().union(*(graph.downstream(spout.id) for spout in graph.spouts))
        if not graph.spouts:
            raise TopologyError(f"topology {self.id!r} has no spout; declare one, it comes first")
        if dry := [bolt.id for bolt in graph.bolts if bolt.id not in fed]:
            raise TopologyError(
                f"topology {self.id!r}: no record can ever reach {', '.join(map(repr, dry))}; "
                "give inputs=[stream.shuffle()], or stream.shuffle().into(...)"
            )
        check_requests(graph)
        check_bounds(graph)
        check_call_times(graph)
        check_states(graph)
        for spout in graph.spouts:
            if DEAD_LETTERS in spout.streams and not any(graph.subscribers(spout.id, DEAD_LETTERS)):
                raise TopologyError(
                    f"topology {self.id!r}: no bolt reads the dead letters of spout {spout.id!r}; "
                    f"connect spout.stream({DEAD_LETTERS!r}).shuffle() to a bolt, or name a file: "
                    'retry=Retry(dead_letters="dead.jsonl")'
                )
        return graph

    def reopen(self) -> None:
        """Allow further declarations, also after `graph`."""
        if self._declared is not None:
            self._components, self._declared = dict(self._declared), None
        self._finished.clear()
        for extension in self._extensions.values():
            extension.reopen()

    def reduced_to(self, id: str, where: str) -> Graph:
        """The graph of one bolt and of what its records are made by. Nothing else can be declared
        or built afterwards. Raises TopologyError for requests; `where` begins its message."""
        ids = {id, *upstream(self._components, self._components[id].inputs)}
        failing = failing_bolts(self._components, ids)
        reads = [read for name in failing for read in self._components[name].inputs]
        ids |= failing | {*upstream(self._components, reads)}
        for extension in self._extensions.values():
            extension.reduce_to(ids)
        self._components = only(self._components, ids, where)
        _note_readers(self._components)
        for component in self._components.values():
            if isinstance(component.implementation, RecordStage) and component.id not in failing:
                component.implementation.drop_unread()
        return self.graph()

    def _repr_html_(self) -> str:
        """The graph, in a notebook."""
        return as_html(self._so_far())

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(as_text(self._so_far(), internals=False))

    def _so_far(self) -> Graph:
        """The graph of what is declared, also if it is not complete. What `graph` adds would end
        the declarations, so a copy gets it."""
        copied: Topology = own_copy(self, f"topology {self.id!r}")
        with suppress(TopologyError):
            return copied.graph()
        return Graph(self.id, self._components, self.config)

    def check_new(
        self, id: str, parallelism: int, where: str, resources: Resources = NOTHING
    ) -> None:
        """Raise TopologyError for what no new component can have."""
        check_id(id, where)
        if id in self._components:
            raise DuplicateComponent(
                f"{where}: there is a component {id!r} already; give another id or name=. The ids "
                f"in use are: {', '.join(self._components)}"
            )
        TASKS.check(f"{where}: parallelism", parallelism, TopologyError)
        RESOURCES.check(f"{where}: resources", resources, TopologyError)

    def keep_place(self, place: str, where: str) -> None:
        """Register the folder of a table or a sink, or another name of a receiver. Raises
        DuplicateComponent if it is taken."""
        if place in self._places:
            raise DuplicateComponent(
                f"{where}: {place} is that of {self._places[place]} already, and has one place "
                "that writes it: give this one another, or merge the streams"
            )
        self._places[place] = where

    def _with_input(self, bolt: Component, grouped: Grouped[Any]) -> Component:
        where = f"topology {self.id!r}, bolt {bolt.id!r}"
        if not isinstance(grouped, Grouped):
            raise TopologyError(
                f"{where}: {type(grouped).__name__} is not an input; {_input_hint(grouped)}"
            )
        stream, spec = grouped.stream, grouped.stream.spec
        source = f"stream {stream.id!r} of {stream.component!r}"
        if stream.topology is not self:
            raise TopologyError(
                f"{where}: {source} belongs to topology {stream.topology.id!r}; a "
                "bolt reads streams of its own topology"
            )
        if bolt.level.is_spout:
            raise TopologyError(f"{where} is a spout, without inputs; connect {source} to a bolt")
        reads: Any = Any
        if isinstance(bolt.implementation, RecordStage):
            check_equal(bolt.implementation.input.schema, spec.schema, where)
        else:
            reads = bolt_signature(bolt.implementation, where).reads
        if not fits(reads, spec.schema):
            raise RecordMismatch(
                f"{where}: it reads {name_of(reads)}, but {source} carries "
                f"{spec.schema.name}; read another stream, or annotate it so"
            )
        if any((i.source, i.stream) == (stream.component, stream.id) for i in bolt.inputs):
            raise TopologyError(f"{where}: it reads {source} already; one grouping for each stream")
        code = bolt.implementation
        if isinstance(code, Bolt) and type(code).check_input is not Bolt.check_input:
            code = own_copy(code, where)  # it may keep the schema; `bolt` may be in other places
            code.check_input(spec.schema)
            bolt = replace(bolt, implementation=code)
        is_keyed = isinstance(grouped.grouping, Fields)
        if bolt.store is not None and bolt.parallelism > 1 and not is_keyed:
            raise TopologyError(
                f"{where}: it has a state for each key, and {describe(grouped.grouping)} sends a "
                "key to any task; read the stream with .fields(…), or with parallelism=1"
            )
        subscription = Subscription(stream.component, stream.id, grouped.grouping)
        return replace(bolt, inputs=(*bolt.inputs, subscription))


def _note_readers(components: Mapping[str, Component]) -> None:
    """Tell each stage which of its streams are read."""
    reads = [read for component in components.values() for read in component.inputs]
    for id, component in components.items():
        if isinstance(component.implementation, RecordStage):
            component.implementation.subscribed = frozenset(
                read.stream for read in reads if read.source == id
            )


def _check_event_time(event_time: Any, streams: Iterable[StreamSpec], where: str) -> None:
    """Raise TopologyError, or UnknownField, unless it is None, a function, or a field of each of
    these streams."""
    _EVENT_TIME.check(where, event_time, TopologyError)
    for stream in streams if isinstance(event_time, str) else ():
        if stream.id != DEAD_LETTERS:
            stream.schema.check_field(event_time, where)


def _lineage(grouped: Grouped[Any]) -> Lineage | None:
    """That of the records of a stream as its reader gets them."""
    lineage = grouped.stream.lineage
    if lineage is None or not isinstance(grouped.grouping, All | Custom | Direct):
        return lineage
    return replace(lineage, blocked=f"the grouping {describe(grouped.grouping)}")


def _of_updates(grouping: Grouping) -> Grouping:
    """The grouping of updates instead of their rows, on the way to the task of their groups."""
    return Fields(("origin",)) if isinstance(grouping, Fields | PartialKey) else grouping


def _compiled(component: Component) -> Component:
    if not isinstance(component.implementation, RecordStage):
        return component
    bolt = component.implementation.compiled()
    return replace(component, implementation=bolt, tick_s=bolt.tick_s)


def _input_hint(value: object) -> str:
    """Return what to give instead; an extension's stream has its own `input_hint`."""
    usual = "say how the stream is shared out, as in stream.shuffle()"
    return str(getattr(value, "input_hint", usual))
