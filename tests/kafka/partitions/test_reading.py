"""PartitionReader without a broker: where it begins, what it gives back, and what it reports."""

from __future__ import annotations

import pytest

from sunshower.clock import ManualClock
from sunshower.errors import KafkaUnreachable, NotAuthorised
from sunshower.kafka.consuming.start_position import StartPosition
from sunshower.kafka.partitions.broker_group import BrokerGroup
from sunshower.kafka.partitions.ports import Committed, Partition
from sunshower.kafka.partitions.task_index_assignment import ByIndex
from sunshower.kafka.zookeeper.group import ZooKeeperGroup
from sunshower.kafka.zookeeper.stored_offsets import PlainLayout, StoredOffsets
from sunshower.state.memory_tree import MemoryForest, MemoryTree
from tests.kafka.fakes import EOF, FORBIDDEN, RESET, Client, Kept, message, reading

A0, A1 = Partition("a", 0), Partition("a", 1)


@pytest.mark.parametrize(
    "first", [StartPosition.LATEST, StartPosition.EARLIEST, StartPosition.STORM_FORCED]
)
def test_where_offsets_do_not_tell_who_wrote_them_it_goes_on_there(first: StartPosition) -> None:
    client, forest = Client(), MemoryForest()
    client.bounds_of = {A0: (0, 100)}
    StoredOffsets(MemoryTree(forest), PlainLayout("g")).write({A0: Committed(50)})
    offsets = StoredOffsets(MemoryTree(forest), PlainLayout("g"))
    reading(client, offsets, first=first).assigned([A0])
    assert client.reads == {A0: 50}


def test_what_was_removed_is_told_and_the_first_that_is_there_is_emitted() -> None:
    client = Client()
    client.bounds_of = {A0: (10, 100)}
    stored = Kept()
    stored.kept[A0] = Committed(3, '{"topologyId": "t-1"}')
    read = reading(client, stored, first=StartPosition.STORM_FORCED, behind_max=5)
    read.assigned([A0])
    assert [one[1:3] for _, one in read.skipped] == [(3, 10)]
    assert client.reads == {A0: 10}
    _, numbers = read.sort([message(10), message(11)])
    assert [read.places.name(number) for number in numbers] == [(A0, 10), (A0, 11)]
    assert read.settled()[A0].offset == 3, "the skipped range has not been reported yet"


@pytest.mark.parametrize("first", [StartPosition.LATEST, StartPosition.EARLIEST])
def test_what_is_added_is_news_by_index_and_first_says_where_it_begins_in_a_group(
    first: StartPosition,
) -> None:
    for all_new in (True, False):
        client = Client()
        client.bounds_of = {A0: (10, 100)}
        read = reading(client, Kept(), first=first)
        read.all_new = all_new
        read.assigned([A0])
        assert client.reads == {A0: 100 if first is StartPosition.LATEST and not all_new else 10}


def test_only_by_index_what_comes_later_is_new() -> None:
    assert ByIndex.later_is_new
    assert not BrokerGroup.later_is_new
    assert not ZooKeeperGroup.later_is_new


def test_an_error_of_one_partition_takes_nothing_of_the_others_along() -> None:
    client = Client()
    client.bounds_of = {A0: (10, 100)}
    read = reading(client, Kept(p0=5, p1=0))
    read.assigned([A0, A1])
    refusals = [message(0, 7, error=FORBIDDEN, topic="b"), message(0, 8, error=FORBIDDEN)]
    taken = [message(5, error=RESET), refusals[0], message(0, 1), refusals[1]]
    for refusal in refusals:
        with pytest.raises(NotAuthorised):
            read.sort(taken)
        taken, read.ahead = read.ahead, []
        assert refusal not in taken
    _, numbers = read.sort([*taken, message(9, 1, error=EOF)])
    assert [read.places.name(number) for number in numbers] == [(A1, 0)]
    assert read.places[A1].progress.emitted == 9, "the end of the partition was noted"
    read.look_up_positions(lambda: 0.0)
    assert client.reads[A0] == 10, "it continues at the first message that exists"


def test_partitions_that_cannot_be_given_back_are_not_read_any_more() -> None:
    client = Client()
    client.bounds_of = {A0: (0, 100)}
    read = reading(client, Kept(p0=5))
    read.assigned([A0])
    client.reads = {}  # the client does not read the partition
    with pytest.raises(KeyError):
        read.revoked([A0], lost=False)
    assert not read.places
    assert len(read.gone) == 1


@pytest.mark.parametrize(
    "first", [StartPosition.LATEST, StartPosition.UNCOMMITTED_LATEST, StartPosition.STORM]
)
def test_who_begins_at_the_end_and_dies_goes_on_there(first: StartPosition) -> None:
    client, stored = Client(), Kept()
    client.bounds_of = {A0: (10, 90)}
    reading(client, stored, first=first).assigned([A0])
    assert stored.at() == 90
    client.bounds_of = {A0: (10, 95)}  # five are emitted, none is settled, and the task dies
    reading(client, stored, first=first).assigned([A0])
    assert client.reads == {A0: 90}


def test_where_the_start_stays_what_it_is_nothing_is_committed() -> None:
    client, stored = Client(), Kept()
    client.bounds_of = {A0: (10, 90)}
    reading(client, stored, first=StartPosition.EARLIEST).assigned([A0])
    assert stored.at() is None


def test_a_partition_without_a_leader_begins_later_and_stops_no_other() -> None:
    client, clock = Client(), ManualClock()
    parts = [Partition("a", number) for number in range(5)]
    client.bounds_of = {one: (0, 7) for one in parts if one.number not in (1, 3)}
    read = reading(client, Kept(p2=4), first=StartPosition.UNCOMMITTED_EARLIEST)
    read.assigned(parts)
    # Partition 4 waits, too: after a failed request no other position is looked up.
    assert client.reads == {parts[0]: 0, parts[2]: 4}
    for _ in range(3):
        read.look_up_positions(clock.now)
        read.look_up_positions(clock.now)
        clock.advance(10.0)
    assert client.reads == {parts[0]: 0, parts[2]: 4, parts[4]: 0}
    assert client.asked == 6, "requests are repeated after a delay only"
    client.bounds_of |= {parts[1]: (3, 7), parts[3]: (0, 7)}
    clock.advance(30.0)
    read.all_new = True
    read.look_up_positions(clock.now)
    assert (client.reads[parts[1]], client.reads[parts[3]]) == (3, 0)
    read.revoked(parts, lost=False)
    assert not client.reads


def test_what_is_given_back_before_it_began_does_not_begin() -> None:
    client = Client()
    client.bounds_of = {A0: (0, 7)}
    read = reading(client, Kept())
    read.assigned([A0, A1])
    read.revoked([A1], lost=False)
    client.bounds_of[A1] = (0, 7)
    read.look_up_positions(lambda: 100.0)
    assert client.reads == {A0: 0}


def test_where_no_partition_has_a_leader_that_is_an_error() -> None:
    read = reading(Client(), Kept())
    with pytest.raises(KafkaUnreachable):
        read.assigned([A0, A1])
    read.look_up_positions(lambda: 100.0)
    assert not read.places


def test_a_place_that_is_not_found_stops_no_other() -> None:
    client = Client()
    client.bounds_of = {A1: (10, 20)}
    read = reading(client, Kept(p0=5, p1=5))
    read.assigned([A0, A1])
    read.sort([message(5, error=RESET), message(5, 1, error=RESET)])
    read.look_up_positions(lambda: 0.0)
    read.look_up_positions(lambda: 10.0)
    assert client.reads == {A0: 5, A1: 10}


def test_who_begins_later_does_not_wait_for_who_goes_on_later() -> None:
    client, clock = Client(), ManualClock()
    client.bounds_of = {}
    read = reading(client, Kept(p0=5))
    read.assigned([A0, A1])
    read.sort([message(5, error=RESET)])
    client.bounds_of = {A1: (0, 7)}
    for _ in range(3):
        read.look_up_positions(clock.now)
        clock.advance(30.0)
    assert client.reads == {A0: 5, A1: 0}


@pytest.mark.parametrize("first", [StartPosition.LATEST, StartPosition.EARLIEST])
def test_of_a_topic_made_anew_that_is_read_from_its_end_the_rest_is_told(
    first: StartPosition,
) -> None:
    client, stored = Client(), Kept()
    stored.kept[A0] = Committed(50, '{"topologyId": "t-1"}')
    client.bounds_of = {A0: (2, 9)}
    read = reading(client, stored, first=first)
    read.assigned([A0])
    read.sort([message(50), message(51, error=RESET)])
    read.look_up_positions(lambda: 0.0)
    assert len(read.gone) == 1
    from_end = first is StartPosition.LATEST
    assert client.reads == {A0: 9 if from_end else 2}
    assert [one[1:3] for _, one in read.skipped] == ([(2, 9)] if from_end else [])
    assert read.settled()[A0].offset == 2
