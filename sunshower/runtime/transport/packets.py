"""The packet format: all frames, reports, verdicts and grants from one worker to another.

    magic "SS" | version | crc32 | sender, receiver | their incarnations | seq

The checksum covers the version and all that follows it. The header lets the receiver refuse packets
that are corrupt, late, repeated, or meant for another of its lives; the body is MessagePack.
Sending costs much the same whatever the size, so one packet carries everything for a peer.
"""

from __future__ import annotations

import struct
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import IntEnum
from functools import lru_cache, partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from zlib import crc32

import msgpack
import numpy as np
from numpy.typing import NDArray

from sunshower import versions
from sunshower.codec import Codec
from sunshower.errors import CorruptPacket, Unserialisable, user_errors
from sunshower.failures import Cause, Failure
from sunshower.record_loops import decode as decode_rows
from sunshower.record_loops import encode as encode_rows
from sunshower.records import rows_of
from sunshower.runtime.plan import ACKER, Plan, PlannedStream
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.tracking.ids import NO_IDS, U64, ids_of, runs, slots_of
from sunshower.runtime.tracking.ledger import F64, Verdicts
from sunshower.runtime.tracking.reports import FailedRoots, ShardReport
from sunshower.runtime.transport.channels import Credit
from sunshower.texts import describe_error, message_of

if TYPE_CHECKING:
    import pyarrow as pa

_HEADER = struct.Struct("<2sHI")
_ADDRESS = struct.Struct("<HHIIQ")
_BODY = _HEADER.size + _ADDRESS.size  # where the body begins
_MAGIC = b"SS"
_DECODE_ERRORS = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError),
    *(OverflowError, RecursionError, MemoryError),
)
_FAILURE_TYPES = {
    attribute.name: type(attribute.default)
    for attribute in fields(Failure)
    if attribute.name != "cause"
}
Number = TypeVar("Number", np.uint64, np.float64)
_bytes_of: Callable[[U64 | F64], bytes] = np.ndarray.tobytes
Grant = tuple[int, int, int, Credit]  # source task, target task, frames up to


# ---- frames --------------------------------------------------------------------------------------
# The frame format: one frame is one batch of one stream from one task to one task.
#
# In their order: target, source, stream, seq, kind, records, roots, counts, edges, offsets.
#
#     kind      + 2: all records share the anchors; + 4: they must not be joined with others
#     records   kind 0: the values of all rows in one list, MessagePack (sunshower/codec.py)
#               kind 1: columns, an Arrow IPC stream
#     roots     raw little-endian uint64; with `counts` (uint32), root i repeats counts[i] times
#     edges     raw uint64, one for each root
#     offsets   raw int64, only where a record has other than one anchor
#
# No pickle on the wire. A value arrives equal and of the same type; a scalar of NumPy arrives as
# Python's, and a value of another subclass of a plain type as the plain type. Enums and records
# are rebuilt if a record type of the topology declares their class.

_ROWS, _COLUMNS = 0, 1
_SHARED, _ALONE = 2, 4
_codec_of = lru_cache(8)(Codec)


class Frame(NamedTuple):
    """A decoded frame. `error`: why its records cannot be rebuilt here; its roots are known."""

    target: int
    seq: int
    batch: Batch
    error: str | None = None


def encode_frame(
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


def decode_frame(
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
            f"another process: {where}{message_of(error)}. docs/RECORDS.md lists the types that "
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
    rows = rows_of(_codec_of(stream.classes).decode(records), len(schema.fields))
    if notes is None:
        return schema.build(rows)
    built: list[Any] = []
    for row in rows:
        next(notes)
        built += schema.build([row])
    return built


# ---- packets -------------------------------------------------------------------------------------


class Answer(IntEnum):
    """The receiver's immediate answer to a packet."""

    ACCEPTED = 0
    REFUSED = 1  # corrupt, or received after a later one: its contents are lost
    STALE = 2  # sent by, or meant for, another incarnation


class Address(NamedTuple):
    """Sender and receiver, the life of each, and the packet's sequence number."""

    sender: int
    receiver: int
    sender_incarnation: int
    receiver_incarnation: int
    seq: int


@dataclass(slots=True)
class Content:
    """The body of a packet. `frames` holds encoded frames (see frames.encode)."""

    frames: list[list[Any]] = field(default_factory=list)
    reports: defaultdict[int, ShardReport] = field(  # by acker task
        default_factory=partial(defaultdict, ShardReport)
    )
    verdicts: defaultdict[int, Verdicts] = field(  # by spout task
        default_factory=partial(defaultdict, Verdicts)
    )
    postponed: list[int] = field(default_factory=list)  # roots
    grants: list[Grant] = field(default_factory=list)
    failed: list[U64] = field(default_factory=list)  # failed trees: see reports.py
    greets: bool = False  # send it even if empty: the header carries the sender's life

    def __bool__(self) -> bool:
        return bool(
            self.frames
            or self.reports
            or self.verdicts
            or self.postponed
            or self.grants
            or self.failed
            or self.greets
        )


class Notes(Protocol):
    """Notes which records are being rebuilt, because their constructors are user code."""

    def rebuild(self, read: Callable[[], list[Frame]]) -> list[Frame]:
        """Return the result of `read`, which calls `note`; no record is rebuilt after it."""

    def note(self, task: int, roots: U64) -> None:
        """Note that records of these trees are now being rebuilt for `task`."""

    def is_watched(self, task: int) -> bool:
        """Whether to note each record alone: one may have crashed the previous process."""


class Packet(NamedTuple):
    """A decoded packet."""

    sender: int
    life: int  # of the sender
    frames: list[Frame]
    reports: dict[int, ShardReport]
    verdicts: dict[int, Verdicts]
    postponed: U64
    grants: list[Grant]
    failed: U64


def encode_packet(address: Address, content: Content) -> bytes:
    """Encode a packet."""
    body: bytes = msgpack.packb(
        [
            content.frames,
            [
                [
                    *(task, *_columns(r.starts), *_columns(r.acks)),
                    *(_shared(r.fails) if r.fails else [], b"".join(map(_bytes_of, r.asks))),
                ]
                for task, r in content.reports.items()
            ],
            [
                [
                    *(task, b"".join(map(_bytes_of, v.complete))),
                    *(_shared(v.failed) if v.failed else [], *_columns(v.ages)),
                ]
                for task, v in content.verdicts.items()
            ],
            content.postponed,
            content.grants,
            b"".join(map(_bytes_of, content.failed)),
        ],
        unicode_errors="surrogatepass",
    )  # the text of an exception may hold lone surrogates
    place, version = _ADDRESS.pack(*address), versions.PROTOCOL
    return _HEADER.pack(_MAGIC, version, crc32(body, crc32(place, version))) + place + body


def read_address(data: bytes) -> Address:
    """Decode the header of a packet. Raises CorruptPacket if the checksum, which covers the
    version, does not match; VersionMismatch for an intact packet of another version."""
    if len(data) < _BODY:
        raise CorruptPacket(f"a packet of {len(data)} bytes is shorter than its header")
    magic, version, checksum = _HEADER.unpack_from(data)
    if magic != _MAGIC or crc32(memoryview(data)[_HEADER.size :], version) != checksum:
        raise CorruptPacket("a packet's checksum does not match its bytes")
    if version != versions.PROTOCOL:
        remedy = "let all nodes have one release, kill the topology and submit it again"
        versions.check("a packet of another worker", version, versions.PROTOCOL, remedy)
    return Address(*_ADDRESS.unpack_from(data, _HEADER.size))


def read_content(
    data: bytes, streams: Sequence[PlannedStream], notes: Notes | None = None
) -> Packet:
    """Decode the body of a packet. Raises CorruptPacket."""
    try:
        address = Address(*_ADDRESS.unpack_from(data, _HEADER.size))
        frames, reports, verdicts, postponed, grants, failed = msgpack.unpackb(
            memoryview(data)[_BODY:], unicode_errors="surrogatepass"
        )
        decoded = (decode_frame(fields, streams, notes) for fields in frames)
        return Packet(
            address.sender,
            address.sender_incarnation,
            notes.rebuild(partial(list, decoded)) if notes and frames else list(decoded),
            {
                task: ShardReport(
                    _pairs(s_roots, s_xors, np.uint64),
                    _pairs(a_roots, a_xors, np.uint64),
                    _single(fails) if fails != [] else FailedRoots(),
                    [ids_of(asks)] if asks else [],
                )
                for task, s_roots, s_xors, a_roots, a_xors, fails, asks in reports
            },
            {
                task: Verdicts(
                    [ids_of(done)],
                    _single(fails) if fails != [] else FailedRoots(),
                    _pairs(roots, ages, np.float64),
                )
                for task, done, fails, roots, ages in verdicts
            },
            _roots(postponed) if postponed != [] else NO_IDS,
            [_grant(*grant) for grant in grants],
            ids_of(failed),
        )
    except _DECODE_ERRORS as error:
        raise CorruptPacket(
            f"the body of a packet cannot be read: {type(error).__name__}: {error}"
        ) from error


def _columns(pairs: Sequence[tuple[U64, U64 | F64]]) -> tuple[bytes, bytes]:
    """The roots of all pairs, and their values."""
    roots, values = zip(*pairs, strict=True) if pairs else ((), ())
    return b"".join(map(_bytes_of, roots)), b"".join(map(_bytes_of, values))


def _pairs(roots: bytes, values: bytes, kind: type[Number]) -> list[tuple[U64, NDArray[Number]]]:
    if not roots:
        return []
    pair = ids_of(roots), np.frombuffer(values, kind)
    if len(pair[0]) != len(pair[1]):
        raise ValueError("a report has not one value for each root")
    return [pair]


def _roots(numbers: list[int]) -> U64:
    """Refuses all but lists of numbers and, unlike NumPy 1 does, numbers out of bounds."""
    if type(numbers) is not list:
        raise TypeError("root ids are not a list")
    return np.frombuffer(array("Q", numbers), np.uint64)


def _grant(source: int, target: int, seq: int, credit: list[int]) -> Grant:
    window, piece = credit
    if {int} != set(map(type, (source, target, seq, window, piece))) or window < 0 or piece < 1:
        raise ValueError("a grant is not of whole numbers")
    return source, target, seq, Credit(window, piece)


def _shared(failures: FailedRoots) -> list[list[Any]]:
    """Failures as plain values, each once however many roots share it."""
    roots: dict[Failure, list[int]] = {}
    for root, failure in failures:
        roots.setdefault(failure, []).append(root)
    return [[asdict(failure), shared] for failure, shared in roots.items()]


def _single(shared: list[list[Any]]) -> FailedRoots:
    failed_roots = FailedRoots()
    for fields_of_failure, roots in shared:
        failure = Failure(**{**fields_of_failure, "cause": Cause(fields_of_failure["cause"])})
        if any(type(getattr(failure, name)) is not kind for name, kind in _FAILURE_TYPES.items()):
            raise TypeError("a field of a failure has another type")
        failed_roots.add((root, failure) for root in _roots(roots).tolist())
    return failed_roots


# ---- packet reader -------------------------------------------------------------------------------


class PacketReader:
    """Reads the packets of one worker, after PacketReceiver has checked their headers."""

    def __init__(self, plan: Plan, worker: int) -> None:
        self._dropped: Counter[str] = Counter()  # reason → packets, since the last notices
        self._streams = plan.streams
        here = {task.id for task in plan.tasks_on(worker)}
        self._slots = plan.graph.config.spout_slots
        self._peers = {*plan.workers} - {worker}
        self._ackers = here & {task.id for task in plan.tasks_of(ACKER)}
        self._spouts = here & {task.id for task in plan.spouts}
        self._routes = {}  # stream → the tasks that send it, and those here that read it
        for stream in plan.streams:
            readers = [reader.id for reader, _ in plan.subscriptions(stream)]
            targets = {task.id for reader in readers for task in plan.tasks_of(reader)}
            sources = {task.id for task in plan.tasks_of(stream.component)}
            self._routes[stream.index] = sources, here & targets

    def read(self, data: bytes, notes: Notes | None = None) -> Packet | None:
        """Decode a packet. None: it is corrupt in spite of its checksum, or of another topology;
        then nothing of it is applied, and its tuples time out."""
        try:
            packet = read_content(data, self._streams, notes)
            self._check(packet)
        except CorruptPacket as error:
            self._dropped[str(error)] += 1
            return None
        return packet

    def notices(self) -> list[str]:
        """Return log lines about dropped packets since the last call."""
        dropped, self._dropped = self._dropped, Counter()
        return [f"packets dropped: {count}; {why}" for why, count in dropped.most_common(3)]

    def _check(self, packet: Packet) -> None:
        is_known = packet.sender in self._peers
        is_known &= self._ackers >= packet.reports.keys()
        is_known &= self._spouts >= packet.verdicts.keys()
        roots = [packet.failed, packet.postponed]  # a ledger grows to the highest slot of its roots
        for frame in packet.frames:
            roots.append(frame.batch.roots)
            sources, targets = self._routes[frame.batch.stream]
            is_known &= frame.batch.source in sources and frame.target in targets
        for report in packet.reports.values():
            roots += [*report.roots(), *report.asks]
            roots.append(np.array([root for root, _ in report.fails], np.uint64))
        if roots := [part for part in roots if len(part)]:
            is_known &= bool(slots_of(np.concatenate(roots)).max() < self._slots)
        if not is_known:
            raise CorruptPacket(f"a packet of worker {packet.sender} is not of this topology")
