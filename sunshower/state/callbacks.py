"""Registered callbacks of a tree: watches of nodes, and listeners for the state of the session."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(eq=False)
class Callback:
    """One registered function (port `Watch`)."""

    call: Callable[..., None]
    among: Callbacks
    path: str = ""  # of a watch
    seen: Any = None  # of a watch: what the store had there when it was last called

    def cancel(self) -> None:
        with suppress(ValueError):  # it is cancelled already
            self.among.remove(self)


class Callbacks(list[Callback]):
    """Callbacks in the order in which they were added."""

    def add(self, call: Callable[..., None], path: str = "", seen: Any = None) -> Callback:
        """Add a callback."""
        callback = Callback(call, self, path, seen)
        self.append(callback)
        return callback

    def tell(self, *values: object) -> None:
        """Call all callbacks with each of these values."""
        for value in values:
            for callback in [*self]:
                callback.call(value)
