"""Back-off for idle sources: emitters leave notes, and the master begins batches less often.

    <root>/<spout id>/idle/<task>     exists while the last batches of this task were empty

An empty batch costs a few writes, so empty batches must not follow each other at the speed of the
disk. A note is written and removed only on a change, not with each batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from sunshower.errors import NodeExists, NoNode, StoreUnreachable
from sunshower.state.tree import Tree

EMPTY_TIMES = 3  # empty batches in a row before there is a note
_FIRST_S, _LONGEST_S = 0.01, 0.2  # the time that new rows may have to wait


def idle_path(root: str, spout: str) -> str:
    """The node below which the emitters of a spout leave their notes."""
    return f"{root.rstrip('/')}/{spout}/idle"


class IdleNote:
    """The note of one emitter."""

    def __init__(self, tree: Tree, path: str) -> None:
        self._tree = tree
        self._path = path
        self._is_there = tree.get(path) is not None  # of a former life
        self._empty = 0

    def emitted(self, rows: int) -> None:
        """A batch had so many rows. After an outage the next batch updates the note."""
        self._empty = 0 if rows else self._empty + 1
        wanted = self._empty >= EMPTY_TIMES
        if wanted == self._is_there:
            return
        with suppress(StoreUnreachable):
            with suppress(NodeExists, NoNode):
                if wanted:
                    self._tree.create(self._path)
                else:
                    self._tree.delete(self._path)
            self._is_there = wanted


class IdleBackoff:
    """How long the master waits after a batch: longer each time while all sources are idle."""

    def __init__(self, tree: Tree, root: str, emitters: Mapping[str, int]) -> None:
        """`emitters`: the number of tasks of each spout."""
        self._tree = tree
        self._wanted = {
            idle_path(root, spout): {str(index) for index in range(count)}
            for spout, count in emitters.items()
        }
        self._last_s = 0.0

    def seconds(self) -> float:
        """The wait after a committed batch. Raises StoreUnreachable."""
        for path, wanted in self._wanted.items():
            if not wanted.issubset(self._tree.children(path)):
                self._last_s = 0.0
                return 0.0
        self._last_s = min(max(_FIRST_S, 2 * self._last_s), _LONGEST_S)
        return self._last_s
