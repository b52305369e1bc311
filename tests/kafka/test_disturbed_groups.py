"""A consumer group in ZooKeeper with faults at any call of its members; and a large group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from sunshower.errors import KafkaUnreachable, StoreUnreachable
from tests.kafka.groups import TIMEOUTS, Crash, Member, Stage, Topics, raises
from tests.seeds import seeds

# ---- at every step ------------------------------------------------------------------------------


def to(member: Member, how: str) -> Callable[[], None]:
    """The fault that hits a member at one of its calls."""
    return {
        "expires": member.expire,
        "is not answered": raises(StoreUnreachable("silence")),
        "crashes": raises(Crash()),
    }[how]


def play(how: str, when: str, call: int) -> int:
    """Two members; a third joins, partitions are added, one leaves; a fault hits the second member
    at its call number `call`. Returns how many calls it has made in all."""
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
                assert not member.reads, "only a member that has never joined fails"
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
    """Members that join, leave, crash, lose their sessions and lose their connections, also during
    calls of other members."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.stage = Stage(Topics(t=self.random.randint(1, 8), u=3), seed)
        self.busy: list[Member] = []
        self.gone: list[Member] = []

    def join(self) -> None:
        member = self.stage.join(streams=self.random.choice([1, 1, 2]))
        member.line.before = member.line.after = lambda: self.within(member)

    def within(self, member: Member) -> None:
        """Let something happen to any member during a call of this one."""
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
            member.resume(expired=not member.reads and silent_s > TIMEOUTS.suspended_max_s)
        elif chance < 0.95:
            self.stage.topics.counts["t"] += 1
        return None

    def act(self, member: Member, does: Callable[[], None]) -> None:
        """Let the member do something, unless it is in the middle of a call."""
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


@seeds(30)
def test_nothing_ever_has_two_owners_and_in_the_end_all_have_one(seed: int) -> None:
    play = Play(seed)
    for _ in range(300):
        play.something()
        play.stage.clock.advance(play.random.choice([0, 0, 0.05, 0.3]))
    play.end()
    assert play.stage.owners().keys() == play.stage.all()
    assert play.stage.in_zookeeper().keys() == play.stage.all()
    assert len(play.stage.tree.children("/consumers/g/ids")) == len(play.stage.members)


# ---- a large group ------------------------------------------------------------------------------


def test_many_members_do_not_all_ask_at_once_and_ask_little() -> None:
    stage = Stage(Topics(t=60))
    members = [stage.join() for _ in range(60)]
    stage.settle(10)
    before = [member.line.calls for member in members]
    stage.join()  # it gets no partition
    stage.clock.advance(0.001)
    stage.members[-1].look()
    asked: Counter[int] = Counter()
    for moment in range(200):
        stage.clock.advance(0.001)
        for member, had in zip(members, before, strict=True):
            member.look()
            asked[moment] += member.line.calls > had
    calls = [member.line.calls - had for member, had in zip(members, before, strict=True)]
    assert max(calls) <= 3, "they read the list and the new member, and no other"
    new = [asked[moment] - asked[moment - 1] for moment in range(1, 200)]
    assert max(new) <= 6, "the members do not all ask in the same millisecond"
