"""Replays failed messages of a spout task; separate because it is an algorithm of its own.

failed ──▶ queued (retry_queue.py) ──▶ within the budget (ReplayBudget) ──▶ emitted again
                              └──── attempts used up ──▶ emitted as a dead letter, or halt
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, islice, starmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sunshower.clock import SystemClock
from sunshower.config import Config
from sunshower.errors import TopologyFailed, user_errors_suppressed
from sunshower.failures import Cause, Failure, FailureGroup, GroupKey, group_key
from sunshower.runtime.events.instrument import Instrument
from sunshower.runtime.events.log_lines import RateLimitedLog
from sunshower.runtime.events.metrics import FailurePlace
from sunshower.runtime.plan import Task
from sunshower.runtime.tasks.bolts.dead_letters import (
    ROW_BYTES,
    LetterValues,
    dead_letter,
    in_a_line,
)
from sunshower.runtime.tasks.spouts.retry_queue import (
    ABSENT,
    LETTERS_END,
    Charges,
    Replay,
    RetryQueue,
)
from sunshower.runtime.tasks.spouts.source import Sender, SpoutSource
from sunshower.runtime.tracking.ids import I64, U64
from sunshower.runtime.tracking.pending import Released
from sunshower.runtime.transport.output_streams import OutputStreams
from sunshower.secret import without_secrets
from sunshower.texts import clip, describe, id_text, utf8
from sunshower.topologies.graph import is_internal
from sunshower.topologies.logs import Unreadable

# ---- recent failures -----------------------------------------------------------------------------
# Recently failed tuples, kept for ten seconds for late crash reports.
#
# A crash fails all trees that the process held, and its peers fail those in transit. The crash
# report names the roots that were being executed, but arrives later, when these are no longer
# pending. With root → message it can still charge an attempt to the tuple that caused the crash.

_KEPT_S = 10.0
_KEPT_MAX = 1 << 18  # roots: 4 MB


class RecentFailures:
    """Two arrays for each group of roots that failed together, no object for each root."""

    def __init__(self) -> None:
        self._groups: deque[tuple[float, U64, I64]] = deque()
        self._count = 0

    def note(self, roots: U64, numbers: I64, now: float) -> None:
        """Add `roots` that the runtime failed, not user code; `numbers` are their messages."""
        self._groups.append((now, roots, numbers))
        self._count += len(roots)
        while self._groups[0][0] < now - _KEPT_S or self._count > _KEPT_MAX:
            self._count -= len(self._groups.popleft()[1])
            if not self._groups:
                return

    def take(self, roots: U64) -> list[int]:
        """Return the messages of those of `roots` that are kept here, and remove them."""
        messages: list[int] = []
        for place, (at_s, here, numbers) in enumerate(self._groups):
            hit = np.isin(here, roots)
            if hit.any():
                messages += numbers[hit].tolist()
                self._groups[place] = (at_s, here[~hit], numbers[~hit])
                self._count -= int(hit.sum())
        return messages


# ---- replay budget -------------------------------------------------------------------------------

# Limits the share of replays among the records that a spout emits, as a token bucket.
#
# While the source has new records, replays take at most a set share of the emits. Each new record
# earns tokens for replays, which can be saved up to a small burst. If the source has nothing now,
# or failed messages hold all places of `spout_pending`, replays may use all the room, because no
# new record waits behind them.

_BURST = 64.0  # replays that can be saved up; at least what one new record earns


class ReplayBudget:
    """The replay budget of one spout task."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._earned = share / (1 - share) if share < 1 else 0.0  # replays for each new record
        self._saved_max = max(_BURST, self._earned)
        self._saved = 0.0

    def replays(self, due: int, limit: int, room: int) -> int:
        """How many of `due` replays to emit among `limit` records.

        `room`: how many new records may be emitted beside them, if the source has them.
        """
        if self._share == 1 or room <= 0:
            return min(due, limit)
        # r replays and limit − r fresh records:  r ≤ saved + (limit − r) · earned
        fair = self._saved * (1 - self._share) + limit * self._share
        return min(due, limit, int(min(fair, self._saved + room * self._earned) + 1e-9))

    def spend(self, replays: int, fresh: int) -> None:
        """Account for the emits. The balance does not become negative."""
        saved = self._saved + fresh * self._earned - replays
        self._saved = min(max(saved, 0.0), self._saved_max)


# ---- failure groups ------------------------------------------------------------------------------

_KEPT = 8  # groups of one spout task
_TEXT_BYTES = 2048  # of a traceback; statistics are sent four times a second
_EXAMPLE_BYTES = 512
_LOOKED_MAX = 32  # records of a group that are compared with each other
_FIELDS_MAX, _FIELD_BYTES = 16, 80  # of those


class FailureGroups:
    """The failures of a spout task, grouped: the eight groups that have failed last."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, FailureGroup] = {}
        self._looked: dict[GroupKey, set[str]] = {}  # the ids of the messages of these records

    def add(
        self,
        failure: Failure,
        count: int,
        now_s: float,
        example: Callable[[], tuple[str, str, tuple[str, ...]]],
    ) -> None:
        """Note that `count` trees failed so at `now_s`, in Unix time. `example` returns the id of
        a message, its record, and the fields of that; called for the first failures of a group."""
        key = group_key(failure.component, failure.cause, failure.exception, failure.reason)
        group = self._groups.pop(key, None)  # so that the newest is the last
        if group is None or group.looked < _LOOKED_MAX:
            message_id, record, fields = example()
            if group is None:
                group = FailureGroup(failure, 0, now_s, now_s, 0.0, message_id, record)
            if message_id not in (looked := self._looked.setdefault(key, set())):
                looked.add(message_id)
                group = group.with_record(fields)
        self._groups[key] = group.grown(failure, count, now_s)
        while len(self._groups) > _KEPT:
            oldest = next(iter(self._groups))
            del self._groups[oldest], self._looked[oldest]

    @property
    def raised(self) -> Failure | None:
        """The newest failure of user code; None: there is none."""
        failures = (group.failure for group in reversed(self._groups.values()))
        return next((failure for failure in failures if failure.cause is Cause.EXCEPTION), None)

    def newest(self, now_s: float) -> tuple[FailureGroup, ...]:
        """The groups, the newest first, with clipped texts."""
        return tuple(_clipped(group.at(now_s)) for group in reversed(self._groups.values()))


def _clipped(group: FailureGroup) -> FailureGroup:
    failure = replace(
        group.failure,
        reason=clip(group.failure.reason, _TEXT_BYTES),
        traceback=clip(group.failure.traceback, _TEXT_BYTES),
    )
    return replace(group, failure=failure)


# ---- replays -------------------------------------------------------------------------------------

_PLACES_MAX = 1_000  # later ones count as unknown
_AFTER_READING = 2  # attempt number of an unreadable record's dead letter; reading was the first
_AGAIN_MAX = 4096  # numbers to request again at a time …
_FOUND_MAX = 1024  # … and records read again that wait for their emit
_GIVES_WAY_S = 1.0  # if none of those has come for so long, others are requested first


class Replays:
    """The retry queue of one spout task with its budget, counters and log messages."""

    def __init__(
        self,
        task: Task,
        retries: RetryQueue,
        config: Config,
        source: SpoutSource,
        letters: SpoutSource,
        forms: Callable[[str], LetterValues | None],
        instrument: Instrument,
    ) -> None:
        """`letters`: the replayed dead letters; `forms`: how the values of a stream's records are
        in letters."""
        self.keeps = True  # whether the framework replays; else only the spout's `fail` is called
        self.line = retries
        self.notices = RateLimitedLog(f"failures of spout {task.component!r}")
        self.groups = FailureGroups()
        self.places: Counter[FailurePlace] = Counter()  # failed trees
        self.replayed = self.dead = 0
        self._task = task
        self._budget = ReplayBudget(config.internals.replay_share)
        self._letter_bytes = config.record_bytes_max - ROW_BYTES
        self._source, self._letters, self._forms = source, letters, forms
        self.wall: Callable[[], float] = SystemClock().wall  # the worker's, once the task is open
        self._recent = RecentFailures()
        self._instrument = instrument
        self.former: dict[int, int] = {}  # message not drawn yet → its attempts in former lives
        self.fresh = 0  # new records emitted since the budget was asked last
        self._came_s = 0.0  # when a record was last read again, or none was missing

    def fail(
        self,
        released: Released,
        message_ids: Sequence[Any],
        failures: Sequence[Failure],
        now: float,
        *,
        accused: bool = False,
        held: bool = False,
    ) -> None:
        """Handle failed messages. `accused`: charge an attempt, whatever the cause; `held`: a
        component downstream waits for a dependency."""
        self._group(released, message_ids, failures)
        counted: list[bool] = []
        for payload, number, attempt, message_id, failure in zip(
            released.payloads,
            released.numbers.tolist(),
            released.attempts.tolist(),
            message_ids,
            failures,
            strict=True,
        ):
            counts = self.keeps and (
                (accused and not failure.shared)
                or self.line.is_charged(number, failure, now, held=held)
            )
            counted.append(counts)
            self._count(failure)
            if self.keeps:
                self.line.put(Replay(number, payload, attempt + 1), failure, now, counts=counts)
            if self.notices.admits(failure.component, now):
                self.notices.say(self._notice(number, message_id, failure, counts=counts))
        if self.keeps and not all(counted):
            innocent = ~np.array(counted)
            self._recent.note(released.roots[innocent], released.numbers[innocent], now)

    @property
    def causes(self) -> dict[str, int]:
        """The failed trees by cause."""
        sums: Counter[str] = Counter()
        for place, count in self.places.items():
            sums[place.cause] += count
        return dict(sums)

    def accuse(self, roots: U64, failure: Failure) -> None:
        """Charge an attempt to those of these messages that the runtime failed a moment ago."""
        for number in self._recent.take(roots):
            if self.line.failed_by_runtime(number):
                self.line.charge(number, failure)

    def remember(self, times: Mapping[int, int], failure: Failure) -> None:
        """Charge messages for attempts in former lives: message number → failed attempts. Letters
        have no former life: their numbers begin again."""
        for number, count in times.items():
            if number < LETTERS_END:
                continue
            charged = self.line.charge(number, failure)
            charged.times = count
            self.former[number] = count

    def inherit(self, charges: Mapping[int, Charges]) -> None:
        """Take over the failures that a former life counted for messages that are drawn again."""
        for number, charged in charges.items():
            times = self.line.retry.attempts if charged.dead else charged.times
            self.remember({number: times}, charged.failure)

    def recognise(
        self, numbers: I64, payloads: Sequence[Any]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """For new messages: which to emit, and which attempt of each it is.

        Messages that have used up their attempts are queued, to become dead letters or to halt.
        """
        emit, attempts = np.ones(len(numbers), np.bool_), np.ones(len(numbers), np.int64)
        for index in np.flatnonzero(np.isin(numbers, list(self.former))).tolist():
            number = int(numbers[index])
            attempts[index] += self.former.pop(number)
            charged = self.line.charges.get(number)
            if charged is not None and self.line.exhausted(charged):
                emit[index] = False
                self.line.enqueue_ready(Replay(number, payloads[index], int(attempts[index])))
        return emit, attempts

    def forget(self, first: int, end: int) -> None:
        """Forget the messages of [first, end), which another task owns from now on."""
        self.line.forget(first, end)
        for number in [number for number in self.former if first <= number < end]:
            del self.former[number]

    def settle(self, numbers: Sequence[int]) -> None:
        """Settle messages: they, or their dead letters, are complete."""
        self.dead += sum(map(self.line.settle, numbers))
        self.line.look()

    def share_out(self, now: float, limit: int, room: int) -> tuple[int, int]:
        """Of `limit` records, how many replays to emit and how many new records to request.

        `room`: how many new records may be emitted.
        """
        replays = 0
        if self.line.in_use and (due := self.line.due(now)):
            self._earn()
            replays = self._budget.replays(due, limit, room)
        return replays, max(0, min(limit - replays, room))

    def _earn(self) -> None:
        self._budget.spend(0, self.fresh)
        self.fresh = 0

    def take(self, limit: int, fresh: int) -> list[Replay]:
        """Take up to `limit` due messages, beside `fresh` new records, without those that the
        source gives up. Those that have used up their attempts have become dead letters.

        Raises TopologyFailed for a message that has used up its attempts and cannot become one.
        """
        replays: list[Replay] = []
        for replay in self.line.take(limit):
            charged = self.line.charges.get(replay.number)
            last = charged if charged is not None and self.line.exhausted(charged) else None
            if self._source_of(replay).gives_up(replay, None if last is None else last.failure):
                self.line.settle(replay.number)
            else:
                replays.append(replay if last is None else self._bury(replay, last))
        self._earn()
        self._budget.spend(len(replays), fresh)
        self.replayed += len(replays)
        return replays

    def send(
        self, replays: Sequence[Replay], streams: OutputStreams, now: float, sender: Sender
    ) -> None:
        """Emit messages again; each of those that failed together with others in its own batch."""
        apart = [replay for replay in replays if self.line.is_apart(replay)]
        streams.alone = True
        try:
            for replay in apart:
                self._source_of(replay).send_again([replay], now, sender)
        finally:
            streams.alone = False
        others = [replay for replay in replays if not self.line.is_apart(replay)]
        for source in (self._source, self._letters):
            if of_source := [replay for replay in others if self._source_of(replay) is source]:
                source.send_again(of_source, now, sender)

    # ---- of logs --------------------------------------------------------------------------------

    def read_again(self, now: float) -> None:
        """Request due records that are not kept; some are returned now, others in a later call.
        Raises Raised."""
        line = self.line
        room = _FOUND_MAX - line.due(now)
        if room <= 0 or not line.absent:
            return
        numbers = np.array([*islice(line.absent, _AGAIN_MAX)], np.int64)
        polled = self._source.refetch(numbers, room)
        if len(polled.numbers) or polled.unreadable or len(line.absent) <= _AGAIN_MAX:
            self._came_s = now
        elif now - self._came_s >= _GIVES_WAY_S:  # records of other messages may be available
            self._came_s = now
            for number in numbers.tolist():
                line.absent[number] = line.absent.pop(number)
        for number, record in zip(polled.numbers.tolist(), polled.records, strict=True):
            line.found(number, record)
        lost = [unread for unread in polled.unreadable if line.absent.pop(unread.number, None)]
        self.set_aside([self._with_failure(unread) for unread in lost], now)

    def _with_failure(self, unreadable: Unreadable) -> Unreadable:
        """It, with the failure for which it was to be replayed, if that was charged."""
        charges = self.line.charges.get(unreadable.number)
        if charges is None:
            return unreadable
        reason = f"{unreadable.reason}; before that it failed: {charges.failure}"
        return replace(unreadable, reason=reason)

    def set_aside(self, unreadable: Sequence[Unreadable], now: float) -> None:
        """Queue these as dead letters, or to halt the topology; else log and skip them."""
        passed_over, task = list[int](), self._task
        for record in unreadable:
            if record.halts or self.line.retry.has_dead_letters:
                place = (task.component, task.index, record.reason, record.exception)
                why = Failure(Cause.EXCEPTION, *place, worker=task.worker)
                self.line.condemn(Replay(record.number, record, _AFTER_READING), why)
                continue
            passed_over.append(record.number)
            if self.notices.admits(task.component, now):
                name = self._source.message_id(Replay(record.number, record, _AFTER_READING))
                self.notices.say(
                    f"message {describe(name)} of spout {task.component!r} is passed over: "
                    f"{record.reason}"
                )
        if passed_over:
            self.pass_over(np.array(passed_over, np.int64))

    def pass_over(self, numbers: I64) -> None:
        """Settle messages of a log without a tree."""
        self.settle(numbers.tolist())
        self._source.passed_over(numbers)

    # ---- how ------------------------------------------------------------------------------------

    def _source_of(self, replay: Replay) -> SpoutSource:
        return self._letters if replay.number < LETTERS_END else self._source

    def _count(self, failure: Failure) -> None:
        cause = failure.cause.value
        place = FailurePlace(cause, failure.component, failure.task, failure.worker)
        if place not in self.places and len(self.places) >= _PLACES_MAX:
            place = FailurePlace(cause, "", -1, -1)
        self.places[place] += 1

    def _group(
        self, released: Released, message_ids: Sequence[Any], failures: Sequence[Failure]
    ) -> None:
        wall_s = self.wall()
        for _, alike in groupby(range(len(failures)), key=lambda index: id(failures[index])):
            first, *others = alike
            number, payload = int(released.numbers[first]), released.payloads[first]
            replay = Replay(number, payload, int(released.attempts[first]))
            example = partial(self._example, replay, message_ids[first])
            self.groups.add(failures[first], 1 + len(others), wall_s, example)

    def _example(self, replay: Replay, message_id: Any) -> tuple[str, str, tuple[str, ...]]:
        """The id of a message and, if they are kept, its record and the fields of that."""
        record, fields = "", tuple[str, ...]()
        if replay.payload is not ABSENT and not is_internal(self._task.component):
            with user_errors_suppressed():
                values = self._source_of(replay).values(replay)
                record = without_secrets(describe(values, _EXAMPLE_BYTES))
                fields = tuple(filter(None, starmap(_whole, islice(values.items(), _FIELDS_MAX))))
        return without_secrets(id_text(message_id, _EXAMPLE_BYTES)), record, fields

    def _bury(self, replay: Replay, charged: Charges) -> Replay:
        """Turn a message that has used up its attempts into its dead letter, or halt."""
        source = self._source_of(replay)
        message_id = source.message_id(replay)
        spout, failure, times = self._task.component, charged.failure, charged.times
        if charged.dead or not self.line.retry.has_dead_letters:
            tail = f"\n{failure.traceback.rstrip()}" if failure.traceback else ""
            advice = (
                "Fix the bolt that reads the dead letters"
                if charged.dead
                else "Fix the bolt or the record, allow more attempts, or put such records aside: "
                'retry=Retry(dead_letters="dead.jsonl")'
            )
            if failure.cause is Cause.TIMEOUT and (raised := self.groups.raised) is not None:
                advice = f"Before that: {raised}. {advice}"
                tail = f"\n{raised.traceback.rstrip()}" if raised.traceback else ""
            often = f" {times} times, the last time" if times > 1 else ":"
            who = f"{_what(charged)} {describe(message_id)} of spout {spout!r}"
            raise TopologyFailed(f"{who} failed{often} {failure}. {advice}.{tail}")
        what = (message_id, source.values(replay), failure, times, self._letter_bytes)
        stream = source.stream_of(replay)
        forms = self._forms(stream)
        letter = dead_letter(spout, *what, stream=stream, time=self.wall(), forms=forms)
        charged.dead, charged.hopeless, charged.times = True, False, 0
        self._instrument.dead(replay.number)
        return replay._replace(payload=source.letter_payload(replay, letter))

    def _notice(self, number: int, message_id: Any, failure: Failure, *, counts: bool) -> str:
        """One line for the log; the traceback is in the dead letter, or in the error of the run."""
        charged = self.line.charges.get(number)
        outcome = ""
        if charged is not None and counts:
            outcome = f", attempt {charged.times} of {self.line.retry.attempts}"
        elif self.keeps:
            outcome = ", and is emitted again"
        who = (
            f"{_what(charged)} {in_a_line(describe(message_id))} of spout {self._task.component!r}"
        )
        return f"{who} failed{outcome}: {in_a_line(str(failure))}"


def _whole(name: str, value: Any) -> str:
    """A field as `name=value`; empty if that does not show all of the value: others may have the
    same text."""
    text = f"{name}={describe(value, 2 * _FIELD_BYTES)}"
    is_whole = len(utf8(text)) <= _FIELD_BYTES and without_secrets(text) == text
    return text if is_whole else ""


def _what(charged: Charges | None) -> str:
    return "the dead letter of message" if charged is not None and charged.dead else "message"
