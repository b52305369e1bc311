"""A peer link: sends packets from one worker to another, in order, each with an answer.

    DOWN ──the peer's life is known──▶ UP ──no answer, or STALE──▶ DOWN
      ▲                                        │        (up after `peer_link_retry_s`, or when
      └────────────────────────────────────────┘         the peer says hello in a new life)

A packet without an answer for half of `worker_timeout_s` is lost. As long as the peer does not
answer, empty packets probe the link, and the records wait in their channels.

Packets follow Nagle's rule: one leaves at once while none is unanswered, else when the answer comes
or a full one is ready. So packets are small at low load and large at high load, without a linger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from sunshower.config import Config
from sunshower.errors import CorruptPacket, Unserialisable
from sunshower.runtime.plan import PlannedStream
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.tracking.reports import ShardReport
from sunshower.runtime.transport.channels import RemoteChannel
from sunshower.runtime.transport.packets import (
    Address,
    Answer,
    Content,
    encode_frame,
    encode_packet,
    first_bad,
    read_address,
)

SUSPECT = 0.15  # of worker_timeout_s: a silence that is shown, and for which deadlines stop
_FULL_BYTES = 1 << 18  # a second packet follows an unanswered one at this size


@dataclass(slots=True)
class InFlight:
    """An unanswered packet: its content, whose frames stay with their channels."""

    content: Content
    sent_s: float
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
        self.peer_life: int | None = None
        self.ready: dict[RemoteChannel, None] = {}  # channels with a queue
        self.content = Content()
        self._worker, self._incarnation = worker, incarnation
        self._config = config
        self._frame_records_max = min(config.internals.frame_records_max, config.window_records_max)
        self._streams = streams
        self._refuse = refuse  # called with records that cannot be serialised
        self._up_again_s: float | None = None  # DOWN until then, or until the peer's next life
        self._in_flight: dict[int, InFlight] = {}
        self._failed_s: float | None = None  # when the first of the packets left that failed
        self._answer_s = config.worker_timeout_s / 2
        self._seq = 0

    @property
    def idle(self) -> bool:
        """Whether nothing waits and no packet is unanswered."""
        return not self._in_flight and not self.ready and not self.content

    @property
    def wants_packet(self) -> bool:
        """Whether to call `next_packets`: something waits, or the link is to be probed."""
        return bool(self.ready) or bool(self.content) or self._failed_s is not None

    @property
    def next_look_s(self) -> float:
        """When to call `overdue` and `next_packets`, unless something happens before; ∞: never."""
        if self._in_flight:
            return next(iter(self._in_flight.values())).sent_s + self._answer_s
        if self._up_again_s is None:  # the usual case
            return inf
        return self._up_again_s if self.wants_packet else inf

    def silent_s(self, now: float) -> float:
        """For how long the peer has not answered packets; 0.0 if none failed or waits."""
        since_s = self._failed_s
        if since_s is None and self._in_flight:
            since_s = next(iter(self._in_flight.values())).sent_s
        return 0.0 if since_s is None else now - since_s

    def next_packets(self, now: float) -> list[tuple[int, bytes]]:
        """Return (seq, bytes) of the packets to send now."""
        packets: list[tuple[int, bytes]] = []
        if self._up_again_s is not None and now >= self._up_again_s:
            self._up_again_s = None
        if self.peer_life is None or self._up_again_s is not None:  # DOWN
            return packets
        while not self._in_flight or self._may_overtake():
            if self._failed_s is not None:
                flight, has_content = InFlight(Content(greets=True), now), True
            else:
                flight, has_content = InFlight(self.content, now), bool(self.content)
                self.content = Content()
                if self.ready:
                    self._load_frames(flight)
            content = flight.content
            if not has_content and not content.frames:  # none of the records could be encoded
                break
            self._seq += 1
            self._in_flight[self._seq] = flight
            address = Address(self._worker, self.peer, self._incarnation, self.peer_life, self._seq)
            packets.append((self._seq, encode_packet(address, content)))
            content.frames = []
        return packets

    def answered(self, seq: int, answer: Answer | None, now: float) -> Lost:
        """Apply the answer to a packet; None if the call failed. Returns what was lost."""
        flight = self._in_flight.pop(seq, None)
        if flight is None:
            return NOTHING
        if answer is None:
            self._failed_s = flight.sent_s if self._failed_s is None else self._failed_s
        else:
            self._failed_s = None
        if answer is Answer.ACCEPTED:
            return NOTHING
        if answer is not Answer.REFUSED:
            self._up_again_s = now + self._config.internals.peer_link_retry_s
        lost = flight.content
        for task, verdicts in lost.verdicts.items():  # sending them twice is harmless
            waiting = self.content.verdicts[task]
            waiting.complete += verdicts.complete
            waiting.failed.add(verdicts.failed)
        self.content.postponed = lost.postponed + self.content.postponed
        self.content.grants = lost.grants + self.content.grants  # or the peer may block for ever
        self.content.greets = self.content.greets or lost.greets
        return self._lost([flight])

    def overdue(self, now: float) -> list[int]:
        """The packets that have waited for their answer for too long: they count as lost."""
        if not self._in_flight or self.next_look_s > now:
            return []
        return list(self._in_flight)  # the later ones are behind it

    def stopped_for(self, seconds: float) -> None:
        """This process was stopped: the answers that arrived meanwhile are not read yet."""
        for flight in self._in_flight.values():
            flight.sent_s += seconds

    def peer_is(self, life: int) -> Lost:
        """Apply the peer's hello. In a new life it has lost what it was sent before."""
        if life == self.peer_life:
            return NOTHING
        flights, self._in_flight = list(self._in_flight.values()), {}
        self.peer_life = life
        self._up_again_s = self._failed_s = None
        self.content.grants = []  # they count frames of the previous life
        return self._lost(flights)

    def _lost(self, flights: list[InFlight]) -> Lost:
        seqs: dict[RemoteChannel, set[int]] = {}
        for channel, seq in (frame for flight in flights for frame in flight.frames):
            seqs.setdefault(channel, set()).add(seq)
        reports = [report for flight in flights for report in flight.content.reports.values()]
        return Lost(list(seqs.items()), reports)

    def _may_overtake(self) -> bool:
        """Whether a packet may leave before the answer to the last one: it is a full one."""
        if self._failed_s is not None or not (self.ready or self.content.reports):
            return False
        if len(self._in_flight) >= self._config.internals.calls_in_flight_max:
            return False
        waiting = sum(channel.queued * channel.record_bytes for channel in self.ready)
        roots = sum(len(r) for report in self.content.reports.values() for r in report.roots())
        return waiting + 16 * roots >= _FULL_BYTES

    def _load_frames(self, flight: InFlight) -> None:
        size, bytes_max = 0, self._config.record_bytes_max
        while self.ready and size < self._config.internals.packet_bytes_max:
            channel = next(iter(self.ready))
            batch = channel.take(self._frame_records(channel))
            stream = self._streams[batch.stream]
            try:
                frame = encode_frame(channel.target, channel.next_seq + 1, batch, stream, bytes_max)
            except Unserialisable as error:
                self._take_out(channel, batch, error)
            else:
                frame_bytes = sum(len(part) for part in frame[5:])
                channel.record_bytes = frame_bytes // len(batch) + 1
                is_long = len(batch) > 2 * self._frame_records(channel)  # larger than before
                if is_long and not batch.shared:
                    channel.put_back(batch)
                    continue
                flight.frames.append((channel, channel.sent(batch)))
                sent_bytes = channel.sent_bytes
                sent_bytes[batch.stream] = sent_bytes.get(batch.stream, 0) + frame_bytes
                flight.content.frames.append(frame)
                size += frame_bytes
            del self.ready[channel]
            if channel.queue:  # at the end, so that one long queue does not starve others
                self.ready[channel] = None

    def _frame_records(self, channel: RemoteChannel) -> int:
        """How many records of the size seen last fit into a frame."""
        fitting = self._config.internals.packet_bytes_max // channel.record_bytes
        return max(1, min(self._frame_records_max, fitting))

    def _take_out(self, channel: RemoteChannel, batch: Batch, error: Unserialisable) -> None:
        """Fail a record that cannot be sent to another process; the rest of its batch is sent."""
        stream, bytes_max = self._streams[batch.stream], self._config.record_bytes_max
        index = first_bad(batch, stream, bytes_max)
        if batch.shared:  # all its trees fail
            channel.drop(len(batch))
            self._refuse(channel, batch.only(index), error)
            return
        head, rest = batch.split(index)
        bad, tail = rest.split(1)
        channel.put_back(tail)
        channel.put_back(head)
        channel.drop(1)
        self._refuse(channel, bad, error)


def silent_peers(links: Mapping[int, PeerLink], now: float, config: Config) -> dict[int, float]:
    """Peer → for how long it has not answered, if that is so long that others must know."""
    silent = {peer: link.silent_s(now) for peer, link in links.items()}
    return {peer: s for peer, s in silent.items() if s >= config.worker_timeout_s * SUSPECT}


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
