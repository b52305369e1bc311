"""Repartitionings: how rows are distributed among the tasks of the next stage.

Each sending task has its own object for each output. With `RoundRobin` the task of a row depends on
the arrival order and may differ between attempts, so a transactional state behind it is refused. By
fields it never differs; with a custom grouping that is up to the user. Storm:
org.apache.storm.trident.Stream, its repartitioning operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Any

from sunshower.errors import BadEmit
from sunshower.records import Schema
from sunshower.topologies.graph import own_copy
from sunshower.topologies.groupings import CustomGrouping
from sunshower.topologies.operators.port import Attempt, Emit, Operator, Rows
from sunshower.topologies.operators.schemas import rest_of
from sunshower.topologies.operators.steps import keys_of

Shares = list[tuple[int, Sequence[Any]]]


class RoundRobin:
    """Round-robin by row: no task ever gets more than one row more than another."""

    def prepare(self, targets: int, index: int) -> None:
        self._targets, self._next = targets, index % targets

    def split(self, txid: int, rows: Sequence[Any]) -> Shares:
        targets, first = self._targets, self._next
        self._next = (first + len(rows)) % targets
        shares = (((first + turn) % targets, rows[turn::targets]) for turn in range(targets))
        return [share for share in shares if share[1]]


@dataclass
class ByFields:
    """Equal values of `fields` go to the same task, in every process and after every restart."""

    schema: Schema
    fields: tuple[str, ...]
    _find_all: Callable[[Any], list[int]] = field(init=False, repr=False, compare=False)

    def prepare(self, targets: int, index: int) -> None:
        from sunshower.runtime.transport.routing import KeyTable

        self._targets = targets
        table = KeyTable(targets)
        self._find_all = table.find_all
        places = [self.schema.fields.index(name) for name in self.fields]
        self._of_tuple, self._of_object = itemgetter(*places), attrgetter(*self.fields)

    def split(self, txid: int, rows: Sequence[Any]) -> Shares:
        if self._targets == 1 or not rows:
            return [(0, rows)] if rows else []
        key = self._of_tuple if isinstance(rows[0], tuple | list) else self._of_object
        shares: list[list[Any]] = [[] for _ in range(self._targets)]
        for row, index in zip(rows, self._find_all(list(map(key, rows))), strict=True):
            shares[index].append(row)
        return [share for share in enumerate(shares) if share[1]]


class ToAll:
    """All rows go to every task."""

    def prepare(self, targets: int, index: int) -> None:
        self._targets = targets

    def split(self, txid: int, rows: Sequence[Any]) -> Shares:
        return [(index, rows) for index in range(self._targets)] if rows else []


class ToFirst:
    """All rows go to the first task."""

    def prepare(self, targets: int, index: int) -> None:
        pass

    def split(self, txid: int, rows: Sequence[Any]) -> Shares:
        return [(0, rows)] if rows else []


class ByBatch:
    """All rows of a batch go to one task, chosen round-robin by txid."""

    def prepare(self, targets: int, index: int) -> None:
        self._targets = targets

    def split(self, txid: int, rows: Sequence[Any]) -> Shares:
        return [(txid % self._targets, rows)] if rows else []


@dataclass
class ByGrouping:
    """A CustomGrouping chooses; it numbers the tasks 0, 1, 2 and so on."""

    grouping: CustomGrouping
    _chosen: CustomGrouping = field(init=False, repr=False, compare=False)

    def prepare(self, targets: int, index: int) -> None:
        self._targets = targets
        self._chosen = own_copy(self.grouping, "a custom grouping")
        self._chosen.prepare(range(targets))

    def split(self, txid: int, rows: Sequence[Any]) -> Shares:
        shares: list[list[Any]] = [[] for _ in range(self._targets)]
        for row in rows:
            for index in self._chosen.choose(row):
                if not 0 <= index < self._targets:
                    raise BadEmit(
                        f"{type(self.grouping).__name__}.choose named task {index!r}; the tasks "
                        f"are 0 … {self._targets - 1}"
                    )
                shares[index].append(row)
        return [share for share in enumerate(shares) if share[1]]


# ---- joining -------------------------------------------------------------------------------------
# The join of two streams within a batch: rows with equal values of their key fields.
#
# Storm: org.apache.storm.trident.operation.impl.JoinerMultiReducer, with
# JoinOutFieldsMode.COMPACT.

Side = dict[tuple[Any, ...], list[tuple[Any, ...]]]  # key → the other values of its rows


class Join(Operator):
    """Emits rows (key, other fields of the left, other fields of the right). `left` is source 0 and
    `right` source 1. A left join emits left rows without a match, with None for each field of the
    right."""

    def __init__(
        self,
        left: tuple[Schema, Sequence[str]],
        right: tuple[Schema, Sequence[str]],
        out: Schema,
        *,
        keep_left: bool,
    ) -> None:
        self.sides = [(schema, tuple(on), rest_of(schema, on)) for schema, on in (left, right)]
        self.out, self.keep_left = out, keep_left

    def start(self, attempt: Attempt) -> tuple[Side, Side]:
        return {}, {}

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        schema, on, rest = self.sides[source]
        side: Side = batch[source]
        others = keys_of(schema, rest, rows) if rest else [()] * len(rows)
        keys = schema.keys(on, rows)
        for key, other in zip(keys if len(on) > 1 else zip(keys), others, strict=True):
            side.setdefault(key, []).append(other)

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        left, right = batch
        nothing = [(None,) * len(self.sides[1][2])] if self.keep_left else []
        made = [
            (*key, *one, *other)
            for key, ones in left.items()
            for other in right.get(key, nothing)
            for one in ones
        ]
        if made:
            emit(self.out.make(made))
