"""A consumer group in ZooKeeper with faults at any call of its members; and a large group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from sunshower.errors import KafkaUnreachable, StoreUnreachable
from sunshower.kafka.zookeeper.group import SUSPENDED_MAX_S
from tests.kafka.groups import Crash, GroupRig, Member, Topics, raises
from tests.seeds import seeds

# ---- at every step ------------------------------------------------------------------------------


def fault(member: Member, how: str) -> Callable[[], None]:
    """The fault that hits a member at one of its calls."""
    return {
        "expires": member.expire,
        "is not answered": raises(StoreUnreachable("silence")),
        "crashes": raises(Crash()),
    }[how]


def run_with_fault(how: str, when: str, call: int) -> int:
    """Two members; a third joins, partitions are added, one leaves; a fault hits the second member
    at its call number `call`. Returns how many calls it has made in all."""
    rig = GroupRig(Topics(t=5))
    rig.join()
    second = rig.join()

    def happens() -> None:
        if second.connection.calls == call:
            second.connection.before = second.connection.after = lambda: None
            fault(second, how)()

    setattr(second.connection, when, happens)
    for turn in range(40):
        rig.clock.advance(0.5)
        if turn == 6:
            rig.join()
        elif turn == 12:
            rig.topics.counts["t"] = 7
        elif turn == 18:
            rig.leave(rig.members[0])
        for member in [*rig.members]:
            try:
                member.look()
            except KafkaUnreachable:
                assert not member.reads, "only a member that has never joined fails"
            except Crash:
                rig.crash(member)
        rig.owners()
    assert rig.owners().keys() == rig.all() == rig.in_zookeeper().keys()
    assert len(rig.tree.children("/consumers/g/ids")) == len(rig.members)
    return second.connection.calls


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("how", ["expires", "is not answered", "crashes"])
def test_after_a_fault_at_any_call_each_partition_has_one_owner(how: str, when: str) -> None:
    call, calls = 0, run_with_fault(how, when, 0)
    assert calls > 20
    while call < calls:
        call += 1
        calls = max(calls, run_with_fault(how, when, call))


class RandomFaults:
    """Members that join, leave, crash, lose their sessions and lose their connections, also during
    calls of other members."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.rig = GroupRig(Topics(t=self.random.randint(1, 8), u=3), seed)
        self.busy: list[Member] = []
        self.gone: list[Member] = []

    def join(self) -> None:
        member = self.rig.join(streams=self.random.choice([1, 1, 2]))
        member.connection.before = member.connection.after = lambda: self.maybe_disturb(member)

    def maybe_disturb(self, member: Member) -> None:
        """Let something happen to any member during a call of this one."""
        if len(self.busy) < 3 and self.random.random() < 0.05:
            self.random_step()
        if member in self.gone:
            raise Crash

    def random_step(self) -> None:
        members = self.rig.members
        if not members:
            return self.join()
        member, chance = self.random.choice(members), self.random.random()
        if chance < 0.7:
            self.act(member, member.look)
        elif chance < 0.76 and len(members) < 12:
            self.join()
        elif chance < 0.79:
            self.act(member, lambda: self.rig.leave(member))
        elif chance < 0.82:
            self.gone.append(member)
            self.rig.crash(member)
        elif chance < 0.86 and member.suspended_s is None:
            member.expire()
        elif chance < 0.9 and member.suspended_s is None:
            member.suspend()
        elif chance < 0.94 and member.suspended_s is not None:
            silent_s = self.rig.clock.now() - member.suspended_s
            member.resume(expired=not member.reads and silent_s > SUSPENDED_MAX_S)
        elif chance < 0.95:
            self.rig.topics.counts["t"] += 1
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
        for member in self.rig.members:
            member.connection.before = member.connection.after = lambda: None
            if member.suspended_s is not None:
                member.resume(expired=False)
        if not self.rig.members:
            self.rig.join()
        self.rig.settle()


@seeds(30)
def test_no_partition_ever_has_two_owners_and_in_the_end_each_has_one(seed: int) -> None:
    faults = RandomFaults(seed)
    for _ in range(300):
        faults.random_step()
        faults.rig.clock.advance(faults.random.choice([0, 0, 0.05, 0.3]))
    faults.end()
    assert faults.rig.owners().keys() == faults.rig.all()
    assert faults.rig.in_zookeeper().keys() == faults.rig.all()
    assert len(faults.rig.tree.children("/consumers/g/ids")) == len(faults.rig.members)


# ---- a large group ------------------------------------------------------------------------------


def test_many_members_ask_zookeeper_at_different_times_and_with_few_calls() -> None:
    rig = GroupRig(Topics(t=60))
    members = [rig.join() for _ in range(60)]
    rig.settle(10)
    before = [member.connection.calls for member in members]
    rig.join()  # it gets no partition
    rig.clock.advance(0.001)
    rig.members[-1].look()
    asked: Counter[int] = Counter()
    for moment in range(200):
        rig.clock.advance(0.001)
        for member, had in zip(members, before, strict=True):
            member.look()
            asked[moment] += member.connection.calls > had
    calls = [member.connection.calls - had for member, had in zip(members, before, strict=True)]
    assert max(calls) <= 3, "they read the list and the new member, and no other"
    new = [asked[moment] - asked[moment - 1] for moment in range(1, 200)]
    assert max(new) <= 6, "the members do not all ask in the same millisecond"
