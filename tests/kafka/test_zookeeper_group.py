"""A group of consumers in ZooKeeper, step by step: who reads what, and never two."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from sunshower.errors import (
    KafkaError,
    KafkaUnreachable,
    NotAuthorised,
    StoreForbidden,
    StoreUnreachable,
)
from sunshower.kafka.assignment import round_robin_of_threads
from sunshower.kafka.partitions import Partition
from tests.kafka.groups import PATIENCE, Crash, Member, Stage, Topics


def short(partitions: set[Partition]) -> list[int]:
    return sorted(one.number for one in partitions)


# ---- what becomes of partitions -----------------------------------------------------------------


def test_all_members_come_to_one_answer() -> None:
    stage = Stage(Topics(t=4))
    first, second = stage.join(streams=2), stage.join()
    stage.settle()
    assert short(first.reads) == [0, 1, 2]
    assert short(second.reads) == [3]


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
    generation = second.group.generation
    stage.leave(first)
    stage.settle()
    assert short(second.reads) == [0, 1, 2, 3]
    assert second.group.generation > generation
    assert len(stage.tree.children("/consumers/g/ids")) == 1


def test_a_member_that_left_may_come_back() -> None:
    stage = Stage(Topics(t=2))
    member = stage.join()
    stage.settle()
    member.group.leave(member)
    assert stage.in_zookeeper() == {}
    stage.settle()
    assert short(member.reads) == [0, 1]


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


def test_members_beyond_the_partitions_are_idle_and_told(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(Topics(t=1))
    first, second = stage.join(), stage.join()
    stage.settle()
    assert (short(first.reads), short(second.reads)) == ([0], [])
    assert "host0002" in caplog.text
    assert "it is idle" in caplog.text


def test_new_partitions_are_shared_too_even_in_the_middle_of_a_rebalance() -> None:
    stage = Stage(Topics(t=2))
    first, second = stage.join(), stage.join()
    stage.settle()
    third = stage.join()
    stage.clock.advance(0.5)
    third.look()
    first.look()  # the first knows of a third; and now there are more
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
    stage.clock.advance(PATIENCE.suspended_max_s - 0.1)
    member.look()
    member.resume(expired=False)
    stage.settle()
    assert member.history == ["+t[0] t[1]"]


def test_after_a_long_silence_nothing_is_read_any_more_until_it_ends() -> None:
    stage = Stage(Topics(t=2))
    member = stage.join()
    stage.settle()
    member.suspend()
    stage.clock.advance(PATIENCE.suspended_max_s)
    member.look()
    assert member.history[-1] == "!t[0] t[1]"
    member.resume(expired=False)
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


# ---- at every step ------------------------------------------------------------------------------


def raises(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def to(member: Member, how: str) -> Callable[[], None]:
    """What happens to a member at one of its calls."""
    return {
        "expires": member.expire,
        "is not answered": raises(StoreUnreachable("silence")),
        "crashes": raises(Crash()),
    }[how]


def play(how: str, when: str, call: int) -> int:
    """Two members, a third, more partitions, one leaves; something happens to the second at one of
    its calls. Returns how many it has made in all."""
    stage = Stage(Topics(t=5))
    stage.join()
    second = stage.join()

    def happens() -> None:
        if second.line.calls == call:
            second.line.before = second.line.after = lambda: None
            to(second, how)()

    setattr(second.line, when, happens)
    for turn in range(40):
        stage.clock.advance(0.5)
        if turn == 6:
            stage.join()
        elif turn == 12:
            stage.topics.counts["t"] = 7
        elif turn == 18:
            stage.leave(stage.members[0])
        for member in [*stage.members]:
            try:
                member.look()
            except KafkaUnreachable:
                assert not member.reads, "only who was never in fails"
            except Crash:
                stage.crash(member)
        stage.owners()
    assert stage.owners().keys() == stage.all() == stage.in_zookeeper().keys()
    assert len(stage.tree.children("/consumers/g/ids")) == len(stage.members)
    return second.line.calls


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("how", ["expires", "is not answered", "crashes"])
def test_whatever_happens_at_any_call_nothing_has_two_owners_or_none(how: str, when: str) -> None:
    call, calls = 0, play(how, when, 0)
    assert calls > 20
    while call < calls:
        call += 1
        calls = max(calls, play(how, when, call))


class Play:
    """Members that come, go, die, lose their sessions and are cut off, also within each other's
    calls."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.stage = Stage(Topics(t=self.random.randint(1, 8), u=3), seed)
        self.busy: list[Member] = []
        self.gone: list[Member] = []

    def join(self) -> None:
        member = self.stage.join(streams=self.random.choice([1, 1, 2]))
        member.line.before = member.line.after = lambda: self.within(member)

    def within(self, member: Member) -> None:
        """At a call of one of them."""
        if len(self.busy) < 3 and self.random.random() < 0.05:
            self.something()
        if member in self.gone:
            raise Crash

    def something(self) -> None:
        members = self.stage.members
        if not members:
            return self.join()
        member, chance = self.random.choice(members), self.random.random()
        if chance < 0.7:
            self.act(member, member.look)
        elif chance < 0.76 and len(members) < 12:
            self.join()
        elif chance < 0.79:
            self.act(member, lambda: self.stage.leave(member))
        elif chance < 0.82:
            self.gone.append(member)
            self.stage.crash(member)
        elif chance < 0.86 and member.suspended_s is None:
            member.expire()
        elif chance < 0.9 and member.suspended_s is None:
            member.suspend()
        elif chance < 0.94 and member.suspended_s is not None:
            silent_s = self.stage.clock.now() - member.suspended_s
            member.resume(expired=not member.reads and silent_s > PATIENCE.suspended_max_s)
        elif chance < 0.95:
            self.stage.topics.counts["t"] += 1
        return None

    def act(self, member: Member, does: Callable[[], None]) -> None:
        """Unless it is in the middle of something."""
        if member in self.busy:
            return
        self.busy.append(member)
        try:
            does()
        except KafkaUnreachable:
            assert not member.reads
        except Crash:
            assert member in self.gone
        finally:
            self.busy.remove(member)

    def end(self) -> None:
        for member in self.stage.members:
            member.line.before = member.line.after = lambda: None
            if member.suspended_s is not None:
                member.resume(expired=False)
        if not self.stage.members:
            self.stage.join()
        self.stage.settle()


@pytest.mark.parametrize("seed", range(30))
def test_nothing_ever_has_two_owners_and_in_the_end_all_have_one(seed: int) -> None:
    play = Play(seed)
    for _ in range(300):
        play.something()
        play.stage.clock.advance(play.random.choice([0, 0, 0.05, 0.3]))
    play.end()
    assert play.stage.owners().keys() == play.stage.all()
    assert play.stage.in_zookeeper().keys() == play.stage.all()
    assert len(play.stage.tree.children("/consumers/g/ids")) == len(play.stage.members)


# ---- many ---------------------------------------------------------------------------------------


def test_many_members_do_not_all_ask_at_once_and_ask_little() -> None:
    stage = Stage(Topics(t=60))
    members = [stage.join() for _ in range(60)]
    stage.settle(10)
    before = [member.line.calls for member in members]
    stage.join()  # the last: its share is nothing
    stage.clock.advance(0.001)
    stage.members[-1].look()
    asked: Counter[int] = Counter()
    for moment in range(200):
        stage.clock.advance(0.001)
        for member, had in zip(members, before, strict=True):
            member.look()
            asked[moment] += member.line.calls > had
    calls = [member.line.calls - had for member, had in zip(members, before, strict=True)]
    assert max(calls) <= 3, "the list, the new member, and no other"
    new = [asked[moment] - asked[moment - 1] for moment in range(1, 200)]
    assert max(new) <= 6, "not all in one moment"
