"""A batch: records of one stream from one task to one task, with their roots and edges.

tracked        roots and edges have shape (n,): record i has one anchor
untracked      offsets is None and roots is empty: no acker follows these records
many anchors   record i has anchors offsets[i]:offsets[i+1] of roots and edges; offsets (n+1,)
shared         all records together have the anchors: roots and edges have shape (r,), one edge for
               each tree of the batch, each root once. If one record fails, all these trees fail
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sunshower.failures import Failure
from sunshower.records import Schema
from sunshower.runtime.tracking.ids import I64, NO_IDS, U64, fold, segment_xor

if TYPE_CHECKING:
    import pyarrow as pa

_MIX = 0x9E3779B97F4A7C15
_EDGE_MAX = (1 << 64) - 1


@dataclass(slots=True)
class Anchors:
    """The trees that n records belong to: one root each, or roots[offsets[i]:offsets[i+1]]; if they
    are `shared`, all records together belong to the trees of all n."""

    roots: U64
    offsets: I64 | None = None
    shared: bool = False

    def select(self, which: slice | I64) -> Anchors:
        """Return the anchors of the records at `which`."""
        if self.shared:
            return self
        if self.offsets is None:
            return Anchors(self.roots[which])
        counts = np.diff(self.offsets)[which]
        offsets = np.concatenate(([0], np.cumsum(counts)))
        places = np.repeat(self.offsets[:-1][which] - offsets[:-1], counts)
        return Anchors(self.roots[places + np.arange(len(places))], offsets)

    def of_outputs(self, ends: I64) -> Anchors:
        """Return the anchors of outputs; those of record i end at `ends[i]`."""
        if self.shared:
            return self
        counts = ends.copy()  # np.diff(…, prepend=0) takes 15 µs
        counts[1:] -= ends[:-1]
        if self.offsets is None:
            return Anchors(self.roots.repeat(counts))
        return self.select(np.arange(len(self)).repeat(counts))

    def together(self, which: slice | I64) -> Anchors | None:
        """Return the trees of the records at `which`, shared by all that is made from these; None:
        they have none."""
        anchors = self.select(which)
        return Anchors(anchors.roots, anchors.offsets, shared=True) if len(anchors.roots) else None

    def __len__(self) -> int:
        return len(self.roots) if self.offsets is None else len(self.offsets) - 1

    def add(self, xors_made: U64, which: slice | I64, edges: U64) -> None:
        """XOR new edges of the records at `which` into `made`: one for each of them; of shared
        anchors one for each anchor."""
        xors_made[slice(None) if self.shared else which] ^= edges

    def made_by(self, edges: U64, ends: I64) -> U64:
        """Return the XOR of the edges made from each input, whose outputs end at `ends[i]`; from
        shared anchors, `edges`, which has that of each tree."""
        return edges if self.shared else segment_xor(edges, ends)

    def made_by_parents(self, edges: U64, parents: I64, inputs: int) -> U64:
        """The same of outputs in any order; `parents`: the input of each."""
        if self.shared or (parents[1:] >= parents[:-1]).all():
            return self.made_by(edges, np.cumsum(np.bincount(parents, minlength=inputs)))
        xors = np.zeros(inputs, np.uint64)
        np.bitwise_xor.at(xors, parents, edges)
        return xors

    def each_root_once(self, edges: U64) -> tuple[U64, U64]:
        """Return (roots, edges): each root once, with the XOR of the edges of its records."""
        if self.offsets is not None:
            edges = np.repeat(edges, np.diff(self.offsets))
        elif (self.roots[1:] > self.roots[:-1]).all():  # those that a spout has emitted together
            return self.roots, edges
        order = np.argsort(self.roots, kind="stable")
        return fold(self.roots[order], edges[order])

    def with_edges(self, edges: U64) -> tuple[U64, U64, I64 | None]:
        """Return (roots, edges, offsets) of a batch; the trees of one record share its edge."""
        if self.shared:
            return *self.each_root_once(edges), None
        if self.offsets is None:
            return self.roots, edges, None
        return self.roots, np.repeat(edges, np.diff(self.offsets)), self.offsets


@dataclass(slots=True)
class Batch:
    """Records (a sequence of n, or an Arrow table of n rows) for one task."""

    stream: int  # the index of the (source component, stream) in the plan
    source: int  # the task that sent them
    records: Any
    roots: U64 = field(default_factory=lambda: NO_IDS)
    edges: U64 = field(default_factory=lambda: NO_IDS)
    offsets: I64 | None = None
    is_recorded: bool = False  # whether an event log has its DELIVERED entry
    shared: bool = False  # whether all records together have the anchors
    alone: bool = False  # a replay that must not be processed together with other trees
    in_common: bool = False  # spread from a shared batch of several trees
    arrived_s: float = 0.0  # when it arrived in its inbox, on the worker's clock

    def __len__(self) -> int:
        return len(self.records)

    @property
    def tracked(self) -> bool:
        """Whether any record has an anchor."""
        return bool(len(self.roots))

    @property
    def is_indivisible(self) -> bool:
        """Whether its records succeed or fail together; then all their outputs are sent at once."""
        return self.shared

    @property
    def anchors(self) -> Anchors | None:
        """The trees of the records, or None when all are untracked."""
        has_any = len(self.roots)
        return Anchors(self.roots, self.offsets, self.shared) if has_any else None

    def anchor(self, ids: Sequence[Mapping[int, int]]) -> None:
        """Give each record its anchors, as root → edge."""
        counts = [len(of_record) for of_record in ids]
        if any(counts):
            self.roots = np.array([*chain.from_iterable(ids)], np.uint64)
            edges = chain.from_iterable(of_record.values() for of_record in ids)
            self.edges = np.array([*edges], np.uint64)
            if set(counts) != {1}:
                self.offsets = np.cumsum([0, *counts])

    def blamed(self, failure: Failure) -> Failure:
        """The failure of this batch: not charged if several trees share it."""
        several = self.in_common or (self.shared and len(self.roots) > 1)
        return failure.in_common if several else failure

    def roots_of(self, index: int) -> U64:
        """The roots of the trees of one record."""
        if self.shared:
            return self.roots
        if self.offsets is None:
            return self.roots[index : index + 1]
        return self.roots[self.offsets[index] : self.offsets[index + 1]]

    def index_of(self, position: int) -> int:
        """The record that has the anchor at `position` of `roots`."""
        if self.offsets is None:
            return position
        return int(self.offsets.searchsorted(position, "right")) - 1

    def ids_of(self, which: I64) -> tuple[U64, U64]:
        """The roots and edges of records; of a shared batch all of them, if `which` has any."""
        if self.shared and not len(which):
            return NO_IDS, NO_IDS
        return self._of(self.roots, which), self._of(self.edges, which)

    def _of(self, ids: U64, which: I64) -> U64:
        """Those of `ids`, as many as `roots`, that records have."""
        return Anchors(ids, self.offsets, self.shared).select(which).roots

    def ids_of_each(self) -> Iterator[tuple[list[int], list[int]]]:
        """Yield the roots and the edges of each record of a batch that is not shared."""
        roots, edges = self.roots.tolist(), self.edges.tolist()
        ends = range(1, len(self) + 1) if self.offsets is None else self.offsets[1:].tolist()
        start = 0
        for end in ends:
            yield roots[start:end], edges[start:end]
            start = end

    def where_all(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which records have anchors, all of them with a flag; `flags` has one for each root."""
        if self.shared:
            return np.full(len(self), bool(flags.all()))
        if self.offsets is None:
            return flags
        counts = np.diff(self.offsets)
        ends = np.concatenate(([0], np.cumsum(flags)))[self.offsets]
        has_all: NDArray[np.bool_] = (counts > 0) & (np.diff(ends) == counts)
        return has_all

    def nothing_made(self) -> U64:
        """The XORs of the edges made from the inputs, if there are none: see `acked`."""
        return np.zeros(len(self.roots) if self.shared else len(self), np.uint64)

    def inputs(self) -> list[Batch]:
        """The parts that can succeed or fail by themselves."""
        return [self] if self.shared else [self.only(index) for index in range(len(self))]

    def as_they_fail(self, failures: dict[int, Failure]) -> dict[int, Failure]:
        """Those of `failures` (by record) and of the records that fail with these."""
        if not (self.shared and failures):
            return failures
        return dict.fromkeys(range(len(self)), next(iter(failures.values())))

    def failed(self, failures: Mapping[int, Failure]) -> Iterator[tuple[U64, Failure]]:
        """The trees that fail, if records fail as `as_they_fail` says. Untracked records have no
        roots."""
        if self.shared:
            if failures:
                yield self.roots, self.blamed(failures[0])
            return
        for index, failure in failures.items():
            yield self.roots_of(index), failure

    def acked(self, xors_made: U64, failures: Mapping[int, Failure]) -> tuple[U64, U64]:
        """The roots and XORs to report of the records that have not failed. `made`: the XOR of the
        edges made from each record; from a shared batch, of those of each tree."""
        if self.offsets is not None:
            xors_made = xors_made.repeat(np.diff(self.offsets))
        roots, xors = self.roots, self.edges ^ xors_made
        if not failures:
            return roots, xors
        if self.shared:
            return NO_IDS, NO_IDS
        good = np.delete(np.arange(len(self)), list(failures))
        return self._of(roots, good), self._of(xors, good)

    @property
    def is_table(self) -> bool:
        """Whether `records` is an Arrow table; as `sunshower.records.is_table`."""
        return not isinstance(self.records, Sequence)

    def rows(self, schema: Schema, *, keep_table: bool = False) -> Sequence[Any]:
        """Return the records as rows, or a table as it is."""
        rows: Sequence[Any] = self.records
        return rows if keep_table or not self.is_table else schema.rows_of_table(rows)

    def table(self, schema: Schema) -> pa.Table:
        """Return the records as an Arrow table with the schema's fields as columns."""
        return schema.table(self.records)

    def split(self, count: int) -> tuple[Batch, Batch]:
        """Split into the first `count` records and the rest. The parts of a shared batch have edges
        of their own, whose XOR is that of the batch."""
        first, rest = self._cut(0, count), self._cut(count, len(self))
        if self.shared and count < len(self):
            first.edges = _mixed(self.edges, count)
            rest.edges = self.edges ^ first.edges
        return first, rest

    def spread(self) -> Batch:
        """The same records, each with anchors of its own: of a shared batch all of its trees, and
        edges of its own."""
        if not self.shared:
            return self
        count, trees = len(self), len(self.roots)
        edges = np.array([_mixed(self.edges, index) for index in range(count)])
        edges[-1] = np.bitwise_xor.reduce(edges[:-1], axis=0, initial=0) ^ self.edges
        offsets = np.arange(0, count * trees + 1, max(1, trees)) if trees else None
        spread = replace(self, roots=np.tile(self.roots, count), edges=edges.ravel(), shared=False)
        spread.offsets, spread.in_common = offsets, trees > 1
        return spread

    def select(self, which: I64) -> Batch:
        """Return the records at the positions `which`, ascending."""
        records = (
            self.records.take(which)
            if self.is_table
            else [self.records[index] for index in which.tolist()]
        )
        selected = replace(self, records=records)
        if self.anchors is not None:
            anchors = self.anchors.select(which)
            selected.roots, selected.offsets = anchors.roots, anchors.offsets
            selected.edges = self._of(self.edges, which)
        return selected

    def only(self, index: int) -> Batch:
        """Return one record of the batch, as a batch."""
        return self._cut(index, index + 1)

    def _cut(self, start: int, end: int) -> Batch:
        records = (
            self.records.slice(start, end - start) if self.is_table else self.records[start:end]
        )
        if self.offsets is not None:
            offsets = self.offsets[start : end + 1]
            first, last = int(offsets[0]), int(offsets[-1])
            ids = (self.roots[first:last], self.edges[first:last])
            return replace(
                self, records=records, roots=ids[0], edges=ids[1], offsets=offsets - first
            )
        if self.shared:
            return replace(self, records=records)
        roots, edges = self.roots[start:end], self.edges[start:end]
        return replace(self, records=records, roots=roots, edges=edges)


def can_join(first: Batch, second: Batch) -> bool:
    """Whether two batches have one stream and shape: rows or columns, one anchor each or none, or
    shared ones."""
    return (
        first.stream == second.stream
        and first.is_table == second.is_table
        and first.offsets is None
        and second.offsets is None
        and first.shared == second.shared
        and first.is_recorded == second.is_recorded
        and not (first.alone or second.alone)
        and bool(len(first.roots)) == bool(len(second.roots))
        and (not first.is_table or first.records.schema == second.records.schema)
    )


def join(batches: Sequence[Batch]) -> Batch:
    """Join batches that `can_join` the first, as one batch from the first's source."""
    if len(batches) == 1:
        return batches[0]
    first, parts = batches[0], [batch.records for batch in batches]
    records: Any
    if first.is_table:
        import pyarrow as pa

        records = pa.concat_tables(parts)
    else:
        records = list(chain.from_iterable(parts))
    roots = np.concatenate([batch.roots for batch in batches])
    edges = np.concatenate([batch.edges for batch in batches])
    if first.shared:
        roots, edges = Anchors(roots).each_root_once(edges)
    ids = (roots, edges, None, first.is_recorded, first.shared)
    return Batch(first.stream, first.source, records, *ids)


def _mixed(edges: U64, number: int) -> U64:
    """Ids that look random, made of `edges` and a number (the finalizer of SplitMix64)."""
    ids = edges + np.uint64((number + 1) * _MIX & _EDGE_MAX)
    ids = (ids ^ (ids >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    ids = (ids ^ (ids >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ids ^ (ids >> np.uint64(31))
