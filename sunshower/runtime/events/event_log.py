"""The event log: the entry types that experiments are checked against, and their writer.

An entry describes one event of n tuples of one task, as columns; a line of `history.jsonl` is one
entry. An event log exists only if a run is submitted with one: then each worker has an
`EventWriter`; user code adds entries with `Context.wrote` and `Context.noted`. The file is a
sequence of MessagePack arrays, one per entry, with columns as raw buffers; attempts that are all
equal are one number:

    [at_s, what, task, roots, values, whether they are signed, attempts, detail]

Its process may be killed within an entry: the entries before it remain readable.

    what        task      roots   values        attempts  detail
    EMITTED     spout     (n,)    numbers (n,)  (n,)      None, or the message ids where they are
                                                          not the numbers (next_tuple spouts)
    COMPLETED   spout     (n,)    numbers (n,)  (n,)      None
    FAILED      spout     (n,)    numbers (n,)  (n,)      the causes, n of them
    DEAD        spout     none    numbers (n,)  none      None: dead letters from now on
    SENT        any       (n,)    edges (n,)    none      the target task
    DELIVERED   bolt      (n,)    edges (n,)    none      None: passed to user code next
    ACKED       bolt      (n,)    edges (n,)    none      None: all made from them is sent
    REFUSED     bolt      (n,)    edges (n,)    none      the cause
    WROTE       bolt      none    none          none      (key, value) from user code
    NOTED       any       none    none          none      (event, {fact: value}) from user code
    STARTED     –         none    spouts (n,)   none      (worker, life); the ids of its spout tasks
    BEGUN       –         none    none          none      description of a fault that begins
    ENDED       –         none    none          none      description of a fault that ends

A record with several anchors has one row for each; an untracked one has none. A SENT record may be
lost in transit, or refused by a full cycle: then it is never DELIVERED. An input of a manual bolt
is also REFUSED when a grouping raises for one of its outputs; it may still be acked later, but its
tree has failed. `number`: a message's number within its spout task, as in `Pending`; (task, number)
identifies a message of a `records` spout across restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, BinaryIO, NamedTuple

import msgpack
import numpy as np

from sunshower.clock import Clock
from sunshower.runtime.tracking.ids import I64, NO_IDS, U64, ids_of, slots_of
from sunshower.texts import carried, clip, describe

NO_TASK = 0  # task ids start at 1
NOTHING: I64 = np.zeros(0, np.int64)
_ATTEMPT = NOTHING.itemsize
_ENTRY_BYTES = 1 << 24
_VALUE_BYTES = 1 << 16  # of a value of a larger entry
_pack = msgpack.Packer(unicode_errors="surrogatepass").pack  # calls no Python code: see encode


class What(IntEnum):
    """The type of an event; see the table."""

    EMITTED = 1
    COMPLETED = 2
    FAILED = 3
    DEAD = 4
    SENT = 5
    DELIVERED = 6
    ACKED = 7
    REFUSED = 8
    WROTE = 9
    STARTED = 10
    BEGUN = 11
    ENDED = 12
    NOTED = 13


class Entry(NamedTuple):
    """See the table above; a frozen dataclass is three times as slow to construct."""

    at_s: float  # on the cluster's clock; in the simulator on its own clock, not the worker's
    what: What
    task: int = NO_TASK
    roots: U64 = NO_IDS
    values: U64 | I64 = NOTHING
    attempts: I64 = NOTHING
    detail: Any = None


class EventWriter:
    """Writes the entries of one worker.

    `sample`: of SENT, DELIVERED, ACKED and REFUSED keep only the trees whose slot is a multiple of
    it (1: all). So all workers keep the same trees, each completely. Other entries are always kept.
    """

    def __init__(self, clock: Clock, put: Callable[[Entry], None], sample: int = 1) -> None:
        self._clock = clock
        self._put = put
        self._sample = sample

    def write_to(self, put: Callable[[Entry], None]) -> None:
        """Write to another file from now on."""
        self._put = put

    def note(
        self,
        what: What,
        task: int = NO_TASK,
        roots: U64 = NO_IDS,
        values: U64 | I64 = NOTHING,
        attempts: I64 = NOTHING,
        detail: Any = None,
    ) -> None:
        """Write an entry with the current time. The arrays must not be changed afterwards."""
        self._put(Entry(self._clock.now(), what, task, roots, values, attempts, detail))

    def note_edges(self, what: What, task: int, roots: U64, edges: U64, detail: Any = None) -> None:
        """Write an entry for edges of trees, of which only a sample may be kept."""
        if self._sample > 1:
            sampled = slots_of(roots) % self._sample == 0
            roots, edges = roots[sampled], edges[sampled]
        if len(roots):
            self.note(what, task, roots, edges, detail=detail)


def encode(entry: Entry) -> bytes:
    """Encode one entry; detail values that MessagePack cannot encode become their `repr`, and each
    value of an entry that still cannot be encoded, or has more than 16 MiB, is clipped.

    May be called from several threads.
    """
    signed = entry.values.dtype.kind == "i"
    columns = (entry.roots.tobytes(), entry.values.tobytes(), signed, _folded(entry))
    fields = (entry.at_s, entry.what, entry.task, *columns, entry.detail)
    try:
        data: bytes = _pack(fields)
    except (TypeError, OverflowError, ValueError, RecursionError):
        try:
            data = msgpack.packb(fields, default=_plain, unicode_errors="surrogatepass")
        except (TypeError, OverflowError, ValueError, RecursionError):  # such as too deep
            data = b""
    if not 0 < len(data) <= _ENTRY_BYTES:
        data = _pack((*fields[:-1], _carried(entry.detail)))
    return data


def decode(file: BinaryIO) -> Iterator[Entry]:
    """Yield the entries of a file, up to an incomplete one. Lists in a detail become tuples."""
    unpacker = msgpack.Unpacker(
        file,
        use_list=False,
        strict_map_key=False,
        max_buffer_size=0,
        unicode_errors="surrogatepass",
    )
    for at_s, what, task, roots, values, signed, attempts, detail in unpacker:
        ids = ids_of(roots) if roots else NO_IDS
        column = _signed(values) if signed else ids_of(values)
        yield Entry(at_s, What(what), task, ids, column, _unfolded(attempts, len(ids)), detail)


def _folded(entry: Entry) -> bytes | int:
    """Return the attempts as bytes, or as one number if all are equal."""
    data, count = entry.attempts.tobytes(), len(entry.roots)
    if data and data == data[:_ATTEMPT] * count:
        return int(entry.attempts[0])
    return data


def _unfolded(attempts: bytes | int, count: int) -> I64:
    return np.full(count, attempts) if isinstance(attempts, int) else _signed(attempts)


def _signed(data: bytes) -> I64:
    return np.frombuffer(data, np.int64)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else describe(value)


def _carried(detail: Any) -> Any:
    """A detail with its values as MessagePack can encode them."""
    if isinstance(detail, list | tuple):
        return list(map(_carried_facts, detail))
    return _carried_facts(detail)


def _carried_facts(value: Any) -> Any:
    if isinstance(value, dict):
        return {clip(name): carried(fact, _VALUE_BYTES) for name, fact in value.items()}
    return carried(value, _VALUE_BYTES)
