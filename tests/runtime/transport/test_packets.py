"""A packet decodes to what was encoded, and every flipped bit is detected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import versions
from sunshower.errors import CorruptPacket, VersionMismatch
from sunshower.failures import Cause, Failure
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.tracking.ledger import Verdicts
from sunshower.runtime.tracking.reports import ShardReport
from sunshower.runtime.transport.channels import Credit
from sunshower.runtime.transport.packets import (
    Address,
    Content,
    Grant,
    encode_frame,
    encode_packet,
    read_address,
    read_content,
)
from tests.runtime.batches import MAX, STREAMS, Word, batches, ids, records_with_anchors

ADDRESS = Address(1, 2, 3, 4, 5)
failures = st.builds(
    Failure, st.sampled_from(Cause), st.sampled_from(["", "split"]), st.integers(-1, 9), st.text()
)
failed = st.lists(st.tuples(ids, failures), max_size=4)
arrays = st.lists(ids, max_size=5).map(lambda values: np.array(values, np.uint64))
pairs = st.lists(ids, min_size=1, max_size=5).map(
    lambda values: (np.array(values, np.uint64), np.array(values[::-1], np.uint64))
)
reports = st.builds(ShardReport, st.lists(pairs, max_size=3), st.lists(pairs, max_size=3), failed)
verdicts = st.builds(Verdicts, st.lists(arrays, max_size=3), failed)
numbers = st.integers(1, 99)
grants = st.tuples(numbers, numbers, numbers, st.builds(Credit, numbers, numbers))


def report_content(report: ShardReport) -> tuple[Any, ...]:
    """The content of a report, however its arrays are split."""
    parts = [
        np.concatenate([p[i] for p in columns]).tolist() if columns else []
        for columns in (report.starts, report.acks)
        for i in (0, 1)
    ]
    return (*parts, sorted(report.fails, key=repr))


def verdicts_content(verdict: Verdicts) -> tuple[Any, ...]:
    complete = np.concatenate([np.zeros(0, np.uint64), *verdict.complete]).tolist()
    return complete, sorted(verdict.failed, key=repr)


@given(
    st.lists(batches(), max_size=3),
    st.dictionaries(st.integers(1, 9), reports, max_size=2),
    st.dictionaries(st.integers(1, 9), verdicts, max_size=2),
    st.lists(ids, max_size=3),
    st.lists(grants, max_size=3),
)
def test_packet_decodes_to_what_was_encoded(
    sent: list[Batch],
    reports: dict[int, ShardReport],
    verdicts: dict[int, Verdicts],
    postponed: list[int],
    grants: list[Grant],
) -> None:
    frames = [
        encode_frame(9, seq, b, STREAMS[b.stream], MAX) for seq, b in enumerate(sent, start=1)
    ]
    data = encode_packet(ADDRESS, Content(frames, reports, verdicts, postponed, grants))
    assert read_address(data) == ADDRESS
    packet = read_content(data, STREAMS)
    assert (packet.sender, packet.life) == (1, 3)
    assert [(f.target, f.seq, records_with_anchors(f.batch)) for f in packet.frames] == [
        (9, seq, records_with_anchors(batch)) for seq, batch in enumerate(sent, start=1)
    ]
    assert {t: report_content(r) for t, r in packet.reports.items()} == {
        t: report_content(r) for t, r in reports.items()
    }
    assert {t: verdicts_content(v) for t, v in packet.verdicts.items()} == {
        t: verdicts_content(v) for t, v in verdicts.items()
    }
    assert packet.postponed.tolist() == postponed
    assert packet.grants == grants


def test_questions_about_progress_and_their_answers_travel() -> None:
    roots = np.array([1 << 60, 2 << 60], np.uint64)
    ages = np.array([0.25, np.inf])
    content = Content(
        reports={4: ShardReport(asks=[roots[:1], roots[1:]])},
        verdicts={5: Verdicts(ages=[(roots[:1], ages[:1]), (roots[1:], ages[1:])])},
    )
    packet = read_content(encode_packet(ADDRESS, content), STREAMS)
    assert [asked.tolist() for asked in packet.reports[4].asks] == [roots.tolist()]
    ((of_roots, received),) = packet.verdicts[5].ages
    assert (of_roots.tolist(), received.tolist()) == (roots.tolist(), ages.tolist())


def example() -> bytes:
    root = np.array([1 << 60], np.uint64)
    failure = Failure(Cause.FAILED, "split", 0, "no such word")
    frame = encode_frame(9, 1, Batch(0, 7, [Word("rain", 1)], root, root), STREAMS[0], MAX)
    report = ShardReport([(root, root)], [(root, root)], [(1 << 60, failure)])
    return encode_packet(ADDRESS, Content([frame], {4: report}, {5: Verdicts([root])}, [7], []))


def test_every_flipped_bit_is_detected() -> None:
    data = example()
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptPacket):
            read_address(bytes(flipped))


def test_every_truncation_is_detected() -> None:
    data = example()
    for length in range(len(data)):
        with pytest.raises(CorruptPacket):
            read_address(data[:length])


def test_packet_of_another_release_is_refused_with_both_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = versions.PROTOCOL + 1
    with monkeypatch.context() as other_release:
        other_release.setattr(versions, "PROTOCOL", other)
        packet = example()
    message = f"version {other}, and .* {versions.PROTOCOL}: let all"
    with pytest.raises(VersionMismatch, match=message):
        read_address(packet)


def test_reason_with_a_lone_surrogate_travels_too() -> None:
    failure = Failure(Cause.EXCEPTION, "split", 0, "ValueError: '\udc80'")  # from a file name, say
    content = Content(verdicts={5: Verdicts([], [(1, failure)])})
    packet = read_content(encode_packet(ADDRESS, content), STREAMS)
    assert packet.verdicts[5].failed == [(1, failure)]


def test_failure_that_many_roots_share_is_written_once() -> None:
    failure = Failure(Cause.EXCEPTION, "split", 0, "x" * 1_000)
    content = Content(verdicts={5: Verdicts([], [(root, failure) for root in range(100)])})
    assert len(encode_packet(ADDRESS, content)) < 2_000
