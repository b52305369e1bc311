"""The types of values: how each is taken apart, built again, tagged, and made a key.

Two writers use this table: `codec` writes MessagePack (frames, the keys that Kafka's deduplication
stores) and `json_values` JSON (states, keys, dead letters). Both have types for None, bool, int,
float, str, list and dict, and MessagePack for bytes. Any other type is an extension with a code
there, and an object with one mark here:

    (1, 2)              3   {"()": [1, 2]}
    {1, 2}              4   {"(set)": [1, 2]}
    date(2026, 1, 2)    8   {"(date)": "2026-01-02"}

Codes and marks are stored, and sent to workers of other releases: add types, and change none. To
build a value runs no code of users. Enums and records, which a program declares, are taken apart by
`sunshower.records.declared_class`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache, partial
from math import isnan
from types import NoneType
from typing import Any, NamedTuple

from sunshower.record_types import record_type_of
from sunshower.scalars import SCALARS, read_scalar


class ValueType(NamedTuple):
    """A type that formats have no type for."""

    code: int  # its extension type in MessagePack
    mark: str  # the name of the only member of its object in JSON
    parts: Callable[[Any], Any]  # of a value: a text, or a list or dict of values
    build: Callable[[Any], Any]  # the inverse; raises TypeError or ValueError for other parts


FIRST_CODE = 3  # those before it are the codec's
CONTAINERS: dict[type[Any], ValueType] = {
    tuple: ValueType(FIRST_CODE, "()", list, tuple),
    set: ValueType(FIRST_CODE + 1, "(set)", list, set),
    frozenset: ValueType(FIRST_CODE + 2, "(frozenset)", list, frozenset),
    Counter: ValueType(FIRST_CODE + 3, "(Counter)", dict, Counter),
}
TEXTS: dict[type[Any], ValueType] = {  # their parts are a text
    kind: ValueType(code, f"({scalar.name})", scalar.text, partial(read_scalar, kind))
    for code, (kind, scalar) in enumerate(SCALARS.items(), FIRST_CODE + len(CONTAINERS))
}
LEAVES = frozenset({NoneType, bool, int, float, str, bytes, *SCALARS})  # have no values within
DEPTH_MAX = 32  # of values within values: a level takes 41 kB of the stack to decode
_NUMPY_KINDS = "biufSU"  # others, such as datetime64[ns], become something else in Python
_PLAIN: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    **{kind: kind for kind in (bytes, Counter, dict, list, tuple)},
}


def without_numpy(value: Any) -> Any:
    """A scalar of NumPy as the equal value of Python; other values as they are."""
    if not _is_numpy(value) or value.dtype.kind not in _NUMPY_KINDS:
        return value
    plain = value.item()
    return value if type(plain) is type(value) else plain  # as of a longdouble


def as_plain(value: Any) -> Any:
    """An equal value of a plain type, of a subclass or of NumPy; itself if there is none."""
    if _is_numpy(value):
        return without_numpy(value)
    return next((plain(value) for base, plain in _PLAIN.items() if isinstance(value, base)), value)


def _is_numpy(value: Any) -> bool:
    return type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0


# ---- keys ---------------------------------------------------------------------------------------

KEYS_THEMSELVES = frozenset({str, int, bool, bytes, NoneType})
_NAN = float("nan")  # one object, so that it equals itself as a key
_NO_DECIMAL = Decimal("NaN")
_ANY_DAY = date(2000, 1, 2)


class DictKey(dict[Any, Any]):
    """A dictionary that is a key. Do not change it."""

    __module__ = "sunshower.records"  # where savepoints find it

    def __hash__(self) -> int:  # type: ignore[override]
        return frozenset(self.items()).__hash__()


def key_of(value: Any) -> Any:
    """The key that a value stands for: hashable, and the same before and after a journey to another
    process. Lists, tuples and records are tuples, sets frozensets, dictionaries DictKeys, NumPy's
    values those of Python; NaN equals NaN, and -0.0 is 0.0. A datetime or time with a zone is in
    UTC, so that a moment is one key. Other values are returned as they are."""
    kind: Any = type(value)
    if kind in KEYS_THEMSELVES:
        return value
    convert = _KEYS.get(kind)
    return _function_for(kind)(value) if convert is None else convert(value)


@lru_cache(1024)
def _function_for(kind: type[Any]) -> Callable[[Any], Any]:
    """The function that makes keys of values of a class that is not in the table."""
    if kind.__module__ == "numpy" and hasattr(kind, "tolist"):
        return _key_of_numpy
    if (base := next((base for base in kind.__mro__ if base in _KEYS), None)) is not None:
        return _KEYS[base]
    described = record_type_of(kind)
    return itself if described is None else partial(_key_of_fields, described.fields)


def itself(value: Any) -> Any:
    """The value."""
    return value


def _key_of_numpy(value: Any) -> Any:
    plain = value.tolist()
    return value if type(plain) is type(value) else key_of(plain)


def _key_of_fields(fields: tuple[str, ...], record: Any) -> tuple[Any, ...]:
    return tuple(key_of(getattr(record, name)) for name in fields)


def _key_of_items(value: Any) -> tuple[Any, ...]:
    return tuple(map(key_of, value))


def _key_of_float(value: float) -> float:
    return _NAN if isnan(value) else float(value) or 0.0


def _in_utc(value: datetime | time) -> datetime | time:
    offset = value.utcoffset()
    if offset is None:
        return value.replace(fold=0)
    if isinstance(value, time):
        on_a_day = datetime.combine(_ANY_DAY, value.replace(tzinfo=None))
        return (on_a_day - offset).time().replace(tzinfo=UTC, fold=0)
    try:
        return value.astimezone(UTC)
    except OverflowError:  # in the first or the last hours that a datetime can be
        return value


_KEYS: dict[type[Any], Callable[[Any], Any]] = {
    **dict.fromkeys((NoneType, bool, date), itself),
    str: str.__str__,  # of a StrEnum, too
    int: int,
    float: _key_of_float,
    **dict.fromkeys((bytes, bytearray, memoryview), bytes),
    **dict.fromkeys((tuple, list), _key_of_items),
    dict: lambda value: DictKey({key_of(name): key_of(item) for name, item in value.items()}),
    **dict.fromkeys((set, frozenset), lambda value: frozenset(map(key_of, value))),
    **dict.fromkeys((datetime, time), _in_utc),
    Decimal: lambda value: _NO_DECIMAL if value.is_nan() else value,
}
