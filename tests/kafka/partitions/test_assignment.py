"""Who gets which partition: the tables of both consumers and of Storm, and what holds for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.errors import ConfigError, KafkaError
from sunshower.kafka.partitions.assignment import (
    Streams,
    Thread,
    by_range,
    by_range_of_threads,
    idle,
    java_hash,
    modulo,
    round_robin,
    round_robin_of_threads,
)
from sunshower.kafka.partitions.ports import Partition


def of(topic: str, count: int) -> list[Partition]:
    return [Partition(topic, number) for number in range(count)]


def short(partitions: Iterable[Partition]) -> str:
    return " ".join(f"{topic}p{number}" for topic, number in partitions)


# ---- by task ------------------------------------------------------------------------------------


def test_task_one_of_three_takes_one_and_four_of_five() -> None:
    assert short(modulo(of("t", 5), 3, 1)) == "tp1 tp4"


def test_partitions_of_several_topics_are_one_row() -> None:
    both = [*of("t1", 3), *of("t0", 2)]
    assert short(modulo(both, 2, 0)) == "t0p0 t1p0 t1p2"
    assert short(modulo(both, 2, 1)) == "t0p1 t1p1"


@pytest.mark.parametrize("index", [-1, 3, 4])
def test_task_beyond_the_number_of_tasks_is_an_error(index: int) -> None:
    with pytest.raises(ConfigError, match=f"task {index} of 3 .* from 0 to 2"):
        modulo(of("t", 5), 3, index)


def test_tasks_beyond_the_number_of_partitions_are_idle() -> None:
    assert [len(modulo(of("t", 2), 4, index)) for index in range(4)] == [1, 1, 0, 0]
    assert idle(of("t", 2), 4) == 2
    assert idle(of("t", 5), 4) == 0


# ---- the consumer of Kafka's brokers -----------------------------------------------------------

TWO_TOPICS = [*of("t0", 3), *of("t1", 3)]
TWO_MEMBERS = {"c0": ["t0", "t1"], "c1": ["t0", "t1"]}


def test_range_gives_runs_of_each_topic() -> None:
    assigned = by_range(TWO_TOPICS, TWO_MEMBERS)
    assert short(assigned["c0"]) == "t0p0 t0p1 t1p0 t1p1"
    assert short(assigned["c1"]) == "t0p2 t1p2"


def test_first_members_of_a_range_get_one_more_in_every_topic() -> None:
    topics = [f"t{number}" for number in range(10)]
    all_of_them = [partition for topic in topics for partition in of(topic, 3)]
    assigned = by_range(all_of_them, {"c0": topics, "c1": topics})
    assert {member: len(some) for member, some in assigned.items()} == {"c0": 20, "c1": 10}


def test_range_counts_only_those_who_subscribe_to_the_topic() -> None:
    assigned = by_range(TWO_TOPICS, {"c0": ["t0"], "c1": ["t0", "t1"], "c2": []})
    assert short(assigned["c0"]) == "t0p0 t0p1"
    assert short(assigned["c1"]) == "t0p2 t1p0 t1p1 t1p2"
    assert assigned["c2"] == ()


def test_round_robin_deals_all_topics_in_one_circle() -> None:
    assigned = round_robin(TWO_TOPICS, TWO_MEMBERS)
    assert short(assigned["c0"]) == "t0p0 t0p2 t1p1"
    assert short(assigned["c1"]) == "t0p1 t1p0 t1p2"


def test_round_robin_passes_over_who_does_not_subscribe() -> None:
    assigned = round_robin(TWO_TOPICS, {"c0": ["t0", "t1"], "c1": ["t1"]})
    assert short(assigned["c0"]) == "t0p0 t0p1 t0p2 t1p1"
    assert short(assigned["c1"]) == "t1p0 t1p2"


# ---- the consumer of ZooKeeper ------------------------------------------------------------------


def test_range_counts_stream_threads_and_not_members() -> None:
    assigned = by_range_of_threads(of("t", 4), {"c0": {"t": 2}, "c1": {"t": 1}})
    assert short(assigned[Thread("c0", 0)]) == "tp0 tp1"
    assert short(assigned[Thread("c0", 1)]) == "tp2"
    assert short(assigned[Thread("c1", 0)]) == "tp3"


def test_threads_are_sorted_as_strings() -> None:
    assigned = by_range_of_threads(of("t", 11), {"c": {"t": 11}})
    assert [thread.number for thread in assigned] == [0, 1, 10, *range(2, 10)]
    assert short(assigned[Thread("c", 10)]) == "tp2"


def test_names_are_sorted_as_java_sorts_them() -> None:
    private, beyond = "\uffee", "\U00010000"  # by their UTF-16 units, the other way round
    assigned = by_range(of("t", 2), {private: ["t"], beyond: ["t"]})
    assert short(assigned[beyond]) == "tp0"


def test_java_hashes_strings_like_this() -> None:
    assert java_hash("") == 0
    assert java_hash("[t0,0]") == -1581112286
    assert java_hash("[Aa,0]") == java_hash("[BB,0]")
    assert java_hash("\U0001f327") == 31 * 0xD83C + 0xDF27


def test_round_robin_of_threads_deals_in_the_order_of_hashes() -> None:
    assigned = round_robin_of_threads(of("t", 12), {"c": {"t": 1}})
    assert [one.number for one in assigned[Thread("c", 0)]] == [10, 11, *range(10)]
    shared = round_robin_of_threads(of("t", 12), {"c0": {"t": 2}, "c1": {"t": 1}})
    assert short(shared[Thread("c0", 0)]) == "tp10 tp1 tp4 tp7"
    assert short(shared[Thread("c0", 1)]) == "tp11 tp2 tp5 tp8"
    assert short(shared[Thread("c1", 0)]) == "tp0 tp3 tp6 tp9"


def test_equal_hashes_are_ordered_by_topic_then_partition() -> None:
    both = [*of("BB", 1), *of("Aa", 1)]
    assigned = round_robin_of_threads(both, {"c": {"Aa": 1, "BB": 1}})
    assert short(assigned[Thread("c", 0)]) == "Aap0 BBp0"


@pytest.mark.parametrize(
    "streams",
    [{"c0": {"t0": 1, "t1": 2}}, {"c0": {"t0": 1, "t1": 1}, "c1": {"t0": 1}}],
    ids=["other numbers of streams", "other topics"],
)
def test_round_robin_of_threads_wants_equal_subscriptions(streams: Streams) -> None:
    with pytest.raises(KafkaError, match=r"same topics.*t0: c0-0.*; t1: c0-0"):
        round_robin_of_threads(TWO_TOPICS, streams)


def test_members_of_a_round_robin_may_have_different_numbers_of_streams() -> None:
    assigned = round_robin_of_threads(
        TWO_TOPICS, {"c0": {"t0": 2, "t1": 2}, "c1": dict.fromkeys(["t0", "t1"], 1)}
    )
    assert sorted(map(len, assigned.values())) == [2, 2, 2]


# ---- what holds for all -------------------------------------------------------------------------

TOPICS = [f"t{number}" for number in range(4)]
MEMBERS = [f"c{number}" for number in (0, 1, 2, 10, 11)]
partitions_of_topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12)).map(
    lambda counts: [one for topic, count in counts.items() for one in of(topic, count)]
)
subscriptions = st.dictionaries(st.sampled_from(MEMBERS), st.sets(st.sampled_from(TOPICS)))
streams = st.dictionaries(
    st.sampled_from(MEMBERS), st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 3))
)
equal_streams = st.builds(
    lambda counts, topics: {member: dict.fromkeys(topics, n) for member, n in counts.items()},
    st.dictionaries(st.sampled_from(MEMBERS), st.integers(1, 3)),
    st.sets(st.sampled_from(TOPICS), min_size=1),
)


def owned_once(assigned: Iterable[Collection[Partition]], expected: Iterable[Partition]) -> bool:
    return Counter(one for some in assigned for one in some) == Counter(expected)


@given(partitions_of_topics, st.integers(1, 9))
def test_modulo_gives_each_partition_to_one_task(partitions: list[Partition], tasks: int) -> None:
    assigned = [modulo(partitions, tasks, index) for index in range(tasks)]
    assert owned_once(assigned, partitions)
    assert max(map(len, assigned)) - min(map(len, assigned)) <= 1
    assert sum(not some for some in assigned) == idle(partitions, tasks)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(1, 9))
def test_new_partitions_of_one_topic_move_none_of_the_old(old: int, new: int, tasks: int) -> None:
    for index in range(tasks):
        before, after = modulo(of("t", old), tasks, index), modulo(of("t", old + new), tasks, index)
        assert after[: len(before)] == before


@given(partitions_of_topics, subscriptions, st.randoms(use_true_random=False))
def test_each_partition_goes_to_one_member_that_wants_it(
    partitions: list[Partition], wanted: dict[str, set[str]], random: Random
) -> None:
    known = set().union(*wanted.values()) if wanted else set()
    shuffled = random.sample(partitions, len(partitions))
    other = {member: wanted[member] for member in random.sample(sorted(wanted), len(wanted))}
    for rule in (by_range, round_robin):
        assigned = rule(partitions, wanted)
        assert assigned.keys() == wanted.keys()
        assert owned_once(assigned.values(), [one for one in partitions if one.topic in known])
        assert all(one.topic in wanted[who] for who, some in assigned.items() for one in some)
        assert rule(shuffled, other) == assigned, "the order of what is given says nothing"


@given(partitions_of_topics, st.integers(1, 5))
def test_members_with_equal_subscriptions_have_about_as_many(
    partitions: list[Partition], members: int
) -> None:
    equal = dict.fromkeys(MEMBERS[:members], TOPICS)
    dealt = [len(some) for some in round_robin(partitions, equal).values()]
    assert max(dealt) - min(dealt) <= 1
    for topic in TOPICS:
        runs = [
            [one.number for one in some if one.topic == topic]
            for some in by_range(partitions, equal).values()
        ]
        assert max(map(len, runs)) - min(map(len, runs)) <= 1
        assert all(run == list(range(run[0], run[0] + len(run))) for run in runs if run)


@given(partitions_of_topics, subscriptions)
def test_range_of_a_topic_does_not_depend_on_others(
    partitions: list[Partition], wanted: dict[str, set[str]]
) -> None:
    whole = by_range(partitions, wanted)
    for topic in TOPICS:
        alone = by_range([one for one in partitions if one.topic == topic], wanted)
        assert alone == {
            who: tuple(one for one in some if one.topic == topic) for who, some in whole.items()
        }


@given(partitions_of_topics, subscriptions)
def test_member_without_subscriptions_changes_nothing(
    partitions: list[Partition], wanted: dict[str, set[str]]
) -> None:
    for rule in (by_range, round_robin):
        assert rule(partitions, wanted | {"aaa": set()}) == {"aaa": ()} | rule(partitions, wanted)


@given(partitions_of_topics, streams)
def test_each_partition_goes_to_one_thread_that_reads_its_topic(
    partitions: list[Partition], read: dict[str, dict[str, int]]
) -> None:
    assigned = by_range_of_threads(partitions, read)
    known = {topic for topics in read.values() for topic in topics}
    assert owned_once(assigned.values(), [one for one in partitions if one.topic in known])
    for thread, some in assigned.items():
        assert all(thread.number < read[thread.member][one.topic] for one in some)


@given(partitions_of_topics, equal_streams)
def test_dealt_to_threads_each_has_about_as_many(
    partitions: list[Partition], read: dict[str, dict[str, int]]
) -> None:
    assigned = round_robin_of_threads(partitions, read)
    known = {topic for topics in read.values() for topic in topics}
    assert owned_once(assigned.values(), [one for one in partitions if one.topic in known])
    counts = [len(some) for some in assigned.values()] or [0]
    assert max(counts) - min(counts) <= 1
