"""What a stream is a handle of: an output stream of a component, or the rows of an operator."""

from __future__ import annotations

from typing import Any, Self, TypeVar

from sunshower.errors import UnknownStream
from sunshower.records import Schema
from sunshower.topologies.components import DEFAULT
from sunshower.topologies.graph import StreamSpec
from sunshower.topologies.operators.record_operators import RecordOperators
from sunshower.topologies.operators.schemas import code_name
from sunshower.topologies.operators.stages import Declarations, StageRows

R_co = TypeVar("R_co", covariant=True)


class StreamHandle(RecordOperators[R_co]):
    """One output stream of a component."""

    def __init__(self, topology: Declarations, component: str, id: str = DEFAULT) -> None:
        self.topology, self.component, self.id = topology, component, id
        self._rows: StageRows | None = None  # of an operator

    @classmethod
    def of_rows(cls, topology: Declarations, rows: StageRows, word: str = "records") -> Self:
        """The rows of an operator. Their stream is declared when something outside reads it."""
        stream = cls(topology, rows.stage.id, word)
        stream._rows = rows
        return stream

    @property
    def schema(self) -> Schema:
        """The fields and the type of its records."""
        return self.spec.schema if self._rows is None else self._rows.schema

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
