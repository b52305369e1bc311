"""Which task or thread gets which partition: Storm's rule, and those of ZooKeeper groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.errors import ConfigError, KafkaError
from sunshower.kafka.options import modulo
from sunshower.kafka.partitions.ports import Partition
from sunshower.kafka.zookeeper.group import (
    Streams,
    StreamThread,
    ThreadAssignment,
    by_range_of_threads,
    java_hash,
    round_robin_of_threads,
)


def partitions_of(topic: str, count: int) -> list[Partition]:
    return [Partition(topic, number) for number in range(count)]


def as_text(partitions: Iterable[Partition]) -> str:
    return " ".join(f"{topic}p{number}" for topic, number in partitions)


def as_texts(assigned: ThreadAssignment) -> dict[str, str]:
    return {str(thread): as_text(partitions) for thread, partitions in assigned.items()}


# ---- by task ------------------------------------------------------------------------------------


def test_task_one_of_three_takes_one_and_four_of_five() -> None:
    assert as_text(modulo(partitions_of("t", 5), 3, 1)) == "tp1 tp4"
    # Partitions of several topics are sorted into one list.
    both = [*partitions_of("t1", 3), *partitions_of("t0", 2)]
    assert as_text(modulo(both, 2, 0)) == "t0p0 t1p0 t1p2"
    assert as_text(modulo(both, 2, 1)) == "t0p1 t1p1"


@pytest.mark.parametrize("index", [-1, 3, 4])
def test_task_beyond_the_number_of_tasks_is_an_error(index: int) -> None:
    with pytest.raises(ConfigError, match=f"task {index} of 3 .* from 0 to 2"):
        modulo(partitions_of("t", 5), 3, index)


# ---- by stream thread ---------------------------------------------------------------------------

TWO_TOPICS = [*partitions_of("t0", 3), *partitions_of("t1", 3)]


def test_range_assigns_consecutive_partitions_of_each_topic() -> None:
    both = {"t0": 1, "t1": 1}
    threads = as_texts(by_range_of_threads(TWO_TOPICS, {"c0": both, "c1": both}))
    assert threads == {"c0-0": "t0p0 t0p1 t1p0 t1p1", "c1-0": "t0p2 t1p2"}
    threads = as_texts(by_range_of_threads(TWO_TOPICS, {"c0": {"t0": 1}, "c1": both, "c2": {}}))
    assert threads == {"c0-0": "t0p0 t0p1", "c1-0": "t0p2 t1p0 t1p1 t1p2"}


def test_range_counts_stream_threads_and_not_members() -> None:
    threads = as_texts(by_range_of_threads(partitions_of("t", 4), {"c0": {"t": 2}, "c1": {"t": 1}}))
    assert threads == {"c0-0": "tp0 tp1", "c0-1": "tp2", "c1-0": "tp3"}


def test_threads_are_sorted_as_strings() -> None:
    assigned = by_range_of_threads(partitions_of("t", 11), {"c": {"t": 11}})
    assert [thread.number for thread in assigned] == [0, 1, 10, *range(2, 10)]
    assert as_text(assigned[StreamThread("c", 10)]) == "tp2"


def test_names_are_sorted_as_java_sorts_them() -> None:
    private, beyond = "\uffee", "\U00010000"  # sorted by UTF-16 units, `beyond` is the first
    assigned = by_range_of_threads(partitions_of("t", 2), {private: {"t": 1}, beyond: {"t": 1}})
    assert as_text(assigned[StreamThread(beyond, 0)]) == "tp0"


def test_java_hash_is_javas_hash_of_a_string() -> None:
    assert java_hash("") == 0
    assert java_hash("[t0,0]") == -1581112286
    assert java_hash("[Aa,0]") == java_hash("[BB,0]")
    assert java_hash("\U0001f327") == 31 * 0xD83C + 0xDF27


def test_round_robin_of_threads_assigns_in_the_order_of_hashes() -> None:
    assigned = round_robin_of_threads(partitions_of("t", 12), {"c": {"t": 1}})
    assert [partition.number for partition in assigned[StreamThread("c", 0)]] == [
        10,
        11,
        *range(10),
    ]
    threads = as_texts(
        round_robin_of_threads(partitions_of("t", 12), {"c0": {"t": 2}, "c1": {"t": 1}})
    )
    assert threads == {
        "c0-0": "tp10 tp1 tp4 tp7",
        "c0-1": "tp11 tp2 tp5 tp8",
        "c1-0": "tp0 tp3 tp6 tp9",
    }


def test_equal_hashes_are_ordered_by_topic_then_partition() -> None:
    both = [*partitions_of("BB", 1), *partitions_of("Aa", 1)]
    threads = as_texts(round_robin_of_threads(both, {"c": {"Aa": 1, "BB": 1}}))
    assert threads == {"c-0": "Aap0 BBp0"}


@pytest.mark.parametrize(
    "streams",
    [{"c0": {"t0": 1, "t1": 2}}, {"c0": {"t0": 1, "t1": 1}, "c1": {"t0": 1}}],
    ids=["other numbers of streams", "other topics"],
)
def test_round_robin_of_threads_requires_equal_subscriptions(streams: Streams) -> None:
    with pytest.raises(KafkaError, match=r"same topics.*t0: c0-0.*; t1: c0-0"):
        round_robin_of_threads(TWO_TOPICS, streams)


# ---- all rules ----------------------------------------------------------------------------------

TOPICS = [f"t{number}" for number in range(4)]
MEMBERS = [f"c{number}" for number in (0, 1, 2, 10, 11)]
partitions_of_topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12)).map(
    lambda counts: [
        partition for topic, count in counts.items() for partition in partitions_of(topic, count)
    ]
)
streams = st.dictionaries(
    st.sampled_from(MEMBERS), st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 3))
)
equal_streams = st.builds(
    lambda counts, topics: {member: dict.fromkeys(topics, n) for member, n in counts.items()},
    st.dictionaries(st.sampled_from(MEMBERS), st.integers(1, 3)),
    st.sets(st.sampled_from(TOPICS), min_size=1),
)


def owned_once(assigned: Iterable[Collection[Partition]], expected: Iterable[Partition]) -> bool:
    return Counter(partition for partitions in assigned for partition in partitions) == Counter(
        expected
    )


def about_equal(assigned: Collection[Collection[Partition]]) -> bool:
    counts = [len(partitions) for partitions in assigned] or [0]
    return max(counts) - min(counts) <= 1


@given(partitions_of_topics, st.integers(1, 9))
def test_modulo_gives_each_partition_to_one_task(partitions: list[Partition], tasks: int) -> None:
    assigned = [modulo(partitions, tasks, index) for index in range(tasks)]
    assert owned_once(assigned, partitions)
    assert about_equal(assigned)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(1, 9))
def test_new_partitions_of_a_topic_move_no_existing_partition(
    old: int, new: int, tasks: int
) -> None:
    for index in range(tasks):
        before, after = (
            modulo(partitions_of("t", old), tasks, index),
            modulo(partitions_of("t", old + new), tasks, index),
        )
        assert after[: len(before)] == before


@given(partitions_of_topics, streams, st.randoms(use_true_random=False))
def test_each_partition_goes_to_one_thread_that_reads_its_topic(
    partitions: list[Partition], subscriptions: dict[str, dict[str, int]], random: Random
) -> None:
    assigned = by_range_of_threads(partitions, subscriptions)
    known = {topic for topics in subscriptions.values() for topic in topics}
    assert owned_once(
        assigned.values(), [partition for partition in partitions if partition.topic in known]
    )
    for thread, owned in assigned.items():
        streams_of = subscriptions[thread.member]
        assert all(thread.number < streams_of[partition.topic] for partition in owned)
    for topic in TOPICS:  # the partitions of a topic are assigned independently of other topics
        alone = by_range_of_threads(
            [partition for partition in partitions if partition.topic == topic], subscriptions
        )
        runs = {
            owner: [partition for partition in owned if partition.topic == topic]
            for owner, owned in assigned.items()
        }
        assert {owner: [*owned] for owner, owned in alone.items()} == runs
        assert about_equal(
            [run for owner, run in runs.items() if topic in subscriptions[owner.member]]
        ) or any(count != 1 for topics in subscriptions.values() for count in topics.values())
    shuffled = random.sample(partitions, len(partitions))
    other = {
        member: subscriptions[member]
        for member in random.sample(sorted(subscriptions), len(subscriptions))
    }
    assert by_range_of_threads(shuffled, other) == assigned, "in any order"


@given(partitions_of_topics, equal_streams)
def test_round_robin_of_threads_gives_all_threads_about_as_many_partitions(
    partitions: list[Partition], subscriptions: dict[str, dict[str, int]]
) -> None:
    assigned = round_robin_of_threads(partitions, subscriptions)
    known = {topic for topics in subscriptions.values() for topic in topics}
    assert owned_once(
        assigned.values(), [partition for partition in partitions if partition.topic in known]
    )
    assert about_equal(assigned.values())
