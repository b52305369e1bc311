"""Batch spouts over a fake Kafka client: extents, bounds, replays, metadata of deployments."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Message

from sunshower.errors import BadOffset, ConfigError, FailedBatch, IncompleteBatch, StateMismatch
from sunshower.kafka.consuming.start_position import StartPosition
from sunshower.kafka.exactly_once.batch_spouts import (
    BatchOptions,
    Extent,
    KafkaOpaque,
    KafkaTransactional,
    checksum,
    partition_name,
    partition_of,
)
from sunshower.kafka.partitions.ports import Partition
from sunshower.topologies.components import OnStream
from sunshower.trident.declaration.declare import as_trident_spout
from sunshower.trident.spouts.bounds import Bounds
from sunshower.trident.spouts.port import SpoutKind
from tests.kafka.fakes import EOF, RESET, SETTINGS, BatchRig, NewBatchRig, message

A0, A1 = Partition("a", 0), Partition("a", 1)


def batch(rig: BatchRig, **last: Any) -> tuple[list[int], dict[str, Any]]:
    """The offsets of a new batch, and its metadata."""
    rows, metadata = rig.batch(**last)
    return [row.offset for row in rows], metadata


def valued(offset: int, size: int) -> Message:
    return Message(topic="a", partition=0, offset=offset, value=b"x" * size)


def test_a_batch_ends_at_its_limit_of_bytes_and_the_next_batch_has_the_rest(
    new_batch_rig: NewBatchRig,
) -> None:
    rig = new_batch_rig(KafkaOpaque, (0, 5), bytes=100)
    sizes = [40, 40, 40, 300, 10]
    rig.client.waiting = [*map(valued, range(5), sizes), message(5, error=EOF)]
    metadata_of_0, batches = None, []
    for _ in range(5):
        offsets, metadata = batch(rig, p0=metadata_of_0)
        metadata_of_0 = metadata["a@0"]
        batches.append(offsets)
    assert batches == [[0, 1], [2], [3], [4], []]
    assert (metadata_of_0["firstOffset"], metadata_of_0["lastOffset"]) == (4, 4), (
        "an empty batch changes nothing"
    )


def test_a_bounded_job_ends_only_when_all_fetched_messages_are_emitted(
    new_batch_rig: NewBatchRig,
) -> None:
    rig = new_batch_rig(KafkaOpaque, (0, 5), bytes=5, until_end=True)
    rig.client.waiting = [*(valued(offset, 3) for offset in range(5)), message(5, error=EOF)]
    metadata_of_0, batches = None, []
    while metadata_of_0 is None or not rig.spout.is_end("a@0", metadata_of_0):
        offsets, metadata = batch(rig, p0=metadata_of_0)
        metadata_of_0 = metadata["a@0"]
        batches.append(offsets)
        assert len(batches) < 9
    assert batches == [[0], [1], [2], [3], [4]]


def test_offsets_without_a_record_belong_to_the_extent_of_a_batch(
    new_batch_rig: NewBatchRig,
) -> None:
    rig = new_batch_rig(KafkaOpaque, (0, 9))
    rig.client.waiting = [message(3), message(5), message(9, error=EOF)]
    offsets, metadata = batch(rig, p0=None)
    assert offsets == [3, 5]
    assert Extent.of(metadata["a@0"], "a@0").end == 9


def test_partitions_whose_bounds_are_unknown_are_left_out(new_batch_rig: NewBatchRig) -> None:
    rig = new_batch_rig(KafkaOpaque)
    rig.client.bounds_of = {A1: (0, 1)}
    rig.client.waiting = [message(0, 1), message(1, 1, error=EOF)]
    offsets, metadata = batch(rig, p0=None, p1=None)
    assert (offsets, [*metadata]) == ([0], ["a@1"])
    rig.client.bounds_of = {}
    assert batch(rig, p0=None) == ([], {})
    assert rig.clock.now() > 0, "the spout waits before it asks again"


@pytest.mark.parametrize("same_deployment", [True, False])
def test_a_topic_that_was_created_again_fails_its_batch_unless_shortened_is_given(
    new_batch_rig: NewBatchRig, same_deployment: bool
) -> None:
    for where, after in ((None, 0), (StartPosition.EARLIEST, 0), (StartPosition.LATEST, 2)):
        rig = new_batch_rig(
            KafkaOpaque, (0, 2), first=StartPosition.UNCOMMITTED_EARLIEST, shortened=where
        )
        deployment = rig.spout.deployment if same_deployment else "before"
        ours = Extent(0, 50, f"t-{deployment}").kept()
        if where is None:
            for _ in range(2):
                rig.client.waiting = [message(50, error=RESET)]
                expected = r"a\[0\] ends at 2, and 50 was to be read next: .*shortened=StartPos"
                with pytest.raises(FailedBatch, match=expected):
                    batch(rig, p0=ours)
            continue
        rig.client.waiting = [message(50, error=RESET)] if same_deployment else []
        offsets, metadata = batch(rig, p0=ours)
        assert offsets == []
        assert Extent.of(metadata["a@0"], "a@0").end == after
        rig.client.waiting = [*map(message, range(after, 2)), message(2, error=EOF)]
        assert batch(rig, p0=metadata["a@0"])[0] == [*range(after, 2)]


@pytest.mark.parametrize("same_deployment", [True, False])
def test_with_start_position_none_a_missing_offset_is_an_error(
    new_batch_rig: NewBatchRig, same_deployment: bool
) -> None:
    rig = new_batch_rig(KafkaOpaque, (60, 100), first=StartPosition.NONE)
    deployment = rig.spout.deployment if same_deployment else "before"
    metadata_of_0 = Extent(0, 50, f"t-{deployment}").kept()
    rig.client.waiting = [message(50, error=RESET)] if same_deployment else []
    with pytest.raises(BadOffset, match=r"a\[0\]: offset 50 .* from 60 up to 100"):
        batch(rig, p0=metadata_of_0)


def test_a_message_may_be_several_rows_of_its_batch(new_batch_rig: NewBatchRig) -> None:
    rows_of: list[Any] = [[("one",), ("two",)], [], [("three",)], None]
    source = {"translate": lambda record: rows_of[record.offset], "emits": ("word",)}
    rig = new_batch_rig(KafkaTransactional, (0, 4), source=source)
    rig.client.waiting = [*map(message, range(4)), message(4, error=EOF)]
    rows, metadata = rig.batch(p0=None)
    assert rows == [("one",), ("two",), ("three",)]
    assert Extent.of(metadata["a@0"], "a@0").count == 4, "it counts messages, not rows"
    rig.client.waiting = [*map(message, range(4)), message(4, error=EOF)]
    assert rig.again() == rows


def test_batches_continue_from_metadata_of_storm_and_of_other_deployments(
    new_batch_rig: NewBatchRig,
) -> None:
    rig = new_batch_rig(KafkaOpaque, (0, 12), first=StartPosition.UNCOMMITTED_EARLIEST)
    rig.client.waiting = [message(10), message(11), message(12, error=EOF)]
    metadata_of_0 = {"firstOffset": 5, "lastOffset": 9, "topologyId": "old-7"}
    assert batch(rig, p0=metadata_of_0)[0] == [10, 11]
    assert rig.client.reads == {A0: 10}
    with pytest.raises(StateMismatch, match=r"what is kept of a@0 is \{'offset': 5\}"):
        batch(rig, p0={"offset": 5})


def test_a_replayed_batch_with_other_records_is_incomplete(new_batch_rig: NewBatchRig) -> None:
    rig = new_batch_rig(KafkaTransactional, (0, 2))
    rig.client.waiting = [valued(0, 3), valued(1, 4), message(2, error=EOF)]
    assert batch(rig, p0=None)[0] == [0, 1]
    rig.client.waiting = [valued(0, 3), valued(1, 4)]
    assert [row.offset for row in rig.again()] == [0, 1]
    rig.client.waiting = [valued(0, 3), valued(1, 5)]
    with pytest.raises(IncompleteBatch, match="and 2 are there now, which are others"):
        rig.again()


def test_a_checksum_depends_on_keys_and_on_where_each_value_ends() -> None:
    def of(*pairs: tuple[bytes | None, bytes | None]) -> int:
        messages = [
            Message(topic="a", partition=0, offset=offset, key=key, value=value)
            for offset, (key, value) in enumerate(pairs)
        ]
        return checksum(messages)

    checksums = [
        of((b"k", b"ab"), (b"l", b"c")),
        of((b"k", b"a"), (b"l", b"bc")),
        of((b"l", b"ab"), (b"k", b"c")),
        of((b"kl", b"ab"), (b"", b"c")),
        of((b"kl", b"ab"), (None, b"c")),
        of((b"kl", b"abc"), (None, b"")),
        of((b"kl", b"abc"), (None, None)),
    ]
    assert len({*checksums}) == len(checksums)


def test_a_record_for_another_stream_fails_its_batch(new_batch_rig: NewBatchRig) -> None:
    rig = new_batch_rig(
        KafkaOpaque,
        (0, 1),
        source={"translate": lambda record: OnStream("odd", record), "emits": ("x",)},
    )
    rig.client.waiting = [message(0), message(1, error=EOF)]
    with pytest.raises(FailedBatch, match="a batch has one stream"):
        batch(rig, p0=None)


def test_invalid_options_are_refused_before_a_broker_is_asked() -> None:
    with pytest.raises(ConfigError, match="answer_s is 0"):
        BatchOptions(answer_s=0)
    with pytest.raises(ConfigError, match="shortened is"):
        BatchOptions(shortened=StartPosition.STORM)
    with pytest.raises(ConfigError, match="lack 'group"):
        KafkaOpaque({"bootstrap.servers": "b:1"}, topics=["a"])
    with pytest.raises(ConfigError, match="records is 0"):
        Bounds(records=0)


def test_both_kinds_become_trident_spouts_with_their_guarantee() -> None:
    opaque = as_trident_spout(KafkaOpaque(SETTINGS, topics=["a"]))
    again = as_trident_spout(KafkaTransactional(SETTINGS, topics=["a"]))
    assert (opaque.kind, opaque.commits) == (SpoutKind.OPAQUE, True)
    assert (again.kind, again.commits) == (SpoutKind.TRANSACTIONAL, False)
    assert partition_of(partition_name(Partition("a@b", 7))) == Partition("a@b", 7)
