"""A consumer group in ZooKeeper, step by step: each partition has at most one reader."""

from __future__ import annotations

import json
import re
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
from sunshower.kafka.options import ReaderContext
from sunshower.kafka.partitions.cached_directory import RefreshedDirectory
from sunshower.kafka.partitions.ports import Partition
from sunshower.kafka.zookeeper import group as zookeeper_group
from sunshower.kafka.zookeeper.options import ByZooKeeperGroup
from sunshower.kafka.zookeeper.thread_assignment import round_robin_of_threads
from tests.kafka.groups import TIMEOUTS, Stage, Topics, raises


def short(partitions: set[Partition]) -> list[int]:
    return sorted(one.number for one in partitions)


# ---- assignment ---------------------------------------------------------------------------------


def test_all_members_come_to_one_answer() -> None:
    stage = Stage(Topics(t=4))
    first, second = stage.join(streams=2), stage.join()
    stage.settle()
    assert short(first.reads) == [0, 1, 2]
    assert short(second.reads) == [3]


def test_a_member_may_have_another_number_of_streams_for_each_topic() -> None:
    stage = Stage(Topics(t=4, u=4))
    first, second = stage.join(streams={"t": 3, "u": 1}), stage.join(streams={"t": 1, "u": 3})
    stage.settle()
    assert [len(first.reads), len(second.reads)] == [3 + 1, 1 + 3]
    stage = Stage(Topics(t=4, u=4), rule=round_robin_of_threads)
    for _ in range(2):
        stage.join(streams={"t": 2, "u": 2})
    stage.settle()
    assert len(stage.owners()) == 8


@pytest.mark.parametrize(
    ("topics", "streams", "says"),
    [
        (["t", "u"], {"t": 1}, "streams by topic are given for t;"),
        (re.compile("t"), {"t": 1}, "one number for all"),
        (["t"], {"t": 0}, "streams of t is 0"),
        (["t"], 0, "streams is 0"),
    ],
)
def test_streams_that_cannot_be_are_refused(topics: Any, streams: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Stage(Topics(t=1, u=1)).join(topics, streams=streams)


def test_nodes_are_as_kafkas_own_consumer_writes_them() -> None:
    stage = Stage(Topics(t=1))
    stage.clock.advance(1234.5)
    stage.join(streams=2)
    stage.settle()
    [name] = stage.tree.children("/consumers/g/ids")
    assert re.fullmatch(r"g_host0001-1235000-[0-9a-f]{8}", name)
    node = stage.tree.get(f"/consumers/g/ids/{name}")
    assert node
    assert node.ephemeral
    assert json.loads(node.value) == {
        "version": 1,
        "subscription": {"t": 2},
        "pattern": "static",
        "timestamp": "1235000",
    }
    assert stage.in_zookeeper() == {Partition("t", 0): f"{name}-0"}


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (TopicSubscription(pattern="t{1,3}"), r"has a comma.*write 'a\|b'"),
        (TopicSubscription(pattern="orders,words"), r"has a comma.*write 'a\|b'"),
        (TopicSubscription(partitions=(Partition("t", 0),)), "a group shares whole topics"),
    ],
)
def test_what_a_group_cannot_share_is_refused_before_anything_is_asked(
    read: TopicSubscription, said: str
) -> None:
    nothing: Any = None
    reader = ReaderContext(nothing, read, nothing, nothing, 1.0, "d")
    with pytest.raises(ConfigError, match=said):
        ByZooKeeperGroup("nowhere:1", "g")(reader)


def test_who_joins_gets_its_share_and_what_stays_is_not_stopped() -> None:
    stage = Stage(Topics(t=4))
    first = stage.join()
    stage.settle()
    second = stage.join()
    stage.settle()
    assert first.history == ["+t[0] t[1] t[2] t[3]", "-t[2] t[3]"]
    assert second.history == ["+t[2] t[3]"]


def test_what_a_member_leaves_behind_is_taken_by_others() -> None:
    stage = Stage(Topics(t=4))
    first, second = stage.join(), stage.join()
    stage.settle()
    stage.leave(first)
    stage.settle()
    assert short(second.reads) == [0, 1, 2, 3]
    assert len(stage.tree.children("/consumers/g/ids")) == 1


def test_looks_at_what_has_not_changed_decide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = Topics(t=4)
    stage = Stage(topics)
    remembered: Any = RefreshedDirectory(topics, stage.clock, every_s=10.0)
    stage.topics = remembered
    for _ in range(2):
        stage.join({"t"})
    stage.settle()
    views = []
    view = zookeeper_group._View
    monkeypatch.setattr(zookeeper_group, "_View", lambda *seen: views.append(seen) or view(*seen))
    for _ in range(100):
        for member in stage.members:
            member.look()
    assert not views
    topics.counts["t"] = 6
    stage.clock.advance(10.0)
    stage.settle()
    assert views
    assert sorted(stage.owners().values()) == [1, 1, 1, 2, 2, 2]


def test_a_claim_waits_until_the_former_owner_has_let_go() -> None:
    stage = Stage(Topics(t=2))
    slow = stage.join()
    stage.settle()
    quick = stage.join()
    for _ in range(20):
        stage.clock.advance(0.5)
        quick.look()
    assert quick.reads == set()
    assert short({*quick.group.waiting}) == [1]
    stage.settle()
    assert (short(slow.reads), short(quick.reads)) == ([0], [1])
    assert not quick.group.waiting


def test_an_owner_that_cannot_begin_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(Topics(t=2))
    member = stage.join()
    with monkeypatch.context() as patch:
        patch.setattr(member, "assigned", raises(UnknownTopic("not yet")))
        with pytest.raises(UnknownTopic):
            stage.settle()
        assert stage.in_zookeeper().keys() == stage.all()
    stage.settle()
    assert member.history == ["+t[0] t[1]"]


def test_members_beyond_the_partitions_are_idle_and_told(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(Topics(t=1))
    first, second = stage.join(), stage.join()
    stage.settle()
    assert (short(first.reads), short(second.reads)) == ([0], [])
    assert "host0002" in caplog.text
    assert "it is idle" in caplog.text


def test_each_group_reads_all() -> None:
    stage = Stage(Topics(t=3))
    members = [stage.join(group=name) for name in ("g", "g", "h")]
    stage.settle()
    assert [short(member.reads) for member in members] == [[0, 1], [2], [0, 1, 2]]


def test_new_partitions_are_shared_too_even_in_the_middle_of_a_rebalance() -> None:
    stage = Stage(Topics(t=2))
    first, second = stage.join(), stage.join()
    stage.settle()
    third = stage.join()
    stage.clock.advance(0.5)
    third.look()
    first.look()  # the first member has seen the third when partitions are added
    stage.topics.counts["t"] = 6
    stage.settle()
    assert [short(one.reads) for one in (first, second, third)] == [[0, 1], [2, 3], [4, 5]]


def test_new_topics_that_fit_a_pattern_are_read_by_all_who_have_it() -> None:
    stage = Stage(Topics(log_a=2, other=1))
    first, second = (stage.join(re.compile("log_.*")) for _ in range(2))
    stage.settle()
    assert {**stage.owners()} == {Partition("log_a", 0): 1, Partition("log_a", 1): 2}
    stage.topics.counts["log_b"] = 2
    stage.settle()
    assert Partition("log_b", 0) in first.reads
    assert Partition("log_b", 1) in second.reads


def test_round_robin_is_refused_where_subscriptions_differ() -> None:
    stage = Stage(Topics(t=2, u=2), rule=round_robin_of_threads)
    stage.join(["t", "u"])
    stage.settle(2)
    stage.join(["t"])
    with pytest.raises(KafkaError, match="same topics"):
        stage.settle(4)


def test_round_robin_deals_in_the_order_of_hashes() -> None:
    stage = Stage(Topics(t=12), rule=round_robin_of_threads)
    first, second = stage.join(), stage.join()
    stage.settle()
    assert short(first.reads) == [0, 2, 4, 6, 8, 10]
    assert short(second.reads) == [1, 3, 5, 7, 9, 11]


def test_what_is_no_member_is_an_error_with_its_place() -> None:
    stage = Stage(Topics(t=1))
    stage.tree.create("/consumers/g/ids/strange", b"hello")
    stage.join()
    with pytest.raises(KafkaError, match=r"/consumers/g/ids/strange .* b'hello'"):
        stage.settle(2)


# ---- sessions -----------------------------------------------------------------------------------


def test_a_session_that_ends_takes_all_away_and_a_new_one_is_another_member() -> None:
    stage = Stage(Topics(t=2))
    first, second = stage.join(), stage.join()
    stage.settle()
    names = stage.tree.children("/consumers/g/ids")
    first.expire()
    first.look()
    assert first.history[-1] == "!t[0]"
    stage.settle()
    assert sorted(stage.owners().values()) == [1, 2]
    assert len({*names} & {*stage.tree.children("/consumers/g/ids")}) == 1
    assert second.line.calls


def test_a_short_silence_of_the_store_stops_nobody() -> None:
    stage = Stage(Topics(t=2))
    member = stage.join()
    stage.settle()
    member.suspend()
    stage.clock.advance(TIMEOUTS.suspended_max_s - 0.1)
    member.look()
    member.resume(expired=False)
    stage.settle()
    assert member.history == ["+t[0] t[1]"]


@pytest.mark.parametrize("expired", [True, False])
def test_after_a_long_silence_nothing_is_read_any_more_until_it_ends(expired: bool) -> None:
    stage = Stage(Topics(t=2))
    member = stage.join()
    stage.settle()
    member.suspend()
    stage.clock.advance(TIMEOUTS.suspended_max_s)
    member.look()
    assert member.history[-1] == "!t[0] t[1]", "its nodes may belong to another member by now"
    for _ in range(3):
        stage.clock.advance(10.0)
        with pytest.raises(KafkaUnreachable, match="/consumers/g"):
            member.look()
    member.resume(expired=expired)
    stage.settle()
    assert short(member.reads) == [0, 1]


def test_a_member_whose_node_somebody_removed_joins_again() -> None:
    stage = Stage(Topics(t=2))
    member = stage.join()
    stage.settle()
    [name] = stage.tree.children("/consumers/g/ids")
    stage.tree.delete(f"/consumers/g/ids/{name}")
    stage.settle()
    assert short(member.reads) == [0, 1]
    [other] = stage.tree.children("/consumers/g/ids")
    assert other != name


def test_who_is_not_let_in_is_told_at_once() -> None:
    stage = Stage(Topics(t=1))
    member = stage.join()
    member.line.before = raises(StoreUnreachable("away"))
    with pytest.raises(KafkaUnreachable, match="/consumers/g cannot be joined: away"):
        member.look()
    member.line.before = raises(StoreForbidden("another name and password are wanted"))
    with pytest.raises(NotAuthorised, match="/consumers/g cannot be joined: another name"):
        member.look()
