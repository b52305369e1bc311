"""Fixtures: Kafka spouts and batch spouts over a fake client, without a broker."""

from __future__ import annotations

from functools import partial

import pytest

from tests.kafka.fakes import BatchDesk, Desk, NewBatchDesk, NewDesk


@pytest.fixture
def new_desk(monkeypatch: pytest.MonkeyPatch) -> NewDesk:
    """Call it with the offset bounds of each partition, and options."""
    return partial(Desk, monkeypatch)


@pytest.fixture
def new_batches(monkeypatch: pytest.MonkeyPatch) -> NewBatchDesk:
    """Call it with the class of the spout, the offset bounds of each partition, and options."""
    return partial(BatchDesk, monkeypatch)
