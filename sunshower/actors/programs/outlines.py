"""Reads pickled plans without their code: a class of the program is an empty one there."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from sunshower.actors.programs.program import Program
from sunshower.records import member_of

# What a master asks of a class besides its bases.
Outline = tuple[tuple[type, ...], tuple[str, ...], tuple[str, ...] | None]


def outline_of(kind: type) -> Outline:
    """The classes that it derives from, as far as they are of the program or Sunshower's, the names
    of its attributes, and the fields of a record. An Enum is a class of the program alone."""
    bases = tuple(
        base for base in kind.__bases__ if base.__module__ not in ("builtins", "typing", "enum")
    )
    fields = getattr(kind, "_fields", None) or getattr(kind, "__dataclass_fields__", None)
    names = tuple(name for name in vars(kind) if not name.startswith("__") or "sunshower" in name)
    return bases, names, tuple(fields) if fields else None


class OutlineUnpickler(pickle.Unpickler):
    """Unpickles the plan of a program without importing its modules."""

    def __init__(self, data: bytes, program: Program) -> None:
        super().__init__(io.BytesIO(data))
        self._program = program
        self._replaced: Mapping[str, Any] = {
            "_class_named": self._class,
            "_function_named": self._function,
            "_globals_of": lambda _: {},
            "import_module": ModuleType,
            "subimport": ModuleType,
            "_empty": self.empty,
            "_member": self.member,
        }

    def find_class(self, module: str, name: str) -> Any:
        if name in self._replaced:
            return self._replaced[name]
        if self._program.has(module):
            return self._function(module, name)
        return super().find_class(module, name)

    @staticmethod
    def _class(module: str, name: str, outlined: Outline) -> type:
        bases, names, fields = outlined
        ours = tuple(one for one in bases if one.__module__.startswith("sunshower.") or
                     issubclass(one, EmptyObject))  # fmt: skip
        content: dict[str, Any] = dict.fromkeys(names)
        content |= {"__module__": module, "__qualname__": name}
        if fields is not None:
            content["_fields"] = fields
            ours = ours or (tuple,)
        with_empty = (
            ours if any(issubclass(one, EmptyObject) for one in ours) else (EmptyObject, *ours)
        )
        empty: type = type(name.rpartition(".")[2], with_empty, content)
        return empty

    @staticmethod
    def empty(kind: Any, items: Any) -> Any:
        """A record: see `reduced`."""
        if issubclass(kind, EmptyObject):
            return kind()
        return object.__new__(kind) if items is None else tuple.__new__(kind, items)

    @staticmethod
    def member(kind: Any, key: Any) -> Any:
        """A member of an Enum: see `reduced`."""
        return kind() if issubclass(kind, EmptyObject) else member_of(kind)(key)

    @staticmethod
    def _function(module: str, name: str) -> Any:
        def function(*_: Any, **__: Any) -> None:
            raise AssertionError(f"{module}.{name} runs only in workers")

        function.__module__, function.__qualname__ = module, name
        function.__name__ = name.rpartition(".")[2]
        return function


class EmptyObject:
    """The objects of classes of the program, where their code is not."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        return tuple.__new__(cls) if issubclass(cls, tuple) else object.__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        """Takes anything."""

    def __setstate__(self, state: Any) -> None:
        parts = state if isinstance(state, tuple) else (state,)
        for part in parts:
            if isinstance(part, dict) and hasattr(self, "__dict__"):
                vars(self).update(part)

    def append(self, _: Any) -> None:
        """As of a list."""

    def __setitem__(self, _: Any, __: Any) -> None:
        """As of a dict."""
