"""The file format of the event log: a sequence of MessagePack arrays, one per entry.

    [at_s, what, task, roots, values, whether they are signed, attempts, detail]

Columns are raw buffers; attempts that are all equal are one number. The writing process may be
killed within an entry: the entries before it remain readable.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import msgpack
import numpy as np

from sunshower.runtime.events.event_log import NOTHING, Entry, What
from sunshower.runtime.tracking.ids import I64, NO_IDS

_ATTEMPT = NOTHING.itemsize
_pack = msgpack.Packer(unicode_errors="surrogatepass").pack  # calls no Python code: see encode


def encode(entry: Entry) -> bytes:
    """Encode one entry; detail values that MessagePack cannot encode become their `repr`.

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
    """Yield the entries of a file, up to an incomplete one. Lists in a detail become tuples."""
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
    """Return the attempts as bytes, or as one number if all are equal."""
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
