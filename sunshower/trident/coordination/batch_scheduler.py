"""Decides which batch begins, commits or is retried; master_batch_coordinator.py carries it out.

    ─Begin─▶ PROCESSING ─acked─▶ PROCESSED ─Commit─▶ COMMITTING ─acked─▶ COMMITTED ─Advance─▶
                 │                   │   only of the current   │
                 │                   │   txid                  │
                 └──failed, or one before it has──────failed───┘
                 ▼
             not active; begun again with the next attempt after a back-off

`next_step` returns the next step and changes nothing. The caller stores what the step requires,
calls `confirm`, and emits the tuple. After a failed write `next_step` returns the same step again.
Batches begin and commit in txid order, one commit at a time. Reports about an attempt that is not
the active one of its txid are ignored (Storm's fail removes the active one:
MasterBatchCoordinator.java:145).
Storm: org.apache.storm.trident.topology.MasterBatchCoordinator
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from sunshower.topologies.retry import Retry

_MACHINERY_MAX_S = 2.0  # the longest wait after failures that do not count


class Status(Enum):
    """The progress of an active attempt."""

    PROCESSING = "processing"
    PROCESSED = "processed"
    COMMITTING = "committing"
    COMMITTED = "committed"


class Begin(NamedTuple):
    """Store the attempt, and emit `$batch`."""

    txid: int
    attempt: int
    skip: bool


class Commit(NamedTuple):
    """Emit `$commit`."""

    txid: int
    attempt: int


class Advance(NamedTuple):
    """Store the next txid as the current one, and emit `$success`."""

    txid: int
    attempt: int


Step: TypeAlias = Begin | Commit | Advance


@dataclass
class Active:
    """An attempt that has begun."""

    attempt: int
    skip: bool
    status: Status = Status.PROCESSING


@dataclass
class _Failures:
    """The failures of the attempts of one txid."""

    times: int = 0  # that count
    in_a_row: int = 0  # that do not count, since the last one that did
    skip: bool = False  # the attempts have been used up once
    wait_until_s: float = 0.0


class BatchScheduler:
    """Decides for one batch group, starting from the stored progress."""

    def __init__(
        self,
        current: int,
        attempts: Mapping[int, int],
        *,
        max_batches: int = 1,
        interval_s: float = 0.0,
        attempts_max: int = 5,
        can_skip: bool = False,
        skipped: Iterable[int] = (),
        failures: Mapping[int, int] | None = None,
    ) -> None:
        self.current = current  # the txid to be committed next
        self.attempts = dict(attempts)  # of `current` and later ones: txid → attempt begun last
        self.active: dict[int, Active] = {}
        self.finished = False  # no more batches begin
        self.gave_up = False  # a batch has used up its attempts and cannot be skipped
        self._max_batches = max_batches
        self._interval_s = interval_s
        self._retry = Retry(attempts=attempts_max)
        self._can_skip = can_skip
        # From earlier lives: `skipped` are the txids whose attempts were used up, `failures` the
        # numbers of counted failures of the others.
        self._failures = {txid: _Failures(times=times) for txid, times in (failures or {}).items()}
        self._failures |= {txid: _Failures(skip=True) for txid in skipped}
        self._delay_s = 0.0
        self._next_begin_s: float | None = None

    def next_step(self, now: float, may_begin: Callable[[int], bool]) -> Step | None:
        """The next step, or None. `may_begin` is asked about new txids."""
        if self.finished or self.gave_up:
            return None
        first = self.active.get(self.current)
        if first is not None and first.status is Status.COMMITTED:
            return Advance(self.current, first.attempt)
        if first is not None and first.status is Status.PROCESSED:
            return Commit(self.current, first.attempt)
        return self._next_begin(now, may_begin)

    def confirm(self, step: Step, now: float) -> None:
        """Confirm that a step was carried out."""
        match step:
            case Begin(txid, attempt, skip):
                self.attempts[txid] = attempt
                self.active[txid] = Active(attempt, skip)
                self._next_begin_s = now + max(self._interval_s, self._delay_s)
            case Commit(txid, _):
                self.active[txid].status = Status.COMMITTING
            case Advance(txid, _):
                del self.active[txid], self.attempts[txid]
                self._failures.pop(txid, None)
                self.current = txid + 1

    def delay_begin(self, delay_s: float, now: float) -> None:
        """Set the least time between the beginnings of two batches, until the next call."""
        self._delay_s, until_s = delay_s, now + delay_s
        self._next_begin_s = max(self._next_begin_s or until_s, until_s)

    def acked(self, txid: int, attempt: int) -> bool:
        """The tree of `$batch` or `$commit` is complete. Returns whether the attempt is active; if
        not, nothing changes."""
        active = self._active_attempt(txid, attempt)
        if active is None:
            return False
        if active.status is Status.PROCESSING:
            active.status = Status.PROCESSED
        elif active.status is Status.COMMITTING:
            active.status = Status.COMMITTED
        return True

    def failed(self, txid: int, attempt: int, now: float, *, counts: bool) -> bool:
        """A tree of an attempt has failed: its batch and all later ones begin again. `counts`: the
        failure is charged as an attempt. Returns whether the attempt is active. Sets `gave_up` if
        the attempts are used up and the batch cannot be skipped."""
        active = self._active_attempt(txid, attempt)
        if active is None or self.finished:
            return False
        for later in [number for number in self.active if number >= txid]:
            del self.active[later]
        failures = self._failures.setdefault(txid, _Failures())
        if counts:
            self._count(failures)
            wait_s = self._retry.wait_s(failures.times) if failures.times else 0.0
        else:
            failures.in_a_row += 1
            again = self._retry.wait_s(failures.in_a_row - 1) if failures.in_a_row > 1 else 0.0
            wait_s = min(again, _MACHINERY_MAX_S)
        failures.wait_until_s = now + wait_s
        return True

    @property
    def failures(self) -> dict[int, int]:
        """The counted failures of batches that are not committed, by txid."""
        return {txid: failure.times for txid, failure in self._failures.items() if failure.times}

    def skips(self, txid: int) -> bool:
        """Whether the next attempt skips the batch."""
        return txid in self._failures and self._failures[txid].skip

    def finish(self) -> None:
        """Begin and commit nothing more: there will be no more rows."""
        self.finished = True
        self.active.clear()

    def _active_attempt(self, txid: int, attempt: int) -> Active | None:
        active = self.active.get(txid)
        return active if active is not None and active.attempt == attempt else None

    def _count(self, failures: _Failures) -> None:
        failures.times, failures.in_a_row = failures.times + 1, 0
        if failures.times < self._retry.attempts:
            return
        if self._can_skip and not failures.skip:
            failures.skip, failures.times = True, 0
        else:
            self.gave_up = True

    def _next_begin(self, now: float, may_begin: Callable[[int], bool]) -> Begin | None:
        """The lowest inactive txid, if it may begin now; no later one begins before it."""
        if self._next_begin_s is not None and now < self._next_begin_s:
            return None
        for txid in range(self.current, self.current + self._max_batches):
            if txid in self.active:
                continue
            failures = self._failures.get(txid)
            if failures is not None and now < failures.wait_until_s:
                return None
            if txid not in self.attempts and not may_begin(txid):
                return None
            return Begin(txid, self.attempts.get(txid, -1) + 1, self.skips(txid))
        return None
