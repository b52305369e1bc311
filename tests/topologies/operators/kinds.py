"""Records, types and components for the tests of operators on rows, tables and batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from sunshower import Bolt, Context, Spout, Topology


class Sale(NamedTuple):
    shop: str
    amount: int


SALES = [Sale("abc"[n % 3], n) for n in range(120)]
AnyStream: TypeAlias = Any  # Stream[Any] | BatchStream[Any]
Assemble: TypeAlias = Callable[[AnyStream], Sequence[AnyStream]]


Source: TypeAlias = Callable[[Topology, Sequence[Sale]], AnyStream]


class Tables(Spout[Sale]):
    """The sales as Arrow tables of 25 rows."""

    def __init__(self, sales: Sequence[Sale] = SALES) -> None:
        self.sales = sales

    def tables(self) -> Iterator[pa.Table]:
        for first in range(0, len(self.sales), 25):
            columns = zip(*self.sales[first : first + 25], strict=True)
            yield pa.table([pa.array(column) for column in columns], names=list(Sale._fields))


class Run(Protocol):
    def __call__(self, assemble: Assemble, sales: Sequence[Sale] = ...) -> list[list[Any]]: ...


class Kept(Bolt[Any, None]):
    """Returns its records as its result."""

    def prepare(self, context: Context) -> None:
        self.rows: list[Any] = []

    def process(self, record: Any) -> None:
        self.rows.append(tuple(record))

    def result(self) -> list[Any]:
        return self.rows
