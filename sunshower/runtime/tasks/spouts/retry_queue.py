"""The retry queue of one spout task: failed messages that wait to be emitted again.

    user code failed it        attempt 1, 2, … of Retry.attempts; a back-off before each next one
    dependency is unavailable  not charged, for `unavailable_max_s` while other messages succeed;
                               back-off of 0.1 to 10 s. Likewise if the cause is in doubt
    the runtime failed it      not charged; replayed at once, and from the second time in a row
                               after a wait drawn from [0, initial_s · factor^(n−1)], at most 2 s:
                               separates a record that kills its process from those beside it

A message that has used up its attempts does not wait; the caller of `take` checks `exhausted`.
Insertion and removal are O(log n) (Storm's KafkaSpoutRetryExponentialBackoff scans all scheduled
retries for each polled record); O(1) for a message that does not wait.
Memory: one Replay for each queued message, and a number or the last Failure for each failed message
that is not settled; the texts of all failures have at most 16 MiB. Queued messages count against
`spout_pending`, which bounds all of this.
Where records are not kept (ABSENT), a due message is `absent` until its record is `found`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple

import numpy as np

from sunshower.failures import Cause, Failure, FailureTexts
from sunshower.topologies.retry import Retry

_RUNTIME_MAX_S = 2.0
_TEXTS_BYTES = 1 << 24  # of the failures of all messages
_OUTAGE_FIRST_S, _OUTAGE_MAX_S = 0.1, 10.0


LETTERS_FIRST, LETTERS_END = -(1 << 63), -(1 << 62)  # message numbers of replayed dead letters


class _NotKept(Enum):
    """The placeholder for a record that is not kept."""

    ABSENT = "read it again"


ABSENT: Final = _NotKept.ABSENT


class Replay(NamedTuple):
    """A queued message."""

    number: int  # of the message, within its task
    payload: Any
    attempt: int  # the number of its next emit


@dataclass(slots=True)
class Charges:
    """The charged failures of one message."""

    failure: Failure  # the last charged one
    times: int = 0
    dead: bool = False  # it is a dead letter now; `times` counts the failures of that
    hopeless: bool = False  # no attempt can help


class RetryQueue:
    """Decides when each failed message is emitted again. `generator`: for the jitter."""

    def __init__(
        self, retry: Retry, generator: np.random.Generator, unavailable_max_s: float = math.inf
    ) -> None:
        self.retry = retry
        # Whether a message waits here, or has failed and is not settled. It may stay True until the
        # next message is complete: as long as it is False, a spout task asks nothing else.
        self.in_use = False
        self._unavailable_max_s = unavailable_max_s
        self._unavailable_since: dict[int, float] = {}  # number → its first UNAVAILABLE
        self._generator = generator
        self._ready: deque[Replay] = deque()
        self.absent: dict[int, Replay] = {}  # number → a due message without its record
        self._waiting: list[tuple[float, int, Replay]] = []  # a heap: due, a tie-breaker
        self._put = 0
        self.charges: dict[int, Charges] = {}  # by message number
        self._texts = FailureTexts(_TEXTS_BYTES)
        self._runtime_failures: dict[int, int] = {}  # number → failures by the runtime in a row
        self._apart: set[int] = set()  # messages that failed together with others

    def __len__(self) -> int:
        return len(self._ready) + len(self._waiting) + len(self.absent)

    @property
    def next_s(self) -> float:
        """When the next message is due: −∞ for now, ∞ if none waits."""
        if self._ready:
            return -math.inf
        return self._waiting[0][0] if self._waiting else math.inf

    @property
    def lowest(self) -> float:
        """The lowest queued message number of a record of the source; ∞ if there is none."""
        return min((n for n in self.numbers if n >= 0), default=math.inf) if self else math.inf

    @property
    def numbers(self) -> list[int]:
        """The numbers of the queued messages, in no order."""
        waiting = (replay.number for _, _, replay in self._waiting)
        return [*(replay.number for replay in self._ready), *waiting, *self.absent]

    def enqueue_ready(self, replay: Replay) -> None:
        """Queue a message that is due now."""
        self.in_use = True
        self._ready.append(replay)

    def condemn(self, replay: Replay, failure: Failure) -> None:
        """Queue a message that no attempt can help, to become a dead letter or to halt."""
        self.charge(replay.number, failure).hopeless = True
        self.enqueue_ready(replay)

    def is_charged(self, number: int, failure: Failure, now: float, *, held: bool) -> bool:
        """Whether a failure is charged to its message. An outage is if it has affected this message
        for too long while others succeed; `held`: the component waits, so others do not."""
        if failure.cause is not Cause.UNAVAILABLE:
            return failure.is_charged or (failure.shared and number in self._apart)
        since_s = self._unavailable_since.setdefault(number, now)
        if held:
            self._unavailable_since[number] = now
        return not held and now - since_s >= self._unavailable_max_s

    def put(self, replay: Replay, failure: Failure, now: float, *, counts: bool) -> None:
        """Queue a failed message; `counts`: charge it. Else the runtime or a dependency failed."""
        if failure.shared:
            self._apart.add(replay.number)
        if not counts and (failure.cause is Cause.UNAVAILABLE or failure.in_doubt):
            self._wait(replay, now, self._unavailable(replay))
            return
        wait_s = self._counted(replay, failure) if counts else self._uncounted(replay)
        self._wait(replay, now, wait_s)

    def due(self, now: float) -> int:
        """How many messages can be taken now."""
        while self._waiting and self._waiting[0][0] <= now:
            self._let_go(heappop(self._waiting)[2])
        return len(self._ready)

    def take(self, limit: int) -> list[Replay]:
        """Take up to `limit` of the messages that `due` has counted."""
        return [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]

    def is_apart(self, replay: Replay) -> bool:
        """Whether to emit a message in a batch of its own: it has failed together with others."""
        return replay.number in self._apart

    def found(self, number: int, payload: Any) -> None:
        """Add the record of an absent message, which makes it due."""
        if (replay := self.absent.pop(number, None)) is not None:
            self._ready.append(replay._replace(payload=payload))

    def charge(self, number: int, failure: Failure) -> Charges:
        """Charge a failure to a message."""
        self.in_use = True
        charges = self.charges.get(number)
        if charges is None:
            charges = self.charges[number] = Charges(failure)
        charges.failure = failure
        charges.times += 1
        for other in self._texts.add(number, failure):
            self.charges[other].failure = self.charges[other].failure.short
        return charges

    def exhausted(self, charges: Charges) -> bool:
        """Whether a message has used up its attempts."""
        return charges.hopeless or charges.times >= self.retry.attempts

    def failed_by_runtime(self, number: int) -> bool:
        """Whether the runtime has failed this message, and it is not settled."""
        return number in self._runtime_failures

    @property
    def waiting(self) -> list[Replay]:
        """All queued messages, in the order in which they are due."""
        waiting = (replay for _, _, replay in sorted(self._waiting))
        return [*self._ready, *self.absent.values(), *waiting]

    def adopt(self, waiting: Iterable[Replay], charges: Mapping[int, Charges]) -> None:
        """Take over the queue of a former life; no message waits any longer."""
        for replay in waiting:
            self._let_go(replay)
        self.in_use = True
        for number, charged in charges.items():
            self.charges[number] = charged
            for other in self._texts.add(number, charged.failure):
                self.charges[other].failure = self.charges[other].failure.short

    def forget(self, first: int, end: int) -> None:
        """Forget the messages of [first, end), which another task owns from now on."""
        self._ready = deque(r for r in self._ready if not first <= r.number < end)
        self._waiting = [entry for entry in self._waiting if not first <= entry[2].number < end]
        heapify(self._waiting)
        self._apart -= {number for number in self._apart if first <= number < end}
        for memory in (self.charges, self._runtime_failures, self.absent, self._unavailable_since):
            for number in [number for number in memory if first <= number < end]:
                del memory[number]
                self._texts.remove(number)

    def settle(self, number: int) -> bool:
        """Forget a completed message. Returns whether it was a dead letter."""
        self._runtime_failures.pop(number, None)
        self._unavailable_since.pop(number, None)
        self._apart.discard(number)
        self._texts.remove(number)
        charges = self.charges.pop(number, None)
        return charges is not None and charges.dead

    def look(self) -> None:
        """Find out whether it is still in use."""
        self.in_use = len(self) > 0 or bool(self.charges or self._runtime_failures)

    def _wait(self, replay: Replay, now: float, wait_s: float) -> None:
        self.in_use = True
        if wait_s:
            self._put += 1
            heappush(self._waiting, (now + wait_s, self._put, replay))
        else:
            self._let_go(replay)

    def _let_go(self, replay: Replay) -> None:
        """Make a message due, or absent if its record is not kept."""
        if replay.payload is ABSENT:
            self.absent[replay.number] = replay
        else:
            self._ready.append(replay)

    def _counted(self, replay: Replay, failure: Failure) -> float:
        if replay.number in self._runtime_failures:
            self._runtime_failures[replay.number] = 0  # no longer in a row
        charges = self.charge(replay.number, failure)
        if self.exhausted(charges):
            return 0.0
        return self.retry.wait_s(charges.times, self._generator.random())

    def _unavailable(self, replay: Replay) -> float:
        in_a_row = self._fail_in_a_row(replay)
        longest_s = min(_OUTAGE_FIRST_S * 2.0 ** min(in_a_row - 1, 60), _OUTAGE_MAX_S)
        return longest_s * (1 - 0.5 * self._generator.random())

    def _uncounted(self, replay: Replay) -> float:
        in_a_row = self._fail_in_a_row(replay)
        if in_a_row == 1:
            return 0.0
        longest_s = min(self.retry.wait_s(in_a_row), _RUNTIME_MAX_S)
        return longest_s * self._generator.random()

    def _fail_in_a_row(self, replay: Replay) -> int:
        count = self._runtime_failures.get(replay.number, 0) + 1
        self._runtime_failures[replay.number] = count
        return count
