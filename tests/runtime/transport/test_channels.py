"""The load of a channel is the number of records pushed and not processed, wherever they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.transport.channels import (
    FIRST_CREDIT,
    Credit,
    Inbox,
    Inflow,
    Inflows,
    LocalChannel,
    RemoteChannel,
)
from tests.runtime.batches import batches, records_with_anchors

_WINDOW = 8


def batch(*roots: int) -> Batch:
    array = np.array(roots, np.uint64)
    return Batch(0, 1, list(range(len(roots))), array, array)


def remote() -> RemoteChannel:
    return RemoteChannel(1, 2, _WINDOW)


class RemoteChannelAgainstModel(RuleBasedStateMachine):
    """Push, take, send, grant and lose in any order; the model is three lists of roots."""

    def __init__(self) -> None:
        super().__init__()
        self.channel = remote()
        self.queue: list[int] = []
        self.unsettled: dict[int, list[int]] = {}  # frame → roots
        self.next_root = 1

    @rule(count=st.integers(1, 6))
    def push(self, count: int) -> None:
        roots = list(range(self.next_root, self.next_root + count))
        self.next_root += count
        self.queue += roots
        self.channel.push(batch(*roots))

    @precondition(lambda self: self.queue)
    @rule(size=st.integers(1, 8))
    def send_some(self, size: int) -> None:
        taken = self.channel.take(size)
        roots = taken.roots.tolist()
        assert 1 <= len(roots) <= size
        assert roots == self.queue[: len(roots)], "in order"
        del self.queue[: len(roots)]
        self.unsettled[self.channel.sent(taken)] = roots

    @precondition(lambda self: self.queue)
    @rule(size=st.integers(1, 8))
    def take_and_put_back(self, size: int) -> None:
        self.channel.put_back(self.channel.take(size))

    @precondition(lambda self: self.queue)
    @rule()
    def one_cannot_travel(self) -> None:
        bad, rest = self.channel.take(8).split(1)
        self.channel.put_back(rest)
        self.channel.drop(1)
        assert self.queue.pop(0) == bad.roots[0]

    @precondition(lambda self: self.unsettled)
    @rule(data=st.data(), window=st.integers(1, 20))
    def receiver_grants(self, data: st.DataObject, window: int) -> None:
        upto = data.draw(st.sampled_from(sorted(self.unsettled)))
        self.channel.granted(upto, Credit(window, 3))
        assert (self.channel.window, self.channel.piece) == (window, 3)
        self.unsettled = {seq: r for seq, r in self.unsettled.items() if seq > upto}

    @precondition(lambda self: self.unsettled)
    @rule(data=st.data())
    def some_are_lost(self, data: st.DataObject) -> None:
        seqs = data.draw(st.sets(st.sampled_from([*self.unsettled, 9_999])))
        lost = [
            root for seq in sorted(seqs & self.unsettled.keys()) for root in self.unsettled.pop(seq)
        ]
        assert self.channel.lose(seqs).tolist() == lost

    @rule()
    def all_are_lost(self) -> None:
        lost = [root for _, roots in sorted(self.unsettled.items()) for root in roots]
        assert self.channel.lose().tolist() == lost
        self.unsettled = {}

    @invariant()
    def load_is_what_is_not_processed(self) -> None:
        waiting = len(self.queue) + sum(map(len, self.unsettled.values()))
        assert self.channel.load == waiting
        assert self.channel.queued == len(self.queue)
        assert self.channel.full == (waiting >= self.channel.window)


TestRemoteChannelAgainstModel = RemoteChannelAgainstModel.TestCase
TestRemoteChannelAgainstModel.settings = settings(stateful_step_count=30)


def test_channel_with_records_is_ready_at_its_peer_link() -> None:
    ready: dict[RemoteChannel, None] = {}
    channel = RemoteChannel(1, 2, _WINDOW, ready=ready)
    channel.push(batch(1))
    assert list(ready) == [channel]


def test_channel_that_closes_a_cycle_is_never_full() -> None:
    channel = RemoteChannel(1, 2, _WINDOW, credited=False)
    channel.push(batch(*range(1, 100)))
    assert channel.load == 99
    assert not channel.full


def test_local_channel_hands_the_batch_over_as_it_is() -> None:
    channel = LocalChannel(1, 2, _WINDOW)
    pushed = batch(1, 2, 3)
    channel.push(pushed)
    taken, origin, seq = channel.inbox.take(10)
    assert taken is pushed
    assert (channel.load, seq) == (3, None)
    origin.processed(3, seq, Credit(5, 2))
    assert (channel.load, channel.window, channel.piece) == (0, 5, 2)


@given(batches(), st.integers(1, 5))
def test_inbox_splits_a_batch_and_returns_its_frame_number_with_the_last_part(
    whole: Batch, size: int
) -> None:
    inbox = Inbox()
    inbox.put(whole, Inflow(1, 2, 0), seq=17)
    parts: list[Any] = []
    while inbox.entries:
        parts.append(inbox.take(size))
    assert [len(part) for part, _, _ in parts[:-1]] == [size] * (len(parts) - 1)
    assert [seq for _, _, seq in parts] == [None] * (len(parts) - 1) + [17]
    assert [
        record for part, _, _ in parts for record in records_with_anchors(part)
    ] == records_with_anchors(whole)


@pytest.mark.parametrize(
    ("knows", "next_one", "due_at"),
    [(8, 8, 4), (8, 64, 4), (8, 2, 1)],
    ids=["as it is", "more than the sender knows", "less than the sender knows"],
)
def test_grant_is_due_before_the_window_that_the_sender_knows_is_used_up(
    knows: int, next_one: int, due_at: int
) -> None:
    inflows = Inflows()
    flow = inflows.of(1, 2, worker=0)
    flow.credit = Credit(knows, 1)
    for record in range(1, due_at + 1):
        flow.processed(1, None, Credit(next_one, 1))
        assert inflows.to_grant(0.0) == ([flow] if record == due_at else [])
    assert flow.grant() == (1, 2, 0, Credit(next_one, 1))
    assert flow.credit.window == next_one


def test_grant_names_the_last_frame_that_is_wholly_processed() -> None:
    flow = Inflow(1, 2, worker=0)
    flow.processed(3, 6, Credit(4, 1))
    flow.processed(2, None, Credit(9, 2))  # the first part of frame 7
    assert flow.grant() == (1, 2, 6, Credit(9, 2))
    assert flow.records == 0


def test_frame_that_cannot_be_read_is_granted_in_its_turn() -> None:
    flow = Inflow(1, 2, worker=0)
    flow.put_aside(1)
    assert flow.grant() == (1, 2, 1, FIRST_CREDIT), "nothing waits before it"
    flow.arrived = 2
    flow.put_aside(3)
    flow.put_aside(4)
    flow.arrived = 5
    assert (flow.records, flow.seq) == (0, 1), "frame 2 is still in the inbox"
    flow.processed(7, 2, Credit(8, 1))
    assert flow.grant() == (1, 2, 4, Credit(8, 1))
    flow.processed(7, 5, Credit(8, 1))
    assert flow.grant() == (1, 2, 5, Credit(8, 1))


def test_small_batches_are_taken_together_with_the_frame_and_sender_of_each() -> None:
    inbox = Inbox()
    first, other = (LocalChannel(source, 9, _WINDOW, inbox=inbox) for source in (1, 2))
    for channel, roots in ((first, (1, 2)), (first, (3,)), (other, (4,)), (first, (5,))):
        channel.push(batch(*roots))
    inbox.put(batch(6), first, seq=1)
    taken = inbox.take_small(5, one_source=False)
    assert [entry[0].roots.tolist() for entry in taken] == [[1, 2], [3], [4], [5]]
    assert [entry[1] for entry in taken] == [first, first, other, first]
    ((last, _, seq),) = inbox.take_small(5, one_source=False)
    assert (last.roots.tolist(), seq) == ([6], 1)


def test_batches_of_one_task_alone_are_taken_together_where_the_sender_matters() -> None:
    inbox = Inbox()
    for source, root in ((0, 1), (0, 2), (1, 3)):
        inbox.put(replace(batch(root), source=source), LocalChannel(source, 9, _WINDOW))
    taken = inbox.take_small(100, one_source=True)
    assert [entry[0].roots.tolist() for entry in taken] == [[1], [2]]


def test_a_batch_that_is_large_already_is_taken_alone() -> None:
    inbox = Inbox()
    channel = LocalChannel(1, 9, 10_000, inbox=inbox)
    large = batch(*range(1, 2_000))
    for part in (batch(2_000), large, batch(2_001)):
        channel.push(part)
    taken = [inbox.take_small(10_000, one_source=False) for _ in range(3)]
    assert [len(entries) for entries in taken] == [1, 1, 1]
    assert taken[1][0][0] is large, "joining would copy it"
