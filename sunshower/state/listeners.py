"""Session listeners, which all implementations of the tree share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from sunshower.state.tree import Session

Told = Callable[[Session], None]


class Listeners:
    """Listeners, called in the order in which they were added."""

    def __init__(self) -> None:
        self._all: list[Listener] = []

    def add(self, told: Told) -> Listener:
        """Add a listener."""
        listener = Listener(told, self._all)
        self._all.append(listener)
        return listener

    def tell(self, *states: Session) -> None:
        """Report these states to all listeners."""
        for state in states:
            for listener in [*self._all]:
                listener.told(state)

    def clear(self) -> None:
        """Remove all listeners."""
        self._all.clear()


@dataclass(frozen=True, eq=False)
class Listener:
    """A registered listener."""

    told: Told
    among: list[Listener]

    def cancel(self) -> None:
        """Remove this listener."""
        with suppress(ValueError):
            self.among.remove(self)
