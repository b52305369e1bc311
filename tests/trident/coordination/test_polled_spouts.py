"""Spouts with next_tuple as sources of batches: at least once, but not exactly once."""

from __future__ import annotations

from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Thread
from typing import Any, NamedTuple

import pytest

from sunshower import Context, Failure, Spout, SpoutCollector, Topology
from sunshower.clock import ManualClock
from sunshower.config import Internals
from sunshower.errors import BadEmit, ClusterError, ProtocolError, StaleAttempt, TopologyError
from sunshower.runtime.inline import run_inline
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.sources import Counter as CounterSpout
from sunshower.trident import Bounds, InMemory, PlainSpout, PolledSpout, batches, count
from sunshower.trident.spouts.port import SpoutKind
from tests.seeds import seeds
from tests.trident.rigs.emitting import CollectedRows, Drive


class Word(NamedTuple):
    word: str


class Queue(Spout[Word]):
    """A queue that removes what is acked; `open` starts again with all that is left."""

    def __init__(self, words: str, *, each: int = 1, replay: bool = True) -> None:
        self.open_words = dict(enumerate(words))
        self.each, self.replay = each, replay  # type: ignore[misc]
        self.acked: list[int] = []
        self.failed: list[int] = []

    def __deepcopy__(self, memo: Any) -> Queue:
        return self

    def open(self, context: Context) -> None:
        self.line = deque(self.open_words)

    def next_tuple(self, out: SpoutCollector[Word]) -> None:
        for _ in range(min(self.each, len(self.line))):
            number = self.line.popleft()
            out.emit(Word(self.open_words[number]), number)
        if not self.open_words:
            out.finish()

    def ack(self, message_id: int) -> None:
        self.open_words.pop(message_id, None)
        self.acked.append(message_id)

    def fail(self, message_id: int, failure: Failure) -> None:
        self.failed.append(message_id)
        if not self.replay:
            self.line.append(message_id)


class Ends(Queue):
    """Calls `finish` when it has emitted all, as most spouts do."""

    def next_tuple(self, out: SpoutCollector[Word]) -> None:
        super().next_tuple(out)
        if not self.line:
            out.finish()


def polled(spout: Spout[Any], records: int = 3) -> PolledSpout:
    return PolledSpout(spout, bounds=Bounds(records=records))


def text(rows: list[Any]) -> str:
    return "".join(row.word for row in rows)


def test_a_batch_is_what_next_tuple_emits_now_up_to_the_bounds() -> None:
    queue = Queue("abcdefg", each=2)
    drive = Drive(polled(queue))
    assert [text(rows) for rows in drive.run()] == ["abc", "def", "g", ""]
    assert queue.acked == [0, 1, 2, 3, 4, 5, 6]
    assert not queue.failed
    assert (drive.spout.kind, drive.spout.emits) == (SpoutKind.NON_TRANSACTIONAL, Word)


class Pushed(Queue):
    """A thread emits all, and finishes."""

    def next_tuple(self, out: SpoutCollector[Word]) -> None:
        self.out = out
        thread = Thread(target=self.push)
        thread.start()
        thread.join()

    def push(self) -> None:
        for number, word in self.open_words.copy().items():
            self.out.emit(Word(word), number)
        self.out.finish()


def test_what_a_thread_emits_goes_into_the_next_batches_and_finish_follows_it() -> None:
    drive = Drive(polled(spout := Pushed("abc")))
    assert [text(rows) for rows in drive.run()] == ["abc"]
    drive.close()
    with pytest.raises(ProtocolError, match="Pushed is closed"), ThreadPoolExecutor(1) as pool:
        pool.submit(spout.out.emit, Word("d"), 3).result()


def test_a_spout_that_has_finished_ends_the_stream_after_its_last_row() -> None:
    assert [text(rows) for rows in Drive(polled(Ends("abcd"))).run()] == ["abc", "d"]


def test_ids_are_acked_with_the_success_of_their_batch_and_not_before() -> None:
    queue = Queue("abcdef")
    drive = Drive(polled(queue))
    drive.emit(1)
    drive.emit(2)
    drive.commit(1)
    assert queue.acked == []
    drive.success(2)
    assert queue.acked == [0, 1, 2, 3, 4, 5], "the success of 1 was lost"


def test_a_batch_that_failed_has_the_same_rows_where_the_framework_replays() -> None:
    queue = Queue("abcdef")
    drive = Drive(polled(queue))
    assert [text(drive.emit(1)), text(drive.emit(2))] == ["abc", "def"]
    assert [text(drive.emit(1, 1)), text(drive.emit(2, 1))] == ["abc", "def"]
    assert queue.failed == [0, 1, 2, 3, 4, 5]


def test_a_failed_batch_has_new_rows_where_the_spout_replays() -> None:
    queue = Queue("abcdef", replay=False)
    drive = Drive(polled(queue))
    assert text(drive.emit(1)) == "abc"
    assert text(drive.emit(1, 1)) == "def"
    drive.success(1)
    assert text(drive.batch(2)) == "abc"
    assert queue.failed == [0, 1, 2]
    assert not queue.open_words


def test_the_stream_does_not_end_before_rows_that_an_earlier_attempt_has_read() -> None:
    drive = Drive(polled(Ends("abcd")))
    assert [text(drive.emit(1)), text(drive.emit(2))] == ["abc", "d"]
    assert text(drive.batch(1, 1)) == "abc"
    assert not drive.is_last(1), "the second batch has a row"
    assert text(drive.batch(2, 1)) == "d"
    assert drive.is_last(2)


def test_a_restarted_task_polls_again_and_forgets_the_end_that_it_had_seen() -> None:
    queue = Ends("abcde")
    drive = Drive(polled(queue))
    assert [text(drive.emit(1)), text(drive.emit(2))] == ["abc", "de"]
    drive.success(1)
    queue.open_words |= {7: "x", 8: "y"}
    drive.restart()
    assert text(drive.batch(2, 1)) == "dex"
    assert not drive.is_last(2)
    assert text(drive.batch(3)) == "y"
    assert drive.is_last(3)


def test_a_late_call_of_a_former_life_does_not_end_the_stream() -> None:
    queue = Ends("abcdef")
    drive = Drive(polled(queue))
    (former,) = drive.emitters
    assert text(drive.emit(1)) == "abc"
    drive.restart()
    assert text(drive.emit(1, 1)) == "abc"
    with pytest.raises(StaleAttempt, match="another life"):  # it reads to the end of its queue
        former.emit_batch(Attempt(2, 0, 1), None, CollectedRows())
    assert not drive.is_last(1)


class RaisesInAck(Queue):
    def ack(self, message_id: int) -> None:
        super().ack(message_id)
        raise OSError("the channel is closed")

    def fail(self, message_id: int, failure: Failure) -> None:
        super().fail(message_id, failure)
        raise OSError("the channel is closed")


def test_errors_that_ack_and_fail_raise_stop_nothing() -> None:
    queue = RaisesInAck("abcdef", replay=False)
    drive = Drive(polled(queue))
    assert [text(drive.emit(1)), text(drive.emit(1, 1))] == ["abc", "def"]
    drive.success(1)
    assert queue.failed == [0, 1, 2]
    assert queue.acked == [3, 4, 5]


class RaisesOnce(Queue):
    def next_tuple(self, out: SpoutCollector[Word]) -> None:
        super().next_tuple(out)
        if self.each == 1:
            self.each = 2
            raise OSError("away")


def test_rows_that_were_emitted_before_next_tuple_raised_are_in_the_next_attempt() -> None:
    drive = Drive(polled(RaisesOnce("abcd")))
    with pytest.raises(OSError, match="away"):
        drive.emit(1)
    assert text(drive.emit(1, 1)) == "abc"


class Elsewhere(Queue):
    streams = {"other": Word}  # noqa: RUF012

    def next_tuple(self, out: SpoutCollector[Word]) -> None:
        if self.each == 1:
            out.emit(Word("a"), stream="other")
        out.emit_direct(3, Word("a"))


def test_spouts_with_several_streams_or_without_next_tuple_are_refused() -> None:
    with pytest.raises(BadEmit, match=r"Elsewhere .* on stream 'other'"):
        Drive(polled(Elsewhere("a"))).emit(1)
    with pytest.raises(BadEmit, match="to task 3"):
        Drive(polled(Elsewhere("a", each=2))).emit(1)
    with pytest.raises(TopologyError, match="Counter has no next_tuple"):
        PolledSpout(CounterSpout(3))
    with pytest.raises(TopologyError, match="PolledSpout"):
        PlainSpout(Queue("a"))
    with pytest.raises(TopologyError, match="not_exactly_once"):
        program(Topology("t"), Queue("a"), not_exactly_once=False)


def program(
    topology: Topology, queue: Queue, store: InMemory | None = None, **options: Any
) -> MemoryState:
    state = MemoryState()
    store = store or InMemory()
    words = batches(topology, "words", polled(queue, 2), store=store, max_batches=2)
    words.group_by("word").aggregate(count(), state=state, **options)
    return state


@pytest.mark.filterwarnings("ignore")
def test_a_queue_in_a_program() -> None:
    topology, queue = Topology("t"), Queue("abcabcab")
    state = program(topology, queue, not_exactly_once=True)
    run_inline(topology.graph(), clock=ManualClock(), steps_max=50_000)
    assert dict(state.items()) == {"a": 3, "b": 3, "c": 2}
    assert sorted(queue.acked) == list(range(8))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [Queue, Ends])
def test_a_later_run_with_the_same_store_reads_all_that_is_in_the_queue_then(
    kind: type[Queue],
) -> None:
    store = InMemory()
    for words in ("abcab", "", "cab"):
        topology, queue = Topology("t"), kind(words)
        state = program(topology, queue, store, not_exactly_once=True)
        run_inline(topology.graph(), clock=ManualClock(), steps_max=50_000)
        assert Counter(dict(state.items())) == Counter(words)
        assert sorted(queue.acked) == list(range(len(words)))


@pytest.mark.filterwarnings("ignore")
@seeds(6)
@pytest.mark.parametrize("replay", [True, False])
def test_no_message_is_lost_when_workers_are_killed(seed: int, replay: bool) -> None:
    settings = {
        "internals": Internals(sweep_grace_s=0.2, peer_link_retry_s=0.1, restart_backoff_s=0.05)
    }
    topology, queue = Topology("t", **settings, deaths_max=99), Queue("abcabcab", replay=replay)
    state = program(topology, queue, not_exactly_once=True)
    run = SimCluster(seed, check=True).submit(topology.graph())
    for killed in range(3):
        run.wait(0.1 + 0.05 * ((seed + killed) % 7))
        workers = run.plan.workers
        with suppress(ClusterError):  # it has just died
            run.kill_worker(workers[(seed * 5 + killed) % len(workers)])
    assert run.wait(600.0)
    assert sorted(set(queue.acked)) == list(range(8))
    assert Counter(dict(state.items())) >= Counter("abcabcab")
