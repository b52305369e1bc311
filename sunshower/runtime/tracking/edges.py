"""The XOR arithmetic of tuple trees, on arrays.

An input is done when its own edge and all edges made from it are reported: `edge ^ made₁ ^ made₂ …`
(Storm: BoltOutputCollectorImpl.ack). Over a whole tree every edge is reported twice, by its
producer and by its consumer, so the XOR of all reports is zero when no edge is open.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sunshower.runtime.tracking.ids import I64, U64


def segment_xor(values: U64, ends: I64) -> U64:
    """XOR of each segment of `values`: segment i is values[ends[i-1]:ends[i]]; it may be empty.

    `ends` has shape (n,), not decreasing, ends[-1] == len(values); returns shape (n,).
    np.bitwise_xor.reduceat is wrong here: it gives an empty segment the value of its neighbour.
    """
    running = np.empty(len(values) + 1, np.uint64)
    running[0] = 0
    np.bitwise_xor.accumulate(values, out=running[1:])
    upto = running[ends]
    result = upto.copy()
    result[1:] ^= upto[:-1]
    return result


def runs(roots: U64) -> tuple[U64, NDArray[np.uint32] | None]:
    """Run-length encode `roots`: (roots, run lengths), or (roots, None) if that is no shorter."""
    first = _run_starts(roots)
    if first is None or 3 * len(first) > 2 * len(roots):  # 12 bytes for each run, 8 for each root
        return roots, None
    return roots[first], np.diff(first, append=len(roots)).astype(np.uint32)


def fold(roots: U64, xors: U64) -> tuple[U64, U64]:
    """Join adjacent entries of the same root: a shorter report with the same effect.

    Only adjacent entries: children of one parent are adjacent, and sorting would cost more than the
    ledger saves.
    """
    first = _run_starts(roots)
    if first is None:
        return roots, xors
    return roots[first], np.bitwise_xor.reduceat(xors, first)


def _run_starts(roots: U64) -> I64 | None:
    """The positions where a root differs from the one before it; None if all do."""
    if not np.count_nonzero(roots[1:] == roots[:-1]):
        return None
    starts = np.ones(len(roots), np.bool_)
    np.not_equal(roots[1:], roots[:-1], out=starts[1:])
    return starts.nonzero()[0]
