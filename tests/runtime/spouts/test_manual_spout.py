"""Tests of next_tuple: message ids, untracked and direct emits, replays and the end."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any

import pytest

from sunshower import Cause, Context, DirectStream, Failure, Spout, SpoutCollector, Topology
from sunshower.runtime.tasks.user_code import Raised
from tests.runtime.rig import Number, Rig, records_of, sink

Step = Callable[[SpoutCollector[Number]], None]


class Scripted(Spout[Number]):
    """Runs one step of the script for each call of next_tuple."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)

    def open(self, context: Context) -> None:
        self.calls: list[Any] = []
        self.left = iter(self.steps)

    def next_tuple(self, out: SpoutCollector[Number]) -> None:
        next(self.left, lambda _out: None)(out)

    def ack(self, message_id: Any) -> None:
        self.calls.append(("ack", message_id))

    def fail(self, message_id: Any, failure: Failure) -> None:
        self.calls.append(("fail", message_id, failure.attempt))


class WithoutReplay(Scripted):
    replay = False


def rig(*steps: Step, kind: type[Scripted] = Scripted, **settings: Any) -> Rig:
    topology = Topology("t", **{"ackers": 1, **settings})
    spout = topology.spout("numbers", kind(*steps), streams={"direct": DirectStream(Number)})
    spout.shuffle().bolt("next", sink)
    spout.stream("direct").direct().bolt("chosen", sink, parallelism=2)
    return Rig(topology)


def emit(n: int, message_id: Any = None) -> Step:
    return lambda out: out.emit(Number(n), message_id)


DIED = Failure(Cause.ACTOR_DIED)


def test_ack_is_called_with_the_message_id() -> None:
    here = rig(emit(1, "one"), emit(2, ("two", 2)))
    spout = here.spout("numbers")
    assert spout.emit(0.0, 10) == 2
    spout.complete(spout.pending.all_roots(), 0.0)
    assert spout.spout.calls == [("ack", "one"), ("ack", ("two", 2))]


def test_emit_without_a_message_id_is_not_tracked() -> None:
    here = rig(emit(1))
    here.spout("numbers").emit(0.0, 10)
    assert not here.sent("next")[0].tracked
    assert not here.reports().starts
    assert len(here.spout("numbers").pending) == 0


def test_records_that_one_call_emits_beyond_the_room_wait() -> None:
    def burst(out: SpoutCollector[Number]) -> None:
        for n in range(5):
            out.emit(Number(n), n)

    here = rig(burst, spout_pending=2)
    spout = here.spout("numbers")
    assert spout.emit(0.0, 10) == 2
    assert len(spout.pending) == 2
    assert spout.emit(0.0, 10) == 0
    spout.complete(spout.pending.all_roots(), 0.0)
    assert spout.emit(0.0, 10) == 2
    assert [record.n for record in records_of(here.sent("next"))] == [0, 1, 2, 3]


def test_untracked_emit_needs_no_room() -> None:
    here = rig(emit(1, "id"), emit(2), emit(3), spout_pending=1)
    assert here.spout("numbers").emit(0.0, 10) == 3


def test_failed_emission_is_kept_and_emitted_again() -> None:
    here = rig(emit(1, "one"))
    spout = here.spout("numbers")
    spout.emit(0.0, 10)
    spout.failed(spout.pending.all_roots(), DIED, 0.0)
    assert spout.emit(0.0, 10) == 1
    assert [record.n for record in records_of(here.sent("next"))] == [1, 1]
    spout.failed(spout.pending.all_roots(), DIED, 0.0)
    assert spout.spout.calls == [("fail", "one", 1), ("fail", "one", 2)]


def test_spout_without_replay_only_gets_the_failure() -> None:
    here = rig(emit(1, "one"), kind=WithoutReplay)
    spout = here.spout("numbers")
    spout.emit(0.0, 10)
    spout.failed(spout.pending.all_roots(), DIED, 0.0)
    assert spout.emit(0.0, 10) == 0
    assert spout.spout.calls == [("fail", "one", 1)]


def test_a_spout_without_replay_remembers_nothing_of_a_failed_message() -> None:
    here = rig(emit(1, "one"), kind=WithoutReplay)
    spout = here.spout("numbers")
    queue = spout.replays.line
    spout.emit(0.0, 10)
    spout.failed(spout.pending.all_roots(), Failure(Cause.UNAVAILABLE), 0.0)
    assert not [name for name, value in vars(queue).items() if isinstance(value, Sized) and value]


def test_without_ackers_a_message_is_acked_as_soon_as_it_is_sent() -> None:
    here = rig(emit(1, "one"), emit(2), ackers=0)
    here.spout("numbers").emit(0.0, 10)
    assert here.spout("numbers").spout.calls == [("ack", "one")]


def test_emit_direct_reaches_the_named_task_and_so_does_its_replay() -> None:
    here = rig(lambda out: out.emit_direct(chosen.id, Number(1), "one", stream="direct"))
    chosen = here.task("chosen", 1)
    spout = here.spout("numbers")
    spout.emit(0.0, 10)
    spout.failed(spout.pending.all_roots(), DIED, 0.0)
    spout.emit(0.0, 10)
    assert len(here.wired.inboxes[chosen.id]) == 2
    assert len(here.wired.inboxes[here.task("chosen", 0).id].entries) == 0


def test_spout_is_done_after_finish_once_everything_is_acked() -> None:
    here = rig(emit(1, "one"), lambda out: out.finish())
    spout = here.spout("numbers")
    spout.emit(0.0, 10)
    assert not spout.done
    spout.complete(spout.pending.all_roots(), 0.0)
    assert spout.done


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda out: out.emit(("a",)), "does not fit stream 'default'"),
        (lambda out: out.emit(Number(1), stream="no"), "no output stream 'no'"),
        (lambda out: out.emit(Number(1), stream="direct"), "is direct: name the task"),
        (lambda out: out.emit_direct(99, Number(1), stream="direct"), "task 99 does not subscribe"),
    ],
    ids=["misfit", "no stream", "emit on direct", "no subscriber"],
)
def test_impossible_emit_raises_where_it_is_called(step: Step, message: str) -> None:
    with pytest.raises(Raised, match=message):
        rig(step).spout("numbers").emit(0.0, 10)


def test_message_without_subscribers_is_complete_at_once() -> None:
    topology = Topology("t", ackers=1)
    topology.spout("numbers", Scripted(emit(1, "one")))
    here = Rig(topology)
    spout = here.spout("numbers")
    spout.emit(0.0, 10)
    (acker,) = here.wired.ackers.values()
    (report,) = here.wired.reports.take().values()
    spout.complete(acker.apply(report, 0.0)[0].complete[0], 0.0)
    assert spout.spout.calls == [("ack", "one")]
