"""Fake Kafka clients and offset stores with a manual clock, for tests of the spouts' parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import Message

from sunshower.clock import ManualClock
from sunshower.errors import KafkaUnreachable
from sunshower.kafka.consuming.partition_reader import PartitionReader
from sunshower.kafka.consuming.start_position import StartPosition
from sunshower.kafka.consuming.subscription import TopicWatch
from sunshower.kafka.exactly_once.batch_spouts import BatchOptions
from sunshower.kafka.options import KafkaOptions
from sunshower.kafka.partitions.ports import Committed, Offsets, Partition, RetainedOffsets
from sunshower.kafka.spout import KafkaSpout
from sunshower.topologies.components import Context
from sunshower.trident.spouts.bounds import Bounds, Room
from tests.kafka.groups import Topics

SETTINGS = {"bootstrap.servers": "nowhere:1", "group.id": "g"}
EOF, RESET = ClientError._PARTITION_EOF, ClientError._AUTO_OFFSET_RESET
FORBIDDEN = ClientError.TOPIC_AUTHORIZATION_FAILED


def message(
    offset: int, partition: int = 0, *, error: int = 0, topic: str = "a", value: bytes = b""
) -> Message:
    client_error = ClientError(error) if error else None
    return Message(topic=topic, partition=partition, offset=offset, value=value, error=client_error)


class Client:
    """A fake Consumer.

    `bounds_of`: the first offset and the end of each partition. A partition that is missing in it
    has no leader.
    """

    def __init__(self, *_: object) -> None:
        self.address, self.group = "nowhere:1", "g"
        self.eager = False
        self.bounds_of: dict[Partition, tuple[int, int]] = {}
        self.reads: dict[Partition, int] = {}
        self.waiting: list[Message] = []
        self.asked = 0
        self.is_cut = self.has_partition_error = False
        self.connection = self
        self.closed = False

    def consume(self, limit: int, _: float) -> list[Message]:
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return taken

    def assign(self, offsets: Mapping[Partition, int]) -> None:
        self.reads |= offsets

    def unassign(self, partitions: Collection[Partition]) -> None:
        for partition in partitions:
            del self.reads[partition]

    def pause(self, partitions: Collection[Partition]) -> None: ...

    def resume(self, partitions: Collection[Partition]) -> None: ...

    def retained(self, partition: Partition) -> RetainedOffsets:
        self.asked += 1
        if partition not in self.bounds_of:
            raise KafkaUnreachable(f"{partition} has no leader")
        return RetainedOffsets(*self.bounds_of[partition])

    def since(self, partition: Partition, timestamp_ms: int) -> None: ...

    def call_on_arrival(self, wake: Callable[[], None]) -> None: ...

    def check(self) -> None:
        if self.is_cut:
            raise KafkaUnreachable("all brokers are unavailable")

    def end(self, partition: Partition) -> int | None:
        return self.bounds_of.get(partition, (0, None))[1]

    def close(self) -> None:
        self.closed = True


class LogClient(Client):
    """Reads logs of topic `a`.

    `logs`: the offsets of the messages of each partition, ascending.
    `ends`: where a partition ends, unless it ends after its last message.
    `on_no_leader`: is called when the bounds of a partition without a leader are requested.
    """

    def __init__(self, logs: dict[int, Sequence[int]]) -> None:
        super().__init__()
        self.logs, self.ends = logs, dict[int, int]()
        self.first_messages: list[Message] = []  # the next call of `consume` returns these first
        self.reported: set[Partition] = set()  # partitions whose end or error was reported
        self.seeks: list[tuple[Partition, int]] = []
        self.taken = 0
        self.on_no_leader: Callable[[], None] = lambda: None

    def assign(self, offsets: Mapping[Partition, int]) -> None:
        assert not offsets.keys() & self.reads.keys()
        super().assign(offsets)
        self.reported -= offsets.keys()
        self.seeks += offsets.items()

    def retained(self, partition: Partition) -> RetainedOffsets:
        log = self.logs.get(partition.number)
        if log is None or self.is_cut:
            self.on_no_leader()
            raise KafkaUnreachable(f"{partition} has no leader")
        end = self.ends.get(partition.number, log[-1] + 1 if log else 0)
        return RetainedOffsets(log[0] if log else end, end)

    def consume(self, limit: int, _: float) -> list[Message]:
        messages, self.first_messages = self.first_messages, []
        events = []
        for partition, at in self.reads.items():
            log = self.logs[partition.number]
            end = self.ends.get(partition.number, log[-1] + 1 if log else 0)
            part = [offset for offset in log if offset >= at][: limit - len(messages)]
            kind = RESET if at > end or (log and at < log[0]) else EOF
            if kind == EOF:
                messages += [message(offset, partition.number) for offset in part]
                self.reads[partition] = part[-1] + 1 if part else at
            if partition not in self.reported and (kind == RESET or len(messages) < limit):
                self.reported.add(partition)
                events.append(message(end if kind == EOF else at, partition.number, error=kind))
        self.taken += len(messages)
        return messages + events


class FakeOffsets(Offsets):
    """Offsets in memory. `write_error`: the error that a write raises."""

    def __init__(self, **offsets: int) -> None:
        self.committed = {Partition("a", int(n[1:])): Committed(at) for n, at in offsets.items()}
        self.write_error: Exception | None = None
        self.closed = False

    def read(self, partitions: Collection[Partition]) -> dict[Partition, Committed]:
        return {
            partition: self.committed[partition]
            for partition in partitions
            if partition in self.committed
        }

    def write(self, offsets: Mapping[Partition, Committed]) -> None:
        if self.write_error is not None:
            raise self.write_error
        self.committed |= offsets

    def at(self, partition: int = 0) -> int | None:
        committed = self.committed.get(Partition("a", partition))
        return None if committed is None else committed.offset

    def close(self) -> None:
        self.closed = True


def new_reader(client: Client, offsets: Any, **options: Any) -> PartitionReader:
    """A PartitionReader of the deployment `t-1`, of topics with these `ids`."""
    ids: Mapping[str, str] = options.pop("ids", {})
    consumer: Any = client
    watch = TopicWatch(
        lambda topics: {topic: ids.get(topic, "") for topic in topics}, ManualClock()
    )
    return PartitionReader(consumer, offsets, KafkaOptions(**options), "t-1", 1, watch)


class AtOnce:
    """Instead of a thread: runs each call at once."""

    def __init__(self, *_: object) -> None: ...

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(call(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done

    def shutdown(self, **_: object) -> None: ...


class SpoutRig:
    """A KafkaSpout of topic `a`, over a fake client, fake offsets and a manual clock."""

    def __init__(self, patch: pytest.MonkeyPatch, *bounds: tuple[int, int], **options: Any) -> None:
        self.clock = ManualClock()
        self.client = Client()
        self.client.bounds_of = {Partition("a", n): bound for n, bound in enumerate(bounds)}
        self.topics = Topics(a=len(bounds))
        self.offsets = options.pop("offsets", None) or FakeOffsets()
        patch.setattr("sunshower.kafka.spout.Consumer", lambda _: self.client)
        patch.setattr("sunshower.kafka.consuming.subscription.ThreadPoolExecutor", AtOnce)
        usual: dict[str, Callable[[Any], Any]] = {
            "directory": lambda _: self.topics,
            "store": lambda _: self.offsets,
        }
        chosen = KafkaOptions(**usual | options)
        fields = ("partition", "offset")
        self.spout = KafkaSpout(SETTINGS, topics=["a"], fields=fields, options=chosen)

    def open(self) -> None:
        self.spout.open(Context("t", "in", 0, 0, 1, clock=self.clock))

    def poll(self, limit: int = 100) -> list[tuple[int, int]]:
        """(partition, offset) of each record."""
        polled = self.spout.poll(limit)
        return [] if polled is None else [*polled.records]


class BatchRig:
    """An open batch spout of topic `a`, over a fake client that advances the clock as it waits.

    `bounds`: the first offset and the end of each partition.
    """

    def __init__(
        self, patch: pytest.MonkeyPatch, kind: Any, *bounds: tuple[int, int], **more: Any
    ) -> None:
        self.client, self.clock, self.topics = Client(), ManualClock(), Topics(a=len(bounds))
        self.client.bounds_of = {Partition("a", n): bound for n, bound in enumerate(bounds)}
        consume = self.client.consume

        def asked(limit: int, wait_s: float) -> list[Message]:
            messages = consume(limit, wait_s)
            self.clock.advance(0.0 if messages else wait_s)
            return messages

        vars(self.client)["consume"] = asked
        patch.setattr("sunshower.kafka.exactly_once.batch_spouts.Consumer", lambda _: self.client)
        names = ("records", "bytes", "seconds")
        limits = Bounds(**{"records": 100} | {n: more.pop(n) for n in names if n in more})
        source = more.pop("source", {})
        usual: dict[str, Any] = {"directory": lambda _: self.topics}
        usual["first"] = StartPosition.EARLIEST
        options = BatchOptions(bounds=limits, **usual | more)
        self.spout = kind(SETTINGS, topics=["a"], options=options, **source)
        self.spout.open(Context("t", "in", 0, 0, 1, clock=self.clock))
        self.metadata: dict[str, Any] = {}  # the metadata of the last batch

    def batch(self, **last: Any) -> tuple[list[Any], dict[str, Any]]:
        """Emit a new batch: its rows, and its metadata. `p0=` is the last metadata of a@0."""
        room = Room(self.spout.bounds, self.clock)
        metadata_of = self.spout.emit_all_new(
            {f"a@{n[1:]}": metadata for n, metadata in last.items()}, room
        )
        self.metadata |= metadata_of
        return room.rows, metadata_of

    def again(self) -> list[Any]:
        """Emit the last batch again: its rows."""
        room = Room(self.spout.bounds, self.clock)
        self.spout.emit_all_again(self.metadata, room)
        return room.rows


NewSpoutRig = Callable[..., SpoutRig]
NewBatchRig = Callable[..., BatchRig]
