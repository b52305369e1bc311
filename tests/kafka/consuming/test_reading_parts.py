"""Parts of the Kafka spout without a broker: formats, start positions, subscriptions, commits."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import wait
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack
import pytest

from sunshower.clock import ManualClock
from sunshower.errors import ConfigError, KafkaUnreachable, StaleGeneration, UnknownTopic
from sunshower.kafka.consuming.partition_reader import Committer
from sunshower.kafka.consuming.start_position import Start, StartPosition, StartTime, find_start
from sunshower.kafka.consuming.subscription import TopicSubscription
from sunshower.kafka.formats import Bytes, Json, MessagePack, Text
from sunshower.kafka.options import ByIndex
from sunshower.kafka.partitions.ports import (
    Committed,
    Offsets,
    Partition,
    RefreshedDirectory,
    RetainedOffsets,
)
from tests.kafka.groups import Topics, reader_context


class Word(NamedTuple):
    text: str
    count: int = 1


@dataclass
class Sum:
    a: int
    b: int


@pytest.mark.parametrize(
    ("form", "data", "expected"),
    [
        (Text(), "ä".encode(), "ä"),
        (Text("latin-1"), b"\xe4", "ä"),
        (Json(), b'{"a": [1]}', {"a": [1]}),
        (Json(Word), b'{"text": "x"}', Word("x")),
        (Json(Word), b'[{"text": "x"}, {"text": "y"}]', [Word("x"), Word("y")]),
        (Json(Word), b"[]", []),
        (Json(Sum), b'{"b": 2, "a": 1, "c": 3}', Sum(1, 2)),
        (MessagePack(), msgpack.packb([1, "a"]), [1, "a"]),
        (MessagePack(Word), msgpack.packb({"text": "x", "count": 4}), Word("x", 4)),
        (MessagePack(Word), msgpack.packb([{"text": "x"}]), [Word("x")]),
    ],
)
def test_a_format_decodes_bytes(form: Any, data: bytes, expected: Any) -> None:
    assert form.decoder("topic", "value")(data) == expected


def test_the_format_bytes_decodes_nothing() -> None:
    assert Bytes().decoder("topic", "value") is None


@pytest.mark.parametrize(
    ("form", "data", "expected_error"),
    [
        (Json(), b"{", "truncated"),
        (Json(Word), b"[1, 2, 3]", r"Word\[0\]: 1 is no object"),
        (Json(Word), b"7", "Word was expected, and it is 7"),
        (MessagePack(Word), msgpack.packb(["x", 2]), r"Word\[0\]: Word was expected"),
        (Json(Sum), b'{"a": 1}', "Sum without b"),
        (Text(), b"\xff", "invalid start byte"),
        (MessagePack(), b"\xc0\xc0", "extra data"),
    ],
)
def test_bytes_that_a_format_cannot_decode_raise(
    form: Any, data: bytes, expected_error: str
) -> None:
    with pytest.raises(Exception, match=expected_error):
        form.decoder("topic", "value")(data)


OURS = Committed(50, json.dumps({"topologyId": "t-1"}))
THEIRS = Committed(50, json.dumps({"topologyId": "t-0"}))
NONE = None


@pytest.mark.parametrize(
    ("where", "stored", "expected"),
    [
        (StartPosition.EARLIEST, OURS, 50),
        (StartPosition.EARLIEST, THEIRS, 10),
        (StartPosition.EARLIEST, NONE, 10),
        (StartPosition.LATEST, OURS, 50),
        (StartPosition.LATEST, THEIRS, 90),
        (StartPosition.UNCOMMITTED_EARLIEST, THEIRS, 50),
        (StartPosition.UNCOMMITTED_EARLIEST, NONE, 10),
        (StartPosition.UNCOMMITTED_LATEST, NONE, 90),
        (StartPosition.NONE, THEIRS, 50),
        (StartPosition.STORM, THEIRS, 50),
        (StartPosition.STORM, NONE, 90),
        (StartPosition.STORM_FORCED, THEIRS, 10),
        (StartPosition.STORM_FORCED, OURS, 50),
        (StartTime(7), OURS, 50),
        (StartTime(7), THEIRS, 33),
    ],
)
def test_where_a_partition_begins(where: Any, stored: Any, expected: int) -> None:
    assert find_start(where, stored, "t-1", RetainedOffsets(10, 90), stamped=33) == Start(expected)


OLD, LATE, BEYOND = Committed(3), Committed(75), Committed(95)
ANYONE, ANYONE_LATEST = StartPosition.UNCOMMITTED_EARLIEST, StartPosition.UNCOMMITTED_LATEST


@pytest.mark.parametrize(
    ("where", "stored", "behind_max", "expected"),
    [
        (StartTime(7), None, None, Start(90)),  # a time after all messages means the end
        # removed messages are skipped and reported, also where Storm begins at the start
        (ANYONE_LATEST, OLD, None, Start(10, (3, 10))),
        (StartPosition.STORM, OLD, None, Start(10, (3, 10))),
        (StartPosition.STORM_FORCED, Committed(3, OURS.metadata), 5, Start(10, (3, 10))),
        (StartPosition.STORM_FORCED, Committed(3, OURS.metadata), 50, Start(10, (3, 10))),
        # messages that are too far behind are skipped together with the removed ones
        (ANYONE, OLD, 20, Start(70, (3, 70))),
        (ANYONE, LATE, 20, Start(75)),
        # a commit beyond the end, because the topic was created again, is ignored
        (ANYONE, BEYOND, None, Start(10)),
        (ANYONE_LATEST, BEYOND, None, Start(90, (10, 90))),
    ],
)
def test_messages_skipped_at_the_start_are_reported(
    where: Any, stored: Committed | None, behind_max: int | None, expected: Start
) -> None:
    start = find_start(where, stored, "t-1", RetainedOffsets(10, 90), behind_max=behind_max)
    assert start == expected


@pytest.mark.parametrize("where", [ANYONE, ANYONE_LATEST])
def test_an_empty_topic_that_was_created_again_is_read_from_its_start(where: StartPosition) -> None:
    assert find_start(where, BEYOND, "t-1", RetainedOffsets(10, 10)) == Start(10)


def test_a_pattern_matches_whole_names_and_finds_new_topics() -> None:
    topics = Topics(orders=2, orders_old=1, more_orders=1)
    subscription = TopicSubscription(pattern="orders.*")
    names = ["orders[0]", "orders[1]", "orders_old[0]"]
    assert [str(partition) for partition in subscription.found(topics)] == names
    topics.counts["orders_new"] = 1
    assert len(subscription.found(topics)) == 4


def test_the_error_for_a_missing_partition_names_how_many_there_are() -> None:
    wanted = TopicSubscription(partitions=(Partition("a", 1), Partition("a", 5)))
    with pytest.raises(UnknownTopic, match=r"no partition a\[5\]; topic 'a' has 2"):
        wanted.found(Topics(a=2))


class Owner:
    """A group owner that only records its partitions."""

    def __init__(self) -> None:
        self.has: set[Partition] = set()

    def assigned(self, partitions: Collection[Partition]) -> None:
        assert not self.has & {*partitions}
        self.has |= {*partitions}

    def revoked(self, partitions: Collection[Partition], *, lost: bool) -> None:
        assert not lost
        self.has -= {*partitions}


def test_tasks_share_partitions_by_index_also_when_partitions_are_added() -> None:
    topics, clock = Topics(a=5), ManualClock()
    read = TopicSubscription(topics=("a",))
    tasks = [
        ByIndex(reader_context(read, topics, clock, index=index, tasks=3)) for index in range(3)
    ]
    owners = [Owner() for _ in tasks]

    def numbers() -> list[list[int]]:
        for task, owner in zip(tasks, owners, strict=True):
            task.look(owner)
        return [sorted(partition.number for partition in owner.has) for owner in owners]

    assert numbers() == [[0, 3], [1, 4], [2]]
    topics.counts["a"] = 7
    assert numbers() == [[0, 3], [1, 4], [2]], "it is not time to refresh yet"
    clock.advance(10.0)
    assert numbers() == [[0, 3, 6], [1, 4], [2, 5]]
    tasks[0].leave(owners[0])
    assert not owners[0].has


def test_an_index_beyond_the_tasks_is_refused() -> None:
    with pytest.raises(ConfigError, match="task 3 of 3"):
        ByIndex(reader_context(TopicSubscription(topics=("a",)), Topics(a=1), index=3, tasks=3))


class SlowOffsets(Offsets):
    """Offsets whose writes hang until `may_write` is set, and then have the next of `outcomes`."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.may_write = threading.Event()
        self.outcomes = list(outcomes)
        self.written: list[dict[Partition, Committed]] = []

    def read(self, partitions: Collection[Partition]) -> dict[Partition, Committed]:
        return {}

    def write(self, offsets: Mapping[Partition, Committed]) -> None:
        self.may_write.wait(120)
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if outcome is not None:
            raise outcome
        self.written.append(dict(offsets))


HERE = Partition("a", 0)


def test_a_hanging_commit_blocks_nothing_and_the_next_commit_has_the_newest_offsets() -> None:
    offsets = SlowOffsets()
    committer = Committer(offsets)
    for offset in range(1, 5):
        committer.begin({HERE: Committed(offset)})
    assert not committer.finish({HERE: Committed(5)}, 0.01)
    offsets.may_write.set()
    assert committer.finish({HERE: Committed(6)}, 120)
    assert [written[HERE].offset for written in offsets.written] == [1, 6]
    assert committer.finish({HERE: Committed(6)}, 120)
    assert committer.commits == 2, "an offset that is stored already is not written again"
    committer.close()


def test_an_unexpected_error_of_a_commit_is_raised_once_and_commits_continue() -> None:
    offsets = SlowOffsets(RuntimeError("odd"))
    offsets.may_write.set()
    committer = Committer(offsets)
    committer.begin({HERE: Committed(1)})
    assert committer._underway
    wait([committer._underway[0]], 30)
    with pytest.raises(RuntimeError, match="odd"):
        committer.begin({HERE: Committed(2)})
    assert committer.finish({HERE: Committed(3)}, 120)
    committer.close()


class SlowDirectory(Topics):
    """A directory; while it is unavailable, each request takes five seconds and fails."""

    def __init__(self, clock: ManualClock, **counts: int) -> None:
        super().__init__(**counts)
        self.clock, self.is_unavailable, self.asked = clock, False, 0

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        self.asked += 1
        if self.is_unavailable:
            self.clock.advance(5.0)
            raise KafkaUnreachable("unavailable")
        return super().partitions(topic)


@pytest.mark.parametrize("every_s", [2.0, 30.0])
def test_unavailable_brokers_are_asked_once_for_all_topics(every_s: float) -> None:
    clock = ManualClock()
    topics = SlowDirectory(clock, a=1, b=1, c=1)
    directory = RefreshedDirectory(topics, clock, every_s=every_s)
    read = TopicSubscription(topics=("a", "b", "c"))
    group = ByIndex(reader_context(read, directory, clock, refresh_s=every_s))
    owner = Owner()
    group.look(owner)
    topics.is_unavailable = True
    for asked in (4, 5):
        clock.advance(every_s)
        group.look(owner)
        directory.refresh()
        group.look(owner)
        assert (topics.asked, len(owner.has)) == (asked, 3)
    topics.is_unavailable, topics.counts["c"] = False, 2
    clock.advance(every_s)
    group.look(owner)
    assert len(owner.has) == 4


def test_a_directory_without_an_answer_asks_again_at_each_call() -> None:
    clock = ManualClock()
    topics = SlowDirectory(clock, a=1)
    topics.is_unavailable = True
    directory = RefreshedDirectory(topics, clock)
    with pytest.raises(KafkaUnreachable):
        directory.partitions("a")
    topics.is_unavailable = False
    assert len(directory.partitions("a")) == 1


def test_partitions_are_returned_also_if_another_thread_refreshes_meanwhile() -> None:
    directory = RefreshedDirectory(Topics(a=2), ManualClock())

    class Cleared(dict[Any, float]):
        """Is cleared after each look-up, as if by another thread."""

        def __contains__(self, key: object) -> bool:
            is_present = super().__contains__(key)
            self.clear()
            return is_present

    directory._asked_s = Cleared()
    for _ in range(2):
        assert len(directory.partitions("a")) == 2


def test_stale_and_failed_commits_are_counted_and_tried_again() -> None:
    offsets = SlowOffsets(StaleGeneration("old"), KafkaUnreachable("away"))
    offsets.may_write.set()
    committer = Committer(offsets)
    wanted = {HERE: Committed(1)}
    assert not committer.finish(wanted, 30)
    assert (committer.stale, committer.failed) == (1, 0)
    assert not committer.finish(wanted, 30)
    assert (committer.stale, committer.failed) == (1, 1)
    assert committer.finish(wanted, 30)
    assert (committer.stale, committer.failed, committer.commits) == (1, 1, 1)
    committer.close()
