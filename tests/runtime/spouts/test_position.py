"""Tests of restarted spouts: they continue after the settled records, and lose none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from sunshower import Bolt, Cause, Collector, Context, Failure, Records, Spout, Topology, Tuple
from sunshower.runtime.control import events
from sunshower.runtime.tasks.spouts import records_source
from sunshower.runtime.tasks.spouts.records_source import Position
from sunshower.runtime.tasks.spouts.source import ReservationStore
from sunshower.simulation.network import SimReservationStore
from tests.runtime.lives import RestartedWorker
from tests.runtime.rig import Number


class Acks(Spout[Number]):
    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, context: Context) -> None:
        self.committed = context.committed
        self.acks: list[int] = []

    def ack(self, message_id: int) -> None:
        self.acks.append(message_id)

    def result(self) -> list[int]:
        return self.acks


class Numbers(Acks):
    """Yields 0, 1, 2 … in each life, and None ("nothing now") before every third number."""

    def records(self) -> Iterator[Number | None]:
        for n in range(self.count):
            if n % 3 == 0:
                yield None
            yield Number(n)


class Tables(Acks):
    """Yields the same as tables of seven rows, with an empty table before each."""

    def tables(self) -> Iterator[pa.Table | None]:
        for first in range(0, self.count, 7):
            yield pa.table({"n": range(0)})
            yield pa.table({"n": range(first, min(first + 7, self.count))})


class Keep(Bolt[Number, None]):
    """Acks all numbers except those in `held`."""

    def __init__(self, *held: int) -> None:
        self.held = held
        self.seen: list[int] = []

    def prepare(self, context: Context) -> None:
        self.seen = []

    def execute(self, tuple: Tuple[Number], out: Collector[Any]) -> None:
        self.seen.append(tuple.record.n)
        if tuple.record.n not in self.held:
            out.ack(tuple)

    def result(self) -> list[int]:
        return self.seen


def start_worker(
    spout: Any, *held: int, pending: int = 10, store: ReservationStore | None = None
) -> RestartedWorker:
    topology = Topology("t", workers=1, spout_pending=pending)
    topology.spout("numbers", spout).shuffle().bolt("keep", Keep(*held))
    return RestartedWorker(topology, store)


def seen(worker: RestartedWorker) -> list[int]:
    numbers: list[int] = worker.core.results("keep")[0]
    return numbers


def work(worker: RestartedWorker, until: int | None = None) -> None:
    """Work until `until` records are drawn, or for 4 s of the clock: the source must be polled
    again after each "nothing now"."""
    for _ in range(40):
        worker.run(lambda: until is not None and worker.tell().drawn >= until)
        worker.advance(0.1)
        if until is not None and worker.tell().drawn >= until:
            return


levels = pytest.mark.parametrize("level", [Numbers, Tables])


@levels
def test_next_life_starts_after_the_settled_records_and_numbers_the_others_as_before(
    level: Any,
) -> None:
    worker = start_worker(level(40), 12, 14)
    work(worker)
    assert worker.tell().committed == 12
    assert worker.tell().drawn == max(seen(worker)) + 1 > 14
    worker.start()
    work(worker)
    assert seen(worker) == list(range(12, 40))
    assert worker.core.results("numbers")[0] == [13, *range(15, 40)]
    assert worker.core._spouts[0].spout.committed == 12


@levels
def test_a_message_that_waits_for_its_replay_is_not_settled(level: Any) -> None:
    worker = start_worker(level(40), 3, pending=5)
    work(worker)
    spout = worker.core._spouts[0]
    roots = spout.pending.all_roots()
    spout.failed(roots, Failure(Cause.FAILED), 0.0)
    assert not len(spout.pending)
    assert worker.tell().committed == 3


@levels
def test_second_death_before_the_new_life_has_done_anything_loses_nothing(level: Any) -> None:
    worker = start_worker(level(40), 20)
    work(worker)
    worker.tell()
    worker.start()
    assert worker.tell().committed == 20  # it has done nothing yet
    worker.start()
    work(worker)
    assert seen(worker) == list(range(20, 40))


@levels
def test_spout_that_had_ended_ends_again_without_emitting_a_record(level: Any) -> None:
    worker = start_worker(level(12))
    work(worker)
    assert worker.tell().done
    worker.start()
    work(worker)
    assert seen(worker) == []
    assert worker.core.finished


@levels
def test_killed_while_draining_it_re_emits_the_open_records_and_nothing_new(level: Any) -> None:
    worker = start_worker(level(1000), 5)
    work(worker, until=20)
    worker.core.drain()
    worker.master.apply(events.DrainSpouts(), worker.clock.now())
    drawn = worker.tell().drawn
    worker.start()
    worker.core._opening.look(worker.clock.now())
    worker.core._wired.bolts[2].bolt.held = ()
    work(worker)
    assert seen(worker) == list(range(5, drawn))
    assert worker.core.finished


@levels
def test_a_life_that_starts_in_a_drain_re_emits_records_unknown_to_the_master(
    level: Any,
) -> None:
    worker = start_worker(level(1000), 5)
    work(worker, until=20)
    reported = worker.tell().drawn
    worker.core._wired.bolts[2].bolt.held = (5, 25)
    for _ in range(8):
        worker.run()
        worker.advance(0.1)
    drawn = worker.core._spouts[0].source.drawn
    assert drawn > reported + 3
    worker.master.apply(events.DrainSpouts(), worker.clock.now())
    worker.start()
    worker.core._opening.look(worker.clock.now())
    worker.core._wired.bolts[2].bolt.held = ()
    work(worker)
    assert seen(worker) == list(range(5, drawn))
    assert worker.core.finished


@levels
@pytest.mark.parametrize("box_survives", [True, False])
def test_a_life_that_starts_in_a_drain_draws_no_extra_record_if_it_has_a_crash_report(
    level: Any, box_survives: bool
) -> None:
    """Without a crash report, it re-emits all records below the reservation."""
    store = SimReservationStore()
    worker = start_worker(level(1000), 5, store=store)
    work(worker, until=20)
    drawn = worker.core._spouts[0].source.drawn
    assert drawn < store.read(1)
    worker.master.apply(events.DrainSpouts(), worker.clock.now())
    worker.start(box_survives=box_survives)
    worker.core._opening.look(worker.clock.now())
    worker.core._wired.bolts[2].bolt.held = ()
    work(worker)
    assert seen(worker) == list(range(5, drawn if box_survives else store.read(1)))
    assert worker.core.finished


@levels
def test_a_crash_report_of_a_life_that_drew_nothing_does_not_replace_the_reservation(
    level: Any,
) -> None:
    """The flight recorder of the first life is lost, and the second life dies at once: the third
    re-emits all records below the reservation."""
    store = SimReservationStore()
    worker = start_worker(level(1000), 5, store=store)
    work(worker, until=20)
    reservation = store.read(1)
    worker.start(box_survives=False)
    worker.master.apply(events.DrainSpouts(), worker.clock.now())
    worker.start()
    worker.core._opening.look(worker.clock.now())
    worker.core._wired.bolts[2].bolt.held = ()
    work(worker)
    assert seen(worker) == list(range(5, reservation))


@levels
def test_killed_after_a_drain_it_is_done_at_once(level: Any) -> None:
    worker = start_worker(level(1000))
    work(worker, until=20)
    worker.core.drain()
    worker.master.apply(events.DrainSpouts(), worker.clock.now())
    work(worker)
    assert worker.tell().done
    worker.start()
    assert worker.core.finished


def test_many_settled_records_are_skipped_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    skipped = 1_000
    monkeypatch.setattr(records_source, "SKIP_RECORDS", skipped)
    total = 2 * skipped + 100
    topology = Topology("t", workers=1, spout_pending=total)
    numbers = Records([Number(n) for n in range(total)], type=Number)
    topology.spout("numbers", numbers).shuffle().bolt("keep", Keep(skipped + 10))
    worker = RestartedWorker(topology)
    worker.run()
    assert worker.tell().committed == skipped + 10
    worker.start()
    steps = 0
    while not seen(worker):
        assert worker.core.step() == 0
        steps += 1
    assert 3 <= steps < 10
    worker.run()
    assert len(seen(worker)) == total - skipped - 10


def test_untracked_records_are_settled_as_soon_as_they_are_sent() -> None:
    topology = Topology("t", workers=1, ackers=0)
    topology.spout("numbers", Numbers(100)).shuffle().bolt("keep", Keep())
    worker = RestartedWorker(topology)
    work(worker)
    assert worker.tell().committed == 100


def test_after_a_stop_only_records_that_a_former_life_had_drawn_may_be_drawn() -> None:
    position = Position()
    position.begin_at(10, 20)
    assert position.room(50) == 50
    position.stop()
    assert position.room(50) == 10
    assert list(position.advance(10)) == list(range(10, 20))
    assert position.at_end
