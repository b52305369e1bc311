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
import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cached_property
from itertools import islice, zip_longest
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    ModuleType,
    UnionType,
)
from typing import Any, NamedTuple, Union, get_args, get_origin

from sunshower.errors import StateMismatch
from sunshower.record_types import hints_of, is_record
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


def may_be_long(annotation: Any) -> bool:
    """Whether a value of this annotation may have many elements; False for scalars, Enums, and
    records of such fields."""
    if annotation in _LEAVES or annotation is None:
        return False
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return False
    if get_origin(annotation) in (Union, UnionType):
        return any(map(may_be_long, get_args(annotation)))
    if not is_record(annotation):
        return True
    fields = hints_of(annotation).values()
    return annotation in fields or any(map(may_be_long, fields))


def flat_length(plain: Any, unchanging: Collection[str]) -> int:
    """How many elements a converted value has that is a list or a dictionary of elements that
    cannot change, or a record with such fields; 0 for another value. Two places may have the same
    changeable element: it becomes two when the value is copied, and not when it is lent. The order
    of a set is another one in a copy. `unchanging`: marks of records that cannot change."""
    mark = _mark_of(plain)
    fields = [*plain[mark].values()] if mark[:1] == "<" and type(plain[mark]) is dict else [plain]
    length = 0
    for part in fields:
        elements = _elements(part)
        if not _LEAVES.issuperset(map(type, elements)) and not all(
            cannot_change(element, unchanging) for element in elements
        ):
            return 0
        length += len(elements)
    return length


def cannot_change(plain: Any, unchanging: Collection[str]) -> bool:
    """Whether a converted value is of a type whose objects cannot change."""
    if type(plain) in _LEAVES:
        return True
    if type(plain) is tuple:
        return all(cannot_change(element, unchanging) for element in plain)
    if (mark := _mark_of(plain)) not in unchanging:
        return False
    fields = plain[mark].values() if type(plain[mark]) is dict else ()  # an Enum has none
    return all(cannot_change(element, unchanging) for element in fields)


def _mark_of(plain: Any) -> str:
    return str(next(iter(plain))) if type(plain) is dict and len(plain) == 1 else ""


def _elements(plain: Any) -> list[Any]:
    if type(plain) is list:
        return plain
    if type(plain) is not dict or (mark := _mark_of(plain))[:1] == "<":
        return [plain]
    pairs = plain[mark] if mark in ("(dict)", "(Counter)") else plain.items()
    return [element for pair in pairs for element in pair]


class Additions:
    """Finds what a call has added at the end of a value that is a list or a dictionary, or of the
    lists and dictionaries in the fields of a record; and what is new in its fields."""

    def __init__(self, value: Any) -> None:
        self._before = [(part, len(part) if _has_elements(part) else 0) for part in _parts(value)]

    def in_value(self, value: Any) -> Iterator[Any]:
        """What is new in the value, as the call has left it. A list that is in two fields is new
        itself."""
        parts = _parts(value)
        part: Any
        pairs = zip_longest(parts, self._before, fillvalue=(None, 0))
        for number, (part, (old, length)) in enumerate(pairs):
            if not _has_elements(part):
                if part is not old:
                    yield part
            elif any(part is other for other in parts[:number]):
                yield part
            elif type(part) is list:
                yield from part[length if part is old else 0 :]
            else:
                more = len(part) - (length if part is old else 0)
                yield from islice(reversed(part.items()), max(more, 0))


def _has_elements(part: Any) -> bool:
    return type(part) is list or isinstance(part, dict)


def _parts(value: Any) -> list[Any]:
    """The value, or those in its fields."""
    if is_record(type(value)):
        return [*record_class(type(value)).values(value)]
    return [value]


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
        is_plain = kind not in self._classes and is_record(kind)
        return is_plain and _LEAVES.issuperset(map(type, record_class(kind).values(record)))

    def giver(self, record: Any) -> Callable[[], Any] | None:
        """A function that returns the record as it is now, for each call another one unless it
        cannot change; None: it may have a part in common with other records."""
        if isinstance(record, tuple):
            return (lambda: record) if _LEAVES.issuperset(map(type, record)) else None
        if not is_record(kind := type(record)):
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
_OF_CLASSES = {*_MODULES, "_collections_abc", "abc", "reprlib"}  # with methods of records
_EFFECTS = {  # names in these modules, and attributes, that are more than a result of arguments
    *("breakpoint", "compile", "eval", "exec", "globals", "id", "input", "locals", "open", "print"),
    *("__import__", "vars", "now", "today", "utcnow", "uuid1", "uuid4", "getcontext", "setcontext"),
    *("localcontext", "cache", "lru_cache", "count", "cycle", "setattr", "delattr", "getattr"),
    *("__dict__", "__globals__", "__setattr__", "__class__", "fromtimestamp", "astimezone"),
    *("methodcaller", "attrgetter", "samples", "object", "uuid6", "uuid7", "uuid8"),
}


@dataclass
class _AnyRecord:
    """Has what Python adds to each record."""


class _AnyRow(NamedTuple):
    """Likewise."""


class _AnyChoice(Enum):
    """Likewise."""


_ADDED = {"__orig_bases__", "__parameters__", "__abstractmethods__", "_abc_impl", "__slotnames__"}
_ADDED |= {*vars(_AnyRecord), *vars(_AnyRow), *vars(_AnyChoice)} - {"__new__"}
_DESCRIPTORS = {MemberDescriptorType, GetSetDescriptorType, type(vars(Call)["run"])}
_FIELDS_OF_STATES = {"value", "timer"}


def purity_of(functions: Iterable[Any], classes: Iterable[type[Any]]) -> bool:
    """Whether functions, and methods of classes whose objects they are handed, do the same again,
    and keep nothing. They do if all that they name does: functions, classes of records, and much of
    Python itself. They may name no constant of their module, or of a function around them, because
    others may bind the name anew."""
    classes = tuple(classes)
    seen = _Seen()
    return all(map(seen.is_pure, [*functions, *classes])) and seen.assigned <= seen.fields


@dataclass
class _Seen:
    ids: set[int] = field(default_factory=set)
    assigned: set[str] = field(default_factory=set)  # the names of attributes that are assigned
    fields: set[str] = field(default_factory=lambda: {*_FIELDS_OF_STATES})  # of records

    def is_pure(self, value: Any) -> bool:
        if type(value) in _LEAVES or id(value) in self.ids:
            return True
        self.ids.add(id(value))
        if isinstance(value, FunctionType):
            return self._is_pure_function(value)
        if isinstance(value, tuple | frozenset):
            return all(map(self.is_pure, value))
        if isinstance(value, Enum):
            return self.is_pure(type(value))
        if isinstance(value, type):
            return self._is_pure_class(value)
        if isinstance(value, BuiltinFunctionType):
            is_known = value.__module__ in _MODULES and isinstance(value.__self__, ModuleType)
            return is_known and value.__name__ not in _EFFECTS
        return False

    def _is_pure_function(self, function: FunctionType) -> bool:
        if _module_of(function) in _MODULES:
            return function.__code__.co_name not in _EFFECTS
        if function.__dict__:  # it may count in its attributes, or wraps another one
            return False
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        try:
            around = [cell.cell_contents for cell in function.__closure__ or ()]
        except ValueError:  # a name that has no value yet
            return False
        code = function.__code__
        return (
            all(map(self.is_pure, defaults))
            and all(map(self._is_pure_name, around))
            and self._is_pure_code(code, function.__globals__, code.co_freevars)
        )

    def _is_pure_name(self, value: Any) -> bool:
        return isinstance(value, FunctionType | type | BuiltinFunctionType) and self.is_pure(value)

    def _is_pure_code(self, code: CodeType, names: dict[str, Any], outer: Sequence[str]) -> bool:
        before, module = "", None
        for step in dis.get_instructions(code):
            operation, name = step.opname, step.argval
            if operation in ("CACHE", "EXTENDED_ARG"):
                continue
            if module is not None:  # only one of its names is looked at
                if operation not in ("LOAD_ATTR", "LOAD_METHOD") or name in _EFFECTS:
                    return False
                if not self._is_pure_name(getattr(module, name, None)):
                    return False
            elif _is_impure(operation, name, before, outer):
                return False
            module = None
            if operation == "LOAD_GLOBAL":
                value = names.get(name, vars(builtins).get(name))
                if isinstance(value, ModuleType) and value.__name__ in _MODULES:
                    module = value
                elif name in _EFFECTS or not self._is_pure_name(value):
                    return False
            elif operation == "STORE_ATTR":
                self.assigned.add(name)
            before = operation
        inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
        return all(self._is_pure_code(constant, names, outer) for constant in inner)

    def _is_pure_class(self, kind: type[Any]) -> bool:
        if kind.__name__ in _EFFECTS or type(kind).__module__ not in _OF_CLASSES:
            return False
        for base in kind.__mro__:
            if base.__module__ in _MODULES:
                continue
            known = [declared.name for declared in fields(base)] if is_dataclass(base) else []
            self.fields.update(known)
            for name, member in vars(base).items():
                is_default = isinstance(member, Enum) or (name in known and self.is_pure(member))
                if not (is_default or self._is_pure_member(name, member)):
                    return False
        factories = (
            [declared.default_factory for declared in fields(kind)] if is_dataclass(kind) else ()
        )
        return all(factory is MISSING or self.is_pure(factory) for factory in factories)

    def _is_pure_member(self, name: str, member: Any) -> bool:
        """A method is pure. An attribute is not, because it may change; what Python itself adds is
        not looked at."""
        if isinstance(member, staticmethod | classmethod):
            member = member.__func__
        elif isinstance(member, property | enum.property):
            changes = member.fset is not None or member.fdel is not None
            member = None if changes else member.fget
        elif isinstance(member, cached_property):
            member = member.func
        if isinstance(member, FunctionType):
            return name.startswith("__annotate") or _is_added(member) or self.is_pure(member)
        is_added = name in _ADDED and not (callable(member) and name.startswith("__"))
        return is_added or type(member) in _DESCRIPTORS


def _is_added(function: FunctionType) -> bool:
    """Whether Python itself has added a method to a class."""
    code = function.__code__
    if _module_of(function) in _OF_CLASSES:
        return True
    is_new = function.__name__ == "__new__" and code.co_name == "<lambda>"  # of a NamedTuple
    return code.co_filename == "<string>" and (is_new or code.co_qualname[:13] == "__create_fn__")


def _module_of(function: FunctionType) -> str:
    """Where a function is defined; its attribute may be that of another one, which it wraps."""
    return str(function.__globals__.get("__name__", ""))


def _is_impure(operation: str, name: Any, before: str, outer: Sequence[str]) -> bool:
    """Whether an operation changes what lives longer than the call, or reads what may change."""
    if operation in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
        return name in _EFFECTS
    if operation in ("STORE_DEREF", "DELETE_DEREF"):
        return name in outer
    if operation in ("STORE_ATTR", "COPY", "DELETE_ATTR"):  # COPY: Class.number += 1
        return before == "LOAD_GLOBAL"
    return operation != "LOAD_GLOBAL" and ("GLOBAL" in operation or "NAME" in operation)
