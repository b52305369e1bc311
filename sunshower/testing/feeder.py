"""The spout that a test feeds with records, and that shows which were acked and which failed.

Storm: org.apache.storm.testing.FeederSpout
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from sunshower.arguments import checked
from sunshower.errors import ConfigError, TopologyError
from sunshower.failures import Failure
from sunshower.topologies.components import Context
from sunshower.topologies.logs import LogSpout, Polled

R = TypeVar("R")


class Shared:
    """Base class of an object that all tasks of a test share, such as a fake database.

    Every task has a copy of its spout or bolt; the copy of a Shared object is the object itself.
    It outlives simulated processes, as a real database would. It exists in one process only.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> Any:
        raise ConfigError(
            f"a {type(self).__name__} cannot be sent to another process: run the topology with "
            "sunshower.testing, which uses one process"
        )


class _Fed(Shared, Generic[R]):
    """What the copies of one feeder share."""

    def __init__(self) -> None:
        self.records: list[R] = []  # the index is the message number
        self.ended = False
        self.begun = False
        self.acked: dict[int, None] = {}  # numbers, in the order of their acks
        self.failed: list[tuple[int, Failure]] = []


class Feeder(LogSpout[R]):
    """Emits the records that a test passes to `feed`, and ends after `end`.

    Each record is a message of its own. One that fails is emitted again, as the Retry of the spout
    says; a task that restarts continues with those that are not acked. `type` or `fields` declares
    the records; a feeder that takes the place of a spout needs neither. Each spout of each run has
    a feeder of its own.
    """

    @checked(TopologyError, "Feeder", records=None)
    def __init__(
        self, *records: R, type: type[R] | None = None, fields: Sequence[str] | None = None
    ) -> None:
        self.emits = type or fields
        self._fed = _Fed[R]()
        self.feed(*records)

    # ---- for the test ----------------------------------------------------------------------------

    def feed(self, *records: R) -> None:
        """Add records to emit. Raises TopologyError after `end`."""
        if records and self._fed.ended:
            raise TopologyError("this Feeder has ended; feed it before end()")
        self._fed.records += records

    def end(self) -> None:
        """Declare that no record follows, so that the topology can finish."""
        self._fed.ended = True

    @property
    def fed(self) -> list[R]:
        """All records, in the order in which they were fed."""
        return [*self._fed.records]

    @property
    def acks(self) -> list[R]:
        """The records whose trees are complete, and dead letters, in the order of their acks."""
        return [self._fed.records[number] for number in self._fed.acked]

    @property
    def pending(self) -> list[R]:
        """The records that are not acked, in the order in which they were fed."""
        there = enumerate(self._fed.records)
        return [record for number, record in there if number not in self._fed.acked]

    @property
    def failures(self) -> list[tuple[R, Failure]]:
        """Each failed attempt with its record, in the order of the failures."""
        return [(self._fed.records[number], failure) for number, failure in self._fed.failed]

    # ---- for the runtime -------------------------------------------------------------------------

    def begin(self, where: str) -> None:
        """Take part in a run, as the spout `where`. Raises TopologyError if it is not the first."""
        if self._fed.begun:
            raise TopologyError(
                f"{where}: this Feeder already feeds a spout of this run or of an earlier one; "
                "make a new Feeder for each spout and each run"
            )
        self._fed.begun = True

    def open(self, context: Context) -> None:
        self._next, self._step = context.index, context.parallelism

    def poll(self, limit: int) -> Polled[R]:
        fed, numbers = self._fed, list[int]()
        while self._next < len(fed.records) and len(numbers) < limit:
            if self._next not in fed.acked:
                numbers.append(self._next)
            self._next += self._step
        records = [fed.records[number] for number in numbers]
        ended = fed.ended and self._next >= len(fed.records)
        return Polled(np.array(numbers, np.int64), records, ended=ended)

    def has_read_first(self) -> bool:
        return self._next >= len(self._fed.records)

    def from_start(self) -> Feeder[R]:
        made = copy(self)
        made._fed = _Fed[R]()
        made._fed.records = self._fed.records
        return made

    def acked(self, numbers: NDArray[np.int64]) -> None:
        self._fed.acked.update(dict.fromkeys(numbers.tolist()))

    def fail(self, message_id: int, failure: Failure) -> None:
        self._fed.failed.append((message_id, failure))
