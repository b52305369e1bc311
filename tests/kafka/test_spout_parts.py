"""The spout without a broker: what goes wrong between what it takes and what it gives."""

from __future__ import annotations

import numpy as np
import pytest

from sunshower.errors import NotAuthorised
from sunshower.kafka.partitions import Partition
from tests.kafka.fakes import FORBIDDEN, RESET, Desk, Kept, message
from tests.kafka.groups import raises


def test_a_range_that_is_skipped_is_told_also_after_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(monkeypatch, (10, 100), kept=Kept(p0=3))
    desk.open()
    desk.client.waiting = [message(3, error=RESET)]
    desk.poll()
    desk.client.waiting = [message(0, 7, error=FORBIDDEN, topic="b"), message(10)]
    with pytest.raises(NotAuthorised):
        desk.spout.poll(100)
    polled = desk.spout.poll(100)
    assert polled is not None
    assert [one.record["to"] for one in polled.unreadable] == [9]
    assert [*polled.records] == [(0, 10)]
    assert desk.spout.skipped_count == 7


def test_a_commit_that_raises_takes_no_message_along(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch, (0, 100))
    desk.open()
    desk.client.waiting = [message(0)]
    assert desk.poll() == [(0, 0)]
    desk.spout.acked(np.array([desk.spout._reading.places[Partition("a", 0)].number(0)]))
    begin = desk.spout._reading.committer.begin
    monkeypatch.setattr(desk.spout._reading.committer, "begin", raises(RuntimeError("odd")))
    desk.client.waiting = [message(1)]
    desk.clock.advance(2.0)
    with pytest.raises(RuntimeError, match="odd"):
        desk.spout.poll(100)
    monkeypatch.setattr(desk.spout._reading.committer, "begin", begin)
    assert desk.poll() == [(0, 1)]
