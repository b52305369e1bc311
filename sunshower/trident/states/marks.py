"""Who has written a task's part of a state last, and with which keys: read, judged, written.

The word    {"topology":"words","kind":"opaque","parallelism":2,"epoch":1,"txid":7,"attempt":0}
The journal {"written":["storm"],"removed":[]}      keys of that batch

Whoever comes with less than (epoch, txid, attempt) is refused, as StaleAttempt; and whoever is of
another topology or kind, or counts its batches from elsewhere, as StateMismatch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sunshower.errors import StaleAttempt, StateMismatch
from sunshower.stores.backing import Mark
from sunshower.trident.attempts import Attempt
from sunshower.trident.states.port import Place, StateKind
from sunshower.trident.states.texts import key_of, text_of_key


def fence(attempt: Attempt) -> tuple[int, int, int]:
    """What is greater for whoever came later."""
    return attempt.epoch, attempt.txid, attempt.attempt


@dataclass(frozen=True)
class Journal:
    """Keys of the last batch, as JSON texts."""

    written: tuple[str, ...] = ()  # all of an opaque state
    removed: tuple[str, ...] = ()  # those that are null now, and can go with the next batch

    def text(self) -> str:
        return f'{{"written":[{",".join(self.written)}],"removed":[{",".join(self.removed)}]}}'


@dataclass(frozen=True)
class Owner:
    """Whose part of a state it is, and where it is: for messages."""

    place: Place
    kind: StateKind
    where: str  # the file or the server

    def __str__(self) -> str:
        return f"state {self.place.state!r} in {self.where}, task {self.place.index}"

    def mark(self, attempt: Attempt, journal: Journal) -> Mark:
        """What is written with a batch."""
        return Mark(json.dumps(self._identity() | attempt._asdict()), journal.text())

    def last(self, mark: Mark) -> Attempt:
        """Who has written last. Raises StateMismatch if it is none of ours."""
        try:
            found = json.loads(mark.word)
            attempt = Attempt(found["txid"], found["attempt"], found["epoch"])
        except (ValueError, TypeError, KeyError):
            self.corrupt("its mark", mark.word)
        if not all(type(number) is int and number >= 0 for number in attempt):
            self.corrupt("its mark", mark.word)
        for what, ours in self._identity().items():
            if found.get(what) != ours:
                raise StateMismatch(
                    f"{self} was written with {what} {found.get(what)!r}, and this is {ours!r}: "
                    f"set that back, give the state another name, or remove it to begin anew"
                )
        return attempt

    def journal(self, mark: Mark) -> Journal:
        """The keys of the last batch. Raises StateMismatch."""
        try:
            found = json.loads(mark.journal)
            return Journal(_texts(found["written"]), _texts(found["removed"]))
        except (ValueError, TypeError, KeyError):
            self.corrupt("its journal", mark.journal)

    def check(self, last: Attempt | None, attempt: Attempt) -> None:
        """Raise StaleAttempt or StateMismatch unless `attempt` may write after `last`."""
        if last is None:
            return
        if fence(attempt) < fence(last):
            raise StaleAttempt(
                f"{self} was written by {said(last)} already, so {said(attempt)} writes nothing: "
                "a later attempt or a later coordinator has taken over. If none has, then the "
                "store of the batches was removed and that of the state was not: remove both to "
                "begin anew"
            )
        if attempt.txid < last.txid:
            raise StateMismatch(
                f"{self} was written by {said(last)}, which is ahead of {said(attempt)}: the "
                "batches are counted in another store than they were. Give the group the store "
                "that it had, or remove the state to begin anew"
            )

    def corrupt(self, what: str, found: str) -> NoReturn:
        raise StateMismatch(
            f"{self}: {what} cannot be read: {found[:100]!r}. Somebody else has written there; "
            "give the state another name, or remove it to begin anew"
        )

    def _identity(self) -> dict[str, Any]:
        return {
            "topology": self.place.topology,
            "kind": self.kind.value,
            "parallelism": self.place.parallelism,
        }


def _texts(found: Sequence[Any]) -> tuple[str, ...]:
    return tuple(text_of_key(key_of(json.dumps(key))) for key in found)


def said(attempt: Attempt | None) -> str:
    """For messages."""
    if attempt is None:
        return "nobody"
    return f"batch {attempt.txid}, attempt {attempt.attempt} (coordinator {attempt.epoch})"
