"""Long values that functions change in place: they are not copied for each call.

    a value ──▶ lent to a call ──▶ lent to the next …     copied after as many calls as it is long
    a call that fails ──▶ the last copy, and the calls since then once more, without their outputs

So n changes of a value of n elements take n steps, not n². It is done only where it cannot be seen:
for functions that depend on nothing but their record and their state (`purity_of`), so that they do
the same again and keep no reference to the value, and for records that have nothing in common with
it (`Outside`). Every other call gets a copy of its own.
"""

from __future__ import annotations

import builtins
import dis
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cached_property
from itertools import islice
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin

from sunshower.errors import StateMismatch
from sunshower.field_types import hints_of
from sunshower.records import record_class
from sunshower.scalars import SCALARS
from sunshower.texts import describe

LONG = 256  # elements; a shorter value is copied for each call
_LEAVES = {str, int, float, bool, bytes, type(None), *SCALARS}


# ---- values --------------------------------------------------------------------------------------


class Call(NamedTuple):
    """A call that has changed a value, as it is made again."""

    run: Callable[[Any], tuple[Any, int]]  # of the value: the value afterwards, and the outputs
    outputs: int


class Version(NamedTuple):
    """A value: a copy, and the first `done` of the calls since then."""

    copy: Any  # converted
    calls: list[Call]
    done: int


@dataclass(slots=True)
class LongValue:
    """The value of one key, which is lent to calls."""

    copy: Any  # converted
    length: int
    calls: list[Call] = field(default_factory=list)  # since the copy
    value: Any = None  # None: to be built, because a call has failed
    committed: Version | None = None  # None: it was not long at the last commit

    def now(self) -> Version:
        """What was left by the last call that has not failed."""
        return Version(self.copy, self.calls, len(self.calls))

    def back_to(self, version: Version) -> None:
        """Continue with an earlier version."""
        self.copy, self.calls, self.value = version.copy, version.calls[: version.done], None

    def is_at(self, version: Version) -> bool:
        """Whether the value is that of this version."""
        is_same = self.calls is version.calls and len(self.calls) == version.done
        return is_same and self.value is not None


def rebuilt(version: Version, build: Callable[[Any], Any], where: str) -> Any:
    """The value of a version. Raises StateMismatch if a call does something else than before."""
    value = build(version.copy)
    for call in islice(version.calls, version.done):
        try:
            value, outputs = call.run(value)
        except Exception as error:
            raise _differs(where, f"raises {describe(error)}") from error
        if outputs != call.outputs or value is None:
            raise _differs(where, f"makes {outputs} records instead of {call.outputs}")
    return value


def _differs(where: str, what: str) -> StateMismatch:
    return StateMismatch(
        f"{where}: a call has failed, and the state of its key cannot be restored: the function is "
        f"called again for the records before, and now it {what}. It must depend on nothing but "
        "its record and its state; or keep what it collects in a KeyList or KeyMap"
    )


_CONTAINERS = {list, tuple, dict, set, frozenset}


def is_long(plain: Any, depth: int = 3) -> bool:
    """Whether a converted value, or a part that is not far within, has many elements."""
    if len(plain) >= LONG:
        return True
    parts = plain.values() if type(plain) is dict else plain
    if not depth or _CONTAINERS.isdisjoint(map(type, parts)):
        return False
    return any(type(part) in _CONTAINERS and is_long(part, depth - 1) for part in parts)


def may_be_long(annotation: Any) -> bool:
    """Whether a value of this annotation may have many elements; False for scalars, Enums, and
    records of such fields."""
    if annotation in _LEAVES or annotation is None:
        return False
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return False
    if get_origin(annotation) in (Union, UnionType):
        return any(map(may_be_long, get_args(annotation)))
    if not is_dataclass(annotation) and not hasattr(annotation, "_fields"):
        return True
    fields = hints_of(annotation).values()
    return annotation in fields or any(map(may_be_long, fields))


def measure(plain: Any) -> tuple[int, bool]:
    """How many elements a converted value has, and whether there is a set."""
    size, has_set, waiting = 0, False, [plain]
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if kind in _CONTAINERS:
            size += len(value)
            waiting += value.values() if kind is dict else value
            has_set |= kind is set or kind is frozenset
            has_set |= kind is dict and ("(a set)" in value or "(a frozenset)" in value)
    return size, has_set


class Additions:
    """Finds what a call has added at the end of a value that is a list or a dictionary, or of the
    lists and dictionaries in the fields of a record; and what its other fields have."""

    def __init__(self, value: Any) -> None:
        self._lengths = [len(part) for part in _parts(value)]

    def in_value(self, value: Any) -> Iterator[Any]:
        """What is new in the value, as the call has left it."""
        parts = _parts(value)
        for part, length in zip(parts, self._lengths, strict=False):
            if type(part) is list:
                yield from part[length:]
            elif len(part) > length:
                yield from islice(reversed(part.items()), len(part) - length)
        if is_dataclass(value):
            own = record_class(type(value)).values(value)
            yield from (one for one in own if not hasattr(one, "__len__"))


def _parts(value: Any) -> list[Any]:
    """The lists and dictionaries that a value is or has in its fields."""
    if type(value) is list or isinstance(value, dict):
        return [value]
    if not is_dataclass(value) and not hasattr(value, "_fields"):
        return []
    own = record_class(type(value)).values(value)
    return [part for part in own if type(part) is list or isinstance(part, dict)]


class Outside:
    """Which records can have nothing in common with a value: they have plain values alone, and are
    tuples, or of a class that values do not have."""

    def __init__(self, classes: Iterable[type[Any]]) -> None:
        self._classes = set(classes)

    def has(self, record: Any) -> bool:
        """Whether it is such a record."""
        kind = type(record)
        if isinstance(record, tuple):
            return _LEAVES.issuperset(map(type, record))
        is_plain = kind not in self._classes and is_dataclass(kind)
        return is_plain and _LEAVES.issuperset(map(type, record_class(kind).values(record)))

    def giver(self, record: Any) -> Callable[[], Any] | None:
        """A function that returns the record as it is now, for each call another one unless it
        cannot change; None: it may have a part in common with other records."""
        if isinstance(record, tuple):
            return (lambda: record) if _LEAVES.issuperset(map(type, record)) else None
        if not is_dataclass(kind := type(record)):
            return None
        known = record_class(kind)
        values = [*known.values(record)]
        return (lambda: known.build(values)) if _LEAVES.issuperset(map(type, values)) else None


# ---- pure functions ------------------------------------------------------------------------------

_MODULES = {
    *(
        "bisect",
        "_bisect",
        "builtins",
        "collections",
        "_collections",
        "dataclasses",
        "datetime",
        "decimal",
        "enum",
    ),
    *("_decimal", "fractions", "functools", "_functools", "heapq", "_heapq", "itertools", "json"),
    *("math", "operator", "_operator", "re", "statistics", "string", "typing", "uuid"),
}
_EFFECTS = {  # names in these modules, and attributes, that are more than a result of arguments
    *("breakpoint", "compile", "eval", "exec", "globals", "id", "input", "locals", "open", "print"),
    *("__import__", "vars", "now", "today", "utcnow", "uuid1", "uuid4", "getcontext", "setcontext"),
    *("localcontext", "cache", "lru_cache", "count", "cycle", "setattr", "delattr", "getattr"),
    *("__dict__", "__globals__", "__setattr__", "__class__", "fromtimestamp", "astimezone"),
}
_PYTHON = ("<", sysconfig.get_path("stdlib"))  # files of code that is generated, or Python's own
_ORDERED = {  # builtins that see the order of a set
    *("iter", "next", "list", "tuple", "enumerate", "zip", "map", "filter", "reversed", "dict"),
    *("repr", "str", "format", "sum", "bytes", "bytearray"),
}


class Purity(NamedTuple):
    """What is known of functions."""

    is_pure: bool  # they do the same again, and keep nothing
    sees_order: bool  # perhaps that of a set, which another set with its elements need not have


def purity_of(functions: Iterable[Any], classes: Iterable[type[Any]]) -> Purity:
    """Of functions, and of methods of classes whose objects they are handed. They are pure if all
    that they name is: functions, classes of records, constants, and much of Python itself."""
    seen = _Seen()
    is_pure = all(map(seen.is_pure, [*functions, *classes]))
    return Purity(is_pure, seen.sees_order)


@dataclass
class _Seen:
    ids: set[int] = field(default_factory=set)
    sees_order: bool = False

    def is_pure(self, value: Any) -> bool:
        if type(value) in _LEAVES or id(value) in self.ids:
            return True
        self.ids.add(id(value))
        if isinstance(value, FunctionType):
            return self._is_pure_function(value)
        if isinstance(value, tuple | frozenset):
            return all(map(self.is_pure, value))
        if isinstance(value, type):
            return self._is_pure_class(value)
        if isinstance(value, ModuleType):
            return value.__name__ in _MODULES
        if isinstance(value, BuiltinFunctionType):
            is_known = value.__module__ in _MODULES and isinstance(value.__self__, ModuleType)
            return is_known and value.__name__ not in _EFFECTS
        return False

    def _is_pure_function(self, function: FunctionType) -> bool:
        if function.__module__ in _MODULES:
            return function.__name__ not in _EFFECTS
        if function.__dict__:  # it may count in its attributes, or wraps another one
            return False
        given = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        try:
            given += [cell.cell_contents for cell in function.__closure__ or ()]
        except ValueError:  # a name that has no value yet
            return False
        code = function.__code__
        return all(map(self.is_pure, given)) and self._is_pure_code(
            code, function.__globals__, code.co_freevars
        )

    def _is_pure_code(self, code: CodeType, names: dict[str, Any], outer: Sequence[str]) -> bool:
        before = ""
        for step in dis.get_instructions(code):
            operation, name = step.opname, step.argval
            if operation == "LOAD_GLOBAL":
                value = names.get(name, vars(builtins).get(name))
                if name in _EFFECTS or not self.is_pure(value):
                    return False
                self.sees_order |= name in _ORDERED or _module_of(value) in _MODULES
            elif _is_impure(operation, name, before, outer):
                return False
            self.sees_order |= operation in _IN_ORDER or name == "pop"
            before = operation
        inner = (one for one in code.co_consts if isinstance(one, CodeType))
        return all(self._is_pure_code(one, names, outer) for one in inner)

    def _is_pure_class(self, kind: type[Any]) -> bool:
        for base in kind.__mro__:
            if base.__module__ not in _MODULES:
                members = ((n, m) for n, m in vars(base).items() if not isinstance(m, kind))
                if not all(self._is_pure_member(name, member) for name, member in members):
                    return False
        factories = [one.default_factory for one in fields(kind)] if is_dataclass(kind) else ()
        return all(one is MISSING or self.is_pure(one) for one in factories)

    def _is_pure_member(self, name: str, member: Any) -> bool:
        """A method is pure, and an attribute cannot change. What Python itself adds is not looked
        at."""
        if isinstance(member, staticmethod | classmethod):
            member = member.__func__
        elif isinstance(member, property):
            member = member.fget if member.fset is None else member
        elif isinstance(member, cached_property):
            member = member.func
        if isinstance(member, FunctionType):
            return member.__code__.co_filename.startswith(_PYTHON) or self.is_pure(member)
        if name == "_field_defaults" or (name.startswith("_") and name.endswith("_")):
            return True
        is_known = type(member).__module__ in ("builtins", *_MODULES)
        return is_known and not isinstance(member, list | dict | set | bytearray | property)


def _module_of(value: Any) -> str:
    """The module of a name that is imported; empty for builtins."""
    module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    return "" if module == "builtins" else str(module)


_IN_ORDER = {"GET_ITER", "UNPACK_EX", "UNPACK_SEQUENCE"}


def _is_impure(operation: str, name: Any, before: str, outer: Sequence[str]) -> bool:
    """Whether an operation changes what lives longer than the call, or reads what may change."""
    if operation in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
        return name in _EFFECTS
    if operation in ("STORE_DEREF", "DELETE_DEREF"):
        return name in outer
    of_a_global = operation == "STORE_ATTR" and before == "LOAD_GLOBAL"
    return of_a_global or "GLOBAL" in operation or "NAME" in operation  # an import, too
