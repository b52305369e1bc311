"""The port for what a state keeps: texts under keys, written a batch at a time, all or nothing.

A home is what one task of one state has in a store: its values, and a mark that says who has
written last. Only who knows the mark can write, and writes a new one with the values: so whoever
was thought dead, and comes back with a late write, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from sunshower.errors import ConfigError, WrongVersion

# How long a call waits by default. Some of them in a row are still over before the tree of the
# tuple that makes them times out: it is the store that is to blame then, and not the tuple.
ANSWER_WITHIN_S = 10.0


class Home(NamedTuple):
    """One task's part of a state."""

    state: str
    task: int  # its index, from 0

    def __str__(self) -> str:
        return f"{self.state}/{self.task}"


class Mark(NamedTuple):
    """Who has written last, and which keys: for whoever has to write it once more."""

    word: str  # compared; it is another one with each write
    journal: str


class Backing(Protocol):
    """A client of the store, for one home. All of it raises StoreUnreachable."""

    def mark(self) -> Mark | None:
        """What was written with the last batch; None if there was none."""

    def get(self, keys: Sequence[str]) -> list[str | None]:
        """What is kept under keys, in their order."""

    def put(self, changes: Mapping[str, str | None], mark: Mark, seen: str | None) -> None:
        """Keep these (None: no more), if the word of the mark is still the one `seen`.

        All or nothing. Raises WrongVersion if somebody else has written since. If the mark is there
        already, this very call has come before, its answer was lost, and nothing is done.
        When it raises StoreUnreachable, it may have happened, or happen later.
        """

    def items(self) -> Iterator[tuple[str, str]]:
        """All that is kept, for whoever wants to look; in no order."""

    def close(self) -> None:
        """Let go of connections."""


def table_of(home: Home) -> str:
    """The table of a state, where it has one. Raises ConfigError for the names of others."""
    if home.state.lower().startswith(("sqlite_", "pg_", "sunshower_")) or "\0" in home.state:
        raise ConfigError(
            f"{home.state!r} is no name for a state, which is a table's name: it begins with a "
            "word that the database needs itself; give the state another one with `name`"
        )
    return '"' + home.state.replace('"', '""') + '"'


def is_there(home: Home, found: str | None, mark: Mark, seen: str | None) -> bool:
    """Whether a put has happened before. Raises WrongVersion if it must not happen at all."""
    if found == mark.word:
        return True
    if found != seen:
        raise WrongVersion(f"{home} was written by somebody else: {found}")
    return False
