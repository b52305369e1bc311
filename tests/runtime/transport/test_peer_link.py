"""Packets leave according to Nagle's rule, and each answer has a stated consequence."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sunshower.config import Config, Internals
from sunshower.errors import Unserialisable
from sunshower.failures import Cause, Failure
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.tracking.ids import U64
from sunshower.runtime.tracking.ledger import Verdicts
from sunshower.runtime.tracking.reports import ShardReport
from sunshower.runtime.transport.channels import Credit, RemoteChannel
from sunshower.runtime.transport.packets import Answer, Packet, read_address, read_content
from sunshower.runtime.transport.peer_link import PacketReceiver, PeerLink
from tests.runtime.batches import STREAMS

ME, PEER, MY_LIFE, PEER_LIFE = 0, 1, 3, 4
CONFIG = Config(
    internals=Internals(calls_in_flight_max=3, frame_records_max=10, packet_bytes_max=2_000)
)
FAILURE = Failure(Cause.FAILED, "split", 0)


class LinkWithChannel:
    """A peer link with one channel; the test gives the answers of the peer."""

    def __init__(self) -> None:
        self.refused: list[Batch] = []
        self.peer_link = PeerLink(
            ME,
            MY_LIFE,
            PEER,
            CONFIG,
            STREAMS,
            lambda _channel, batch, _error: self.refused.append(batch),
        )
        self.peer_link.peer_is(PEER_LIFE)
        self.channel = RemoteChannel(1, 2, 1_000, ready=self.peer_link.ready)

    def push(self, *roots: int, of: object = "rain") -> None:
        rows = [(of, root) for root in roots]
        self.channel.push(Batch(4, 1, rows, u64(*roots), u64(*roots)))

    def packets(self, now: float = 0.0) -> list[tuple[int, Packet]]:
        """All packets that leave now."""
        packets = self.peer_link.next_packets(now)
        return [(seq, read_content(data, STREAMS)) for seq, data in packets]

    def sent(self, now: float = 0.0) -> list[list[int]]:
        """The roots of the records in each packet that leaves now."""
        return [
            [root for frame in packet.frames for root in frame.batch.roots.tolist()]
            for _, packet in self.packets(now)
        ]


def u64(*values: int) -> U64:
    return np.array(values, np.uint64)


@pytest.fixture
def link() -> LinkWithChannel:
    return LinkWithChannel()


# ---- sending ------------------------------------------------------------------------------------


def test_first_packet_leaves_at_once_and_the_next_waits_for_its_answer(
    link: LinkWithChannel,
) -> None:
    link.push(1)
    assert link.sent() == [[1]]
    link.push(2)
    link.push(3)
    assert link.sent() == []
    link.peer_link.answered(1, Answer.ACCEPTED, 0.0)
    assert link.sent() == [[2, 3]]


def test_full_packet_does_not_wait_but_the_packets_in_flight_are_limited(
    link: LinkWithChannel,
) -> None:
    for packet in range(5):
        link.push(*range(packet * 20_000, (packet + 1) * 20_000))
        link.packets()
    assert len(link.peer_link._in_flight) == CONFIG.internals.calls_in_flight_max


def test_packet_names_sender_and_receiver_with_their_lives(link: LinkWithChannel) -> None:
    link.push(1)
    ((_, packet),) = link.peer_link.next_packets(0.0)
    address = read_address(packet)
    assert (address.sender, address.receiver) == (ME, PEER)
    assert (address.sender_incarnation, address.receiver_incarnation) == (MY_LIFE, PEER_LIFE)


def test_frame_holds_no_more_than_its_limit_and_frames_are_numbered(link: LinkWithChannel) -> None:
    link.push(*range(1, 26))
    ((_, packet),) = link.packets()
    assert [(f.seq, len(f.batch)) for f in packet.frames] == [(1, 10), (2, 10), (3, 5)]


def test_one_long_queue_does_not_starve_the_other(link: LinkWithChannel) -> None:
    other = RemoteChannel(1, 3, 1_000, ready=link.peer_link.ready)
    link.push(*range(100))
    other.push(Batch(4, 1, [("rain", 1)]))
    ((_, packet), *_) = link.packets()
    assert [frame.target for frame in packet.frames][:3] == [2, 3, 2]


def test_nothing_leaves_before_the_life_of_the_peer_is_known() -> None:
    peer_link = PeerLink(ME, MY_LIFE, PEER, CONFIG, STREAMS, lambda *_: None)
    peer_link.content.postponed.append(1)
    assert not peer_link.next_packets(0.0)
    assert peer_link.next_look_s == math.inf, "the worker wakes up when it learns of the peer"
    peer_link.peer_is(1)
    assert peer_link.next_packets(0.0)


def test_record_that_cannot_travel_is_removed_and_the_rest_is_sent(link: LinkWithChannel) -> None:
    link.push(1, 2)
    link.push(3, of=object())
    link.push(4)
    assert link.sent() == [[1, 2, 4]]
    assert [batch.roots.tolist() for batch in link.refused] == [[3]]
    assert link.channel.load == 3


def test_peer_link_with_only_records_that_cannot_travel_sends_nothing(
    link: LinkWithChannel,
) -> None:
    link.push(1, of=object())
    assert link.sent() == []
    assert link.peer_link.idle


# ---- answers ------------------------------------------------------------------------------------


def fill(link: LinkWithChannel) -> None:
    """Queue content of every kind."""
    link.push(1, 2)
    content = link.peer_link.content
    content.reports[7] = ShardReport([(u64(1), u64(9))], [(u64(2), u64(8))], [(3, FAILURE)])
    content.verdicts[8] = Verdicts([u64(5)], [(6, FAILURE)])
    content.grants.append((4, 5, 6, Credit(7, 1)))


def test_accepted_packet_is_settled(link: LinkWithChannel) -> None:
    fill(link)
    link.packets()
    lost = link.peer_link.answered(1, Answer.ACCEPTED, 0.0)
    assert (lost.frames, lost.reports) == ([], [])
    assert link.peer_link.idle


@pytest.mark.parametrize("answer", [Answer.REFUSED, Answer.STALE, None])
def test_frames_and_reports_of_a_packet_that_was_not_accepted_are_lost(
    link: LinkWithChannel, answer: Answer | None
) -> None:
    fill(link)
    link.packets()
    lost = link.peer_link.answered(1, answer, 0.0)
    assert lost.frames == [(link.channel, {1})]
    (report,) = lost.reports
    assert [roots.tolist() for roots in report.roots()] == [[1], [2]]
    assert report.fails == [(3, FAILURE)]


@pytest.mark.parametrize("answer", [Answer.REFUSED, Answer.STALE, None])
def test_verdicts_and_grants_of_a_packet_that_was_not_accepted_are_sent_again(
    link: LinkWithChannel, answer: Answer | None
) -> None:
    fill(link)
    link.packets()
    link.peer_link.answered(1, answer, 0.0)
    if answer is None:
        ((probe, _),) = link.packets(now=100.0)
        link.peer_link.answered(probe, Answer.ACCEPTED, 100.0)
    ((_, again),) = link.packets(now=100.0)
    assert [roots.tolist() for roots in again.verdicts[8].complete] == [[5]]
    assert again.verdicts[8].failed == [(6, FAILURE)]
    assert again.grants == [(4, 5, 6, Credit(7, 1))]
    assert not again.frames


def test_refused_packet_does_not_stop_the_peer_link(link: LinkWithChannel) -> None:
    link.push(1)
    link.packets()
    link.push(2)
    link.peer_link.answered(1, Answer.REFUSED, 0.0)
    assert link.sent() == [[2]]


@pytest.mark.parametrize("answer", [Answer.STALE, None])
def test_peer_link_waits_after_a_failed_call_and_tries_again(
    link: LinkWithChannel, answer: Answer | None
) -> None:
    link.push(1)
    link.packets()
    link.push(2)
    link.peer_link.answered(1, answer, 10.0)
    assert link.sent(now=10.0) == []
    again_s = 10.0 + CONFIG.internals.peer_link_retry_s
    assert link.peer_link.next_look_s == again_s
    if answer is None:
        ((probe, packet),) = link.packets(now=again_s)
        assert not packet.frames, "the records wait until the peer answers"
        link.peer_link.answered(probe, Answer.ACCEPTED, again_s)
    assert link.sent(now=again_s) == [[2]]


def test_packet_whose_answer_is_overdue_is_lost(link: LinkWithChannel) -> None:
    link.push(1)
    link.packets(now=5.0)
    due_s = 5.0 + CONFIG.worker_timeout_s / 2
    assert link.peer_link.next_look_s == due_s
    assert link.peer_link.overdue(due_s - 0.1) == []
    assert link.peer_link.overdue(due_s) == [1]
    assert link.peer_link.answered(1, None, due_s).frames
    assert link.peer_link.silent_s(20.0) == 15.0, "since the packet left"


def test_time_in_which_this_process_was_stopped_does_not_count(link: LinkWithChannel) -> None:
    link.push(1)
    link.packets(now=5.0)
    link.peer_link.stopped_for(100.0)
    assert link.peer_link.overdue(105.0) == []


def test_second_answer_to_a_packet_is_ignored(link: LinkWithChannel) -> None:
    link.push(1)
    link.packets()
    link.peer_link.answered(1, Answer.ACCEPTED, 0.0)
    assert not link.peer_link.answered(1, None, 0.0).frames
    link.push(2)
    assert link.sent() == [[2]]


# ---- a new life of the peer ---------------------------------------------------------------------


def test_content_in_flight_to_an_earlier_life_is_lost_and_the_peer_link_is_up(
    link: LinkWithChannel,
) -> None:
    fill(link)
    link.packets()
    link.peer_link._up_again_s = 99.0
    lost = link.peer_link.peer_is(PEER_LIFE + 1)
    assert lost.frames == [(link.channel, {1})]
    assert len(lost.reports) == 1
    link.push(3)
    assert link.sent() == [[3]]


def test_grants_do_not_reach_the_next_life(link: LinkWithChannel) -> None:
    link.peer_link.content.grants.append((4, 5, 6, Credit(7, 1)))
    link.peer_link.peer_is(PEER_LIFE + 1)
    assert link.packets() == [], "they count frames that the new life has never sent"


def test_same_life_twice_changes_nothing(link: LinkWithChannel) -> None:
    link.push(1)
    link.packets()
    assert not link.peer_link.peer_is(PEER_LIFE).frames
    assert not link.peer_link.idle


# ---- the receiving end --------------------------------------------------------------------------


def packet(seq: int, sender_life: int = MY_LIFE, receiver_life: int = PEER_LIFE) -> bytes:
    peer_link = PeerLink(ME, sender_life, PEER, CONFIG, STREAMS, lambda *_: None)
    peer_link.peer_is(receiver_life)
    peer_link._seq = seq - 1
    peer_link.content.postponed.append(1)
    ((_, data),) = peer_link.next_packets(0.0)
    return data


@pytest.fixture
def packet_receiver() -> PacketReceiver:
    return PacketReceiver(PEER, PEER_LIFE)


def test_packets_in_order_are_accepted_even_with_gaps(packet_receiver: PacketReceiver) -> None:
    assert [packet_receiver.answer(packet(seq)) for seq in (1, 2, 5)] == [Answer.ACCEPTED] * 3


def test_repeated_or_overtaken_packet_is_refused(packet_receiver: PacketReceiver) -> None:
    packet_receiver.answer(packet(2))
    assert packet_receiver.answer(packet(2)) is Answer.REFUSED
    assert packet_receiver.answer(packet(1)) is Answer.REFUSED


def test_corrupt_packet_is_refused_and_forgotten(packet_receiver: PacketReceiver) -> None:
    good = packet(1)
    assert packet_receiver.answer(good[:-1] + bytes([good[-1] ^ 1])) is Answer.REFUSED
    assert packet_receiver.answer(b"") is Answer.REFUSED
    assert packet_receiver.answer(good) is Answer.ACCEPTED


def test_packet_for_another_life_or_worker_is_stale(packet_receiver: PacketReceiver) -> None:
    assert packet_receiver.answer(packet(1, receiver_life=PEER_LIFE - 1)) is Answer.STALE
    assert packet_receiver.answer(packet(1, receiver_life=PEER_LIFE + 1)) is Answer.STALE
    assert PacketReceiver(PEER + 1, PEER_LIFE).answer(packet(1)) is Answer.STALE


def test_new_life_of_a_sender_counts_from_one_and_its_earlier_life_is_stale(
    packet_receiver: PacketReceiver,
) -> None:
    packet_receiver.answer(packet(9))
    assert packet_receiver.answer(packet(1, sender_life=MY_LIFE + 1)) is Answer.ACCEPTED
    assert packet_receiver.answer(packet(10)) is Answer.STALE


def test_refusal_has_the_error_of_the_record() -> None:
    errors: list[Unserialisable] = []
    peer_link = PeerLink(
        ME, MY_LIFE, PEER, CONFIG, STREAMS, lambda _c, _b, error: errors.append(error)
    )
    peer_link.peer_is(PEER_LIFE)
    RemoteChannel(1, 2, 9, ready=peer_link.ready).push(Batch(4, 1, [("a", object())]))
    peer_link.next_packets(0.0)
    assert "cannot travel to another process" in str(errors[0])
