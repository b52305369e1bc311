"""Tasks that raise although no tuple is at fault: each outcome by name; no other task stops.

A healthy spout and bolt run beside each bad task, in the same worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from sunshower import Bolt, Cause, Context, Failure, Retry, Spout, Topology
from sunshower.clock import ManualClock
from sunshower.errors import (
    ConfigError,
    StateMismatch,
    StoreError,
    TopologyFailed,
    UnknownTopic,
)
from sunshower.runtime.control.master import State
from sunshower.runtime.events.health import Standing, WaitKind
from sunshower.runtime.inline import run_inline
from sunshower.runtime.plan import Layout
from tests.runtime.chains import DOUBT_S, SLEEPS, TOTAL, Chains, Flaky, Number, Numbers, sink

# ---- retried ------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["__init__", "prepare"])
def test_bolt_that_cannot_be_created_at_first_keeps_its_inbox_and_loses_nothing(where: str) -> None:
    chains, flaky, bolts = Chains(), Flaky(3), []

    class Bad(Bolt[Number, None]):
        def __init__(self) -> None:
            bolts.append(self)
            if where == "__init__":
                flaky()

        def prepare(self, context: Context) -> None:
            if where == "prepare":
                flaky()

        def process(self, record: Number) -> None:
            chains.get(record)

    chains.topology.spout("more", Numbers()).shuffle().bolt("bad", Bad)
    net = chains.start()
    net.run()
    chains.healthy_chain_is_done()
    assert chains.got == Counter(range(TOTAL)), "nothing was lost, nothing came twice"
    assert len(bolts) == 4, "a new bolt for each try"
    assert 0.1 + 0.2 + 0.4 < net.now() < 3.0
    health = chains.health("bad")
    assert (health.standing, health.errors) == (Standing.RUNNING, 3)
    assert "of bad[0] raised OSError: gone" in str(health.last[-1])


def test_grouping_that_cannot_be_prepared_at_first_is_prepared_again() -> None:
    chains, flaky = Chains(), Flaky(2)

    class AllTargets:
        def prepare(self, targets: Sequence[int]) -> None:
            flaky()
            self.targets = targets

        def choose(self, record: Number) -> Sequence[int]:
            return self.targets

    chains.topology.spout("more", Numbers()).custom(AllTargets()).bolt("get", chains.get)
    chains.start().run()
    assert chains.got == Counter(range(TOTAL))
    assert chains.health("more").last[0].text.startswith("prepare of a custom grouping of more[0]")


@pytest.mark.parametrize("level", ["records", "tables"])
def test_source_that_raises_is_created_again_and_continues_where_it_was(level: str) -> None:
    chains, opened, closed, acked = Chains(), [], [], []

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
    chains.topology.spout("bad", bad).shuffle().bolt("get", chains.get)
    chains.start().run()
    chains.healthy_chain_is_done()
    assert chains.got == Counter(range(TOTAL)), "nothing is missing, nothing came twice"
    assert sorted(acked) == list(range(TOTAL)), "the numbers continued where they were"
    assert len(opened) == 4
    assert closed == opened[:3], "each is closed before the next one opens"
    assert chains.health("bad").errors == 3


def test_spout_that_raises_in_next_tuple_is_called_again_and_its_emitted_records_are_sent() -> None:
    chains, spouts = Chains(), []

    class Bad(Spout[Number]):
        def __init__(self) -> None:
            spouts.append(self)
            self.n = 0

        def next_tuple(self, out: Any) -> None:
            if self.n == TOTAL:
                out.finish()
                return
            out.emit(Number(self.n), self.n)
            self.n += 1
            if self.n % 10 == 0:
                raise OSError("gone")

    chains.topology.spout("bad", Bad).shuffle().bolt("get", chains.get)
    chains.start().run()
    chains.healthy_chain_is_done()
    assert chains.got == Counter(range(TOTAL))
    assert len(spouts) == 1, "the same spout is called again"
    assert chains.health("bad").errors == 4
    assert chains.health("bad").last[0].text == "next_tuple of bad[0] raised OSError: gone"


def test_success_ends_a_row_of_errors() -> None:
    chains = Chains()

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

    chains.topology.spout("bad", Bad).shuffle().bolt("get", chains.get)
    chains.start().run()
    assert chains.health("bad").standing is Standing.RUNNING
    assert chains.health("bad").errors == TOTAL // 2
    assert len(chains.health("bad").last) == 5, "the last few are kept"


# ---- quarantined --------------------------------------------------------------------------------


def test_bolt_that_cannot_be_prepared_is_quarantined_and_its_neighbours_continue() -> None:
    chains, flaky = Chains(attempts_max=10_000), Flaky(10_000)

    class Bad(Bolt[Number, None]):
        def prepare(self, context: Context) -> None:
            flaky()

        def process(self, record: Number) -> None:
            raise AssertionError("it was never prepared")

    chains.topology.spout("more", Numbers(1)).shuffle().bolt("bad", Bad)
    net = chains.start()
    net.until(lambda: flaky.calls == 5)
    assert SLEEPS < net.now() < SLEEPS + 1.0
    net.until(lambda: len(chains.task("more").spout.heard) > 3)
    chains.healthy_chain_is_done()
    assert flaky.calls == 5, "no user code is called any more"
    failure = chains.task("more").spout.heard[0][1]
    assert (failure.cause, failure.component, failure.task) == (Cause.QUARANTINED, "bad", 0)
    assert failure.reason == "prepare of bad[0] raised OSError: gone"
    assert failure.exception == "OSError"
    assert "in prepare" in failure.traceback
    assert failure.is_charged, "so that the retry policy of its spout decides"
    snapshot = net.sim.snapshot()
    assert snapshot.state == State.ACTIVE
    assert [error.text for error in snapshot.degraded.values()] == [failure.reason]


@pytest.mark.parametrize("error", [StoreError, ConfigError, StateMismatch, UnknownTopic])
@pytest.mark.parametrize("letters", [False, True])
def test_an_error_of_our_own_in_prepare_charges_no_record(
    error: type[Exception], letters: bool
) -> None:
    chains = Chains()
    dead: list[Any] = []

    class Refused(Bolt[Number, None]):
        def prepare(self, context: Context) -> None:
            raise error("the table does not exist")

        def process(self, record: Number) -> None: ...

    retry = Retry(attempts=1, dead_letters=letters)
    source = chains.topology.spout("more", Numbers(), retry=retry)
    source.shuffle().bolt("refused", Refused)
    if letters:
        source.stream("dead_letters").shuffle().bolt("letters", dead.append, fields=())
    net = chains.start()
    with pytest.raises(TopologyFailed, match="the table does not exist"):
        net.run()
    assert dead == []


def test_source_that_had_emitted_and_always_raises_fails_the_topology_after_ten_minutes() -> None:
    """The error may be a bug or an outage."""
    chains = Chains()

    class Bad(Spout[Number]):
        def records(self) -> Iterator[Number]:
            yield from map(Number, range(3))
            raise OSError("gone")

    chains.topology.spout("bad", Bad).shuffle().bolt("get", chains.get)
    net = chains.start(seconds_max=DOUBT_S + 60)
    net.until(lambda: net.now() > DOUBT_S / 2)
    chains.healthy_chain_is_done()
    wait = chains.health("bad").wait
    assert wait is not None
    assert (wait.kind, wait.reached) == (WaitKind.DOUBT, True)
    assert wait.for_s > DOUBT_S / 2 - 60
    assert net.sim.snapshot().state == State.ACTIVE
    story = r"^records of bad\[0\] raised OSError: gone. Fix it and run again.(?s:.*)in records"
    with pytest.raises(TopologyFailed, match=story):
        net.run()
    assert net.now() > DOUBT_S
    assert chains.got == Counter(range(3)), "the records before it are emitted, once"
    assert chains.task("bad").stats().counts.acked == 3
    assert chains.health("bad").standing is Standing.QUARANTINED


def test_spout_that_cannot_be_opened_emits_nothing_and_fails_the_topology() -> None:
    chains = Chains()

    class Bad(Spout[Number]):
        def open(self, context: Context) -> None:
            raise SystemExit(3)

        def records(self) -> Iterator[Number]:
            yield Number(1)

    chains.topology.spout("bad", Bad).shuffle().bolt("get", chains.get)
    with pytest.raises(TopologyFailed, match=r"open of bad\[0\] raised SystemExit: 3"):
        chains.start().run()
    chains.healthy_chain_is_done()
    assert not chains.got
    assert str(chains.health("bad").last[-1]) == "open of bad[0] raised SystemExit: 3"


def test_quarantined_source_still_has_its_failed_records_replayed() -> None:
    chains, refused = Chains(), []

    class Bad(Spout[Number]):
        def records(self) -> Iterator[Number]:
            yield Number(1)
            raise OSError("gone")

    def get(number: Number) -> None:
        if chains.health("bad").standing is not Standing.QUARANTINED:
            refused.append(number)
            raise ConnectionError("not yet")
        chains.get(number)

    chains.topology.spout("bad", Bad).shuffle().bolt("get", get)
    with pytest.raises(TopologyFailed, match=r"records of bad\[0\] raised OSError: gone"):
        chains.start(seconds_max=DOUBT_S + 120).run()
    assert chains.health("bad").standing is Standing.QUARANTINED
    assert refused
    assert chains.got == Counter([1])


def test_next_tuple_raises_at_most_task_errors_max_times() -> None:
    chains, flaky = Chains(task_errors_max=2), Flaky(100)

    class Bad(Spout[Number]):
        def next_tuple(self, out: Any) -> None:
            flaky()

    chains.topology.spout("bad", Bad).shuffle().bolt("get", chains.get)
    with pytest.raises(TopologyFailed, match=r"next_tuple of bad\[0\] raised OSError: gone"):
        chains.start().run()
    assert flaky.calls == 2


# ---- only reported ------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["records", "next_tuple"])
def test_spout_that_raises_in_ack_and_fail_continues_and_each_message_stays_settled(
    level: str,
) -> None:
    chains, heard, refused = Chains(), Counter[tuple[str, int]](), []

    class RaisesInHooks(Spout[Number]):
        def ack(self, message_id: int) -> None:
            heard["ack", message_id] += 1
            raise OSError("cannot commit")

        def fail(self, message_id: int, failure: Failure) -> None:
            heard["fail", message_id] += 1
            raise SystemExit(3)

    class Records(RaisesInHooks):
        def records(self) -> Iterator[Number]:
            yield from map(Number, range(TOTAL))

    class Manual(RaisesInHooks):
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
        chains.get(number)

    bad = {"records": Records, "next_tuple": Manual}[level]
    chains.topology.spout("bad", bad).shuffle().bolt("get", get)
    chains.start().run()
    chains.healthy_chain_is_done()
    assert chains.got == Counter(range(TOTAL))
    assert heard == {**{("ack", n): 1 for n in range(TOTAL)}, ("fail", 7): 1}
    health = chains.health("bad")
    assert (health.standing, health.errors) == (Standing.RUNNING, TOTAL + 1)
    assert str(health.last[-1]) == "ack of bad[0] raised OSError: cannot commit"


def test_close_and_cleanup_that_raise_are_reported_and_the_others_are_closed() -> None:
    chains, closed = Chains(), []

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

    numbers = chains.topology.spout("bad", BadSpout())
    numbers.shuffle().bolt("worse", BadBolt)
    numbers.shuffle().bolt("good", Good)
    net = chains.start()
    net.run()
    errors = [str(error) for core in net.workers.values() for error in core.close()]
    assert sorted(closed) == ["bolt", "good", "spout"]
    assert sorted(errors) == [
        "cleanup of worse[0] raised OSError: gone",
        "close of bad[0] raised OSError: gone",
    ]
    assert net.sim.snapshot().state == State.FINISHED, "the end of a run is no failure"


# ---- in one process -----------------------------------------------------------------------------


@pytest.mark.parametrize("hook", ["open", "records", "ack", "close"])
def test_run_inline_raises_at_once_from_the_error_itself(hook: str) -> None:
    class Bad(Numbers): ...

    def broken(*_: object) -> Iterator[Number]:
        raise OSError("gone")

    setattr(Bad, hook, broken)
    topology = Topology("t")
    topology.spout("bad", Bad(1)).shuffle().bolt("keep", sink)
    with pytest.raises(TopologyFailed, match=rf"{hook} of bad\[0\] raised OSError: gone") as caught:
        run_inline(topology.graph(), clock=ManualClock())
    assert isinstance(caught.value.__context__, OSError)
    assert "in broken" in str(caught.value)


def test_neighbours_in_other_workers_continue_too() -> None:
    """The same two chains, each task in a worker of its own."""
    chains, flaky = Chains(attempts_max=10_000), Flaky(10_000)

    class Bad(Bolt[Number, None]):
        def prepare(self, context: Context) -> None:
            flaky()

        def process(self, record: Number) -> None: ...

    chains.topology.spout("more", Numbers(1)).shuffle().bolt("bad", Bad)
    net = chains.start(Layout.ISOLATE)
    net.until(lambda: flaky.calls == 5 and len(chains.healthy) == TOTAL)
    chains.healthy_chain_is_done()
