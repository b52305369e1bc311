"""The master batch coordinator, without its hands: which batch is begun, committed, tried again.

    ─Begin─▶ PROCESSING ─acked─▶ PROCESSED ─Commit─▶ COMMITTING ─acked─▶ COMMITTED ─Advance─▶
                 │                   │   only of the current   │
                 │                   │   txid                  │
                 └──failed, or one before it has──────failed───┘
                 ▼
             not active; begun again with the next attempt, when its back-off is over

`next_step` says what to do now and changes nothing; who has done it says so with `done`. So what
must be stored first is stored first, and a store that does not answer is asked again.
Batches are begun and committed in the order of txids, one commit at a time. What is told of an
attempt that is not the active one of its txid touches nothing (Storm's fail removes the running
one: MasterBatchCoordinator.java:145).
Storm: org.apache.storm.trident.topology.MasterBatchCoordinator
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from sunshower.topologies.retry import Retry

_MACHINERY_MAX_S = 2.0  # the longest wait after failures of the machinery


class Status(Enum):
    """How far an active attempt is."""

    PROCESSING = "processing"
    PROCESSED = "processed"
    COMMITTING = "committing"
    COMMITTED = "committed"


class Begin(NamedTuple):
    """Keep the attempt in the store, and emit `$batch`."""

    txid: int
    attempt: int
    skip: bool


class Commit(NamedTuple):
    """Emit `$commit`."""

    txid: int
    attempt: int


class Advance(NamedTuple):
    """Keep the next txid as the current one in the store, and emit `$success`."""

    txid: int
    attempt: int


Step: TypeAlias = Begin | Commit | Advance


@dataclass
class Active:
    """An attempt that is under way."""

    attempt: int
    skip: bool
    status: Status = Status.PROCESSING


@dataclass
class _Trouble:
    """What has befallen the attempts of one txid."""

    times: int = 0  # failures that count
    in_a_row: int = 0  # failures of the machinery since
    skip: bool = False  # its attempts were used up once
    wait_until_s: float = 0.0


class MasterCoordinator:
    """The decisions of one batch group, from where the store says it stood."""

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
        self.current = current  # the txid that is committed next
        self.attempts = dict(attempts)  # of `current` and later ones: txid → begun last
        self.active: dict[int, Active] = {}
        self.finished = False  # there is nothing more to be begun
        self.gave_up = False  # a batch has used up its attempts, and cannot be skipped
        self._max_batches = max_batches
        self._interval_s = interval_s
        self._retry = Retry(attempts=attempts_max)
        self._can_skip = can_skip
        # `skipped`: the txids whose attempts a former life has found to be used up; `failures`: how
        # many attempts of others were.
        self._troubles = {txid: _Trouble(times=times) for txid, times in (failures or {}).items()}
        self._troubles |= {txid: _Trouble(skip=True) for txid in skipped}
        self._rest_s = 0.0
        self._next_begin_s: float | None = None

    def next_step(self, now: float, may_begin: Callable[[int], bool]) -> Step | None:
        """What to do now; None: nothing. `may_begin` is asked about a txid that is new."""
        if self.finished or self.gave_up:
            return None
        first = self.active.get(self.current)
        if first is not None and first.status is Status.COMMITTED:
            return Advance(self.current, first.attempt)
        if first is not None and first.status is Status.PROCESSED:
            return Commit(self.current, first.attempt)
        return self._next_begin(now, may_begin)

    def done(self, step: Step, now: float) -> None:
        """A step was carried out."""
        match step:
            case Begin(txid, attempt, skip):
                self.attempts[txid] = attempt
                self.active[txid] = Active(attempt, skip)
                self._next_begin_s = now + max(self._interval_s, self._rest_s)
            case Commit(txid, _):
                self.active[txid].status = Status.COMMITTING
            case Advance(txid, _):
                del self.active[txid], self.attempts[txid]
                self._troubles.pop(txid, None)
                self.current = txid + 1

    def rest(self, rest_s: float, now: float) -> None:
        """Let so much time pass between two beginnings, until this is said again."""
        self._rest_s, until_s = rest_s, now + rest_s
        self._next_begin_s = max(self._next_begin_s or until_s, until_s)

    def acked(self, txid: int, attempt: int) -> bool:
        """The tree of `$batch` or `$commit` of an attempt is complete. Returns whether it is an
        active one: what is told of others touches nothing."""
        active = self._found(txid, attempt)
        if active is None:
            return False
        if active.status is Status.PROCESSING:
            active.status = Status.PROCESSED
        elif active.status is Status.COMMITTING:
            active.status = Status.COMMITTED
        return True

    def failed(self, txid: int, attempt: int, now: float, *, counts: bool) -> bool:
        """A tree of an attempt has failed. It is begun again, and so are those after it.

        `counts`: user code is to blame, not the machinery. Returns whether it is an active one.
        If it has used up its attempts and cannot be skipped, it `gave_up`.
        """
        active = self._found(txid, attempt)
        if active is None or self.finished:
            return False
        for later in [one for one in self.active if one >= txid]:
            del self.active[later]
        trouble = self._troubles.setdefault(txid, _Trouble())
        if counts:
            self._count(trouble)
            wait_s = self._retry.wait_s(trouble.times) if trouble.times else 0.0
        else:
            trouble.in_a_row += 1
            again = self._retry.wait_s(trouble.in_a_row - 1) if trouble.in_a_row > 1 else 0.0
            wait_s = min(again, _MACHINERY_MAX_S)
        trouble.wait_until_s = now + wait_s
        return True

    @property
    def failures(self) -> dict[int, int]:
        """Of those that are not committed: txid → how often it failed by user code's fault."""
        return {txid: one.times for txid, one in self._troubles.items() if one.times}

    def skips(self, txid: int) -> bool:
        """Whether the next attempt at a batch puts it aside."""
        return txid in self._troubles and self._troubles[txid].skip

    def finish(self) -> None:
        """There will never be more rows: nothing is begun or committed any more."""
        self.finished = True
        self.active.clear()

    def _found(self, txid: int, attempt: int) -> Active | None:
        active = self.active.get(txid)
        return active if active is not None and active.attempt == attempt else None

    def _count(self, trouble: _Trouble) -> None:
        trouble.times, trouble.in_a_row = trouble.times + 1, 0
        if trouble.times < self._retry.attempts:
            return
        if self._can_skip and not trouble.skip:
            trouble.skip, trouble.times = True, 0
        else:
            self.gave_up = True

    def _next_begin(self, now: float, may_begin: Callable[[int], bool]) -> Begin | None:
        """The lowest txid that is not active, if its time has come; none is begun before it."""
        if self._next_begin_s is not None and now < self._next_begin_s:
            return None
        for txid in range(self.current, self.current + self._max_batches):
            if txid in self.active:
                continue
            trouble = self._troubles.get(txid)
            if trouble is not None and now < trouble.wait_until_s:
                return None
            if txid not in self.attempts and not may_begin(txid):
                return None
            return Begin(txid, self.attempts.get(txid, -1) + 1, self.skips(txid))
        return None
