"""A history as bytes: one MessagePack array for each entry, one after the other.

    [at_s, what, task, roots, values, attempts, detail]

Columns are extension types: their raw buffer, or the one number that all of them are; nil where
there are none. Whoever writes may be killed in the middle of an entry: what comes before it is read
all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import msgpack
import numpy as np

from sunshower.runtime.history import NOTHING, Entry, What
from sunshower.runtime.ids import NO_IDS

_EACH, _SAME = 0, 16  # added to the code of a dtype: a number for each row, or one for all
_DTYPES = [np.dtype(np.uint64), np.dtype(np.int64)]
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}


def encode(entry: Entry) -> bytes:
    """The bytes of one entry; what MessagePack cannot carry of its detail is kept as `repr`."""
    columns = (_packed(entry.roots), _packed(entry.values), _packed(entry.attempts))
    fields = (entry.at_s, entry.what, entry.task, *columns, entry.detail)
    data: bytes = msgpack.packb(fields, default=_plain, unicode_errors="surrogatepass")
    return data


def decode(file: BinaryIO) -> Iterator[Entry]:
    """The entries of a file, up to one that is cut off. Lists in a detail come back as tuples."""
    found = msgpack.Unpacker(
        file,
        use_list=False,
        strict_map_key=False,
        ext_hook=_column,
        max_buffer_size=0,
        unicode_errors="surrogatepass",
    )
    for at_s, what, task, roots, values, attempts, detail in found:
        yield Entry(
            at_s,
            What(what),
            task,
            NO_IDS if roots is None else roots,
            NOTHING if values is None else values,
            NOTHING if attempts is None else attempts,
            detail,
        )


def _packed(column: Any) -> Any:
    if not len(column):
        return None
    code = _CODES[column.dtype]
    if len(column) > 1 and column[0] == column[-1] and (column == column[0]).all():
        size = len(column).to_bytes(8, "little")
        return msgpack.ExtType(_SAME + code, size + column[:1].tobytes())
    return msgpack.ExtType(_EACH + code, column.tobytes())


def _column(code: int, data: bytes) -> Any:
    if code < _SAME:
        return np.frombuffer(data, _DTYPES[code])
    size = int.from_bytes(data[:8], "little")
    return np.broadcast_to(np.frombuffer(data, _DTYPES[code - _SAME], 1, 8), size)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else repr(value)
