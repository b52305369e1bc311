"""The frame format: one frame is one batch of one stream from one task to one task.

    [target, source, stream, seq, kind, records, roots, counts, edges, offsets]

    kind      + 2: all records share the anchors; + 4: they must not be joined with others
    records   kind 0: rows, MessagePack; kind 1: columns, an Arrow IPC stream
    roots     raw little-endian uint64; with `counts` (uint32), root i repeats counts[i] times
    edges     raw uint64, one for each root
    offsets   raw int64, only where a record has other than one anchor

No pickle on the wire. Lists stay lists; a tuple inside a field arrives as a list, and a scalar of
NumPy as Python's. An integer of more than 64 bits is an extension type: its bytes, with its sign.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple, Protocol

import msgpack
import numpy as np
import pyarrow as pa

from sunshower.errors import CorruptPacket, Unserialisable
from sunshower.runtime.plan import PlannedStream
from sunshower.runtime.tracking.edges import runs
from sunshower.runtime.tracking.ids import U64, ids_of
from sunshower.runtime.transport.batch import Batch
from sunshower.texts import describe_error

_ROWS, _COLUMNS = 0, 1
_SHARED, _ALONE = 2, 4
_LONG = 1  # the extension type of integers beyond 64 bits
_PACK_ERRORS = (TypeError, ValueError, OverflowError, pa.ArrowException)


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
    except (ValueError, IndexError, TypeError, *_PACK_ERRORS) as error:
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
    except Exception as error:  # whatever the constructor of a record, or a dict's key, raises
        return Frame(target, seq, batch, describe_error(error))
    if not _fits(batch):
        raise CorruptPacket("the records of a frame do not fit its roots")
    return Frame(target, seq, batch)


def _check_offsets(table: pa.Table) -> None:
    """Raise pa.ArrowInvalid for offsets outside of the memory of their column. It takes 1 ns for
    each text, and 8 ns with a check of its UTF-8, which is made when the text is read."""
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
            "name of what is so large instead"
        )


def _encode_records(batch: Batch, stream: PlannedStream) -> tuple[int, bytes]:
    try:
        if batch.is_table:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.records.schema) as writer:
                writer.write_table(batch.records)
            return _COLUMNS, sink.getvalue().to_pybytes()
        packed: bytes = msgpack.packb(
            stream.spec.schema.rows(batch.records),
            unicode_errors="surrogatepass",
            default=_other,
        )
        return _ROWS, packed
    except _PACK_ERRORS as error:
        raise Unserialisable(
            f"a record of stream {stream.spec.id!r} of {stream.component!r} cannot travel to "
            f"another process: {error}. Fields may hold str, bytes, int, float, bool, None, "
            "scalars of NumPy, and lists and dicts of these"
        ) from error


def _other(value: Any) -> Any:
    """What MessagePack has no type for: long integers, and NumPy's scalars."""
    if isinstance(value, int):
        size = value.bit_length() // 8 + 1
        return msgpack.ExtType(_LONG, value.to_bytes(size, "little", signed=True))
    if isinstance(value, np.generic) and not isinstance(plain := value.item(), np.generic):
        return plain
    raise TypeError(f"can not serialize {type(value).__name__!r} object")


def _integer(code: int, data: bytes) -> int:
    if code != _LONG:
        raise ValueError(f"a field has the unknown extension type {code}")
    return int.from_bytes(data, "little", signed=True)


def _decode_records(
    kind: int, records: bytes, stream: PlannedStream, notes: Iterator[None] | None = None
) -> Any:
    """`notes`: each step notes the next record, before it is built alone."""
    if kind == _COLUMNS:
        table = pa.ipc.open_stream(records).read_all()
        _check_offsets(table)
        if tuple(table.column_names) != tuple(stream.spec.schema.fields):
            raise ValueError(f"its columns are {', '.join(table.column_names)}")
        return table
    rows = msgpack.unpackb(
        records, strict_map_key=False, unicode_errors="surrogatepass", ext_hook=_integer
    )
    if notes is None:
        return stream.spec.schema.build(rows)
    built: list[Any] = []
    for row in rows:
        next(notes)
        built += stream.spec.schema.build([row])
    return built
