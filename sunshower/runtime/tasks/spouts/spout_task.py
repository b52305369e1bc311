"""Runs a spout: emits the records of its source, tracks their trees, replays failed messages.

    source ──▶ emitted ──complete──▶ acked
                 ▲   └──failed, timed out, swept──▶ failed ──▶ queued for replay ────┐
                 ├──────────────────────── after its back-off ───────────────────────┤
                 └── as a dead letter ── attempts used up, or else the run halts ────┘

Pending trees and messages that wait for a replay share the `spout_pending` limit.
Storm: org.apache.storm.executor.spout.SpoutExecutor. There the spout itself must replay a failed
tuple; here the framework keeps the record and emits it again, unless `replay` is False.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sunshower.config import Config
from sunshower.errors import TopologyFailed, user_errors
from sunshower.failures import Cause, Failure
from sunshower.records import Schema
from sunshower.runtime.events.health import TaskError
from sunshower.runtime.events.instrument import Instrument, TraceChoice
from sunshower.runtime.events.log_lines import RateLimitedLog
from sunshower.runtime.events.metrics import Counts, FailurePlace, Latencies, LatencyKind, TaskStats
from sunshower.runtime.plan import Task
from sunshower.runtime.tasks.bolts.dead_letters import ROW_BYTES, dead_letter, in_a_line
from sunshower.runtime.tasks.letter_replays import LetterReplays
from sunshower.runtime.tasks.spouts.retry_queue import LETTERS_END, Charges, Replay, RetryQueue
from sunshower.runtime.tasks.spouts.source import Drawn, MessageRecords, Send, SpoutSource
from sunshower.runtime.tasks.spouts.watermark_sender import WATERMARK, MessageTimes, WatermarkSender
from sunshower.runtime.tasks.supervision import Supervised, Supervision
from sunshower.runtime.tasks.task_transfer import TaskTransfer
from sunshower.runtime.tasks.user_code import as_raised, guard, no_way
from sunshower.runtime.tracking.batch import Anchors
from sunshower.runtime.tracking.ids import I64, U64
from sunshower.runtime.tracking.pending import F64, Deadlines, Pending, PendingLimit, Released
from sunshower.runtime.tracking.reports import Reports
from sunshower.runtime.transport.channels import ServiceTime
from sunshower.runtime.transport.output_streams import NotSent, OutputStreams
from sunshower.texts import clip, describe
from sunshower.topologies.components import Context, Spout

_NO_LIMIT = 1 << 62
_SAY_WAITS_S = 60.0


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


# ---- failure samples -----------------------------------------------------------------------------

_KEPT = 8  # causes and components of one spout task
_TEXT_BYTES = 2048  # of a traceback; statistics are sent four times a second


class FailureSamples:
    """The newest failure of each cause and component, of the last eight of these."""

    def __init__(self) -> None:
        self._newest: dict[tuple[Cause, str], Failure] = {}

    def add(self, failures: Iterable[Failure]) -> None:
        """Note failures, in their order."""
        for failure in failures:
            place = (failure.cause, failure.component)
            self._newest.pop(place, None)  # so that the newest is the last
            self._newest[place] = failure
        while len(self._newest) > _KEPT:
            del self._newest[next(iter(self._newest))]

    def newest(self) -> tuple[Failure, ...]:
        """These failures, the newest first, with clipped texts."""
        return tuple(_clipped(failure) for failure in reversed(self._newest.values()))


def _clipped(failure: Failure) -> Failure:
    return replace(
        failure,
        reason=clip(failure.reason, _TEXT_BYTES),
        traceback=clip(failure.traceback, _TEXT_BYTES),
    )


# ---- replays -------------------------------------------------------------------------------------

# Replays the failed messages of one spout task, or turns them into dead letters.
#
# failed ──▶ queued (retry_queue.py) ──▶ within the budget (ReplayBudget) ──▶ emitted again
#                               └──── attempts used up ──▶ emitted as a dead letter, or halt

_PLACES_MAX = 1_000  # later ones count as unknown


class Replays:
    """The retry queue of one spout task with its budget, counters and log messages."""

    def __init__(
        self,
        task: Task,
        retries: RetryQueue,
        config: Config,
        source: SpoutSource,
        letters: LetterReplays,
        instrument: Instrument,
    ) -> None:
        self.keeps = True  # whether the framework replays; else only the spout's `fail` is called
        self.line = retries
        self.notices = RateLimitedLog(f"failures of spout {task.component!r}")
        self.samples = FailureSamples()
        self.places: Counter[FailurePlace] = Counter()  # failed trees
        self.replayed = self.dead = 0
        self._task = task
        self._budget = ReplayBudget(config.internals.replay_share)
        self._letter_bytes = config.record_bytes_max - ROW_BYTES
        self._source, self._letters = source, letters
        self._recent = RecentFailures()
        self._instrument = instrument
        self.former: dict[int, int] = {}  # message not drawn yet → its attempts in former lives
        self.fresh = 0  # new records emitted since the budget was asked last

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
        self.samples.add(failures)
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
                accused or self.line.is_charged(number, failure, now, held=held)
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
        self, replays: Sequence[Replay], streams: OutputStreams, now: float, send: Send
    ) -> None:
        """Emit messages again; each of those that failed together with others in its own batch."""
        apart = [replay for replay in replays if self.line.is_apart(replay)]
        streams.alone = True
        try:
            for replay in apart:
                self._source_of(replay).send_again([replay], now, send)
        finally:
            streams.alone = False
        others = [replay for replay in replays if not self.line.is_apart(replay)]
        for source in (self._source, self._letters):
            if of_source := [replay for replay in others if self._source_of(replay) is source]:
                source.send_again(of_source, now, send)

    def _source_of(self, replay: Replay) -> SpoutSource:
        return self._letters if replay.number < LETTERS_END else self._source

    def _count(self, failure: Failure) -> None:
        cause = failure.cause.value
        place = FailurePlace(cause, failure.component, failure.task, failure.worker)
        if place not in self.places and len(self.places) >= _PLACES_MAX:
            place = FailurePlace(cause, "", -1, -1)
        self.places[place] += 1

    def _bury(self, replay: Replay, charged: Charges) -> Replay:
        """Turn a message that has used up its attempts into its dead letter, or halt."""
        source = self._source_of(replay)
        message_id = source.message_id(replay)
        spout, failure, times = self._task.component, charged.failure, charged.times
        if charged.dead or not self.line.retry.has_dead_letters:
            tail = f"\n{failure.traceback.rstrip()}" if failure.traceback else ""
            advice = (
                "Mend the bolt that reads the dead letters"
                if charged.dead
                else "Mend the bolt or the record, allow more attempts, or put such records aside: "
                'retry=Retry(dead_letters="dead.jsonl")'
            )
            often = f" {times} times, the last time" if times > 1 else ":"
            who = f"{_what(charged)} {describe(message_id)} of spout {spout!r}"
            raise TopologyFailed(f"{who} failed{often} {failure}. {advice}.{tail}")
        what = (message_id, source.values(replay), failure, times, self._letter_bytes)
        stream, wall_s = source.stream_of(replay), self._letters.clock.wall()
        forms = self._letters.forms(stream)
        letter = dead_letter(spout, *what, stream=stream, time=wall_s, forms=forms)
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


def _what(charged: Charges | None) -> str:
    return "the dead letter of message" if charged is not None and charged.dead else "message"


# ---- poll backoff --------------------------------------------------------------------------------

_SHARE = 1 / 16  # the next record waits at most this share of the gap before it
_SHORTEST_S = 0.001


class PollBackoff:
    """The poll back-off of one spout task: up to `longest_s` (`idle_poll_s`)."""

    def __init__(self, longest_s: float) -> None:
        self.until_s = 0.0
        self._shortest_s = _SHORTEST_S
        self._since_s: float | None = None  # the first poll without a record
        self._longest_s = longest_s

    def share_worker(self, spouts: int) -> None:
        """Poll so much less often that all spout tasks of a worker together poll 1,000 times a
        second at most: a poll that finds nothing costs up to 0.1 ms."""
        self._shortest_s = _SHORTEST_S * spouts

    def begin(self, now: float) -> None:
        """The source had nothing: wait for a share of the time since it first had nothing."""
        if self._since_s is None:
            self._since_s = now
        idle_s = now - self._since_s
        self.until_s = now + min(max(self._shortest_s, _SHARE * idle_s), self._longest_s)

    def end(self) -> None:
        """The source had records: poll again at once."""
        self.until_s, self._since_s = 0.0, None


# ---- spout task ----------------------------------------------------------------------------------


class SpoutTask(Supervised):
    """One task of a spout. `make_source`: of the kind that the user's spout is; see source.py."""

    def __init__(
        self,
        supervision: Supervision,
        instrument: Instrument,
        make: Callable[[], Spout[Any]],
        make_source: Callable[[SpoutTask], SpoutSource],
        pending: Pending,
        output_streams: OutputStreams,
        reports: Reports,
        config: Config,
        retries: RetryQueue,
    ) -> None:
        super().__init__(supervision, instrument)
        self.spout: Any = None  # None until it is open
        self._make, self.pending = make, pending
        self.output_streams = output_streams
        self.is_open = False
        self.active = True  # whether it may emit at all
        self.settles = False  # it is deactivated once what it has begun is complete
        self.latencies = Latencies()
        self.service = ServiceTime(config)
        self.is_tracked = reports.tracked
        self.watermarks = WatermarkSender(self, pending, reports, retries, config)
        self._traces = TraceChoice(config.trace_share) if config.trace_share else None
        self.config, self._reports = config, reports
        self.deadlines = Deadlines(config, pending, reports)
        self._acked = self._failed = 0
        self._first_replay_s = self._last_ack_s = cast("float | None", None)
        self.rest = PollBackoff(config.internals.idle_poll_s)  # of the source
        self.limit = PendingLimit(config, pending)
        self.tells = True  # whether the user's spout gets calls of `ack` and `fail`
        self._hears_ack = self._hears_fail = False
        self.source = make_source(self)
        self.awaits: frozenset[str] = frozenset()  # the spouts that fill its tables, as long as
        # these are not filled: it draws no record
        self._say_waits_s = math.inf  # when to log that it still waits
        self._filling: set[int] | None = None  # messages of the first reading that are not settled
        self.letters = LetterReplays(self, pending, retries)
        self.replays = Replays(self.task, retries, config, self.source, self.letters, instrument)

    def open(self, context: Context) -> None:
        """Create and open the spout, before the first emit. Raises Raised if user code does; a
        further call creates a new spout."""
        spout = guard(self.task, "the constructor", self._make)
        guard(self.task, "prepare of a custom grouping", self.output_streams.prepare)
        guard(self.task, "open", partial(spout.open, context))
        self._adopt(spout, context)
        if self.awaits:
            self._say_waits_s = context.clock.now() + _SAY_WAITS_S
        self.source.begin()

    def _adopt(self, spout: Spout[Any], context: Context) -> None:
        self.spout, self.is_open = spout, True
        self.letters.clock = context.clock
        self.source.adopt(spout)
        self.watermarks.function, self.watermarks.wall = spout.event_time, context.clock.wall
        self.replays.keeps = spout.replay
        if not spout.replay:
            self.limit.lift()
        self._hears_ack = self.tells and self.source.listens(spout)
        self._hears_fail = self.tells and type(spout).fail is not Spout.fail

    def wait_for(self, spouts: Collection[str], filled: Collection[str]) -> None:
        """Draw no record before these spouts have `filled` the tables that its records are joined
        with."""
        self.awaits = frozenset(spouts) - frozenset(filled)
        self.source.notes_first_end &= self.task.component not in filled
        if not self.awaits:
            self._say_waits_s = math.inf

    def has_filled(self) -> bool:
        """Whether all that its source had when the task began to read it is in the tables: acked,
        or a dead letter. False if no other spout waits for that, or no longer."""
        source = self.source
        if not source.notes_first_end or not self.is_open:
            return False
        if not (source.has_read_first or source.exhausted):
            self._filling = None
            return False
        if self._filling or self._filling is None:
            open_numbers = {*self.pending.numbers().tolist(), *self.replays.line.numbers}
            unsettled = {n for n in open_numbers if n >= LETTERS_END and n != WATERMARK}
            self._filling = unsettled if self._filling is None else self._filling & unsettled
        return not self._filling and source.is_empty

    @property
    def committed(self) -> int:
        """The lowest message number that is not settled: pending, queued, or not drawn."""
        drawn = self.source.drawn
        if not drawn:
            return 0
        return int(min(self.pending.lowest_number(drawn), self.replays.line.lowest))

    def resume(self, context: Context) -> None:
        """Open the spout, or let it go on after an error. A source whose iterator ended when it
        raised gets a new spout object, and continues at the old position."""
        if self.spout is not None and self.source.reopens:
            self.close()
            self.spout = None
        if self.spout is None:
            self.open(context)

    def pack(self, *, stays: bool, now: float) -> TaskTransfer:
        """The state to move in a rebalance. Pending messages are queued for replay."""
        if self.settles:  # the wait is over, and `fail` must not begin anything
            self.deactivate()
        reason = "tasks changed places before it was processed"
        self.failed(self.pending.all_roots(), Failure(Cause.REBALANCED, reason=reason), now)
        self.letters.forget()
        stays = stays and self.source.may_stay
        line, drawn = self.replays.line, self.source.drawn
        transfer = TaskTransfer(self.committed, drawn, charges=line.charges)
        transfer.event_times = self.watermarks.queued
        transfer.times_ahead = self.watermarks.queued_ahead
        if stays or not self.source.repeats_numbers:  # else these are read again
            transfer.waiting, transfer.exhausted = line.waiting, self.source.exhausted
        if stays:
            transfer.instance = self.spout
        self.source.pack(transfer, stays=stays)
        if not stays and callable(getattr(self.spout, "settle", None)):
            transfer.ahead = []  # the next object continues with what is in its store
        return transfer

    def unpack(self, transfer: TaskTransfer, context: Context) -> None:
        """Continue from `transfer`, instead of `open`. If this raises, all of it is done again."""
        if transfer.instance is not None:
            guard(self.task, "prepare of a custom grouping", self.output_streams.prepare)
            self._adopt(transfer.instance, context)
        elif self.source.repeats_numbers:
            self.source.begin_after(transfer)
            self.replays.inherit(transfer.charges)
            self.open(context)
            return
        else:
            self.open(context)
        self.source.unpack(transfer)
        self.source.exhausted |= transfer.exhausted
        self.replays.line.adopt(transfer.waiting, transfer.charges)
        self.watermarks.queued |= transfer.event_times
        # Savepoints of earlier releases do not have it.
        self.watermarks.queued_ahead.update(getattr(transfer, "times_ahead", ()))

    def activate(self) -> None:
        """Emit from now on. Storm: ISpout.activate."""
        self.active, self.settles = True, False
        self.rest.end()
        if self.spout is not None:
            self.notify("activate", self.spout.activate)

    def deactivate(self) -> None:
        """Emit nothing from now on, not even replays: in Storm both come from nextTuple."""
        self.active = self.settles = False
        if self.spout is not None:
            self.notify("deactivate", self.spout.deactivate)

    def settle(self) -> None:
        """Emit nothing from now on; but a spout that has `settle` first completes what it has
        begun, such as the batches of an exactly-once program."""
        settle = getattr(self.spout, "settle", None)
        if not (self.active and callable(settle)):
            self.deactivate()
            return
        self.settles = True
        self.notify("settle", settle)

    def end_settling(self) -> None:
        """Deactivate it if what it had begun is complete."""
        if self.done or (self.spout.is_settled and self.source.is_empty):
            self.deactivate()

    def emit(self, now: float, limit: int) -> int:
        """Emit up to `limit` records, replays first. Returns how many.

        Raises Raised if the source raised, after emitting the records it had returned before.
        """
        source, line = self.source, self.replays.line
        if self.is_tracked and source.tracks_all:
            limit = min(limit, self.pending.room)
        if line.absent:
            source.read_again(now)
        room = self.fresh_room
        replays, wanted = self.replays.share_out(now, limit, room)
        if room > 0 and not source.tracks_all:
            wanted = limit - replays  # untracked records need no room
        drawn = source.draw(wanted, now)
        attempts: Any = 1
        again = 0
        if line.in_use or self.replays.former:
            if drawn.count < wanted and not drawn.has_more:
                replays = limit - drawn.count
            drawn, attempts, again = self._replay(drawn, replays, now)
        else:
            self.replays.fresh += len(drawn.records)
        if len(drawn.records):
            source.send(drawn, attempts, now, self.send)
        if source.error is not None:
            error, source.error = source.error, None
            if len(drawn.records):
                self.supervision.went_well(now, progress=True)
            raise error
        return again + drawn.count

    def _replay(self, drawn: Drawn, replays: int, now: float) -> tuple[Drawn, Any, int]:
        """Emit up to `replays` failed messages again. Returns which of the new records to emit now,
        the attempt of each, and how many messages were emitted again."""
        attempts: Any = 1
        if self.is_tracked:
            replays = min(replays, self.pending.room - len(drawn.numbers))
        if self.replays.former:
            emit, attempts = self.replays.recognise(drawn.numbers, drawn.payloads)
            drawn, attempts = drawn.only(emit), attempts[emit]
        again = self.replays.take(replays, len(drawn.records))
        if again:
            self.replays.send(again, self.output_streams, now, self.send)
        return drawn, attempts, len(again)

    def schema(self, stream: str) -> Schema:
        """The schema of an output stream."""
        return self.output_streams.output_stream(stream).spec.schema

    def send(
        self,
        stream: str,
        records: Any,
        payloads: Sequence[Any],
        numbers: Sequence[int] | I64,
        attempts: Any,
        now: float,
    ) -> None:
        """Emit `records`; `payloads`: what `Pending` keeps of each until it is acked."""
        if not self.is_tracked:
            try:
                self.output_streams.send(stream, records, None)
            except NotSent as refused:
                for error in refused.errors.values():
                    self.note_untracked(no_way(self.task, error))
            return
        marks = self.watermarks
        times = marks.times(stream, records, self.schema(stream)) if marks.on else None
        roots = self.open_trees(payloads, numbers, attempts, now, times=times)
        errors: dict[int, BaseException] = {}
        try:
            edges = self.output_streams.send(stream, records, Anchors(roots))
        except NotSent as refused:
            edges, errors = refused.made, refused.errors
        assert edges is not None
        self.start_trees(roots, edges, errors, now)

    def send_messages(
        self,
        streams: Mapping[str, MessageRecords],
        payloads: Sequence[Any],
        numbers: Sequence[int] | I64,
        attempts: Any,
        now: float,
    ) -> None:
        """Emit messages of any number of records, each message as one tree; `streams`: the records
        by stream. Otherwise as `send`."""
        roots, made_edges = None, np.zeros(len(payloads), np.uint64)
        if self.is_tracked:
            times = self.lowest_times(streams, len(payloads))
            roots = self.open_trees(payloads, numbers, attempts, now, times=times)
        errors: dict[int, BaseException] = {}
        for stream, of_stream in streams.items():
            messages = np.array(of_stream.messages, np.int64)
            anchors = None if roots is None else Anchors(roots[messages])
            try:
                edges = self.output_streams.send(stream, of_stream.records, anchors)
            except NotSent as refused:
                edges = refused.made
                errors |= {of_stream.messages[at]: error for at, error in refused.errors.items()}
                if roots is None:
                    for error in refused.errors.values():
                        self.note_untracked(no_way(self.task, error))
            if edges is not None:
                np.bitwise_xor.at(made_edges, messages, edges)
        if roots is not None:
            self.start_trees(roots, made_edges, errors, now)

    def lowest_times(
        self, streams: Mapping[str, MessageRecords], count: int
    ) -> MessageTimes | None:
        """The event times of messages; None: nobody asks for them."""
        marks = self.watermarks
        if not marks.on:
            return None
        message_times = MessageTimes([math.inf] * count)
        for stream, of_stream in streams.items():
            times = marks.times(stream, of_stream.records, self.schema(stream))
            message_times.add(of_stream.messages, times)
        return message_times

    def open_trees(
        self,
        payloads: Sequence[Any],
        numbers: Sequence[int] | I64,
        attempts: Any,
        now: float,
        message_ids: list[Any] | None = None,
        times: MessageTimes | None = None,
    ) -> U64:
        """Draw roots for records to send; `message_ids`: if they differ from the numbers; `times`:
        see `lowest_times`."""
        self.limit.moved_s = now
        traced = self._traces.positions(len(payloads), attempts, now) if self._traces else ()
        roots = self.pending.take(
            payloads, numbers, attempts, now, self.config.message_timeout_s, traced
        )
        if times is not None:
            self.watermarks.emitted(roots, numbers, times, now)
        self.instrument.emitted(roots, numbers, attempts, message_ids)
        for at in traced:
            attempt = attempts if isinstance(attempts, int) else int(attempts[at])
            message = Replay(int(numbers[at]), payloads[at], attempt)
            is_letter = message.number < LETTERS_END
            source = self.source
            name = message.payload.message_id if is_letter else source.message_id(message)
            self.instrument.traced(int(roots[at]), message.number, attempt, name)
        return roots

    def start_trees(
        self, roots: U64, made: U64, errors: dict[int, BaseException], now: float
    ) -> None:
        """Report the starts to the ackers, except of records that a grouping raised for (`errors`,
        by index): those were not sent, and fail at once."""
        if not errors:
            self._reports.start(roots, made)
            return
        bad = list(errors)
        self._reports.start(np.delete(roots, bad), np.delete(made, bad))
        why = {int(roots[at]): no_way(self.task, errors[at]) for at in bad}
        self.failed(roots[bad], why, now)

    @property
    def next_emit_s(self) -> float:
        """When to call `emit` next: a replay is due, or there is room and the source may be polled;
        ∞ if that depends on acks. Called several times in each slice."""
        line, asks = self.replays.line, not self.awaits
        if self.is_tracked and asks:
            if not self.pending.room:
                return math.inf
            if line.in_use:
                asks = self.pending.free > len(line) or self.source.behind > 0 or bool(line.absent)
        poll_s = self.rest.until_s if asks else math.inf
        return min(poll_s, line.next_s) if line.in_use else poll_s

    @property
    def done(self) -> bool:
        """Whether nothing is left to emit, and nothing is pending."""
        is_emitted = self.source.exhausted and self.source.is_empty
        is_settled = not self.watermarks.pending_records and not len(self.replays.line)
        return is_emitted and is_settled and self.watermarks.done

    @property
    def next_look_s(self) -> float:
        """When the next deadline, sweep, check of the pending limit or poll is due."""
        limit_s = self.limit.stalls_s(is_blocked=self.output_streams.full)
        poll_s = self.source.next_poll_s if self.is_open else math.inf
        waits_s = self._say_waits_s
        return min(self.deadlines.next_s, limit_s, poll_s, self.watermarks.next_s, waits_s)

    def look(self, now: float) -> None:
        """Fail trees that are overdue, and those that a crash affected and that are incomplete."""
        self.limit.look(now, is_blocked=self.output_streams.full)
        self._time_out(self.deadlines.overdue(now), now, self.deadlines.missed("verdict"))
        for sweep in self.deadlines.ripe(now):
            self.failed(sweep.roots, sweep.failure, now)
        if self.is_open and now >= self.source.next_poll_s:
            self.source.look(now)
        if now >= self.watermarks.next_s:
            self.watermarks.send(now)
        if now >= self._say_waits_s:
            self._say_waits_s = math.inf
            names = " and ".join(map(repr, sorted(self.awaits)))
            self.replays.notices.say(
                f"spout {self.task.component!r} has waited for {_SAY_WAITS_S:g} s until the tables "
                f"of its joins have the records of {names}. If that source has no end, let its "
                "records() yield None when it has nothing, or declare table(wait=False)"
            )

    def heard_of(self, roots: U64, ages_s: F64, now: float) -> None:
        """An acker's answer: how long ago each tree made progress. See pending.py."""
        roots = self.deadlines.heard_of(roots, ages_s, now)
        self._time_out(roots, now, self.deadlines.missed("progress"))

    def expire(self, now: float) -> None:
        """Time out all pending trees, for an experiment."""
        failure = Failure(Cause.TIMEOUT, reason="an experiment let all deadlines pass")
        self._time_out(self.pending.all_roots(), now, failure)

    def sweep(self, now: float, failure: Failure, residues: set[int] | None, stride: int) -> None:
        """A process that may have held a part of these trees died: fail them after a grace period.

        `residues`: only slots with slot % stride in it (a dead acker shard's); None: all.
        """
        self.deadlines.sweep(now, failure, residues, stride)

    def complete(self, roots: U64, now: float) -> None:
        """Handle the ackers' report that these trees are complete."""
        reached = self.limit.adapts and self.fresh_room <= 0
        released = self.pending.release(roots)
        if self.watermarks.on:
            released = self.watermarks.completed(released, now)
        self._acked += len(released.roots)
        self.instrument.completed(released)
        self.latencies.add(latencies_s := now - released.emitted_s)
        if self.limit.adapts:
            self.limit.completed(now, latencies_s, reached=reached)
        self._last_ack_s = now
        if self.replays.replayed and self._first_replay_s is None and (released.attempts > 1).any():
            self._first_replay_s = now
        if self.replays.line.in_use:
            self.replays.settle(released.numbers[released.attempts > 1].tolist())
        if self.letters.senders:
            released = self.letters.completed(released)
        if self._hears_ack:
            self.tell_acked(self.source.settled(released))

    def failed(self, roots: U64, why: Failure | Mapping[int, Failure], now: float) -> None:
        """Fail these trees; those still pending are queued for replay.

        `why`: the failure of all of them, or root → its own.
        """
        self._fail(self.pending.release(roots), why, now)

    def suspect(self, roots: U64, failure: Failure, now: float) -> None:
        """A process died while it was executing these: charge an attempt of each.

        Trees still pending fail. Messages that the runtime failed a moment ago, by a sweep or for a
        lost frame, are charged afterwards; this takes effect when they leave the retry queue.
        """
        self._fail(self.pending.release(roots), failure, now, accused=True)
        self.replays.accuse(roots, failure)

    def accuse(self, times: Mapping[int, int], failure: Failure) -> None:
        """Charge messages, number → how often their process died in them. Called before `open`."""
        if self.source.repeats_numbers:
            self.replays.remember({n: times[n] for n in times if n != WATERMARK}, failure)

    def postpone(self, roots: U64, now: float) -> None:
        """Reset the timeout of these trees. Storm: OutputCollector.resetTimeout."""
        self.deadlines.postpone(roots, now)

    def tick(self) -> None:
        """Call the spout's tick. It cannot emit, so it does not wait for credit."""
        self.spout.tick()

    def abandon(self) -> None:
        """Stop reading the source, whatever it still has."""
        self.source.exhausted = True
        self.watermarks.stops = True
        self.source.abandon()

    def drain(self) -> None:
        """Emit no new records from now on; failed ones are still replayed."""
        self.active = True
        self.watermarks.stops = True
        self.source.drain()

    def close(self) -> TaskError | None:
        if not self.is_open:
            return None
        self.is_open = self._hears_ack = self._hears_fail = False
        try:
            return self.notify("close", self.spout.close)
        finally:
            self.source.close()

    def stats(self) -> TaskStats:
        """The task's current statistics."""
        counts = Counts(
            **self.output_streams.counts_at(self.supervision.now_s),
            acked=self._acked,
            failed=self._failed,
            replayed=self.replays.replayed,
            pending=self.watermarks.pending_records,
            dead=self.replays.dead,
            ahead=self.watermarks.ahead,
            busy_s=self.service.busy_s,
            causes=self.replays.causes,
            places=dict(self.replays.places),
        )
        times = (self.done, self._first_replay_s, self._last_ack_s if self.done else None)
        return TaskStats(
            self.task.id,
            self.task.component,
            counts,
            {LatencyKind.COMPLETE: self.latencies.copy()},
            *times,
            self.supervision.health,
            self.committed,
            self.source.drawn,
            self.source.owed,
            unsettled=self.watermarks.pending_records + len(self.replays.line),
            figures=self.figures_of(self.spout),
            failures=self.replays.samples.newest(),
            event_time=self.watermarks.event_time,
            awaits=tuple(sorted(self.awaits)),
            has_filled=self.has_filled(),
        )

    def pulse(self) -> tuple[object, ...]:
        sent = (self.output_streams.emitted, self.output_streams.transferred, self.replays.replayed)
        pending = self.watermarks.pending_records
        ended = (self._acked, self._failed, self.replays.dead, pending, self.done, self.awaits)
        return *sent, *ended, self.has_filled(), *self.supervision.pulse

    @property
    def is_held(self) -> bool:
        """Whether it emits nothing new because receivers have no credit, or as many trees are open
        as are allowed."""
        waits = self.output_streams.full or (not self.source.exhausted and self.fresh_room <= 0)
        return waits and self.active and not self.done

    @property
    def fresh_room(self) -> int:
        """How many new records may be emitted. A queued message keeps its slot, but does not count
        against an adaptive limit: one message that keeps failing must not block the others."""
        if self.source.behind or self.watermarks.lags or self.awaits:
            return 0
        if not self.is_tracked:
            return _NO_LIMIT
        room = self.pending.room
        if self.replays.line.in_use:
            room = min(room, self.pending.free - len(self.replays.line))
        return room

    def tell_acked(self, message_ids: Iterable[Any]) -> None:
        """Call the spout's `ack` for each; an error of it is only recorded."""
        waiting = iter(message_ids)
        while True:
            try:
                for message_id in waiting:
                    self.spout.ack(message_id)
                return
            except user_errors() as error:
                self.supervision.note(as_raised(self.task, "ack", error))

    def _time_out(self, roots: U64, now: float, failure: Failure) -> None:
        if len(roots):
            self.limit.timed_out(now)
            self.failed(roots, failure, now)

    def _fail(
        self,
        released: Released,
        why: Failure | Mapping[int, Failure],
        now: float,
        *,
        accused: bool = False,
    ) -> None:
        held = self.deadlines.held
        if self.watermarks.on:
            released = self.watermarks.failed(released, why, now, held=held)
        self._failed += len(released.roots)
        failures = [why if isinstance(why, Failure) else why[r] for r in released.roots.tolist()]
        self.instrument.failed(released, failures)
        message_ids = self.source.message_ids(released)
        if self.letters.senders:
            message_ids = self.letters.named(released, message_ids)
        self.replays.fail(released, message_ids, failures, now, accused=accused, held=held)
        if self.replays.keeps and len(released.roots):
            self._reports.failed.append(released.roots)
        if self._hears_fail:
            for index in (released.numbers >= LETTERS_END).nonzero()[0].tolist():
                heard = replace(failures[index], attempt=int(released.attempts[index]))
                self.notify("fail", partial(self.spout.fail, message_ids[index], heard))
