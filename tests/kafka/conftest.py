"""Fixtures: Kafka spouts and batch spouts over a fake client."""

from __future__ import annotations

from functools import partial

import pytest

from tests.kafka.fakes import BatchRig, NewBatchRig, NewSpoutRig, SpoutRig


@pytest.fixture
def new_spout_rig(monkeypatch: pytest.MonkeyPatch) -> NewSpoutRig:
    """Call it with the offset bounds of each partition, and options."""
    return partial(SpoutRig, monkeypatch)


@pytest.fixture
def new_batch_rig(monkeypatch: pytest.MonkeyPatch) -> NewBatchRig:
    """Call it with the class of the spout, the offset bounds of each partition, and options."""
    return partial(BatchRig, monkeypatch)
