"""The frame format: one frame is one batch of one stream from one task to one task.

    [target, source, stream, seq, kind, records, roots, counts, edges, offsets]

    kind      + 2: all records share the anchors; + 4: they must not be joined with others
    records   kind 0: the values of all rows in one list, MessagePack (sunshower/codec.py)
              kind 1: columns, an Arrow IPC stream
    roots     raw little-endian uint64; with `counts` (uint32), root i repeats counts[i] times
    edges     raw uint64, one for each root
    offsets   raw int64, only where a record has other than one anchor

No pickle on the wire. A value arrives equal and of the same type; a scalar of NumPy arrives as
Python's, and a value of another subclass of a plain type as the plain type. Enums and records are
rebuilt if a record type of the topology declares their class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from sunshower.codec import Codec
from sunshower.errors import CorruptPacket, Unserialisable, user_errors
from sunshower.record_loops import decode as decode_rows
from sunshower.record_loops import encode as encode_rows
from sunshower.records import rows_of
from sunshower.runtime.plan import PlannedStream
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.tracking.edges import runs
from sunshower.runtime.tracking.ids import U64, ids_of
from sunshower.texts import describe_error, message_of

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS, _COLUMNS = 0, 1
_SHARED, _ALONE = 2, 4
_codec_of = lru_cache(8)(Codec)


class Notes(Protocol):
    """Notes which records are being rebuilt, because their constructors are user code."""

    def note(self, task: int, roots: U64) -> None:
        """Note that records of these trees are now being rebuilt for `task`."""

    def is_watched(self, task: int) -> bool:
        """Whether to note each record alone: one may have crashed the previous process."""


class Frame(NamedTuple):
    """A decoded frame. `error`: why its records cannot be rebuilt here; its roots are known."""

    target: int
    seq: int
    batch: Batch
    error: str | None = None


def encode(
    target: int, seq: int, batch: Batch, stream: PlannedStream, record_bytes_max: int
) -> list[Any]:
    """Return a frame as a list that MessagePack can encode.

    Raises Unserialisable when a record cannot be encoded, or has more than `record_bytes_max` on
    the wire; `first_bad` finds which.
    """
    kind, records = _encode_records(batch, stream)
    if len(records) > record_bytes_max:
        for index in range(len(batch)):
            _check_size(batch.only(index), stream, record_bytes_max)
    roots, counts = runs(batch.roots)
    return [
        target,
        batch.source,
        batch.stream,
        seq,
        kind + _SHARED * batch.shared + _ALONE * batch.alone,
        records,
        roots.tobytes(),
        b"" if counts is None else counts.tobytes(),
        batch.edges.tobytes(),
        b"" if batch.offsets is None else batch.offsets.tobytes(),
    ]


def decode(
    fields: Sequence[Any], streams: Sequence[PlannedStream], notes: Notes | None = None
) -> Frame:
    """Decode a frame. Raises CorruptPacket, unless only the records cannot be rebuilt."""
    try:
        target, source, index, seq, kind, records, roots, counts, edges, offsets = fields
        numbers = (target, source, index, seq, kind)
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError("a task, stream or number is not a whole number")
        stream = streams[index]
        batch = Batch(index, source, ())
        batch.edges = ids_of(edges)
        batch.roots = _repeated(ids_of(roots), counts, len(batch.edges))
        batch.offsets = np.frombuffer(offsets, np.int64) if offsets else None
        batch.shared, batch.alone = bool(kind & _SHARED), bool(kind & _ALONE)
        kind &= ~(_SHARED | _ALONE)
    except (ValueError, IndexError, TypeError, OverflowError) as error:
        raise CorruptPacket(f"a frame of this topology cannot be read: {error}") from error
    try:
        if notes is None or not notes.is_watched(target):
            if notes is not None:
                notes.note(target, batch.roots)
            batch.records = _decode_records(kind, records, stream)
        else:
            alone = (batch.only(index).roots for index in count())
            note = partial(notes.note, target)
            batch.records = _decode_records(kind, records, stream, map(note, alone))
    except user_errors() as error:  # whatever the constructor of a record, or a dict's key, raises
        return Frame(target, seq, batch, describe_error(error))
    if not _fits(batch):
        raise CorruptPacket("the records of a frame do not fit its roots")
    return Frame(target, seq, batch)


def _check_offsets(table: pa.Table) -> None:
    """Raise pa.ArrowInvalid for offsets outside of the memory of their column. It takes 1 ns for
    each text, and 8 ns with a check of its UTF-8, which is made when the text is read."""
    import pyarrow as pa

    for column in table.itercolumns():
        for chunk in column.chunks:
            plain = chunk.view(pa.binary()) if chunk.type == pa.string() else chunk
            plain.validate(full=True)


def _repeated(roots: U64, counts: bytes, wanted: int) -> U64:
    """`roots`, root i `counts[i]` times. Raises ValueError unless they are then `wanted`."""
    if counts:
        times = np.frombuffer(counts, np.uint32)
        if int(times.sum(dtype=np.uint64)) != wanted:  # before so many are allocated
            raise ValueError("it has not as many roots as edges")
        roots = roots.repeat(times)
    if len(roots) != wanted:
        raise ValueError("it has not as many roots as edges")
    return roots


def _fits(batch: Batch) -> bool:
    """Whether the records have as many anchors as the frame says."""
    if batch.shared:
        return bool(len(batch) and len(batch.roots)) and batch.offsets is None
    if batch.offsets is None:
        return len(batch.roots) in {0, len(batch)}
    first, last = int(batch.offsets[0]), int(batch.offsets[-1])
    is_whole = len(batch.offsets) == len(batch) + 1 and first == 0 and last == len(batch.roots)
    return is_whole and bool((np.diff(batch.offsets) >= 0).all())


def first_bad(batch: Batch, stream: PlannedStream, record_bytes_max: int) -> int:
    """Return the index of the first record of `batch` that cannot be encoded."""
    for index in range(len(batch)):
        try:
            _check_size(batch.only(index), stream, record_bytes_max)
        except Unserialisable:
            return index
    raise AssertionError("all records can be carried one by one, but not together")


def _check_size(record: Batch, stream: PlannedStream, record_bytes_max: int) -> None:
    size = len(_encode_records(record, stream)[1])
    if size > record_bytes_max:
        raise Unserialisable(
            f"a record of stream {stream.spec.id!r} of {stream.component!r} is {size:,} bytes on "
            f"the wire, more than record_bytes_max, {record_bytes_max:,}. Raise that, or send a "
            "reference to the large value instead"
        )


def _encode_records(batch: Batch, stream: PlannedStream) -> tuple[int, bytes]:
    schema, codec = stream.spec.schema, _codec_of(stream.classes)
    try:
        if batch.is_table:
            import pyarrow as pa

            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.records.schema) as writer:
                writer.write_table(batch.records)
            return _COLUMNS, sink.getvalue().to_pybytes()
        if schema.is_tuple and type(batch.records) is list:
            encoded = encode_rows(batch.records, len(schema.fields))
            if encoded is not None:
                return _ROWS, encoded
        values = schema.flat(batch.records)
        if len(values) != len(schema.fields) * len(batch):
            raise ValueError(f"a record has not the fields {schema.name}")
        return _ROWS, codec.encode(values)
    except user_errors() as error:  # whatever a property of a record raises
        where = _bad_field(batch, stream) if isinstance(error, Unserialisable) else ""
        raise Unserialisable(
            f"a record of stream {stream.spec.id!r} of {stream.component!r} cannot travel to "
            f"another process: {where}{message_of(error)}. docs/TOPOLOGIES.md lists the types that "
            "fields may hold"
        ) from error


def _bad_field(batch: Batch, stream: PlannedStream) -> str:
    """The first field with a value that cannot be encoded, for an error message."""
    schema, codec = stream.spec.schema, _codec_of(stream.classes)
    for row in schema.rows(batch.records):
        for name, value in zip(schema.fields, row, strict=True):
            try:
                codec.encode(value)
            except Unserialisable:
                return f"field {name!r}: "
    return ""


def _decode_records(
    kind: int, records: bytes, stream: PlannedStream, notes: Iterator[None] | None = None
) -> Any:
    """`notes`: each step notes the next record, before it is built alone."""
    schema = stream.spec.schema
    if kind == _COLUMNS:
        import pyarrow as pa

        table = pa.ipc.open_stream(records).read_all()
        _check_offsets(table)
        if tuple(table.column_names) != tuple(schema.fields):
            raise ValueError(f"its columns are {', '.join(table.column_names)}")
        return table
    if notes is None and schema.is_tuple:
        decoded = decode_rows(records, len(schema.fields), schema.type)
        if decoded is not None:
            return decoded
    values = rows_of(_codec_of(stream.classes).decode(records), len(schema.fields))
    if notes is None:
        return schema.build(values)
    built: list[Any] = []
    for row in values:
        next(notes)
        built += schema.build([row])
    return built
