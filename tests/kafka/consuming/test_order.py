"""Tests of the order of records from Kafka: that of their partition, in messages of any size."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Message
from hypothesis import example, given
from hypothesis import strategies as st

from sunshower import Retry
from sunshower.dev.kafka import Kafka
from sunshower.kafka.consuming.start_position import StartPosition
from sunshower.kafka.exactly_once.batch_spouts import KafkaOpaque, KafkaTransactional
from sunshower.kafka.formats import Json
from sunshower.kafka.options import KafkaOptions
from sunshower.kafka.partitions.ports import Partition
from sunshower.kafka.spout import KafkaSpout
from tests.kafka.fakes import SETTINGS, BatchRig, Client, FakeOffsets, message
from tests.kafka.groups import Topics
from tests.kafka.stage import running, topology
from tests.kafka.topics import fill, new_topic

LETTERS = Retry(attempts=2, initial_s=0.01, dead_letters=True)


class Place(NamedTuple):
    partition: int
    number: int  # of the record in its partition


# A message: how many records its array has, one bare record, a tombstone, or no JSON.
Shape = int | str
shapes = st.lists(
    st.one_of(st.integers(0, 4), st.sampled_from(["bare", "bare", "tombstone", "unreadable"])),
    max_size=15,
)
partitions = st.lists(shapes, min_size=1, max_size=3)


def values_of(partition: int, sizes: Sequence[Shape]) -> list[bytes | None]:
    """The values of the messages of one partition."""
    values: list[bytes | None] = []
    number = 0
    for size in sizes:
        count = size if isinstance(size, int) else size == "bare"
        records = [{"partition": partition, "number": number + n} for n in range(count)]
        number += count
        match size:
            case "tombstone":
                values.append(None)
            case "unreadable":
                values.append(b"{")
            case "bare":
                values.append(json.dumps(records[0]).encode())
            case _:
                values.append(json.dumps(records).encode())
    return values


def mixed_messages(parts: Sequence[Sequence[Shape]]) -> list[Message]:
    """The messages of all partitions: those of one are in order, and the partitions alternate."""
    of_each = [
        [message(at, number, value=value) for at, value in enumerate(values_of(number, sizes))]
        for number, sizes in enumerate(parts)
    ]
    return [item for item in chain.from_iterable(zip_longest(*of_each)) if item is not None]


def check_order(records: Sequence[Place], parts: Sequence[Sequence[Shape]]) -> None:
    """The records of each partition are complete, and in order."""
    numbers: dict[int, list[int]] = defaultdict(list)
    for record in records:
        numbers[record.partition].append(record.number)
    for partition, sizes in enumerate(parts):
        total = sum(size if isinstance(size, int) else size == "bare" for size in sizes)
        assert numbers[partition] == [*range(total)], f"partition {partition}"


@given(parts=partitions, refetch=st.booleans())
@example(parts=[["bare", 2, "bare", 0, "unreadable", 3, "bare"]], refetch=False)
@example(parts=[[2, "bare"], ["bare", 2, "tombstone", "bare"]], refetch=True)
def test_records_have_the_order_of_their_partition(parts: list[list[Shape]], refetch: bool) -> None:
    client = Client()
    client.waiting = mixed_messages(parts)
    client.bounds_of = {Partition("a", n): (0, len(part)) for n, part in enumerate(parts)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sunshower.kafka.spout.Consumer", lambda _: client)
        options = KafkaOptions(
            first=StartPosition.EARLIEST,
            refetch=refetch,
            directory=lambda _: Topics(a=len(parts)),
            store=lambda _: FakeOffsets(),
        )
        spout = KafkaSpout(SETTINGS, topics=["a"], value=Json(Place), options=options)
        with running(topology(spout, retry=LETTERS)) as run:
            ends = {f"a[{n}]": len(part) for n, part in enumerate(parts)}
            run.until(lambda: run.contiguous() == ends)
            check_order(run.records(), parts)


@given(parts=partitions, kind=st.sampled_from([KafkaOpaque, KafkaTransactional]))
@example(parts=[["bare", 2, "bare", 0, "unreadable", 3, "bare"]], kind=KafkaOpaque)
def test_rows_of_a_batch_have_the_order_of_their_partition(
    parts: list[list[Shape]], kind: Any
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        source = {"value": Json(Place)}
        rig = BatchRig(
            patch,
            kind,
            *((0, len(part)) for part in parts),
            source=source,
            unreadable=lambda *_: None,
        )
        rig.client.waiting = mixed_messages(parts)
        rows, _ = rig.batch(**{f"p{n}": None for n in range(len(parts))})
        check_order(rows, parts)


def test_records_have_the_order_of_their_partition_on_a_broker(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap, 2)
    sizes: list[list[Shape]] = [["bare", "bare", 2, "bare", 0, 3, "bare"] * 10, ["bare"] * 50 + [2]]
    for number, part_sizes in enumerate(sizes):
        fill(kafka.bootstrap, topic, values_of(number, part_sizes), number)
    base = {"bootstrap.servers": kafka.bootstrap, "group.id": f"order-{topic}"}
    spout = KafkaSpout(base, topics=[topic], value=Json(Place))
    with running(topology(spout)) as run:
        run.until(lambda: sorted(run.contiguous().values()) == sorted(map(len, sizes)))
        check_order(run.records(), sizes)
