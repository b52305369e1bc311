"""Processes each message once: stores results and the ids of their messages in one write."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Hashable
from contextlib import suppress
from typing import Any

from sunshower.errors import StoreError
from sunshower.topologies.components import Bolt


class OnceBolt(Bolt[Any, None]):
    """Drops records whose key is stored, or in the current batch. Subclasses store the keys.

    `flush` writes the batch, before it is acked. If that fails, nothing of it was written and the
    batch fails; what is stored is loaded again before another record is processed.
    """

    def begin(self) -> None:
        """Call this in `prepare`."""
        self.repeats = 0  # dropped records
        self._fresh: dict[Hashable, None] = {}  # the keys of this batch
        self._is_failed = False  # a batch that was not stored must be undone

    @abstractmethod
    def key_of(self, record: Any) -> Hashable:
        """What identifies the message of a record."""

    @abstractmethod
    def is_stored(self, key: Any) -> bool:
        """Whether the results cover this key. Raises StoreError."""

    @abstractmethod
    def accept(self, record: Any) -> Any:
        """Process a record whose key is new."""

    @abstractmethod
    def store(self, keys: Collection[Any]) -> None:
        """Write the results of the batch together with its keys, in one step, unless another
        process has written since they were loaded. Raises StoreError, WrongVersion."""

    @abstractmethod
    def load(self) -> None:
        """Discard the batch, and continue with what is stored. Raises StoreError."""

    def process(self, record: Any) -> Any:
        """Process a record, unless its key is a repeat."""
        self.undo_failed()
        key = self.key_of(record)
        if key in self._fresh or self.is_stored(key):
            self.repeats += 1
            return None
        made = self.accept(record)
        self._fresh[key] = None
        return made

    def flush(self) -> None:
        """Store the batch; if that fails, undo it."""
        self.undo_failed()
        try:
            self.store(self._fresh)
        except BaseException:  # also SystemExit, which fails the batch like any other error
            self._is_failed = True
            with suppress(StoreError):  # then the next call tries again
                self.undo_failed()
            raise
        finally:
            self._fresh = {}

    def undo_failed(self) -> None:
        """Undo a failed batch, if there is one. Raises StoreError; then nothing may be processed,
        and the next call tries again."""
        if self._is_failed:
            self.load()
            self._is_failed = False

    def figures(self) -> dict[str, float]:
        """The number of dropped repeats."""
        return {"repeats": self.repeats}
