"""Who wants to be told of a session: the part that every body of the tree has."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from sunshower.stores.tree import Session

Told = Callable[[Session], None]


class Listeners:
    """Told in the order in which they came."""

    def __init__(self) -> None:
        self._all: list[Listener] = []

    def add(self, told: Told) -> Listener:
        """One more."""
        listener = Listener(told, self._all)
        self._all.append(listener)
        return listener

    def tell(self, *states: Session) -> None:
        """Tell all of them all of it."""
        for state in states:
            for listener in [*self._all]:
                listener.told(state)

    def clear(self) -> None:
        """Nobody is told any more."""
        self._all.clear()


@dataclass(frozen=True, eq=False)
class Listener:
    """One of them."""

    told: Told
    among: list[Listener]

    def cancel(self) -> None:
        """Tell no more."""
        with suppress(ValueError):
            self.among.remove(self)
