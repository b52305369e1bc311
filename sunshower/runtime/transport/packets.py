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
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import msgpack
import numpy as np

from sunshower import versions
from sunshower.errors import CorruptPacket
from sunshower.failures import Cause, Failure
from sunshower.runtime.plan import ACKER, Plan, PlannedStream
from sunshower.runtime.tracking.acker_task import Verdicts
from sunshower.runtime.tracking.ids import U64, ids_of, slots_of
from sunshower.runtime.tracking.ledger import F64
from sunshower.runtime.tracking.reports import FailedRoots, ShardReport
from sunshower.runtime.transport.channels import Credit
from sunshower.runtime.transport.frames import Frame, Notes, decode

_HEADER = struct.Struct("<2sHI")
_ADDRESS = struct.Struct("<HHIIQ")
_MAGIC = b"SS"
_DECODE_ERRORS = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError),
    *(OverflowError, RecursionError, MemoryError),
)
_FAILURE_TYPES = {one.name: type(one.default) for one in fields(Failure) if one.name != "cause"}
T = TypeVar("T", U64, F64)
Grant = tuple[int, int, int, Credit]  # source task, target task, frames up to


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
                [task, *_columns(r.starts), *_columns(r.acks), _shared(r.fails), _bytes(r.asks)]
                for task, r in content.reports.items()
            ],
            [
                [task, _bytes(v.complete), _shared(v.failed), *_columns(v.ages)]
                for task, v in content.verdicts.items()
            ],
            content.postponed,
            content.grants,
            _bytes(content.failed),
        ],
        unicode_errors="surrogatepass",
    )  # the text of an exception may hold lone surrogates
    place, version = _ADDRESS.pack(*address), versions.PROTOCOL
    return _HEADER.pack(_MAGIC, version, crc32(body, crc32(place, version))) + place + body


def read_address(data: bytes) -> Address:
    """Decode the header of a packet. Raises CorruptPacket if the checksum, which covers the
    version, does not match; VersionMismatch for an intact packet of another version."""
    if len(data) < _HEADER.size + _ADDRESS.size:
        raise CorruptPacket(f"a packet of {len(data)} bytes is shorter than its header")
    magic, version, checksum = _HEADER.unpack_from(data)
    if magic != _MAGIC or crc32(memoryview(data)[_HEADER.size :], version) != checksum:
        raise CorruptPacket("a packet's checksum does not match its bytes")
    way_out = "let all nodes have one release, kill the topology and submit it again"
    versions.check("a packet of another worker", version, versions.PROTOCOL, way_out)
    return Address(*_ADDRESS.unpack_from(data, _HEADER.size))


def read_content(
    data: bytes, streams: Sequence[PlannedStream], notes: Notes | None = None
) -> Packet:
    """Decode the body of a packet. Raises CorruptPacket. `notes`: see frames.py."""
    try:
        return _read_content(data, streams, notes)
    except _DECODE_ERRORS as error:
        raise CorruptPacket(
            f"the body of a packet cannot be read: {type(error).__name__}: {error}"
        ) from error


def _read_content(data: bytes, streams: Sequence[PlannedStream], notes: Notes | None) -> Packet:
    body = memoryview(data)[_HEADER.size + _ADDRESS.size :]
    frames, reports, verdicts, postponed, grants, failed = msgpack.unpackb(
        body, unicode_errors="surrogatepass"
    )
    address = Address(*_ADDRESS.unpack_from(data, _HEADER.size))
    return Packet(
        address.sender,
        address.sender_incarnation,
        [decode(fields, streams, notes) for fields in frames],
        {
            task: ShardReport(
                _pairs(s_roots, s_xors),
                _pairs(a_roots, a_xors),
                _single(fails),
                [ids_of(asks)] if asks else [],
            )
            for task, s_roots, s_xors, a_roots, a_xors, fails, asks in reports
        },
        {
            task: Verdicts(
                [ids_of(done)],
                _single(failed),
                [_same_length(ids_of(roots), np.frombuffer(ages))] if roots else [],
            )
            for task, done, failed, roots, ages in verdicts
        },
        _roots(postponed),
        [_grant(*grant) for grant in grants],
        ids_of(failed),
    )


def _columns(pairs: Sequence[tuple[U64, U64 | F64]]) -> Sequence[bytes]:
    return [_bytes(column) for column in zip(*pairs, strict=True)] or (b"", b"")


def _bytes(arrays: Sequence[U64 | F64]) -> bytes:
    return b"".join([array.tobytes() for array in arrays])


def _pairs(roots: bytes, xors: bytes) -> list[tuple[U64, U64]]:
    return [_same_length(ids_of(roots), ids_of(xors))] if roots else []


def _same_length(roots: U64, values: T) -> tuple[U64, T]:
    if len(roots) != len(values):
        raise ValueError("a report has not one value for each root")
    return roots, values


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
    for given, roots in shared:
        failure = Failure(**{**given, "cause": Cause(given["cause"])})
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
            failed = np.array([root for root, _ in report.fails], np.uint64)
            roots += [*report.roots(), *report.asks, failed]
        is_known &= all(slots_of(some).max() < self._slots for some in roots if len(some))
        if not is_known:
            raise CorruptPacket(f"a packet of worker {packet.sender} is not of this topology")
