"""Helpers for the tables of valid calls: small topologies, streams, functions and runs."""

from __future__ import annotations

import inspect
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


def on(make: Callable[[], Any], word: str) -> Call:
    """The method `word` of the object that `make` returns."""

    def call(*positional: Any, **named: Any) -> Any:
        return getattr(make(), word)(*positional, **named)

    return like(getattr(make(), word), call)


def used(function: Call, use: Callable[[Any], Any]) -> Call:
    """A function whose result is used, because only then its arguments are checked."""
    return like(function, lambda **named: use(function(**named)))


def first(function: Call, name: str) -> Call:
    """A function whose first argument is positional: in the table it is called `name`."""

    def call(**named: Any) -> Any:
        return function(named.pop(name), **named)

    like(function, call)
    others = _arguments(call)
    if name not in {parameter.name for parameter in others}:
        others.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY))
    call.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
    return call


def like(function: Call, call: Call) -> Call:
    """`call`, with the signature of `function`."""
    call.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return call


def valid(function: Call, /, **given: Any) -> tuple[Call, dict[str, Any]]:
    """A function and its valid arguments: those given, the defaults, and else one for the name."""
    arguments = dict(given)
    for argument in _arguments(function):
        if argument.default is not argument.empty:
            arguments.setdefault(argument.name, argument.default)
        elif argument.name not in given:
            arguments[argument.name] = VALUES[argument.name]
    return function, arguments


def _arguments(function: Call) -> list[inspect.Parameter]:
    variable = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    parameters = inspect.signature(function).parameters.values()
    return [
        parameter
        for parameter in parameters
        if parameter.kind not in variable and parameter.name not in INTERNAL
    ]


def functions(*listed: Call, **given: Any) -> Calls:
    """A row for each function or class, under its name."""
    return {function.__qualname__: valid(function, **given) for function in listed}


def methods(kind: str, make: Callable[[], Any], /, **given: dict[str, Any]) -> Calls:
    """A row for each method of the object that `make` returns."""
    return {f"{kind}.{word}": valid(on(make, word), **named) for word, named in given.items()}


def simulated(make: Callable[[], Any], word: str, *, of_run: bool = False) -> Call:
    """A method of a simulated run, or of its `run`."""

    def call(*positional: Any, **named: Any) -> Any:
        with simulate(make()) as started:
            return getattr(started.run if of_run else started, word)(*positional, **named)

    return call


def nothing(*arguments: Any, **named: Any) -> None: ...


# A valid value for each argument without a default.
VALUES: dict[str, Any] = {
    "aggregator": sunshower.count(),
    "authority": "x.pem",
    "component": "x",
    "dsn": "postgresql://h/d",
    "field": "word",
    "file": "x.db",
    "folder": "x",
    "for_s": 1.0,
    "function": one,
    "group": "x",
    "grouping": FirstTask(),
    "hosts": "zk:2181",
    "id": "x",
    "key": "word",
    "name": "n",
    "path": "x.jsonl",
    "place": "x.db",
    "predicate": keep,
    "root": "/r",
    "rows": [Word("a")],
    "seconds": 1.0,
    "settings": {"bootstrap.servers": "b:1", "group.id": "g"},
    "size": 1,
    "table": "t",
    "topic": "t",
    "total": 5,
    "type": Word,
    "url": "http://h/x",
    "within": 5,
}
INTERNAL = {"clock", "is_fault", "shelf"}  # not an argument for users
