"""The base class of spouts for logs with offsets, which number their records themselves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from sunshower.errors import SourceError
from sunshower.topologies.components import OnStream, Out_co, Spout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A position of the source without a record: it is unreadable, or was removed. `records()` may
    yield one, too, whose number is that of its place.

    It becomes a dead letter at once, with `record` in it, and is acked when that is processed.
    Without dead letters the topology halts; if `halts` is False, it is logged instead, and counts
    as acked.
    """

    number: int
    record: Mapping[str, Any]  #: the content of the dead letter: field → value
    reason: str
    exception: str = ""  #: the exception's type
    halts: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.record, Mapping):
            raise SourceError(
                "Unreadable(): record is the content of a dead letter, field → value, such as "
                f'{{"line": text}}, and not {type(self.record).__name__}'
            )


@dataclass(slots=True)
class Polled(Generic[Out_co]):
    """The result of one poll: n records, and news of others.

    A list of records, or of OnStreams, has one number: it is acked when all of them are processed,
    and if one fails, all are emitted again.
    `gone`: half-open ranges of numbers that no longer belong to this spout. Those pending are
    dropped before the records of this poll are added; neither ack nor fail follows.
    """

    numbers: NDArray[np.int64]  #: shape (n,), of the records
    records: Sequence[Out_co | OnStream | list[Out_co | OnStream]]
    unreadable: Sequence[Unreadable] = ()
    gone: Sequence[tuple[int, int]] = ()
    ended: bool = False  #: no record will follow


class LogSpout(Spout[Out_co]):
    """A source that can be read again from any position, such as a Kafka partition: write `poll`.

    Each record has a number of the spout's own, the same after every restart: an int64 of at least
    -2**62, but not 2**62, which is that of watermarks. The framework keeps and replays the records,
    as those of `records`; but the spout decides where it starts after a restart, and stores its
    position, which `acked` reports. With `replay = False`, also set on an instance, failed records
    are passed to `fail` and dropped. Likewise, with `refetches = True` no record is kept: failed
    ones are fetched again. `ack` is not called.
    """

    refetches = False
    #: Names the run that has stored its positions, if that matters where it begins. A run that
    #: continues from a savepoint gets that of the run before.
    deployment: str = ""

    __queue: Callable[[], Sequence[int]] = staticmethod(tuple)

    def set_queue(self, queue: Callable[[], Sequence[int]]) -> None:
        """Called by the framework after `open`, and again after a rebalance."""
        self.__queue = queue  # a subclass may have a `_queue` of its own

    def queued(self) -> Sequence[int]:
        """The numbers of records that have failed and will be emitted again."""
        return self.__queue()

    def poll(self, limit: int) -> Polled[Out_co] | None:
        """Return up to `limit` records and unreadable positions available now; must not block.

        Called at least twice a second, from `open` to `close`. Without credit, or while the
        topology is inactive, `limit` is 0: return no records, but do other due work. If it raises,
        the same spout is called again later.
        """
        raise NotImplementedError

    def refetch(self, numbers: NDArray[np.int64], limit: int) -> Polled[Out_co]:
        """Return up to `limit` available records of `numbers`, all of which have failed.

        Called only with `refetches`, and again for those that are not in the result; must not
        block. Removed records are unreadable: they become dead letters, with the earlier failure.
        """
        raise NotImplementedError

    def has_read_first(self) -> bool:
        """Whether all that the log had when this task began to read it was returned by `poll`.

        Called a few times a second after a poll, until it is True, if records of other spouts are
        joined with a table of these. Write it, or such joins do not wait for this spout.
        """
        raise NotImplementedError

    def from_start(self) -> LogSpout[Any] | None:
        """Return a spout that reads all from where a first run of this one begins, stores no
        position, and takes nothing from this one's tasks; None: that is not possible.

        It fills tables in memory again whose process has died, up to `has_read_first`. Without it,
        tables of these records need `state=`.
        """
        return None

    def acked(self, numbers: NDArray[np.int64]) -> None:
        """The trees of these are processed, or the records are stored as dead letters."""

    def continue_from(self, former: LogSpout[Any]) -> LogSpout[Out_co]:
        """Return this spout, or a copy, that continues where `former` is, which an upgrade
        replaces. Raises LifecycleError if that is not possible."""
        return self

    def partitions_read(self) -> Collection[int] | None:
        """Return the partitions that this task reads; None: that is not known yet, as while a group
        divides them. Windows downstream wait for the slowest, and while it is not known."""
        return (0,)

    def partitions_at_end(self) -> Mapping[int, float] | None:
        """Return which partitions were read to their end by their last fetch, and when this fetch
        began: partition → seconds of `Context.clock`. Called several times a second; must not
        block.

        A partition is left out while it has records that were not returned, or while its source
        does not answer. With 30 s of such fetches and without a record it is idle: windows do not
        wait for it. None: this spout cannot tell; then each return of `poll` counts as a fetch of
        all partitions, so records that it reads after an outage of one of them may be late.
        """
        return None

    def partition_name(self, partition: int) -> str:
        """Return the name of a partition for users."""
        return str(partition)

    def partitions_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the partition of each number, as in `partitions_read`; shape (n,)."""
        return numbers * 0

    def message_id(self, number: int) -> Any:
        """Return the name of a record for users: in the log, in dead letters, for `fail`."""
        return number
