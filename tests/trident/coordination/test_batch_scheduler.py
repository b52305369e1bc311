"""BatchScheduler: its decisions in single cases, and compared with a naive model."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.trident.coordination.batch_scheduler import (
    Advance,
    BatchScheduler,
    Begin,
    Commit,
    Status,
    Step,
)

MAX, ATTEMPTS, INTERVAL_S = 3, 2, 0.5


def always(txid: int) -> bool:
    return True


def never(txid: int) -> bool:
    return False


def new_scheduler(max_batches: int = 1, **settings: Any) -> BatchScheduler:
    return BatchScheduler(1, {}, max_batches=max_batches, **settings)


def take_steps(scheduler: BatchScheduler, now: float = 0.0) -> list[Step]:
    """Take all the steps that are possible now, and return them."""
    steps: list[Step] = []
    while (step := scheduler.next_step(now, always)) is not None:
        scheduler.confirm(step, now)
        steps.append(step)
    return steps


@dataclass
class Naive:
    """All events in order; the state is computed from them at each call."""

    history: list[Any] = field(default_factory=list)

    @property
    def current(self) -> int:
        return 1 + sum(isinstance(event, Advance) for event in self.history)

    def attempts(self, txid: int) -> list[int]:
        return [e.attempt for e in self.history if isinstance(e, Begin) and e.txid == txid]

    def status(self, txid: int) -> Status | None:
        """Of the last attempt; None if it is not active."""
        status: Status | None = None
        for event in self.history:
            match event:
                case Begin(begun, _, _) if begun == txid:
                    status = Status.PROCESSING
                case ("acked", acked) if acked == txid and status is Status.PROCESSING:
                    status = Status.PROCESSED
                case ("acked", acked) if acked == txid and status is Status.COMMITTING:
                    status = Status.COMMITTED
                case Commit(committing, _) if committing == txid:
                    status = Status.COMMITTING
                case ("failed", failed, _) if failed <= txid:
                    status = None
                case Advance(done, _) if done == txid:
                    status = None
                case "restart":
                    status = None
        return status

    def blamed(self, txid: int) -> int:
        """The number of failures that count, since the last restart."""
        since: list[Any] = []
        for event in self.history:
            since = [] if event == "restart" else [*since, event]
        return sum(event == ("failed", txid, True) for event in since)

    @property
    def active(self) -> dict[int, Status]:
        statuses = {txid: self.status(txid) for txid in range(self.current, self.current + MAX)}
        return {txid: status for txid, status in statuses.items() if status is not None}


EVENTS = st.lists(
    st.one_of(
        st.just(("step",)),
        st.tuples(st.just("acked"), st.integers(0, MAX), st.integers(0, 1)),
        st.tuples(st.just("failed"), st.integers(0, MAX), st.integers(0, 1), st.booleans()),
        st.tuples(st.just("wait"), st.sampled_from((0.1, 0.5, 5.0))),
        st.just(("restart",)),
    ),
    max_size=40,
)


class Trial:
    """The scheduler and the naive model, side by side."""

    def __init__(self, *, can_skip: bool, interval_s: float) -> None:
        self.how: dict[str, Any] = {
            "max_batches": MAX,
            "interval_s": interval_s,
            "attempts_max": ATTEMPTS,
            "can_skip": can_skip,
        }
        self.interval_s = interval_s
        self.scheduler = BatchScheduler(1, {}, **self.how)
        self.naive = Naive()
        self.now = 0.0
        self.begun_s = -10.0

    def step(self) -> None:
        scheduler, naive = self.scheduler, self.naive
        before = deepcopy(vars(scheduler))
        step = scheduler.next_step(self.now, always)
        assert vars(scheduler) == before, "next_step() must change nothing"
        if step is None:
            return
        self.check(step)
        scheduler.confirm(step, self.now)
        naive.history.append(step)
        if isinstance(step, Begin):
            self.begun_s = self.now

    def check(self, step: Step) -> None:
        naive = self.naive
        match step:
            case Begin(txid, attempt, skip):
                assert naive.status(txid) is None
                assert set(range(naive.current, txid)) <= set(naive.active), "begun out of order"
                assert txid < naive.current + MAX
                assert attempt == max(naive.attempts(txid), default=-1) + 1
                assert skip is (naive.blamed(txid) >= ATTEMPTS)
                assert self.now >= self.begun_s + self.interval_s
            case Commit(txid, attempt):
                assert txid == naive.current
                assert attempt == naive.attempts(txid)[-1]
                assert naive.status(txid) is Status.PROCESSED
                assert Status.COMMITTING not in naive.active.values()
            case Advance(txid, attempt):
                assert txid == naive.current
                assert attempt == naive.attempts(txid)[-1]
                assert naive.status(txid) is Status.COMMITTED

    def answer(self, event: tuple[Any, ...]) -> None:
        """Deliver an answer for the last attempt of a txid, or for one that is over."""
        kind, offset, back, *counts = event
        txid = self.naive.current + offset - 1
        if txid < 1 or not (attempts := self.naive.attempts(txid)):
            return
        attempt = attempts[-1] - back
        if self.naive.status(txid) is Status.PROCESSED:
            return  # its tree is complete, so no other answer can come
        before = deepcopy(vars(self.scheduler))
        if kind == "acked":
            accepted = self.scheduler.acked(txid, attempt)
        else:
            accepted = self.scheduler.failed(txid, attempt, self.now, counts=counts[0])
        is_active = self.naive.status(txid) is not None and back == 0
        assert accepted is is_active
        if accepted:
            self.naive.history.append((kind, txid, *counts))
        else:
            assert vars(self.scheduler) == before, "an old answer must change nothing"

    def restart(self) -> None:
        progress = (self.scheduler.current, self.scheduler.attempts)
        self.scheduler = BatchScheduler(*progress, **self.how)
        self.naive.history.append("restart")
        self.begun_s = -10.0

    def event(self, event: tuple[Any, ...]) -> None:
        match event:
            case ("step",):
                self.step()
            case ("wait", seconds):
                self.now += seconds
            case ("restart",):
                self.restart()
            case _:
                self.answer(event)
        active = {txid: batch.status for txid, batch in self.scheduler.active.items()}
        assert active == self.naive.active
        assert len(active) <= MAX
        assert self.scheduler.current == self.naive.current


@given(EVENTS, st.booleans(), st.sampled_from((0.0, INTERVAL_S)))
def test_its_decisions_are_those_that_a_naive_model_allows(
    events: list[Any], can_skip: bool, interval_s: float
) -> None:
    trial = Trial(can_skip=can_skip, interval_s=interval_s)
    for event in events:
        if trial.scheduler.gave_up:
            assert trial.scheduler.next_step(trial.now + 1e6, always) is None
            return
        trial.event(event)


@given(EVENTS)
def test_batches_are_committed_again_once_nothing_fails(events: list[Any]) -> None:
    trial = Trial(can_skip=True, interval_s=0.0)
    for event in events:
        trial.event(event)
        if trial.scheduler.gave_up:
            return
    scheduler, goal = trial.scheduler, trial.scheduler.current + 5
    for turn in range(20):
        take_steps(scheduler, trial.now + 20.0 * turn)
        for txid, active in list(scheduler.active.items()):
            scheduler.acked(txid, active.attempt)
    assert scheduler.current >= goal


def test_one_batch_at_a_time() -> None:
    scheduler = new_scheduler()
    assert take_steps(scheduler) == [Begin(1, 0, False)]
    scheduler.acked(1, 0)
    assert take_steps(scheduler) == [Commit(1, 0)]
    scheduler.acked(1, 0)
    assert take_steps(scheduler) == [Advance(1, 0), Begin(2, 0, False)]


def test_batches_are_processed_in_parallel_and_committed_in_order() -> None:
    scheduler = new_scheduler(3)
    assert take_steps(scheduler) == [Begin(txid, 0, False) for txid in (1, 2, 3)]
    scheduler.acked(3, 0)
    scheduler.acked(2, 0)
    assert take_steps(scheduler) == [], "batch 1 comes first"
    scheduler.acked(1, 0)
    assert take_steps(scheduler) == [Commit(1, 0)], "one commit at a time"
    scheduler.acked(1, 0)
    assert take_steps(scheduler) == [Advance(1, 0), Commit(2, 0), Begin(4, 0, False)]


def test_a_failure_restarts_the_later_batches_too() -> None:
    scheduler = new_scheduler(3)
    take_steps(scheduler)
    scheduler.acked(3, 0)
    assert scheduler.failed(2, 0, 0.0, counts=False)
    assert take_steps(scheduler) == [Begin(2, 1, False), Begin(3, 1, False)]


def test_a_late_answer_of_an_old_attempt_changes_nothing() -> None:
    scheduler = new_scheduler(3)
    take_steps(scheduler)
    scheduler.failed(1, 0, 0.0, counts=False)
    take_steps(scheduler)
    before = deepcopy(vars(scheduler))
    assert not scheduler.failed(2, 0, 0.0, counts=True)
    assert not scheduler.acked(3, 0)
    assert not scheduler.failed(9, 0, 0.0, counts=True)
    assert vars(scheduler) == before


def test_attempt_numbers_continue_from_the_stored_ones() -> None:
    scheduler = BatchScheduler(7, {7: 3, 8: 0, 9: 5}, max_batches=3)
    assert take_steps(scheduler) == [Begin(7, 4, False), Begin(8, 1, False), Begin(9, 6, False)]


def test_while_no_spout_is_ready_no_batch_begins_but_begun_batches_continue() -> None:
    scheduler = new_scheduler(2)
    take_steps(scheduler)
    scheduler.failed(1, 0, 0.0, counts=False)
    step = scheduler.next_step(0.0, never)
    assert step == Begin(1, 1, False)
    scheduler.confirm(step, 0.0)
    assert scheduler.next_step(0.0, never) == Begin(2, 1, False)
    assert BatchScheduler(1, {}).next_step(0.0, never) is None


def test_the_interval_passes_between_the_begins_of_two_batches() -> None:
    scheduler = new_scheduler(3, interval_s=0.5)
    assert take_steps(scheduler, 10.0) == [Begin(1, 0, False)]
    assert take_steps(scheduler, 10.4) == []
    assert take_steps(scheduler, 10.5) == [Begin(2, 0, False)]


def test_the_delay_after_each_failure_that_counts_is_longer() -> None:
    scheduler = new_scheduler()
    waits: list[float] = []
    now = 0.0
    for attempt in range(4):
        take_steps(scheduler, now)
        scheduler.failed(1, attempt, now, counts=True)
        begun_s = next(
            now + step / 100
            for step in range(1000)
            if scheduler.next_step(now + step / 100, always)
        )
        waits.append(round(begun_s - now, 2))
        now = begun_s
    assert waits == [0.1, 0.2, 0.4, 0.8]


@pytest.mark.parametrize("can_skip", [True, False])
def test_a_batch_that_keeps_failing_is_skipped_or_the_scheduler_gives_up(can_skip: bool) -> None:
    scheduler = new_scheduler(attempts_max=2, can_skip=can_skip)
    for attempt in range(2):
        take_steps(scheduler, attempt * 100.0)
        scheduler.failed(1, attempt, attempt * 100.0, counts=True)
    assert scheduler.gave_up is not can_skip
    assert take_steps(scheduler, 1000.0) == ([Begin(1, 2, True)] if can_skip else [])
    for attempt in (2, 3):
        take_steps(scheduler, attempt * 1000.0)
        scheduler.failed(1, attempt, attempt * 1000.0, counts=True)
    assert scheduler.gave_up, "the attempts to skip it have failed too"


def test_failures_that_do_not_count_are_retried_without_a_limit() -> None:
    scheduler = new_scheduler(attempts_max=2)
    for attempt in range(20):
        assert take_steps(scheduler, attempt * 10.0) == [Begin(1, attempt, False)]
        scheduler.failed(1, attempt, attempt * 10.0, counts=False)
    assert not scheduler.gave_up


def test_after_the_last_batch_nothing_begins_and_nothing_counts() -> None:
    scheduler = new_scheduler(2)
    take_steps(scheduler)
    scheduler.finish()
    assert take_steps(scheduler) == []
    assert not scheduler.failed(2, 0, 0.0, counts=True)
