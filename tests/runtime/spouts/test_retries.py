"""Tests of the retry queue: waits, attempts, outages and the cost of a message.

Storm: org.apache.storm.kafka.spout.KafkaSpoutRetryExponentialBackoff, without its O(n).
"""

from __future__ import annotations

import math
from time import process_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import Cause, Failure, Retry
from sunshower.runtime.tasks.spouts.retry_queue import Replay, RetryQueue

BROKEN = Failure(Cause.EXCEPTION, "split", 0, "ValueError: no")
DIED = Failure(Cause.ACTOR_DIED, "split", 0)
SURE = Retry(initial_s=1, factor=2, max_s=5, jitter=0)


class SimpleQueue(RetryQueue):
    """A retry queue of messages without records."""

    def __init__(
        self, retry: Retry = SURE, seed: int = 0, unavailable_max_s: float = math.inf
    ) -> None:
        super().__init__(retry, np.random.default_rng(seed), unavailable_max_s)

    def fail(self, number: int, failure: Failure, now: float) -> float:
        """Queue a failed message. Returns the time until a message is due."""
        self.put(Replay(number, None, 2), failure, now, counts=failure.is_charged)
        return max(0.0, self.next_s - now)

    def take_due(self, now: float) -> list[int]:
        """Take all messages that are due; returns their numbers."""
        return [replay.number for replay in self.take(self.due(now))]


# ---- back-off -----------------------------------------------------------------------------------


def test_wait_grows_by_the_factor_up_to_the_longest() -> None:
    retry = Retry(attempts=6, initial_s=1, factor=2, max_s=5, jitter=0)
    queue, waits, now = SimpleQueue(retry), [], 0.0
    for _ in range(5):
        waits.append(queue.fail(7, BROKEN, now))
        now += waits[-1]
        assert queue.take_due(math.nextafter(now, 0)) == []
        assert queue.take_due(now) == [7]
    assert waits == [1, 2, 4, 5, 5]


@given(st.integers(1, 100_000), st.floats(0, 1), st.floats(0, 0.999))
def test_jitter_shortens_a_wait_and_never_makes_it_longer(
    times: int, jitter: float, chance: float
) -> None:
    retry = Retry(jitter=jitter)
    longest = Retry(jitter=0).wait_s(times)
    assert longest * (1 - jitter) <= retry.wait_s(times, chance) <= longest <= retry.max_s


def test_jitter_spreads_messages_that_failed_together() -> None:
    queue = SimpleQueue(Retry(initial_s=1, jitter=0.5))
    for number in range(100):
        queue.fail(number, BROKEN, 0.0)
    assert queue.take_due(0.49) == []
    assert 30 < len(queue.take_due(0.75)) < 70
    assert 30 < len(queue.take_due(1.0)) < 70
    assert len(queue) == 0


def test_messages_are_taken_in_the_order_in_which_they_are_due() -> None:
    queue = SimpleQueue()
    queue.fail(1, BROKEN, 0.5)
    queue.fail(2, BROKEN, 0.0)
    queue.fail(3, BROKEN, 0.0)
    assert queue.take_due(9.0) == [2, 3, 1]


def test_next_due_time_of_a_queue_is_infinite_if_it_is_empty() -> None:
    queue = SimpleQueue()
    assert queue.next_s == math.inf
    queue.fail(1, BROKEN, 10.0)
    assert queue.next_s == 11.0
    queue.due(11.0)
    assert queue.next_s == -math.inf, "a due message may still have to wait for room"


# ---- attempts -----------------------------------------------------------------------------------


def test_message_that_has_used_up_its_attempts_does_not_wait() -> None:
    queue = SimpleQueue(Retry(attempts=3, jitter=0))
    waits = [queue.fail(7, BROKEN, 0.0)]
    for _ in range(2):
        queue.take_due(100.0)
        waits.append(queue.fail(7, BROKEN, 100.0))
    assert waits == pytest.approx([0.1, 0.2, 0])
    charges = queue.charges.get(7)
    assert charges is not None
    assert queue.exhausted(charges)


def test_attempts_are_counted_for_each_message_until_it_is_settled() -> None:
    queue = SimpleQueue(Retry(attempts=2))
    queue.fail(1, BROKEN, 0.0)
    queue.fail(2, BROKEN, 0.0)
    assert not queue.exhausted(queue.charge(3, BROKEN))
    assert queue.exhausted(queue.charge(1, BROKEN))
    queue.settle(1)
    assert queue.charges.get(1) is None
    assert not queue.exhausted(queue.charge(1, BROKEN))


def test_settled_messages_are_forgotten() -> None:
    queue = SimpleQueue()
    for number, failure in enumerate([BROKEN, DIED] * 50):
        queue.fail(number, failure, 0.0)
    queue.take_due(100.0)
    assert queue.in_use
    for number in range(100):
        assert not queue.settle(number), "none was a dead letter"
    queue.look()
    assert not queue.in_use


# ---- failures by the runtime --------------------------------------------------------------------


def test_failures_by_the_runtime_are_not_charged() -> None:
    queue = SimpleQueue(Retry(attempts=1))
    for now in range(0, 100, 5):
        queue.fail(7, DIED, now)
        assert queue.take_due(now + 5) == [7]
    assert queue.charges.get(7) is None


def test_first_failure_by_the_runtime_does_not_wait_and_later_ones_in_a_row_spread() -> None:
    queue = SimpleQueue(SURE)
    longest = []
    for in_a_row in range(6):
        waits = []
        for number in range(400):
            queue.fail(number, DIED, 0.0)
        if in_a_row:
            waits = [due for due, _, _ in queue._waiting]
        longest.append(max(waits, default=0.0))
        queue.take_due(100.0)
    assert longest == pytest.approx([0, 2, 2, 2, 2, 2], rel=0.02), "2 s at most"
    slow = SimpleQueue(Retry(initial_s=0.1, factor=2, jitter=0))
    for now in (0.0, 100.0):
        for number in range(400):
            slow.fail(number, DIED, now)
        waits = [due - now for due, _, _ in slow._waiting]
        slow.take_due(now + 50.0)
    assert max(waits) == pytest.approx(0.2, rel=0.02)
    assert np.mean(waits) == pytest.approx(0.1, rel=0.1), "drawn uniformly from 0 on"


def test_charged_failure_ends_a_row_of_failures_by_the_runtime() -> None:
    queue = SimpleQueue()
    for failure in (DIED, DIED, BROKEN):
        queue.fail(7, failure, 0.0)
        queue.take_due(100.0)
    assert queue.fail(7, DIED, 200.0) == 0.0


# ---- cost ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [DIED, BROKEN], ids=["runtime", "back-off"])
def test_cost_of_a_message_does_not_grow_with_the_queue(failure: Failure) -> None:
    """A death can fail 30,000 at once. Measured: 0.7 µs each without a wait, 2 µs with back-off."""

    def seconds(count: int) -> float:
        queue = SimpleQueue()
        start_s = process_time()
        for number in range(count):
            queue.fail(number, failure, 0.0)
        assert len(queue.take_due(100.0)) == count
        return process_time() - start_s

    few = min(seconds(1_000) for _ in range(5)) / 1_000
    many = min(seconds(30_000) for _ in range(3)) / 30_000
    assert many < 10 * few, "O(log n): O(n) would be 30 times as much"


# ---- outages ------------------------------------------------------------------------------------

OUTAGE = Failure(Cause.UNAVAILABLE, "sink", 0, "ConnectionError: gone")
DOUBTED = Failure(Cause.EXCEPTION, "sink", 0, "ValueError: no", in_doubt=True)


@pytest.mark.parametrize("failure", [OUTAGE, DOUBTED])
def test_back_off_of_an_outage_doubles_up_to_ten_seconds_and_is_not_charged(
    failure: Failure,
) -> None:
    queue, now, waits = SimpleQueue(Retry(attempts=1)), 0.0, []
    for _ in range(12):
        waits.append(queue.fail(7, failure, now))
        now += waits[-1]
        assert queue.take_due(now) == [7]
    longest = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, *[10.0] * 5]
    assert all(limit / 2 <= wait <= limit for wait, limit in zip(waits, longest, strict=True))
    assert queue.charges.get(7) is None


def test_outage_of_one_message_is_charged_after_unavailable_max_s() -> None:
    queue = SimpleQueue(unavailable_max_s=60.0)
    charged = [queue.is_charged(7, OUTAGE, now, held=False) for now in (100.0, 159.9, 160.0, 170.0)]
    assert charged == [False, False, True, True]
    assert not queue.is_charged(8, OUTAGE, 170.0, held=False), "each message has its own time"


def test_unavailable_max_s_begins_when_the_component_no_longer_waits() -> None:
    queue = SimpleQueue(unavailable_max_s=60.0)
    for now in (0.0, 100.0, 10_000.0):
        assert not queue.is_charged(7, OUTAGE, now, held=True)
    assert not queue.is_charged(7, OUTAGE, 10_059.0, held=False)
    assert queue.is_charged(7, OUTAGE, 10_060.0, held=False)


def test_unavailable_max_s_begins_again_for_a_settled_message() -> None:
    queue = SimpleQueue(unavailable_max_s=60.0)
    queue.is_charged(7, OUTAGE, 0.0, held=False)
    queue.settle(7)
    assert not queue.is_charged(7, OUTAGE, 61.0, held=False)
