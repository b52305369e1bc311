"""Collectors that other threads than the task's call: what takes effect, when, and what raises."""

from __future__ import annotations

import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

import pytest

from sunshower import (
    Bolt,
    Cause,
    Collector,
    Context,
    DirectStream,
    Failure,
    KeyValueState,
    Records,
    Retry,
    Spout,
    SpoutCollector,
    Topology,
    Tuple,
    run_inline,
)
from sunshower.clock import ManualClock
from sunshower.errors import AlreadySettled, BadEmit, ProtocolError, Unavailable
from sunshower.runtime.tasks import shared_collector
from sunshower.runtime.tasks.bolts.bolt_task import Rare, Trial
from sunshower.runtime.tasks.user_code import context
from tests.runtime.rig import ROOT, Number, Rig, Word, balance, records_of, sink

T = TypeVar("T")


class Held(Bolt[Word, Word]):
    """Hands its inputs and the collector over to the test."""

    def __init__(self, script: Callable[[Any, Any], None] | None = None) -> None:
        self.script = script

    def prepare(self, context: Context) -> None:
        self.held: list[Tuple[Word]] = []

    def execute(self, tuple: Tuple[Word], out: Collector[Word]) -> None:
        self.held.append(tuple)
        self.out = out
        if self.script is not None:
            self.script(tuple, out)


def elsewhere(call: Callable[[], T]) -> T:
    """The result of `call` in another thread, or its error."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


class BoltRig(Rig):
    """words ──▶ bolt ──▶ next, and a direct stream; `woken`: how often the worker was woken."""

    def __init__(self, bolt: Any = None, **settings: Any) -> None:
        topology = Topology("t", ackers=1, **settings)
        source = topology.spout("words", Records([Word("a")], type=Word))
        streams = {"direct": DirectStream(Word)}
        outputs = source.shuffle().bolt("bolt", bolt or Held(), streams=streams)
        outputs.shuffle().bolt("next", sink)
        outputs.stream("direct").direct().bolt("chosen", sink, parallelism=2)
        super().__init__(topology)
        self.woken = 0
        self.manual = self.bolt("bolt")
        self.manual.collector.wake = self.wake

    def wake(self) -> None:
        self.woken += 1

    @property
    def held(self) -> list[Tuple[Word]]:
        held: list[Tuple[Word]] = self.manual.bolt.held
        return held

    @property
    def out(self) -> Any:
        return self.manual.bolt.out

    def run(self, *texts: str, first: int = 0) -> Any:
        """Process an input for each text, in the trees of the slots from `first` on."""
        slots = [[first + index] for index in range(len(texts))]
        batch = self.batch("words", [Word(text) for text in texts], *slots)
        self.manual.process(batch)
        return batch


# ---- bolts: what takes effect -------------------------------------------------------------------


def test_an_ack_of_another_thread_wakes_the_worker_and_needs_no_further_input() -> None:
    here = BoltRig()
    batch = here.run("a")
    elsewhere(lambda: here.out.ack(here.held[0]))
    assert here.woken == 1
    assert not here.reports().acks, "only the task's thread carries it out"
    here.manual.settle_calls()
    balance(here.reports().acks, batch)
    assert here.manual.stats().counts.acked == 1


def test_calls_of_another_thread_are_carried_out_in_their_order() -> None:
    here = BoltRig()
    batch = here.run("a", "b")
    first, second = here.held
    chosen = here.task("chosen", 1)

    def work() -> None:
        here.out.reset_timeout(first)
        here.out.emit(Word("1"), first)
        here.out.emit(Word("2"), [first, second])
        here.out.emit_direct(chosen.id, Word("3"), second, stream="direct")
        here.out.ack(first)
        here.out.emit(Word("4"), second)
        here.out.ack(second)

    elsewhere(work)
    assert here.woken == 1, "the queue was empty once"
    here.manual.settle_calls()
    sent, direct = here.sent("next"), here.sent("chosen")
    assert [record.word for record in records_of(sent)] == ["1", "2", "4"]
    assert records_of(direct) == [Word("3")]
    assert here.manual.postponed == [ROOT]
    balance(here.reports().acks, batch, sent, direct)


def test_a_fail_of_another_thread_has_its_reason() -> None:
    here = BoltRig()
    here.run("a", "b")
    elsewhere(lambda: here.out.fail(here.held[0], "no such word"))
    elsewhere(lambda: here.out.fail(here.held[1], ValueError("no")))
    here.manual.settle_calls()
    fails = here.reports().fails
    assert str(fails[ROOT][0]) == "failed by bolt in bolt[0]: no such word"
    assert fails[ROOT + 1][0].exception == "ValueError"
    assert here.manual.stats().counts.failed == 2


def test_an_ack_after_the_emits_of_a_pool_that_execute_waits_for_follows_them() -> None:
    def script(tuple: Any, out: Any) -> None:
        with ThreadPoolExecutor(4) as pool:
            for n in range(20):
                pool.submit(out.emit, Word(str(n)), tuple).result()
        out.ack(tuple)

    here = BoltRig(Held(script))
    batch = here.run("a")
    sent = here.sent("next")
    assert [record.word for record in records_of(sent)] == [str(n) for n in range(20)]
    balance(here.reports().acks, batch, sent)


def test_calls_that_come_while_execute_runs_are_carried_out_with_the_batch() -> None:
    def script(tuple: Any, out: Any) -> None:
        elsewhere(lambda: out.ack(tuple))

    here = BoltRig(Held(script))
    batch = here.run("a", "b")
    balance(here.reports().acks, batch)


def test_calls_of_the_tasks_own_thread_outside_of_its_methods_are_carried_out_too() -> None:
    """A finalizer, or the code of another task of the worker, may call the collector."""
    here = BoltRig()
    batch = here.run("a")
    here.out.ack(here.held[0])
    assert here.woken == 1
    here.manual.settle_calls()
    balance(here.reports().acks, batch)


def test_a_call_is_carried_out_once_however_often_the_worker_looks() -> None:
    here = BoltRig()
    batch = here.run("a", "b")
    elsewhere(lambda: here.out.ack(here.held[0]))
    here.manual.settle_calls()
    here.manual.settle_calls()
    elsewhere(lambda: here.out.ack(here.held[1]))
    here.manual.settle_calls()
    balance(here.reports().acks, batch)
    assert here.manual.stats().counts.acked == 2


# ---- bolts: what raises -------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["ack", "fail"])
@pytest.mark.parametrize("second", ["ack", "fail", "reset_timeout", "emit"])
@pytest.mark.parametrize("carried_out", [False, True])
def test_a_settled_input_cannot_be_used_again_by_another_thread(
    first: str, second: str, *, carried_out: bool
) -> None:
    here = BoltRig()
    here.run("a")
    (tuple,) = here.held
    elsewhere(lambda: getattr(here.out, first)(tuple))
    if carried_out:
        here.manual.settle_calls()
    again = (Word("b"), tuple) if second == "emit" else (tuple,)
    with pytest.raises(AlreadySettled, match=f"it was {first}ed before"):
        elsewhere(lambda: getattr(here.out, second)(*again))
    here.manual.settle_calls()
    reports = here.reports()
    assert (len(reports.acks), len(reports.fails)) == ((1, 0) if first == "ack" else (0, 1))


def test_an_ack_of_execute_after_one_of_another_thread_raises_there() -> None:
    def script(tuple: Any, out: Any) -> None:
        elsewhere(lambda: out.ack(tuple))
        with pytest.raises(AlreadySettled):
            out.ack(tuple)

    here = BoltRig(Held(script))
    batch = here.run("a")
    balance(here.reports().acks, batch)


@pytest.mark.parametrize(
    ("emit", "message"),
    [
        (lambda out: out.emit(("a",)), "does not fit stream 'default'"),
        (lambda out: out.emit(Word("a"), stream="no"), "no output stream 'no'"),
        (lambda out: out.emit_direct(99, Word("a"), stream="direct"), "does not subscribe"),
    ],
)
def test_an_impossible_emit_raises_in_the_thread_that_calls_it(
    emit: Callable[[Any], None], message: str
) -> None:
    here = BoltRig()
    here.run("a")
    with pytest.raises(BadEmit, match=message):
        elsewhere(lambda: emit(here.out))
    assert not here.woken


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_input_whose_execute_raised_fails_once_although_a_thread_acked_it(when: str) -> None:
    def script(tuple: Any, out: Any) -> None:
        if when == "before":
            elsewhere(lambda: out.ack(tuple))
        raise ValueError("late")

    here = BoltRig(Held(script))
    here.run("a")
    if when == "after":
        with pytest.raises(AlreadySettled, match="it was failed before"):
            elsewhere(lambda: here.out.ack(here.held[0]))
    here.manual.settle_calls()
    reports = here.reports()
    assert not reports.acks
    assert [failure.exception for failure in reports.fails[ROOT]] == ["ValueError"]
    counts = here.manual.stats().counts
    assert (counts.executed, counts.acked, counts.failed) == (1, 0, 1)


def test_records_that_a_thread_emitted_before_execute_raised_are_sent() -> None:
    def script(tuple: Any, out: Any) -> None:
        elsewhere(lambda: out.emit(Word("b"), tuple))
        raise ValueError("late")

    here = BoltRig(Held(script))
    here.run("a")
    assert records_of(here.sent("next")) == [Word("b")]


def test_a_flush_that_raises_fails_what_threads_have_acked() -> None:
    class Broken(Held):
        def flush(self) -> None:
            if len(self.held) < 2:
                return
            raise Unavailable("the disk is full")

    here = BoltRig(Broken())
    here.run("a", "b")
    here.reports()
    for tuple in here.held:
        elsewhere(lambda tuple=tuple: here.out.ack(tuple))  # type: ignore[misc]
    here.manual.settle_calls()
    reports = here.reports()
    assert not reports.acks
    assert {failure.cause for failures in reports.fails.values() for failure in failures} == {
        Cause.UNAVAILABLE
    }
    assert len(reports.fails) == 2
    assert here.manual.supervision.begin_pause(1.0) > 1.0, "the second one in a row: an outage"


def test_a_paused_bolt_with_a_flush_carries_out_calls_only_when_it_tries_again() -> None:
    class Durable(Held):
        def flush(self) -> None: ...

    for bolt, waits in ((Durable(), True), (Held(), False)):
        here = BoltRig(bolt)
        here.run("a")
        elsewhere(lambda here=here: here.out.ack(here.held[0]))  # type: ignore[misc]
        here.manual.supervision.resumes_s = 5.0
        assert (here.manual.settles_at_s() == 5.0) is waits
        for channel in here.wired.channels.values():
            channel.window = 0
        assert here.manual.settles_at_s() == float("inf"), "not without credit"


# ---- bolts: other objects, moves, the end -------------------------------------------------------


def test_an_ack_of_an_object_that_was_replaced_is_replayed() -> None:
    """What it held in memory is lost, so its ack could hide a loss."""
    here = BoltRig()
    here.run("a")
    old = here.manual.bolt
    here.manual.prepare(context(here.plan, here.task("bolt")))
    elsewhere(lambda: old.out.ack(old.held[0]))
    here.manual.settle_calls()
    reports = here.reports()
    assert not reports.acks
    assert reports.fails[ROOT][0].cause is Cause.UNAVAILABLE
    batch = here.run("b", first=1)
    elsewhere(lambda: here.out.ack(here.held[0]))
    here.manual.settle_calls()
    balance(here.reports().acks, batch)


def test_calls_during_a_trial_of_a_new_object_are_not_taken_for_its_own() -> None:
    here = BoltRig()
    first = here.run("a")
    old = here.manual.bolt
    here.manual.prepare(context(here.plan, here.task("bolt")))
    here.manual.rare = Rare(trial=Trial.NEW)
    elsewhere(lambda: old.out.ack(old.held[0]))
    here.run("b", first=1)
    assert not here.reports().fails, "the old object's ack waits until the trial is over"
    here.manual.rare = Rare()
    here.manual.adopt(old)
    here.manual.settle_calls()
    balance(here.reports().acks, first)


def test_a_collector_that_was_kept_goes_on_in_the_next_life_with_what_waits() -> None:
    here, successor = BoltRig(), BoltRig()
    batch = here.run("a")
    out, (tuple,) = here.out, here.held
    elsewhere(lambda: out.emit(Word("b"), tuple))
    transfer = here.manual.pack(stays=True, now=0.0)
    elsewhere(lambda: out.ack(tuple))
    successor.manual.unpack(transfer, context(successor.plan, successor.task("bolt")))
    elsewhere(lambda: out.emit(Word("c")))
    with pytest.raises(AlreadySettled):
        elsewhere(lambda: out.ack(tuple))
    successor.manual.settle_calls()
    sent = successor.sent("next")
    assert [record.word for record in records_of(sent)] == ["b", "c"]
    balance(successor.reports().acks, batch, sent)
    successor.run("d", first=1)
    elsewhere(lambda: out.ack(successor.held[-1]))
    assert successor.woken == 1, "by the new life; it has just carried out what waited"


def test_calls_after_the_task_was_closed_raise_and_those_that_wait_are_dropped() -> None:
    here = BoltRig()
    here.run("a", "b")
    elsewhere(lambda: here.out.ack(here.held[0]))
    here.manual.close()
    assert not here.manual.is_busy
    for call in (here.out.ack, here.out.fail, lambda _: here.out.emit(Word("b"))):
        with pytest.raises(ProtocolError, match=r"bolt\[0\] is closed"):
            elsewhere(lambda call=call: call(here.held[1]))  # type: ignore[misc]


# ---- room ---------------------------------------------------------------------------------------


def test_an_emit_waits_for_room_and_goes_on_when_the_task_has_taken_what_waits() -> None:
    here = BoltRig(window_records_max=4)
    here.run("a")
    done: SimpleQueue[int] = SimpleQueue()

    def work() -> None:
        for n in range(9):
            here.out.emit(Word(str(n)))
        done.put(1)

    thread = threading.Thread(target=work)
    thread.start()
    words: list[Any] = []
    while done.empty() or here.manual.is_busy:
        assert len(here.manual.collector.calls) <= 4
        here.manual.settle_calls()
        words += records_of(here.sent("next"))
    thread.join()
    assert [record.word for record in words] == [str(n) for n in range(9)]


def test_an_emit_that_execute_waits_for_never_waits_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_collector, "_ROOM_S", 0.0)

    def script(tuple: Any, out: Any) -> None:
        with pytest.raises(BadEmit, match="wait until the call of its code that runs now returns"):
            elsewhere(lambda: [out.emit(Word("b"), tuple) for _ in range(5)])
        elsewhere(lambda: out.ack(tuple))  # acks need no room

    here = BoltRig(Held(script), window_records_max=4)
    batch = here.run("a")
    sent = here.sent("next")
    assert len(records_of(sent)) == 4
    balance(here.reports().acks, batch, sent)
    here.manual.bolt.script = None
    here.run("c", first=1)
    elsewhere(lambda: [here.out.emit(Word("d")) for _ in range(6)])
    here.manual.settle_calls()
    assert len(records_of(here.sent("next"))) == 6, "nobody may wait longer: a lock may be held"


# ---- virtual time -------------------------------------------------------------------------------


def test_in_virtual_time_a_call_between_two_calls_of_the_task_raises() -> None:
    here = BoltRig()
    here.manual.collector.wake = None
    here.run("a")
    with pytest.raises(ProtocolError, match="a thread has no time of its own"):
        elsewhere(lambda: here.out.ack(here.held[0]))
    assert not here.manual.is_busy


def test_in_virtual_time_execute_may_wait_for_its_threads() -> None:
    def script(tuple: Any, out: Any) -> None:
        elsewhere(lambda: out.emit(tuple.record, tuple))
        elsewhere(lambda: out.ack(tuple))

    topology = Topology("t", ackers=1)
    words = topology.spout("words", Records([Word("a"), Word("b")], type=Word))
    words.shuffle().bolt("bolt", Held(script)).shuffle().bolt("next", sink)
    finished = run_inline(topology.graph(), clock=ManualClock())
    assert finished.snapshot.component("words").acked == 2
    assert finished.snapshot.component("next").executed == 2


# ---- keyed state --------------------------------------------------------------------------------


class Count(NamedTuple):
    word: str
    count: int


@pytest.mark.parametrize("how", ["read", "write", "delete", "iterate"])
def test_a_keyed_state_that_another_thread_uses_raises_there(how: str) -> None:
    def use(state: Any) -> None:
        if how == "read":
            state.get("b")
        elif how == "write":
            state["a"] = 7
        elif how == "delete":
            del state["a"]
        else:
            list(state)

    class Counts(Bolt[Word, None]):
        state: KeyValueState[str, int]

        def execute(self, tuple: Tuple[Word], out: Collector[Any]) -> None:
            self.state["a"] = self.state.get("a", 0) + 1
            with pytest.raises(ProtocolError, match=r"a thread other than the task's uses self\.s"):
                elsewhere(lambda: use(self.state))
            out.ack(tuple)

    topology = Topology("t", ackers=1)
    words = topology.spout("words", Records([Word("a")] * 3, type=Word))
    words.fields("word").bolt("counts", Counts)
    finished = run_inline(topology.graph())
    assert finished.results["counts"] == [{"a": 3}]


# ---- spouts -------------------------------------------------------------------------------------


class Client(Spout[Word]):
    """Keeps the first collector that it gets, for the threads of a client."""

    def open(self, context: Context) -> None:
        self.acked: list[Any] = []
        self.out: Any = None
        self.position = 0

    def next_tuple(self, out: SpoutCollector[Word]) -> None:
        self.out = self.out or out

    def ack(self, message_id: Any) -> None:
        self.acked.append(message_id)

    def snapshot(self) -> int:
        return self.position

    def restore(self, state: int) -> None:
        self.position = state


class SpoutRig(Rig):
    def __init__(self, spout: Any = Client, **settings: Any) -> None:
        topology = Topology("t", **{"ackers": 1, **settings})
        outputs = topology.spout("words", spout, streams={"direct": DirectStream(Word)})
        outputs.shuffle().bolt("next", sink)
        outputs.stream("direct").direct().bolt("chosen", sink, parallelism=2)
        super().__init__(topology)
        self.woken = 0
        self.source = self.spout("words")
        self.source.rest.wake_worker = self.wake
        self.source.source.collector.wake = self.source.rest.wake
        self.source.emit(0.0, 10)

    def wake(self) -> None:
        self.woken += 1

    @property
    def out(self) -> Any:
        return self.source.spout.out


def test_an_emit_of_another_thread_wakes_a_spout_that_rests() -> None:
    here = SpoutRig()
    here.source.rest.begin(100.0)
    assert here.source.next_emit_s > 100.0
    elsewhere(lambda: here.out.emit(Word("a"), "id"))
    assert here.woken == 1
    assert here.source.next_emit_s <= 100.0
    assert here.source.emit(100.0, 10) == 1
    here.source.complete(here.source.pending.all_roots(), 101.0)
    assert here.source.spout.acked == ["id"]


def test_emits_of_threads_have_their_own_numbers_and_the_order_of_each_thread() -> None:
    here = SpoutRig()

    def work(thread: int) -> None:
        for n in range(50):
            here.out.emit(Word(f"{thread} {n}"), (thread, n))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    while here.source.emit(0.0, 64):
        pass
    words = [record.word.split() for record in records_of(here.sent("next"))]
    by_thread = defaultdict(list)
    for thread, n in words:
        by_thread[thread].append(int(n))
    assert dict(by_thread) == {str(thread): list(range(50)) for thread in range(8)}
    assert len({*here.source.pending.numbers().tolist()}) == 400


def test_finish_of_another_thread_follows_its_emits() -> None:
    here = SpoutRig()

    def work() -> None:
        chosen = here.task("chosen", 1)
        here.out.emit_direct(chosen.id, Word("a"), 1, stream="direct")
        here.out.finish()

    elsewhere(work)
    assert not here.source.done
    here.source.emit(0.0, 10)
    assert here.source.source.exhausted
    assert records_of(here.sent("chosen")) == [Word("a")]
    here.source.complete(here.source.pending.all_roots(), 0.0)
    assert here.source.done


@pytest.mark.parametrize("end", ["finish", "drain"])
def test_an_emit_of_another_thread_raises_once_the_spout_emits_no_more(end: str) -> None:
    here = SpoutRig()
    elsewhere(lambda: here.out.emit(Word("a"), 1))
    here.source.drain() if end == "drain" else here.out.finish()
    with pytest.raises(BadEmit, match=r"words\[0\] emits no more records"):
        elsewhere(lambda: here.out.emit(Word("b"), 2))
    assert not here.source.done, "what came before is emitted"
    assert here.source.emit(0.0, 10) == 1


def test_a_spout_emits_no_more_than_there_is_room_for_and_the_thread_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_collector, "_ROOM_S", 0.0)
    here = SpoutRig(spout_pending=2, window_records_max=4)
    elsewhere(lambda: [here.out.emit(Word("a"), n) for n in range(4)])
    assert here.source.emit(0.0, 10) == 2
    assert len(here.source.source.collector.calls) <= 4
    assert not here.source.source.is_empty


def test_a_kept_collector_of_a_spout_goes_on_after_a_rebalance() -> None:
    here, successor = SpoutRig(), SpoutRig()
    out = here.out
    elsewhere(lambda: out.emit(Word("a"), 1))
    transfer = here.source.pack(stays=True, now=0.0)
    elsewhere(lambda: out.emit(Word("b"), 2))
    successor.source.unpack(transfer, context(successor.plan, successor.task("words")))
    out.emit(Word("c"), 3)
    successor.source.emit(0.0, 10)
    assert [r.word for r in records_of(successor.sent("next"))] == ["a", "b", "c"]


def test_what_threads_emitted_before_a_spout_moves_goes_with_it() -> None:
    class Positioned(Client):
        def snapshot(self) -> int:
            elsewhere(lambda: self.out.emit(Word("late"), 2))
            return self.position

    here, successor = SpoutRig(Positioned), SpoutRig(Positioned)
    out = here.out
    elsewhere(lambda: out.emit(Word("a"), 1))
    transfer = here.source.pack(stays=False, now=0.0)
    here.source.close()
    with pytest.raises(ProtocolError, match=r"words\[0\] is closed"):
        elsewhere(lambda: out.emit(Word("b"), 3))
    successor.source.unpack(replace(transfer), context(successor.plan, successor.task("words")))
    successor.source.emit(0.0, 10)
    assert [r.word for r in records_of(successor.sent("next"))] == ["a", "late"]


# ---- the whole ----------------------------------------------------------------------------------

THREADS = 8


class Part(NamedTuple):
    n: int
    part: int


def parts_of(n: int) -> int:
    """How many records are made from a number."""
    return n % 4


def fails_once(n: int) -> bool:
    return n % 11 == 3


class Pool(Bolt[Number, Part]):
    """Eight threads process the inputs; with ticks, those that are divisible by 13 wait for one.
    `execute` has an outage, which pauses the task."""

    def __init__(self, *, ticks: bool) -> None:
        self.ticks = ticks

    def prepare(self, context: Context) -> None:
        self.inputs: SimpleQueue[Any] = SimpleQueue()
        self.errors: list[BaseException] = []
        self.attempts: Counter[int] = Counter()
        self.at_tick: list[Any] = []
        self.outages = 2
        self.threads = [threading.Thread(target=self.work) for _ in range(THREADS)]
        for thread in self.threads:
            thread.start()

    def execute(self, tuple: Tuple[Number], out: Collector[Part]) -> None:
        n = tuple.record.n
        if n > 100 and self.outages:
            self.outages -= 1
            raise Unavailable("an outage")
        self.attempts[n] += 1
        if n % 13 or not self.ticks:
            self.inputs.put((tuple, out, self.attempts[n]))
        else:
            self.at_tick.append((tuple, out, self.attempts[n]))

    def tick(self) -> None:
        waiting, self.at_tick = self.at_tick, []
        for item in waiting:
            self.settle(*item)

    def work(self) -> None:
        while (item := self.inputs.get()) is not None:
            try:
                self.settle(*item)
            except Exception as error:
                self.errors.append(error)

    def settle(self, tuple: Tuple[Number], out: Collector[Part], attempt: int) -> None:
        n = tuple.record.n
        if fails_once(n) and attempt == 1:
            out.fail(tuple, "at first")
            return
        out.reset_timeout(tuple)
        for part in range(parts_of(n)):
            out.emit(Part(n, part), () if n % 5 == 0 else tuple)
        out.ack(tuple)

    def result(self) -> list[BaseException]:
        return self.errors

    def cleanup(self) -> None:
        for _ in self.threads:
            self.inputs.put(None)
        for thread in self.threads:
            thread.join()


class Parts(Bolt[Part, None]):
    def prepare(self, context: Context) -> None:
        self.parts: defaultdict[int, list[int]] = defaultdict(list)

    def process(self, record: Part) -> None:
        self.parts[record.n].append(record.part)

    def result(self) -> dict[int, list[int]]:
        return dict(self.parts)


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Python's threads take turns 1,000 times as often."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(usual_s)


@pytest.mark.usefixtures("frequent_switches")
@pytest.mark.parametrize("ticks", [False, True])
@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_every_call_of_eight_threads_takes_effect_once(count: int, *, ticks: bool) -> None:
    topology = Topology("pool", message_timeout_s=60)
    numbers = Records([Number(n) for n in range(count)], type=Number)
    source = topology.spout("numbers", numbers, retry=Retry(attempts=3))
    pooled = source.shuffle().bolt("pool", Pool(ticks=ticks), tick_s=0.002 if ticks else 3600.0)
    pooled.shuffle().bolt("parts", Parts)
    finished = run_inline(topology.graph())
    assert finished.results["pool"] == [[]]
    expected = {n: list(range(parts_of(n))) for n in range(count) if parts_of(n)}
    assert finished.results["parts"] == [expected]
    numbers, pool = (finished.snapshot.component(id) for id in ("numbers", "pool"))
    failed = sum(map(fails_once, range(count)))
    assert (numbers.acked, numbers.dead) == (count, 0)
    assert numbers.causes == {Cause.FAILED: failed, Cause.UNAVAILABLE: 2}
    assert (pool.acked, pool.failed) == (count, failed + 2)


class Push(Spout[Number]):
    """Threads emit numbers, as clients that push do."""

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, context: Context) -> None:
        self.acked: Counter[int] = Counter()
        self.failures: Counter[int] = Counter()
        self.threads: list[threading.Thread] = []
        self.emitted = self.ahead = 0

    def next_tuple(self, out: SpoutCollector[Number]) -> None:
        if not self.threads:
            self.left = iter(range(self.count))
            self.lock, self.running = threading.Lock(), THREADS
            self.threads = [threading.Thread(target=self.work, args=[out]) for _ in range(THREADS)]
            for thread in self.threads:
                thread.start()

    def work(self, out: SpoutCollector[Number]) -> None:
        while True:
            with self.lock:
                if (n := next(self.left, None)) is None:
                    self.running -= 1
                    if not self.running:
                        out.finish()
                    return
            out.emit(Number(n), n)
            with self.lock:
                self.emitted += 1
                self.ahead = max(self.ahead, self.emitted - len(self.acked))

    def ack(self, message_id: Any) -> None:
        self.acked[message_id] += 1

    def fail(self, message_id: Any, failure: Failure) -> None:
        self.failures[message_id] += 1

    def result(self) -> tuple[Counter[int], Counter[int], int]:
        return self.acked, self.failures, self.ahead


def collect(number: Number) -> Iterator[Part]:
    yield Part(number.n, 0)


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_every_emit_of_eight_threads_of_a_spout_is_acked_once(count: int) -> None:
    limits = {"spout_pending": 50, "window_records_max": 100}
    topology = Topology("push", message_timeout_s=300, **limits)
    topology.spout("numbers", Push(count)).shuffle().bolt("collect", collect).shuffle().bolt(
        "parts", Parts
    )
    finished = run_inline(topology.graph())
    ((acked, failures, ahead),) = finished.results["numbers"]
    assert acked == Counter(range(count))
    assert not failures
    assert ahead < 1_000, "the threads wait for room"
    assert finished.results["parts"] == [{n: [0] for n in range(count)}]
