"""A state whose store loses answers, and executes writes late, twice or not at all.

unsure = UnsureState(MemoryState(), Troubles(Random(7)))      in place of MemoryState()
unsure.troubles.calm()      executes the late writes, and ends all faults
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any

from sunshower.errors import StoreUnreachable, WrongVersion
from sunshower.state.backing import Backing, Home, Mark
from sunshower.topologies.operators.states import StateKind
from sunshower.trident.states.factories import KeptState


class Trouble(Enum):
    """How a put fails."""

    NONE = "it happens"
    REFUSED = "it does not happen, and raises"
    LOST = "it happens, and raises"
    LATE = "it raises, and happens later"
    TWICE = "it happens, and once more later"


class Troubles:
    """The random faults of all clients of a store, and the writes that are still late."""

    def __init__(self, random: Random, ratio: float = 0.3) -> None:
        """`ratio`: of the writes that fail; it may be changed, like `is_away`: nothing happens."""
        self._random = random
        self.ratio, self.is_away = ratio, False
        self._late: list[Callable[[], None]] = []
        self.count = dict.fromkeys(Trouble, 0)

    def put(self, write: Callable[[], None]) -> None:
        self._check_there()
        self.pass_by()
        trouble = Trouble.NONE
        if self._random.random() < self.ratio:
            trouble = self._random.choice([*Trouble][1:])
        self.count[trouble] += 1
        if trouble in {Trouble.LATE, Trouble.TWICE}:
            self._late.append(write)
        if trouble in {Trouble.NONE, Trouble.LOST, Trouble.TWICE}:
            write()
        if trouble in {Trouble.REFUSED, Trouble.LOST, Trouble.LATE}:
            raise StoreUnreachable(f"on purpose: {trouble.value}")

    def read(self) -> None:
        self._check_there()
        self.pass_by()
        if self._random.random() < self.ratio / 4:
            raise StoreUnreachable("on purpose: no answer")

    def _check_there(self) -> None:
        if self.is_away:
            raise StoreUnreachable("on purpose: it is away")

    def pass_by(self) -> None:
        """Execute some of the late writes."""
        late, self._late = self._late, []
        for write in late:
            if self._random.random() < 0.3:
                with suppress(WrongVersion):
                    write()
            else:
                self._late.append(write)

    def calm(self) -> None:
        """Execute all late writes, and end all faults."""
        self.ratio, self.is_away = 0.0, False
        while self._late:
            self.pass_by()


class UnsureBacking:
    """A client of the store, with faults."""

    def __init__(self, backing: Backing, troubles: Troubles) -> None:
        self._backing = backing
        self._troubles = troubles

    def mark(self) -> Mark | None:
        self._troubles.read()
        return self._backing.mark()

    def get(self, keys: Sequence[str]) -> list[str | None]:
        self._troubles.read()
        return self._backing.get(keys)

    def put(self, changes: Mapping[str, str | None], mark: Mark, seen: str | None) -> None:
        frozen = dict(changes)
        self._troubles.put(lambda: self._backing.put(frozen, mark, seen))

    def items(self) -> Iterator[tuple[str, str]]:
        return self._backing.items()

    def count(self) -> int | None:
        return self._backing.count()

    def close(self) -> None:
        pass  # late writes may still be executed


@dataclass(frozen=True)
class UnsureState(KeptState):
    """Another state, with faults. Its copies share it."""

    inner: KeptState
    troubles: Troubles = field(compare=False, repr=False)
    where = "an unsure store"

    @property
    def kind(self) -> StateKind:  # type: ignore[override]
        return self.inner.kind

    @property
    def name(self) -> str | None:  # type: ignore[override]
        return self.inner.name

    def open(self, home: Home) -> Backing:
        return UnsureBacking(self.inner.open(home), self.troubles)

    def homes(self) -> list[Home]:
        return self.inner.homes()

    def __deepcopy__(self, memo: Any) -> UnsureState:
        return self
