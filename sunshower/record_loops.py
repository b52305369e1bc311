"""Loops over the records of a batch: in C where that could be compiled, else in Python.

Both ways do the same: a worker with `_record_loops.c` and one without it work together. The
functions keep nothing of a batch, and know nothing of tasks, trees and links. The variable
SUNSHOWER_PURE=1 turns the compiled module off. Decision 30 has the figures.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import chain, compress, islice, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PURE = "SUNSHOWER_PURE"
_second: Any = {}.get  # returns its second argument if the first is None; runs in C
_STOPPED = "StopIteration left the bolt: a next() without a default found nothing"


def expand(
    function: Callable[[Any], Any],
    records: list[Any],
    limit: int,
    kind: type[Any],
    width: int,
    outputs: list[Any],
    ends: list[int],
) -> tuple[bool, Iterator[Any] | None, BaseException | None]:
    """Call a function that returns an iterable for each record from `records[len(ends)]` on, until
    there are `limit` outputs. Appends what they yield to `outputs`, and for each record the end of
    its outputs to `ends`.

    Returns whether all new outputs are known to be of type `kind`, tuples of `width` values; what
    is left of the last record's iterable, if there are `most`; and an exception, of the record that
    `ends` has no end of: what this record has yielded is dropped.
    """
    started, waiting = list[int](), islice(records, len(ends), None)
    # list.extend() updates the list's length as it goes, so that length is where the outputs of
    # the next record begin. `_second` advances `begin` before it advances the call. The loop runs
    # in C. The limit costs 10 ns a record; an islice() for each record would cost 90 ns.
    begin = map(started.append, map(len, repeat(outputs)))
    produced = chain.from_iterable(map(_second, begin, map(function, waiting)))
    left = len(records) - len(ends)
    try:
        outputs.extend(islice(produced, limit - len(outputs)))
        if len(outputs) < limit and len(started) <= left:
            raise RuntimeError(_STOPPED)  # of iter(what the function returned)
    except BaseException as error:  # its caller raises what it does not judge
        del outputs[started[-1] :]
        ends += started[1:]
        return False, None, error
    if len(outputs) < limit or len(started) > left:  # `begin` ran once more, after the last record
        ends += started[1:]
        return False, None, None
    deque(waiting, maxlen=0)  # so that `produced` ends with the last started record
    ends += [*started[1:], len(outputs)]
    return False, produced, None


def each(
    function: Callable[[Any], Any], records: list[Any], index: int
) -> tuple[int, Any, BaseException | None]:
    """Call a function with each record from `records[index]` on, until it returns something else
    than None. Returns the index of this record, or the number of records; what was returned; and
    what was raised."""
    try:
        for index in range(index, len(records)):  # noqa: B020, PLR1704
            produced = function(records[index])
            if produced is not None:
                return index, produced, None
    except BaseException as error:
        return index, None, error
    return len(records), None, None


def choose(
    rows: list[tuple[Any, ...]],
    place: int,
    table: dict[Any, int],
    find: Callable[[Any], int],
    targets: int,
) -> bytes:
    """The index of each row's target, for at most 256 targets: `table[key]`, or `find(key)` for a
    key that is not in it. `place`: of the key in a row. Of a text, it must be its CRC32 in UTF-8,
    modulo `targets`."""
    keys = map(itemgetter(place), rows)
    try:
        return bytes(map(table.__getitem__, keys))
    except TypeError:  # a key that Python cannot hash
        return bytes(map(find, map(itemgetter(place), rows)))


def plain_keys(rows: list[Any], place: int) -> list[Any] | None:
    """The values at `place` of all rows. None: one is not a text, whole number, bool, bytes or
    None, so that its key may be another value."""
    return None


def take(rows: list[Any], positions: NDArray[np.int64]) -> list[Any]:
    """The rows at these positions, which ascend."""
    if len(positions) == 1:
        return [rows[int(positions[0])]]
    import numpy as np

    if len(positions) * 4 > len(rows):  # 12 ns for each record skipped, 35 ns for each kept
        mask = np.zeros(len(rows), np.uint8)
        mask[positions] = 1
        return list(compress(rows, mask.tobytes()))
    return list(itemgetter(*positions.tolist())(rows)) if len(positions) else []


def encode(rows: list[Any], width: int) -> bytes | None:
    """The values of all rows in one list, as `Codec.encode` returns them. None: they have to be
    encoded by it, because one is neither a plain value nor a list of these, at most four in each
    other, or a row is no tuple of `width` values."""
    return None


def decode(data: bytes, width: int, kind: type[tuple[Any, ...]]) -> list[Any] | None:
    """The inverse of `encode`: rows of type `kind`, without a call of their constructor. None: they
    have to be decoded by `Codec.decode`, which also raises the error if they are damaged."""
    return None


def quicken(kind: type[tuple[Any, ...]], width: int) -> bool:
    """Let the constructor of a NamedTuple run in C if it gets `width` positional arguments, until
    an attribute of the class changes. Whether that is possible."""
    return False


compiled = False  # whether these functions are those of `_record_loops.c`
if not TYPE_CHECKING and os.environ.get(PURE, "") in {"", "0"}:
    try:
        _loops = import_module("sunshower._record_loops")
    except ImportError:
        pass
    else:
        compiled = True
        expand, each, choose, take = _loops.expand, _loops.each, _loops.choose, _loops.take
        plain_keys, encode, decode = _loops.plain_keys, _loops.encode, _loops.decode
        quicken = _loops.quicken
