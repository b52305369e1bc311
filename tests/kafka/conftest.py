"""Fixtures: brokers with coordinators; Kafka spouts and batch spouts over a fake client."""

from __future__ import annotations

from functools import partial

import pytest

from sunshower.dev.kafka import Kafka
from tests.kafka.fakes import BatchRig, NewBatchRig, NewSpoutRig, SpoutRig
from tests.kafka.topics import wait_for_coordinators


@pytest.fixture(scope="session")
def kafka(kafka: Kafka) -> Kafka:
    """The broker of tests/servers.py, with coordinators."""
    wait_for_coordinators(kafka.bootstrap)
    return kafka


@pytest.fixture(scope="session")
def kafka_zk(kafka_zk: Kafka) -> Kafka:
    """The broker of tests/servers.py, with coordinators."""
    wait_for_coordinators(kafka_zk.bootstrap)
    return kafka_zk


@pytest.fixture
def new_spout_rig(monkeypatch: pytest.MonkeyPatch) -> NewSpoutRig:
    """Call it with the offset bounds of each partition, and options."""
    return partial(SpoutRig, monkeypatch)


@pytest.fixture
def new_batch_rig(monkeypatch: pytest.MonkeyPatch) -> NewBatchRig:
    """Call it with the class of the spout, the offset bounds of each partition, and options."""
    return partial(BatchRig, monkeypatch)
