"""Moves a state to another number of tasks, when a task opens it.

    leave    each part gets another mark, part 0 of the assignment first: that one decides which
             number of tasks is next, and a process of the former run can write nothing afterwards
    fill     each new task copies its keys from the parts that were left, in several writes; the
             last one makes its part ready
    clear    who finds all new parts ready removes the values of the old ones; their marks stay

Every step is a compare-and-set of the mark of one part, and what is written follows from frozen
parts alone. So many processes may do it at once, each may end anywhere, and the next one continues.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any
from zlib import crc32

from sunshower import versions
from sunshower.errors import StateMismatch, StoreUnreachable, WrongVersion
from sunshower.runtime.transport.hashing import task_index
from sunshower.state.backing import Home, Mark
from sunshower.topologies.operators.keyed.stored_texts import (
    keys_of,
    text_of,
    text_of_key,
    values_of,
)
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import FoundPart, Key, Moving, Spread
from sunshower.trident.states.marks import Journal, StateOwner
from sunshower.trident.states.parts import (
    Assignment,
    Entry,
    Parts,
    groups_of,
    is_ready,
    task_of,
)
from sunshower.trident.states.values import packed, unpacked

Changes = dict[str, str | None]
_KEYS_AT_ONCE = 5_000  # in one write
_BYTES_AT_ONCE = 400_000  # ZooKeeper takes 900,000, with the paths of the keys
_OVERHEAD = 128  # bytes of an entry, about
_NOTHING = Attempt(0, 0, 0)


@dataclass(frozen=True)
class Move:
    """Finds the part of a task, and moves the state there if another number of tasks has it.

    Every call may raise StoreUnreachable, and StateMismatch for a state of another owner.
    """

    parts: Parts
    owner: StateOwner
    moving: Moving
    homes: Callable[[], list[Home]]

    def home(self) -> Home:
        """The part of the task, with all its values."""
        tasks = self.owner.place.parallelism
        while (last := (chain := self._chain())[-1]).tasks != tasks:
            if not self.moving.may_begin:
                raise StoreUnreachable(
                    f"{self.owner} has moved to a run with {last.tasks} tasks, so this one, with "
                    f"{tasks}, writes nothing more"
                )
            self._check_keys(chain)
            self._leave(chain, len(chain) - 1, 0, Assignment(last.first + last.tasks, tasks))
        place, index = len(chain) - 1, self.owner.place.index
        self._fill(chain, place, index)
        with suppress(WrongVersion):  # another task does it
            self._clear(chain)
        return Home(self.parts.state, last.first + index)

    def _chain(self) -> list[Assignment]:
        """All assignments. Part 0 gets a mark if it has none: it says how many tasks there are."""
        while not (chain := self.parts.chain()):
            others = [home.task for home in self.homes() if home.state == self.parts.state]
            known = self.parts.mark(others[0]) if others else None
            tasks = self.owner.place.parallelism if known is None else known.word["parallelism"]
            with suppress(WrongVersion):
                first = self._owner(tasks).mark(_NOTHING, Journal())
                self.parts.backing(0).put({}, first, None)
        root = self.parts.mark(0)
        assert root is not None
        self._owner(chain[0].tasks).read(root.mark)  # raises if it belongs to another owner
        return chain

    def _owner(self, tasks: int) -> StateOwner:
        return replace(self.owner, place=replace(self.owner.place, parallelism=tasks))

    def _check_keys(self, chain: Sequence[Assignment]) -> None:
        """Raise StateMismatch if keys are not those by which records are grouped: nobody can say
        which task needs them."""
        last, spread = chain[-1], self.moving.spread
        for task in range(last.tasks if last.tasks > 1 and spread is not Spread.EVERYWHERE else 0):
            entries = [*self.parts.backing(last.first + task).items()]
            for entry, group in zip(entries, groups_of(entries, spread), strict=True):
                if group is not None and task_index(group[0], last.tasks) != task:
                    raise StateMismatch(
                        f"{self.owner}: key {entry[0]:.200} was written by task {task} of "
                        f"{last.tasks}, and records with this key go to another one. So the keys "
                        "are not those by which the records are grouped, and the number of tasks "
                        f"cannot change: give it back the parallelism {last.tasks}, or give the "
                        "state another name, under which it begins empty"
                    )

    # ---- leave -----------------------------------------------------------------------------------

    def _leave(
        self, chain: Sequence[Assignment], place: int, task: int, following: Assignment
    ) -> None:
        """Freeze a part, with all its values, unless it is."""
        own = chain[place]
        self._fill(chain, place, task)
        while (found := self.parts.mark(own.first + task)) is None or found.next is None:
            mark = found.mark if found else self._owner(own.tasks).mark(_NOTHING, Journal())
            word = {**json.loads(mark.word), "version": versions.STATE_MOVED, "next": following}
            left = Mark(json.dumps(word), mark.journal)
            with suppress(WrongVersion):
                seen = found.mark.word if found else None
                self.parts.backing(own.first + task).put({}, left, seen)

    # ---- fill ------------------------------------------------------------------------------------

    def _fill(self, chain: Sequence[Assignment], place: int, task: int) -> None:
        """Copy what a task has from the assignment before, unless its part is ready."""
        own = chain[place]
        number = own.first + task
        if is_ready(found := self.parts.mark(number), place):
            return
        for source in range(chain[place - 1].tasks):
            self._leave(chain, place - 1, source, own)
        content, last = self._content(chain, place, task)
        total = _sum(content)
        if found is not None and found.word.get("content") != total:
            stale = dict.fromkeys(key for key, _ in self.parts.backing(number).items())
            content = {**stale, **content}  # another program has begun
            total = _sum(content)
        chunks = list(_chunks(content))
        ready = self._owner(own.tasks).mark(last, Journal())
        while not is_ready(found := self.parts.mark(number), place):
            done = 0
            if found is not None and found.word.get("content") == total:
                done = int(found.word["filled"])
            mark = ready
            if done + 1 < len(chunks):
                about = {"version": versions.STATE_MOVED, "content": total, "filled": done + 1}
                mark = Mark(json.dumps({**json.loads(ready.word), **about}), ready.journal)
            with suppress(WrongVersion):
                seen = found.mark.word if found else None
                self.parts.backing(number).put(chunks[done], mark, seen)

    def _content(
        self, chain: Sequence[Assignment], place: int, task: int
    ) -> tuple[Changes, Attempt]:
        """The entries of a task, from the parts of the assignment before, which are frozen; and an
        attempt that is not before those that wrote them."""
        former, own, kind = chain[place - 1], chain[place], self.owner.kind
        content: Changes = {}
        found: list[FoundPart] = []
        txid, epoch = 1, 0
        for source in former.sources(task, own, self.moving.spread):
            mark = self.parts.mark(former.first + source)
            assert mark is not None
            last = Attempt(mark.word["txid"], mark.word["attempt"], mark.word["epoch"])
            txid, epoch = max(txid, last.txid), max(epoch, last.epoch)
            removed = set(self.owner.journal(mark.mark).removed)
            entries = [*self.parts.backing(former.first + source).items()]
            entries = [one for one in entries if one[0] not in removed]
            beside, kept = self._sorted(entries, source, own, task)
            content.update(kept)
            heir, items = source % own.tasks == task, partial(self._items, kept)
            found.append(FoundPart(heir, dict(self._items(beside)), items))
        for key, value in self.moving.join(found).items():
            text = None if value is None else text_of(value)
            content[text_of_key(key)] = None if text is None else packed(kind, txid, text, "null")
        return content, Attempt(txid, 0, epoch)

    def _sorted(
        self, entries: Sequence[Entry], source: int, own: Assignment, task: int
    ) -> tuple[list[Entry], list[Entry]]:
        """Of the entries of a former task: those that belong to no key of a record, and those that
        a new task gets."""
        beside, kept = list[Entry](), list[Entry]()
        is_copied = self.moving.spread is Spread.EVERYWHERE
        groups = groups_of(entries, self.moving.spread)
        for entry, group in zip(entries, groups, strict=True):
            if group is None:
                beside.append(entry)
            elif is_copied or task_of(group, source, own.tasks) == task:
                kept.append(entry)
        return beside, kept

    def _items(self, entries: Sequence[Entry]) -> Iterator[tuple[Key, Any]]:
        keys = keys_of([key for key, _ in entries])
        values = unpacked(self.owner.kind, values_of([text for _, text in entries]))
        return ((key, one.value) for key, one in zip(keys, values, strict=True))

    # ---- clear -----------------------------------------------------------------------------------

    def _clear(self, chain: Sequence[Assignment]) -> None:
        """Remove the values of parts that are no longer needed. Raises WrongVersion if another
        task does it at the same time."""
        for place, (former, now) in enumerate(pairwise(chain), start=1):
            root = self.parts.mark(former.first)
            if root is not None and root.is_cleared:
                continue
            if not all(is_ready(self.parts.mark(number), place) for number in now.parts()):
                return
            for number in reversed(former.parts()):  # the first part says that all are cleared
                self._clear_part(number)

    def _clear_part(self, number: int) -> None:
        found, backing = self.parts.mark(number), self.parts.backing(number)
        if found is None or found.is_cleared:
            return
        gone: Changes = dict.fromkeys(key for key, _ in backing.items())
        chunks = list(_chunks(gone))
        seen, begun = found.mark.word, int(found.word.get("cleared", 0))
        for count, chunk in enumerate(chunks, start=1):
            cleared = "all" if count == len(chunks) else begun + count
            mark = Mark(json.dumps({**found.word, "cleared": cleared}), Journal().text())
            backing.put(chunk, mark, seen)
            seen = mark.word


def _sum(content: Changes) -> int:
    """Identifies what is copied: who copies the same continues where another one has ended."""
    found = 0
    for pair in sorted(content.items()):
        found = crc32(repr(pair).encode(), found)
    return found


def _chunks(content: Changes) -> Iterator[Changes]:
    """The same in pieces for one write each, always the same ones."""
    some, size = Changes(), 0
    for key, text in sorted(content.items()):
        more = 3 * len(key) + len(text or "") + _OVERHEAD  # quotes are three bytes in a path
        if some and (len(some) == _KEYS_AT_ONCE or size + more > _BYTES_AT_ONCE):
            yield some
            some, size = {}, 0
        some[key] = text
        size += more
    yield some
