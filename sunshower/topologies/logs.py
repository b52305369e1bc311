"""What a user writes for a log with offsets: a spout that names its records and keeps its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from sunshower.topologies.components import OnStream, Out_co, Spout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Unreadable(NamedTuple):
    """A place of the log without a record: what stands there makes none, or is gone.

    It becomes a dead letter at once, with `record` in it, and is acked when that is processed.
    Where there are no dead letters, the topology halts; unless `halts` is False: then it is told in
    the log, and counts as acked.
    """

    number: int
    record: Mapping[str, Any]  # what the dead letter tells of it: field → value
    reason: str
    exception: str = ""  # the exception's type
    halts: bool = True


@dataclass(slots=True)
class Polled(Generic[Out_co]):
    """What one poll gave: n records, and what has become of others.

    `gone`: half-open ranges of numbers that are not this spout's any more. What is open of them is
    forgotten before the records of this poll are taken in; nobody is told of its end.
    """

    numbers: NDArray[np.int64]  # shape (n,), of the records
    records: Sequence[Out_co | OnStream]
    unreadable: Sequence[Unreadable] = ()
    gone: Sequence[tuple[int, int]] = ()
    ended: bool = False  # nothing will ever come after this


class LogSpout(Spout[Out_co]):
    """A source that can be read again from any place, such as a partition of Kafka: write `poll`.

    Records come many at a time, each with a number of the spout's own: an int64, the same in every
    life. The framework names, keeps and replays them, as those of `records`; but where a new life
    begins is the spout's matter: it keeps how far it is, by what `acked` says, wherever it likes.
    With `replay = False`, also of an instance, what fails is told to `fail`, and forgotten.
    With `refetches = True`, likewise, no record is kept: what has failed is asked for again.
    `ack` is not called.
    """

    refetches = False

    # Given by the framework: the numbers of those that have failed and are to be emitted again.
    in_line: Callable[[], Sequence[int]] = staticmethod(tuple)

    def poll(self, limit: int) -> Polled[Out_co] | None:
        """Up to `limit` records and unreadable ones that are there now, if any; it never blocks.

        Called twice a second at least, from `open` to `close`. Where there is no room, or the
        topology rests, `limit` is 0: then no records are wanted, but what else is due is done. If
        it raises, the same spout is asked again later.
        """
        raise NotImplementedError

    def refetch(self, numbers: NDArray[np.int64], limit: int) -> Polled[Out_co]:
        """Of these, all of which have failed, up to `limit` records that are there by now.

        Asked for only with `refetches`, and again for those of which nothing is told; it never
        blocks. What is gone is unreadable: it becomes a dead letter, with what failed before.
        """
        raise NotImplementedError

    def acked(self, numbers: NDArray[np.int64]) -> None:
        """All that came of these is processed, or they are safely among the dead letters."""

    def message_id(self, number: int) -> Any:
        """How people call the record of that number: in the log, in dead letters, for `fail`."""
        return number
