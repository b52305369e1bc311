"""The line of failed messages of one spout task, waiting to be emitted again.

    user code failed it    attempt 1, 2, … of Retry.attempts; a back-off before each next one
    a dependency is away   not counted, for `unavailable_max_s` while other messages succeed. A
                           back-off of 0.1 to 10 s; so where the cause is in doubt
    the machinery did      not counted. At once the first time; from the second in a row after a
                           wait drawn from [0, initial_s · factor^(n−1)], 2 s at most, so that the
                           bystanders of a record that kills its process drift apart from it

A message that has used up its attempts waits for nothing; whoever takes it out of the line asks
`exhausted`. To put in and to take out is O(log n) (Storm's KafkaSpoutRetryExponentialBackoff looks
at all scheduled retries for each polled record); a message that waits for nothing costs O(1).
Memory: one Replay for each message in line, and for each failed message that is not yet settled a
number, or its last Failure. A failed message keeps its place against `spout_pending`, so all of
this is bounded by it.
Where records are not kept (ABSENT), a message that is due is `absent` until its record is `found`.
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

from sunshower.failures import Cause, Failure
from sunshower.topologies.retry import Retry

_MACHINERY_MAX_S = 2.0
_OUTAGE_FIRST_S, _OUTAGE_MAX_S = 0.1, 10.0


class Unkept(Enum):
    """What stands for a record that is not kept."""

    ABSENT = "read it again"


ABSENT: Final = Unkept.ABSENT


class Replay(NamedTuple):
    """A message in line."""

    number: int  # of the message, among all of its task
    payload: Any
    attempt: int  # which emit of it the next one is


@dataclass(slots=True)
class Blame:
    """What counts against one message."""

    failure: Failure  # the last that counted
    times: int = 0
    dead: bool = False  # it is a dead letter by now, and `times` are the failures of that
    hopeless: bool = False  # no attempt can help


class Retries:
    """Who is emitted again, when, and who not any more. Chance comes from `generator`."""

    def __init__(
        self, retry: Retry, generator: np.random.Generator, unavailable_max_s: float = math.inf
    ) -> None:
        self.retry = retry
        self._unavailable_max_s = unavailable_max_s
        self._unavailable_since: dict[int, float] = {}  # number → when it failed so first
        self._generator = generator
        self._ready: deque[Replay] = deque()
        self.absent: dict[int, Replay] = {}  # number → who is due, but for its record
        self._waiting: list[tuple[float, int, Replay]] = []  # a heap: due, a tie-breaker
        self._put = 0
        self._blames: dict[int, Blame] = {}
        self._machinery: dict[int, int] = {}  # number → failures of the machinery in a row

    def __len__(self) -> int:
        return len(self._ready) + len(self._waiting) + len(self.absent)

    @property
    def next_s(self) -> float:
        """When the next one is due: −∞ for now, ∞ for never."""
        if self._ready:
            return -math.inf
        return self._waiting[0][0] if self._waiting else math.inf

    @property
    def remembers(self) -> bool:
        """Whether any message has failed that is not settled."""
        return bool(self._blames or self._machinery)

    @property
    def lowest(self) -> float:
        """The lowest message number in line; ∞ if there is none."""
        return min(self.numbers, default=math.inf) if self else math.inf

    @property
    def numbers(self) -> list[int]:
        """Of the messages in line, in no order."""
        waiting = (replay.number for _, _, replay in self._waiting)
        return [*(replay.number for replay in self._ready), *waiting, *self.absent]

    def put_last(self, replay: Replay) -> None:
        """A message that has used up its attempts before it was emitted at all."""
        self._ready.append(replay)

    def condemn(self, replay: Replay, failure: Failure) -> None:
        """A message that no attempt can help: it is next to become a dead letter, or to halt."""
        self.blame(replay.number, failure).hopeless = True
        self.put_last(replay)

    def is_charged(self, number: int, failure: Failure, now: float, *, held: bool) -> bool:
        """Whether a failure counts as an attempt of its message: also one for an outage that is
        this message's alone for too long. `held`: the component waits, so it is not."""
        if failure.cause is not Cause.UNAVAILABLE:
            return failure.is_charged
        since_s = self._unavailable_since.setdefault(number, now)
        if held:
            self._unavailable_since[number] = now
        return not held and now - since_s >= self._unavailable_max_s

    def put(self, replay: Replay, failure: Failure, now: float, *, counts: bool) -> None:
        """A message failed. `counts`: as an attempt; else the runtime or a dependency failed it."""
        if not counts and (failure.cause is Cause.UNAVAILABLE or failure.in_doubt):
            self._wait(replay, now, self._unavailable(replay))
            return
        wait_s = self._counted(replay, failure) if counts else self._uncounted(replay)
        self._wait(replay, now, wait_s)

    def due(self, now: float) -> int:
        """How many may be taken now."""
        while self._waiting and self._waiting[0][0] <= now:
            self._let_go(heappop(self._waiting)[2])
        return len(self._ready)

    def take(self, limit: int) -> list[Replay]:
        """Up to `limit` of those that `due` has counted."""
        return [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]

    def found(self, number: int, payload: Any) -> None:
        """The record of an absent message: now it is due."""
        if (replay := self.absent.pop(number, None)) is not None:
            self._ready.append(replay._replace(payload=payload))

    def blame(self, number: int, failure: Failure) -> Blame:
        """Count a failure against a message."""
        blame = self._blames.get(number)
        if blame is None:
            blame = self._blames[number] = Blame(failure)
        blame.failure = failure
        blame.times += 1
        return blame

    def blame_of(self, number: int) -> Blame | None:
        """What counts against a message so far."""
        return self._blames.get(number)

    def exhausted(self, blame: Blame) -> bool:
        """Whether a message has used up its attempts."""
        return blame.hopeless or blame.times >= self.retry.attempts

    def failed_by_machinery(self, number: int) -> bool:
        """Whether the machinery has failed this message, and it is not settled."""
        return number in self._machinery

    @property
    def waiting(self) -> list[Replay]:
        """All that is in line, in the order in which it is due."""
        waiting = (replay for _, _, replay in sorted(self._waiting))
        return [*self._ready, *self.absent.values(), *waiting]

    @property
    def blames(self) -> dict[int, Blame]:
        """Message number → what counts against it."""
        return self._blames

    def adopt(self, waiting: Iterable[Replay], blames: Mapping[int, Blame]) -> None:
        """Go on with the line of a former life; nobody waits any longer."""
        for replay in waiting:
            self._let_go(replay)
        self._blames.update(blames)

    def forget(self, first: int, end: int) -> None:
        """The messages of [first, end) are somebody else's from now on."""
        self._ready = deque(r for r in self._ready if not first <= r.number < end)
        self._waiting = [one for one in self._waiting if not first <= one[2].number < end]
        heapify(self._waiting)
        for memory in (self._blames, self._machinery, self.absent, self._unavailable_since):
            for number in [number for number in memory if first <= number < end]:
                del memory[number]

    def settle(self, number: int) -> bool:
        """A message is done, and forgotten. Returns whether it was a dead letter."""
        self._machinery.pop(number, None)
        self._unavailable_since.pop(number, None)
        blame = self._blames.pop(number, None)
        return blame is not None and blame.dead

    def _wait(self, replay: Replay, now: float, wait_s: float) -> None:
        if wait_s:
            self._put += 1
            heappush(self._waiting, (now + wait_s, self._put, replay))
        else:
            self._let_go(replay)

    def _let_go(self, replay: Replay) -> None:
        """It waits for no time any more."""
        if replay.payload is ABSENT:
            self.absent[replay.number] = replay
        else:
            self._ready.append(replay)

    def _counted(self, replay: Replay, failure: Failure) -> float:
        if replay.number in self._machinery:
            self._machinery[replay.number] = 0  # no longer in a row
        blame = self.blame(replay.number, failure)
        if self.exhausted(blame):
            return 0.0
        return self.retry.wait_s(blame.times, self._generator.random())

    def _unavailable(self, replay: Replay) -> float:
        in_a_row = self._machinery[replay.number] = self._machinery.get(replay.number, 0) + 1
        longest_s = min(_OUTAGE_FIRST_S * 2.0 ** min(in_a_row - 1, 60), _OUTAGE_MAX_S)
        return longest_s * (1 - 0.5 * self._generator.random())

    def _uncounted(self, replay: Replay) -> float:
        in_a_row = self._machinery[replay.number] = self._machinery.get(replay.number, 0) + 1
        if in_a_row == 1:
            return 0.0
        longest_s = min(self.retry.wait_s(in_a_row), _MACHINERY_MAX_S)
        return longest_s * self._generator.random()
