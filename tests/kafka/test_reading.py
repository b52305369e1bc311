"""What one task reads, without a broker: where it begins, what it puts back, what it tells."""

from __future__ import annotations

import pytest

from sunshower.kafka.partitions import Committed, Partition
from sunshower.kafka.starting import First
from sunshower.kafka.stored_offsets import PlainLayout, StoredOffsets
from sunshower.stores.memory_tree import MemoryForest, MemoryTree
from tests.kafka.fakes import Client, Kept, message, reading

A0, A1 = Partition("a", 0), Partition("a", 1)


@pytest.mark.parametrize("first", [First.LATEST, First.EARLIEST, First.STORM_FORCED])
def test_where_offsets_do_not_tell_who_wrote_them_it_goes_on_there(first: First) -> None:
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
    read = reading(client, stored, first=First.STORM_FORCED, behind_max=5)
    read.assigned([A0])
    assert [one[1:3] for _, one in read.skipped] == [(3, 10)]
    assert client.reads == {A0: 10}
    _, numbers = read.sort([message(10), message(11)])
    assert [read.places.name(number) for number in numbers] == [(A0, 10), (A0, 11)]
    assert read.settled()[A0].offset == 3, "until it has been told"
