"""A set of settled offsets as a few intervals, for offsets that are added in any order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable


class Intervals:
    """A set of integers, stored as disjoint, non-adjacent [first, end) pairs."""

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self.pairs = [(first, end) for first, end in pairs]

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self.pairs, number, key=lambda pair: pair[0]) - 1
        return index >= 0 and number < self.pairs[index][1]

    def with_all(self, numbers: Iterable[int]) -> Intervals:
        """A set that contains `numbers`, too."""
        merged: list[tuple[int, int]] = []
        for first, end in sorted([*self.pairs, *((number, number + 1) for number in numbers)]):
            if merged and first <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], end))
            else:
                merged.append((first, end))
        return Intervals(merged)

    def from_on(self, number: int) -> Intervals:
        """The members that are at least `number`."""
        return Intervals((max(first, number), end) for first, end in self.pairs if end > number)

    def after(self, number: int) -> int:
        """The smallest integer from `number` on that is not a member."""
        return next((end for first, end in self.pairs if first <= number < end), number)
