"""Failed messages that are read from Kafka again: which are found, which are gone, what is read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition

from sunshower import Retry
from sunshower.dev.kafka import Kafka
from sunshower.errors import ConfigError, NotAuthorised
from sunshower.kafka.consuming.partition_reader import Gone, Refetcher, Skipped
from sunshower.kafka.options import Guarantee, KafkaOptions
from sunshower.kafka.partitions.ports import Partition
from sunshower.kafka.spout import KafkaSpout
from tests.kafka.fakes import EOF, FORBIDDEN, SETTINGS, LogClient, message
from tests.kafka.stage import Seen, running, topology
from tests.kafka.topics import WITHIN_S, admin, fill, new_topic

A, B = Partition("a", 0), Partition("a", 1)
REMOVED, COMPACTED = "it was removed", "it was compacted away"


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> LogClient:
    client = LogClient({0: range(100), 1: range(100)})
    monkeypatch.setattr("sunshower.kafka.consuming.partition_reader.Consumer", lambda _: client)
    return client


def find(refetcher: Refetcher, limit: int = 1000, **wanted: Collection[int]) -> Any:
    """(partition, offset) of each message that was found, and the messages that are gone."""
    offsets = {
        Partition("a", int(p[1:])): np.array(numbers, np.int64) for p, numbers in wanted.items()
    }
    messages, gone = refetcher.find(offsets, limit)
    return [(message.partition(), message.offset()) for message in messages], gone


def test_only_wanted_messages_are_found_and_afterwards_nothing_is_read(source: LogClient) -> None:
    refetcher = Refetcher(SETTINGS)
    assert find(refetcher, p0=[7, 9], p1=[3]) == ([(0, 7), (0, 9), (1, 3)], [])
    assert source.reads == {}
    refetcher.close()
    assert source.closed


def test_the_reader_reads_up_to_near_offsets_and_seeks_to_distant_ones(source: LogClient) -> None:
    source.logs[0] = range(10_000)
    refetcher = Refetcher(SETTINGS)
    wanted = [10, 500, 9_000]
    messages_read: list[Any] = []
    while wanted:
        messages, _ = find(refetcher, 100, p0=wanted)
        messages_read += messages
        wanted = [offset for offset in wanted if (0, offset) not in messages_read]
    assert messages_read == [(0, 10), (0, 500), (0, 9_000)]
    assert source.seeks == [(A, 10), (A, 9_000)]
    assert source.taken < 1_000


def test_the_reader_seeks_back_to_an_earlier_offset(source: LogClient) -> None:
    refetcher = Refetcher(SETTINGS)
    assert find(refetcher, 3, p0=[20, 90])[0] == [(0, 20)]
    assert find(refetcher, 3, p0=[5, 90])[0] == [(0, 5)]
    assert source.seeks == [(A, 20), (A, 5)]


def test_compacted_messages_are_gone_also_at_the_end(source: LogClient) -> None:
    source.logs[0], source.ends[0] = [3, 5], 100
    messages, gone = find(Refetcher(SETTINGS), p0=[4, 5, 80])
    assert messages == [(0, 5)]
    assert gone == [Gone(A, 4, COMPACTED), Gone(A, 80, COMPACTED)]


def test_removed_messages_are_gone_and_the_others_are_found(source: LogClient) -> None:
    source.logs[0] = range(50, 100)
    refetcher = Refetcher(SETTINGS)
    assert find(refetcher, p0=[4, 49, 60]) == ([], [Gone(A, 4, REMOVED), Gone(A, 49, REMOVED)])
    assert find(refetcher, p0=[60]) == ([(0, 60)], [])


def test_messages_beyond_the_end_of_a_shortened_topic_are_gone(source: LogClient) -> None:
    source.logs[0] = range(10)
    _, (gone,) = find(Refetcher(SETTINGS), p0=[40])
    assert gone[:2] == (A, 40)
    assert "ends at 10" in gone.why


def test_unknown_bounds_are_requested_again(source: LogClient) -> None:
    source.logs[0], source.is_cut = range(50, 100), True
    refetcher = Refetcher(SETTINGS)
    assert find(refetcher, p0=[4, 60]) == ([], [])
    source.is_cut = False
    assert find(refetcher, p0=[4, 60]) == ([], [Gone(A, 4, REMOVED)])
    assert find(refetcher, p0=[60]) == ([(0, 60)], [])


def test_an_error_loses_no_message(source: LogClient) -> None:
    source.first_messages = [message(0, 7, error=FORBIDDEN, topic="a")]
    refetcher = Refetcher(SETTINGS)
    with pytest.raises(NotAuthorised):
        find(refetcher, p0=[4])
    assert find(refetcher, p0=[4]) == ([(0, 4)], [])


def test_transient_errors_and_unwanted_messages_are_ignored(source: LogClient) -> None:
    refetcher = Refetcher(SETTINGS)
    source.first_messages = [
        message(0, 0, error=ClientError._TRANSPORT),
        message(0, 3, error=EOF),
        message(11, 3),
    ]
    assert find(refetcher, p0=[4]) == ([(0, 4)], [])
    find(refetcher, 1, p0=[4, 90])
    refetcher.stop()
    assert source.reads == {}


def test_refetch_without_a_guarantee_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"refetch=True with Guarantee\.NONE"):
        KafkaOptions(refetch=True, guarantee=Guarantee.NONE)


def test_failed_messages_are_read_from_the_brokers_again(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap, 2)
    for partition in range(2):
        fill(kafka.bootstrap, topic, [b"%d" % number for number in range(20)], partition)
    failed: set[tuple[int, int]] = set()

    def refuses(record: Any) -> bool:
        place = (record.partition, record.offset)
        first = place not in failed
        failed.add(place)
        if first and place == (1, 8):
            position = TopicPartition(topic, 1, 9)
            admin(kafka.bootstrap).delete_records([position])[position].result(WITHIN_S)
        return place == (0, 5) or (first and place in {(0, 3), (1, 8)})

    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": topic}
    options = KafkaOptions(refetch=True, commit_s=0.1)
    retry = Retry(attempts=2, initial_s=0.01, dead_letters=True)
    program = topology(
        KafkaSpout(settings, topics=[topic], options=options), Seen(refuses), retry=retry
    )
    with running(program) as run:
        run.until(lambda: run.contiguous() == {f"{topic}[0]": 20, f"{topic}[1]": 20})
        assert len(run.records()) == 38
        letters = {letter.message_id[1:3]: letter for letter in run.records("letters")}
        assert letters[0, 5].record["value"] == "b'5'"
        assert letters[1, 8].record == {"topic": topic, "partition": 1, "offset": 8}
        assert "offset 8 is gone: it was removed; before that it failed" in letters[1, 8].reason
        assert run.spout().result()["skipped"] == [
            Skipped(Partition(topic, 1), 8, 9, "it was removed")
        ]
