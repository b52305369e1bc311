"""The frame format: one frame is one batch of one stream from one task to one task.

    [target, source, stream, seq, kind, records, roots, counts, edges, offsets]

    records   kind 0: rows, MessagePack; kind 1: columns, an Arrow IPC stream
    roots     raw little-endian uint64; with `counts` (uint32), root i repeats counts[i] times
    edges     raw uint64, one for each root
    offsets   raw int64, only where a record has other than one anchor

No pickle on the wire. Lists stay lists; a tuple inside a field arrives as a list.
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

_ROWS, _COLUMNS = 0, 1
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
        kind,
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
        stream = streams[index]
        batch = Batch(index, source, ())
        batch.roots = ids_of(roots)
        if counts:
            batch.roots = batch.roots.repeat(np.frombuffer(counts, np.uint32))
        batch.edges = ids_of(edges)
        batch.offsets = np.frombuffer(offsets, np.int64) if offsets else None
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
        return Frame(target, seq, batch, f"{type(error).__name__}: {error}")
    return Frame(target, seq, batch)


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
            stream.spec.schema.rows(batch.records), unicode_errors="surrogatepass"
        )
        return _ROWS, packed
    except _PACK_ERRORS as error:
        raise Unserialisable(
            f"a record of stream {stream.spec.id!r} of {stream.component!r} cannot travel to "
            f"another process: {error}. Fields may hold str, bytes, int (64 bits), float, bool, "
            "None, and lists and dicts of these"
        ) from error


def _decode_records(
    kind: int, records: bytes, stream: PlannedStream, notes: Iterator[None] | None = None
) -> Any:
    """`notes`: each step notes the next record, before it is built alone."""
    if kind == _COLUMNS:
        return pa.ipc.open_stream(records).read_all()
    rows = msgpack.unpackb(records, strict_map_key=False, unicode_errors="surrogatepass")
    if notes is None:
        return stream.spec.schema.build(rows)
    built: list[Any] = []
    for row in rows:
        next(notes)
        built += stream.spec.schema.build([row])
    return built
