"""The join of two streams within a batch: rows with equal values of their key fields.

Storm: org.apache.storm.trident.operation.impl.JoinerMultiReducer, with JoinOutFieldsMode.COMPACT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sunshower.records import Schema
from sunshower.topologies.operators.port import Attempt, Emit, Operator, Rows
from sunshower.topologies.operators.schemas import rest_of
from sunshower.topologies.operators.steps import keys_of

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
