"""Root and edge ids of 64 bits each, and functions that build and decode arrays of them.

A root id identifies one attempt of one spout tuple:

    63            48 47                    24 23                     0
    ┌───────────────┬────────────────────────┬────────────────────────┐
    │  incarnation  │       generation       │          slot          │
    └───────────────┴────────────────────────┴────────────────────────┘

A spout task has a new incarnation at every (re)start, see `incarnations`. A slot is an index into
that task's pending table; its generation grows with each use. Storm draws roots at random from a
48-bit generator and needs a hash map per acker to find them.

A root is *traced* if the last four bits of its generation are zero: so every worker sees in the id
alone whether to record what happens to its tree. The spout task decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
