"""Tasks that raise where no tuple is to blame: each outcome by name, and nobody else stops for it.

Two workers, tasks side by side; a healthy spout and bolt live beside each bad task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from sunshower import Bolt, Cause, Context, Derived, Failure, Spout, Topology, batch
from sunshower.clock import ManualClock
from sunshower.errors import TopologyFailed
from sunshower.runtime.inline import run_inline
from sunshower.runtime.master import Master, State
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.supervision import Health, Standing
from tests.runtime.harness import Network

TOTAL = 40
SLEEPS = 0.1 + 0.2 + 0.4 + 0.8  # between five errors in a row


class Number(NamedTuple):
    n: int


class Numbers(Spout[Number]):
    """A healthy source that hears its failures."""

    heard: list[tuple[int, Failure]]

    def __init__(self, total: int = TOTAL) -> None:
        self.total = total

    def open(self, context: Context) -> None:
        self.heard = []

    def records(self) -> Iterator[Number]:
        yield from map(Number, range(self.total))

    def fail(self, message_id: int, failure: Failure) -> None:
        self.heard.append((message_id, failure))


class Stage:
    """A healthy chain `numbers` → `keep`, and whatever else the test declares."""

    def __init__(self, **settings: Any) -> None:
        self.kept: Counter[int] = Counter()  # by the healthy chain
        self.got: Counter[int] = Counter()  # by the other one
        self.topology = Topology("t", **{"ackers": 2, "message_timeout_s": 1e4, **settings})
        self.topology.spout("numbers", Numbers()).shuffle().bolt("keep", self.keep)

    def keep(self, number: Number) -> None:
        self.kept[number.n] += 1

    def get(self, number: Number) -> None:
        self.got[number.n] += 1

    def start(self, seed: int = 0) -> Network:
        self.net = Network(make_plan(self.topology.graph()), seed, clock=ManualClock())
        return self.net

    def task(self, component: str) -> Any:
        (task,) = self.net.plan.tasks_of(component)
        wired = self.net.nodes[task.worker].core._wired
        return wired.spouts.get(task.id) or wired.bolts[task.id]

    def health(self, component: str) -> Health:
        health: Health = self.task(component).supervision.health
        return health

    def told(self) -> Master:
        """The network's master, after everybody has told how it stands."""
        for node in self.net.nodes.values():
            self.net._master.hear(node.core.stats(), self.net.clock.now())
        return self.net._master

    def healthy_chain_is_done(self) -> None:
        assert self.kept == Counter(range(TOTAL)), "a neighbour has suffered"


class Flaky:
    """Raises as often as it was told, wherever it is called; shared by all instances."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise OSError("gone")

    def __deepcopy__(self, memo: object) -> Flaky:
        return self


def sink(number: Number) -> None: ...


# ---- what is tried again ------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["__init__", "prepare"])
def test_bolt_that_cannot_be_made_at_first_keeps_its_inbox_and_loses_nothing(where: str) -> None:
    stage, flaky, made = Stage(), Flaky(3), []

    class Bad(Bolt[Number, None]):
        def __init__(self) -> None:
            made.append(self)
            if where == "__init__":
                flaky()

        def prepare(self, context: Context) -> None:
            if where == "prepare":
                flaky()

        def process(self, record: Number) -> None:
            stage.get(record)

    stage.topology.spout("more", Numbers()).shuffle().bolt("bad", Bad)
    net = stage.start()
    net.run()
    stage.healthy_chain_is_done()
    assert stage.got == Counter(range(TOTAL)), "nothing was lost, nothing came twice"
    assert len(made) == 4, "a fresh bolt for each trial"
    assert net.clock.now() == pytest.approx(0.1 + 0.2 + 0.4, abs=0.1)
    health = stage.health("bad")
    assert (health.standing, health.errors) == (Standing.RUNNING, 3)
    assert "of bad[0] raised OSError: gone" in str(health.last[-1])


def test_grouping_that_cannot_be_prepared_at_first_is_prepared_again() -> None:
    stage, flaky = Stage(), Flaky(2)

    class Ward:
        def prepare(self, targets: Sequence[int]) -> None:
            flaky()
            self.targets = targets

        def choose(self, record: Number) -> Sequence[int]:
            return self.targets

    stage.topology.spout("more", Numbers()).custom(Ward()).bolt("get", stage.get)
    stage.start().run()
    assert stage.got == Counter(range(TOTAL))
    assert stage.health("more").last[0].text.startswith("prepare of a custom grouping of more[0]")


@pytest.mark.parametrize("level", ["records", "tables"])
def test_source_that_raises_is_made_anew_and_goes_on_where_it_was(level: str) -> None:
    stage, opened, closed, acked = Stage(), [], [], []

    class Bad(Spout[Number]):
        def open(self, context: Context) -> None:
            opened.append(self)
            self.breaks_at = [7, 7, 19][len(opened) - 1] if len(opened) < 4 else -1

        def numbers(self) -> Iterator[int]:
            for n in range(TOTAL):
                if n == self.breaks_at:
                    raise OSError("gone")
                yield n

        def ack(self, message_id: int) -> None:
            acked.append(message_id)

        def close(self) -> None:
            closed.append(self)

    class Records(Bad):
        def records(self) -> Iterator[Number]:
            yield from map(Number, self.numbers())

    class Tables(Bad):
        def tables(self) -> Iterator[pa.Table]:
            for n in self.numbers():
                if n % 2:  # in pairs: a table may be emitted in part when the next one raises
                    yield pa.table({"n": [n - 1, n]})

    bad = {"records": Records, "tables": Tables}[level]
    stage.topology.spout("bad", bad).shuffle().bolt("get", stage.get)
    stage.start().run()
    stage.healthy_chain_is_done()
    assert stage.got == Counter(range(TOTAL)), "nothing is missing, nothing came twice"
    assert sorted(acked) == list(range(TOTAL)), "the numbers went on where they were"
    assert len(opened) == 4
    assert closed == opened[:3], "each is closed before the next one opens"
    assert stage.health("bad").errors == 3


def test_spout_that_raises_in_next_tuple_is_asked_again_and_what_it_had_emitted_is_sent() -> None:
    stage, made = Stage(), []

    class Bad(Spout[Number]):
        def __init__(self) -> None:
            made.append(self)
            self.n = 0

        def next_tuple(self, out: Any) -> None:
            if self.n == TOTAL:
                out.finish()
                return
            out.emit(Number(self.n), self.n)
            self.n += 1
            if self.n % 10 == 0:
                raise OSError("gone")

    stage.topology.spout("bad", Bad).shuffle().bolt("get", stage.get)
    stage.start().run()
    stage.healthy_chain_is_done()
    assert stage.got == Counter(range(TOTAL))
    assert len(made) == 1, "the same spout is asked again"
    assert stage.health("bad").errors == 4
    assert stage.health("bad").last[0].text == "next_tuple of bad[0] raised OSError: gone"


def test_success_between_two_errors_begins_a_new_row() -> None:
    stage = Stage()

    class Bad(Spout[Number]):
        n = 0

        def next_tuple(self, out: Any) -> None:
            self.n += 1
            if self.n > TOTAL:
                out.finish()
            elif self.n % 2:
                raise OSError("gone")
            else:
                out.emit(Number(self.n), self.n)

    stage.topology.spout("bad", Bad).shuffle().bolt("get", stage.get)
    stage.start().run()
    assert stage.health("bad").standing is Standing.RUNNING
    assert stage.health("bad").errors == TOTAL // 2
    assert len(stage.health("bad").last) == 5, "the last few are kept"


# ---- what is given up ---------------------------------------------------------------------------


def test_bolt_that_cannot_be_prepared_is_quarantined_and_its_neighbours_go_on() -> None:
    stage, flaky = Stage(attempts_max=10_000), Flaky(10_000)

    class Bad(Bolt[Number, None]):
        def prepare(self, context: Context) -> None:
            flaky()

        def process(self, record: Number) -> None:
            raise AssertionError("it was never prepared")

    stage.topology.spout("more", Numbers(1)).shuffle().bolt("bad", Bad)
    net = stage.start()
    net.until(lambda: len(stage.task("more").spout.heard) > 3 if net.clock.now() else False)
    stage.healthy_chain_is_done()
    assert flaky.calls == 5, "no user code is called any more"
    assert net.clock.now() == pytest.approx(SLEEPS, abs=0.2)
    failure = stage.task("more").spout.heard[0][1]
    assert (failure.cause, failure.component, failure.task) == (Cause.QUARANTINED, "bad", 0)
    assert failure.reason == "prepare of bad[0] raised OSError: gone"
    assert failure.exception == "OSError"
    assert "in prepare" in failure.traceback
    assert failure.blames_tuple, "so that the retry policy of its spout decides"
    snapshot = stage.told().snapshot(net.clock.now())
    assert snapshot.state == State.RUNNING
    assert [error.text for error in snapshot.degraded.values()] == [failure.reason]


def test_source_that_always_raises_is_quarantined_and_in_the_end_fails_the_topology() -> None:
    stage = Stage()

    class Bad(Spout[Number]):
        def records(self) -> Iterator[Number]:
            yield from map(Number, range(3))
            raise OSError("gone")

    stage.topology.spout("bad", Bad).shuffle().bolt("get", stage.get)
    net = stage.start()
    net.run()
    stage.healthy_chain_is_done()
    assert stage.got == Counter(range(3)), "what came before is emitted, once"
    assert stage.task("bad").stats().counts.acked == 3
    assert stage.health("bad").errors == 5, "the records before it are no success of a later trial"
    master = stage.told()
    assert master.state(net.clock.now()) is State.FAILED
    assert master.error is not None
    assert master.error.startswith("records of bad[0] raised OSError: gone. Mend it and run again.")
    assert "in records" in master.error


def test_spout_that_cannot_be_opened_emits_nothing_and_fails_the_topology() -> None:
    stage = Stage()

    class Bad(Spout[Number]):
        def open(self, context: Context) -> None:
            raise SystemExit(3)

        def records(self) -> Iterator[Number]:
            yield Number(1)

    stage.topology.spout("bad", Bad).shuffle().bolt("get", stage.get)
    net = stage.start()
    net.run()
    stage.healthy_chain_is_done()
    assert not stage.got
    assert stage.told().state(net.clock.now()) is State.FAILED
    assert str(stage.health("bad").last[-1]) == "open of bad[0] raised SystemExit: 3"


def test_quarantined_source_still_has_its_failed_records_replayed() -> None:
    stage, refused = Stage(), []

    class Bad(Spout[Number]):
        def records(self) -> Iterator[Number]:
            yield Number(1)
            raise OSError("gone")

    def get(number: Number) -> None:
        if net.clock.now() < 2 * SLEEPS:
            refused.append(number)
            net.clock.advance(1.0)  # so slow that the source is given up meanwhile
            raise ValueError("not yet")
        stage.get(number)

    stage.topology.spout("bad", Bad).shuffle().bolt("get", get)
    net = stage.start()
    net.run()
    assert stage.health("bad").standing is Standing.QUARANTINED
    assert refused
    assert stage.got == Counter([1])


def test_records_are_asked_for_in_vain_no_more_than_task_errors_max_says() -> None:
    stage, flaky = Stage(task_errors_max=2), Flaky(100)

    class Bad(Spout[Number]):
        def next_tuple(self, out: Any) -> None:
            flaky()

    stage.topology.spout("bad", Bad).shuffle().bolt("get", stage.get)
    stage.start().run()
    assert flaky.calls == 2


# ---- what is only noted -------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["records", "next_tuple"])
def test_spout_that_raises_in_ack_and_fail_goes_on_and_each_message_stays_settled(
    level: str,
) -> None:
    stage, heard, refused = Stage(), Counter[tuple[str, int]](), []

    class Hearing(Spout[Number]):
        def ack(self, message_id: int) -> None:
            heard["ack", message_id] += 1
            raise OSError("cannot commit")

        def fail(self, message_id: int, failure: Failure) -> None:
            heard["fail", message_id] += 1
            raise SystemExit(3)

    class Records(Hearing):
        def records(self) -> Iterator[Number]:
            yield from map(Number, range(TOTAL))

    class Manual(Hearing):
        n = 0

        def next_tuple(self, out: Any) -> None:
            if self.n == TOTAL:
                out.finish()
            else:
                out.emit(Number(self.n), self.n)
                self.n += 1

    def get(number: Number) -> None:
        if number.n == 7 and not refused:
            refused.append(number)
            raise ValueError("not yet")
        stage.get(number)

    bad = {"records": Records, "next_tuple": Manual}[level]
    stage.topology.spout("bad", bad).shuffle().bolt("get", get)
    stage.start().run()
    stage.healthy_chain_is_done()
    assert stage.got == Counter(range(TOTAL))
    assert heard == {**{("ack", n): 1 for n in range(TOTAL)}, ("fail", 7): 1}
    health = stage.health("bad")
    assert (health.standing, health.errors) == (Standing.RUNNING, TOTAL + 1)
    assert str(health.last[-1]) == "ack of bad[0] raised OSError: cannot commit"


def test_close_and_cleanup_that_raise_are_told_and_the_others_are_closed() -> None:
    stage, closed = Stage(), []

    class BadSpout(Numbers):
        def close(self) -> None:
            closed.append("spout")
            raise OSError("gone")

    class BadBolt(Bolt[Number, None]):
        def process(self, record: Number) -> None: ...

        def cleanup(self) -> None:
            closed.append("bolt")
            raise OSError("gone")

    class Good(BadBolt):
        def cleanup(self) -> None:
            closed.append("good")

    numbers = stage.topology.spout("bad", BadSpout())
    numbers.shuffle().bolt("worse", BadBolt)
    numbers.shuffle().bolt("good", Good)
    net = stage.start()
    net.run()
    said = [str(error) for node in net.nodes.values() for error in node.core.close()]
    assert sorted(closed) == ["bolt", "good", "spout"]
    assert sorted(said) == [
        "cleanup of worse[0] raised OSError: gone",
        "close of bad[0] raised OSError: gone",
    ]
    assert stage.told().state(net.clock.now()) is State.FINISHED, "the end of a run is no failure"


# ---- groupings: the records without a way fail, and only they -----------------------------------


class Picky:
    """Raises for the record 7, until `times` are over; else: all tasks."""

    def __init__(self, times: int) -> None:
        self.flaky = Flaky(times)

    def prepare(self, targets: Sequence[int]) -> None:
        self.targets = targets

    def choose(self, record: Any) -> Sequence[int]:
        if (record["n"] if isinstance(record, dict) else record.n) == 7:
            self.flaky()
        return self.targets


def pass_on(number: Number) -> Iterator[Number]:
    yield number


class Manual(Bolt[Number, Number]):
    """Emits at once, and acks when the last number has come: so 7 is open when it has no way."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def execute(self, tuple: Any, out: Any) -> None:
        out.emit(tuple.record, tuple)
        self.held.append(tuple)
        if len(self.held) >= TOTAL:
            out.ack(self.held.pop())
        if tuple.record.n == TOTAL - 1:
            while self.held:
                out.ack(self.held.pop())


class Prompt(Bolt[Number, Number]):
    def execute(self, tuple: Any, out: Any) -> None:
        out.emit(tuple.record, tuple)
        out.ack(tuple)


@batch
def columns(table: pa.Table) -> Derived:
    return Derived(table, np.arange(len(table)))


@pytest.mark.parametrize("bolt", [pass_on, columns, Manual, Prompt])
def test_grouping_of_a_bolt_that_raises_fails_the_input_of_that_record_alone(bolt: Any) -> None:
    stage = Stage()
    more = stage.topology.spout("more", Numbers())
    middle = stage.topology.bolt("middle", bolt, [more.shuffle()], fields=Number)
    middle.custom(Picky(2)).bolt("get", stage.get)
    stage.start().run()
    stage.healthy_chain_is_done()
    assert stage.got == Counter(range(TOTAL)), "the others came once, and 7 in the end"
    ((number, failure),) = stage.task("more").spout.heard
    assert number == 7
    assert (failure.cause, failure.component) == (Cause.EXCEPTION, "middle")
    assert failure.reason == "a grouping of its output raised OSError: gone"
    assert "in choose" in failure.traceback
    assert stage.health("middle").standing is Standing.RUNNING


@pytest.mark.parametrize("level", ["records", "tables", "next_tuple"])
def test_grouping_of_a_spout_that_raises_fails_that_record_alone(level: str) -> None:
    stage = Stage()

    class Tables(Numbers):
        records = Spout.records

        def tables(self) -> Iterator[pa.Table]:
            yield pa.table({"n": list(range(TOTAL))})

    class Asked(Numbers):
        records = Spout.records
        n = 0

        def next_tuple(self, out: Any) -> None:
            if self.n == TOTAL:
                out.finish()
            else:
                out.emit(Number(self.n), self.n)
                self.n += 1

    bad = {"records": Numbers, "tables": Tables, "next_tuple": Asked}[level]
    stage.topology.spout("bad", bad()).custom(Picky(2)).bolt("get", stage.get)
    stage.start().run()
    assert stage.got == Counter(range(TOTAL))
    ((number, failure),) = stage.task("bad").spout.heard
    assert (number, failure.cause, failure.component) == (7, Cause.EXCEPTION, "bad")
    counts = stage.task("bad").stats().counts
    assert (counts.acked, counts.failed, counts.emitted) == (TOTAL, 1, TOTAL + 1)


def exits(number: Number) -> Iterator[Number]:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("answer", "bolt", "story"),
    [
        (None, pass_on, r"a grouping of its output raised KeyError: 'no such ward'"),
        ([99], pass_on, r"the custom grouping Lost chose task 99"),
        ([], exits, r"exception in middle\[0\]: SystemExit: 3"),
    ],
    ids=["a grouping that raises", "a task that is not there", "sys.exit"],
)
def test_tuple_that_always_fails_so_ends_as_any_other(
    answer: list[int] | None, bolt: Callable[..., Any], story: str
) -> None:
    class Lost:
        def prepare(self, targets: Sequence[int]) -> None: ...

        def choose(self, record: Number) -> Sequence[int]:
            if answer is None:
                raise KeyError("no such ward")
            return answer

    topology = Topology("t", ackers=1)
    middle = topology.spout("numbers", Numbers(1)).shuffle().bolt("middle", bolt, fields=Number)
    middle.custom(Lost()).bolt("keep", sink)
    with pytest.raises(TopologyFailed, match=rf"(?s)failed 5 times.*{story}"):
        run_inline(topology.graph(), clock=ManualClock(), steps_max=100)


def test_untracked_record_without_a_way_is_told_at_the_end() -> None:
    stage = Stage(ackers=0)
    stage.topology.spout("bad", Numbers()).custom(Picky(2)).bolt("get", stage.get)
    net = stage.start()
    net.run()
    assert stage.got == Counter({n: 1 for n in range(TOTAL) if n != 7})
    told = stage.told().snapshot(net.clock.now()).untracked
    assert told is not None
    assert "a grouping of its output raised OSError: gone" in told


# ---- in one process -----------------------------------------------------------------------------


@pytest.mark.parametrize("hook", ["open", "records", "ack", "close"])
def test_run_inline_raises_at_once_from_the_error_itself(hook: str) -> None:
    class Bad(Numbers): ...

    def broken(*_: object) -> Iterator[Number]:
        raise OSError("gone")

    setattr(Bad, hook, broken)
    topology = Topology("t")
    topology.spout("bad", Bad(1)).shuffle().bolt("keep", sink)
    with pytest.raises(TopologyFailed, match=rf"{hook} of bad\[0\] raised OSError: gone") as told:
        run_inline(topology.graph(), clock=ManualClock())
    assert isinstance(told.value.__cause__, OSError)
    assert "in broken" in str(told.value)


def test_error_of_a_task_does_not_touch_the_layout_of_the_others() -> None:
    """The same two chains, each task in a worker of its own."""
    stage, flaky = Stage(attempts_max=10_000), Flaky(10_000)

    class Bad(Bolt[Number, None]):
        def prepare(self, context: Context) -> None:
            flaky()

        def process(self, record: Number) -> None: ...

    stage.topology.spout("more", Numbers(1)).shuffle().bolt("bad", Bad)
    plan = make_plan(stage.topology.graph(), Layout.ISOLATE)
    stage.net = Network(plan, 0, clock=ManualClock())
    stage.net.until(lambda: flaky.calls == 5 and len(stage.kept) == TOTAL)
    stage.healthy_chain_is_done()
