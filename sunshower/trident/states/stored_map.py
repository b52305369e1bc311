"""The map state over any backing: writes the values of a batch in one put, all or nothing.

    begin_commit ──▶ reads, writes (buffered, as JSON) ──▶ commit ──▶ one put

The put contains the values of the batch. Keys that only an earlier attempt of it has written get
their value from before the batch, and keys that the batch before has removed are deleted. The mark
is compared and set, so what was read is still valid, or nothing is written. Storm:
org.apache.storm.trident.state.map.OpaqueMap, TransactionalMap, CachedBatchReadsMap.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple, NoReturn, TypeAlias
from urllib.parse import quote

from sunshower import versions
from sunshower.errors import (
    BatchError,
    FailedBatch,
    NodeExists,
    NoNode,
    StaleAttempt,
    StateLost,
    StateMismatch,
    StoreError,
    StoreUnreachable,
    Unavailable,
    Unserialisable,
    WrongVersion,
)
from sunshower.json_values import (
    UNCHANGING,
    are_flat,
    key_of,
    text_of,
    text_of_key,
    texts_of,
    texts_of_keys,
    values_of,
)
from sunshower.records import copied
from sunshower.state.backing import Backing, Home, Mark
from sunshower.state.tree import Tree, incarnation
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.state_slot import RecentValues
from sunshower.topologies.operators.states import Key, Place, StateKind, Update
from sunshower.trident.coordination.transactional_log import JsonNode, current_batch, mismatch

_NULL = "null"
_TXID, _VALUE, _TEXT = map(itemgetter, range(3))  # of Kept; only a Written one has a text
_RECENT_MAX = 100_000  # keys, of about 400 bytes each
_LONG = 500  # characters of a value; longer ones are not cached
_FLAT_DEPTH = 3  # of lists in values that are read as they were written


# ---- counted -------------------------------------------------------------------------------------
# The coordinator's record of a state: the batch group that writes it, and its last write.
#
# A spout with another id, or a new batch store, counts from 1 again. A state that has batch 1 of
# the former numbering would take the new batch 1 for a repeat and ignore it: so its mark records
# the numbering. And a state that was rolled back, replaced or emptied would be written on as if
# nothing had happened: so each task notes here which attempt it has written, after the write and
# before the batch is acked.
#
#     <root>/<spout id>/coordinator/states/<state>/<task>     {"txid": 7, "attempt": 0, "epoch": 1}


@dataclass(frozen=True)
class CountedIn:
    """The store of a batch group, and its coordinators' nodes."""

    store: Callable[[], Tree]
    folders: tuple[str, ...]  # one per spout

    def incarnation(self) -> str:
        """An id that differs for every new numbering of batches. Raises StoreUnreachable."""
        with closing(self.store()) as tree:
            return incarnation(tree, self.folders)

    def current(self) -> int:
        """The txid to be committed next; all before it are. Raises StoreUnreachable."""
        with closing(self.store()) as tree:
            return current_batch(tree, self.folders)

    def last_write(self, state: str, task: int) -> LastWrite:
        """The note of a task's last write. Raises StoreUnreachable, StateMismatch."""
        tree = self.store()
        try:
            name = f"states/{quote(state, safe='')}/{task}"
            file = getattr(self.store, "file", None)  # if it is in SQLite
            place = "the store of the batches" + (f" ({file})" if file is not None else "")
            return LastWrite(tree, [f"{folder}/{name}" for folder in self.folders], place)
        except BaseException:
            tree.close()
            raise


class LastWrite:
    """Which attempt a task of a state has written last, as noted in the store of the batches. The
    state itself may be ahead of the note, after a crash between the two writes, but never behind
    it. Read the note before the state, and close it."""

    def __init__(
        self, tree: Tree, paths: Sequence[str], place: str = "the store of the batches"
    ) -> None:
        self._tree, self._place = tree, place
        self._nodes = [JsonNode(tree, path) for path in paths]
        tries = [_attempt(node) for node in self._nodes if node.read()]
        self.attempt = max(tries, key=order_of, default=None)  # None: the task has written nothing

    def check(self, attempt: Attempt | None, state: str) -> None:
        """Raise StateMismatch if a state whose last write is `found` is behind the note."""
        if self.attempt is None or (attempt and order_of(attempt) >= order_of(self.attempt)):
            return
        has = f"was last written by {describe_attempt(attempt)}" if attempt else "is empty"
        raise StateMismatch(
            f"{state} {has}, but it had {describe_attempt(self.attempt)} already, as "
            f"{self._nodes[0].path} in {self._place} says: the state was emptied, "
            "replaced or rolled back (a file that was removed or is on another machine, a backup, "
            "a replica that did not have the last writes). Nothing is written to it. Put back what "
            "was there; or give the state another name, under which it begins empty with the next "
            "batch; or remove both the state and the store of the batches, to start over with the "
            "first batch"
        )

    def note(self, attempt: Attempt) -> None:
        """Note what the state has now. Raises StoreUnreachable: then the batch is tried again."""
        if attempt == self.attempt:
            return
        for node in self._nodes:
            self._note(node, attempt)
        self.attempt = attempt

    def close(self) -> None:
        self._tree.close()

    @staticmethod
    def _note(node: JsonNode, attempt: Attempt) -> None:
        while node.version is None or order_of(_attempt(node)) < order_of(attempt):
            try:
                node.write(attempt._asdict())
            except (WrongVersion, NodeExists, NoNode):  # an earlier or a later life of the task
                node.read()


def order_of(attempt: Attempt) -> tuple[int, int, int]:
    """The order of attempts: a later attempt has the greater value."""
    return attempt.epoch, attempt.txid, attempt.attempt


def describe_attempt(attempt: Attempt | None) -> str:
    """An attempt, for messages."""
    if attempt is None:
        return "nobody"
    coordinator = f" (coordinator {attempt.epoch})" if attempt.epoch else ""
    return f"batch {attempt.txid}, attempt {attempt.attempt}{coordinator}"


def _attempt(node: JsonNode) -> Attempt:
    value: Any = node.value
    if isinstance(value, dict) and value.keys() == {*Attempt._fields}:
        attempt = Attempt(**value)
        if all(type(number) is int and number >= 0 for number in attempt):
            return attempt
    raise mismatch(node.path, value, 'like {"txid": 7, "attempt": 0, "epoch": 1}')


# ---- marks ---------------------------------------------------------------------------------------

# The mark of a task's part of a state: which batch wrote it last, and the keys of that batch.
#
# The word    {"topology":"words","batches":"9f1c…","kind":"opaque","parallelism":2,
#              "epoch":1,"txid":7,"attempt":0,"version":1,"values":"totals: count by word"}
# The journal {"written":["storm"],"removed":[]}      keys of that batch
#
# A writer with a smaller (epoch, txid, attempt) gets StaleAttempt. A writer of another topology,
# kind, batch numbering, or declaration of its values gets StateMismatch.

_ANOTHER = "give the state another name, under which it begins empty"
_RENAMED = (
    "; if only a field has another name now, `sunshower state export` and `import` move what it has"
)
_CAN_CHANGE = (
    ". The number of tasks can change for states whose keys choose the task of a record, as in "
    "aggregate, process and windows of groups; the function of this one chooses its keys itself"
)


@dataclass(frozen=True)
class Journal:
    """Keys of the last batch, as JSON texts."""

    written: tuple[str, ...] = ()  # all written keys; only of opaque states
    removed: tuple[str, ...] = ()  # null now; removed with the next batch

    def text(self) -> str:
        return f'{{"written":[{",".join(self.written)}],"removed":[{",".join(self.removed)}]}}'


@dataclass(frozen=True)
class StateOwner:
    """The task and the store of a part of a state."""

    place: Place
    kind: StateKind
    where: str  # the file or the server
    importing: Sequence[Any] | None = ()  # the file that this process imports: its name and
    # checksum; None: marks of any import are read

    def __str__(self) -> str:
        return f"state {self.place.state!r} in {self.where}, task {self.place.index}"

    def mark(self, attempt: Attempt, journal: Journal) -> Mark:
        """The mark that is written with a batch."""
        word = {**self._identity(), **attempt._asdict(), "version": versions.STATE}
        if (moving := self.place.moving) is not None:
            word["spread"] = moving.spread
        return Mark(json.dumps(word), journal.text())

    def last(self, mark: Mark) -> Attempt:
        """The last attempt that wrote the state. Raises StateMismatch if another owner wrote it,
        and StoreUnreachable if another number of tasks has the values now."""
        word, attempt = self.read(mark)
        if is_moved(word) and "importing" not in word:
            self._moved_away(word)
        return attempt

    def read(self, mark: Mark) -> tuple[dict[str, Any], Attempt]:
        """A mark, and its attempt. Raises StateMismatch if another owner wrote it."""
        try:
            word = json.loads(mark.word)
            attempt = Attempt(word["txid"], word["attempt"], word["epoch"])
        except (ValueError, TypeError, KeyError):
            self.corrupt("its mark", mark.word)
        if not all(type(number) is int and number >= 0 for number in attempt):
            self.corrupt("its mark", mark.word)
        remedy = "use the release that wrote it, or give the state another name"
        version = versions.STATE_MOVED if is_moved(word) else versions.STATE
        versions.check(str(self), word.get("version", 1), version, remedy)
        check_import(word, self.importing, str(self))
        for what, ours in self._identity().items():
            if what == "values" and what not in word:
                continue  # of a release that did not store it
            if word.get(what) != ours:
                if what == "batches":
                    self._counted_elsewhere(attempt)
                hint = _CAN_CHANGE if what == "parallelism" else ""
                if what == "values" and word[what].startswith(("totals: ", "process by ")):
                    hint = _RENAMED  # windows and joins cannot be imported
                raise StateMismatch(
                    f"{self} was written with {what} {word.get(what)!r}, and this is {ours!r}: "
                    f"set that back, or {_ANOTHER}{hint}"
                )
        return word, attempt

    def check_home(self, home: Home, ours: Home) -> None:
        """Raise StateMismatch for a part of a task that does not exist with this parallelism."""
        if home.state == ours.state and home.task >= self.place.parallelism:
            raise StateMismatch(
                f"{self} has {self.place.parallelism} tasks, and task {home.task} has written "
                f"there, too: give it back the parallelism that it had, or {_ANOTHER}"
            )

    def journal(self, mark: Mark) -> Journal:
        """The keys of the last batch. Raises StateMismatch."""
        try:
            lists = json.loads(mark.journal)
            return Journal(_texts(lists["written"]), _texts(lists["removed"]))
        except (ValueError, TypeError, KeyError):
            self.corrupt("its journal", mark.journal)

    def check(self, last: Attempt | None, attempt: Attempt) -> None:
        """Raise StaleAttempt, FailedBatch or StateMismatch unless `attempt` may write after
        `last`."""
        if last is None:
            return
        if order_of(attempt) < order_of(last):
            raise StaleAttempt(
                f"{self} was written by {describe_attempt(last)} already, so "
                f"{describe_attempt(attempt)} writes nothing: a later attempt or a later "
                "coordinator has taken over. If none has, then the store of the batches was "
                "removed and that of the state was not: remove both to start over"
            )
        if attempt.txid < last.txid:
            if self.place.moving is not None and not self.place.moving.repeats:
                raise FailedBatch(f"{self} was written meanwhile by an earlier life of its task")
            self._counted_elsewhere(last)

    def corrupt(self, what: str, content: str) -> NoReturn:
        raise StateMismatch(
            f"{self}: {what} cannot be read: {content[:100]!r}. Somebody else has written there; "
            "give the state another name, under which it begins empty"
        )

    def _moved_away(self, word: dict[str, Any]) -> NoReturn:
        tasks = word["next"][1] if word.get("next") else word.get("parallelism")
        if self.place.moving is None:
            raise StateMismatch(
                f"{self} is one of an ordinary stream that has {tasks} tasks now: {_ANOTHER}"
            )
        raise StoreUnreachable(
            f"{self} has moved to a run with {tasks} tasks, so this one writes nothing more. If "
            "that run has ended, start this one again, and the state moves back"
        )

    def _counted_elsewhere(self, last: Attempt) -> NoReturn:
        raise StateMismatch(
            f"{self} was written by {describe_attempt(last)}, and batches are counted elsewhere "
            "than they were then: by a spout with another id, or in another store or one that was "
            "removed. Give back the id and the store, or give the state another name"
        )

    def _identity(self) -> dict[str, Any]:
        return {
            "topology": self.place.topology,
            **({"values": self.place.values} if self.place.values else {}),
            "batches": self.place.batches,
            "kind": self.kind.value,
            "parallelism": self.place.parallelism,
        }


def is_moved(word: dict[str, Any]) -> bool:
    """Whether the values of a part are with other tasks now, or are not all there yet."""
    return word.get("version") == versions.STATE_MOVED


def check_import(word: Mapping[str, Any], importing: Sequence[Any] | None, where: str) -> None:
    """Raise StoreUnreachable for a mark that says that another file than `importing` is being
    imported: some values may be there, and others not. None: it may be any."""
    importing_now = word.get("importing")
    if importing_now is not None and importing is not None and [*importing_now] != [*importing]:
        raise StoreUnreachable(
            f"{where}: the file {importing_now[0]!r} is being imported, or its import was "
            "interrupted. Until it is complete, nobody reads or writes the state: repeat "
            "`sunshower state import` with that file, unchanged; or import another one "
            "with --instead"
        )


def _texts(keys: Sequence[Any]) -> tuple[str, ...]:
    return tuple(text_of_key(key_of(json.dumps(key))) for key in keys)


# ---- values --------------------------------------------------------------------------------------

# The stored form of each value, and the values that a batch reads and writes, as in Storm.
#
# kind               stored                   batch `txid` finds            and writes
# non-transactional  value                    value                         new
# transactional      [txid, value]            value; its own: not again     [txid, new]
# opaque             [txid, value, before]    value; its own: `before`      [txid, new, found]
#
# "Its own" is what an earlier attempt of the same batch has written. A removed value is null until
# a later batch is written, so that a repeat of its batch finds the value before. Storm:
# org.apache.storm.trident.state.map.TransactionalMap, OpaqueMap; OpaqueValue (update, get).

_LENGTH = {StateKind.TRANSACTIONAL: 2, StateKind.OPAQUE: 3}


class Stored(NamedTuple):
    """A value, the txid that wrote it, and the value before. None: there is none."""

    txid: int  # 0 if it is not stored
    value: Any
    before: Any  # None if it is not stored


NOTHING = Stored(0, None, None)


class Written(NamedTuple):
    """A key that this batch, or a recent one, has written."""

    txid: int
    value: Any  # as given; may have been mutated since, unless it is UNCHANGING
    text: str  # the value as JSON
    before_text: str  # the value before the batch, if the kind stores it; null

    @property
    def before(self) -> Any:
        """The value before the batch."""
        return values_of([self.before_text])[0]


Kept: TypeAlias = Stored | Written


def unpacked(kind: StateKind, entries: Sequence[Any]) -> list[Stored]:
    """Decode stored values. Raises ValueError if one is not of this kind."""
    if kind is StateKind.NON_TRANSACTIONAL:
        return [Stored(0, value, None) for value in entries]
    if not entries:
        return []
    if {*map(type, entries)} != {list} or {*map(len, entries)} != {_LENGTH[kind]}:
        raise ValueError(f"it is no {kind.value} value")
    txids = [entry[0] for entry in entries]
    least = 0 if kind is StateKind.TRANSACTIONAL else 1  # 0: imported before the first batch
    if {*map(type, txids)} != {int} or min(txids) < least:
        raise ValueError(f"it is no {kind.value} value")
    if kind is StateKind.TRANSACTIONAL:
        entries = [(txid, value, None) for txid, value in entries]
    return list(map(tuple.__new__, repeat(Stored), entries))  # a third of the time of Stored(…)


def packed(kind: StateKind, txid: int, value: str, before: str) -> str:
    """Encode a value for the store, from JSON texts."""
    if kind is StateKind.OPAQUE:
        return f"[{txid},{value},{before}]"
    return f"[{txid},{value}]" if kind is StateKind.TRANSACTIONAL else value


def packed_all(kind: StateKind, txid: int, written: Mapping[str, Written]) -> dict[str, str]:
    """Encode what a batch has written, in half the time of `packed` for each."""
    if kind is StateKind.OPAQUE:
        return {key: f"[{txid},{new},{old}]" for key, (_, _, new, old) in written.items()}
    return {
        key: packed(kind, txid, value.text, value.before_text) for key, value in written.items()
    }


def is_later(stored: Kept, txid: int) -> bool:
    """Whether a later batch has written it, so that `txid` must not write."""
    return stored.txid > txid


def read_all(entries: Sequence[Kept]) -> list[Any]:
    """The values of entries, each as a later batch reads it."""
    values = [*map(_VALUE, entries)]
    if UNCHANGING.issuperset(map(type, values)):
        return values
    changing = [
        at
        for at, (entry, value) in enumerate(zip(entries, values, strict=True))
        if type(entry) is Written and type(value) not in UNCHANGING
    ]
    texts = [_TEXT(entries[at]) for at in changing]
    for at, value in zip(changing, values_of(texts), strict=True):
        values[at] = value
    return values


def found_by(kind: StateKind, stored: Kept, txid: int) -> Any:
    """The value that batch `txid` finds before it writes the key itself."""
    if kind is StateKind.OPAQUE and stored.txid == txid:
        return stored.before
    return read_all([stored])[0]


def is_done(kind: StateKind, stored: Kept, txid: int) -> bool:
    """Whether an earlier attempt of batch `txid` has made the update for good."""
    return kind is StateKind.TRANSACTIONAL and stored.txid == txid


# ---- stored map ----------------------------------------------------------------------------------


class StoredMap:
    """Implements the port RecognisedState. It closes the backing."""

    def __init__(self, backing: Backing, owner: StateOwner) -> None:
        self._backing = backing
        self._owner = owner
        self._kind = owner.kind
        self._attempt: Attempt | None = None  # while a batch is written
        self._batch: RecentValues[str, Kept] = RecentValues(_RECENT_MAX)
        self._found = self._batch.found  # what this batch has read
        self._written: dict[str, Written] = self._batch.written
        self._last: Attempt | None = None  # that has written
        self._sure = False  # whether nobody else has written since `_look`
        self._look()  # with the errors of the store: at the start they end the topology

    def begin_commit(self, attempt: Attempt) -> None:
        self.abort()
        if not self._sure:
            with _as_outage():
                self._look()
        self._owner.check(self._last, attempt)
        self._attempt = attempt
        self._sure = False  # if it fails: an earlier attempt may have been written late meanwhile

    def multi_get(self, keys: Sequence[Key]) -> list[Any]:
        texts = self._texts(keys)
        if self._attempt is None:
            return [entry.value for entry in self._read(texts)]
        self._fetch(texts)
        found, written = self._found, self._written
        stored: list[Kept] = [found[text] for text in texts if text not in written]
        if max(map(_TXID, stored), default=0) >= self._attempt.txid:
            values = [self._now(text) for text in texts]
        else:
            entries = [written[text] if text in written else found[text] for text in texts]
            values = read_all(entries if written else stored)
        if UNCHANGING.issuperset(map(type, values)):
            return values
        # The caller may change what it gets, and put that or not: `found` has the value before.
        return [
            value if text in written or type(found[text]) is Written else copied(value)
            for text, value in zip(texts, values, strict=True)
        ]

    def multi_update(self, keys: Sequence[Key], updates: Sequence[Update]) -> list[Any]:
        txid = self._begun().txid
        texts = self._texts(keys)
        self._fetch(texts)
        found, written, opaque = self._found, self._written, self._kind is StateKind.OPAQUE
        entries = [found.get(text, NOTHING) for text in texts]  # of what is written: not used
        stamp, before, values, changing = self._stamp, _NULL, list[Any](), dict[int, str]()
        for key, text, update, stored, old in zip(
            keys, texts, updates, entries, read_all(entries), strict=True
        ):
            if text in written or stored[0] >= txid:
                values.append(self._update_again(key, text, update))
                continue
            if opaque:  # before the update, which may mutate the value
                before = stored.text if type(stored) is Written else text_of(old)
            new = update(old)
            new_text = str(new) if type(new) is int else self._text_of(key, new)
            # A third of the time of Written(…).
            written[text] = tuple.__new__(Written, (stamp, new, new_text, before))
            if type(new) not in UNCHANGING:
                changing[len(values)] = new_text
            values.append(new)
        if not are_flat([values[at] for at in changing], _FLAT_DEPTH, UNCHANGING):
            for at, value in zip(changing, values_of([*changing.values()]), strict=True):
                values[at] = value
        return values

    def multi_put(self, keys: Sequence[Key], values: Sequence[Any]) -> None:
        txid = self._begun().txid
        texts = self._texts(keys)
        opaque = self._kind is StateKind.OPAQUE
        if opaque:
            self._fetch(texts)
        found, written, stamp, before = self._found, self._written, self._stamp, _NULL
        texts_before = self._texts_before(texts) if opaque else {}
        new_texts = self._texts_of(keys, values)
        for key, text, value, new in zip(keys, texts, values, new_texts, strict=True):
            if opaque:
                if text in written or (stored := found[text])[0] >= txid:
                    written[text] = self._new(key, value, self._before(text))
                    continue
                before = stored.text if type(stored) is Written else texts_before[text]
            written[text] = tuple.__new__(Written, (stamp, value, new, before))

    def _texts_before(self, texts: Iterable[str]) -> dict[str, str]:
        """The JSON of the values that were read from the store, by their keys."""
        found = self._found
        values = {text: found[text][1] for text in texts if type(found.get(text)) is Stored}
        return dict(zip(values, texts_of([*values.values()]), strict=True))

    def multi_remove(self, keys: Sequence[Key]) -> None:
        self.multi_put(keys, [None] * len(keys))

    def items(self) -> Iterator[tuple[Key, Any]]:
        for text, stored in self._backing.items():
            (entry,) = self._unpacked([text], [stored])
            if entry.value is not None:
                yield key_of(text), entry.value

    def entry_count(self) -> int | None:
        """How many keys are stored, those that the last batch has removed included; None: only a
        server knows."""
        return self._backing.count()

    def commit(self, attempt: Attempt) -> None:
        if attempt != self._begun():
            raise BatchError(f"{self._owner}: {attempt} is committed, {self._attempt} was begun")
        again = self._last is not None and self._last.txid == attempt.txid
        if self._kind is StateKind.OPAQUE:
            self._leave_out_absent()
        # A first attempt need not block late writes of an earlier one.
        if self._written or again or attempt.attempt:
            self._put(attempt, again=again)
        self._sure = True
        self.abort()

    def abort(self) -> None:
        self._attempt = None
        self._batch.discard()

    @property
    def last_attempt(self) -> Attempt | None:
        return self._last if self._last is not None and self._last.txid else None

    def written_by(self, attempt: Attempt) -> list[Key]:
        """The keys that an earlier attempt of a batch has written or removed, if the state is
        opaque: unless this one writes them too, they get back the values from before the batch."""
        is_again = self._last is not None and self._last.txid == attempt.txid
        return [key_of(text) for text in self._journal.written] if is_again else []

    def close(self) -> None:
        self._backing.close()

    # ---- reading --------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read who wrote last."""
        self._sure = False
        self._batch.clear()
        try:
            mark = self._backing.mark()
        except UnicodeDecodeError as error:
            self._owner.corrupt("its mark", str(error))
        if mark is None and self._last is not None:
            raise StateLost(
                f"{self._owner} had {describe_attempt(self._last)}, and has no mark now: somebody "
                "has removed it. Restore the state from a copy, or give it another name, under "
                "which it begins empty"
            )
        self._word = mark.word if mark else None
        self._last = self._owner.last(mark) if mark else None
        self._journal = self._owner.journal(mark) if mark else Journal()
        self._sure = True

    def _begun(self) -> Attempt:
        if self._attempt is None:
            raise BatchError(
                f"{self._owner} is written outside of a batch: begin_commit is missing"
            )
        return self._attempt

    def _texts(self, keys: Sequence[Key]) -> list[str]:
        try:
            return texts_of_keys(keys)
        except Unserialisable as error:
            raise self._refused("a key", error) from error

    def _fetch(self, texts: Sequence[str]) -> None:
        """Read the keys that this batch has neither read nor written yet."""
        self._batch.fetch(texts, self._read)

    def _read(self, texts: Sequence[str]) -> list[Stored]:
        if not texts:
            return []
        try:
            with _as_outage():
                values = self._backing.get(texts)
        except UnicodeDecodeError as error:
            self._owner.corrupt("a value", str(error))
        present = [text for text, value in zip(texts, values, strict=True) if value is not None]
        stored = iter(self._unpacked(present, [value for value in values if value is not None]))
        return [NOTHING if value is None else next(stored) for value in values]

    def _unpacked(self, keys: Sequence[str], values: Sequence[str]) -> list[Stored]:
        try:
            return unpacked(self._kind, values_of(values))
        except (ValueError, TypeError):  # TypeError: it is not text
            for key, value in zip(keys, values, strict=True):
                try:
                    unpacked(self._kind, values_of([value]))
                except (ValueError, TypeError):
                    self._owner.corrupt(f"the value of key {key}", value)
            raise

    def _now(self, text: str) -> Any:
        """The value that this batch finds under a key that was fetched."""
        if text in self._written:
            return read_all([self._written[text]])[0]
        stored, attempt = self._found[text], self._begun()
        if is_later(stored, attempt.txid):
            raise StaleAttempt(
                f"{self._owner}: key {text} was written by batch {stored.txid}, which is behind "
                f"batch {attempt.txid}: a later batch was written, or another "
                "program writes this state"
            )
        return found_by(self._kind, stored, attempt.txid)

    # ---- writing --------------------------------------------------------------------------------

    def _update_again(self, key: Key, text: str, update: Update) -> Any:
        """Update a key that this batch, or an earlier attempt of it, has written."""
        attempt = self._begun()
        if text not in self._written and is_done(self._kind, self._found[text], attempt.txid):
            if self._last is None or self._last.txid != attempt.txid:  # another process did
                raise self._overtaken(attempt)
            return copied(read_all([self._found[text]])[0])
        before = self._before(text)  # before the update, which may mutate the value
        self._written[text] = written = self._new(key, update(self._now(text)), before)
        return read_all([written])[0]

    def _new(self, key: Key, value: Any, before: str) -> Written:
        return Written(self._stamp, value, self._text_of(key, value), before)

    def _before(self, text: str) -> str:
        """The JSON of the value before this batch; null if the kind does not store it."""
        if text in self._written:
            return self._written[text].before_text
        return text_of(self._now(text)) if self._kind is StateKind.OPAQUE else _NULL

    @property
    def _stamp(self) -> int:
        """The txid that is stored with this batch's writes."""
        return self._begun().txid if self._kind is not StateKind.NON_TRANSACTIONAL else 0

    def _texts_of(self, keys: Sequence[Key], values: Sequence[Any]) -> list[str]:
        try:
            return texts_of(values)
        except Unserialisable:  # of one of them, which this names
            return [self._text_of(key, value) for key, value in zip(keys, values, strict=True)]

    def _text_of(self, key: Key, value: Any) -> str:
        try:
            return text_of(value)
        except Unserialisable as error:
            raise self._refused(f"the value of key {key!r}", error) from error

    def _refused(self, what: str, error: Unserialisable) -> Unserialisable:
        return Unserialisable(
            f"{self._owner}: {what} cannot be kept: {error}. docs/RECORDS.md lists the "
            "types that a state keeps; nothing of this batch is written"
        )

    def _put(self, attempt: Attempt, *, again: bool) -> None:
        changes = self._undone(attempt.txid) if again else dict.fromkeys(self._journal.removed)
        if (kind := self._kind) is StateKind.NON_TRANSACTIONAL:
            for text, new in self._written.items():
                changes[text] = None if new.text == _NULL else new.text
        else:
            changes |= packed_all(kind, attempt.txid, self._written)
        journal = self._new_journal(again=again)
        mark = self._owner.mark(attempt, journal)
        try:
            with _as_outage():
                self._backing.put(changes, mark, self._word)
        except WrongVersion as error:
            raise self._overtaken(attempt) from error
        self._word, self._last, self._journal = mark.word, attempt, journal
        self._remember(changes)

    def _leave_out_absent(self) -> None:
        """Write nothing of keys that were not there before this batch, and are not after it."""
        absent = [text for text, new in self._written.items() if new[2] == new[3] == _NULL]
        for text in absent:
            del self._written[text]

    def _remember(self, changes: Mapping[str, str | None]) -> None:
        """Cache the writes. No other writer can interfere between two batches: the mark would
        change."""
        known = self._written
        if max(map(len, map(_TEXT, known.values())), default=0) > _LONG:
            known = {text: entry for text, entry in known.items() if len(entry.text) <= _LONG}
        others = changes.keys() - known.keys() if len(changes) > len(known) else ()
        self._batch.keep(known, others)

    def _undone(self, txid: int) -> dict[str, str | None]:
        """The values before this batch of keys that only earlier attempts of it have written."""
        keys = [key for key in self._journal.written if key not in self._written]
        changes: dict[str, str | None] = {}
        for key, stored in zip(keys, self._read(keys), strict=True):
            if stored.txid == txid:
                before = text_of(stored.before)
                changes[key] = None if before == _NULL else packed(self._kind, txid, before, before)
        return changes

    def _new_journal(self, *, again: bool) -> Journal:
        if self._kind is StateKind.NON_TRANSACTIONAL:
            return Journal()
        removed = tuple([text for text, new in self._written.items() if new[2] == _NULL])
        if self._kind is StateKind.OPAQUE:
            return Journal(tuple(self._written), removed)
        still_removed = [
            text for text in self._journal.removed if again and text not in self._written
        ]
        return Journal((), (*still_removed, *removed))

    def _overtaken(self, attempt: Attempt) -> BatchError:
        with _as_outage():
            self._look()
        self._owner.check(self._last, attempt)
        is_import = self._word is not None and "imported" in json.loads(self._word)
        by = "an import" if is_import else describe_attempt(self._last)
        return FailedBatch(
            f"{self._owner} was written meanwhile by {by}, so what "
            f"{describe_attempt(attempt)} has read holds no more: it is tried again"
        )


@contextmanager
def _as_outage() -> Iterator[None]:
    """Raise StoreUnreachable where the store refuses every batch, such as without a table: no
    record has caused that."""
    try:
        yield
    except StoreError as error:
        if isinstance(error, WrongVersion | Unavailable) or error.of_value:
            raise
        raise StoreUnreachable(str(error)) from error
