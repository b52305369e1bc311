"""Incarnations: the numbers of the lives of spout tasks, which are a part of root ids.

A spout task has a new incarnation at every (re)start: its worker's life, modulo `lives_max`, times
the number of spout tasks, plus its index among them. So incarnations repeat after `lives_max`
starts (65,536 with one spout task, 655 with a hundred) and are compared modulo that number: a life
is older than another if it is at most half of `lives_max` behind (`is_older_life`).
"""

from __future__ import annotations

INCARNATIONS_MAX = 1 << 16


def lives_max(spouts: int) -> int:
    """Return after how many starts the incarnations of each of `spouts` spout tasks repeat."""
    return INCARNATIONS_MAX // spouts


def is_older_life(incarnation: int, other: int, spouts: int) -> bool:
    """Whether an incarnation is of an earlier life than `other`, of the same spout task."""
    circle = lives_max(spouts)
    behind = (other // spouts - incarnation // spouts) % circle
    return 0 < behind <= circle // 2
