"""A history as bytes: one MessagePack array for each entry, one after the other.

    [at_s, what, task, roots, values, whether they are signed, attempts, detail]

Columns are their raw buffers, attempts that are all the same are that one
number. Whoever writes may be killed in the middle of an entry: what comes before it is read all the
same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import msgpack
import numpy as np

from sunshower.runtime.history import NOTHING, Entry, What
from sunshower.runtime.ids import I64, NO_IDS

_ATTEMPT = NOTHING.itemsize
_pack = msgpack.Packer(unicode_errors="surrogatepass").pack  # calls nothing of Python's: see encode


def encode(entry: Entry) -> bytes:
    """The bytes of one entry; what MessagePack cannot carry of its detail is kept as `repr`.

    May be called from several threads.
    """
    signed = entry.values.dtype.kind == "i"
    columns = (entry.roots.tobytes(), entry.values.tobytes(), signed, _folded(entry))
    fields = (entry.at_s, entry.what, entry.task, *columns, entry.detail)
    try:
        data: bytes = _pack(fields)
    except (TypeError, OverflowError):
        data = msgpack.packb(fields, default=_plain, unicode_errors="surrogatepass")
    return data


def decode(file: BinaryIO) -> Iterator[Entry]:
    """The entries of a file, up to one that is cut off. Lists in a detail come back as tuples."""
    found = msgpack.Unpacker(
        file,
        use_list=False,
        strict_map_key=False,
        max_buffer_size=0,
        unicode_errors="surrogatepass",
    )
    for at_s, what, task, roots, values, signed, attempts, detail in found:
        ids = np.frombuffer(roots, np.uint64) if roots else NO_IDS
        column = _signed(values) if signed else np.frombuffer(values, np.uint64)
        yield Entry(at_s, What(what), task, ids, column, _unfolded(attempts, len(ids)), detail)


def _folded(entry: Entry) -> bytes | int:
    """The attempts, or the one number that they are for each of the roots."""
    data, count = entry.attempts.tobytes(), len(entry.roots)
    if data and data == data[:_ATTEMPT] * count:
        return int(entry.attempts[0])
    return data


def _unfolded(attempts: bytes | int, count: int) -> I64:
    return np.full(count, attempts) if isinstance(attempts, int) else _signed(attempts)


def _signed(data: bytes) -> I64:
    return np.frombuffer(data, np.int64)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else repr(value)
