"""Calls a bolt directly, as a worker calls it, and collects its acks and fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from sunshower.clock import SystemClock
from sunshower.dev.kafka import Kafka
from sunshower.topologies.components import Context
from tests.kafka.topics import WITHIN_S


class Input:
    """An input tuple of a bolt that acks its inputs itself."""

    def __init__(self, record: Any) -> None:
        self.record = record
        self.component, self.task, self.stream = "source", 0, "default"


class RecordingCollector:
    """A collector that records all calls."""

    def __init__(self) -> None:
        self.acked: list[Any] = []
        self.failed: list[tuple[Any, Any]] = []  # with the reason
        self.renewed: list[Any] = []

    def ack(self, tuple: Input) -> None:
        self.acked.append(tuple.record)

    def fail(self, tuple: Input, reason: Any = "") -> None:
        self.failed.append((tuple.record, reason))

    def reset_timeout(self, tuple: Input) -> None:
        self.renewed.append(tuple.record)


class BoltRig:
    """A prepared bolt, and the acks and fails of its inputs."""

    def __init__(self, bolt: Any, clock: Any = None) -> None:
        self.bolt, self.out = bolt, RecordingCollector()
        bolt.prepare(Context("t", "out", 1, 0, 1, clock=clock or SystemClock()))

    def give(self, *records: Any) -> None:
        for record in records:
            self.bolt.execute(Input(record), cast("Any", self.out))

    def take(self, *records: Any) -> None:
        self.give(*records)
        self.bolt.flush()

    def until(self, condition: Callable[[RecordingCollector], object]) -> None:
        clock = SystemClock()
        end_s = clock.now() + WITHIN_S
        while not condition(self.out):
            assert clock.now() < end_s, vars(self.out)
            clock.sleep(0.01)
            self.bolt.tick()
            self.bolt.flush()


@contextmanager
def paused(kafka: Kafka) -> Iterator[None]:
    kafka.pause(1)
    try:
        yield
    finally:
        kafka.resume(1)
