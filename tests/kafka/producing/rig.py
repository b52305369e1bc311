"""Calls a bolt directly, as a worker calls it, and collects its acks and fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, cast

from sunshower.clock import SystemClock
from sunshower.dev.kafka import Kafka
from sunshower.errors import KafkaUnreachable
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

    @property
    def settled(self) -> int:
        return len(self.acked) + len(self.failed)

    def has_settled_more(self, than: int) -> bool:
        return self.settled > than

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

    def deliver(self, record: Any) -> None:
        """Give the record, and again each time the brokers do not take it in time, as a spout
        does, until it is acked."""
        clock, acked = SystemClock(), len(self.out.acked)
        end_s = clock.now() + WITHIN_S
        while len(self.out.acked) == acked:
            assert clock.now() < end_s, vars(self.out)
            settled = self.out.settled
            try:
                self.take(record)
            except KafkaUnreachable:  # a worker waits, and calls the bolt again
                clock.sleep(0.01)
            else:
                self.until(partial(RecordingCollector.has_settled_more, than=settled))

    def until(self, condition: Callable[[RecordingCollector], object]) -> None:
        """Call the bolt, as a worker does while nothing arrives and in an outage."""
        clock = SystemClock()
        end_s = clock.now() + WITHIN_S
        while not condition(self.out):
            assert clock.now() < end_s, vars(self.out)
            clock.sleep(0.01)
            with suppress(KafkaUnreachable):
                self.bolt.tick()
            self.bolt.flush()


@contextmanager
def paused(kafka: Kafka) -> Iterator[None]:
    kafka.pause(1)
    try:
        yield
    finally:
        kafka.resume(1)
