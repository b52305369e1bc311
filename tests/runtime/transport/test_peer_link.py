"""Packets leave as Nagle's rule has it, and every answer has a stated consequence."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sunshower.config import Config
from sunshower.errors import Unserialisable
from sunshower.failures import Cause, Failure
from sunshower.runtime.tracking.acker_task import Verdicts
from sunshower.runtime.tracking.ids import U64
from sunshower.runtime.tracking.reports import ShardReport
from sunshower.runtime.transport.batch import Batch
from sunshower.runtime.transport.channels import RemoteChannel
from sunshower.runtime.transport.credits import Credit
from sunshower.runtime.transport.packets import Answer, Packet, read_address, read_content
from sunshower.runtime.transport.peer_link import PacketReceiver, PeerLink
from tests.runtime.batches import STREAMS

ME, PEER, MY_LIFE, PEER_LIFE = 0, 1, 3, 4
CONFIG = Config(calls_in_flight_max=3, frame_records_max=10, packet_bytes_max=2_000)
FAILURE = Failure(Cause.FAILED, "split", 0)


class Way:
    """A peer link with one channel, and a peer that answers only when it is told to."""

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
        """All that leave now."""
        found = []
        while (packet := self.peer_link.next_packet(now)) is not None:
            found.append((packet[0], read_content(packet[1], STREAMS)))
        return found

    def sent(self, now: float = 0.0) -> list[list[int]]:
        """The roots of the records in each packet that leaves now."""
        return [
            [root for frame in packet.frames for root in frame.batch.roots.tolist()]
            for _, packet in self.packets(now)
        ]


def u64(*values: int) -> U64:
    return np.array(values, np.uint64)


@pytest.fixture
def way() -> Way:
    return Way()


# ---- sending ------------------------------------------------------------------------------------


def test_first_packet_leaves_at_once_and_the_next_waits_for_its_answer(way: Way) -> None:
    way.push(1)
    assert way.sent() == [[1]]
    way.push(2)
    way.push(3)
    assert way.sent() == []
    way.peer_link.answered(1, Answer.ACCEPTED, 0.0)
    assert way.sent() == [[2, 3]]


def test_full_packet_does_not_wait_but_no_more_than_some_are_on_their_way(way: Way) -> None:
    for packet in range(5):
        way.push(*range(packet * 20_000, (packet + 1) * 20_000))
        way.packets()
    assert len(way.peer_link._in_flight) == CONFIG.calls_in_flight_max


def test_packet_names_both_ends_in_their_lives(way: Way) -> None:
    way.push(1)
    packet = way.peer_link.next_packet(0.0)
    assert packet is not None
    address = read_address(packet[1])
    assert (address.sender, address.receiver) == (ME, PEER)
    assert (address.sender_incarnation, address.receiver_incarnation) == (MY_LIFE, PEER_LIFE)


def test_frame_holds_no_more_than_its_limit_and_frames_are_numbered(way: Way) -> None:
    way.push(*range(1, 26))
    ((_, packet),) = way.packets()
    assert [(f.seq, len(f.batch)) for f in packet.frames] == [(1, 10), (2, 10), (3, 5)]


def test_one_long_queue_does_not_starve_the_other(way: Way) -> None:
    other = RemoteChannel(1, 3, 1_000, ready=way.peer_link.ready)
    way.push(*range(100))
    other.push(Batch(4, 1, [("rain", 1)]))
    ((_, packet), *_) = way.packets()
    assert [frame.target for frame in packet.frames][:3] == [2, 3, 2]


def test_nothing_leaves_before_the_peer_has_said_hello() -> None:
    peer_link = PeerLink(ME, MY_LIFE, PEER, CONFIG, STREAMS, lambda *_: None)
    peer_link.content.postponed.append(1)
    assert peer_link.next_packet(0.0) is None
    assert peer_link.next_look_s == math.inf, "there is no time to look again: the hello is news"
    peer_link.peer_is(1)
    assert peer_link.next_packet(0.0) is not None


def test_record_that_cannot_travel_is_taken_out_and_the_rest_goes_on(way: Way) -> None:
    way.push(1, 2)
    way.push(3, of=object())
    way.push(4)
    assert way.sent() == [[1, 2, 4]]
    assert [batch.roots.tolist() for batch in way.refused] == [[3]]
    assert way.channel.load == 3


def test_peer_link_with_only_records_that_cannot_travel_sends_nothing(way: Way) -> None:
    way.push(1, of=object())
    assert way.sent() == []
    assert way.peer_link.idle


# ---- answers ------------------------------------------------------------------------------------


def filled(way: Way) -> None:
    """Everything that a packet can carry."""
    way.push(1, 2)
    content = way.peer_link.content
    content.reports[7] = ShardReport([(u64(1), u64(9))], [(u64(2), u64(8))], [(3, FAILURE)])
    content.verdicts[8] = Verdicts([u64(5)], [(6, FAILURE)])
    content.grants.append((4, 5, 6, Credit(7, 1)))


def test_accepted_packet_is_settled(way: Way) -> None:
    filled(way)
    way.packets()
    lost = way.peer_link.answered(1, Answer.ACCEPTED, 0.0)
    assert (lost.frames, lost.reports) == ([], [])
    assert way.peer_link.idle


@pytest.mark.parametrize("answer", [Answer.REFUSED, Answer.STALE, None])
def test_frames_and_reports_of_a_packet_that_was_not_taken_are_lost(
    way: Way, answer: Answer | None
) -> None:
    filled(way)
    way.packets()
    lost = way.peer_link.answered(1, answer, 0.0)
    assert lost.frames == [(way.channel, {1})]
    (report,) = lost.reports
    assert [roots.tolist() for roots in report.roots()] == [[1], [2]]
    assert report.fails == [(3, FAILURE)]


@pytest.mark.parametrize("answer", [Answer.REFUSED, Answer.STALE, None])
def test_verdicts_and_grants_of_a_packet_that_was_not_taken_are_said_again(
    way: Way, answer: Answer | None
) -> None:
    filled(way)
    way.packets()
    way.peer_link.answered(1, answer, 0.0)
    if answer is None:
        ((probe, _),) = way.packets(now=100.0)
        way.peer_link.answered(probe, Answer.ACCEPTED, 100.0)
    ((_, again),) = way.packets(now=100.0)
    assert [roots.tolist() for roots in again.verdicts[8].complete] == [[5]]
    assert again.verdicts[8].failed == [(6, FAILURE)]
    assert again.grants == [(4, 5, 6, Credit(7, 1))]
    assert not again.frames


def test_refused_packet_does_not_stop_the_peer_link(way: Way) -> None:
    way.push(1)
    way.packets()
    way.push(2)
    way.peer_link.answered(1, Answer.REFUSED, 0.0)
    assert way.sent() == [[2]]


@pytest.mark.parametrize("answer", [Answer.STALE, None])
def test_peer_link_rests_after_a_call_that_failed_and_tries_again(
    way: Way, answer: Answer | None
) -> None:
    way.push(1)
    way.packets()
    way.push(2)
    way.peer_link.answered(1, answer, 10.0)
    assert way.sent(now=10.0) == []
    again_s = 10.0 + CONFIG.peer_link_retry_s
    assert way.peer_link.next_look_s == again_s
    if answer is None:
        ((probe, packet),) = way.packets(now=again_s)
        assert not packet.frames, "the records wait until the peer answers"
        way.peer_link.answered(probe, Answer.ACCEPTED, again_s)
    assert way.sent(now=again_s) == [[2]]


def test_packet_whose_answer_is_overdue_is_lost(way: Way) -> None:
    way.push(1)
    way.packets(now=5.0)
    due_s = 5.0 + CONFIG.worker_timeout_s / 2
    assert way.peer_link.next_look_s == due_s
    assert way.peer_link.overdue(due_s - 0.1) == []
    assert way.peer_link.overdue(due_s) == [1]
    assert way.peer_link.answered(1, None, due_s).frames
    assert way.peer_link.silent_s(20.0) == 15.0, "since the packet left"


def test_time_in_which_this_process_was_stopped_does_not_count(way: Way) -> None:
    way.push(1)
    way.packets(now=5.0)
    way.peer_link.stopped_for(100.0)
    assert way.peer_link.overdue(105.0) == []


def test_second_answer_to_a_packet_says_nothing(way: Way) -> None:
    way.push(1)
    way.packets()
    way.peer_link.answered(1, Answer.ACCEPTED, 0.0)
    assert not way.peer_link.answered(1, None, 0.0).frames
    assert way.peer_link.up(0.0)


# ---- a new life of the peer ---------------------------------------------------------------------


def test_what_was_on_its_way_to_a_former_life_is_lost_and_the_peer_link_is_up(way: Way) -> None:
    filled(way)
    way.packets()
    way.peer_link._up_again_s = 99.0
    lost = way.peer_link.peer_is(PEER_LIFE + 1)
    assert lost.frames == [(way.channel, {1})]
    assert len(lost.reports) == 1
    way.push(3)
    assert way.sent() == [[3]]


def test_grants_do_not_reach_the_next_life(way: Way) -> None:
    way.peer_link.content.grants.append((4, 5, 6, Credit(7, 1)))
    way.peer_link.peer_is(PEER_LIFE + 1)
    assert way.packets() == [], "they count frames that the new life has never sent"


def test_same_life_twice_is_no_news(way: Way) -> None:
    way.push(1)
    way.packets()
    assert not way.peer_link.peer_is(PEER_LIFE).frames
    assert not way.peer_link.idle


# ---- the receiving end --------------------------------------------------------------------------


def packet(seq: int, sender_life: int = MY_LIFE, receiver_life: int = PEER_LIFE) -> bytes:
    peer_link = PeerLink(ME, sender_life, PEER, CONFIG, STREAMS, lambda *_: None)
    peer_link.peer_is(receiver_life)
    peer_link._seq = seq - 1
    peer_link.content.postponed.append(1)
    found = peer_link.next_packet(0.0)
    assert found is not None
    return found[1]


@pytest.fixture
def packet_receiver() -> PacketReceiver:
    return PacketReceiver(PEER, PEER_LIFE)


def test_packets_in_order_are_accepted_gaps_and_all(packet_receiver: PacketReceiver) -> None:
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


def test_sender_in_a_new_life_counts_from_one_and_its_old_life_is_over(
    packet_receiver: PacketReceiver,
) -> None:
    packet_receiver.answer(packet(9))
    assert packet_receiver.answer(packet(1, sender_life=MY_LIFE + 1)) is Answer.ACCEPTED
    assert packet_receiver.answer(packet(10)) is Answer.STALE


def test_error_type_is_the_one_that_the_refusal_names() -> None:
    found: list[Unserialisable] = []
    peer_link = PeerLink(
        ME, MY_LIFE, PEER, CONFIG, STREAMS, lambda _c, _b, error: found.append(error)
    )
    peer_link.peer_is(PEER_LIFE)
    RemoteChannel(1, 2, 9, ready=peer_link.ready).push(Batch(4, 1, [("a", object())]))
    peer_link.next_packet(0.0)
    assert "cannot travel to another process" in str(found[0])
