"""Pickles and copies values without running code of records: for transfers, savepoints, checks.

Classes that are no records are pickled as they say (`__reduce__`, `__getstate__`).
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Container
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, TypeVar

from sunshower.records import EVERYTHING, reduced

T = TypeVar("T")
_SHARED = (type, FunctionType, BuiltinFunctionType, ModuleType)


def pickled_copy(value: T, declared: Container[type[Any]] = ()) -> T:
    """A copy that shares nothing mutable but code (classes, functions, modules); records and Enums
    are copied without running code of their classes. Raises what pickling raises."""
    shared: list[Any] = []
    file = io.BytesIO()
    _Copier(file, shared, declared).dump(value)
    file.seek(0)
    copied: T = _CopyReader(file, shared).load()
    return copied


def picture(value: Any) -> bytes:
    """Bytes that differ if a record, or a value within it, has changed. Raises what pickling
    raises."""
    file = io.BytesIO()
    _Copier(file, [], EVERYTHING).dump(value)
    return file.getvalue()


def packed(value: Any, declared: Container[type[Any]] = ()) -> bytes:
    """A pickled value, which `pickle.loads` builds without code of records and Enums. Raises what
    pickling raises."""
    file = io.BytesIO()
    _Pickler(file, declared).dump(value)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    def __init__(self, file: Any, declared: Container[type[Any]]) -> None:
        super().__init__(file)
        self._declared = declared

    def reducer_override(self, obj: Any) -> Any:
        return reduced(obj, self._declared)


class _Copier(_Pickler):
    def __init__(self, file: Any, shared: list[Any], declared: Container[type[Any]]) -> None:
        super().__init__(file, declared)
        self._shared = shared

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, _SHARED):
            return None
        self._shared.append(obj)
        return len(self._shared) - 1


class _CopyReader(pickle.Unpickler):
    def __init__(self, file: Any, shared: list[Any]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, pid: Any) -> Any:
        return self._shared[pid]
