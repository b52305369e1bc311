"""Tests of log spouts: message numbers, commits, lost partitions and unreadable records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sunshower import Bolt, DeadLetter, LogSpout, Polled, Retry, Spout, Topology
from sunshower.clock import ManualClock
from sunshower.errors import TopologyError, TopologyFailed
from sunshower.runtime.inline import run_inline
from tests.contract.topologies import Item
from tests.runtime.lives import RestartedWorker
from tests.runtime.logs import SHIFT, Log, Reader, elsewhere


class Sink(Bolt[Any, None]):
    """Raises for some numbers: with n7=2, twice for the number 7."""

    def __init__(self, **bad: int) -> None:
        self.bad = {int(number[1:]): times for number, times in bad.items()}
        self.seen: list[Any] = []

    def process(self, record: Any) -> None:
        if self.bad.get(record.number, 0):
            self.bad[record.number] -= 1
            raise ValueError(f"no {record.number}")
        self.seen.append(record.number)

    def result(self) -> list[Any]:
        return sorted(self.seen)


class Letters(Bolt[DeadLetter, None]):
    def __init__(self) -> None:
        self.seen: list[DeadLetter] = []

    def process(self, record: DeadLetter) -> None:
        self.seen.append(record)

    def result(self) -> list[DeadLetter]:
        return self.seen


def log_topology(log: Log, sink: Sink | None = None, **settings: Any) -> Topology:
    """A reader of `log` and a sink; if `retry` has dead letters, also a bolt for them."""
    retry = settings.pop("retry", None)
    reader = settings.pop("reader", None) or Reader(log)
    topology = Topology("logs", **settings)
    items = topology.spout("log", reader, retry=retry, streams={"others": Item})
    items.shuffle().bolt("sink", sink or Sink())
    if retry is not None and retry.dead_letters is True:
        items.stream("dead_letters").shuffle().bolt("letters", Letters())
    return topology


def run(log: Log, sink: Sink | None = None, **settings: Any) -> Any:
    graph = log_topology(log, sink, **settings).graph()
    return run_inline(graph, clock=ManualClock(), steps_max=20_000)


def items(count: int) -> list[Any]:
    return [Item(number) for number in range(count)]


def test_all_records_are_acked_by_their_own_numbers_and_committed() -> None:
    log = Log(items(30), items(5))
    done = run(log)
    assert done.results["log"][0] == [*range(30), *(1 << SHIFT | n for n in range(5))]
    assert log.settled
    assert log.closed == [0]


def test_without_ackers_a_record_counts_as_acked_when_it_is_sent() -> None:
    log = Log(items(30))
    assert run(log, ackers=0).results["log"][0] == list(range(30))
    assert log.settled


def test_failed_records_are_emitted_again_from_memory() -> None:
    log = Log(items(30))
    done = run(log, Sink(n7=2, n20=1))
    assert done.results["sink"][0] == list(range(30))
    assert done.snapshot.component("log").replayed == 3
    assert log.settled


def test_a_record_goes_to_the_stream_it_was_polled_for_also_as_a_replay() -> None:
    log = Log([Item(0), elsewhere(1), Item(2), elsewhere(3)])
    topology = Topology("logs")
    records = topology.spout("log", Reader(log), streams={"others": Item})
    records.shuffle().bolt("sink", Sink(n0=1))
    records.stream("others").shuffle().bolt("others", Sink(n3=1))
    done = run_inline(topology.graph(), clock=ManualClock(), steps_max=20_000)
    assert (done.results["sink"], done.results["others"]) == ([[0, 2]], [[1, 3]])
    assert log.settled


SEVERAL = [[Item(0), elsewhere(1), Item(2)], Item(3), [elsewhere(4), Item(5)]]


@pytest.mark.parametrize("refetches", [False, True])
def test_a_list_is_one_message_that_is_settled_when_all_its_records_are(refetches: bool) -> None:
    log = Log(SEVERAL)
    topology = Topology("logs")
    records = topology.spout("log", Reader(log, refetches=refetches), streams={"others": Item})
    records.shuffle().bolt("sink", Sink(n0=1))
    records.stream("others").shuffle().bolt("others", Sink(n4=2))
    done = run_inline(topology.graph(), clock=ManualClock(), steps_max=20_000)
    assert done.results["sink"] == [[0, 2, 2, 3, 5, 5, 5]], "all of a message is emitted again"
    assert done.results["others"] == [[1, 1, 4]]
    assert sorted(done.results["log"][0]) == [0, 1, 2], "each message is acked once"
    assert done.snapshot.component("log").replayed == 3
    assert log.settled


def test_without_ackers_all_records_of_a_list_are_sent() -> None:
    log = Log(SEVERAL)
    done = run(log, ackers=0)
    assert done.results["sink"] == [[0, 2, 3, 5]]
    assert log.settled


def test_a_list_that_keeps_failing_or_does_not_fit_is_one_dead_letter() -> None:
    log = Log([[Item(0), Item(1)], [Item(2), ("no", "item")], Item(3)])
    done = run(log, Sink(n1=9), retry=Retry(attempts=2, dead_letters=True))
    letters = {letter.message_id: letter for letter in done.results["letters"][0]}
    assert letters[0, 0].record == {"records": [{"number": 0}, {"number": 1}]}
    assert "does not fit stream 'default'" in letters[0, 1].reason
    assert done.results["sink"] == [[0, 0, 3]]
    assert log.settled


def test_an_unreadable_record_becomes_a_dead_letter_and_is_acked_with_it() -> None:
    log = Log([Item(0), "text", Item(2)])
    done = run(log, retry=Retry(dead_letters=True))
    (letter,) = done.results["letters"][0]
    facts = (letter.message_id, letter.record, letter.reason, letter.attempts)
    assert facts == ((0, 1), {"text": "text"}, "it is a text", 1)
    assert done.results["sink"][0] == [0, 2]
    assert log.settled
    assert done.snapshot.component("log").dead == 1


def test_a_record_that_does_not_fit_the_stream_is_unreadable() -> None:
    log = Log([Item(0), ("no", "item"), Item(2)])
    done = run(log, retry=Retry(dead_letters=True))
    (letter,) = done.results["letters"][0]
    assert "does not fit stream 'default'" in letter.reason
    assert letter.record == {"record": "('no', 'item')"}
    assert log.settled


def test_without_dead_letters_an_unreadable_record_halts_the_topology() -> None:
    with pytest.raises(TopologyFailed, match=r"message \(0, 1\) of spout 'log'.*it is a text"):
        run(Log([Item(0), "text"]))


def test_a_spout_without_replay_gets_its_failures_and_nothing_is_emitted_twice() -> None:
    reader = Reader(Log(), replay=False)
    log = reader.log = Log(items(10))
    topology = log_topology(log, Sink(n4=1), reader=reader)
    worker = RestartedWorker(topology)
    worker.run(lambda: worker.core.stats().tasks[0].counts.acked == 9)
    worker.run(lambda: bool(reader_of(worker).failed))
    assert reader_of(worker).failed == [(0, 4)]
    (sink,) = worker.core.results("sink")
    assert sink == [0, 1, 2, 3, 5, 6, 7, 8, 9]


def test_a_new_life_starts_where_the_last_one_has_committed() -> None:
    log = Log(items(100))
    worker = RestartedWorker(log_topology(log, spout_pending=20))
    worker.run(lambda: log.committed[0] >= 40)
    committed = log.committed[0]
    worker.start()
    worker.run(lambda: log.settled)
    (sink,) = worker.core.results("sink")
    assert sink == list(range(committed, 100))


def test_attempts_of_a_message_that_kills_its_process_are_counted_across_lives() -> None:
    class Deadly(Bolt[Item, None]):
        def process(self, record: Item) -> None:
            if record.number == 13:
                raise KeyboardInterrupt  # stands for the death of the process

    log = Log(items(20))
    topology = Topology("logs", attempts_max=2)
    records = topology.spout("log", Reader(log, 1), retry=Retry(attempts=2, dead_letters=True))
    records.shuffle().bolt("deadly", Deadly())
    records.stream("dead_letters").shuffle().bolt("letters", Letters())
    worker = RestartedWorker(topology)
    for _ in range(6):
        try:
            while not log.settled:
                if worker.core.step():
                    worker.advance(0.1)
        except KeyboardInterrupt:
            worker.start()
    (letters,) = worker.core.results("letters")
    assert [letter.record for letter in letters] == [{"number": 13}]
    assert log.settled


def test_queued_returns_the_numbers_of_the_messages_that_wait_for_a_replay() -> None:
    log = Log(items(10), items(10))
    again = Retry(attempts=3, initial_s=5.0, jitter=0.0)
    worker = RestartedWorker(log_topology(log, Sink(n3=2, n7=2), retry=again))
    worker.run(lambda: worker.core.stats().tasks[0].counts.failed == 4)
    spout = reader_of(worker)
    assert sorted(spout.queued()) == [3, 7, 1 << SHIFT | 3, 1 << SHIFT | 7]
    worker.advance(6.0)
    worker.run(lambda: log.settled)
    assert [*spout.queued()] == []


def test_messages_of_a_lost_partition_are_forgotten_and_their_acks_not_reported() -> None:
    log = Log(items(10), items(10))
    worker = RestartedWorker(log_topology(log, Sink(n3=1_000), attempts_max=1_000))
    reader = None
    while worker.core.stats().tasks[0].counts.failed < 4:
        if worker.core.step():
            worker.advance(0.05)
    reader = reader_of(worker)
    assert (reader.open_[0], reader.open_[1]) == ([3], [3])
    log.owners = [0, 1]
    before = len(reader.acked_numbers)
    for _ in range(40):
        if worker.core.step():
            worker.advance(0.05)
    spout = worker.core.stats().tasks[0]
    assert spout.unsettled == 1, "the message of the partition that it has kept"
    assert len(reader.acked_numbers) == before
    log.owners = [0, 0]
    for _ in range(200):
        if worker.core.step():
            worker.advance(0.05)
    assert worker.core.stats().tasks[0].unsettled == 2, "the partition that came back is read again"


def test_it_is_polled_without_room_and_while_the_topology_is_deactivated() -> None:
    log = Log(items(10))

    class Holds(Bolt[Item, None]):
        def execute(self, tuple: Any, out: Any) -> None: ...

    topology = Topology("logs", spout_pending=4, message_timeout_s=100.0)
    topology.spout("log", Reader(log)).shuffle().bolt("holds", Holds())
    worker = RestartedWorker(topology)
    idle = []
    for _ in range(2):
        before = log.idle
        for _ in range(200):
            worker.advance(worker.core.step() or 0.0)
            if worker.clock.now() > 5.0 * (len(idle) + 1):
                break
        idle.append(log.idle - before)
        for spout in worker.core._spouts:
            spout.deactivate()
    assert all(count >= 8 for count in idle), f"two polls a second expected: {idle} in 5 s each"


def test_it_commits_when_the_topology_is_deactivated() -> None:
    log = Log(items(10))
    worker = RestartedWorker(log_topology(log, reader=Reader(log, 1_000)))
    worker.run(lambda: worker.core.stats().tasks[0].counts.acked == 10)
    assert log.committed[-1] < 10
    worker.core._spouts[0].deactivate()
    assert log.committed == [10]


class Misbehaved(LogSpout[Item]):
    def poll(self, limit: int) -> Polled[Item]:
        return Polled(np.arange(limit + 1), [Item(0)] * (limit + 1))


def test_a_poll_that_returns_more_than_its_limit_is_refused() -> None:
    topology = Topology("logs")
    topology.spout("log", Misbehaved()).shuffle().bolt("sink", Sink())
    with pytest.raises(TopologyFailed, match=r"poll\(\d\) gave \d numbers"):
        run_inline(topology.graph(), clock=ManualClock(), steps_max=100)


def test_the_error_for_a_log_spout_without_poll_names_poll() -> None:
    class Empty(LogSpout[Item]):
        pass

    with pytest.raises(TopologyError, match="write records, tables, next_tuple or poll"):
        Topology("logs").spout("log", Empty())


def test_poll_is_not_for_plain_spouts() -> None:
    class Plain(Spout[Item]):
        def poll(self, limit: int) -> None: ...

    with pytest.raises(TopologyError, match="has nothing to run"):
        Topology("logs").spout("log", Plain())


def reader_of(worker: RestartedWorker) -> Reader:
    reader = worker.core._spouts[0].spout
    assert isinstance(reader, Reader)
    return reader


def test_a_drain_reads_nothing_more_and_commits_the_open_records() -> None:
    log = Log(items(100))
    worker = RestartedWorker(log_topology(log, spout_pending=10))
    worker.run(lambda: worker.core.stats().tasks[0].counts.acked >= 20)
    worker.core.drain()
    worker.run(lambda: worker.core.finished)
    emitted = worker.core.stats().tasks[0].counts.emitted
    for _ in range(20):
        worker.core.step()
        worker.advance(0.1)
    worker.core.close()
    assert worker.core.stats().tasks[0].counts.emitted == emitted < 100
    assert log.committed == [emitted]


def test_a_quarantined_spout_commits_and_is_closed_once() -> None:
    class Breaks(Reader):
        def poll(self, limit: int) -> Polled[Item]:
            if limit and self.position and self.position[0] >= 5:
                raise OSError("broken")
            return super().poll(limit and 1)

    log = Log(items(100))
    worker = RestartedWorker(log_topology(log, reader=Breaks(log, 1)))
    spout = worker.core._spouts[0]
    while not spout.supervision.is_quarantined:
        if worker.core.step():
            worker.advance(1.0)
        assert worker.clock.now() < 700.0, "it had read records: ten minutes of doubt"
    worker.core.step()
    assert log.closed == [0]
    assert log.committed == [5]
    worker.core.close()
    assert log.closed == [0], "it is closed once"


def test_a_log_spout_may_have_a_queue_of_its_own() -> None:
    class Own(Reader):
        def __init__(self, log: Log) -> None:
            super().__init__(log)
            self._queue = [1, 2]

    spout = Own(Log())
    spout.set_queue(lambda: [7])
    assert (spout._queue, spout.queued()) == ([1, 2], [7])
