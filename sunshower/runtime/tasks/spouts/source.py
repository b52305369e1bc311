"""The port between a spout task and the source of its records, of which there are four kinds.

    records_source.py      records(): an iterator; the number of a record is its position
    records_source.py       tables(): an iterator of Arrow tables; each row has a number
    log_source.py          poll(): a log with offsets; the spout numbers its records itself
    next_tuple_source.py   next_tuple(): Storm's; the spout chooses the message ids

The task tracks, replays and times out. The source draws records, hands them to the task when that
emits them (`Sender`), and knows which part of its position moves with the task; it keeps no
reference to the task.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from math import inf
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sunshower.clock import Clock
from sunshower.errors import Unavailable
from sunshower.failures import Failure
from sunshower.records import is_table
from sunshower.runtime.tasks.spouts.retry_queue import Replay
from sunshower.runtime.tasks.task_transfer import TaskTransfer
from sunshower.runtime.tasks.user_code import Raised
from sunshower.runtime.tracking.ids import I64
from sunshower.runtime.tracking.pending import Released
from sunshower.topologies.components import DEFAULT, OnStream, Spout
from sunshower.topologies.logs import LogSpout, Polled, Unreadable
from sunshower.topologies.retry import DEAD_LETTERS, DeadLetter


@dataclass(frozen=True, slots=True)
class Drawn:
    """Records taken from a source in one call, in its order."""

    numbers: I64  # of the tracked ones
    records: Any  # to send: a sequence, or an Arrow table
    payloads: Sequence[Any]  # what `Pending` keeps of each until it is acked
    count: int  # what counts against the limit: also records that are not emitted
    has_more: bool = False  # more may be available now, although `count` is below the limit
    # Of a log: positions without a record, and ranges of numbers that another task owns from now
    # on, whose open messages are dropped before these records are emitted.
    unreadable: Sequence[Unreadable] = ()
    gone: Sequence[tuple[int, int]] = ()

    def only(self, which: NDArray[np.bool_]) -> Drawn:
        """Those records for which `which` is True."""
        payloads = list(compress(self.payloads, which))
        records = (
            self.records.filter(which)
            if is_table(self.records)
            else list(compress(self.records, which))
        )
        return Drawn(self.numbers[which], records, payloads, self.count, self.has_more)


class MessageRecords:
    """Records of one stream in the order in which they leave, and the message of each."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.messages: list[int] = []  # indices

    def add(self, message: int, record: Any) -> None:
        """Add a record of the message with this index."""
        self.records.append(record)
        self.messages.append(message)


class Emission(NamedTuple):
    """One emit of a spout that emits by itself."""

    stream: str
    record: Any
    message_id: Any
    task: int | None = None  # of emit_direct
    attempt: int = 1
    number: int = 0  # emits of the task before this one
    together: bool = False  # a request that was emitted in one batch with others


class Sender(Protocol):
    """Emits what a source has drawn: the spout task, see there."""

    def send(
        self,
        stream: str,
        records: Any,
        payloads: Sequence[Any],
        numbers: Sequence[int] | I64,
        attempts: Any,
        now: float,
    ) -> None: ...
    def send_messages(
        self,
        streams: Mapping[str, MessageRecords],
        payloads: Sequence[Any],
        numbers: Sequence[int] | I64,
        attempts: Any,
        now: float,
    ) -> None: ...
    def send_emissions(self, emissions: Sequence[Emission], now: float) -> None: ...


def apart(payload: Any) -> tuple[str, Any]:
    """The stream and the record of a payload."""
    if type(payload) is OnStream:
        return payload.stream, payload.record
    return DEFAULT, payload


def by_stream(replays: Iterable[Replay]) -> dict[str, list[Replay]]:
    """Group messages by the stream of their payload."""
    groups: defaultdict[str, list[Replay]] = defaultdict(list)
    for replay in replays:
        groups[apart(replay.payload)[0]].append(replay)
    return groups


class SpoutSource:
    """The source of one spout task."""

    repeats_numbers = True  # a new life gives each record the number that it had before
    tracks_all = True  # no record is emitted without a message id
    tells_drain = False  # the user's object is told of a drain
    reopens = False  # after an error: a new spout object is opened
    exhausted = False  # it has no further record, or none is wanted
    error: Raised | None = None  # raised by the source after the records drawn last
    next_poll_s = inf  # when `look` is due
    drawn = 0  # the number of the next record to draw
    owed = 0  # no record from this number on was drawn, by this life or an earlier one
    behind = 0  # how many settled records the source still repeats; they are skipped
    is_empty = True  # no record that was drawn waits for its first emit
    log: LogSpout[Any] | None = None  # the spout, if it knows the partitions of its records
    wake: Callable[[], None] = staticmethod(lambda: None)  # lets the task ask it soon
    asked_s = -inf  # when it last answered a request for records, also with none
    has_read_first = False  # all that the source had when the task began to read it is drawn
    notes_first_end = False  # whether `has_read_first` is needed

    def draw(self, limit: int, now: float, room: float) -> Drawn:
        """Up to `limit` records that are available now, at most `room` of them tracked. An
        exception of user code is in `error`."""
        raise NotImplementedError

    def send(self, drawn: Drawn, attempts: Any, now: float, sender: Sender) -> None:
        """Emit new records by `sender`; `attempts`: the number of the attempt, of all or of
        each."""
        sender.send(DEFAULT, drawn.records, drawn.payloads, drawn.numbers, attempts, now)

    def send_again(self, replays: Sequence[Replay], now: float, sender: Sender) -> None:
        """Emit queued messages and dead letters."""
        raise NotImplementedError

    def values(self, replay: Replay) -> dict[str, Any]:
        """The record of a message that is no dead letter yet, as field → value."""
        raise NotImplementedError

    def message_id(self, replay: Replay) -> Any:
        """The message id of a queued message."""
        return replay.number

    def message_ids(self, released: Released) -> list[Any]:
        """The message id of each of these trees."""
        ids: list[Any] = released.numbers.tolist()
        return ids

    def stream_of(self, replay: Replay) -> str:
        """The stream of a message that is no dead letter yet."""
        return apart(replay.payload)[0]

    def letter_payload(self, replay: Replay, letter: DeadLetter) -> Any:
        """The payload to keep for a message once it is a dead letter."""
        return OnStream(DEAD_LETTERS, letter)

    def gives_up(self, replay: Replay, failure: Failure | None) -> bool:
        """Whether to drop a message that is due; `failure`: the last one, if it has used up its
        attempts."""
        return False

    def judged(self, released: Released, failures: Sequence[Failure]) -> Sequence[Failure]:
        """The failures of these trees, as they count for their messages."""
        return failures

    def refetch(self, numbers: I64, room: int) -> Polled[Any]:
        """Up to `room` available records of those with `numbers`, which were not kept. Raises
        Raised."""
        raise NotImplementedError

    def look(self, now: float) -> Sequence[tuple[int, int]]:
        """Poll a source that must be polled also when nothing may be emitted. Returns the `gone` of
        Drawn. Raises Raised."""
        return ()

    def begin_at(self, position: int, drawn: int = 0, owed: int | None = None) -> None:
        """Continue after the first `position` records, which are settled; a former life drew the
        first `drawn`, and none from `owed` on (None: unknown). Called before `begin`."""

    def adopt(self, spout: Any) -> None:
        """Read from this spout object from now on, whether it is new or has moved."""

    def begin(self) -> None:
        """Read a new spout object from its beginning. Raises Raised."""

    def skip(self) -> int:
        """Skip some of the settled records. Returns how many: 0 if none is available now."""
        return 0

    def drain(self) -> None:
        """Draw no record that was not drawn before."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Drop what was drawn and not emitted."""

    @property
    def may_stay(self) -> bool:
        """Whether the spout object can continue after a rebalance in the same process."""
        return True

    def pack(self, transfer: TaskTransfer, *, stays: bool) -> None:
        """Add to `transfer` what a rebalance moves; `stays`: the spout object moves, too."""

    def begin_after(self, transfer: TaskTransfer) -> None:
        """Continue a former life whose spout object did not move; before `begin`."""

    def unpack(self, transfer: TaskTransfer) -> None:
        """Continue with what `pack` has added. Raises Raised."""

    def close(self) -> None:
        """The spout object is closed."""

    def listens(self, spout: Any) -> bool:
        """Whether the spout gets a call of `ack` for complete messages."""
        return type(spout).ack is not Spout.ack

    def settled(self, released: Released) -> list[Any]:
        """These messages are complete; called if the spout `listens`. Returns the ids of those for
        which its `ack` is to be called."""
        return self.message_ids(released)

    def passed_over(self, numbers: I64) -> None:
        """These messages of a log are complete without a tree."""


# ---- emit reservation ----------------------------------------------------------------------------
# A durable upper bound on the records that a spout task may have drawn.
#
# A machine that dies takes the flight recorder with it, and the master knows only slightly older
# numbers. Outside a drain that is harmless: the next life draws the records again. But a task that
# restarts during a drain must know where to stop. So a task draws no record beyond the reservation
# before it has moved the reservation; a new life without a crash report re-emits all records below
# it. That is a few seconds' worth of records too many: if the source slows down, the reservation
# moves back to that distance, and at least _LEAST records.

_LEAST = 64
_MOST = 1 << 20
_OFTEN_S = 1.0  # if it moves twice within this time, the next step is twice as far
_SELDOM_S = 4.0


class ReservationStore(Protocol):
    """Stores reservations; RayReservationStore of actors/store.py survives the loss of a machine.

    Raises Unavailable if it does not answer; a write may have happened nevertheless.
    """

    def read(self, task: int) -> int:
        """The number last written for a spout task; 0 if none was."""

    def write(self, task: int, number: int) -> None:
        """Return once the number is durable."""


class EmitReservation:
    """The reservation of one spout task."""

    def __init__(self, task: int, marks: ReservationStore, clock: Clock) -> None:
        self._task, self._marks, self._clock = task, marks, clock
        self.at = marks.read(task)  # no life has drawn a record from here on
        self._inherited = self.at  # a former life may have drawn all below
        self._step = _LEAST
        self._moved_s = -_SELDOM_S
        self._first = 0  # the next record to draw when it was moved

    def room(self, first: int, count: int) -> int:
        """How many of `count` records from `first` on may be drawn now; at least 1 if `count` is.

        Raises the store's error if the reservation cannot be moved; the caller retries later.
        """
        now = self._clock.now()
        if first + count > self.at and self.at - first < self._step // 2:
            step = self._stride(now - self._moved_s)
            self._move(first + step)
            self._step, self._moved_s, self._first = step, now, first
        elif now - self._moved_s > _SELDOM_S and self.at - first > 2 * _LEAST:
            self._draw_near(first, now)
        return min(count, self.at - first)

    def close(self, end: int) -> None:
        """Note that no record from `end` on will ever be drawn."""
        if end < self.at:
            self._move_back(end)

    def _draw_near(self, first: int, now: float) -> None:
        """Move the reservation closer to `first`, because the source has become slow."""
        pace = max(0, first - self._first) / (now - self._moved_s)
        self._moved_s, self._first = now, first
        self._step = int(min(max(_LEAST, _SELDOM_S * pace), self._step))
        if (to := max(first + self._step, self._inherited)) < self.at:
            self._move_back(to)

    def _stride(self, since_s: float) -> int:
        """How far to move it, `since_s` after the last move."""
        if since_s < _OFTEN_S:
            return min(2 * self._step, _MOST)
        return max(self._step // 2, _LEAST) if since_s > _SELDOM_S else self._step

    def _move_back(self, to: int) -> None:
        """Move it back, if the store answers; else the next life re-emits more than necessary."""
        with suppress(Unavailable):
            self._move(to)

    def _move(self, to: int) -> None:
        self.at = min(self.at, to)  # until it is certain which of the two is stored
        self._marks.write(self._task, to)
        self.at = to
