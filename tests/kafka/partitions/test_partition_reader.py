"""PartitionReader without a broker: where it begins, what it gives back, and what it reports."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Message

from sunshower.clock import ManualClock
from sunshower.errors import KafkaUnreachable, NotAuthorised
from sunshower.kafka.consuming.partition_reader import PartitionReader
from sunshower.kafka.consuming.start_position import StartPosition
from sunshower.kafka.options import BrokerGroup, ByIndex
from sunshower.kafka.partitions.ports import Committed, Partition
from sunshower.kafka.zookeeper.group import ZooKeeperGroup
from sunshower.kafka.zookeeper.options import PlainLayout, StoredOffsets
from sunshower.state.log_progress import I64
from sunshower.state.tree import MemoryForest, MemoryTree
from tests.kafka.fakes import EOF, FORBIDDEN, RESET, Client, FakeOffsets, message, new_reader

A0, A1 = Partition("a", 0), Partition("a", 1)


Bounds = dict[Partition, tuple[int, int]]


def reading(
    bounds: Bounds, stored: FakeOffsets | None = None, *more: Partition, **options: Any
) -> tuple[Client, PartitionReader]:
    """A client of partitions with these offsets, and a reader to which they are assigned, and
    `more`, which have no leader."""
    client = Client()
    client.bounds_of = bounds
    reader = new_reader(client, FakeOffsets() if stored is None else stored, **options)
    reader.assigned([*bounds, *more])
    return client, reader


def emit(reader: PartitionReader, client: Client, *arriving: Message) -> I64:
    """Emit what arrives: the ids of the messages."""
    client.waiting += arriving
    reader.receive(100)
    taken, reader.ahead = reader.ahead, []
    _, numbers = reader.sort(taken)
    return numbers


@pytest.mark.parametrize(
    "first", [StartPosition.LATEST, StartPosition.EARLIEST, StartPosition.STORM_FORCED]
)
def test_offsets_without_a_deployment_are_continued_by_every_deployment(
    first: StartPosition,
) -> None:
    client, forest = Client(), MemoryForest()
    client.bounds_of = {A0: (0, 100)}
    StoredOffsets(MemoryTree(forest), PlainLayout("g")).write({A0: Committed(50)})
    offsets = StoredOffsets(MemoryTree(forest), PlainLayout("g"))
    new_reader(client, offsets, first=first).assigned([A0])
    assert client.reads == {A0: 50}


def test_removed_messages_are_reported_and_the_first_existing_one_is_emitted() -> None:
    stored, first = FakeOffsets(), StartPosition.STORM_FORCED
    stored.committed[A0] = Committed(3, '{"topologyId": "t-1"}')
    client, reader = reading({A0: (10, 100)}, stored, first=first, behind_max=5)
    assert [skip[1:3] for _, skip in reader.skipped] == [(3, 10)]
    assert client.reads == {A0: 10}
    _, numbers = reader.sort([message(10), message(11)])
    assert [reader.places.name(number) for number in numbers] == [("a", 0, 10), ("a", 0, 11)]
    assert reader.settled()[A0].offset == 3, "the skipped range has not been reported yet"


@pytest.mark.parametrize("first", [StartPosition.LATEST, StartPosition.EARLIEST])
def test_only_new_partitions_are_read_from_their_start_whatever_first_is(
    first: StartPosition,
) -> None:
    for all_new in (True, False):
        client = Client()
        client.bounds_of = {A0: (10, 100)}
        reader = new_reader(client, FakeOffsets(), first=first)
        reader.all_new = all_new
        reader.assigned([A0])
        assert client.reads == {A0: 100 if first is StartPosition.LATEST and not all_new else 10}


def test_only_by_index_partitions_that_are_assigned_later_are_new() -> None:
    assert ByIndex.later_is_new
    assert not BrokerGroup.later_is_new
    assert not ZooKeeperGroup.later_is_new


def test_an_error_of_one_partition_loses_no_event_of_the_others() -> None:
    client, reader = reading({A0: (10, 100)}, FakeOffsets(p0=5, p1=0), A1)
    refusals = [message(0, 7, error=FORBIDDEN, topic="b"), message(0, 8, error=FORBIDDEN)]
    client.waiting = [message(5, error=RESET), refusals[0], message(0, 1), refusals[1]]
    numbers = emit(reader, client, message(9, 1, error=EOF))
    for _ in refusals:
        with pytest.raises(NotAuthorised):
            reader.loop.raise_refusal()
    reader.loop.raise_refusal()
    assert [reader.places.name(number) for number in numbers] == [("a", 1, 0)]
    assert reader.places[A1].progress.emitted == 9, "the end of the partition was noted"
    reader.look_up_positions(lambda: 0.0)
    assert client.reads[A0] == 10, "it continues at the first message that exists"


def test_an_event_of_a_partition_counts_after_all_messages_before_it() -> None:
    client, reader = reading({A0: (20, 100)}, FakeOffsets(p0=0))
    client.waiting = [message(0), message(1), message(2), message(9, error=EOF)]
    reader.receive(100)
    emitted = []
    while reader.ahead:
        taken, reader.ahead = reader.ahead[:2], reader.ahead[2:]
        reader.sort(taken)
        emitted.append(reader.places[A0].progress.emitted)
    assert emitted == [2, 9]
    client.waiting = [message(9), message(10, error=RESET)]
    reader.receive(100)
    reader.sort([])
    reader.look_up_positions(lambda: 0.0)
    assert client.reads == {A0: 0}, "a message from before is left"
    emit(reader, client)
    reader.look_up_positions(lambda: 0.0)
    assert client.reads == {A0: 20}


def test_partitions_that_cannot_be_released_are_not_read_any_more() -> None:
    client, reader = reading({A0: (0, 100)}, FakeOffsets(p0=5))
    client.reads = {}  # the client does not read the partition
    with pytest.raises(KeyError):
        reader.revoked([A0], lost=False)
    assert not reader.places
    assert len(reader.gone) == 1


@pytest.mark.parametrize(
    "first", [StartPosition.LATEST, StartPosition.UNCOMMITTED_LATEST, StartPosition.STORM]
)
def test_a_task_that_begins_at_the_end_and_dies_continues_there(first: StartPosition) -> None:
    stored = FakeOffsets()
    reading({A0: (10, 90)}, stored, first=first)
    assert stored.at() == 90
    # Five are emitted, none is settled, and the task dies.
    client, _ = reading({A0: (10, 95)}, stored, first=first)
    assert client.reads == {A0: 90}


def test_a_start_at_the_first_message_is_not_committed() -> None:
    stored = FakeOffsets()
    reading({A0: (10, 90)}, stored, first=StartPosition.EARLIEST)
    assert stored.at() is None


def test_a_partition_without_a_leader_begins_later_and_delays_no_other() -> None:
    client, clock = Client(), ManualClock()
    parts = [Partition("a", number) for number in range(5)]
    client.bounds_of = {part: (0, 7) for part in parts if part.number not in (1, 3)}
    reader = new_reader(client, FakeOffsets(p2=4), first=StartPosition.UNCOMMITTED_EARLIEST)
    reader.assigned(parts)
    # Partition 4 waits, too: after a failed request no other position is looked up.
    assert client.reads == {parts[0]: 0, parts[2]: 4}
    for _ in range(3):
        reader.look_up_positions(clock.now)
        reader.look_up_positions(clock.now)
        clock.advance(10.0)
    assert client.reads == {parts[0]: 0, parts[2]: 4, parts[4]: 0}
    assert client.asked == 6, "requests are repeated after a delay only"
    client.bounds_of |= {parts[1]: (3, 7), parts[3]: (0, 7)}
    clock.advance(30.0)
    reader.all_new = True
    reader.look_up_positions(clock.now)
    assert (client.reads[parts[1]], client.reads[parts[3]]) == (3, 0)
    reader.revoked(parts, lost=False)
    assert not client.reads


def test_a_partition_that_is_released_before_it_began_does_not_begin() -> None:
    client, reader = reading({A0: (0, 7)}, None, A1)
    reader.revoked([A1], lost=False)
    client.bounds_of[A1] = (0, 7)
    reader.look_up_positions(lambda: 100.0)
    assert client.reads == {A0: 0}


def test_it_is_an_error_if_no_partition_has_a_leader() -> None:
    reader = new_reader(Client(), FakeOffsets())
    with pytest.raises(KafkaUnreachable):
        reader.assigned([A0, A1])
    reader.look_up_positions(lambda: 100.0)
    assert not reader.places


def test_a_partition_whose_position_is_unknown_delays_no_other() -> None:
    client, reader = reading({A1: (10, 20)}, FakeOffsets(p0=5, p1=5), A0)
    emit(reader, client, message(5, error=RESET), message(5, 1, error=RESET))
    reader.look_up_positions(lambda: 0.0)
    reader.look_up_positions(lambda: 10.0)
    assert client.reads == {A0: 5, A1: 10}


def test_a_partition_that_begins_later_does_not_wait_for_one_without_a_position() -> None:
    clock = ManualClock()
    client, reader = reading({}, FakeOffsets(p0=5), A0, A1)
    emit(reader, client, message(5, error=RESET))
    client.bounds_of = {A1: (0, 7)}
    for _ in range(3):
        reader.look_up_positions(clock.now)
        clock.advance(30.0)
    assert client.reads == {A0: 5, A1: 0}


@pytest.mark.parametrize("first", [StartPosition.LATEST, StartPosition.EARLIEST])
def test_messages_skipped_in_a_topic_that_was_created_again_are_reported(
    first: StartPosition,
) -> None:
    stored = FakeOffsets()
    stored.committed[A0] = Committed(50, '{"topologyId": "t-1"}')
    client, reader = reading({A0: (2, 9)}, stored, first=first)
    emit(reader, client, message(50), message(51, error=RESET))
    reader.look_up_positions(lambda: 0.0)
    assert not reader.gone, "what was read of the former topic is still processed"
    from_end = first is StartPosition.LATEST
    assert client.reads == {A0: 9 if from_end else 2}
    assert [skip[1:3] for _, skip in reader.skipped] == ([(2, 9)] if from_end else [])
    assert reader.settled()[A0].offset == 2
