"""Strategies for batches of every shape, and their content as plain Python values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from sunshower.records import Schema
from sunshower.runtime.plan import PlannedStream
from sunshower.runtime.tracking.batch import Batch
from sunshower.topologies.graph import StreamSpec


class Word(NamedTuple):
    word: str
    n: int


class Letter(NamedTuple):
    letter: str


@dataclass(frozen=True)
class Order:
    word: str
    n: int


@dataclass(frozen=True)
class Only:
    word: str


SCHEMAS = [
    Schema.of(Word),
    Schema.of(Letter),
    Schema.of(Order),
    Schema.of(Only),
    Schema(("word", "n")),
    Schema(("word",)),
]
STREAMS = [
    PlannedStream(index, "spout", StreamSpec("default", s)) for index, s in enumerate(SCHEMAS)
]
MAX = 1 << 24  # bytes of a record
ids = st.integers(1, (1 << 64) - 1)
roots = st.integers(1, 3) | ids  # often equal, as children of one parent are
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Rows or columns; one anchor each, none at all, or any number of them."""
    index = draw(st.integers(0, len(SCHEMAS) - 1))
    schema, count = SCHEMAS[index], draw(st.integers(1, 12))
    rows = [
        (draw(texts), draw(st.integers(-(1 << 63), (1 << 63) - 1)))[: len(schema.fields)]
        for _ in range(count)
    ]
    records: Any = schema.build(rows)
    if draw(st.booleans()):
        records = pa.table(dict(zip(schema.fields, zip(*rows, strict=True), strict=True)))
    batch = Batch(index, 7, records)
    shape = draw(st.sampled_from(["untracked", "one anchor", "many anchors"]))
    if shape != "untracked":
        each = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
        counts = each if shape == "many anchors" else [1] * count
        total = sum(counts)
        batch.roots = np.array(draw(st.lists(roots, min_size=total, max_size=total)), np.uint64)
        batch.edges = np.array(draw(st.lists(ids, min_size=total, max_size=total)), np.uint64)
        if shape == "many anchors":
            batch.offsets = np.cumsum([0, *counts])
    return batch


def records_with_anchors(batch: Batch) -> list[tuple[Any, list[tuple[int, int]]]]:
    """Each record with its (root, edge) pairs: the content of a batch."""
    pairs = list(zip(batch.roots.tolist(), batch.edges.tolist(), strict=True))
    records = batch.rows(STREAMS[batch.stream].spec.schema)
    if batch.offsets is not None:
        bounds = batch.offsets.tolist()
    else:
        bounds = list(range(len(batch) + 1)) if pairs else [0] * (len(batch) + 1)
    return [(record, pairs[bounds[i] : bounds[i + 1]]) for i, record in enumerate(records)]
