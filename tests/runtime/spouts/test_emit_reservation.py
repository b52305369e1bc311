"""Tests of emit reservations: how far a spout may draw, and re-emits after its machine is lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from sunshower import Topology
from sunshower.clock import ManualClock
from sunshower.errors import StoreUnreachable
from sunshower.runtime.control import events
from sunshower.runtime.tasks.spouts.records_source import Position
from sunshower.runtime.tasks.spouts.source import EmitReservation
from sunshower.runtime.tasks.user_code import context
from sunshower.simulation.network import SimReservationStore
from tests.runtime.chains import Numbers, sink
from tests.runtime.lives import RestartedWorker
from tests.runtime.rig import Rig
from tests.runtime.spouts.test_position import Acks, Keep, Number, seen, work


class CountedStore(SimReservationStore):
    """Counts its writes."""

    writes = 0

    def write(self, task: int, number: int) -> None:
        super().write(task, number)
        self.writes += 1


def test_nothing_is_drawn_beyond_the_reservation() -> None:
    store = CountedStore()
    reservation = EmitReservation(1, store, ManualClock())
    drawn = 0
    for wanted in (1, 500, 3, 10_000, 10_000, 2):
        room = reservation.room(drawn, wanted)
        assert 0 < room <= wanted
        drawn += room
        assert drawn <= store.read(1) == reservation.at


@pytest.mark.parametrize("rate", [1, 1_000, 200_000])
def test_a_reservation_is_moved_about_once_a_second_however_fast_a_source_is(rate: int) -> None:
    store, clock = CountedStore(), ManualClock()
    reservation = EmitReservation(1, store, clock)
    drawn = 0
    for _ in range(3_000):  # half a minute
        left = int(rate * clock.now()) - drawn
        while left > 0:
            room = reservation.room(drawn, left)
            drawn, left = drawn + room, left - room
        clock.advance(0.01)
    assert store.writes < 60
    assert reservation.at - drawn <= max(64, 3 * rate)


class UnreachableStore(SimReservationStore):
    """While `unavailable`, each write raises; with `stores_first`, it stores its number before."""

    unavailable = True
    stores_first = False

    def write(self, task: int, number: int) -> None:
        if not self.unavailable or self.stores_first:
            super().write(task, number)
        if self.unavailable:
            raise StoreUnreachable("the head does not answer")


@pytest.mark.parametrize("stores_first", [False, True])
def test_nothing_is_drawn_while_the_store_is_unavailable_and_drawing_continues_after_it(
    stores_first: bool,
) -> None:
    store, clock = UnreachableStore(), ManualClock()
    store.stores_first = stores_first
    reservation, twin = (
        EmitReservation(1, store, clock),
        EmitReservation(1, SimReservationStore(), clock),
    )
    for _ in range(20):
        with pytest.raises(StoreUnreachable):
            reservation.room(0, 10)
        assert reservation.at == 0
        clock.advance(0.1)
    store.unavailable = False
    drawn = 0
    for _ in range(100):
        room = reservation.room(drawn, 50)
        assert room == twin.room(drawn, 50) > 0
        drawn += room
        assert drawn <= reservation.at == store.read(1)
        clock.advance(0.1)


@pytest.mark.parametrize("stores_first", [False, True])
def test_reservation_that_cannot_be_moved_back_is_still_valid_and_never_passed(
    stores_first: bool,
) -> None:
    store, clock = UnreachableStore(), ManualClock()
    store.unavailable = False
    reservation, drawn = caught_up(store, clock)
    store.unavailable, store.stores_first = True, stores_first
    for _ in range(60):
        drawn += reservation.room(drawn, 1)
        assert drawn <= reservation.at <= store.read(1)
        clock.advance(0.1)
    reservation.close(drawn)
    assert reservation.at == drawn <= store.read(1)


def caught_up(store: SimReservationStore, clock: ManualClock) -> tuple[EmitReservation, int]:
    """Return the reservation of a source that has emitted much at once, and its next number."""
    reservation, drawn = EmitReservation(1, store, clock), 0
    while drawn < 1_000_000:
        drawn += reservation.room(drawn, 10_000)
        clock.advance(0.02)
    assert reservation.at - drawn > 20_000
    return reservation, drawn


def trickle(reservation: EmitReservation, drawn: int, clock: ManualClock) -> int:
    """Draw ten records a second for ten seconds."""
    for _ in range(100):
        drawn += reservation.room(drawn, 1)
        clock.advance(0.1)
    return drawn


def test_a_reservation_follows_a_source_that_has_become_slow() -> None:
    store, clock = CountedStore(), ManualClock()
    reservation, drawn = caught_up(store, clock)
    before = store.writes
    drawn = trickle(reservation, drawn, clock)
    assert drawn <= store.read(1) <= drawn + 200
    drawn = trickle(reservation, drawn, clock)
    assert store.writes - before < 10
    assert reservation.room(drawn, 10_000) > 0


def test_records_that_a_former_life_may_have_drawn_stay_below_the_reservation() -> None:
    store, clock = SimReservationStore(), ManualClock()
    far, _ = caught_up(store, clock)
    trickle(EmitReservation(1, store, clock), 900_000, clock)
    assert store.read(1) == far.at


def test_the_next_life_reads_the_reservation_and_a_drain_moves_it_to_its_end() -> None:
    store = SimReservationStore()
    reservation = EmitReservation(1, store, ManualClock())
    assert reservation.room(0, 10) == 10
    assert EmitReservation(1, store, ManualClock()).at == reservation.at > 10
    reservation.close(10)
    assert EmitReservation(1, store, ManualClock()).at == 10
    reservation.close(20)
    assert store.read(1) == 10


def test_records_that_may_have_been_drawn_have_a_time_limit_and_drawn_ones_have_none() -> None:
    position = Position()
    position.begin_at(10, 12, 20)
    position.stop()
    position.wait(0.0, 30.0)
    position.wait(100.0, 30.0)
    assert position.room(50) == 10  # 10 and 11 were drawn for certain
    position.advance(2)
    position.wait(200.0, 30.0)
    position.advance(1)
    position.wait(220.0, 30.0)
    position.wait(249.0, 30.0)
    assert not position.at_end
    position.wait(250.0, 30.0)
    assert position.at_end


def test_transfer_that_is_unpacked_twice_re_emits_the_records_drawn_in_between() -> None:
    store, clock = SimReservationStore(), ManualClock()
    topology = Topology("t")
    topology.spout("numbers", Numbers(100)).shuffle().bolt("sink", sink)

    def started() -> Any:
        rig = Rig(topology)
        task = rig.spout("numbers")
        task.source.reservation = EmitReservation(task.task.id, store, clock)
        return task, context(rig.plan, task.task)

    former, _ = started()
    former.emit(0.0, 4)
    transfer = former.pack(stays=False, now=0.0)
    assert transfer.owed == store.read(former.task.id) == 4
    moved, new_context = started()
    moved.unpack(transfer, new_context)
    moved.emit(1.0, 10)  # the four owed records first
    moved.emit(1.0, 10)
    assert moved.source.drawn > 12  # then its machine is lost
    again, new_context = started()
    again.unpack(transfer, new_context)
    again.drain()
    for _ in range(100):
        again.emit(2.0, 4)
    assert again.source.drawn >= moved.source.drawn
    assert again.source.exhausted


class DryNumbers(Acks):
    """Has no record from `dry_at` on, but does not end."""

    dry_at = 1 << 60

    def records(self) -> Iterator[Number | None]:
        for n in range(self.count):
            while n >= self.dry_at:
                yield None
            if n % 3 == 0:
                yield None
            yield Number(n)


class DryTables(Acks):
    """Yields the same as tables of up to five rows."""

    dry_at = 1 << 60

    def tables(self) -> Iterator[pa.Table | None]:
        for first in range(0, self.count, 5):
            while first >= self.dry_at:
                yield None
            yield pa.table({"n": range(first, min(first + 5, self.dry_at))})


levels = pytest.mark.parametrize("level", [DryNumbers, DryTables])


@levels
def test_a_spout_that_starts_in_a_drain_re_emits_the_records_of_a_lost_machine(level: Any) -> None:
    worker, drawn = lose_machine(level(1000))
    work(worker)
    assert set(seen(worker)) > set(range(5, drawn))
    assert len(seen(worker)) < 300
    assert worker.core.finished


@levels
def test_a_drain_waits_only_for_a_time_for_a_source_without_records(level: Any) -> None:
    source = level(1000)
    worker, drawn = lose_machine(source, dry=True)
    work(worker)
    assert seen(worker) == list(range(5, drawn))
    assert not worker.core.finished
    worker.advance(worker.plan.graph.config.message_timeout_s)
    work(worker)
    assert worker.core.finished
    assert seen(worker) == list(range(5, drawn))


def lose_machine(source: Any, *, dry: bool = False) -> tuple[RestartedWorker, int]:
    """Run `source` until its machine is lost in a drain of which it was not informed yet.

    Returns the restarted worker, and how many records were drawn before, which neither the master
    nor a flight recorder knows. `dry`: the source has no more records.
    """
    topology = Topology("t", workers=1, spout_pending=10)
    topology.spout("numbers", source).shuffle().bolt("keep", Keep(5))
    worker = RestartedWorker(topology, SimReservationStore())
    work(worker, until=20)
    reported = worker.tell().drawn
    worker.core._wired.bolts[2].bolt.held = (5, 25)
    spout = worker.core._spouts[0]
    while spout.source.drawn < reported + 20:
        worker.run(lambda: spout.source.drawn >= reported + 20)
        worker.advance(0.1)
    drawn = spout.source.drawn
    assert drawn > reported + 3
    if dry:
        source.dry_at = drawn
    worker.master.apply(events.DrainSpouts(), worker.clock.now())
    worker.start(box_survives=False)
    worker.core._opening.look(worker.clock.now())
    worker.core._wired.bolts[2].bolt.held = ()
    return worker, drawn
