"""Root and edge ids of 64 bits each, and the XOR arithmetic of edges, on arrays.

A root id identifies one attempt of one spout tuple:

    63            48 47                    24 23                     0
    ┌───────────────┬────────────────────────┬────────────────────────┐
    │  incarnation  │       generation       │          slot          │
    └───────────────┴────────────────────────┴────────────────────────┘

A spout task has a new incarnation at every (re)start, see below. A slot is an index into
that task's pending table; its generation grows with each use. Storm draws roots at random from a
48-bit generator and needs a hash map per acker to find them.

A root is *traced* if the last four bits of its generation are zero: so every worker sees in the id
alone whether to record what happens to its tree. The spout task decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

U64: TypeAlias = NDArray[np.uint64]
I64: TypeAlias = NDArray[np.int64]

SLOT_BITS = 24
GENERATION_BITS = 24
SLOTS_MAX = 1 << SLOT_BITS
GENERATION_MASK = (1 << GENERATION_BITS) - 1

_SLOT_MASK = np.uint64(SLOTS_MAX - 1)
_GENERATION_MASK = np.uint64(GENERATION_MASK)
_GENERATION_SHIFT = np.uint64(SLOT_BITS)
_INCARNATION_SHIFT = np.uint64(SLOT_BITS + GENERATION_BITS)

_TRACED_BITS = np.uint32(0xF)
_TRACED_ROOT_BITS = np.uint64(0xF << SLOT_BITS)

_ORDER = np.arange(1 << 16, dtype=np.int32)
NO_IDS: U64 = np.zeros(0, np.uint64)
ids_of: Callable[[bytes], U64] = partial(np.frombuffer, dtype=np.uint64)  # type: ignore[assignment]


def make_roots(incarnation: int, generations: NDArray[np.uint32], slots: I64) -> U64:
    """Root ids of `slots` (shape (n,)) in their `generations` (shape (n,))."""
    roots = generations.astype(np.uint64)
    roots <<= _GENERATION_SHIFT
    roots |= slots.astype(np.uint64)
    roots |= np.uint64(incarnation << (SLOT_BITS + GENERATION_BITS))
    return roots


def next_generations(generations: NDArray[np.uint32], traced: Sequence[int]) -> None:
    """Replace each generation by the next one that marks its root as traced, at the positions
    `traced`, or as not traced."""
    marked = (generations[traced] | _TRACED_BITS) + np.uint32(1) if traced else None
    generations += 1
    generations += generations & _TRACED_BITS == 0
    if marked is not None:
        generations[traced] = marked
    generations &= GENERATION_MASK


def is_traced(root: int) -> bool:
    """Whether a root is traced."""
    return not root & int(_TRACED_ROOT_BITS)


def traced_of(roots: U64) -> list[int]:
    """Return the positions of the traced roots."""
    marks = roots & _TRACED_ROOT_BITS
    if np.count_nonzero(marks) == len(roots):  # usual; flatnonzero takes three times as long
        return []
    positions: list[int] = np.flatnonzero(marks == 0).tolist()
    return positions


def slots_of(roots: U64) -> I64:
    """Return the slot of each root."""
    return (roots & _SLOT_MASK).view(np.int64)


def generations_of(roots: U64) -> NDArray[np.uint32]:
    """Return the generation of each root."""
    return ((roots >> _GENERATION_SHIFT) & _GENERATION_MASK).astype(np.uint32)


def incarnations_of(roots: U64) -> I64:
    """Return the incarnation of each root."""
    return (roots >> _INCARNATION_SHIFT).view(np.int64)


def by_incarnation(roots: U64) -> Iterator[tuple[int, slice | I64]]:
    """Yield each incarnation that roots have, in the order in which they come first, and the
    positions of its roots; a slice if all have it. The array must be contiguous."""
    incarnations = roots.view(np.uint16)[3::4]  # the upper 16 bits
    at: slice | I64 = slice(None)
    while len(incarnations):
        are_same = incarnations == (first := incarnations[0])
        if np.count_nonzero(are_same) == len(are_same):
            yield int(first), at
            return
        if isinstance(at, slice):
            at = np.arange(len(roots))
        yield int(first), at[are_same]
        at, incarnations = at[~are_same], incarnations[~are_same]


def is_newer(generations: NDArray[np.uint32], tags: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Which generations are later than those in the lower 24 bits of `tags`, modulo 2²⁴."""
    return ((generations - tags) << 8).view(np.int32) > 0


def seeded(seed: int) -> np.random.Generator:
    """Return the random generator of one worker."""
    return np.random.default_rng(seed)


class EdgeIds:
    """Random 64-bit edge ids, drawn in bulk from the given generator.

    Zero is left out: the ledger could not detect such an edge. Storm: MessageId.generateId, which
    uses java.util.Random and so reaches only 2⁴⁸ values.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._raw = generator.bit_generator.random_raw  # `integers` takes 10 µs for a few

    def draw(self, count: int) -> U64:
        """Draw `count` ids, shape (count,)."""
        ids: U64 = self._raw(count)
        while np.count_nonzero(ids) < count:
            ids[ids == 0] = self._raw(count - np.count_nonzero(ids))
        return ids


def first_of_each(slots: I64, scratch: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return a mask that keeps one position of each slot, without sorting.

    `scratch` is any array with an element for every slot; its values do not matter.
    """
    count = len(slots)
    order = _ORDER[:count] if count <= len(_ORDER) else np.arange(count, dtype=np.int32)
    scratch[slots] = order
    mask: NDArray[np.bool_] = scratch.take(slots) == order
    return mask


# ---- edges ---------------------------------------------------------------------------------------
# The XOR arithmetic of tuple trees.
#
# An input is done when its own edge and all edges made from it are reported: `edge ^ made₁ ^ made₂
# …` (Storm: BoltOutputCollectorImpl.ack). Over a whole tree every edge is reported twice, by its
# producer and by its consumer, so the XOR of all reports is zero when no edge is open.


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


# ---- incarnations --------------------------------------------------------------------------------
# Incarnations: the numbers of the lives of spout tasks, which are a part of root ids.
#
# A spout task has a new incarnation at every (re)start: its worker's life, modulo `lives_max`,
# times the number of spout tasks, plus its index among them. So incarnations repeat after
# `lives_max` starts (65,536 with one spout task, 655 with a hundred) and are compared modulo that
# number: a life is older than another if it is at most half of `lives_max` behind
# (`is_older_life`).

INCARNATIONS_MAX = 1 << 16


def lives_max(spouts: int) -> int:
    """Return after how many starts the incarnations of each of `spouts` spout tasks repeat."""
    return INCARNATIONS_MAX // spouts


def is_older_life(incarnation: int, other: int, spouts: int) -> bool:
    """Whether an incarnation is of an earlier life than `other`, of the same spout task."""
    circle = lives_max(spouts)
    behind = (other // spouts - incarnation // spouts) % circle
    return 0 < behind <= circle // 2
