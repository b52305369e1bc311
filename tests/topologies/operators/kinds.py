"""Programs of one source for both kinds of stream: ordinary ones, and streams of batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from sunshower import Bolt, Context, Topology


class Sale(NamedTuple):
    shop: str
    amount: int


SALES = [Sale("abc"[n % 3], n) for n in range(120)]
AnyStream: TypeAlias = Any  # Stream[Any] | BatchStream[Any]
Assemble: TypeAlias = Callable[[AnyStream], Sequence[AnyStream]]


Source: TypeAlias = Callable[[Topology, Sequence[Sale]], AnyStream]


class Run(Protocol):
    def __call__(self, assemble: Assemble, sales: Sequence[Sale] = ...) -> list[list[Any]]: ...


class Kept(Bolt[Any, None]):
    """Keeps what it gets."""

    def prepare(self, context: Context) -> None:
        self.kept: list[Any] = []

    def process(self, record: Any) -> None:
        self.kept.append(tuple(record))

    def result(self) -> list[Any]:
        return self.kept
