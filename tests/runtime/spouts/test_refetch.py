"""Tests of log spouts that keep no records: failed records are read from the log again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sunshower import OnStream, Polled, Retry, Topology
from sunshower.errors import TopologyFailed
from sunshower.runtime.tasks.spouts.retry_queue import ABSENT, Replay
from tests.contract.topologies import Item
from tests.runtime.lives import RestartedWorker
from tests.runtime.logs import SHIFT, Log, Reader, elsewhere
from tests.runtime.spouts.test_log_spout import Sink, items, log_topology, reader_of
from tests.runtime.spouts.test_retries import BROKEN, DIED, SimpleQueue

LETTERS = Retry(attempts=3, initial_s=0.01, dead_letters=True)


def run_to_end(worker: RestartedWorker, log: Log) -> None:
    """Work until all is settled; while there is nothing to do, time passes."""
    for _ in range(20_000):  # the clock stands still while there is work
        if log.settled and not worker.core.stats().tasks[0].unsettled:
            return
        if wait_s := worker.core.step():
            worker.advance(wait_s)
    raise AssertionError(f"it does not end: {worker.core.stats().tasks[0]}")


def run(log: Log, sink: Sink, **settings: Any) -> RestartedWorker:
    reader = Reader(log, refetches=True)
    worker = RestartedWorker(log_topology(log, sink, reader=reader, **settings))
    run_to_end(worker, log)
    return worker


def test_failed_records_are_read_again_and_no_pending_record_is_kept() -> None:
    log = Log(items(30), items(30))
    held: list[Any] = []

    class NotesPayloads(Sink):
        def process(self, record: Any) -> None:
            held.extend(worker.core._spouts[0].pending._payload)
            super().process(record)

    sink = NotesPayloads(n7=2, n20=1)
    worker = RestartedWorker(log_topology(log, sink, reader=Reader(log, refetches=True)))
    run_to_end(worker, log)
    (numbers,) = worker.core.results("sink")
    assert sorted(numbers) == sorted([*range(30)] * 2)
    assert {*held} == {None, ABSENT}
    assert worker.core.stats().tasks[0].counts.replayed == 3
    assert [count for count in reader_of(worker).asked if count]


def test_a_record_that_is_read_again_goes_to_its_stream() -> None:
    log = Log([Item(0), elsewhere(1), Item(2), elsewhere(3)])
    topology = Topology("logs")
    records = topology.spout("log", Reader(log, refetches=True), streams={"others": Item})
    records.shuffle().bolt("sink", Sink(n0=1))
    records.stream("others").shuffle().bolt("others", Sink(n3=1))
    worker = RestartedWorker(topology)
    run_to_end(worker, log)
    assert [worker.core.results(bolt) for bolt in ("sink", "others")] == [[[0, 2]], [[1, 3]]]


def test_a_dead_letter_has_its_record() -> None:
    log = Log(items(10))
    worker = run(log, Sink(n4=3), retry=LETTERS)
    (letter,) = worker.core.results("letters")[0]
    assert (letter.record, letter.attempts) == ({"number": 4}, 3)


def test_a_deleted_record_becomes_a_dead_letter_with_its_former_failure() -> None:
    log = Log(items(10))
    log.removed = {(0, 4)}
    worker = run(log, Sink(n4=1), retry=LETTERS)
    (letter,) = worker.core.results("letters")[0]
    assert letter.record == {"place": {"()": [0, 4]}}  # a tuple, also behind JSON
    assert letter.reason.startswith("it is gone; before that it failed: ")
    assert "no 4" in letter.reason
    assert worker.core.results("sink")[0] == [0, 1, 2, 3, 5, 6, 7, 8, 9]


def test_without_dead_letters_a_deleted_record_is_skipped_and_settled() -> None:
    log = Log(items(10))
    log.removed = {(0, 4)}
    worker = run(log, Sink(n4=1))
    assert log.committed == [10]
    assert not worker.core._spouts[0].replays.line.in_use


def test_a_record_that_does_not_fit_when_it_is_read_again_halts_the_topology() -> None:
    class Forgets(Reader):
        def refetch(self, numbers: NDArray[np.int64], limit: int) -> Polled[Any]:
            return Polled(numbers, ["no item"] * len(numbers))

    log = Log(items(10))
    worker = RestartedWorker(log_topology(log, Sink(n4=1), reader=Forgets(log, refetches=True)))
    with pytest.raises(TopologyFailed, match="does not fit stream"):
        run_to_end(worker, log)


def test_a_refetch_that_raises_is_called_again() -> None:
    class FailsTwice(Reader):
        def refetch(self, numbers: NDArray[np.int64], limit: int) -> Polled[Item]:
            if len(self.asked) < 2:
                self.asked.append(0)
                raise OSError("gone")
            return super().refetch(numbers, limit)

    log = Log(items(10))
    worker = RestartedWorker(log_topology(log, Sink(n4=1), reader=FailsTwice(log, refetches=True)))
    run_to_end(worker, log)
    assert worker.core.results("sink")[0] == [*range(10)]


def test_many_records_that_failed_together_are_read_again_in_parts() -> None:
    class NotesLimits(Reader):
        limits: list[int] = []  # noqa: RUF012 – there is one instance

        def refetch(self, numbers: NDArray[np.int64], limit: int) -> Polled[Item]:
            self.limits.append(limit)
            assert len(numbers) <= 4096
            return super().refetch(numbers, limit)

    log = Log(items(6_000))
    refuses = Sink(**{f"n{number}": 1 for number in range(6_000)})
    reader = NotesLimits(log, refetches=True)
    retry = Retry(attempts=3, initial_s=1.0, jitter=0.0)
    worker = RestartedWorker(
        log_topology(log, refuses, reader=reader, retry=retry, spout_pending=8_192)
    )
    run_to_end(worker, log)
    assert worker.core.results("sink")[0] == [*range(6_000)]
    assert max(reader.limits) <= 1024


def test_records_that_cannot_be_read_again_yet_do_not_delay_others() -> None:
    class Leaderless(Reader):
        """Partition 0 cannot be read again before all of partition 1 is committed."""

        def refetch(self, numbers: NDArray[np.int64], limit: int) -> Polled[Item]:
            available = numbers[numbers >> SHIFT == 1] if self.log.committed[1] < 50 else numbers
            return super().refetch(available, limit)

    log = Log(items(5_000), items(50))
    refuses = Sink(**{f"n{number}": 2 if number < 50 else 1 for number in range(5_000)})
    reader = Leaderless(log, refetches=True)
    retry = Retry(attempts=3, initial_s=0.1, jitter=0.0)
    worker = RestartedWorker(
        log_topology(log, refuses, reader=reader, retry=retry, spout_pending=8_192)
    )
    run_to_end(worker, log)
    assert log.committed == [5_000, 50]


def test_records_of_a_lost_partition_are_no_longer_read_again() -> None:
    class FindsNothing(Reader):
        def refetch(self, numbers: NDArray[np.int64], limit: int) -> Polled[Item]:
            self.asked.append(int(numbers.max() >> SHIFT))
            return Polled(np.zeros(0, np.int64), ())

    log = Log(items(10), items(10))
    worker = RestartedWorker(
        log_topology(log, Sink(n3=2), reader=FindsNothing(log, refetches=True))
    )
    reader = None
    while reader is None or 1 not in reader.asked:
        worker.advance(worker.core.step() or 0.001)
        reader = reader_of(worker) if worker.core._spouts[0].spout else None
    log.owners = [0, 1]
    for _ in range(50):
        worker.advance(worker.core.step() or 0.001)
    assert reader.asked[-1] == 0
    assert [*reader.queued()] == [3]


def test_an_abandoned_spout_is_done_without_its_failed_record() -> None:
    log = Log(items(10))
    worker = RestartedWorker(log_topology(log, Sink(n3=1), reader=Reader(log, refetches=True)))
    worker.run(lambda: worker.core.stats().tasks[0].counts.failed == 1)
    worker.core._spouts[0].abandon()
    for _ in range(50):
        worker.advance(worker.core.step() or 0.1)
    assert worker.core._spouts[0].done
    assert log.committed == [3], "record 3 is left to another task"


# ---- the retry queue ----------------------------------------------------------------------------


def test_a_due_message_without_a_record_is_queued_and_cannot_be_taken() -> None:
    queue = SimpleQueue()
    queue.put(Replay(5, ABSENT, 2), BROKEN, 0.0, counts=True)
    queue.put(Replay(9, ABSENT, 2), DIED, 0.0, counts=False)
    assert (queue.due(2.0), sorted(queue.absent), len(queue)) == (0, [5, 9], 2)
    assert (sorted(queue.numbers), queue.lowest) == ([5, 9], 5)
    queue.found(9, "record")
    queue.found(7, "not queued")
    assert queue.take(queue.due(2.0)) == [Replay(9, "record", 2)]
    other = SimpleQueue()
    other.adopt(queue.waiting, queue.charges)
    assert [*other.absent] == [5]
    other.forget(5, 6)
    assert not len(other)


def test_onstream_records_are_found_as_they_were() -> None:
    queue = SimpleQueue()
    queue.put(Replay(1, ABSENT, 2), DIED, 0.0, counts=False)
    queue.found(1, OnStream("others", Item(1)))
    assert queue.take(1)[0].payload == OnStream("others", Item(1))
