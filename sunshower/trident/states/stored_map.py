"""The map state over any backing: writes the values of a batch in one put, all or nothing.

    begin_commit ──▶ reads, writes (buffered, as JSON) ──▶ commit ──▶ one put

The put contains the values of the batch. Keys that only an earlier attempt of it has written get
their value from before the batch, and keys that the batch before has removed are deleted. The mark
is compared and set, so what was read is still valid, or nothing is written. Storm:
org.apache.storm.trident.state.map.OpaqueMap, TransactionalMap, CachedBatchReadsMap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from sunshower.errors import (
    BatchError,
    FailedBatch,
    StaleAttempt,
    StateLost,
    StoreError,
    StoreUnreachable,
    Unavailable,
    Unserialisable,
    WrongVersion,
)
from sunshower.state.backing import Backing
from sunshower.topologies.operators.keyed.keyed_store import Recent
from sunshower.topologies.operators.keyed.stored_values import (
    UNCHANGING,
    key_of,
    text_of,
    texts_of_keys,
    values_of,
)
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import Key, StateKind, Update
from sunshower.trident.states.marks import Journal, StateOwner, describe_attempt

_NULL = "null"
_TXID, _VALUE, _BEFORE = map(itemgetter, range(3))  # of Kept
_RECENT_MAX = 100_000  # keys, of about 400 bytes each


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
    """A key that this batch has written, in the form that the next batch reads."""

    txid: int
    value: Any  # as given; may have been mutated since, unless it is UNCHANGING
    before: Any  # the value before the batch, if opaque; likewise
    text: str  # the value as JSON
    before_text: str

    def read(self) -> Any:
        """The value as a later batch reads it."""
        return self.value if type(self.value) in UNCHANGING else values_of([self.text])[0]


Kept: TypeAlias = Stored | Written


def unpacked(kind: StateKind, found: Sequence[Any]) -> list[Stored]:
    """Decode stored values. Raises ValueError if one is not of this kind."""
    if kind is StateKind.NON_TRANSACTIONAL:
        return [Stored(0, value, None) for value in found]
    if not found:
        return []
    if {*map(type, found)} != {list} or {*map(len, found)} != {_LENGTH[kind]}:
        raise ValueError(f"it is no {kind.value} value")
    txids = [one[0] for one in found]
    if {*map(type, txids)} != {int} or min(txids) < 1:
        raise ValueError(f"it is no {kind.value} value")
    if kind is StateKind.TRANSACTIONAL:
        found = [(txid, value, None) for txid, value in found]
    return list(map(tuple.__new__, repeat(Stored), found))  # a third of the time of Stored(…)


def packed(kind: StateKind, txid: int, value: str, before: str) -> str:
    """Encode a value for the store, from JSON texts."""
    if kind is StateKind.OPAQUE:
        return f"[{txid},{value},{before}]"
    return f"[{txid},{value}]" if kind is StateKind.TRANSACTIONAL else value


def packed_all(kind: StateKind, txid: int, written: Mapping[str, Written]) -> dict[str, str]:
    """Encode what a batch has written, in half the time of `packed` for each."""
    if kind is StateKind.OPAQUE:
        return {key: f"[{txid},{new},{old}]" for key, (_, _, _, new, old) in written.items()}
    return {key: packed(kind, txid, one.text, one.before_text) for key, one in written.items()}


def is_later(stored: Kept, txid: int) -> bool:
    """Whether a later batch has written it, so that `txid` must not write."""
    return stored.txid > txid


def found_by(kind: StateKind, stored: Kept, txid: int) -> Any:
    """The value that batch `txid` finds before it writes the key itself."""
    if kind is StateKind.OPAQUE and stored.txid == txid:
        return stored.before
    return stored.value


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
        self._found: dict[str, Kept] = {}  # what this batch has read
        self._written: dict[str, Written] = {}
        self._recent: Recent[str, Written] = Recent(_RECENT_MAX)
        self._last: Attempt | None = None  # that has written
        self._look()  # with the errors of the store: at the start they end the topology

    def begin_commit(self, attempt: Attempt) -> None:
        self.abort()
        if not self._sure:
            with _as_outage():
                self._look()
        self._owner.check(self._last, attempt)
        self._attempt = attempt

    def multi_get(self, keys: Sequence[Key]) -> list[Any]:
        texts = self._texts(keys)
        if self._attempt is None:
            return [found.value for found in self._read(texts)]
        self._fetch(texts)
        stored = [*map(self._found.__getitem__, texts)]
        if not self._written and max(map(_TXID, stored), default=0) < self._attempt.txid:
            return [*map(_VALUE, stored)]
        return [self._now(text) for text in texts]

    def multi_update(self, keys: Sequence[Key], updates: Sequence[Update]) -> list[Any]:
        txid = self._begun().txid
        texts = self._texts(keys)
        self._fetch(texts)
        found, written, opaque = self._found, self._written, self._kind is StateKind.OPAQUE
        stamp, before, values = self._stamp, _NULL, []
        for key, text, update in zip(keys, texts, updates, strict=True):
            stored = found[text]
            if text in written or stored[0] >= txid:
                values.append(self._update_again(key, text, update))
                continue
            old = stored[1]
            if opaque:  # before the update, which may mutate the value
                before = stored.text if type(stored) is Written else text_of(old)
            new = update(old)
            made = str(new) if type(new) is int else self._text_of(key, new)
            # A third of the time of Written(…).
            one = (stamp, new, old if opaque else None, made, before)
            written[text] = tuple.__new__(Written, one)
            values.append(new if type(new) in UNCHANGING else written[text].read())
        return values

    def multi_put(self, keys: Sequence[Key], values: Sequence[Any]) -> None:
        txid = self._begun().txid
        texts = self._texts(keys)
        opaque = self._kind is StateKind.OPAQUE
        if opaque:
            self._fetch(texts)
        found, written, stamp, old, before = self._found, self._written, self._stamp, None, _NULL
        for key, text, value in zip(keys, texts, values, strict=True):
            if opaque:
                stored = found[text]
                if text in written or stored[0] >= txid:
                    written[text] = self._new(key, value, self._before(text))
                    continue
                old = stored[1]
                before = stored.text if type(stored) is Written else text_of(old)
            made = str(value) if type(value) is int else self._text_of(key, value)
            written[text] = tuple.__new__(Written, (stamp, value, old, made, before))

    def multi_remove(self, keys: Sequence[Key]) -> None:
        self.multi_put(keys, [None] * len(keys))

    def items(self) -> Iterator[tuple[Key, Any]]:
        for text, stored in self._backing.items():
            (one,) = self._unpacked([text], [stored])
            if one.value is not None:
                yield key_of(text), one.value

    def entry_count(self) -> int | None:
        """How many keys are stored, those that the last batch has removed included; None: only a
        server knows."""
        return self._backing.count()

    def commit(self, attempt: Attempt) -> None:
        if attempt != self._begun():
            raise BatchError(f"{self._owner}: {attempt} is committed, {self._attempt} was begun")
        again = self._last is not None and self._last.txid == attempt.txid
        # A first attempt need not block late writes of an earlier one.
        if self._written or again or attempt.attempt:
            self._put(attempt, again=again)
        self.abort()

    def abort(self) -> None:
        self._attempt = None
        self._found, self._written = {}, {}

    @property
    def last_attempt(self) -> Attempt | None:
        return self._last

    def close(self) -> None:
        self._backing.close()

    # ---- reading --------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read who wrote last."""
        self._sure = False
        self._recent.clear()
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
        """Read the keys that this batch has not read yet."""
        found = self._found
        missing = [text for text in dict.fromkeys(texts) if text not in found]
        known = self._recent.find(missing)
        found.update(known)
        if len(known) < len(missing):
            missing = [text for text in missing if text not in known]
            found.update(zip(missing, self._read(missing), strict=True))

    def _read(self, texts: Sequence[str]) -> list[Stored]:
        if not texts:
            return []
        try:
            with _as_outage():
                found = self._backing.get(texts)
        except UnicodeDecodeError as error:
            self._owner.corrupt("a value", str(error))
        there = [text for text, one in zip(texts, found, strict=True) if one is not None]
        stored = iter(self._unpacked(there, [one for one in found if one is not None]))
        return [NOTHING if one is None else next(stored) for one in found]

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
            return self._written[text].read()
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
        if text not in self._written and is_done(self._kind, self._found[text], self._begun().txid):
            return self._found[text].value
        before = self._before(text)  # before the update, which may mutate the value
        self._written[text] = made = self._new(key, update(self._now(text)), before)
        return made.read()

    def _new(self, key: Key, value: Any, before: tuple[Any, str]) -> Written:
        found, found_text = before
        return Written(self._stamp, value, found, self._text_of(key, value), found_text)

    def _before(self, text: str) -> tuple[Any, str]:
        """The value before this batch, and its JSON; null if the kind does not store it."""
        if text in self._written:
            return self._written[text].before, self._written[text].before_text
        found = self._now(text) if self._kind is StateKind.OPAQUE else None
        return found, text_of(found)

    @property
    def _stamp(self) -> int:
        """The txid that is stored with this batch's writes."""
        return self._begun().txid if self._kind is not StateKind.NON_TRANSACTIONAL else 0

    def _text_of(self, key: Key, value: Any) -> str:
        try:
            return text_of(value)
        except Unserialisable as error:
            raise self._refused(f"the value of key {key!r}", error) from error

    def _refused(self, what: str, error: Unserialisable) -> Unserialisable:
        return Unserialisable(
            f"{self._owner}: {what} cannot be kept: {error}. docs/TOPOLOGIES.md lists the "
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
        self._sure = False  # until the outcome is known
        try:
            with _as_outage():
                self._backing.put(changes, mark, self._word)
        except WrongVersion as error:
            raise self._overtaken(attempt) from error
        self._word, self._last, self._journal, self._sure = mark.word, attempt, journal, True
        self._remember(changes)

    def _remember(self, changes: Mapping[str, str | None]) -> None:
        """Cache the writes. No other writer can interfere between two batches: the mark would
        change."""
        known, plain = self._written, UNCHANGING
        kinds = {type(value) for get in (_VALUE, _BEFORE) for value in map(get, known.values())}
        if not kinds <= plain:
            known = {
                text: one
                for text, one in known.items()
                if type(one.value) in plain and type(one.before) in plain
            }
        others = changes.keys() - known.keys() if len(changes) > len(known) else ()
        self._recent.keep(known, others)

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
        removed = tuple([text for text, new in self._written.items() if new[3] == _NULL])
        if self._kind is StateKind.OPAQUE:
            return Journal(tuple(self._written), removed)
        kept = [text for text in self._journal.removed if again and text not in self._written]
        return Journal((), (*kept, *removed))

    def _overtaken(self, attempt: Attempt) -> BatchError:
        with _as_outage():
            self._look()
        self._owner.check(self._last, attempt)
        return FailedBatch(
            f"{self._owner} was written meanwhile by {describe_attempt(self._last)}, so what "
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
