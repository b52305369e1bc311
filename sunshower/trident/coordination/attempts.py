"""The tuples that the components of a batch group exchange: attempts, and parts of batches.

    $mastercoord-G   ──$batch──▶   emitters   ──parts──▶   stages
                     ──$commit──▶  all that commit         ──$coord-G──▶
                     ──$success─▶  emitters, stages that publish

A batch is a list of rows. It is sent in parts: a part is one tuple with many rows for one task.
`$coord-G` carries the number of parts sent to each receiving task, so that it knows when it has
all. Storm: org.apache.storm.trident.topology.TransactionAttempt (there every row is a tuple).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import inf
from typing import Any, NamedTuple

from sunshower.topologies.operators.windows.event_times import Time, highest, lowest, minus

BATCH, COMMIT, SUCCESS = "$batch", "$commit", "$success"


def master_id(group: str) -> str:
    """The id of the spout that coordinates a batch group."""
    return f"$mastercoord-{group}"


def batch_group_of(component: str) -> str | None:
    """The batch group that a component coordinates; None for other components."""
    start = master_id("")
    return component.removeprefix(start) if component.startswith(start) else None


def letters_id(group: str) -> str:
    """The id of the bolt that writes the rows of skipped batches to a file."""
    return f"{group}-dead-letters"


def counts_stream(group: str) -> str:
    """The direct stream that carries the number of parts sent."""
    return f"$coord-{group}"


class BatchCommand(NamedTuple):
    """The record of `$batch`, of `$commit` and of `$success`."""

    txid: int
    attempt: int
    epoch: int
    skip: bool  # the rows are dead letters, and the batch is empty for all other components
    why: Any = None  # with `skip`: the last failure, see transactional_log.py
    current: int = 0  # the lowest txid that was not committed when this was emitted
    # of `$batch`: spout → [metadata of the batch, `ended`, `begun_s` as in SourceTime]; or the
    # text of an error, with which it fails
    sources: Any = None


class Part(NamedTuple):
    """Some rows of a batch for one task: tuples of values, in the order of the fields."""

    txid: int
    attempt: int
    epoch: int
    rows: list[Any]


class SourceTime(NamedTuple):
    """How far a source is in event time at the end of a batch, as windows need it: the lowest of
    its partitions, except those that are idle or ended; inf: there are no others. See
    trident/spouts/reached_times.py. Or how far a window is, which those behind it follow."""

    reached: Time
    earlier: Time  # the same when the order for the batch was given: no row of it is before that
    idle: bool  # a partition is idle
    ended: bool  # the source has no rows after this batch
    newest: Time = inf  # the highest time of any partition; inf: it is not known
    begun_s: float = 0.0  # Unix time: when the batch has begun, for all attempts if it is known

    def merged(self, other: SourceTime) -> SourceTime:
        """That of all partitions of both."""
        return SourceTime(
            lowest([self.reached, other.reached]),
            lowest([self.earlier, other.earlier]),
            self.idle or other.idle,
            self.ended and other.ended,
            highest([self.newest, other.newest]),
            max(self.begun_s, other.begun_s),
        )


_UNKNOWN = SourceTime(-inf, -inf, idle=False, ended=False)


def watermark(sources: Sequence[SourceTime | None], *, before: bool = False) -> Time:
    """The event time that all sources have reached; -inf: it is not known. `before`: when the order
    for the batch was given. A source that ends with the batch may have rows in it, so what it had
    reached before counts."""
    known = [source for source in sources if source is not None]
    if len(known) < len(sources):
        return -inf
    running = [source for source in known if not source.ended] or known
    if before or any(source.idle for source in running):
        time = lowest(source.earlier for source in (known if before else running))
    else:
        time = lowest(source.reached for source in running)
    return -inf if time == inf else time


def had_ended(sources: Sequence[SourceTime | None]) -> bool:
    """Whether no source has rows in the batch or after it: only what was held back is left."""
    return all(source is not None and source.ended and source.earlier == inf for source in sources)


def behind(sources: Sequence[SourceTime | None], late: Time) -> SourceTime:
    """That of rows of these sources, of which each may come `late` after one with a higher time."""
    known = [source or _UNKNOWN for source in sources]
    running = [source for source in known if not source.ended] or known
    every, time = reduce(SourceTime.merged, known), reduce(SourceTime.merged, running)
    reached, earlier = minus(time.reached, late), minus(every.earlier, late)
    return every._replace(reached=reached, earlier=earlier, idle=time.idle)


class Count(NamedTuple):
    """The number of parts of an attempt that the sender sent to this task, on all its streams."""

    txid: int
    attempt: int
    epoch: int
    parts: int
    late: bool = False  # sent in the commit phase
    times: Any = None  # source or window, with windows downstream → its SourceTime as a list
