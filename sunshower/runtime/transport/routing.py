"""Routers: map the records of a batch to target tasks, as a grouping declares.

A router belongs to one sending task and one subscription. It returns shares: for each target that
receives any, the positions of its records, ascending, so order between two tasks is kept. Storm:
org.apache.storm.daemon.GrouperFactory and org.apache.storm.grouping.*
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, compress
from operator import itemgetter
from typing import Any, Protocol
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from sunshower.errors import BadEmit
from sunshower.records import Schema
from sunshower.runtime.tracking.ids import I64
from sunshower.runtime.transport.hashing import ColumnKeys, KeyTable, stable_hash
from sunshower.topologies import groupings
from sunshower.topologies.groupings import CustomGrouping, Grouping

Share = tuple[int, slice | I64]  # a target's position in the list of targets, and its records
_WHOLE = slice(None)
_MASKS_MAX = 8  # above this many targets one sort is cheaper than a mask for each


class Router(Protocol):
    """Distributes the records of a batch over `targets`."""

    def shares(self, records: Any, count: int) -> list[Share]: ...


def make_router(
    grouping: Grouping,
    targets: Sequence[int],
    local: Sequence[int],
    schema: Schema,
    generator: np.random.Generator,
) -> Router:
    """Build the router for `grouping` over `targets` (task ids, ascending); `local` are those in
    the sender's worker."""
    match grouping:
        case groupings.Shuffle():
            return EvenRouter(range(len(targets)), generator)
        case groupings.LocalOrShuffle():
            near = [targets.index(task) for task in local] or range(len(targets))
            return EvenRouter(near, generator)
        case groupings.Fields(fields=fields):
            return _ByKey(schema, fields, len(targets))
        case groupings.PartialKey(fields=fields):
            return _TwoChoices(schema, fields, len(targets))
        case groupings.All():
            return _Everybody(len(targets))
        case groupings.Global():
            return _Everybody(1)
        case groupings.NoneGrouping():
            return _AtRandom(len(targets), generator)
        case groupings.Custom(grouping=custom):
            return _Asked(custom, targets)
        case groupings.Direct():
            return _Nobody()
    raise AssertionError(f"no router for {grouping}")


def prepare(router: Router) -> None:
    """Prepare a custom grouping; the others need no preparation."""
    if isinstance(router, _Asked):
        router.prepare()


def pick(records: Any, which: slice | I64) -> Any:
    """Return the records at `which`, of a sequence or an Arrow table."""
    if which == _WHOLE if isinstance(which, slice) else len(which) == len(records):
        return records
    if not isinstance(records, Sequence):
        if isinstance(which, slice):
            return records.slice(which.start, which.stop - which.start)
        return records.take(which)
    if isinstance(which, slice):
        return records[which]
    if len(which) == 1:
        return [records[int(which[0])]]
    if len(which) * 4 > len(records):  # 12 ns for each record skipped, 35 ns for each kept
        mask = np.zeros(len(records), np.uint8)
        mask[which] = 1
        return list(compress(records, mask.tobytes()))
    return list(itemgetter(*which.tolist())(records))


def _by_target(chosen: NDArray[Any], targets: int) -> list[Share]:
    """Build the shares from the chosen target of each record."""
    if targets <= _MASKS_MAX:
        found = [(target, np.flatnonzero(chosen == target)) for target in range(targets)]
        return [(target, which) for target, which in found if len(which)]
    order = np.argsort(chosen.astype(np.uint16, copy=False), kind="stable")
    bounds = np.cumsum(np.bincount(chosen, minlength=targets))
    parts = np.split(order, bounds[:-1])
    return [(target, which) for target, which in enumerate(parts) if len(which)]


class _Everybody:
    def __init__(self, targets: int) -> None:
        self._shares: list[Share] = [(target, _WHOLE) for target in range(targets)]

    def shares(self, records: Any, count: int) -> list[Share]:
        return self._shares


class _Nobody:
    """A direct stream: only emit_direct sends on it."""

    def shares(self, records: Any, count: int) -> list[Share]:
        raise BadEmit("this is a direct stream: name the task, with emit_direct(task, record)")


def _always(_: int) -> bool:
    return True


def _one(_: int) -> int:
    return 1


class EvenRouter:
    """Round robin over slices: a batch is cut into slices of almost equal length, one per target.

    A target that got one record less comes first in the next batch. A target without credit is left
    out while another has some. Storm: LoadAwareShuffleGrouping (ShuffleGrouping: single tuples).

    A batch that has less than a piece of work for each target (`Credit.piece`, 4 ms) goes to fewer
    targets, from a random one on, and each gets its piece. Otherwise many tasks would get batches
    of one record; a batch costs 0.1 ms. Single records take turns all the same.
    """

    def __init__(self, targets: Sequence[int], generator: np.random.Generator) -> None:
        self._generator = generator
        self._ring: list[int] = [int(target) for target in generator.permutation(list(targets))]
        self._next = 0
        self.has_room: Callable[[int], bool] = _always  # for a target's position
        self.piece: Callable[[int], int] = _one  # of a target's position, in records

    @property
    def targets(self) -> Sequence[int]:
        """The positions of the targets that may receive records."""
        return self._ring

    def shares(self, records: Any, count: int) -> list[Share]:
        ring = self._ring
        if len(ring) > 1:
            ring = [target for target in ring if self.has_room(target)] or ring
        if len(ring) == 1:
            return [(ring[0], _WHOLE)]
        pieces = [self.piece(target) for target in ring]
        each, extra = divmod(count, len(ring))
        if sum(pieces) <= count or max(pieces) == 1:
            first = self._next % len(ring)
            self._next = first + extra
            sizes = [each + 1] * extra + [each] * (len(ring) - extra if each else 0)
        else:
            first = int(self._generator.integers(len(ring)))  # even in the long run
            sizes = _pieces(count, pieces[first:] + pieces[:first])
        ends = list(accumulate(sizes))
        return [
            (ring[(first + turn) % len(ring)], slice(end - size, end))
            for turn, (size, end) in enumerate(zip(sizes, ends, strict=True))
        ]


def _pieces(count: int, pieces: Sequence[int]) -> list[int]:
    """Cut `count`, less than the sum of `pieces`, into the first of them and a rest."""
    whole = bisect_right(list(accumulate(pieces)), count)
    sizes = list(pieces[:whole])
    rest = count - sum(sizes)
    return [*sizes, rest] if rest else sizes


class _ByKey:
    def __init__(self, schema: Schema, fields: Sequence[str], targets: int) -> None:
        self._fields = list(fields)
        self._key = schema.key(fields)
        self._targets = targets
        self._table = KeyTable(targets)
        self._column = ColumnKeys(self._table)

    def shares(self, records: Any, count: int) -> list[Share]:
        if self._targets == 1:
            return [(0, _WHOLE)]
        if not isinstance(records, Sequence):
            return _by_target(self._choose_columns(records), self._targets)
        find = self._table.__getitem__
        try:
            if self._targets <= 256:  # bytes(map()) is a third faster than np.fromiter
                chosen = np.frombuffer(bytes(map(find, map(self._key, records))), np.uint8)
            else:
                chosen = np.fromiter(map(find, map(self._key, records)), np.int64, count)
        except TypeError:  # a key that Python cannot hash
            chosen = np.fromiter((self._table.find(self._key(r)) for r in records), np.int64, count)
        return _by_target(chosen, self._targets)

    def _choose_columns(self, table: Any) -> NDArray[Any]:
        import pyarrow as pa

        if len(self._fields) == 1:
            with contextlib.suppress(pa.ArrowNotImplementedError):  # keys that Arrow cannot hash
                return self._column.find(table[self._fields[0]].combine_chunks())
        keys = _keys(table, self._fields, self._key)
        return np.fromiter(map(self._table.find, keys), np.int64, len(table))


class _TwoChoices:
    """Storm: PartialKeyGrouping. A target's load is what this sender has sent to it."""

    def __init__(self, schema: Schema, fields: Sequence[str], targets: int) -> None:
        self._fields = list(fields)
        self._key = schema.key(fields)
        self._sent = [0] * targets

    def choices(self, key: Any) -> tuple[int, int]:
        """Return the two targets of a key; they differ if there are at least two."""
        targets = len(self._sent)
        hashed = stable_hash(key)  # a CRC with another start value is not independent
        first, second = hashed % targets, crc32(hashed.to_bytes(4)) % targets
        return first, (second + 1) % targets if second == first else second

    def shares(self, records: Any, count: int) -> list[Share]:
        sent = self._sent
        chosen = np.empty(count, np.int64)
        for position, key in enumerate(_keys(records, self._fields, self._key)):
            first, second = self.choices(key)
            target = first if sent[first] <= sent[second] else second
            sent[target] += 1
            chosen[position] = target
        return _by_target(chosen, len(sent))


class _AtRandom:
    def __init__(self, targets: int, generator: np.random.Generator) -> None:
        self._targets = targets
        self._generator = generator

    def shares(self, records: Any, count: int) -> list[Share]:
        return _by_target(self._generator.integers(0, self._targets, count), self._targets)


class _Asked:
    """The user's own grouping: `choose` returns none, one or several task ids for each record."""

    def __init__(self, grouping: CustomGrouping, targets: Sequence[int]) -> None:
        self._grouping = grouping
        self._position = {task: position for position, task in enumerate(targets)}
        self._is_prepared = False

    def prepare(self) -> None:
        """Called before the first record, and again if it raised."""
        if not self._is_prepared:
            self._grouping.prepare(list(self._position))
            self._is_prepared = True

    def shares(self, records: Any, count: int) -> list[Share]:
        found: dict[int, list[int]] = {}
        rows = records if isinstance(records, Sequence) else records.to_pylist()
        for index, record in enumerate(rows):
            for task in dict.fromkeys(self._grouping.choose(record)):
                if task not in self._position:
                    raise BadEmit(
                        f"the custom grouping {type(self._grouping).__name__} chose task {task}; "
                        f"the subscriber's tasks are {sorted(self._position)}"
                    )
                found.setdefault(self._position[task], []).append(index)
        return [(target, np.array(which)) for target, which in sorted(found.items())]


def _keys(records: Any, fields: Sequence[str], key: Callable[[Any], Any]) -> Iterator[Any]:
    if isinstance(records, Sequence):
        return map(key, records)
    columns = [records[field].to_pylist() for field in fields]
    return iter(columns[0]) if len(columns) == 1 else zip(*columns, strict=True)
