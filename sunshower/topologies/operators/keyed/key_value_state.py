"""The keyed state of a bolt: a mapping in a keyed store.

    class Sessions(Bolt[Click, Session]):
        state: KeyValueState[str, Visit]

Storm: org.apache.storm.state.KeyValueState.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from threading import get_ident
from typing import Any, TypeVar

from sunshower.errors import ProtocolError
from sunshower.records import key_of
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore, check_key
from sunshower.topologies.operators.states import Key

K = TypeVar("K")
V = TypeVar("V")


class KeyValueState(MutableMapping[K, V]):
    """The states of the keys of one task, by key. Assign to one, or change it in place; None and
    `del` remove it. If the call of `process` or `execute` raises, nothing has changed.

    A key is the value of the field that the bolt's input is grouped by, or a tuple of several.
    Iterating reads the whole state of the task.

    It belongs to the call that runs, and so to its thread: in another thread, reading a key that
    the call has not read, and every change, raise ProtocolError.
    """

    def __init__(self, store: KeyedStore) -> None:
        self._store = store
        self._thread = get_ident()
        self.drop()

    def __getitem__(self, key: K) -> V:
        known = key_of(key)
        if known not in self._held:
            self._check_thread()
            self._held[known] = self._store.get(known)
        if (value := self._held[known]) is None:
            raise KeyError(key)
        found: V = value
        return found

    def __setitem__(self, key: K, value: V | None) -> None:
        self._check_thread()
        check_key(key)
        known = key_of(key)
        self._held[known] = value
        self._assigned.add(known)

    def __delitem__(self, key: K) -> None:
        self[key]  # raises KeyError
        self[key] = None

    def __iter__(self) -> Iterator[K]:
        self._check_thread()
        held = self._held
        stored = [key for key, _ in self._store.items() if key not in held]
        self._store.fetch(stored)
        yield from [*stored, *(key for key, value in held.items() if value is not None)]

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def enter(self) -> None:
        """The calls from now on are in this thread."""
        self._thread = get_ident()

    def drop(self) -> None:
        """Forget what this call has read and changed."""
        self._held: dict[Key, Any] = {}
        self._assigned: set[Key] = set()

    def keep(self) -> None:
        """Put what this call has changed into the store. Raises Unserialisable."""
        self._store.put_all(self._held, self._assigned)
        self.drop()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Another call, between two parts of one that yields; its changes are kept at its end."""
        self.enter()
        outer = self._held, self._assigned
        self.drop()
        try:
            yield
            self.keep()
        finally:
            self._held, self._assigned = outer

    def _check_thread(self) -> None:
        if get_ident() != self._thread:
            raise ProtocolError(
                "a thread other than the task's uses self.state, which belongs to the call that "
                "runs: its change would be lost, or kept with another record. Let the thread "
                "return its result, and use self.state in process, execute or tick"
            )
