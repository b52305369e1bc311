"""What happened, entry by entry: the evidence that experiments are judged by.

An entry is what befell n tuples of one task at one moment, as columns; a line of `history.jsonl` is
one of them. Nobody keeps a history unless a run is submitted with one: then each worker has a
`Scribe` that puts entries somewhere; user code adds its own with `Context.wrote` and `noted`.

    what        task      roots   values        attempts  detail
    EMITTED     spout     (n,)    numbers (n,)  (n,)      None, or the message ids where they are
                                                          not the numbers (next_tuple spouts)
    COMPLETED   spout     (n,)    numbers (n,)  (n,)      None
    FAILED      spout     (n,)    numbers (n,)  (n,)      the causes, n of them
    BURIED      spout     none    numbers (n,)  none      None: dead letters from now on
    SENT        any       (n,)    edges (n,)    none      the target task
    DELIVERED   bolt      (n,)    edges (n,)    none      None: user code is about to see them
    ACKED       bolt      (n,)    edges (n,)    none      None: all made from them is sent
    REFUSED     bolt      (n,)    edges (n,)    none      the cause
    WROTE       bolt      none    none          none      (key, value), as user code said it
    NOTED       any       none    none          none      (event, {fact: value}), in its own words
    BORN        –         none    spouts (n,)   none      (worker, life); the ids of its spout tasks
    BEGUN       –         none    none          none      a fault, in words
    ENDED       –         none    none          none      a fault, in words

A record with several anchors has one row for each; one that nobody follows has none. What is sent
may be lost on its way, or be turned away from a full cycle: then it is never delivered. An input of
a manual bolt is REFUSED also when an output of it has no way, and may be acked all the same later:
its tree has failed.
`number`: a message's number within its spout task, as in `Pending`; the pair (task, number) names a
message across lives of `records` spouts.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from sunshower.clock import Clock
from sunshower.runtime.ids import I64, NO_IDS, U64, slots_of

NO_TASK = 0  # task ids begin with 1
NOTHING: I64 = np.zeros(0, np.int64)


class What(IntEnum):
    """What has happened; the table above."""

    EMITTED = 1
    COMPLETED = 2
    FAILED = 3
    BURIED = 4
    SENT = 5
    DELIVERED = 6
    ACKED = 7
    REFUSED = 8
    WROTE = 9
    BORN = 10
    BEGUN = 11
    ENDED = 12
    NOTED = 13


class Entry(NamedTuple):
    """See the table above; a frozen dataclass is three times as slow to make."""

    at_s: float  # on the cluster's clock; of a simulated worker, the simulator's, not its own
    what: What
    task: int = NO_TASK
    roots: U64 = NO_IDS
    values: U64 | I64 = NOTHING
    attempts: I64 = NOTHING
    detail: Any = None


class Scribe:
    """One worker's pen.

    `sample`: of SENT, DELIVERED, ACKED and REFUSED only the trees whose slot is a multiple of it
    are kept (1: all): whole trees or nothing of them, and everybody agrees which. All else is
    always kept.
    """

    def __init__(self, clock: Clock, put: Callable[[Entry], None], sample: int = 1) -> None:
        self._clock = clock
        self._put = put
        self._sample = sample

    def note(
        self,
        what: What,
        task: int = NO_TASK,
        roots: U64 = NO_IDS,
        values: U64 | I64 = NOTHING,
        attempts: I64 = NOTHING,
        detail: Any = None,
    ) -> None:
        """Keep an entry, with the time of now. The arrays must not be changed afterwards."""
        self._put(Entry(self._clock.now(), what, task, roots, values, attempts, detail))

    def note_edges(self, what: What, task: int, roots: U64, edges: U64, detail: Any = None) -> None:
        """The same for the edges of trees, of which only a sample may be kept."""
        if self._sample > 1:
            kept = slots_of(roots) % self._sample == 0
            roots, edges = roots[kept], edges[kept]
        if len(roots):
            self.note(what, task, roots, edges, detail=detail)
