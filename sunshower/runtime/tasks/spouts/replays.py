"""Replays the failed messages of one spout task, or turns them into dead letters.

failed ──▶ queued (retry_queue.py) ──▶ within the budget (replay_budget.py) ──▶ emitted again
                              └──── attempts used up ──▶ emitted as a dead letter, or halt
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sunshower.config import Config
from sunshower.errors import TopologyFailed
from sunshower.failures import Failure
from sunshower.runtime.events.instrument import Instrument
from sunshower.runtime.events.log_limit import RateLimitedLog
from sunshower.runtime.events.metrics import FailurePlace
from sunshower.runtime.plan import Task
from sunshower.runtime.tasks.bolts.dead_letters import ROW_BYTES, dead_letter, in_a_line
from sunshower.runtime.tasks.letter_replays import LetterReplays
from sunshower.runtime.tasks.spouts.failure_samples import FailureSamples
from sunshower.runtime.tasks.spouts.replay_budget import ReplayBudget
from sunshower.runtime.tasks.spouts.retry_queue import LETTERS_END, Charges, Replay, RetryQueue
from sunshower.runtime.tasks.spouts.source import SpoutSource
from sunshower.runtime.tracking.ids import I64, U64
from sunshower.runtime.tracking.pending import Released
from sunshower.runtime.tracking.recent_failures import RecentFailures
from sunshower.runtime.transport.output_streams import OutputStreams
from sunshower.texts import describe

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
        self._budget = ReplayBudget(config.replay_share)
        self._letter_bytes = config.record_bytes_max - ROW_BYTES
        self._source, self._letters = source, letters
        self._recent = RecentFailures()
        self._instrument = instrument
        self._former: dict[int, int] = {}  # message not drawn yet → its attempts in former lives

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
            counts = accused or self.line.is_charged(number, failure, now, held=held)
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
            self._former[number] = count

    def inherit(self, charges: Mapping[int, Charges]) -> None:
        """Take over the failures that a former life counted for messages that are drawn again."""
        for number, charged in charges.items():
            times = self.line.retry.attempts if charged.dead else charged.times
            self.remember({number: times}, charged.failure)

    @property
    def remembers_attempts(self) -> bool:
        """Whether any message not drawn yet has failed in a former life."""
        return bool(self._former)

    def recognise(
        self, numbers: I64, payloads: Sequence[Any]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """For new messages: which to emit, and which attempt of each it is.

        Messages that have used up their attempts are queued, to become dead letters or to halt.
        """
        emit, attempts = np.ones(len(numbers), np.bool_), np.ones(len(numbers), np.int64)
        for index in np.flatnonzero(np.isin(numbers, list(self._former))).tolist():
            number = int(numbers[index])
            attempts[index] += self._former.pop(number)
            charged = self.line.charges_of(number)
            if charged is not None and self.line.exhausted(charged):
                emit[index] = False
                self.line.put_last(Replay(number, payloads[index], int(attempts[index])))
        return emit, attempts

    def forget(self, first: int, end: int) -> None:
        """Forget the messages of [first, end), which another task owns from now on."""
        self.line.forget(first, end)
        for number in [number for number in self._former if first <= number < end]:
            del self._former[number]

    def settle(self, numbers: Sequence[int]) -> None:
        """Settle messages: they, or their dead letters, are complete."""
        self.dead += sum(map(self.line.settle, numbers))

    def share_out(self, now: float, limit: int, room: int) -> tuple[int, int]:
        """Of `limit` records, how many replays to emit and how many new records to request.

        `room`: how many new records may be emitted.
        """
        due = self.line.due(now)
        replays = self._budget.replays(due, limit, room) if due else 0
        return replays, max(0, min(limit - replays, room))

    def take(self, limit: int, fresh: int) -> list[Replay]:
        """Take up to `limit` due messages, beside `fresh` new records, without those that the
        source gives up. Those that have used up their attempts have become dead letters.

        Raises TopologyFailed for a message that has used up its attempts and cannot become one.
        """
        replays: list[Replay] = []
        for replay in self.line.take(limit):
            charged = self.line.charges_of(replay.number)
            last = charged if charged is not None and self.line.exhausted(charged) else None
            if self._source_of(replay).gives_up(replay, None if last is None else last.failure):
                self.line.settle(replay.number)
            else:
                replays.append(replay if last is None else self._bury(replay, last))
        self._budget.spend(len(replays), fresh)
        self.replayed += len(replays)
        return replays

    def send(self, replays: Sequence[Replay], streams: OutputStreams, now: float) -> None:
        """Emit messages again; each of those that failed together with others in its own batch."""
        apart = [replay for replay in replays if self.line.is_apart(replay)]
        streams.alone = True
        try:
            for replay in apart:
                self._source_of(replay).send_again([replay], now)
        finally:
            streams.alone = False
        others = [replay for replay in replays if not self.line.is_apart(replay)]
        for source in (self._source, self._letters):
            if own := [replay for replay in others if self._source_of(replay) is source]:
                source.send_again(own, now)

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
        charged = self.line.charges_of(number)
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
