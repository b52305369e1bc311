"""Hooks for the steps of a batch and the writes of its store, where a test may kill a process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from sunshower import Context
from sunshower.state.tree import MemoryForest, MemoryTree, Tree
from sunshower.topologies.operators.port import Attempt
from tests.trident.rigs.group_rig import Hook, Shared


class Steps(Hook):
    """Counts the steps, and calls `what` at the `time`-th step of one kind."""

    def __init__(self, step: str = "", time: int = 1, what: Callable[[], None] = int) -> None:
        self.step, self.time, self.what = step, time, what
        self.seen: Counter[str] = Counter()

    def __call__(self, step: str, attempt: Attempt, context: Context | None) -> None:
        self.seen[step] += 1
        if step == self.step and self.seen[step] == self.time:
            self.what()


NO_ATTEMPT = Attempt(0, 0, 0)


@dataclass
class Watched(Shared):
    """A store in memory that calls the hook before and after each write."""

    hook: Hook
    forest: MemoryForest = field(default_factory=MemoryForest)

    def __call__(self) -> Tree:
        return WatchedTree(self)


class WatchedTree(MemoryTree):
    def __init__(self, store: Watched) -> None:
        super().__init__(store.forest)
        self.hook = store.hook

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
        self.notify("before", path)
        super().create(path, value, ephemeral=ephemeral)
        self.notify("after", path)

    def set(self, path: str, value: bytes, version: int | None = None) -> int:
        self.notify("before", path)
        written = super().set(path, value, version)
        self.notify("after", path)
        return written

    def delete(self, path: str, version: int | None = None) -> None:
        self.notify("before the removal of", path)
        super().delete(path, version)
        self.notify("after the removal of", path)

    def notify(self, when: str, path: str) -> None:
        above, _, name = path.rpartition("/")
        name = f"{above.rpartition('/')[2]}/…" if name.isdecimal() else name
        self.hook(f"{when} {name}", NO_ATTEMPT, None)
