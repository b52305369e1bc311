"""A peer link: sends packets from one worker to another, in order, each with an answer.

    DOWN ──the peer's incarnation is known──▶ UP ──no answer, or STALE──▶ DOWN
      ▲                                        │        (up after `peer_link_retry_s`, or when
      └────────────────────────────────────────┘         the peer says hello in a new life)

Packets follow Nagle's rule: one leaves at once while none is unanswered, else when the answer comes
or a full one is ready. So packets are small at low load and large at high load, without a linger.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sunshower.config import Config
from sunshower.errors import CorruptPacket, Unserialisable
from sunshower.runtime.plan import PlannedStream
from sunshower.runtime.tracking.acker_task import Verdicts
from sunshower.runtime.tracking.reports import ShardReport
from sunshower.runtime.transport.batch import Batch
from sunshower.runtime.transport.channels import RemoteChannel
from sunshower.runtime.transport.frames import encode, first_bad
from sunshower.runtime.transport.packets import (
    Address,
    Answer,
    Content,
    encode_packet,
    read_address,
)

_FULL_BYTES = 1 << 18  # a second packet follows an unanswered one at this size


@dataclass(slots=True)
class InFlight:
    """An unanswered packet: its content, whose frames stay with their channels."""

    content: Content
    frames: list[tuple[RemoteChannel, int]] = field(default_factory=list)


@dataclass(slots=True)
class Lost:
    """The contents of packets that an answer, or a crash, has shown to be lost."""

    frames: list[tuple[RemoteChannel, set[int]]] = field(default_factory=list)
    reports: list[ShardReport] = field(default_factory=list)


NOTHING = Lost()


class PeerLink:
    """The sending end, for one peer."""

    def __init__(
        self,
        worker: int,
        incarnation: int,
        peer: int,
        config: Config,
        streams: Sequence[PlannedStream],
        refuse: Callable[[RemoteChannel, Batch, Unserialisable], None],
    ) -> None:
        self.peer = peer
        self.peer_incarnation: int | None = None
        self.ready: dict[RemoteChannel, None] = {}  # channels with a queue
        self.content = Content()
        self._worker, self._incarnation = worker, incarnation
        self._config = config
        self._streams = streams
        self._refuse = refuse  # called with records that cannot be serialised
        self._up_again_s: float | None = None  # DOWN until then, or until the peer's next life
        self._in_flight: dict[int, InFlight] = {}
        self._seq = 0

    @property
    def idle(self) -> bool:
        """Whether nothing waits and no packet is unanswered."""
        return not self._in_flight and not self.ready and not self.content

    @property
    def retry_s(self) -> float | None:
        """When to retry a link that is down for a while; None if it is up or nothing waits."""
        if self._up_again_s is None:  # the usual case
            return None
        return self._up_again_s if self.ready or self.content else None

    def up(self, now: float) -> bool:
        """Whether packets may be sent."""
        if self._up_again_s is not None and now >= self._up_again_s:
            self._up_again_s = None
        return self.peer_incarnation is not None and self._up_again_s is None

    def next_packet(self, now: float) -> tuple[int, bytes] | None:
        """Return (seq, bytes) of the packet to send now, or None. Call until None."""
        if not (self.ready or self.content) or not self.up(now):
            return None
        if self._in_flight and (
            len(self._in_flight) >= self._config.calls_in_flight_max or not self._full()
        ):
            return None
        content, self.content = self.content, Content()
        flight = InFlight(content)
        self._load_frames(flight)
        if not content:
            return None
        self._seq += 1
        self._in_flight[self._seq] = flight
        assert self.peer_incarnation is not None
        address = Address(
            self._worker, self.peer, self._incarnation, self.peer_incarnation, self._seq
        )
        packet = encode_packet(address, content)
        content.frames = []
        return self._seq, packet

    def answered(self, seq: int, answer: Answer | None, now: float) -> Lost:
        """Apply the answer to a packet; None if the call failed. Returns what was lost."""
        flight = self._in_flight.pop(seq, None)
        if flight is None or answer is Answer.ACCEPTED:
            return NOTHING
        if answer is not Answer.REFUSED:
            self._up_again_s = now + self._config.peer_link_retry_s
        lost = flight.content
        for task, verdicts in lost.verdicts.items():  # sending them twice is harmless
            waiting = self.content.verdicts.setdefault(task, Verdicts())
            waiting.complete += verdicts.complete
            waiting.failed += verdicts.failed
        self.content.postponed = lost.postponed + self.content.postponed
        self.content.grants = lost.grants + self.content.grants  # or the peer may block for ever
        self.content.greets = self.content.greets or lost.greets
        return self._lost([flight])

    def peer_is(self, incarnation: int) -> Lost:
        """Apply the peer's hello. In a new life it has lost what it was sent before."""
        if incarnation == self.peer_incarnation:
            return NOTHING
        flights, self._in_flight = list(self._in_flight.values()), {}
        self.peer_incarnation = incarnation
        self._up_again_s = None
        self.content.grants = []  # they count frames of the previous life
        return self._lost(flights)

    def _lost(self, flights: list[InFlight]) -> Lost:
        seqs: dict[RemoteChannel, set[int]] = {}
        for channel, seq in (frame for flight in flights for frame in flight.frames):
            seqs.setdefault(channel, set()).add(seq)
        reports = [report for flight in flights for report in flight.content.reports.values()]
        return Lost(list(seqs.items()), reports)

    def _full(self) -> bool:
        """Whether enough waits for a packet of its own."""
        waiting = sum(channel.queued * channel.record_bytes for channel in self.ready)
        roots = sum(len(r) for report in self.content.reports.values() for r in report.roots())
        return waiting + 16 * roots >= _FULL_BYTES

    def _load_frames(self, flight: InFlight) -> None:
        size, bytes_max = 0, self._config.record_bytes_max
        while self.ready and size < self._config.packet_bytes_max:
            channel = next(iter(self.ready))
            batch = channel.take(self._frame_records(channel))
            stream = self._streams[batch.stream]
            try:
                frame = encode(channel.target, channel.next_seq + 1, batch, stream, bytes_max)
            except Unserialisable as error:
                self._take_out(channel, batch, error)
            else:
                frame_bytes = sum(len(part) for part in frame[5:])
                channel.record_bytes = frame_bytes // len(batch) + 1
                if len(batch) > 2 * self._frame_records(channel):  # larger records than before
                    channel.put_back(batch)
                    continue
                flight.frames.append((channel, channel.sent(batch)))
                flight.content.frames.append(frame)
                size += frame_bytes
            del self.ready[channel]
            if channel.queue:  # at the end, so that one long queue does not starve others
                self.ready[channel] = None

    def _frame_records(self, channel: RemoteChannel) -> int:
        """How many records of the size seen last fit into a frame."""
        fitting = self._config.packet_bytes_max // channel.record_bytes
        return max(1, min(self._config.frame_records_max, fitting))

    def _take_out(self, channel: RemoteChannel, batch: Batch, error: Unserialisable) -> None:
        """Fail a record that cannot be sent to another process; the rest of its batch is sent."""
        stream, bytes_max = self._streams[batch.stream], self._config.record_bytes_max
        head, rest = batch.split(first_bad(batch, stream, bytes_max))
        bad, tail = rest.split(1)
        channel.put_back(tail)
        channel.put_back(head)
        channel.drop(1)
        self._refuse(channel, bad, error)


class PacketReceiver:
    """The receiving end, for all peers: checks packets and their order."""

    def __init__(self, worker: int, incarnation: int) -> None:
        self._worker, self._incarnation = worker, incarnation
        self._last: dict[int, tuple[int, int]] = {}  # peer → its incarnation, last seq

    def answer(self, data: bytes) -> Answer:
        """Check a packet that has arrived. Process it if ACCEPTED, else drop it."""
        try:
            address = read_address(data)
        except CorruptPacket:
            return Answer.REFUSED
        known, last = self._last.get(address.sender, (-1, 0))
        if (address.receiver, address.receiver_incarnation) != (self._worker, self._incarnation):
            return Answer.STALE
        if address.sender_incarnation < known:
            return Answer.STALE
        if address.sender_incarnation == known and address.seq <= last:
            return Answer.REFUSED  # repeated, or overtaken by a later one
        self._last[address.sender] = (address.sender_incarnation, address.seq)
        return Answer.ACCEPTED
