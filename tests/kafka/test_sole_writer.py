"""SoleWriterBolt and the tails it reads, with a client that does as told: no broker is needed."""

from __future__ import annotations

from typing import Any

from sunshower.kafka import tail
from sunshower.kafka.partitions import Partition


class Error:
    """As the client's."""

    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name

    def str(self) -> str:
        return self._name


class Note:
    """What a client hands out: a message, or an event of a partition."""

    def __init__(self, partition: int, value: bytes = b"", error: Error | None = None) -> None:
        self._partition, self._value, self._error = partition, value, error

    def topic(self) -> str:
        return "words"

    def partition(self) -> int:
        return self._partition

    def value(self) -> bytes:
        return self._value

    def error(self) -> Error | None:
        return self._error


class Told:
    """A consumer that hands out what it was given, a batch at a time."""

    def __init__(self, *batches: list[Note]) -> None:
        self._batches = list(batches)

    def assign(self, starts: list[Any]) -> None: ...

    def consume(self, limit: int, timeout: float) -> list[Note]:
        return self._batches.pop(0)


def test_the_end_of_one_partition_told_twice_is_not_that_of_another() -> None:
    end = Error("_PARTITION_EOF")
    client: Any = Told(
        [Note(0, b"a"), Note(0, error=end)],
        [Note(0, b"b"), Note(0, error=end)],  # more has come meanwhile
        [Note(1, b"c"), Note(1, error=end)],
    )
    both = (Partition("words", 0), Partition("words", 1))
    assert [message.value() for message in tail._read(client, both, 10)] == [b"a", b"b", b"c"]
