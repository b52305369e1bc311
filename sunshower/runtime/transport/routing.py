"""Routers: map the records of a batch to target tasks, as a grouping declares.

A router belongs to one sending task and one subscription. It returns shares: for each target that
receives any, the positions of its records, ascending, so order between two tasks is kept. Storm:
org.apache.storm.daemon.GrouperFactory and org.apache.storm.grouping.*
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from enum import Enum
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from sunshower.errors import BadEmit
from sunshower.record_loops import choose, take
from sunshower.record_types import is_record
from sunshower.records import Schema, key_of
from sunshower.runtime.tracking.ids import I64
from sunshower.scalars import SCALARS, as_number
from sunshower.topologies import groupings
from sunshower.topologies.groupings import CustomGrouping, Grouping

if TYPE_CHECKING:
    import pyarrow as pa

Share = tuple[int, slice | I64]  # a target's position in the list of targets, and its records
_WHOLE = slice(None)
_MASKS_MAX = 8  # above this many targets one sort is cheaper than a mask for each


# ---- hashing -------------------------------------------------------------------------------------

_KEYS_MAX = 1 << 16


def stable_hash(value: Any) -> int:
    """Return 32 bits of `value`: str, bytes, int, float, bool, None, Decimal, dates and times,
    UUID, Enums, NumPy's scalars, and tuples, lists, sets, dictionaries and records of these.

    Values of equal keys (`records.key_of`) hash equally, so 1, 1.0 and True share a task. Storm:
    java.util.Arrays.deepHashCode in TupleUtils.chooseTaskIndex. Raises BadEmit for others.
    """
    if isinstance(value, str):
        return crc32(value.encode("utf-8", "surrogatepass"))
    return crc32(_canonical(key_of(value)))


def task_index(key: Any, tasks: int) -> int:
    """The index of the task to which a fields grouping sends records with this key. States of keys
    are distributed over tasks by it, too. Raises BadEmit as stable_hash."""
    return stable_hash(key) % tasks


def _canonical(value: Any) -> bytes:
    match value:
        case str():
            return b"s" + value.encode("utf-8", "surrogatepass")
        case bytes():
            return b"b" + value
        case float() if not value.is_integer():
            return b"f" + repr(value).encode()
        case bool() | int() | float():
            return _number(int(value))
        case None:
            return b"n"
        case tuple():
            parts = [_canonical(part) for part in value]
            return b"t" + b"".join(b"%d:" % len(part) + part for part in parts)
        case dict():
            return b"d" + b"".join(sorted(map(_canonical, value.items())))
        case frozenset():
            return b"S" + b"".join(sorted(map(_canonical, value)))
        case Enum():
            return b"e" + f"{type(value).__qualname__}.{value.name}".encode()
        case Decimal() if not isinstance(number := as_number(value), Decimal):
            return _canonical(number)
    if (scalar := SCALARS.get(type(value))) is not None:
        value = as_number(value) if isinstance(value, Decimal) else value
        return b"v" + f"{scalar.name}:{scalar.text(value)}".encode()
    raise BadEmit(
        f"a key of type {type(value).__name__} has no hash that all processes agree on: group by "
        "a type that docs/RECORDS.md lists as a key"
    )


def _number(value: int) -> bytes:
    # Python refuses to write very long numbers in decimals.
    return b"i%d" % value if value.bit_length() < 10_000 else b"i%x" % value


def _may_be_cached(key: Any) -> bool:
    """Whether values that are equal in Python are one key. Moments of one zone are compared without
    `fold`, and dataclasses as they say."""
    if isinstance(key, tuple | frozenset):
        return all(map(_may_be_cached, key))
    return not isinstance(key, datetime) and not is_record(type(key))


class KeyTable(dict[Any, int]):
    """key → index of its task; caches up to 65,536 keys."""

    def __init__(self, tasks: int) -> None:
        super().__init__()
        self._tasks = tasks

    def __missing__(self, key: Any) -> int:
        if len(self) >= _KEYS_MAX:
            self.clear()
        index = task_index(key, self._tasks)
        if _may_be_cached(key):
            self[key] = index
        return index

    def find_all(self, keys: Sequence[Any]) -> list[int]:
        """The index of each key's task."""
        try:
            return list(map(self.__getitem__, keys))
        except TypeError:  # a key that Python cannot hash
            return list(map(self.find, keys))

    def find(self, key: Any) -> int:
        """The same for keys that Python cannot hash, such as lists."""
        try:
            return self[key]
        except TypeError:
            return task_index(key, self._tasks)


class ColumnKeys:
    """The same for an Arrow column: known keys are found in bulk, in Arrow's hash table.

    (Measured on 100,000 words, 10,000 distinct: 14 ns a word, against 32 ns for encoding the column
    and looking up each distinct word here.)
    """

    def __init__(self, table: KeyTable) -> None:
        self._table = table
        self._known: pa.Array | None = None
        self._indices: NDArray[np.uint16] = np.zeros(0, np.uint16)

    def find(self, column: pa.Array) -> NDArray[np.uint16]:
        """Return the task index of each key, shape (len(column),)."""
        import pyarrow as pa
        import pyarrow.compute as pc  # a slow import that few workers need

        if pa.types.is_dictionary(column.type):  # Arrow looks up values only
            column = column.dictionary_decode()
        if self._known is None or len(self._known) > _KEYS_MAX or self._known.type != column.type:
            self._known, self._indices = column.slice(0, 0), self._indices[:0]
        places = pc.index_in(column, value_set=self._known)
        if places.null_count:
            self._learn(column.filter(places.is_null()).unique())
            places = pc.index_in(column, value_set=self._known)
        indices: NDArray[np.uint16] = self._indices.take(places.to_numpy())
        return indices

    def _learn(self, keys: pa.Array) -> None:
        import pyarrow as pa

        targets = np.fromiter(map(self._table.find, keys.to_pylist()), np.uint16, len(keys))
        self._known = pa.concat_arrays([self._known, keys])
        self._indices = np.concatenate([self._indices, targets])


# ---- routing -------------------------------------------------------------------------------------


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
    return take(records if type(records) is list else list(records), which)


def _by_target(chosen: NDArray[Any], targets: int) -> list[Share]:
    """Build the shares from the chosen target of each record."""
    if targets <= _MASKS_MAX:
        by_target = [(target, np.flatnonzero(chosen == target)) for target in range(targets)]
        return [(target, which) for target, which in by_target if len(which)]
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
        self._place = None  # of the key in a record, if `choose` finds the targets
        if schema.is_tuple and len(fields) == 1 and targets <= 256:
            self._place = schema.fields.index(fields[0])
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
            if self._place is not None and type(records) is list:
                targets = choose(records, self._place, self._table, self._table.find, self._targets)
                chosen = np.frombuffer(targets, np.uint8)
            elif self._targets <= 256:  # bytes(map()) is a third faster than np.fromiter
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
        by_target: dict[int, list[int]] = {}
        rows = records if isinstance(records, Sequence) else records.to_pylist()
        for index, record in enumerate(rows):
            for task in dict.fromkeys(self._grouping.choose(record)):
                if task not in self._position:
                    raise BadEmit(
                        f"the custom grouping {type(self._grouping).__name__} chose task {task}; "
                        f"the subscriber's tasks are {sorted(self._position)}"
                    )
                by_target.setdefault(self._position[task], []).append(index)
        return [(target, np.array(which)) for target, which in sorted(by_target.items())]


def _keys(records: Any, fields: Sequence[str], key: Callable[[Any], Any]) -> Iterator[Any]:
    if isinstance(records, Sequence):
        return map(key, records)
    columns = [records[field].to_pylist() for field in fields]
    return iter(columns[0]) if len(columns) == 1 else zip(*columns, strict=True)
