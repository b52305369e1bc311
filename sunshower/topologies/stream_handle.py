"""The target of a stream handle: an output stream of a component, or the rows of an operator."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar

from sunshower.errors import TopologyError, UnknownStream
from sunshower.records import Schema
from sunshower.topologies.components import DEFAULT
from sunshower.topologies.graph import Level, StreamSpec
from sunshower.topologies.operators.port import Operator
from sunshower.topologies.operators.record_operators import RecordOperators
from sunshower.topologies.operators.schemas import check_equal, code_name
from sunshower.topologies.operators.stages import Declarations, StageDraft, StageRows
from sunshower.topologies.operators.updates.update_rows import Lineage, TagUpdates, update_schema

R_co = TypeVar("R_co", covariant=True)


class GroupedStream:
    """A stream with a grouping, which has none of the stream's operators."""

    if not TYPE_CHECKING:  # hidden from mypy

        def __getattr__(self, name: str) -> Never:
            """Raise TopologyError for an operator of the stream: it says where to call it."""
            stream = self.__dict__.get("stream")
            if name.startswith("_") or not hasattr(type(stream), name):
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
            raise TopologyError(
                f"{stream}: .{name}(…) is called on a stream, not behind its grouping. Call it "
                "before the grouping, or begin new tasks: .shuffle().stage(id, parallelism)"
                f".{name}(…)"
            )


class StreamHandle(RecordOperators[R_co]):
    """One output stream of a component."""

    def __init__(self, topology: Declarations, component: str, id: str = DEFAULT) -> None:
        self.topology, self.component, self.id = topology, component, id
        self._rows: StageRows | None = None  # of an operator
        self._lineage: Lineage | None = None  # of the records of a component

    @classmethod
    def of_rows(cls, topology: Declarations, rows: StageRows, word: str = "records") -> Self:
        """The rows of an operator. Their stream is declared when something outside reads it."""
        stream = cls(topology, rows.stage.id, word)
        stream._rows = rows
        return stream

    def local_or_shuffle(self) -> Any:
        """Its records for a task in the same process, if there is one."""
        raise NotImplementedError

    if not TYPE_CHECKING:  # hidden from mypy

        def bolt(self, *_: object, **__: object) -> Never:
            """Raise TopologyError, which asks for a grouping first."""
            raise TopologyError(
                f"{self}: declare a grouping, as in .shuffle().bolt(…) or .fields(…).bolt(…)"
            )

    def merge(self, *others: StreamHandle[R_co]) -> Self:
        """The records of all streams. Their record types must be equal."""
        where = self._where("merge")
        for other in others:
            if not isinstance(other, StreamHandle):
                raise TopologyError(f"{where}: {other!r:.200} is no stream")
            check_equal(self.schema, other.schema, where)
        streams: list[StreamHandle[R_co]] = [self, *others]
        if all(stream.lineage is not None for stream in streams):
            streams = [
                stream._with("merge", partial(TagUpdates, number), stream.schema)
                for number, stream in enumerate(streams)
            ]
        inputs = [stream.local_or_shuffle() for stream in streams]
        most = max(self.topology.component(one.component).parallelism for one in streams)
        id = self.topology.unused_id("merge")
        return self.of_rows(self.topology, self.topology.begin_stage(id, inputs, most))

    def _with(
        self, word: str, operator: Callable[[], Operator], schema: Schema, code: Any = None
    ) -> Self:
        return self.of_rows(self.topology, self._then(word, operator(), schema, code), word)

    def _then(self, word: str, operator: Operator, schema: Schema, code: Any) -> StageRows:
        rows = self._rows
        if rows is None:
            name = word if code is None else code_name(code)
            id = self.topology.unused_id(word if name == "lambda" else name)
            parallelism = self.topology.component(self.component).parallelism
            rows = self.topology.begin_stage(id, [self.local_or_shuffle()], parallelism)
        return rows.then(operator, schema)

    @property
    def lineage(self) -> Lineage | None:
        """If its records follow from running totals: how."""
        return self._lineage if self._rows is None else self._rows.lineage

    def need_updates(self) -> None:
        """Let its records arrive at its stage as updates; only if they follow from totals."""
        assert self._rows is not None
        self.topology.read_updates(self._rows.stage)

    def updates(self, reader: StageDraft) -> StreamSpec:
        """The stream of the updates of its records for `reader`; see `need_updates`."""
        self.need_updates()
        rows = self._rows
        assert rows is not None
        rows.read_elsewhere.append(reader.input)
        if rows.updates is None:
            rows.updates = rows.stage.new_stream("updates")
            spec = StreamSpec(rows.updates, update_schema(rows.schema))
            self.topology.declare_stream(self.component, spec)
        return self.topology.component(self.component).streams[rows.updates]

    def answer(self) -> None:
        """These records are the answer of the request that they follow from: see
        Topology.requests. Records that no request has caused are dropped."""
        self.topology.answer(self)

    @property
    def schema(self) -> Schema:
        """The fields and the type of its records."""
        return self.spec.schema if self._rows is None else self._rows.schema

    @property
    def has_columns(self) -> bool:
        """Whether its records travel as Arrow tables."""
        if self._rows is not None:
            return self._rows.has_columns
        level = self.topology.component(self.component).level
        return level in (Level.TABLES, Level.BATCH) and self.id == DEFAULT

    def _where(self, word: str, code: Any = None) -> str:
        return f"{self}, {word}" + ("" if code is None else f"({code_name(code)})")

    @property
    def spec(self) -> StreamSpec:
        """The declaration of this stream. Raises UnknownStream, which lists the streams."""
        if (rows := self._rows) is not None and rows.stream is None and rows.schema.fields:
            self.id = rows.stream = rows.stage.new_stream(self.id)
            self.topology.declare_stream(self.component, StreamSpec(self.id, rows.schema))
        streams = self.topology.component(self.component).streams
        if not isinstance(self.id, str) or self.id not in streams:
            raise UnknownStream(
                f"{self}: there is no such stream; the streams of "
                f"{self.component!r} are: {', '.join(streams) or 'none'}"
            )
        return streams[self.id]

    def __str__(self) -> str:
        return f"topology {self.topology.id!r}, stream {self.id!r} of {self.component!r}"
