"""A consumer group in ZooKeeper, step by step: each partition has at most one reader."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from sunshower.errors import (
    ConfigError,
    KafkaError,
    KafkaUnreachable,
    NotAuthorised,
    StoreForbidden,
    StoreUnreachable,
    UnknownTopic,
)
from sunshower.kafka.consuming.subscription import TopicSubscription
from sunshower.kafka.partitions.ports import Partition, RefreshedDirectory
from sunshower.kafka.zookeeper import group as zookeeper_group
from sunshower.kafka.zookeeper.group import (
    SUSPENDED_MAX_S,
    Rule,
    Streams,
    StreamThread,
    ThreadAssignment,
    by_range_of_threads,
    round_robin_of_threads,
)
from sunshower.kafka.zookeeper.options import ByZooKeeperGroup
from tests.kafka.groups import GroupRig, Topics, raises, reader_context


def numbers_of(partitions: set[Partition]) -> list[int]:
    return sorted(partition.number for partition in partitions)


# ---- assignment ---------------------------------------------------------------------------------


def test_all_members_compute_the_same_assignment() -> None:
    rig = GroupRig(Topics(t=4))
    first, second = rig.join(streams=2), rig.join()
    rig.settle()
    assert numbers_of(first.reads) == [0, 1, 2]
    assert numbers_of(second.reads) == [3]


def test_a_member_may_have_another_number_of_streams_for_each_topic() -> None:
    rig = GroupRig(Topics(t=4, u=4))
    first, second = rig.join(streams={"t": 3, "u": 1}), rig.join(streams={"t": 1, "u": 3})
    rig.settle()
    assert [len(first.reads), len(second.reads)] == [3 + 1, 1 + 3]
    rig = GroupRig(Topics(t=4, u=4), rule=round_robin_of_threads)
    for _ in range(2):
        rig.join(streams={"t": 2, "u": 2})
    rig.settle()
    assert len(rig.owners()) == 8


def by_rack(
    partitions: Collection[Partition], streams: Streams, data: Mapping[str, Any]
) -> ThreadAssignment:
    """Partition n goes to the member of rack n; those of other racks to nobody."""
    racks = {data[member]["rack"]: StreamThread(member, 0) for member in streams}
    return {
        thread: tuple(partition for partition in partitions if partition.number == rack)
        for rack, thread in racks.items()
    }


def test_a_rule_of_the_user_gets_the_data_of_each_member() -> None:
    rig = GroupRig(Topics(t=3), rule=by_rack)
    first, second = rig.join(data={"rack": 2}), rig.join(data={"rack": 0})
    rig.settle()
    assert (numbers_of(first.reads), numbers_of(second.reads)) == ([2], [0])
    third = rig.join(data={"rack": 1})
    rig.settle()
    assert numbers_of(third.reads) == [1]
    assert rig.owners().keys() == rig.all()
    (node, *_) = (
        rig.tree.get(f"/consumers/g/ids/{m}") for m in rig.tree.children("/consumers/g/ids")
    )
    assert node
    assert json.loads(node.value)["userData"] in [{"rack": number} for number in range(3)]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda _, __: None,
        lambda partitions, streams: dict.fromkeys(streams, partitions),
        lambda partitions, _: {StreamThread("m", 0): partitions[0]},
        lambda partitions, _: {StreamThread("m", 0): [part.number for part in partitions]},
        lambda _, __: {StreamThread("m", 0): [Partition("t", 7)]},
    ],
)
def test_what_a_rule_may_not_return_is_named(wrong: Rule) -> None:
    rig = GroupRig(Topics(t=2), rule=wrong)
    rig.join()
    with pytest.raises(ConfigError, match=r"the rule of /consumers/g returned .*StreamThread"):
        rig.settle()


def by_nothing(partitions: Collection[Partition], streams: Streams) -> ThreadAssignment:
    return {}


@pytest.mark.parametrize(
    ("rule", "data"), [(by_range_of_threads, str), (by_nothing, str), (by_rack, None)]
)
def test_a_rule_takes_data_if_members_have_data(rule: Rule, data: Any) -> None:
    with pytest.raises(ConfigError, match=rf"rule, {rule.__name__}, must take \(partitions, str"):
        ByZooKeeperGroup("zk:2181", "g", rule=rule, data=data)
    ByZooKeeperGroup("zk:2181", "g", rule=rule, data=str if data is None else None)


@pytest.mark.parametrize("data", [{1, 2}, math.nan])
def test_data_of_a_task_are_a_value_of_json(data: Any) -> None:
    with pytest.raises(ConfigError, match="no value of JSON"):
        GroupRig(Topics(t=1)).join(data=data)


def test_a_rule_and_data_are_functions() -> None:
    with pytest.raises(ConfigError, match="data is 'rack-1'"):
        ByZooKeeperGroup("zk:2181", "g", data="rack-1")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="rule is 'range'"):
        ByZooKeeperGroup("zk:2181", "g", rule="range")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("topics", "streams", "expected"),
    [
        (["t", "u"], {"t": 1}, "streams by topic are given for t;"),
        (re.compile("t"), {"t": 1}, "one number for all"),
        (["t"], {"t": 0}, "streams of t is 0"),
        (["t"], 0, "streams is 0"),
    ],
)
def test_invalid_numbers_of_streams_are_refused(topics: Any, streams: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        GroupRig(Topics(t=1, u=1)).join(topics, streams=streams)


def test_nodes_are_as_kafkas_own_consumer_writes_them() -> None:
    rig = GroupRig(Topics(t=1))
    rig.clock.advance(1234.5)
    rig.join(streams=2)
    rig.settle()
    [name] = rig.tree.children("/consumers/g/ids")
    assert re.fullmatch(r"g_host0001-1235000-[0-9a-f]{8}", name)
    node = rig.tree.get(f"/consumers/g/ids/{name}")
    assert node
    assert node.ephemeral
    assert json.loads(node.value) == {
        "version": 1,
        "subscription": {"t": 2},
        "pattern": "static",
        "timestamp": "1235000",
    }
    assert rig.in_zookeeper() == {Partition("t", 0): f"{name}-0"}


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (TopicSubscription(pattern="t{1,3}"), r"has a comma.*write 'a\|b'"),
        (TopicSubscription(pattern="orders,words"), r"has a comma.*write 'a\|b'"),
        (TopicSubscription(partitions=(Partition("t", 0),)), "a group shares whole topics"),
    ],
)
def test_a_subscription_that_a_group_cannot_share_is_refused_without_a_request(
    read: TopicSubscription, expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected):
        ByZooKeeperGroup("nowhere:1", "g")(reader_context(read))


def test_a_member_that_joins_gets_its_share_and_kept_partitions_are_not_stopped() -> None:
    rig = GroupRig(Topics(t=4))
    first = rig.join()
    rig.settle()
    second = rig.join()
    rig.settle()
    assert first.history == ["+t[0] t[1] t[2] t[3]", "-t[2] t[3]"]
    assert second.history == ["+t[2] t[3]"]


def test_the_partitions_of_a_member_that_leaves_go_to_others() -> None:
    rig = GroupRig(Topics(t=4))
    first, second = rig.join(), rig.join()
    rig.settle()
    rig.leave(first)
    rig.settle()
    assert numbers_of(second.reads) == [0, 1, 2, 3]
    assert len(rig.tree.children("/consumers/g/ids")) == 1


def test_a_look_without_changes_computes_no_assignment(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = Topics(t=4)
    rig = GroupRig(topics)
    cached: Any = RefreshedDirectory(topics, rig.clock, every_s=10.0)
    rig.topics = cached
    for _ in range(2):
        rig.join({"t"})
    rig.settle()
    views = []
    view = zookeeper_group._View
    monkeypatch.setattr(zookeeper_group, "_View", lambda *seen: views.append(seen) or view(*seen))
    for _ in range(100):
        for member in rig.members:
            member.look()
    assert not views
    topics.counts["t"] = 6
    rig.clock.advance(10.0)
    rig.settle()
    assert views
    assert sorted(rig.owners().values()) == [1, 1, 1, 2, 2, 2]


def test_a_claim_waits_until_the_previous_owner_has_released_the_partition() -> None:
    rig = GroupRig(Topics(t=2))
    slow = rig.join()
    rig.settle()
    fast = rig.join()
    for _ in range(20):
        rig.clock.advance(0.5)
        fast.look()
    assert fast.reads == set()
    assert numbers_of({*fast.group.waiting}) == [1]
    rig.settle()
    assert (numbers_of(slow.reads), numbers_of(fast.reads)) == ([0], [1])
    assert not fast.group.waiting


def test_a_partition_whose_reader_cannot_begin_is_assigned_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = GroupRig(Topics(t=2))
    member = rig.join()
    with monkeypatch.context() as patch:
        patch.setattr(member, "assigned", raises(UnknownTopic("not yet")))
        with pytest.raises(UnknownTopic):
            rig.settle()
        assert rig.in_zookeeper().keys() == rig.all()
    rig.settle()
    assert member.history == ["+t[0] t[1]"]


def test_members_beyond_the_number_of_partitions_are_idle_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = GroupRig(Topics(t=1))
    first, second = rig.join(), rig.join()
    rig.settle()
    assert (numbers_of(first.reads), numbers_of(second.reads)) == ([0], [])
    assert "host0002" in caplog.text
    assert "it is idle" in caplog.text


def test_each_group_reads_all_partitions() -> None:
    rig = GroupRig(Topics(t=3))
    members = [rig.join(group=name) for name in ("g", "g", "h")]
    rig.settle()
    assert [numbers_of(member.reads) for member in members] == [[0, 1], [2], [0, 1, 2]]


def test_new_partitions_are_shared_too_even_in_the_middle_of_a_rebalance() -> None:
    rig = GroupRig(Topics(t=2))
    first, second = rig.join(), rig.join()
    rig.settle()
    third = rig.join()
    rig.clock.advance(0.5)
    third.look()
    first.look()  # the first member has seen the third when partitions are added
    rig.topics.counts["t"] = 6
    rig.settle()
    assert [numbers_of(member.reads) for member in (first, second, third)] == [
        [0, 1],
        [2, 3],
        [4, 5],
    ]


def test_new_topics_that_match_a_pattern_are_shared_by_its_members() -> None:
    rig = GroupRig(Topics(log_a=2, other=1))
    first, second = (rig.join(re.compile("log_.*")) for _ in range(2))
    rig.settle()
    assert {**rig.owners()} == {Partition("log_a", 0): 1, Partition("log_a", 1): 2}
    rig.topics.counts["log_b"] = 2
    rig.settle()
    assert Partition("log_b", 0) in first.reads
    assert Partition("log_b", 1) in second.reads


def test_round_robin_is_refused_where_subscriptions_differ() -> None:
    rig = GroupRig(Topics(t=2, u=2), rule=round_robin_of_threads)
    rig.join(["t", "u"])
    rig.settle(2)
    rig.join(["t"])
    with pytest.raises(KafkaError, match="same topics"):
        rig.settle(4)


def test_round_robin_assigns_in_the_order_of_hashes() -> None:
    rig = GroupRig(Topics(t=12), rule=round_robin_of_threads)
    first, second = rig.join(), rig.join()
    rig.settle()
    assert numbers_of(first.reads) == [0, 2, 4, 6, 8, 10]
    assert numbers_of(second.reads) == [1, 3, 5, 7, 9, 11]


def test_a_node_that_is_no_member_is_an_error_with_its_path() -> None:
    rig = GroupRig(Topics(t=1))
    rig.tree.create("/consumers/g/ids/strange", b"hello")
    rig.join()
    with pytest.raises(KafkaError, match=r"/consumers/g/ids/strange .* b'hello'"):
        rig.settle(2)


# ---- sessions -----------------------------------------------------------------------------------


def test_a_session_that_ends_loses_its_partitions_and_the_next_one_is_a_new_member() -> None:
    rig = GroupRig(Topics(t=2))
    first, second = rig.join(), rig.join()
    rig.settle()
    names = rig.tree.children("/consumers/g/ids")
    first.expire()
    first.look()
    assert first.history[-1] == "!t[0]"
    rig.settle()
    assert sorted(rig.owners().values()) == [1, 2]
    assert len({*names} & {*rig.tree.children("/consumers/g/ids")}) == 1
    assert second.connection.calls


def test_a_short_outage_of_the_store_stops_no_member() -> None:
    rig = GroupRig(Topics(t=2))
    member = rig.join()
    rig.settle()
    member.suspend()
    rig.clock.advance(SUSPENDED_MAX_S - 0.1)
    member.look()
    member.resume(expired=False)
    rig.settle()
    assert member.history == ["+t[0] t[1]"]


@pytest.mark.parametrize("expired", [True, False])
def test_in_a_long_outage_of_the_store_a_member_stops_reading(expired: bool) -> None:
    rig = GroupRig(Topics(t=2))
    member = rig.join()
    rig.settle()
    member.suspend()
    rig.clock.advance(SUSPENDED_MAX_S)
    member.look()
    assert member.history[-1] == "!t[0] t[1]", "its nodes may belong to another member by now"
    for _ in range(3):
        rig.clock.advance(10.0)
        with pytest.raises(KafkaUnreachable, match="/consumers/g"):
            member.look()
    member.resume(expired=expired)
    rig.settle()
    assert numbers_of(member.reads) == [0, 1]


def test_a_member_whose_node_was_removed_joins_again() -> None:
    rig = GroupRig(Topics(t=2))
    member = rig.join()
    rig.settle()
    [name] = rig.tree.children("/consumers/g/ids")
    rig.tree.delete(f"/consumers/g/ids/{name}")
    rig.settle()
    assert numbers_of(member.reads) == [0, 1]
    [other] = rig.tree.children("/consumers/g/ids")
    assert other != name


def test_a_member_that_cannot_join_raises_at_once() -> None:
    rig = GroupRig(Topics(t=1))
    member = rig.join()
    member.connection.before = raises(StoreUnreachable("unavailable"))
    with pytest.raises(KafkaUnreachable, match="/consumers/g cannot be joined: unavailable"):
        member.look()
    member.connection.before = raises(StoreForbidden("another name and password are wanted"))
    with pytest.raises(NotAuthorised, match="/consumers/g cannot be joined: another name"):
        member.look()
