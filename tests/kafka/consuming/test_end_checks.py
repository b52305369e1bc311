"""Which partitions a Kafka spout has read to their end, as far as their leaders have answered."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from sunshower.clock import ManualClock
from sunshower.kafka.consuming.consumer import EndChecks
from sunshower.kafka.consuming.subscription import TopicSubscription
from sunshower.kafka.options import BrokerGroup
from sunshower.kafka.partitions.ports import SETTLES_S, Partition
from tests.kafka.fakes import Client, FakeOffsets, new_reader
from tests.kafka.groups import reader_context

P0, P1 = Partition("a", 0), Partition("a", 1)


class Leaders:
    """A consumer whose questions wait for `answer`, or for `fail`."""

    def __init__(self) -> None:
        self.open: dict[Partition, Future[Any]] = {}

    def ask_ends(self, partitions: Collection[Partition]) -> dict[Partition, Future[Any]]:
        assert not self.open.keys() & {*partitions}
        asked: dict[Partition, Future[Any]] = {partition: Future() for partition in partitions}
        self.open |= asked
        return asked

    def answer(self, partition: Partition, end: int) -> None:
        self.open.pop(partition).set_result(SimpleNamespace(offset=end))

    def fail(self, partition: Partition) -> None:
        self.open.pop(partition).set_exception(RuntimeError("its leader is away"))


class CheckRig:
    def __init__(self) -> None:
        self.clock, self.leaders = ManualClock(), Leaders()
        consumer: Any = self.leaders
        self.checks = EndChecks(consumer, self.clock)

    def at_end(self, **positions: int) -> dict[Partition, float]:
        """The result a second later."""
        self.clock.advance(1.0)
        return dict(
            self.checks.at_end({Partition("a", int(n[1:])): at for n, at in positions.items()})
        )


def test_a_partition_is_at_its_end_since_the_question_was_sent() -> None:
    rig = CheckRig()
    assert rig.at_end(p0=5, p1=7) == {}
    assert rig.at_end(p0=5, p1=7) == {}
    asked_s = rig.clock.now()
    rig.leaders.answer(P0, 5)
    rig.leaders.answer(P1, 8)
    assert rig.at_end(p0=5, p1=7) == {P0: asked_s}


def test_a_partition_with_records_is_not_asked_for() -> None:
    rig = CheckRig()
    for position in range(5):
        rig.at_end(p0=position, p1=7)
    assert [*rig.leaders.open] == [P1]


def test_a_leader_without_an_answer_ends_the_time_of_its_partition_alone() -> None:
    rig = CheckRig()
    for _ in range(2):
        rig.at_end(p0=5, p1=7)
    first_s = rig.clock.now()
    rig.leaders.answer(P0, 5)
    rig.leaders.answer(P1, 7)
    assert rig.at_end(p0=5, p1=7) == {P0: first_s, P1: first_s}
    second_s = rig.clock.now()
    rig.leaders.answer(P0, 5)
    assert rig.at_end(p0=5, p1=7) == {P0: second_s, P1: first_s}, "it has not answered yet"
    rig.leaders.fail(P1)
    assert P1 not in rig.at_end(p0=5, p1=7)
    rig.leaders.answer(P1, -1001)  # what the client returns for a leader that it cannot reach
    assert P1 not in rig.at_end(p0=5, p1=7)
    rig.leaders.answer(P1, 7)
    assert P1 in rig.at_end(p0=5, p1=7)


def test_a_lost_partition_is_forgotten() -> None:
    rig = CheckRig()
    for _ in range(2):
        rig.at_end(p0=5)
    rig.leaders.answer(P0, 5)
    assert P0 in rig.at_end(p0=5)
    assert rig.at_end() == {}


def test_partitions_that_cannot_begin_are_not_known() -> None:
    client = Client()
    client.bounds_of = {P0: (0, 9)}
    reader = new_reader(client, FakeOffsets())
    reader.assigned([P0, P1])  # the second one has no leader
    assert reader.has_unbegun
    client.bounds_of[P1] = (0, 9)
    reader.look_up_positions(lambda: 100.0)
    assert not reader.has_unbegun


def test_a_member_of_a_group_knows_its_partitions_some_seconds_after_it_got_them() -> None:
    consumer = SimpleNamespace(rebalances_eagerly=True, in_new_protocol=False)
    clock = ManualClock()
    read = TopicSubscription(topics=("a",))
    group = BrokerGroup(reader_context(read, clock=clock, consumer=consumer))
    assert not group.is_settled
    group._assigned(None, [])
    assert not group.is_settled
    clock.advance(SETTLES_S)
    assert group.is_settled
    group._revoked(SimpleNamespace(memberid=lambda: "m"), [])
    clock.advance(SETTLES_S)
    assert not group.is_settled
