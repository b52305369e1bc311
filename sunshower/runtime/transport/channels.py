"""A channel: the unprocessed records from one task to another, and their flow control.

Its load is what was pushed and is not processed yet, wherever it is; its window is the load that
the receiver allows ("credits" below). A task with a full channel does not run, so backpressure
reaches the spouts, which stop emitting. A channel that closes a cycle has no window, because it
would deadlock under full load. It has a hard limit instead, `window_records_max`: records beyond
it are refused, and their trees fail with the cause OVERLOAD. So a bolt in a cycle that emits more
than it takes in fails its own trees, and neither blocks nor grows without bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, Protocol

import numpy as np

from sunshower.clock import Clock, SystemClock
from sunshower.config import Config
from sunshower.runtime.tracking.batch import Batch, can_join, join
from sunshower.runtime.tracking.ids import NO_IDS, U64

_SMALL_RECORDS = 1024  # joining copies the records; processing a batch costs 0.1 ms
_GRANT_S = 0.05  # grants wait at most this long, however small they are


# ---- credits -------------------------------------------------------------------------------------
# Credits: limit a task's queue to the records of a quarter of a second (`window_s`).
#
# Two estimates are kept, because they differ as soon as a task waits for other tasks:
#
#   work     seconds of its own code for each input: how many inputs make a slice of `slice_s`, and
#            a piece, the least that a sender with several receivers gives to one of them
#   pace     seconds between two inputs that leave its inbox, while there are any: its own work, the
#            time it is blocked because its receivers have no credit, and the time its worker
#            spends on other tasks. The window, `window_s` at that pace, follows it.
#
# Both are the seconds of the last slices divided by their records: a slice of one record that the
# machine interrupts says as little as its one record. (With a mean of the slices' quotients, a busy
# machine makes slices small, small slices are interrupted more often, and they stay small.)
#
# Neither includes flush(): it costs the same per batch, however large it is. So a slice has work
# for at least as long as a flush() takes: a sink with a slow commit gets many records at a time.
# Backpressure from a slow bolt reaches the spouts after windows of a quarter of a second for each
# bolt on the path, however fast the bolts in between are, and long before any timeout.

_FIRST_SLICE = 1  # a bolt that takes 5 s a record must not look stuck
_FIRST_WINDOW = 2  # before anything is measured: a record may take seconds
_SLICE_GROWTH_MAX = 4  # each time
# For each window of processed inputs. Several fast bolts delay the effect of a slow bolt behind
# them: with 4, overload seed 16 has 87 open trees of 0.34 s each, and timeouts.
_WINDOW_GROWTH_MAX = 2
# A window of at most this much work may grow faster: a new topology fills its windows sooner.
_BRIEF_S, _BRIEF_GROWTH_MAX = 0.01, 8
_WINDOW_MIN, _SMALL_WINDOW, _WINDOW_MIN_S = 2, 4, 2.0
_PIECES = 5  # in a slice: a piece is 4 ms of work by default, and a batch costs 0.1 ms
_MEMORY = 0.75  # the weight of what was measured before, at each new slice
_LEAST_S = 1e-7  # for each record


class Credit(NamedTuple):
    """What a receiver tells each of its senders."""

    window: int  # records that the sender may have unprocessed there
    piece: int  # records whose work is worth a batch of their own; at most the window


FIRST_CREDIT = Credit(_FIRST_WINDOW, _FIRST_SLICE)


class ServiceTime:
    """The seconds per record of a task in its last slices, and the limits that follow."""

    def __init__(self, config: Config) -> None:
        self._config = config
        # of the last slices, each weighted by _MEMORY for each slice after it
        self._records = self._work_s = self._waited_s = 0.0
        self._flush_s = 0.0  # the mean for a slice
        self.busy_s = 0.0  # the sum of all measured `seconds`, and the time of flush()
        self.pace_s: float | None = None  # None: nothing was measured yet
        self.records_max = config.window_records_max  # the hard limit of a window
        self.at_once = 0  # records that the task processes at the same time: the least window
        self._last_s = 0.0  # seconds of the last slice
        self._measured = 0  # records since the window last grew
        self.slice_records = _FIRST_SLICE  # records in one slice of work
        self.window = FIRST_CREDIT.window  # as in Credit

    @property
    def patience_s(self) -> float:
        """How long inputs may wait for others, to be processed together: four times as long as the
        last slice took, which then takes a fifth of the time."""
        return min(4 * self._last_s, self._config.internals.window_s)

    @property
    def credit(self) -> Credit:
        """The present limits of each sender."""
        return Credit(self.window, max(1, min(self.window, self.slice_records // _PIECES)))

    def measure(
        self, records: int, seconds: float, waited_s: float = 0.0, flush_s: float = 0.0
    ) -> None:
        """`records` (≥ 1) took `seconds`, and `flush_s` for flush(), after waiting `waited_s` for
        credit of the receivers or for the task's turn."""
        self.busy_s += seconds
        self._last_s = seconds
        self._records = _MEMORY * self._records + records
        self._work_s = _MEMORY * self._work_s + seconds
        self._waited_s = _MEMORY * self._waited_s + waited_s
        self._flush_s = _MEMORY * self._flush_s + (1 - _MEMORY) * flush_s
        work_s = max(self._work_s / self._records, _LEAST_S)
        self.pace_s = max((self._work_s + self._waited_s) / self._records, _LEAST_S)
        config = self._config
        slice_s = max(config.internals.slice_s, min(self._flush_s, config.internals.window_s))
        slice_records = min(round(slice_s / work_s), self.slice_records * _SLICE_GROWTH_MAX)
        self.slice_records = max(1, slice_records)
        # the largest window that may follow the present one
        brief = min(int(_BRIEF_S / self.pace_s), self.window * _BRIEF_GROWTH_MAX)
        largest = max(self.window * _WINDOW_GROWTH_MAX, brief)
        window = min(round(config.internals.window_s / self.pace_s), largest)
        least = max(_WINDOW_MIN, min(int(_WINDOW_MIN_S / self.pace_s), _SMALL_WINDOW))
        least = max(least, min(self.at_once, self.records_max))
        window = max(least, min(window, self.records_max))
        self._measured += records
        if window <= self.window:
            self.window = window
        elif self._measured >= self.window:  # the first inputs say little about the pace
            self.window, self._measured = window, 0


# ---- channels ------------------------------------------------------------------------------------


class Origin(Protocol):
    """The sender of a batch in an inbox; notified when records are processed."""

    source: int

    def processed(self, records: int, seq: int | None, credit: Credit) -> None: ...


Entry = tuple[Batch, Origin, int | None]


@dataclass(slots=True)
class _Granted:
    """The sender of a batch that was granted before it is processed."""

    source: int

    def processed(self, records: int, seq: int | None, credit: Credit) -> None: ...


def _is_small(batch: Batch) -> bool:
    """Whether to process it with others."""
    return len(batch) < _SMALL_RECORDS and not (batch.shared or batch.in_common or batch.is_table)


@dataclass(slots=True)
class Inbox:
    """Batches waiting for one task, in order of arrival."""

    entries: deque[Entry] = field(default_factory=deque)
    clock: Clock = field(default_factory=SystemClock)  # the worker's, once its tasks are wired

    def put(self, batch: Batch, origin: Origin, seq: int | None = None) -> None:
        """`seq` is the frame's number when the batch came from another worker."""
        batch.arrived_s = self.clock.now()
        self.entries.append((batch, origin, seq))

    def take(self, records_max: int) -> Entry:
        """Return the next batch, cut to `records_max` unless it is shared (the task divides those);
        its frame number only with its last part."""
        batch, origin, seq = self.entries.popleft()
        if len(batch) <= records_max or batch.shared:
            return batch, origin, seq
        first, rest = batch.split(records_max)
        self.entries.appendleft((rest, origin, seq))
        return first, origin, None

    def put_back(self, batch: Batch, origin: Origin, seq: int | None) -> None:
        """Put back at the front what `take` returned, or the end of it."""
        self.entries.appendleft((batch, origin, seq))

    def move_back(self, credit: Credit) -> None:
        """Move the next batch behind the others. It is granted now, because frames are granted in
        their order; if this process dies before it is processed, a sweep fails its trees."""
        batch, origin, seq = self.entries.popleft()
        origin.processed(len(batch), seq, credit)
        self.entries.append((batch, _Granted(origin.source), None))

    def __len__(self) -> int:
        return sum(len(batch) for batch, _, _ in self.entries)

    def take_several(self, records_max: int) -> list[Entry]:
        """Return batches of one stream that can be joined, up to `records_max` together; a shared
        one alone."""
        return self._take_while(records_max, lambda first: not first.shared, can_join)

    def take_shared(self, records_max: int) -> list[Entry]:
        """Return shared batches of one stream, up to `records_max` together; [] if the next batch
        is not shared."""
        if not self.entries[0][0].shared:
            return []
        return self._take_while(records_max, lambda _: True, can_join)

    def take_small(self, records_max: int, *, one_source: bool) -> list[Entry]:
        """Return the next batch, with small ones behind it, up to `records_max` together; of the
        same task if `one_source`.

        Otherwise a queue of batches of one record stays one: each is processed by itself, and is
        passed on as batches that are as small.
        """
        if len(self.entries) == 1:
            return [self.take(records_max)]

        def joins(first: Batch, later: Batch) -> bool:
            same = not one_source or later.source == first.source
            return same and _is_small(later) and can_join(first, later)

        return self._take_while(records_max, _is_small, joins)

    def _take_while(
        self,
        records_max: int,
        grows: Callable[[Batch], bool],
        joins: Callable[[Batch, Batch], bool],
    ) -> list[Entry]:
        taken = [self.take(records_max)]
        first = taken[0][0]
        count = len(first)
        if count >= records_max or not grows(first):
            return taken
        while self.entries:
            later = self.entries[0][0]
            if count + len(later) > records_max or not joins(first, later):
                break
            taken.append(self.entries.popleft())
            count += len(later)
        return taken


@dataclass(slots=True)
class Taken:
    """Inputs that were taken from an inbox, in one or several entries."""

    batch: Batch  # to be processed: all of them, but those of failed trees
    entries: list[Entry]
    parts: list[Batch]  # of each entry, the inputs whose trees have not failed
    sizes: list[int]  # of each entry, how many inputs stay taken
    at_s: float
    dropped: int  # inputs of earlier entries, which had only failed trees
    left: list[Batch] = field(default_factory=list)  # inputs not started, the last ones first

    def put_back(self, inbox: Inbox, rest: Batch) -> None:
        """Put inputs that were not started back into the inbox, each with its own origin.

        `rest` is the end of the joined `parts`. An entry of which nothing was started goes back
        whole, with the inputs of failed trees, so that frames are granted in their order. An entry
        that was started in part keeps what was started, and the rest goes back with the frame's
        number.
        """
        left, entries, parts = len(rest), self.entries, self.parts
        while left:
            index = len(entries) - 1
            (batch, origin, seq), part = entries[index], parts[index]
            if len(part) <= left and index:
                batch.is_recorded = rest.is_recorded
                inbox.put_back(batch, origin, seq)
                left -= len(part)
                del entries[index], parts[index], self.sizes[index]
                continue
            piece = rest if left == len(rest) else rest.split(left)[0]
            piece.source, piece.arrived_s = part.source, part.arrived_s
            inbox.put_back(piece, origin, seq)
            entries[index] = (part, origin, None)
            self.sizes[index] -= left
            return


@dataclass(slots=True, eq=False)
class Channel:
    """The sender's end; subclasses say how batches reach the receiver."""

    source: int
    target: int
    window: int = FIRST_CREDIT.window  # as in Credit
    piece: int = FIRST_CREDIT.piece
    credited: bool = True
    records_max: int = 1 << 62  # a hard limit: see `overfull`
    refuse: Callable[[int, Batch], None] | None = None  # called with refused (target, batch)
    load: int = 0
    used: bool = False  # whether anything was ever pushed

    @property
    def full(self) -> bool:
        """Whether the load has reached the receiver's window."""
        return self.credited and self.load >= self.window

    @property
    def overfull(self) -> bool:
        """Whether the load has reached the hard limit, which also holds without a window."""
        return self.load >= self.records_max

    def push(self, batch: Batch) -> None:
        """Send a batch, or refuse it at the hard limit of a cycle."""
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
    """A channel to a task in the same worker: batches are passed by reference."""

    inbox: Inbox = field(default_factory=Inbox)

    def _put(self, batch: Batch) -> None:
        self.inbox.put(batch, self)

    def processed(self, records: int, seq: int | None, credit: Credit) -> None:
        """The receiver has processed `records` more."""
        self.load -= records
        self.window, self.piece = credit


@dataclass(slots=True)
class SentFrame:
    """A frame that the receiver is not known to have processed."""

    seq: int
    records: int
    roots: U64


@dataclass(slots=True, eq=False)
class RemoteChannel(Channel):
    """A channel to a task in another worker: batches wait in `queue` for a packet."""

    ready: dict[RemoteChannel, None] = field(default_factory=dict)  # the peer link's queues
    queue: deque[Batch] = field(default_factory=deque)
    queued: int = 0  # records in the queue
    record_bytes: int = 24  # of a record on the wire, as in the last frame
    bytes_max: int = 1 << 26  # unprocessed bytes allowed, whatever the window
    unsettled: deque[SentFrame] = field(default_factory=deque)
    next_seq: int = 0
    sent_bytes: dict[int, int] = field(default_factory=dict)  # by stream: of records and ids

    @property
    def full(self) -> bool:
        """As Channel.full; large records also count by their bytes."""
        over = self.load >= self.window or self.load * self.record_bytes >= self.bytes_max
        return self.credited and over

    def _put(self, batch: Batch) -> None:
        self.queued += len(batch)
        self.queue.append(batch)
        self.ready[self] = None

    def take(self, records_max: int) -> Batch:
        """Return up to `records_max` queued records, adjacent batches of one shape joined."""
        parts = [self.queue.popleft()]
        count = len(parts[0])
        while (
            self.queue
            and not parts[-1].shared
            and can_join(parts[-1], self.queue[0])
            and count + len(self.queue[0]) <= records_max
        ):
            parts.append(self.queue.popleft())
            count += len(parts[-1])
        batch = join(parts)
        if count > records_max and not batch.shared:
            batch, rest = batch.split(records_max)
            self.queue.appendleft(rest)
        self.queued -= len(batch)
        return batch

    def put_back(self, batch: Batch) -> None:
        """Put back at the front what `take` returned, or a part of it."""
        if len(batch):
            self.queued += len(batch)
            self.queue.appendleft(batch)

    def drop(self, records: int) -> None:
        """`records` that were taken will never be sent."""
        self.load -= records

    def sent(self, batch: Batch) -> int:
        """Note that a taken batch is sent. Returns the frame's sequence number, from 1."""
        self.next_seq += 1
        self.unsettled.append(SentFrame(self.next_seq, len(batch), batch.roots))
        return self.next_seq

    def granted(self, seq: int, credit: Credit) -> None:
        """The receiver in another worker has processed all frames up to `seq`."""
        while self.unsettled and self.unsettled[0].seq <= seq:
            self.load -= self.unsettled.popleft().records
        self.window, self.piece = credit

    def lose(self, seqs: set[int] | None = None) -> U64:
        """Frames `seq` (None: all unsettled ones) are lost. Returns their roots."""
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
    worker: int  # the sender's
    credit: Credit = FIRST_CREDIT  # as the sender knows it
    next_credit: Credit = FIRST_CREDIT  # for the next grant
    records: int = 0  # processed and not granted yet
    seq: int = 0  # of the last frame processed
    arrived: int = 0  # of the last frame put into the inbox
    unreadable: deque[tuple[int, int]] = field(default_factory=deque)  # frames never put into the
    # inbox: number, and that of the last frame before it that was

    def processed(self, records: int, seq: int | None, credit: Credit) -> None:
        """`records` more are processed; `seq` is the frame's number if that was its last part."""
        self.records += records
        self.next_credit = credit
        if seq is not None:
            self.seq = seq
            if self.unreadable:
                self._pass_unreadable()

    def put_aside(self, seq: int) -> None:
        """Frame `seq` cannot be processed. It is granted after the frames before it in the inbox:
        if this process crashes now, they were not processed."""
        self.unreadable.append((seq, self.arrived))
        self._pass_unreadable()

    def _pass_unreadable(self) -> None:
        while self.unreadable and self.unreadable[0][1] <= self.seq:
            self.seq = self.unreadable.popleft()[0]
            self.records += 1

    def grant(self) -> tuple[int, int, int, Credit]:
        """Return (source, target, seq, credit), to be sent to the sender."""
        self.records = 0
        self.credit = self.next_credit
        return (self.source, self.target, self.seq, self.credit)


class Inflows:
    """All channels from other workers, by source and target task."""

    def __init__(self) -> None:
        self.grant_at_s = inf  # when to grant what is too little to be granted at once
        self._flows: dict[tuple[int, int], Inflow] = {}

    def of(self, source: int, target: int, worker: int) -> Inflow:
        """The channel of these tasks; new if nothing has arrived by it yet."""
        flow = self._flows.get((source, target))
        if flow is None:
            flow = self._flows[source, target] = Inflow(source, target, worker)
        return flow

    def forget(self, worker: int) -> None:
        """The sender has died."""
        self._flows = {key: flow for key, flow in self._flows.items() if flow.worker != worker}

    def to_grant(self, now: float) -> list[Inflow]:
        """Those to grant now: at once where a sender may run dry, else every _GRANT_S."""
        time_is_up, due, left = now >= self.grant_at_s, [], False
        for flow in self._flows.values():
            if flow.records:
                window = min(flow.credit.window, flow.next_credit.window)
                if time_is_up or 2 * flow.records >= window:  # the sender may run dry soon
                    due.append(flow)
                else:
                    left = True
        self.grant_at_s = min(self.grant_at_s, now + _GRANT_S) if left else inf
        return due
