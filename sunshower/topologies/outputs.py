"""The output streams of a component, from its annotations and its declaration."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, get_origin

from sunshower.arguments import CLASS, NAME, AnyOf, Each, Instance
from sunshower.config import Resources
from sunshower.errors import DuplicateComponent, RecordMismatch, TopologyError
from sunshower.field_types import classes_in
from sunshower.record_types import is_record
from sunshower.records import Schema
from sunshower.topologies.components import DEFAULT
from sunshower.topologies.graph import Level, StreamSpec
from sunshower.topologies.signatures import Signature, fits, name_of

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The record type that fields= gives: without one, or with names alone, plain tuples.
    Row = TypeVar("Row", default=tuple[Any, ...])
else:
    from typing import TypeVar

    Row = TypeVar("Row")

Columns: TypeAlias = type[Any] | Sequence[str]  # a record type, or the field names of plain tuples


@dataclass(frozen=True)
class DirectStream:
    """Declares a stream whose sender names the receiving task: `{"orders": DirectStream(Order)}`.

    Only `emit_direct` sends on it, and only `.direct()` subscribes to it.
    """

    columns: Columns | Schema


Declared: TypeAlias = Columns | DirectStream
Streams: TypeAlias = Mapping[str, Declared]
COLUMNS = AnyOf(
    (
        replace(CLASS, instead="a record type"),
        Each(NAME, 'different names, as in ("word", "count")'),
    )
)
STREAMS = Instance((Mapping, NoneType), 'a record type for each, as in {"errors": Error}')


class Outputs(TypedDict, total=False):
    """The optional arguments of a bolt's declaration besides its code and inputs."""

    fields: Declared | None  # of the default stream; () if there is none
    streams: Streams | None  # further ones, by id
    tick_s: float | None  # seconds between two calls of `tick`
    resources: Resources  # that each task needs of its node


def output_streams(
    signature: Signature, code: Any, fields: Declared | None, streams: Streams | None, where: str
) -> dict[str, StreamSpec]:
    """Return every output stream by its id: the default one, `code.streams`, and `streams`.

    Raises TopologyError if the default stream is not declared, RecordMismatch if annotation and
    declaration differ, DuplicateComponent for a stream id declared twice or reserved.
    """
    of_code = getattr(code, "streams", None)
    for stream_map in (of_code, streams):
        STREAMS.check(f"{where}: streams", stream_map, TopologyError)
    others = [*(of_code or {}).items(), *(streams or {}).items()]
    if signature.level is Level.BATCH and others:
        raise TopologyError(
            f"{where}: a batch bolt has its default stream alone; "
            f"drop the others: {', '.join(name for name, _ in others)}"
        )
    specs: dict[str, StreamSpec] = {}
    declared = fields if fields is not None else getattr(code, "emits", None)
    sinks = code is not None and not signature.level.is_spout
    schema = _default_schema(signature.emits, declared, where, may_be_sink=sinks)
    if schema:
        specs[DEFAULT] = StreamSpec(DEFAULT, schema, isinstance(declared, DirectStream))
    for stream, columns in others:
        place = f"{where}, stream {stream!r}"
        check_id(stream, place)
        if stream in specs or stream == DEFAULT:
            raise DuplicateComponent(
                f"{place}: there is one already; declare the default stream "
                "with fields= or an annotation, each other one once"
            )
        direct = isinstance(columns, DirectStream)
        specs[stream] = StreamSpec(stream, _schema(columns, place), direct)
    return specs


def check_id(id: Any, where: str) -> None:
    """Check the id of a topology, component or stream.

    Raises TopologyError for a malformed one, DuplicateComponent for one that is reserved.
    """
    if not isinstance(id, str) or not re.fullmatch(r"[A-Za-z0-9_.$-]+", id):
        raise TopologyError(
            f"{where}: {id!r} cannot be an id; use letters, digits, '-', '_', '.' and '$'"
        )
    if id.startswith("__"):
        raise DuplicateComponent(
            f"{where}: ids that begin with '__' are reserved for the system; "
            f"call it {id.lstrip('_') or 'something'!r}"
        )


def _default_schema(
    emits: Any, declared: Declared | None, where: str, *, may_be_sink: bool
) -> Schema | None:
    is_plain = emits is tuple or get_origin(emits) is tuple
    if declared is None:
        if emits is Any or is_plain:
            how = ", Bolt[Line, Word], or None for a sink" if may_be_sink else ""
            raise TopologyError(
                f"{where}: nothing says which fields its records have; annotate what it emits "
                f'(-> Iterator[Word]{how}), or declare them: fields=("word", "count") for tuples, '
                f"or fields=Word{', or fields=() for a sink' if may_be_sink else ''}"
            )
        return None if emits is NoneType else _in_place(emits, where)
    schema = None if declared == () else _schema(declared, where)
    declaration = "nothing" if schema is None else schema.name
    agree = (emits is Any or (schema is None) == (emits is NoneType)) and (
        schema is None or (fits(emits, schema) and not (is_plain and schema.type is not tuple))
    )
    if not agree:
        raise RecordMismatch(
            f"{where}: it is annotated to emit {name_of(emits)}, but declared to "
            f"emit {declaration}; drop one, or make them agree"
        )
    if schema is not None and is_plain:
        return replace(schema, classes=classes_in(emits, f"{where}: a record"))
    return schema


def _schema(declared: Declared, where: str) -> Schema:
    columns = declared.columns if isinstance(declared, DirectStream) else declared
    if isinstance(columns, Schema):
        return columns
    if isinstance(columns, type) or is_record(get_origin(columns)):
        return _in_place(columns, where)
    names = (*columns,) if COLUMNS.allows(columns) else ()
    if not names or len({*names}) < len(names):
        raise TopologyError(
            f"{where}: {columns!r} are not field names; give a record type, "
            'or different names, as in ("word", "count")'
        )
    return Schema(names)


def _in_place(record_type: Any, where: str) -> Schema:
    try:
        return Schema.of(record_type)
    except RecordMismatch as error:
        raise RecordMismatch(f"{where}: {error}") from None
