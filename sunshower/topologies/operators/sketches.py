"""Theta sketches of Apache DataSketches; separate because they are the extra `sketches`.

They estimate how many different values there are, in at most 33 kB. The estimate depends on the
values alone, not on their order, repetitions and division into parts. It is exact up to 4,096
values; then its relative standard error is 1.6 %. What is stored is the compact form that
DataSketches has specified for all its languages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sunshower.errors import TopologyError
from sunshower.installed import check_packages, check_python
from sunshower.json_values import texts_of_keys

EMPTY = b""
_LOG_SIZE = 12


def check_installed(where: str) -> None:
    """Raise TopologyError, with the install command, without the extra `sketches`."""
    check_python("sketches", where, error=TopologyError)
    purpose = f"which estimates the number of different values for {where}"
    check_packages("sketches", purpose, "datasketches", error=TopologyError)


def sketch_of(keys: Sequence[Any]) -> bytes:
    """The sketch of values, which are like those of `key_of`."""
    if not keys:
        return EMPTY
    from datasketches import update_theta_sketch

    sketch = update_theta_sketch(_LOG_SIZE)
    for text in texts_of_keys(keys):
        sketch.update(text)
    return _united([sketch])


def united(sketches: Iterable[bytes]) -> bytes:
    """The sketch of the values of all sketches."""
    from datasketches import compact_theta_sketch

    parts = [sketch for sketch in sketches if sketch]
    if len(parts) < 2:
        return parts[0] if parts else EMPTY
    return _united(map(compact_theta_sketch.deserialize, parts))


def estimate(sketch: bytes) -> int:
    """How many different values a sketch has."""
    if not sketch:
        return 0
    from datasketches import compact_theta_sketch

    number: float = compact_theta_sketch.deserialize(sketch).get_estimate()
    return round(number)


def _united(sketches: Iterable[Any]) -> bytes:
    from datasketches import theta_union

    union = theta_union(_LOG_SIZE)
    for sketch in sketches:
        union.update(sketch)
    compact: bytes = union.get_result().serialize()
    return compact
