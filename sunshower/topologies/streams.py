"""Streams and their groupings: the handles that declarations return and accept as inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Never,
    Protocol,
    TypeAlias,
    TypeVar,
    Unpack,
    overload,
)

from sunshower.errors import RecordMismatch, TopologyError, UnknownStream
from sunshower.topologies import groupings
from sunshower.topologies.components import DEFAULT, BatchFunction, In, Out, R
from sunshower.topologies.graph import Component, StreamSpec
from sunshower.topologies.outputs import Declared, Outputs, Streams
from sunshower.topologies.signatures import BoltCode, name_of

R_co = TypeVar("R_co", covariant=True)


class Declarations(Protocol):
    """What a stream needs of its topology."""

    id: str

    @property
    def bolt(self) -> Callable[..., Stream[Any]]: ...
    def component(self, id: str) -> Component: ...
    def add_input(self, bolt: str, grouped: Grouped[Any]) -> None: ...


class Stream(Generic[R_co]):
    """One output stream of a component, and the handle of that component.

    Each method but `stream` chooses the grouping for a bolt's tasks; see `topologies/groupings.py`.
    They raise UnknownStream for a component without such a stream, UnknownField for a field that
    its records do not have, and TopologyError for a direct stream without `direct`, or the reverse.
    """

    def __init__(self, topology: Declarations, component: str, id: str = DEFAULT) -> None:
        self.topology, self.component, self.id = topology, component, id

    @overload
    def stream(self, id: str) -> Stream[Any]: ...
    @overload
    def stream(self, id: str, type: type[R]) -> Stream[R]: ...
    def stream(self, id: str, type: type[Any] | None = None) -> Stream[Any]:
        """Return another output stream of this component, whose records are of `type`.

        Raises UnknownStream, or RecordMismatch if they are not.
        """
        found = Stream[Any](self.topology, self.component, id)
        schema = found.spec.schema
        if type is not None and schema.type is not type:
            raise RecordMismatch(f"{found}: its records are {schema.name}, not {name_of(type)}")
        return found

    if not TYPE_CHECKING:  # hidden from mypy

        def bolt(self, *_: object, **__: object) -> Never:
            """Raise TopologyError, which asks for a grouping first."""
            raise TopologyError(
                f"{self}: say how its records are shared out among the tasks of a bolt, as in "
                ".shuffle().bolt(…) or .fields(…).bolt(…)"
            )

    def shuffle(self) -> Grouped[R_co]:
        return Grouped(self, groupings.Shuffle())

    def fields(self, *fields: str) -> Grouped[R_co]:
        return Grouped(self, groupings.Fields(fields))

    def partial_key(self, *fields: str) -> Grouped[R_co]:
        return Grouped(self, groupings.PartialKey(fields))

    def all(self) -> Grouped[R_co]:
        return Grouped(self, groupings.All())

    def global_(self) -> Grouped[R_co]:
        return Grouped(self, groupings.Global())

    def none(self) -> Grouped[R_co]:
        return Grouped(self, groupings.NoneGrouping())

    def direct(self) -> Grouped[R_co]:
        return Grouped(self, groupings.Direct())

    def local_or_shuffle(self) -> Grouped[R_co]:
        return Grouped(self, groupings.LocalOrShuffle())

    def custom(self, grouping: groupings.CustomGrouping) -> Grouped[R_co]:
        return Grouped(self, groupings.Custom(grouping))

    @property
    def spec(self) -> StreamSpec:
        """The declaration of this stream. Raises UnknownStream, which lists the streams."""
        streams = self.topology.component(self.component).streams
        if not isinstance(self.id, str) or self.id not in streams:
            raise UnknownStream(
                f"{self}: there is no such stream; the streams of "
                f"{self.component!r} are: {', '.join(streams) or 'none'}"
            )
        return streams[self.id]

    def __str__(self) -> str:
        return f"topology {self.topology.id!r}, stream {self.id!r} of {self.component!r}"


class Grouped(Generic[R_co]):
    """A stream and its grouping: the input of a bolt."""

    def __init__(self, stream: Stream[R_co], grouping: groupings.Grouping) -> None:
        self.stream, self.grouping = stream, grouping
        spec, word = stream.spec, groupings.describe(grouping)
        match grouping:
            case groupings.Fields(fields=fields) | groupings.PartialKey(fields=fields):
                if not fields:
                    raise TopologyError(
                        f"{stream}: {word} needs a field, one of: {', '.join(spec.schema.fields)}"
                    )
                for field in fields:
                    spec.schema.check_field(field, str(stream))
            case groupings.Custom(grouping=custom):
                if not (hasattr(custom, "prepare") and hasattr(custom, "choose")):
                    raise TopologyError(
                        f"{stream}: {word} needs an object with prepare(targets) "
                        "and choose(record), as in CustomGrouping"
                    )
        if spec.direct != isinstance(grouping, groupings.Direct):  # Storm: Task.java:124,160
            raise TopologyError(
                f"{stream} is a direct stream, which only .direct() reads, not {word}"
                if spec.direct
                else f"{stream} is not a direct stream: read it with another grouping than direct, "
                "or declare it as DirectStream(...)"
            )

    @overload
    def bolt(
        self, id: str, impl: BoltCode[R_co, Never], parallelism: int = 1, **out: Unpack[Outputs]
    ) -> Stream[Never]: ...
    @overload
    def bolt(
        self, id: str, impl: BoltCode[R_co, Out], parallelism: int = 1, **out: Unpack[Outputs]
    ) -> Stream[Out]: ...
    @overload
    def bolt(
        self, id: str, impl: BatchFunction, parallelism: int = 1, *, fields: type[Out]
    ) -> Stream[Out]: ...
    @overload
    def bolt(
        self, id: str, impl: BatchFunction, parallelism: int = 1, fields: Declared | None = None
    ) -> Stream[Any]: ...
    def bolt(
        self,
        id: str,
        impl: Any,
        parallelism: int = 1,
        fields: Declared | None = None,
        streams: Streams | None = None,
        tick_s: float | None = None,
    ) -> Stream[Any]:
        """Declare a bolt that reads this stream; see Topology.bolt."""
        out: Outputs = {"fields": fields, "streams": streams, "tick_s": tick_s}
        return self.stream.topology.bolt(id, impl, [self], parallelism, **out)

    def into(self, bolt: str) -> None:
        """Add an input to a bolt that is already declared, so that a graph may have cycles.

        Raises UnknownComponent, and otherwise as Topology.bolt.
        """
        self.stream.topology.add_input(bolt, self)


# The Callable is never used: its type variable in a return makes mypy infer `impl` first and check
# every input against it. Otherwise mypy joins the inputs' types: two record types join to tuple.
Inputs: TypeAlias = Sequence[Grouped[In]] | Callable[[], In]
