"""A log with partitions that outlives processes, and a spout that reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sunshower import Context, LogSpout, OnStream, Polled, Unreadable
from sunshower.failures import Failure
from tests.contract.topologies import Item

SHIFT = 48
END = 1 << SHIFT


class Log:
    """Outlives every process: the partitions, their owners, and the committed offsets."""

    def __init__(self, *partitions: list[Any]) -> None:
        self.partitions = partitions
        self.committed = [0] * len(partitions)
        self.owners: list[int] | None = None  # by partition; None: by index
        self.idle = 0  # polls without room
        self.closed: list[int] = []
        self.removed: set[tuple[int, int]] = set()  # partition, offset

    def __deepcopy__(self, memo: object) -> Log:
        return self

    @property
    def settled(self) -> bool:
        return self.committed == [len(part) for part in self.partitions]


class Reader(LogSpout[Item]):
    """Its numbers are partition << 48 | offset. A text in the log is unreadable.

    `commit_every`: acks before it commits. It also commits when there is nothing to do, and at the
    end.
    """

    def __init__(
        self, log: Log, commit_every: int = 10, *, replay: bool = True, refetches: bool = False
    ) -> None:
        self.log, self.commit_every, self.replay = log, commit_every, replay
        self.refetches = refetches
        self.position: dict[int, int] = {}
        self.open_: dict[int, list[int]] = {}  # partition → offsets that are not acked
        self.acks = 0
        self.acked_numbers: list[int] = []
        self.failed: list[Any] = []
        self.asked: list[int] = []  # the number of records in each refetch

    def open(self, context: Context) -> None:
        self.index, self.parallelism = context.index, context.parallelism

    def poll(self, limit: int) -> Polled[Item]:
        gone = self._look()
        numbers: list[int] = []
        records: list[Any] = []
        unreadable = []
        self.log.idle += limit == 0
        for part, offset in self.position.items():
            values = self.log.partitions[part][offset : offset + limit - len(numbers)]
            self.position[part] += len(values)
            for at, value in enumerate(values, offset):
                self.open_[part].append(at)
                number = part << SHIFT | at
                if isinstance(value, str):
                    unreadable.append(
                        Unreadable(number, {"text": value}, "it is a text", halts=True)
                    )
                    limit -= 1
                else:
                    numbers.append(number)
                    records.append(value)
        if not numbers:
            self.commit()
        places = np.array(numbers, np.int64)
        return Polled(places, records, unreadable, gone, ended=self.log.settled)

    def refetch(self, numbers: NDArray[np.int64], limit: int) -> Polled[Item]:
        """The first call, and every second one after it, returns nothing yet."""
        self.asked.append(len(numbers))
        if len(self.asked) % 2:
            return Polled(np.zeros(0, np.int64), ())
        present, gone = list[int](), list[Unreadable]()
        for number in numbers.tolist()[:limit]:
            place = self.message_id(number)
            if place in self.log.removed:
                gone.append(Unreadable(number, {"place": place}, "it is gone", halts=False))
            else:
                present.append(number)
        records = [self.log.partitions[n >> SHIFT][n & (END - 1)] for n in present]
        return Polled(np.array(present, np.int64), records, gone)

    def acked(self, numbers: NDArray[np.int64]) -> None:
        for number in numbers.tolist():
            self.acked_numbers.append(number)
            self.open_[number >> SHIFT].remove(number & (END - 1))
        self.acks += len(numbers)
        if self.acks >= self.commit_every:
            self.commit()

    def commit(self) -> None:
        self.acks = 0
        for part, opened in self.open_.items():
            self.log.committed[part] = min(opened, default=self.position[part])

    def message_id(self, number: int) -> Any:
        return (number >> SHIFT, number & (END - 1))

    def fail(self, message_id: Any, failure: Failure) -> None:
        self.failed.append(message_id)

    def deactivate(self) -> None:
        self.commit()

    def close(self) -> None:
        self.commit()
        self.log.closed.append(self.index)

    def result(self) -> list[int]:
        return sorted(self.acked_numbers)

    def _look(self) -> list[tuple[int, int]]:
        """Take over partitions that it owns now. Returns the numbers of those that it has lost."""
        count = len(self.log.partitions)
        owners = self.log.owners or [part % self.parallelism for part in range(count)]
        mine = {part for part, owner in enumerate(owners) if owner == self.index}
        lost = self.position.keys() - mine
        if lost:
            self.commit()
        for part in lost:
            del self.position[part], self.open_[part]
        for part in sorted(mine - self.position.keys()):
            self.position[part] = self.log.committed[part]
            self.open_[part] = []
        return [(part << SHIFT, (part + 1) << SHIFT) for part in sorted(lost)]


def elsewhere(number: int) -> OnStream:
    return OnStream("others", Item(number))
