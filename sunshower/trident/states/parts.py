"""The parts of a state, and which of them have the values, also while the number of tasks changes.

    part    0   1  |  2   3   4   5      2 tasks, then 4
            left      in use             the mark of part 0 says: the next are 4 tasks from part 2

An assignment gives each task a part of its own. When the number of tasks changes, the next one
begins behind the last: a part is never used again, so a late writer of it finds another mark. A
part goes through these phases, each with a mark of its own; see moves.py for who changes them.

    filling    its values are being copied from the parts that were left
    in use     its task reads and writes it
    left       frozen; its values are with the next assignment, or still to be copied
    cleared    its values are removed, or are being removed
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from math import gcd
from typing import Any, NamedTuple, Self

from sunshower.errors import StateMismatch
from sunshower.runtime.transport.hashing import task_index
from sunshower.state.backing import Backing, Home, Mark
from sunshower.topologies.operators.keyed.moved_parts import group_of
from sunshower.topologies.operators.keyed.stored_texts import keys_of
from sunshower.topologies.operators.states import Key, Spread
from sunshower.trident.states.marks import is_moved

Entry = tuple[str, str]  # a key and a value, as they are stored


class Assignment(NamedTuple):
    """The parts of all tasks: task i has part `first` + i."""

    first: int
    tasks: int

    def parts(self) -> range:
        """The numbers of its parts."""
        return range(self.first, self.first + self.tasks)

    def sources(self, task: int, later: Assignment, spread: Spread) -> list[int]:
        """The tasks that may have keys of a task of the next assignment."""
        if spread is Spread.EVERYWHERE:
            return [task % self.tasks]
        step = gcd(self.tasks, later.tasks)  # hashes that are equal modulo both are so modulo this
        return [*range(task % step, self.tasks, step)]


class PartMark(NamedTuple):
    """The mark of a part that has been written."""

    mark: Mark
    word: dict[str, Any]

    @property
    def next(self) -> Assignment | None:
        """The assignment that has the values now; None: the part is not left."""
        found = self.word.get("next")
        return None if found is None else Assignment(*found)

    @property
    def is_filling(self) -> bool:
        """Whether values are still missing."""
        return is_moved(self.word) and "next" not in self.word

    @property
    def is_clearing(self) -> bool:
        """Whether values have been removed because the next assignment has all of them."""
        return "cleared" in self.word

    @property
    def is_cleared(self) -> bool:
        """Whether no value is left."""
        return self.word.get("cleared") == "all"

    @property
    def spread(self) -> Spread:
        return Spread(self.word.get("spread", Spread.BY_KEY))


class Parts:
    """Clients of the parts of one state. Every call may raise StoreUnreachable."""

    def __init__(self, client: Callable[[Home], Backing], state: str, where: str) -> None:
        self._client, self.state, self._where = client, state, where
        self._opened: dict[int, Backing] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def backing(self, number: int) -> Backing:
        """The client of a part."""
        if number not in self._opened:
            backing = self._client(Home(self.state, number))
            self._opened[number] = self._stack.enter_context(closing(backing))
        return self._opened[number]

    def mark(self, number: int) -> PartMark | None:
        """The mark of a part; None: it was never written. Raises StateMismatch for a value that is
        no mark."""
        try:
            mark = self.backing(number).mark()
            word = None if mark is None else json.loads(mark.word)
        except (ValueError, TypeError) as error:
            raise self._corrupt(number, error) from error
        if mark is None:
            return None
        if not isinstance(word, dict):
            raise self._corrupt(number, mark.word)
        return PartMark(mark, word)

    def chain(self) -> list[Assignment]:
        """All assignments so far; the last one has the values. Empty if part 0 has no mark."""
        root = self.mark(0)
        if root is None:
            return []
        chain = [Assignment(0, root.word["parallelism"])]
        while root is not None and root.next is not None:
            chain.append(root.next)
            root = self.mark(root.next.first)
        return chain

    def entries(self) -> Iterator[Entry]:
        """All entries of the state, each once, whatever moves meanwhile. A part is read at once."""
        seen: list[tuple[int, int]] = []  # tasks, and how many of them were read
        while chain := self.chain():
            root = self.mark(0)
            assert root is not None
            spread, tasks = root.spread, chain[-1].tasks
            is_copied = spread is Spread.EVERYWHERE
            for task in range(1 if is_copied else tasks):
                found = self._read(chain, len(chain) - 1, task, spread)
                if found is None:  # it has moved on
                    seen.append((tasks, task))
                    break
                yield from _unseen(found, seen, spread) if seen and not is_copied else found
            else:
                return

    def _read(
        self, chain: Sequence[Assignment], place: int, task: int, spread: Spread
    ) -> list[Entry] | None:
        """The entries of one task of an assignment; None if its parts are being cleared."""
        own = chain[place]
        number = own.first + task
        before = self.mark(number)
        if is_ready(before, place):
            found = [*self.backing(number).items()]
        else:
            found = []
            for source in chain[place - 1].sources(task, own, spread):
                entries = self._read(chain, place - 1, source, spread)
                if entries is None:
                    return None
                if spread is not Spread.EVERYWHERE:
                    groups = groups_of(entries, spread)
                    tasks = [task_of(group, source, own.tasks) for group in groups]
                    entries = [one for one, to in zip(entries, tasks, strict=True) if to == task]
                found += entries
        after = self.mark(number)
        is_gone = after is not None and after.is_clearing
        return None if is_gone or is_ready(after, place) != is_ready(before, place) else found

    def _corrupt(self, number: int, found: object) -> StateMismatch:
        return StateMismatch(
            f"state {self.state!r} in {self._where}: the mark of part {number} cannot be read: "
            f"{str(found)[:100]!r}. Somebody else has written there; give the state another name, "
            "under which it begins empty"
        )


def groups_of(entries: Sequence[Entry], spread: Spread) -> list[tuple[Key] | None]:
    """(the key of a record,) for each entry, by which it has its task; None: it belongs to no
    key."""
    return [group_of(key, spread) for key in keys_of([text for text, _ in entries])]


def task_of(group: tuple[Key] | None, source: int, tasks: int) -> int:
    """The task of `tasks` that gets an entry of task `source` of the assignment before."""
    return source % tasks if group is None else task_index(group[0], tasks)


def is_ready(mark: PartMark | None, place: int) -> bool:
    """Whether a part of the assignment at `place` of the chain has its values, or has had them."""
    return place == 0 if mark is None else not mark.is_filling


def _unseen(
    entries: Sequence[Entry], seen: Sequence[tuple[int, int]], spread: Spread
) -> Iterator[Entry]:
    for one, group in zip(entries, groups_of(entries, spread), strict=True):
        if group is None or all(task_index(group[0], tasks) >= read for tasks, read in seen):
            yield one
