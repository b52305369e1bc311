"""What is stored with each value, and what a batch makes of it: Storm's rules.

kind               stored                   batch `txid` finds            and leaves
non-transactional  value                    value                         new
transactional      [txid, value]            value; its own: not again     [txid, new]
opaque             [txid, value, before]    value; its own: `before`      [txid, new, found]

"Its own" is what an earlier attempt at the same batch has written. A value that was removed is
null: it stays until a later batch is written, so that a repeat of its batch finds what was before.
Storm: org.apache.storm.trident.state.map.TransactionalMap, OpaqueMap; OpaqueValue (update, get).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias

from sunshower.trident.states.port import StateKind
from sunshower.trident.states.texts import UNCHANGING, values_of

_LENGTH = {StateKind.TRANSACTIONAL: 2, StateKind.OPAQUE: 3}


class Stored(NamedTuple):
    """A value, who wrote it, and the one before. None: there is none."""

    txid: int  # 0 where it is not stored
    value: Any
    before: Any  # None where it is not stored


NOTHING = Stored(0, None, None)


class Written(NamedTuple):
    """A key that this batch has written; and for the next one, what is stored."""

    txid: int
    value: Any  # as it was given; it may have been changed since, unless it is UNCHANGING
    before: Any  # what was found before the batch, if it is opaque; likewise
    text: str  # the value as JSON
    before_text: str

    def read(self) -> Any:
        """As a later batch will find it."""
        return self.value if type(self.value) in UNCHANGING else values_of([self.text])[0]


Kept: TypeAlias = Stored | Written


def unpacked(kind: StateKind, found: Sequence[Any]) -> list[Stored]:
    """What was read. Raises ValueError if one of them is no value of this kind."""
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
    """What is written, of values that are JSON already."""
    if kind is StateKind.OPAQUE:
        return f"[{txid},{value},{before}]"
    return f"[{txid},{value}]" if kind is StateKind.TRANSACTIONAL else value


def is_later(stored: Kept, txid: int) -> bool:
    """Whether a later batch has written it: then `txid` has no business there."""
    return stored.txid > txid


def found_by(kind: StateKind, stored: Kept, txid: int) -> Any:
    """The value that batch `txid` finds, as long as it has not written it itself."""
    if kind is StateKind.OPAQUE and stored.txid == txid:
        return stored.before
    return stored.value


def is_done(kind: StateKind, stored: Kept, txid: int) -> bool:
    """Whether an update by batch `txid` has been made by an earlier attempt, and stays."""
    return kind is StateKind.TRANSACTIONAL and stored.txid == txid
