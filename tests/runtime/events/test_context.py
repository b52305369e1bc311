"""Tests of the context of a task: its clock, and the events that user code records with it."""

from __future__ import annotations

from collections.abc import Iterator

from sunshower import Bolt, Context, Spout
from sunshower.clock import ManualClock, SystemClock
from sunshower.runtime.events.event_log import What
from sunshower.runtime.inline import run_inline
from tests.runtime.levels import COUNT, Automatic, Number, Rows, chain
from tests.runtime.recorded import Alone


class Writer(Bolt[Number, None]):
    def prepare(self, context: Context) -> None:
        self.context = context

    def process(self, record: Number) -> None:
        self.context.wrote(record.n, {"at": self.context.clock.now()})
        self.context.wrote("seen")
        self.context.noted("halfway", n=record.n)


def test_events_of_user_code_are_recorded_between_delivery_and_ack() -> None:
    run = Alone(chain(Rows(), Writer))
    run.run()
    run.check_shapes()
    wrote = run.of(What.WROTE)
    assert [entry.detail for entry in wrote[:4]] == [
        (0, {"at": 0.0}),
        ("seen", None),
        (1, {"at": 0.0}),
        ("seen", None),
    ]
    assert {entry.task for entry in wrote} == {run.id("bolt")}
    kinds = [e.what for e in run.entries if e.task == run.id("bolt")]
    assert kinds[:5] == [What.DELIVERED, What.WROTE, What.WROTE, What.NOTED, What.ACKED]
    assert run.of(What.NOTED)[1].detail == ("halfway", {"n": 1})


def test_without_an_event_log_wrote_and_noted_have_no_effect() -> None:
    finished = run_inline(chain(Rows(), Writer).graph(), clock=ManualClock(), steps_max=1000)
    assert finished.snapshot.component("bolt").acked == COUNT
    assert isinstance(Context("t", "c", 1, 0, 1).clock, SystemClock)


def test_clock_of_the_context_is_that_of_the_topology() -> None:
    class Paced(Spout[Number]):
        def open(self, context: Context) -> None:
            self.clock, self.next_s = context.clock, context.clock.now() + 5

        def records(self) -> Iterator[Number | None]:
            for n in range(3):
                while self.clock.now() < self.next_s:
                    yield None
                self.next_s += 5
                yield Number(n)

    run = Alone(chain(Paced(), Automatic()))
    run.run()
    assert [int(entry.at_s) for entry in run.of(What.EMITTED)] == [5, 10, 15]
