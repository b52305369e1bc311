"""Why a tuple failed: cause, place and attempt, as reported to its spout."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from math import exp
from sys import getsizeof
from typing import TypeAlias

from sunshower.texts import REASON_BYTES, TRACEBACK_BYTES, clip


class Cause(StrEnum):
    """Why a tuple tree failed."""

    TIMEOUT = "timeout"  #: its deadline passed; the last resort
    FAILED = "failed by bolt"  #: a bolt called fail()
    EXCEPTION = "exception"  #: user code raised
    ACTOR_DIED = "actor died"  #: a worker that held a part of the tree crashed, or did not answer
    BAD_FRAME = "bad frame"  #: a frame was refused or lost in transit
    OVERLOAD = "overload"  #: a cycle emitted more than its limit
    BLOCKED = "blocked"  #: user code did not return; its process was ended
    QUARANTINED = "quarantined"  #: its task kept raising or crashing, and no longer runs
    REBALANCED = "rebalanced"  #: tasks moved before it was processed
    UNAVAILABLE = "unavailable"  #: a dependency was away; see outages.py


_TEXTS = {"reason": REASON_BYTES, "exception": 256, "traceback": TRACEBACK_BYTES}
_SHORT_BYTES = 256  # of the reason of a short failure

# Causes in the tuple or in the code that processed it. The others are the runtime's.
_CHARGED = frozenset(
    {
        Cause.TIMEOUT,
        Cause.FAILED,
        Cause.EXCEPTION,
        Cause.OVERLOAD,
        Cause.BLOCKED,
        Cause.QUARANTINED,
    }
)


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure of one tuple tree. Storm passes its spout none of this (STORM-154, STORM-521).

    Its texts are clipped, and UTF-8 can encode them: see texts.py.
    """

    cause: Cause
    component: str = ""  #: where it failed; empty if unknown (a timeout)
    task: int = -1  #: among the tasks of its component; -1: all of them
    reason: str = ""  #: the argument of fail(tuple, reason), or the exception's type and message
    exception: str = ""  #: the exception's type
    traceback: str = ""
    worker: int = -1  #: where the task ran
    attempt: int = 1  #: set by the spout: 1 is the first emit of the tuple
    in_doubt: bool = False  #: the component fails every input, so the error may not be the tuple's
    shared: bool = False  #: the trees of several tuples failed together; one of them is the cause

    def __post_init__(self) -> None:
        clip_texts(self, _TEXTS)

    def __str__(self) -> str:
        number = f"[{self.task}]" if self.task >= 0 else ""
        place = f" in {self.component}{number}" if self.component else ""
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.cause}{place}{reason}"

    @property
    def is_charged(self) -> bool:
        """Whether this counts as an attempt of the tuple. A crash, a lost frame, an outage, a
        failure in doubt and one of several tuples together do not."""
        return self.cause in _CHARGED and not (self.in_doubt or self.shared)

    @property
    def in_common(self) -> Failure:
        """The same, of several tuples together, if it would be charged to each of them."""
        return replace(self, shared=True) if self.is_charged else self

    @property
    def size(self) -> int:
        """How many bytes its texts have in memory."""
        return getsizeof(self.reason) + getsizeof(self.exception) + getsizeof(self.traceback)

    @property
    def short(self) -> Failure:
        """The same without the traceback, and with the beginning and the end of the reason."""
        if len(self.reason) <= _SHORT_BYTES and not self.traceback:
            return self
        return replace(self, reason=clip(self.reason, _SHORT_BYTES), traceback="")


# ---- groups --------------------------------------------------------------------------------------

_VARYING = re.compile(
    r"(?<!\w)[bru]{0,2}(?:'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\")"
    r"|0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{16,}"
    r"|(?:(?<!\w)[-+])?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?"
    r"|(?<!\w)[-+]?(?-i:True|False|None|nan|NaN|NaT|inf|Infinity)(?!\w)",
    re.IGNORECASE,
)
_RECORD = re.compile(r"( \(step `[^`]*`)(?:, record |(, fields? `[^`]*`(?:, `[^`]*`)*) of ).*")
_CLIPPED = re.compile(r"(?:(?<!\w)['\"][^'\"]*)? … \(clipped to .*")
_RATE_S = 60.0  # rates are averages over about this time
_ALIKE = 3  # fewer records have too much in common by chance
GroupKey: TypeAlias = tuple[str, str, str, str]  # component, cause, exception, normalised reason


@lru_cache(maxsize=1024)
def normalised(reason: str) -> str:
    """The first line of a reason without the record, and with `…` in place of what differs from
    record to record: numbers, quoted texts, True, False and None, the rest of a clipped text:
    `KeyError: … (step `price`)`."""
    line = _RECORD.sub(r"\1\2)", reason.strip().partition("\n")[0])
    return clip(_VARYING.sub("…", _CLIPPED.sub("…", line)), _SHORT_BYTES)


def group_key(component: str, cause: str, exception: str, reason: str) -> GroupKey:
    """What failures of one group have in common."""
    return component, cause, exception, normalised(reason)


@dataclass(frozen=True)
class FailureGroup:
    """Failures of one component that are alike but for their records."""

    failure: Failure  # the newest one
    count: int
    first_s: float  # Unix time
    last_s: float
    rate: float  # a second, on average over the last minute
    message_id: str = ""  # of a record of the group
    example: str = ""  # that record; empty: the source does not keep it
    alike: tuple[str, ...] = ()  # what its first records have in common: `customer='c-13'`
    looked: int = 0  # how many records those are

    @property
    def key(self) -> GroupKey:
        failure = self.failure
        return group_key(failure.component, failure.cause, failure.exception, failure.reason)

    def grown(self, failure: Failure, count: int, now_s: float) -> FailureGroup:
        """With `count` failures more."""
        rate, count_all = self.at(now_s).rate + count / _RATE_S, self.count + count
        return replace(self, failure=failure, count=count_all, last_s=now_s, rate=rate)

    def with_record(self, fields: tuple[str, ...]) -> FailureGroup:
        """With the fields of one more record."""
        alike = tuple(text for text in self.alike if text in fields) if self.looked else fields
        return replace(self, alike=alike, looked=self.looked + 1)

    @property
    def in_common(self) -> str:
        """What its records have in common, if there are enough of them: `customer='c-13'`."""
        return ", ".join(self.alike) if self.looked >= _ALIKE else ""

    def at(self, now_s: float) -> FailureGroup:
        """With the rate of now."""
        return replace(self, rate=self.rate * exp(-max(now_s - self.last_s, 0.0) / _RATE_S))

    def __add__(self, other: FailureGroup) -> FailureGroup:
        """The failures of both; they have the same key."""
        newest = max(self, other, key=lambda group: group.last_s)
        return replace(
            newest,
            count=self.count + other.count,
            first_s=min(self.first_s, other.first_s),
            rate=self.rate + other.rate,
            alike=tuple(text for text in self.alike if text in other.alike),
            looked=self.looked + other.looked,
        )


class FailureTexts:
    """Chooses which failures of a container keep their whole texts: the newest ones, of together
    `bytes_max` bytes. The others are to become `short`."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._sizes: dict[int, int] = {}  # key → size, the oldest first

    def add(self, key: int, failure: Failure) -> Iterator[int]:
        """A failure is kept under `key`. Yields the keys of failures that are to become short."""
        self.remove(key)
        if failure.short is not failure:
            self._sizes[key] = failure.size
            self._bytes += failure.size
        while self._bytes > self._bytes_max:
            oldest = next(iter(self._sizes))
            self.remove(oldest)
            yield oldest

    def remove(self, key: int) -> None:
        self._bytes -= self._sizes.pop(key, 0)


def clip_texts(owner: object, limits: Mapping[str, int]) -> None:
    """Clip these attributes of a frozen dataclass to so many bytes each."""
    for name, bytes_max in limits.items():
        text = getattr(owner, name)
        if (clipped := clip(text, bytes_max)) is not text:
            object.__setattr__(owner, name, clipped)
