"""Record types whose own code changes values or raises, and strategies for records of all of them.

Each call of their code is noted in `effects`. Code of a record may run where a test makes the
record, and nowhere else.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from datetime import datetime
from enum import Enum, IntFlag
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import attrs
import msgspec
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, field_validator
from pydantic.dataclasses import dataclass as pydantic_dataclass

from tests.runtime.field_values import hashables, values

effects: list[str] = []  # which code of records has run
T = TypeVar("T")


class Paint(Enum):
    RED = "red"
    CRIMSON = "red"  # noqa: PIE796  (an alias)
    NAN = float("nan")  # which equals nothing, itself included

    @classmethod
    def _missing_(cls, value: object) -> Paint:  # noqa: ARG003
        effects.append("_missing_")
        return cls.RED


class Mode(IntFlag):
    READ = 1
    WRITE = 2

    @classmethod
    def _missing_(cls, value: Any) -> Any:
        effects.append("_missing_")
        return super()._missing_(value)


@dataclass
class Celsius:
    """Converts."""

    value: Any
    degrees: float = 0.0

    def __post_init__(self) -> None:
        effects.append("__post_init__")
        self.degrees = (self.degrees - 32) * 5 / 9


@dataclass(frozen=True)
class Frozen:
    value: Any
    name: str = "a"

    def __post_init__(self) -> None:
        effects.append("__post_init__")
        object.__setattr__(self, "name", f"{self.name}!")


@dataclass(slots=True)
class Slotted:
    """Converts whenever a field is set."""

    value: Any
    count: int = 1

    def __setattr__(self, name: str, value: Any) -> None:
        effects.append("__setattr__")
        object.__setattr__(self, name, value + 1 if name == "count" else value)


@dataclass(frozen=True, slots=True)
class FrozenSlotted:
    value: Any
    parsed: Any = "2024-01-01"

    def __post_init__(self) -> None:
        effects.append("__post_init__")
        object.__setattr__(self, "parsed", datetime.fromisoformat(self.parsed))  # once


@dataclass(kw_only=True)
class Named:
    value: Any
    words: list[str] = field(default_factory=list)

    def __setattr__(self, name: str, value: Any) -> None:
        effects.append("__setattr__")
        self.__dict__[name] = value


@dataclass
class Helped:
    value: Any
    scale: InitVar[int] = 2
    doubled: Any = field(init=False)
    constant: int = field(init=False, default=7)  # stays in the class

    def __post_init__(self, scale: int) -> None:
        effects.append("__post_init__")
        self.doubled = [self.value] * scale


@dataclass
class Child(Slotted):
    """Has slots, a dictionary, a cached property, and a constructor of another shape."""

    extra: tuple[Any, ...] = ()

    def __init__(self, source: Any) -> None:
        effects.append("__init__")
        self.value, self.count, self.extra = source, 1, (source,)

    @cached_property
    def shown(self) -> str:
        return "shown"


class Scaled:
    """A descriptor that converts what is set and what is read."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, record: Any, owner: type | None = None) -> Any:
        if record is None:
            return 1
        effects.append("__get__")
        return vars(record)[self.name] * 10

    def __set__(self, record: Any, value: int) -> None:
        effects.append("__set__")
        vars(record)[self.name] = value * 100


@dataclass
class Described:
    value: Any
    scaled: int = Scaled()  # type: ignore[assignment]


@dataclass
class Box(Generic[T]):
    value: T

    def __new__(cls, value: Any) -> Box[Any]:  # noqa: ARG004
        effects.append("__new__")
        return super().__new__(cls)


@dataclass
class Watched:
    """Converts whenever a field is read, and says how it is pickled."""

    value: Any

    def __getattribute__(self, name: str) -> Any:
        if name == "value":
            effects.append("__getattribute__")
            return None
        return object.__getattribute__(self, name)

    def __reduce__(self) -> Any:
        effects.append("__reduce__")
        return Watched, (None,)


class _Pair(NamedTuple):
    value: Any
    count: int = 0


class Pair(_Pair):
    """A NamedTuple with a constructor of its own."""

    __slots__ = ()

    def __new__(cls, value: Any, count: int = 0) -> Pair:
        effects.append("__new__")
        return super().__new__(cls, value, count + 1)


@pydantic_dataclass
class Price:
    value: Any
    cents: int = 1

    @field_validator("cents")
    @classmethod
    def to_cents(cls, euros: int) -> int:
        effects.append("validator")
        return euros * 100


@dataclass
class Shape(Generic[T]):
    """Names the record types that any other field may have."""

    one: T | None
    many: list[
        Celsius | Frozen | Slotted | FrozenSlotted | Named | Helped | Child | Described | Box[Any]
    ]
    others: dict[str, Watched | Pair | Price | Paint | Mode] = field(default_factory=dict)

    def __post_init__(self) -> None:
        effects.append("__post_init__")


@attrs.define
class Sold:
    """Converts when it is made, and whenever a field is set."""

    value: Any
    _count: int = attrs.field(
        default=1, converter=lambda number: effects.append("converter") or number + 1
    )
    more: list[Any] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        effects.append("__attrs_post_init__")
        self.more = [self.value]


@attrs.frozen(slots=False)
class Kept:
    value: Any

    def __attrs_post_init__(self) -> None:
        effects.append("__attrs_post_init__")


class Packed(msgspec.Struct):
    value: Any
    count: int = 1

    def __post_init__(self) -> None:
        effects.append("__post_init__")
        self.count += 1


class Locked(msgspec.Struct, frozen=True, kw_only=True, tag=True, rename="camel"):
    value: Any
    other_value: Any = None

    def __post_init__(self) -> None:
        effects.append("__post_init__")


class Model(BaseModel):
    model_config = ConfigDict(validate_assignment=True)
    value: Any
    cents: int = 1

    @field_validator("cents")
    @classmethod
    def to_cents(cls, euros: int) -> int:
        effects.append("validator")
        return euros * 100

    @cached_property
    def shown(self) -> str:
        return "shown"


class Settled(BaseModel, frozen=True):
    value: Any

    def model_post_init(self, context: Any, /) -> None:
        effects.append("model_post_init")


KINDS: tuple[type[Any], ...] = (
    *(Celsius, Frozen, Slotted, FrozenSlotted, Named, Helped, Child, Described, Box, Watched),
    *(Pair, Price),
)
OF_LIBRARIES: tuple[type[Any], ...] = (Sold, Kept, Packed, Locked, Model, Settled)
enums = st.sampled_from([*Paint, *Mode, Mode.READ | Mode.WRITE, Mode(0), Mode(8)])


def made_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Records of every type with such a value."""
    return st.one_of(
        *(inner.map(kind) for kind in KINDS if kind not in (Named, Box, Watched, Described)),
        inner.map(lambda value: Named(value=value, words=["a"])),
        inner.map(Box[int]),  # type: ignore[arg-type]
        inner.map(Watched),
        st.builds(Described, inner, st.integers(0, 9)),
    )


records = made_of(st.one_of(values, hashables, enums))
nested = st.recursive(
    records,
    lambda inner: made_of(
        inner
        | st.lists(inner, max_size=2)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=3,
)


def of_libraries(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Records of attrs, msgspec and pydantic with such a value."""
    return st.one_of(
        st.builds(Sold, inner, count=st.integers(0, 9)),
        inner.map(Kept),
        inner.map(Packed),
        st.builds(Locked, value=inner, other_value=inner),
        st.builds(Model, value=inner, cents=st.integers(0, 9)),
        st.builds(Settled, value=inner),
    )


of_any_library = of_libraries(st.one_of(values, hashables, enums, nested)) | made_of(
    of_libraries(values)
)


def names_of(kind: Any) -> list[str] | None:
    """The fields of a class that is no tuple; None: it is no record type."""
    if (attributes := getattr(kind, "__attrs_attrs__", None)) is not None:
        return [attribute.name for attribute in attributes]
    for name in ("__dataclass_fields__", "__struct_fields__", "model_fields"):
        if hasattr(kind, name):
            return [*getattr(kind, name)]
    return None


def stored(value: Any) -> Any:
    """Everything in a value, with its type and class object, read without code of its class."""
    kind = type(value)
    if isinstance(value, Enum):
        return kind, value._name_, value._value_, id(value) if value._name_ else None
    if isinstance(value, dict):
        return kind, [(stored(name), stored(item)) for name, item in value.items()]
    if isinstance(value, set | frozenset):
        return kind, sorted(repr(stored(item)) for item in value)
    if isinstance(value, tuple | list):
        return kind, [stored(item) for item in kind.__mro__[-2].__iter__(value)]
    if (names := names_of(kind)) is not None:
        return kind, {name: stored(read(value, name)) for name in names}
    return kind, repr(value)


def read(record: Any, name: str) -> Any:
    """A field of a dataclass where it is stored."""
    within = object.__getattribute__(record, "__dict__") if type(record).__dictoffset__ else {}
    if name in within:
        return within[name]
    for base in type(record).__mro__:
        if name in vars(base):
            attribute = vars(base)[name]
            is_slot = type(attribute).__name__ == "member_descriptor"
            return attribute.__get__(record) if is_slot else attribute
    return None  # an InitVar
