"""A broker in memory, whose topics are cut, deleted and created again, and the client of one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import Message

from sunshower.clock import ManualClock
from sunshower.errors import KafkaUnreachable, UnknownTopic
from sunshower.kafka.consuming.start_position import StartPosition
from sunshower.kafka.exactly_once.batch_spouts import BatchOptions, KafkaRanges
from sunshower.kafka.partitions.ports import Partition, RetainedOffsets
from tests.kafka.fakes import EOF, RESET, SETTINGS, Client


@dataclass
class Log:
    """A partition: the values from offset `first` on."""

    first: int = 0
    values: list[bytes] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.first + len(self.values)


@dataclass
class Topic:
    """A topic. `epoch`: of the leaders of its partitions."""

    id: str
    logs: list[Log]
    epoch: int = 0


class Broker:
    """Implements `Directory`, too. `gives_ids` is False for brokers before Kafka 2.8."""

    def __init__(self, *, gives_ids: bool = True) -> None:
        self.topics_of: dict[str, Topic] = {}
        self.gives_ids = gives_ids
        self.created = 0
        self.answers = True  # requests for ids
        self.away: set[Partition] = set()  # partitions whose leaders do not answer

    def create(self, name: str, partitions: int = 1) -> Topic:
        self.created += 1
        logs = [Log() for _ in range(partitions)]
        self.topics_of[name] = topic = Topic(f"id-{self.created}", logs)
        return topic

    def delete(self, name: str) -> None:
        del self.topics_of[name]

    def fill(self, name: str, partition: int, values: Collection[bytes]) -> None:
        self.topics_of[name].logs[partition].values += values

    def cut(self, name: str, partition: int, first: int) -> None:
        """Remove the records before `first`, as delete_records does."""
        log = self.topics_of[name].logs[partition]
        log.values, log.first = log.values[first - log.first :], max(first, log.first)

    def log(self, partition: Partition) -> Log | None:
        topic = self.topics_of.get(partition.topic)
        if topic is None or partition.number >= len(topic.logs):
            return None
        return topic.logs[partition.number]

    # ---- the port `Directory` -------------------------------------------------------------------

    def topics(self) -> frozenset[str]:
        return frozenset(self.topics_of)

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        if topic not in self.topics_of:
            raise UnknownTopic(f"there is no topic {topic!r}")
        return tuple(Partition(topic, n) for n in range(len(self.topics_of[topic].logs)))

    def leaders(self, topic: str) -> dict[Partition, str | None]:
        return dict.fromkeys(self.partitions(topic))

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        if not self.answers:
            raise KafkaUnreachable("no answer")
        return {
            name: self.topics_of[name].id if self.gives_ids else ""
            for name in topics
            if name in self.topics_of
        }

    def bootstrap(self) -> str:
        return "nowhere:1"

    def close(self) -> None: ...


class BrokerClient(Client):
    """Reads on at its offset in a topic that was created again, as librdkafka does."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self.broker = broker
        self.reported: set[tuple[Partition, int, int]] = set()  # ends, and errors

    def consume(self, limit: int, _: float) -> list[Message]:
        messages: list[Message] = []
        for partition, at in [*self.reads.items()]:
            log = self.broker.log(partition)
            if log is None or len(messages) >= limit or partition in self.broker.away:
                continue
            if not log.first <= at <= log.end:
                messages += self._event(partition, at, RESET)
                continue
            values = log.values[at - log.first :][: limit - len(messages)]
            epoch = self.broker.topics_of[partition.topic].epoch
            messages += [
                self._message(partition, at + n, value, epoch) for n, value in enumerate(values)
            ]
            self.reads[partition] = at + len(values)
            if len(messages) < limit:
                messages += self._event(partition, log.end, EOF)
        return messages

    def assign(self, offsets: Any) -> None:
        super().assign(offsets)
        self.reported = {position for position in self.reported if position[0] not in offsets}

    def retained(self, partition: Partition) -> RetainedOffsets:
        log = self.broker.log(partition)
        if log is None:
            raise UnknownTopic(f"there is no partition {partition}")
        return RetainedOffsets(log.first, log.end)

    def end(self, partition: Partition) -> int | None:
        log = self.broker.log(partition)
        return None if log is None else log.end

    def ask_ends(self, partitions: Collection[Partition]) -> dict[Partition, Future[Any]]:
        answers: dict[Partition, Future[Any]] = {partition: Future() for partition in partitions}
        for partition, answer in answers.items():
            log = self.broker.log(partition)
            if log is None or partition in self.broker.away:
                answer.set_exception(RuntimeError("its leader is away"))
            else:
                answer.set_result(SimpleNamespace(offset=log.end))
        return answers

    def _event(self, partition: Partition, offset: int, kind: int) -> list[Message]:
        if (partition, offset, kind) in self.reported:
            return []
        self.reported.add((partition, offset, kind))
        error = ClientError(kind)
        return [
            Message(topic=partition.topic, partition=partition.number, offset=offset, error=error)
        ]

    def _message(self, partition: Partition, offset: int, value: bytes, epoch: int) -> Message:
        return Message(
            topic=partition.topic,
            partition=partition.number,
            offset=offset,
            value=value,
            leader_epoch=epoch,
        )


def new_batches(
    patch: pytest.MonkeyPatch,
    kind: Any,
    broker: Broker,
    clock: ManualClock,
    fields: Sequence[str],
    deployment: str = "d",
    **options: Any,
) -> Any:
    """A batch spout of topic `a`; its clients advance the clock as they wait."""

    def new_client(_: object) -> BrokerClient:
        client = BrokerClient(broker)

        def consume(limit: int, wait_s: float) -> list[Message]:
            clock.advance(wait_s)
            return BrokerClient.consume(client, limit, wait_s)

        vars(client)["consume"] = consume
        return client

    patch.setattr("sunshower.kafka.exactly_once.batch_spouts.Consumer", new_client)
    usual: dict[str, Any] = {"first": StartPosition.EARLIEST, "refresh_s": 0.001}
    chosen = BatchOptions(directory=lambda _: broker, **usual | options)
    source = {} if kind is KafkaRanges else {"fields": fields}
    return kind(SETTINGS, topics=["a"], options=chosen, deployment=deployment, **source)
