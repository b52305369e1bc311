"""Helpers for the tables of valid calls: small topologies, streams, functions and runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import sunshower
from sunshower import Bolt, KeyState, Records
from sunshower.testing import simulate
from sunshower.trident import FixedBatchSpout, batches
from tests.topologies.examples import Word

Call: TypeAlias = Callable[..., Any]
Calls: TypeAlias = dict[str, tuple[Call, dict[str, Any]]]  # name → function, valid arguments


class Visit(NamedTuple):
    user: str
    at: float
    size: int


class Store(Bolt[Word, None]):
    """A sink whose state is empty."""

    def process(self, record: Word) -> None: ...

    def snapshot(self) -> None: ...

    def restore(self, state: Any) -> None: ...


class FirstTask:
    """A custom grouping."""

    def prepare(self, targets: Sequence[int]) -> None: ...

    def choose(self, record: Any) -> Sequence[int]:
        return [0]


def one(word: Word) -> Word:
    return word


def keep(word: Word) -> bool:
    return True


def many(word: Word) -> Iterator[Word]:
    yield word


def ask(state: Any, words: Sequence[Word]) -> list[int]:
    return []


def persist(state: Any, words: Sequence[Word]) -> Any:
    return []


def visited(visit: Visit, state: KeyState[int]) -> Iterator[Visit]:
    yield visit


def ended(key: str, state: KeyState[int]) -> Iterator[Visit]:
    yield Visit(key, 1.0, 1)


def counted(word: Word, state: KeyState[int]) -> Iterator[Word]:
    yield word


def topology() -> Any:
    return sunshower.Topology("t")


def lines() -> Any:
    return topology().spout("lines", Records([Word("a")], type=Word))


def visits() -> Any:
    return topology().spout("visits", Records([Visit("a", 1.0, 1)], type=Visit))


def rows() -> Any:
    return batches(topology(), "rows", FixedBatchSpout([Word("a")], 1, type=Word))


def grouped(of: Callable[[], Any], field: str) -> Callable[[], Any]:
    return lambda: of().group_by(field)


def small() -> Any:
    """A topology of a spout and a sink."""
    lines_to_store = lines()
    lines_to_store.shuffle().bolt("store", Store())
    return lines_to_store.topology


def asked() -> Any:
    """A topology that answers requests."""
    declared = topology()
    declared.requests("q", Word).map(one).answer()
    return declared


def keyed() -> Any:
    """A topology with a keyed state."""
    stream = visits()
    stream.group_by("user").process(visited, name="p")
    return stream.topology


def on(make: Callable[[], Any], word: str, *given: Any) -> Call:
    """The method `word` of the object that `make` returns; `given` are its first arguments."""
    return lambda *more, **named: getattr(make(), word)(*given, *more, **named)


def first(function: Call, name: str) -> Call:
    """A function whose first argument is positional: in the table it is called `name`."""
    return lambda **named: function(named.pop(name), **named)


def simulated(make: Callable[[], Any], word: str, *, of_run: bool = False) -> Call:
    """A method of a simulated run, or of its `run`."""

    def call(*given: Any, **named: Any) -> Any:
        with simulate(make()) as started:
            return getattr(started.run if of_run else started, word)(*given, **named)

    return call


def nothing(*arguments: Any, **named: Any) -> None: ...
