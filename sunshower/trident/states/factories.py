"""State factories: open a state in each task, in any store, and move it to other tasks.

stream.aggregate(…, state=SqliteState("counts.db"))
dict(SqliteState("counts.db").items())       reads the state, also while the topology runs
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from math import gcd
from typing import Any, NamedTuple, NoReturn, Self
from zlib import crc32

from sunshower import versions
from sunshower.arguments import check_all, checked
from sunshower.errors import (
    ConfigError,
    StateMismatch,
    StoreUnreachable,
    TopologyError,
    WrongVersion,
)
from sunshower.json_values import key_of, keys_of, text_of, text_of_key, values_of
from sunshower.runtime.transport.routing import task_index
from sunshower.secret import ADDRESS, Secret, address
from sunshower.state.backing import Backing, Home, Mark, MemoryBacking, MemoryShelf
from sunshower.state.sqlite import SqliteFile
from sunshower.state.zookeeper_client import ZooKeeperAccess
from sunshower.topologies.operators.keyed.key_states import as_seen, content_of
from sunshower.topologies.operators.keyed.keyed_store import as_read
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.state_slot import unstamped
from sunshower.topologies.operators.states import (
    ABOUT,
    ENTRY,
    ROW,
    FoundPart,
    Key,
    MapState,
    Moving,
    Place,
    Spread,
    StateKind,
    Update,
    group_of,
    is_own,
    numbers_of,
)
from sunshower.trident.states.stored_map import (
    Journal,
    StateOwner,
    Stored,
    StoredMap,
    check_import,
    found_by,
    is_moved,
    order_of,
    packed,
    unpacked,
)

# ---- parts ---------------------------------------------------------------------------------------
# The parts of a state, and which of them have the values, also while the number of tasks changes.
#
#   part    0   1  |  2   3   4   5      2 tasks, then 4
#           left      in use             the mark of part 0 says: the next are 4 tasks from part 2
#
# An assignment gives each task a part of its own. When the number of tasks changes, the next one
# begins behind the last: a part is never used again, so a late writer of it finds another mark. A
# part goes through these phases, each with a mark of its own; `Move` changes them.
#
#     filling    its values are being copied from the parts that were left
#     in use     its task reads and writes it
#     left       frozen; its values are with the next assignment, or still to be copied
#     cleared    its values are removed, or are being removed

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
        assigned = self.word.get("next")
        return None if assigned is None else Assignment(*assigned)

    @property
    def is_filling(self) -> bool:
        """Whether values are still missing."""
        return is_moved(self.word) and not {"next", "importing"} & self.word.keys()

    @property
    def is_clearing(self) -> bool:
        """Whether values have been removed because the next assignment has all of them."""
        return "cleared" in self.word

    @property
    def is_cleared(self) -> bool:
        """Whether no value is left."""
        return self.word.get("cleared") == "all"

    @property
    def importing(self) -> str:
        """The file that is being imported into the part; empty: none is."""
        return str(self.word["importing"][0]) if "importing" in self.word else ""

    @property
    def attempt(self) -> Attempt:
        """The attempt that has written last."""
        return Attempt(*(int(self.word.get(name) or 0) for name in Attempt._fields))

    @property
    def spread(self) -> Spread:
        return Spread(self.word.get("spread", Spread.BY_KEY))

    @property
    def is_keyed(self) -> bool:
        """Whether it says that its values are those of a keyed store; then they have marks."""
        values = str(self.word.get("values", ""))
        return values.startswith(("process", "distinct", "join", "table", "broadcast table"))


class Parts:
    """Clients of the parts of one state. Every call may raise StoreUnreachable."""

    def __init__(
        self,
        client: Callable[[Home], Backing],
        state: str,
        where: str,
        *,
        importing: Sequence[Any] | None = (),
    ) -> None:
        """`importing`: the file that this process imports; None: marks of any import are read."""
        self._client, self.state, self._where = client, state, where
        self._importing = importing
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
        no mark, and StoreUnreachable for a part into which a file is being imported."""
        try:
            mark = self.backing(number).mark()
            word = None if mark is None else json.loads(mark.word)
        except (ValueError, TypeError) as error:
            raise self._corrupt(number, error) from error
        if mark is None:
            return None
        if not isinstance(word, dict):
            raise self._corrupt(number, mark.word)
        check_import(word, self._importing, f"state {self.state!r} in {self._where}")
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

    def parts_with(self, key: Key) -> list[int]:
        """The parts that may have a key now: all of the latest assignment in which the task of the
        key has its values. A function may choose keys itself, so another part may have it."""
        chain = self.chain()
        for place in reversed(range(len(chain))):
            root, current = self.mark(0), chain[place]
            assert root is not None
            group = group_of(key, root.spread)
            task = 0 if group is None else task_index(group[0], current.tasks)
            if is_ready(self.mark(current.first + task), place):
                return [*current.parts()]
        return []

    def entries(self) -> Iterator[Entry]:
        """All entries of the state, each once, whatever moves meanwhile. A part is read at once."""
        seen: list[tuple[int, int]] = []  # tasks, and how many of them were read
        while chain := self.chain():
            root = self.mark(0)
            assert root is not None
            spread, tasks = root.spread, chain[-1].tasks
            is_copied = spread is Spread.EVERYWHERE
            for task in range(1 if is_copied else tasks):
                stored = self._read(chain, len(chain) - 1, task, spread)
                if stored is None:  # it has moved on
                    seen.append((tasks, task))
                    break
                yield from _unseen(stored, seen, spread) if seen and not is_copied else stored
            else:
                return

    def items(
        self,
        numbers: Sequence[int],
        read: Callable[[Any], Any] | None = None,
        *,
        written_after: float | None = None,
    ) -> Iterator[tuple[Key, Any]]:
        """All keys of records that have a value, with the value. `numbers`: the parts that there
        are. `read`: makes a value of a stored one, of a state with the classes of its values; None:
        without them, see KeptState.items. `written_after`: leaves out values of this time, and
        those before."""
        mark = self.mark(numbers[0])
        kind = StateKind(mark.word["kind"]) if mark else StateKind.OPAQUE
        has_classes = read is not None
        if read is None:
            read = as_read if any(map(self._is_keyed, numbers)) else _same
        heads: dict[Key, Any] = {}
        rows: dict[Key, Any] = {}  # of lists and maps
        for key, text in self.entries() if self.mark(0) else self._entries(numbers):
            value = unpacked(kind, values_of([text]))[0].value
            if value is None:
                continue
            stored_key = key_of(key)
            at, head = unstamped(value)
            if at is not None and written_after is not None and at <= written_after:
                continue
            if numbers_of(head):
                heads[stored_key] = head
            elif not is_own(stored_key):
                yield stored_key, read(value)
            elif type(stored_key) is tuple and stored_key[0] in (ROW, ENTRY):
                rows[stored_key] = read(value)
        if has_classes:
            for stored_key, head in heads.items():
                yield stored_key, content_of(stored_key, head, _same, rows.get)
            return
        by_key: dict[Key, dict[Any, Any]] = {}  # (ROW or ENTRY, key) → row
        for row, value in rows.items():
            by_key.setdefault(row[:2], {})[row[2]] = value  # type: ignore[index]
        for stored_key, head in heads.items():
            of_key = (by_key.get((kind_of_row, stored_key), {}) for kind_of_row in (ROW, ENTRY))
            yield stored_key, as_seen(head, *of_key)

    def _is_keyed(self, number: int) -> bool:
        mark = self.mark(number)
        is_noted = mark is not None and mark.is_keyed
        return is_noted or self.backing(number).get([text_of_key(ABOUT)]) != [None]

    def _entries(self, numbers: Sequence[int]) -> Iterator[Entry]:
        for number in numbers:
            yield from self.backing(number).items()

    def _read(
        self, chain: Sequence[Assignment], place: int, task: int, spread: Spread
    ) -> list[Entry] | None:
        """The entries of one task of an assignment; None if its parts are being cleared."""
        current = chain[place]
        number = current.first + task
        before = self.mark(number)
        if is_ready(before, place):
            entries_read = [*self.backing(number).items()]
        else:
            entries_read = []
            for source in chain[place - 1].sources(task, current, spread):
                entries = self._read(chain, place - 1, source, spread)
                if entries is None:
                    return None
                if spread is not Spread.EVERYWHERE:
                    groups = groups_of(entries, spread)
                    tasks = [task_of(group, source, current.tasks) for group in groups]
                    entries = [
                        entry for entry, to in zip(entries, tasks, strict=True) if to == task
                    ]
                entries_read += entries
        after = self.mark(number)
        is_gone = after is not None and after.is_clearing
        return (
            None if is_gone or is_ready(after, place) != is_ready(before, place) else entries_read
        )

    def _corrupt(self, number: int, content: object) -> StateMismatch:
        return StateMismatch(
            f"state {self.state!r} in {self._where}: the mark of part {number} cannot be read: "
            f"{str(content)[:100]!r}. Somebody else has written there; give the state another "
            "name, under which it begins empty"
        )


def _same(value: Any) -> Any:
    return value


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
    for entry, group in zip(entries, groups_of(entries, spread), strict=True):
        if group is None or all(task_index(group[0], tasks) >= read for tasks, read in seen):
            yield entry


# ---- moves ---------------------------------------------------------------------------------------

# Moves a state to another number of tasks, when a task opens it.
#
#   leave    each part gets another mark, part 0 of the assignment first: that one decides which
#            number of tasks is next, and a process of the former run can write nothing afterwards
#   fill     each new task copies its keys from the parts that were left, in several writes; the
#            last one makes its part ready
#   clear    who finds all new parts ready removes the values of the old ones; their marks stay
#
# Every step is a compare-and-set of the mark of one part, and what is written follows from frozen
# parts alone. So many processes may do it at once, each may end anywhere, and the next one
# continues.
#
# A state of batches may be left between the writes of its tasks: some have written batch 7, and
# others have not. Each value goes along with the txid and the value from before the batch, and the
# new mark has the last of the former attempts and their journals. So if batch 7 is repeated, each
# key finds what it would have found where it was. `Moving.join` makes what is beside the keys: for
# an opaque state twice, of what was there after batch 7, and of what was there before.

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
            self._check_writes(chain)
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

    def _check_writes(self, chain: Sequence[Assignment]) -> None:
        """Raise StateMismatch if a part is behind what its task has noted. It may be that of a task
        that the present run does not have."""
        check, place = self.moving.check, len(chain) - 1
        for task, number in enumerate(chain[place].parts() if check is not None else ()):
            mark = self.parts.mark(number)
            if is_ready(mark, place) and check is not None:
                check(task, None if mark is None else _attempt_of(mark))

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
        current = chain[place]
        self._fill(chain, place, task)
        while (own_mark := self.parts.mark(current.first + task)) is None or own_mark.next is None:
            mark = (
                own_mark.mark if own_mark else self._owner(current.tasks).mark(_NOTHING, Journal())
            )
            word = {**json.loads(mark.word), "version": versions.STATE_MOVED, "next": following}
            left = Mark(json.dumps(word), mark.journal)
            with suppress(WrongVersion):
                seen = own_mark.mark.word if own_mark else None
                self.parts.backing(current.first + task).put({}, left, seen)

    # ---- fill ------------------------------------------------------------------------------------

    def _fill(self, chain: Sequence[Assignment], place: int, task: int) -> None:
        """Copy what a task has from the assignment before, unless its part is ready."""
        current = chain[place]
        number = current.first + task
        if is_ready(part := self.parts.mark(number), place):
            return
        for source in range(chain[place - 1].tasks):
            self._leave(chain, place - 1, source, current)
        content, ready = self._content(chain, place, task)
        total = _sum(content)
        if part is not None and part.word.get("content") != total:
            stale = dict.fromkeys(key for key, _ in self.parts.backing(number).items())
            content = {**stale, **content}  # another program has begun
            total = _sum(content)
        pieces = list(chunks(content))
        while not is_ready(part := self.parts.mark(number), place):
            done = 0
            if part is not None and part.word.get("content") == total:
                done = int(part.word["filled"])
            mark = ready
            if done + 1 < len(pieces):
                about = {"version": versions.STATE_MOVED, "content": total, "filled": done + 1}
                mark = Mark(json.dumps({**json.loads(ready.word), **about}), Journal().text())
            with suppress(WrongVersion):
                seen = part.mark.word if part else None
                self.parts.backing(number).put(pieces[done], mark, seen)

    def _content(self, chain: Sequence[Assignment], place: int, task: int) -> tuple[Changes, Mark]:
        """The entries of a task, from the parts of the assignment before, which are frozen; and the
        mark of a part that has all of them. Its attempt is not before those that wrote them."""
        former, current, kind = chain[place - 1], chain[place], self.owner.kind
        sources = former.sources(task, current, self.moving.spread)
        marks = [self._mark_of(former, source) for source in sources]
        last = _latest([_attempt_of(mark) for mark in marks], repeats=self.moving.repeats)
        content: Changes = {}
        written, removed = dict[str, None](), dict[str, None]()
        parts: list[_MovedPart] = []
        for source, mark in zip(sources, marks, strict=True):
            journal, txid = self.owner.journal(mark.mark), _attempt_of(mark).txid
            entries = [*self.parts.backing(former.first + source).items()]
            if not (self.moving.repeats and txid == last.txid):  # it is not repeated any more
                gone, journal = set(journal.removed), Journal()
                entries = [entry for entry in entries if entry[0] not in gone]
            beside, rest = self._sorted(entries, source, current, task)
            content.update(rest)
            written |= dict.fromkeys(key for key in journal.written if key in content)
            removed |= dict.fromkeys(key for key in journal.removed if key in content)
            parts.append(_MovedPart(source, txid, beside, rest))
        after, before = self._joined(parts, former, current, task, last.txid)
        for key in {**after, **before}:
            value, old, text = after.get(key), before.get(key), text_of_key(key)
            is_gone = value is None and old is None
            content[text] = (
                None if is_gone else packed(kind, last.txid, text_of(value), text_of(old))
            )
            if self.moving.repeats and not is_gone:
                written[text] = None
                if value is None:
                    removed[text] = None
        journal = Journal((*written,) if kind is StateKind.OPAQUE else (), (*removed,))
        return content, self._owner(current.tasks).mark(last, journal)

    def _joined(
        self,
        moved: Sequence[_MovedPart],
        former: Assignment,
        current: Assignment,
        task: int,
        txid: int,
    ) -> tuple[Mapping[Key, Any], Mapping[Key, Any]]:
        """What is made of the entries beside the keys: of those that are there after batch `txid`,
        and of those from before it, if it may be repeated and the state has them."""
        is_copied = self.moving.spread is Spread.EVERYWHERE

        def gets(group: Key) -> bool:
            return is_copied or task_index(group, current.tasks) == task

        def join(value_of: Callable[[Stored], Any]) -> Mapping[Key, Any]:
            parts = []
            for part in moved:
                beside = dict(self._items(part.beside, lambda stored: stored))
                values = {key: value_of(stored) for key, stored in beside.items()}
                parts.append(
                    FoundPart(
                        task=part.task,
                        tasks=former.tasks,
                        txid=part.txid,
                        is_heir=part.task % current.tasks == task,
                        beside={key: value for key, value in values.items() if value is not None},
                        latest={key for key, stored in beside.items() if stored.txid == txid},
                        items=partial(self._items, part.entries, value_of),
                        gets=gets,
                    )
                )
            return self.moving.join(parts)

        after = join(lambda stored: stored.value)
        if not (self.moving.repeats and self.owner.kind is StateKind.OPAQUE):
            return after, {}
        return after, join(lambda stored: found_by(StateKind.OPAQUE, stored, txid))

    def _mark_of(self, assignment: Assignment, task: int) -> PartMark:
        mark = self.parts.mark(assignment.first + task)
        assert mark is not None, "it has been left"
        self._owner(assignment.tasks).read(mark.mark)  # raises if it belongs to another owner
        return mark

    def _sorted(
        self, entries: Sequence[Entry], source: int, current: Assignment, task: int
    ) -> tuple[list[Entry], list[Entry]]:
        """Of the entries of a former task: those that belong to no key of a record, and those that
        a new task gets."""
        beside, rest = list[Entry](), list[Entry]()
        is_copied = self.moving.spread is Spread.EVERYWHERE
        groups = groups_of(entries, self.moving.spread)
        for entry, group in zip(entries, groups, strict=True):
            if group is None:
                beside.append(entry)
            elif is_copied or task_of(group, source, current.tasks) == task:
                rest.append(entry)
        return beside, rest

    def _items(
        self, entries: Sequence[Entry], value_of: Callable[[Stored], Any]
    ) -> Iterator[tuple[Key, Any]]:
        """The keys that have a value, with the value."""
        keys = keys_of([key for key, _ in entries])
        stored = unpacked(self.owner.kind, values_of([text for _, text in entries]))
        pairs = ((key, value_of(item)) for key, item in zip(keys, stored, strict=True))
        return (pair for pair in pairs if pair[1] is not None)

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
        part, backing = self.parts.mark(number), self.parts.backing(number)
        if part is None or part.is_cleared:
            return
        gone: Changes = dict.fromkeys(key for key, _ in backing.items())
        pieces = list(chunks(gone))
        seen, begun = part.mark.word, int(part.word.get("cleared", 0))
        for count, chunk in enumerate(pieces, start=1):
            cleared = "all" if count == len(pieces) else begun + count
            mark = Mark(json.dumps({**part.word, "cleared": cleared}), Journal().text())
            backing.put(chunk, mark, seen)
            seen = mark.word


class _MovedPart(NamedTuple):
    """What a task has of one of the former tasks."""

    task: int  # the former one
    txid: int  # of its last write
    beside: list[Entry]
    entries: list[Entry]


def _attempt_of(mark: PartMark) -> Attempt:
    return Attempt(mark.word["txid"], mark.word["attempt"], mark.word["epoch"])


def _latest(attempts: Sequence[Attempt], *, repeats: bool) -> Attempt:
    """The attempt of the values that these have written. Without batches no number is repeated."""
    if repeats:
        return max(attempts, key=order_of)
    txid, epoch = (
        max(attempt.txid for attempt in attempts),
        max(attempt.epoch for attempt in attempts),
    )
    return Attempt(max(1, txid), 0, epoch)


def _sum(content: Changes) -> int:
    """Identifies what is copied: who copies the same continues where another one has ended."""
    checksum = 0
    for pair in sorted(content.items()):
        checksum = crc32(repr(pair).encode(), checksum)
    return checksum


def chunks(content: Changes) -> Iterator[Changes]:
    """The same in pieces for one write each, always the same ones."""
    piece, size = Changes(), 0
    for key, text in sorted(content.items()):
        more = 3 * len(key) + len(text or "") + _OVERHEAD  # quotes are three bytes in a path
        if piece and (len(piece) == _KEYS_AT_ONCE or size + more > _BYTES_AT_ONCE):
            yield piece
            piece, size = {}, 0
        piece[key] = text
        size += more
    yield piece


# ---- factories -----------------------------------------------------------------------------------


class KeptState(ABC):
    """The base of all state factories. `name` overrides the state's name in the topology."""

    kind: StateKind
    name: str | None

    def __post_init__(self) -> None:
        check_all(self, {}, f"{type(self).__name__}: ")

    @property
    @abstractmethod
    def where(self) -> str:
        """The store, for messages."""

    @abstractmethod
    def open(self, home: Home) -> Backing:
        """A client for one task's part of a state. Raises StoreUnreachable."""

    @abstractmethod
    def homes(self) -> list[Home]:
        """All task parts in this store, in order."""

    def make(self, place: Place) -> StoredMap:
        """Open the state of one task (port StateFactory)."""
        home = Home(self.name or place.state, place.index)
        owner = StateOwner(place, self.kind, self.where)
        if place.moving is not None:
            with Parts(self.open, home.state, self.where) as parts:
                home = Move(parts, owner, place.moving, self.homes).home()
        elif place.index == 0:  # one task is enough: nothing is committed before all have started
            for other in self.homes():
                owner.check_home(other, home)
        backing = self.open(home)
        try:
            return StoredMap(backing, owner)
        except BaseException:
            backing.close()
            raise

    @checked()
    def items(self, state: str | None = None) -> Iterator[tuple[Key, Any]]:
        """All keys that have a value, with the value, over all tasks, in no order.

        `state` may be omitted if the store has only one. Each task's part is read as of its last
        commit; while the topology runs, the parts may differ by a batch. In Redis and ZooKeeper one
        part may too, because several commands read its keys. While the state moves to another
        number of tasks each key is there once. In states of `process` a record is a dictionary of
        its fields, and an Enum the name of its member.
        """
        homes = self.homes()
        names = {home.state for home in homes}
        name = state or self.name or (min(names) if len(names) == 1 else None)
        if name is None and names:
            raise ConfigError(
                f"{self.where} has several states: say which, as in items({min(names)!r}); it has "
                f"{', '.join(sorted(names))}"
            )
        numbers = [home.task for home in homes if home.state == name]
        if name is None or not numbers:
            return
        with Parts(self.open, name, self.where) as parts:
            yield from parts.items(numbers)


@dataclass(frozen=True)
class MemoryState(KeptState):
    """In this process, for topologies that run in it alone, as in the simulator. Copies share the
    state, so it survives crashes of simulated processes."""

    kind: StateKind = StateKind.OPAQUE
    name: str | None = None
    shelf: MemoryShelf = field(default_factory=MemoryShelf, compare=False, repr=False)
    where = "memory"

    def open(self, home: Home) -> Backing:
        return MemoryBacking(self.shelf, home)

    def homes(self) -> list[Home]:
        return sorted(self.shelf.marks)

    def __deepcopy__(self, memo: Any) -> MemoryState:
        return self

    def __reduce__(self) -> Any:
        raise ConfigError(
            "a state in memory cannot be shared by several processes: give "
            'SqliteState("counts.db"), or another store that all of them reach'
        )


@dataclass(frozen=True)
class SqliteState(SqliteFile, KeptState):
    """In a SQLite file, which all processes of the topology must share; one table per state. Keys
    and values are JSON: SELECT key, value FROM "counts". Opening it on another machine than the one
    where it was declared raises ConfigError."""

    instead = "give PostgresState, RedisState or ZooKeeperState"
    kind: StateKind = StateKind.OPAQUE
    name: str | None = None

    @property
    def where(self) -> str:
        return str(self.file)

    def open(self, home: Home) -> Backing:
        from sunshower.state.sqlite import SqliteBacking

        return SqliteBacking(self.path, home)

    def homes(self) -> list[Home]:
        from sunshower.state.sqlite import homes

        return homes(self.path)


# ---- servers -------------------------------------------------------------------------------------

_URL = replace(ADDRESS, instead='an address, such as "redis://host:6379"')


@dataclass(frozen=True)
class ZooKeeperState(ZooKeeperAccess, KeptState):
    """In ZooKeeper, one node per key: for small states. A batch must be below a megabyte. The node
    of key "storm" is `<root>/<state>/<task>/values/%22storm%22` and holds JSON as in Storm. See
    ZooKeeperAccess for `digest` and `tls`."""

    kind: StateKind = StateKind.OPAQUE
    name: str | None = None
    root: str = "/sunshower/states"

    @property
    def where(self) -> str:
        return f"ZooKeeper at {self.hosts}{self.root}"

    def open(self, home: Home) -> Backing:
        from sunshower.state.zookeeper_tree import ZooKeeperBacking, ZooKeeperTree

        return ZooKeeperBacking(ZooKeeperTree.of(self), self.root, home)

    def homes(self) -> list[Home]:
        from sunshower.state.zookeeper_tree import ZooKeeperTree, homes

        with closing(ZooKeeperTree.of(self)) as tree:
            return homes(tree, self.root)


@dataclass(frozen=True)
class RedisState(KeptState):
    """In Redis, one hash per task: HGETALL "sunshower:{counts/0}:values". Acknowledged writes
    survive a crash of Redis only with `appendonly yes`, `appendfsync always`. A Redis that evicts
    keys (`maxmemory-policy allkeys-…`) is refused with ConfigError when the state is opened."""

    url: str | Secret
    kind: StateKind = StateKind.OPAQUE
    name: str | None = None
    prefix: str = "sunshower"

    def __post_init__(self) -> None:
        check_all(self, {"url": _URL}, "RedisState: ")
        object.__setattr__(self, "url", address(self.url))

    @property
    def where(self) -> str:
        return f"Redis at {self.url}, {self.prefix}"

    def make(self, place: Place) -> StoredMap:
        from sunshower.state.redis_backing import check_policy

        check_policy(self.url)
        return super().make(place)

    def open(self, home: Home) -> Backing:
        from sunshower.state.redis_backing import RedisBacking

        return RedisBacking(self.url, home, prefix=self.prefix)

    def homes(self) -> list[Home]:
        from sunshower.state.redis_backing import homes

        return homes(self.url, self.prefix)


@dataclass(frozen=True)
class PostgresState(KeptState):
    """In PostgreSQL, one table per state: SELECT key, value FROM "counts"."""

    dsn: str | Secret
    kind: StateKind = StateKind.OPAQUE
    name: str | None = None

    def __post_init__(self) -> None:
        check_all(self, {"dsn": ADDRESS}, "PostgresState: ")
        object.__setattr__(self, "dsn", address(self.dsn))

    @property
    def where(self) -> str:
        return f"PostgreSQL at {self.dsn}"

    def open(self, home: Home) -> Backing:
        from sunshower.state.postgres_backing import PostgresBacking

        return PostgresBacking(self.dsn, home)

    def homes(self) -> list[Home]:
        from sunshower.state.postgres_backing import homes

        return homes(self.dsn)


# ---- views ---------------------------------------------------------------------------------------
# States that are only read.
#
# Storm: org.apache.storm.trident.state.map.SnapshottableMap, TridentTopology.newStaticState.


@dataclass(frozen=True)
class StaticState:
    """A read-only state for lookups: a mapping, or a function that each task calls once. The result
    of a function stays in its task and need not be pickled."""

    values: Mapping[Any, Any] | Callable[[], Mapping[Any, Any]] = field(repr=False)
    kind = StateKind.TRANSACTIONAL  # reading alone cannot count anything twice

    def __post_init__(self) -> None:
        check_all(self, {}, "StaticState: ")

    def make(self, place: Place) -> MapState:
        values = self.values if isinstance(self.values, Mapping) else self.values()
        return _ReadOnly(values, place.state)


class _ReadOnly:
    """A MapState that raises on writes."""

    def __init__(self, values: Mapping[Any, Any], name: str) -> None:
        self._values = values
        self._name = name

    def begin_commit(self, attempt: Attempt) -> None: ...

    def commit(self, attempt: Attempt) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...

    def multi_get(self, keys: Sequence[Key]) -> list[Any]:
        return [self._values.get(key) for key in keys]

    def multi_update(self, keys: Sequence[Key], updates: Sequence[Update]) -> NoReturn:
        self.multi_remove(keys)

    def multi_put(self, keys: Sequence[Key], values: Sequence[Any]) -> NoReturn:
        self.multi_remove(keys)

    def items(self) -> Iterator[tuple[Key, Any]]:
        return iter(self._values.items())

    def multi_remove(self, keys: Sequence[Key]) -> NoReturn:
        raise TopologyError(
            f"state {self._name!r} is static: it can only be read. To write, use a "
            "SqliteState or another state"
        )
