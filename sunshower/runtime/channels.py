"""A channel: the records on their way from one task to another, until they are processed.

Its load is what was pushed and is not processed yet, wherever it is; its window is how much of
that the receiver allows (credits.py). A task with a full channel is not run: so pressure travels
back to the spouts, which stop to emit. A channel that closes a cycle has no window: it would
deadlock under full load. It has a hard limit instead, `window_records_max`: what is pushed beyond
it is turned away, and its trees fail with the cause OVERLOAD. So a bolt of a cycle that keeps on
making more than it takes in fails its own trees, and neither blocks nor grows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from sunshower.runtime.batch import Batch, can_join, join
from sunshower.runtime.ids import NO_IDS, U64


class Origin(Protocol):
    """Where a batch in an inbox came from, and who is told when it is processed."""

    source: int

    def processed(self, records: int, seq: int | None, window: int) -> None: ...


Entry = tuple[Batch, Origin, int | None]


@dataclass(slots=True)
class Inbox:
    """Batches waiting for one task, in order of arrival."""

    entries: deque[Entry] = field(default_factory=deque)

    def put(self, batch: Batch, origin: Origin, seq: int | None = None) -> None:
        """`seq` is the frame's number when the batch came from another worker."""
        self.entries.append((batch, origin, seq))

    def take(self, records_max: int) -> Entry:
        """The next batch, cut to `records_max`; its frame number only with its last part."""
        batch, origin, seq = self.entries.popleft()
        if len(batch) <= records_max:
            return batch, origin, seq
        first, rest = batch.split(records_max)
        self.entries.appendleft((rest, origin, seq))
        return first, origin, None

    def put_back(self, batch: Batch, origin: Origin, seq: int | None) -> None:
        """What `take` gave, or the end of it, is first in line again."""
        self.entries.appendleft((batch, origin, seq))

    def __len__(self) -> int:
        return sum(len(batch) for batch, _, _ in self.entries)

    def take_several(self, records_max: int) -> list[Entry]:
        """Batches of one stream that can be joined, up to `records_max` together."""
        taken = [self.take(records_max)]
        count = len(taken[0][0])
        while (
            self.entries
            and can_join(taken[0][0], self.entries[0][0])
            and count + len(self.entries[0][0]) <= records_max
        ):
            taken.append(self.entries.popleft())
            count += len(taken[-1][0])
        return taken


@dataclass(slots=True, eq=False)
class Channel:
    """The sender's end, whatever lies between the two."""

    source: int
    target: int
    window: int
    credited: bool = True
    records_max: int = 1 << 62  # a hard limit: see `overfull`
    refuse: Callable[[int, Batch], None] | None = None  # told (target, batch) what is turned away
    load: int = 0
    used: bool = False  # whether anything was ever pushed

    @property
    def full(self) -> bool:
        """Whether the receiver has as much ahead of it as it wants."""
        return self.credited and self.load >= self.window

    @property
    def overfull(self) -> bool:
        """Whether not even those may push who do not wait for a window: cycles and ticks."""
        return self.load >= self.records_max

    def push(self, batch: Batch) -> None:
        """Put a batch on its way, or turn it away where a cycle has come to its limit."""
        if self.refuse is not None and self.load >= self.records_max:
            self.refuse(self.target, batch)
            return
        self.load += len(batch)
        self.used = True
        self._put(batch)

    def _put(self, batch: Batch) -> None:
        raise NotImplementedError


@dataclass(slots=True, eq=False)
class LocalChannel(Channel):
    """To a task in the same worker: batches go as they are, by reference."""

    inbox: Inbox = field(default_factory=Inbox)

    def _put(self, batch: Batch) -> None:
        self.inbox.put(batch, self)

    def processed(self, records: int, seq: int | None, window: int) -> None:
        """The receiver is done with `records` more."""
        self.load -= records
        self.window = window


@dataclass(slots=True)
class SentFrame:
    """A frame that its receiver has not processed, as far as the sender knows."""

    seq: int
    records: int
    roots: U64


@dataclass(slots=True, eq=False)
class RemoteChannel(Channel):
    """To a task in another worker: batches wait in `queue` until a packet takes them."""

    ready: dict[RemoteChannel, None] = field(default_factory=dict)  # of the lane: who has a queue
    queue: deque[Batch] = field(default_factory=deque)
    queued: int = 0  # records in the queue
    record_bytes: int = 24  # of a record on the wire, as the last frame had it
    bytes_max: int = 1 << 26  # on their way at once, whatever the window says
    unsettled: deque[SentFrame] = field(default_factory=deque)
    next_seq: int = 0

    @property
    def full(self) -> bool:
        """As Channel.full, for large records by their bytes."""
        over = self.load >= self.window or self.load * self.record_bytes >= self.bytes_max
        return self.credited and over

    def _put(self, batch: Batch) -> None:
        self.queued += len(batch)
        self.queue.append(batch)
        self.ready[self] = None

    def take(self, records_max: int) -> Batch:
        """Up to `records_max` queued records, neighbours of one shape joined."""
        parts = [self.queue.popleft()]
        count = len(parts[0])
        while (
            self.queue
            and can_join(parts[-1], self.queue[0])
            and count + len(self.queue[0]) <= records_max
        ):
            parts.append(self.queue.popleft())
            count += len(parts[-1])
        batch = join(parts)
        if count > records_max:
            batch, rest = batch.split(records_max)
            self.queue.appendleft(rest)
        self.queued -= len(batch)
        return batch

    def put_back(self, batch: Batch) -> None:
        """What `take` gave, or a part of it, is first in line again."""
        if len(batch):
            self.queued += len(batch)
            self.queue.appendleft(batch)

    def drop(self, records: int) -> None:
        """`records` that were taken will never be sent."""
        self.load -= records

    def sent(self, batch: Batch) -> int:
        """What was taken goes out now. Returns the frame's sequence number, from 1."""
        self.next_seq += 1
        self.unsettled.append(SentFrame(self.next_seq, len(batch), batch.roots))
        return self.next_seq

    def granted(self, seq: int, window: int) -> None:
        """The receiver, elsewhere, is done with all frames up to `seq`."""
        while self.unsettled and self.unsettled[0].seq <= seq:
            self.load -= self.unsettled.popleft().records
        self.window = window

    def lose(self, seqs: set[int] | None = None) -> U64:
        """Frames `seqs` (None: all unsettled ones) are not going to be processed. Their roots."""
        lost = [f for f in self.unsettled if seqs is None or f.seq in seqs]
        if not lost:
            return NO_IDS
        self.unsettled = deque(f for f in self.unsettled if f not in lost)
        self.load -= sum(frame.records for frame in lost)
        return np.concatenate([frame.roots for frame in lost])


@dataclass(slots=True, eq=False)
class Inflow:
    """The receiver's end of a channel from another worker: what it has to grant."""

    source: int
    target: int
    worker: int  # where the sender lives
    window: int  # that the sender knows of
    next_window: int = 0  # that it will be told
    records: int = 0  # processed and not granted yet
    seq: int = 0  # of the last frame processed
    arrived: int = 0  # of the last frame put into the inbox
    unreadable: deque[tuple[int, int]] = field(default_factory=deque)  # frames that never were put
    # there: number, and that of the one before it that was

    def processed(self, records: int, seq: int | None, window: int) -> None:
        """`records` more are done; `seq` is the frame's number when that was its last part."""
        self.records += records
        self.next_window = window
        if seq is not None:
            self.seq = seq
            self._pass_unreadable()

    def put_aside(self, seq: int) -> None:
        """Frame `seq` cannot be processed. It is granted in its turn, not before those that wait
        in the inbox: if this process dies now, they were not processed."""
        self.next_window = self.next_window or self.window
        self.unreadable.append((seq, self.arrived))
        self._pass_unreadable()

    def _pass_unreadable(self) -> None:
        while self.unreadable and self.unreadable[0][1] <= self.seq:
            self.seq = self.unreadable.popleft()[0]
            self.records += 1

    @property
    def due(self) -> bool:
        """Whether the sender should be told before it runs dry."""
        return self.records * 2 >= min(self.window, self.next_window)

    def grant(self) -> tuple[int, int, int, int]:
        """(source, target, seq, window), to be sent to the sender."""
        self.records = 0
        self.window = self.next_window
        return (self.source, self.target, self.seq, self.window)
