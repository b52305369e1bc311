"""The port between a spout task and the source of its records, of which there are four kinds.

    records_source.py      records(): an iterator; the number of a record is its position
    tables_source.py       tables(): an iterator of Arrow tables; each row has a number
    log_source.py          poll(): a log with offsets; the spout numbers its records itself
    next_tuple_source.py   next_tuple(): Storm's; the spout chooses the message ids

The task tracks, replays and times out; the source draws records, sends them through the task, and
knows which part of its position moves with the task.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sunshower.failures import Failure
from sunshower.records import is_table
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.tasks.spouts.retry_queue import Replay
from sunshower.runtime.tasks.user_code import Raised
from sunshower.runtime.tracking.ids import I64
from sunshower.runtime.tracking.pending import Released
from sunshower.topologies.components import DEFAULT, OnStream, Spout
from sunshower.topologies.retry import DEAD_LETTERS, DeadLetter


@dataclass(frozen=True, slots=True)
class Drawn:
    """Records taken from a source in one call, in its order."""

    numbers: I64  # of the tracked ones
    records: Any  # to send: a sequence, or an Arrow table
    payloads: Sequence[Any]  # what `Pending` keeps of each until it is acked
    count: int  # what counts against the limit: also records that are not emitted
    has_more: bool = False  # more may be available now, although `count` is below the limit

    def only(self, which: NDArray[np.bool_]) -> Drawn:
        """Those records for which `which` is True."""
        payloads = list(compress(self.payloads, which))
        records = (
            self.records.filter(which)
            if is_table(self.records)
            else list(compress(self.records, which))
        )
        return Drawn(self.numbers[which], records, payloads, self.count, self.has_more)


def apart(payload: Any) -> tuple[str, Any]:
    """The stream and the record of a payload."""
    if type(payload) is OnStream:
        return payload.stream, payload.record
    return DEFAULT, payload


def by_stream(replays: Iterable[Replay]) -> dict[str, list[Replay]]:
    """Group messages by the stream of their payload."""
    found: defaultdict[str, list[Replay]] = defaultdict(list)
    for replay in replays:
        found[apart(replay.payload)[0]].append(replay)
    return found


class SpoutSource:
    """The source of one spout task."""

    repeats_numbers = True  # a new life gives each record the number that it had before
    tracks_all = True  # no record is emitted without a message id
    reopens = False  # after an error: a new spout object is opened
    error: Raised | None = None  # raised by the source after the records drawn last
    next_poll_s = inf  # when `look` is due
    committed = 0  # the lowest message number that is not settled: pending, queued, or not drawn
    drawn = 0  # the number of the next record to draw
    owed = 0  # no record from this number on was drawn, by this life or an earlier one
    behind = 0  # how many settled records the source still repeats; they are skipped
    is_empty = True  # no record that was drawn waits for its first emit
    asked_s = -inf  # when it last answered a request for records, also with none
    has_read_first = False  # all that the source had when the task began to read it is drawn
    notes_first_end = False  # whether `has_read_first` is needed

    def draw(self, limit: int, now: float) -> Drawn:
        """Up to `limit` records that are available now. An exception of user code is in `error`."""
        raise NotImplementedError

    def send(self, drawn: Drawn, attempts: Any, now: float) -> None:
        """Emit new records; `attempts`: the number of the attempt, of all or of each."""
        raise NotImplementedError

    def send_again(self, replays: Sequence[Replay], now: float) -> None:
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

    def read_again(self, now: float) -> None:
        """Request due records that were not kept."""

    def look(self, now: float) -> None:
        """Poll a source that must be polled also when nothing may be emitted."""

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

    def tell_completed(self, released: Released) -> None:
        """Tell the spout which messages are complete; called if it `listens`."""
