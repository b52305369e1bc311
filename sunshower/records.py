"""Records (NamedTuple, dataclass, or tuples with declared fields): schema, keys, parts, rebuilding.

The constructor of a record runs once, where user code or a source makes the record. After that only
the values of its fields travel (RecordClass). A rebuilt record has the same values in the same
places, so neither `__init__`, `__post_init__`, `__new__`, `__setattr__`, a validator nor a
descriptor sees them again. A value that no field declares would be lost on the way: such a record
is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum, Flag
from functools import cached_property, lru_cache, partial
from gc import get_referents
from inspect import signature
from itertools import chain, repeat
from keyword import iskeyword
from operator import attrgetter, countOf, is_, itemgetter
from types import FunctionType, MemberDescriptorType
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast, get_args

from sunshower.errors import RecordMismatch, UnknownField, Unserialisable
from sunshower.field_types import classes_in, record_fields, with_fields
from sunshower.record_loops import plain_keys, quicken
from sunshower.record_types import ModelClass, StructClass, hints_of, is_record, record_type_of
from sunshower.texts import did_you_mean
from sunshower.value_types import DEPTH_MAX, KEYS_THEMSELVES, LEAVES, itself
from sunshower.value_types import DictKey as DictKey  # noqa: PLC0414  (savepoints find it here)
from sunshower.value_types import key_of as key_of  # noqa: PLC0414

RecordType: TypeAlias = type[Any]

_NO_PROPERTY = (FunctionType, staticmethod, classmethod, type)
_HOOKS = (
    *("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__"),
    *("__getnewargs__", "__getnewargs_ex__"),
)
_DICT = attrgetter("__dict__")
_ABSENT = object()
T = TypeVar("T")


class _Everything:
    """Contains every class."""

    def __contains__(self, kind: object) -> bool:
        return True


EVERYTHING = _Everything()


def keys_of_rows(
    getters: Sequence[Callable[[Any], Any]],
    key: Callable[[Any], Any],
    rows: Sequence[Any],
    place: int | None = None,
) -> Iterable[Any]:
    """`key_of(key(row))` of each row; `getters` get the values that the key is made of, one by one.
    Values that are keys already cost one look at their types. `place`: of the only one in a tuple.
    """
    if place is not None and type(rows) is list:
        plain = plain_keys(rows, place)
        if plain is not None:
            return plain
    keys = [*map(key, rows)]
    columns = [keys] if len(getters) == 1 else [map(get, rows) for get in getters]
    if all(KEYS_THEMSELVES.issuperset(map(type, values)) for values in columns):
        return keys
    return map(key_of, keys)


def is_table(records: Any) -> bool:
    """Whether records are an Arrow table, rather than a sequence."""
    return not isinstance(records, Sequence)


def prepare_tables() -> None:
    """Load what converting rows to Arrow tables needs, so that the first batch does not wait for
    it: pyarrow imports pandas, if it is installed, when it first converts a list (0.3 s)."""
    import pyarrow as pa

    pa.array([])


def rows_of(values: Any, width: int) -> Iterable[tuple[Any, ...]]:
    """Tuples of `width` values each; undoes `Schema.flat`. Raises ValueError if some are left."""
    if type(values) is not list or type(width) is not int or width < 1 or len(values) % width:
        raise ValueError(f"these are not rows of {width} values")
    if len(values) == width:  # half the time of zip
        return (tuple(values),)
    return zip(*[iter(values)] * width, strict=True)


@dataclass(frozen=True)
class Schema:
    """The fields of one stream's records, in order, and their class.

    `type` is a record type (`sunshower.record_types`), or `tuple` for plain tuples with declared
    fields.
    `classes` are the Enums and record types that annotations name: those of `type`, within `type`.
    """

    fields: tuple[str, ...]
    type: RecordType = tuple
    classes: tuple[RecordType, ...] = ()

    @classmethod
    def of(cls, record_type: RecordType) -> Schema:
        """Return the schema of a record type.

        Raises RecordMismatch for other classes, for a class without fields, for one whose records
        cannot be rebuilt (see `record_fields`), and for a field whose values cannot travel to
        another process.
        """
        fields = with_fields(record_type, record_fields(record_type))
        return cls(fields, record_type, classes_in(record_type, record_type.__name__))

    @property
    def name(self) -> str:
        """The schema as text: `Word(word)` or `(word, count)`."""
        label = "" if self.type is tuple else self.type.__name__
        return f"{label}({', '.join(self.fields)})"

    @property
    def is_tuple(self) -> bool:
        """Whether records are tuples (plain or named) rather than other objects."""
        return issubclass(self.type, tuple)

    @cached_property
    def instances(self) -> RecordType:
        """The class of the records: `type`, or dict for a TypedDict."""
        known = record_type_of(self.type)
        return self.type if known is None else known.instances

    @property
    def own_class(self) -> tuple[RecordType, ...]:
        """The class of records within values of other records; none for tuples and dictionaries."""
        return (self.type,) if is_record(self.type) else ()

    def kind(self, field: str) -> Any:
        """The annotation of a field; Any if that is not known."""
        return Any if self.type is tuple else hints_of(self.type).get(field, Any)

    def check_field(self, field: str, where: str) -> None:
        """Raise UnknownField, which lists the fields, unless the schema has `field`."""
        if field not in self.fields:
            raise UnknownField(
                f"{where}: there is no field {field!r}; its fields are: {', '.join(self.fields)}"
                f"{did_you_mean(field, self.fields)}"
            )

    def key(self, fields: Sequence[str]) -> Callable[[Any], Any]:
        """Return a getter of `fields` from a record: one value, or a tuple of several."""
        if self.is_tuple:
            return itemgetter(*(self.fields.index(field) for field in fields))
        known = record_class(self.type)
        if known.is_custom:  # the values as they are stored, which are those that travel
            places = itemgetter(*(self.fields.index(field) for field in fields))
            return lambda record: places(known.values(record))
        return itemgetter(*fields) if self.instances is dict else attrgetter(*fields)

    def keys(self, fields: Sequence[str], rows: Sequence[Any]) -> Iterable[Any]:
        """The keys (see `key_of`) of records: of one field, or a tuple of several."""
        getters = [self.key([field]) for field in fields]
        place = self.fields.index(fields[0]) if self.is_tuple and len(fields) == 1 else None
        return keys_of_rows(getters, self.key(fields), rows, place)

    def fits(
        self, records: Sequence[Any], kinds: set[RecordType], *, widths_fit: bool = False
    ) -> bool:
        """Whether all `records`, whose types are `kinds`, fit; at C speed, 20 to 40 ns a record, 90
        for a dataclass without slots. `widths_fit`: plain tuples are known to have its width."""
        if not kinds <= {self.instances}:
            return False
        if self.type is tuple:
            width = len(self.fields)
            fit = widths_fit or countOf(map(len, records), width) == len(records)
            return fit and not (self._holds_checked and problem_in(records))
        known = record_class(self.type)
        return not known.is_checked or known.first_bad(records) is None

    def misfit(self, records: Sequence[Any]) -> int | None:
        """Return the index of the first record that does not fit, or None when all do."""
        kind = self.type
        if len(records) == 1 and type(records[0]) is self.instances and kind is not tuple:
            known = record_class(kind)
            if not known.is_checked:
                return None
            if known.is_simple and len(records[0].__dict__) == known.width:
                return None  # in half of the time
            return known.first_bad(records)
        if self.fits(records, set(map(type, records))):
            return None
        for index, record in enumerate(records):
            if not self.fits([record], {type(record)}):
                return index
        return None

    def loss(self, record: Any) -> str:
        """Why a record that is of this type does not fit: what of it would be lost on the way to
        another process, and the remedy. Empty: it is of another type."""
        if type(record) is not self.instances:
            return ""
        return problem_in(record) if self.type is tuple else record_class(self.type).problem(record)

    def remedy(self, record: Any) -> str:
        """What to do about a record of another type, or length."""
        if self.type is not tuple:
            return f"make a {self.type.__name__} of it"
        if type(record) is tuple:
            return f"it has {len(record)} values"
        if is_record(kind := type(record)):
            return f"declare fields={kind.__name__}, or make a tuple of its values"
        return f"a record is a tuple here, as in ({', '.join(self.fields)},)"

    @property
    def _holds_checked(self) -> bool:
        """Whether plain tuples may hold records that are checked."""
        return bool(self.classes) and any(map(may_hold_checked, self.classes))

    def rows(self, records: Sequence[Any]) -> Sequence[Any]:
        """Return records as tuples of their values, for the wire; tuples are unchanged."""
        if self.type is tuple or record_class(self.type).is_plain_tuple:
            return records
        return list(map(tuple, map(record_class(self.type).values, records)))

    def flat(self, records: Sequence[Any]) -> list[Any]:
        """The values of all records in one list, for the wire."""
        if self.type is tuple:
            if len(self.fields) == 1:
                with suppress(ValueError):  # a record has another width
                    return [value for (value,) in records]
            return list(chain.from_iterable(records))
        known = record_class(self.type)
        if known.is_plain_tuple:
            return list(chain.from_iterable(records))
        if len(self.fields) == 1 and not known.is_tuple and known.is_of_attributes:
            return list(map(attrgetter(self.fields[0]), records))
        return list(chain.from_iterable(map(known.values, records)))

    def table(self, rows: Any) -> Any:
        """Records as an Arrow table with the fields as columns; a table is returned as it is."""
        if is_table(rows):
            return rows
        import pyarrow as pa

        columns = zip(*self.rows(rows), strict=True) if len(rows) else ([] for _ in self.fields)
        return pa.table([pa.array(list(column)) for column in columns], names=list(self.fields))

    def rows_of_table(self, table: Any) -> list[Any]:
        """The records of an Arrow table; the inverse of `table`. No constructor runs."""
        return self.build(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def records(self, rows: Sequence[Any]) -> Sequence[Any]:
        """Rows as records: as they are, or built if they came from another worker as sequences."""
        return rows if not rows or type(rows[0]) is self.instances else self.build(rows)

    def build(self, rows: Iterable[Sequence[Any]]) -> list[Any]:
        """Rebuild records from sequences of their values, without their constructor; the inverse of
        `rows`."""
        if self.type is tuple:
            return _tuples(rows)
        return record_class(self.type).build_all(rows)

    def make(self, rows: Iterable[Sequence[Any]]) -> list[Any]:
        """New records with these values of their fields, which operators have computed. Raises what
        their constructor raises."""
        if self.type is tuple:
            return _tuples(rows)
        return record_class(self.type).make_all(rows)


@dataclass(frozen=True)
class ConnectedSchema(Schema):
    """The fields of rows of which the last value is a record of any of several streams."""

    each: tuple[Schema, ...] = ()  # of one of the streams

    @property
    def name(self) -> str:
        return " or ".join(schema.name for schema in self.each)


def _tuples(rows: Iterable[Sequence[Any]]) -> list[Any]:
    return list(rows) if type(rows) is zip else list(map(tuple, rows))


# ---- classes of records -------------------------------------------------------------------------


def _is_made_by_namedtuple(kind: type) -> bool:
    """Whether the constructor of a NamedTuple is the one that namedtuple() has made."""
    code = getattr(kind.__new__, "__code__", None)
    return code is not None and code.co_filename == "<string>"


class RecordClass:
    """How records of one class are taken apart, checked and rebuilt; `record_class` makes it."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.fields = record_fields(kind)
        self.described = cast("Any", record_type_of(kind))
        self.is_tuple = issubclass(kind, tuple)
        self.width = len(self.fields)
        self._has_dict = bool(kind.__dictoffset__)
        on_class = {name: _class_attribute(kind, name) for name in self.fields}
        self._slots = {
            name: attribute
            for name, attribute in on_class.items()
            if isinstance(attribute, MemberDescriptorType)
        }
        # Reading these fields by name would run code of the class, or of a descriptor.
        self.is_custom = kind.__getattribute__ is not object.__getattribute__ or any(
            name not in self._slots and hasattr(type(attribute), "__get__")
            for name, attribute in on_class.items()
        )
        self._defaults_on_class = {
            name: attribute
            for name, attribute in on_class.items()
            if attribute is not _ABSENT and not hasattr(type(attribute), "__get__")
        }
        self._other_slots = {
            name: slot
            for base in kind.__mro__
            for name, slot in vars(base).items()
            if isinstance(slot, MemberDescriptorType)
            and name not in self.fields
            and not _is_dunder(name)
        }
        if self.is_tuple:
            self.values, self.build = _tuple_values(kind), partial(tuple.__new__, kind)
            self.build_all = self._build_tuples
            self._may_be_incomplete = False
            if self.is_made_as_tuple and _is_made_by_namedtuple(kind):
                quicken(kind, self.width)
        else:
            self.values = self._custom_values if self.is_custom else _getter(self.fields)
            self.build, self.build_all = self._compiled()
            self._may_be_incomplete = self.described.may_be_incomplete

    def __reduce__(self) -> Any:
        """By its class: a plan has it, and its functions are those of one process."""
        return _known_class, (self.kind,)

    # ---- rebuilding -----------------------------------------------------------------------------

    values: Callable[[Any], Sequence[Any]]  # of the fields, in order; AttributeError: one is absent
    build: Callable[[Sequence[Any]], Any]  # the inverse
    build_all: Callable[[Iterable[Sequence[Any]]], list[Any]]  # of many

    def _build_tuples(self, rows: Iterable[Sequence[Any]]) -> list[Any]:
        # Half the time of type._make (85 against 170 ns a record).
        return list(map(tuple.__new__, repeat(self.kind), rows))

    def make_all(self, rows: Iterable[Sequence[Any]]) -> list[Any]:
        """New records with these values. Raises what the constructor raises."""
        if self.is_made_as_tuple:
            return self.build_all(rows)
        if self._takes_positions:
            return [self.kind(*row) for row in rows]
        names = [self.described.parameters.get(name, name) for name in self.fields]
        return [self.kind(**dict(zip(names, row, strict=True))) for row in rows]

    def message(self, record: Any) -> Mapping[str, Any]:
        """A record as JSON has it, name → value. Raises TypeError if its library refuses it."""
        if self.is_custom:  # the values as they are stored
            return dict(zip(self.fields, self.values(record), strict=True))
        message: Mapping[str, Any] = self.described.message(record)
        return message

    @cached_property
    def is_plain_tuple(self) -> bool:
        """Whether records can be read as tuples."""
        return self.is_tuple and self.kind.__iter__ is tuple.__iter__

    @cached_property
    def is_frozen(self) -> bool:
        """Whether the values of its fields cannot be replaced."""
        return bool(self.described.is_frozen)

    @cached_property
    def is_of_attributes(self) -> bool:
        """Whether an attribute of the record has the value of each field."""
        return not self.is_custom and self.described.instances is self.kind

    @cached_property
    def is_made_as_tuple(self) -> bool:
        """Whether it is a NamedTuple without a constructor of its own."""
        base = next(base for base in self.kind.__mro__ if "__new__" in vars(base))
        return self.is_tuple and "_fields" in vars(base) and "__init__" not in vars(self.kind)

    @cached_property
    def _takes_positions(self) -> bool:
        """Whether the constructor takes the fields by position."""
        parameters = signature(self.kind).parameters
        return tuple(parameters) == self.fields and all(
            parameter.kind is not parameter.KEYWORD_ONLY for parameter in parameters.values()
        )

    def build_named(self, values: Mapping[str, Any]) -> Any:
        """The record with these values; of fields that are absent, with their defaults. Raises
        TypeError for other names, and for a field without a default."""
        if unknown := values.keys() - {*self.fields}:
            name = min(unknown)
            hint = did_you_mean(name, self.fields)
            raise TypeError(f"{self.kind.__name__} has no field {name!r}{hint}")
        if len(values) < len(self.fields):
            missing = [name for name in self.fields if name not in values]
            if needed := [name for name in missing if name not in self.defaults]:
                raise TypeError(f"{self.kind.__name__} without {', '.join(needed)}")
            values = {**values, **{name: self.defaults[name]() for name in missing}}
        return self.build([values[name] for name in self.fields])

    @property
    def defaults(self) -> Mapping[str, Callable[[], Any]]:
        """The fields with a default, and functions that return it."""
        defaults: Mapping[str, Callable[[], Any]] = self.described.defaults
        return defaults

    def _compiled(self) -> tuple[Callable[[Any], Any], Callable[[Any], list[Any]]]:
        """`build` and `build_all`, compiled as dataclasses compiles `__init__`: a loop over the
        fields takes twice as long as the constructor."""
        kind = self.kind
        names: dict[str, Any] = {"new": _blank(kind), "dict_of": _dict_of}
        steps = ["record = new()"]
        stores, uses_dict = list[str](), False
        by_name = kind.__setattr__ is object.__setattr__ and not self.is_custom
        for index, field in enumerate(self.fields):
            in_slot = field in self._slots
            if not in_slot and not self._has_dict:
                continue  # the value is that of the class
            if by_name and field.isidentifier() and not iskeyword(field):
                stores.append(f"record.{field} = v{index}")
            elif in_slot:
                names[f"set{index}"] = self._slots[field].__set__
                stores.append(f"set{index}(record, v{index})")
            else:
                uses_dict = True
                stores.append(f"stored[{field!r}] = v{index}")
        values = "".join(f"v{index}, " for index in range(len(self.fields)))
        if uses_dict:
            steps.append(f"stored = {'dict_of(record)' if self.is_custom else 'record.__dict__'}")
        steps += stores
        source = [
            "def build(row):",
            f"    ({values}) = row",
            *(f"    {step}" for step in steps),
            "    return record",
            "def build_all(rows):",
            "    records = []",
            "    append = records.append",
            f"    for ({values}) in rows:",
            *(f"        {step}" for step in steps),
            "        append(record)",
            "    return records",
        ]
        exec("\n".join(source), names)  # noqa: S102  (names of fields, nothing else)
        return names["build"], names["build_all"]

    def _custom_values(self, record: Any) -> list[Any]:
        """The values where they are stored, without descriptors and `__getattribute__`."""
        stored, custom = _dict_of(record) if self._has_dict else {}, []
        for name in self.fields:
            if (slot := self._slots.get(name)) is not None:
                custom.append(slot.__get__(record))
            elif name in stored:
                custom.append(stored[name])
            elif name in self._defaults_on_class:
                custom.append(self._defaults_on_class[name])
            else:
                raise AttributeError(f"{self.kind.__name__} has no value of its field {name!r}")
        return custom

    # ---- checks ---------------------------------------------------------------------------------

    @cached_property
    def _has_own_values(self) -> bool:
        return self._has_dict or bool(self._other_slots) or self._may_be_incomplete

    @cached_property
    def is_checked(self) -> bool:
        """Whether a value of a record can be lost on the way; if not, `problem` is empty."""
        return self._has_own_values or bool(self._nested)

    @cached_property
    def _nested(self) -> tuple[int, ...]:
        """The positions of the fields that may hold records to be checked."""
        hints = hints_of(self.kind)
        return tuple(
            index
            for index, name in enumerate(self.fields)
            if may_hold_checked(hints.get(name, Any))
        )

    def first_bad(self, records: Sequence[Any]) -> int | None:
        """The index of the first record with a value that would be lost on the way; None: none."""
        if len(records) == 1:
            return 0 if self.problem(records[0]) else None
        are_complete = not self._has_own_values or self._are_complete(records)
        if are_complete and not (self._nested and self._hold_any_bad(records)):
            return None
        for index, record in enumerate(records):
            if self.problem(record):
                return index
        return None

    def _hold_any_bad(self, records: Sequence[Any]) -> bool:
        """Whether a value in their fields is, or has within it, a record with a problem."""
        rows = records if self.is_plain_tuple else [*map(self.values, records)]
        return any(_have_problem([row[index] for row in rows]) for index in self._nested)

    def problem(self, record: Any, depth: int = 0) -> str:
        """What of a record would be lost on the way, and what to do; empty: nothing."""
        if why := self.own_problem(record):
            return why
        if not self._nested or depth > DEPTH_MAX:
            return ""
        values = self.values(record)
        return next(
            filter(None, (_problem_in(values[index], depth + 1) for index in self._nested)), ""
        )

    def _are_complete(self, records: Sequence[Any]) -> bool:
        """Whether all have as many values as fields; False: perhaps not. It takes 50 ns for each
        record; reading its `__dict__` takes 200, and makes later accesses slower."""
        if not self._is_countable:
            return False
        width = self.width
        # Of each record: its values and its class; or its dictionary, once that was accessed, and
        # its class, which is as much as one value.
        referents = get_referents(*records) if width > 1 else []
        classes = referents[width :: width + 1]
        if len(referents) == len(records) * (width + 1) and all(
            map(is_, classes, repeat(self.kind))
        ):
            return True
        return countOf(map(len, map(_DICT, records)), width) == len(records)

    @cached_property
    def _is_countable(self) -> bool:
        """Whether records that have as many attributes as fields have no others."""
        is_usual = self._has_dict and not self._slots and not self.is_tuple
        return is_usual and not (self._may_be_incomplete or self.is_custom or self._other_slots)

    @cached_property
    def _is_of_dict(self) -> bool:
        """Whether records with these names in their dictionary, and no others, have no problem."""
        return self._has_dict and not (self._slots or self._other_slots or self.is_tuple)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.fields)

    @cached_property
    def is_simple(self) -> bool:
        """Whether a record with as many attributes as fields (`width`) has no problem."""
        return self._is_countable and not self._nested

    def own_problem(self, record: Any) -> str:
        """As `problem`, without the records within."""
        if not self._has_own_values:
            return ""
        if self._is_countable and len(record.__dict__) == self.width:
            return ""
        if self._is_of_dict and _dict_of(record).keys() == self._names:
            return ""
        stored = _dict_of(record) if self._has_dict else {}
        for name in stored:
            if (name not in self.fields or self.is_tuple) and not self._is_derived(name):
                return self._undeclared(name)
        for name, other in self._other_slots.items():
            if _is_set(other, record):
                return self._undeclared(name)
        if self.is_tuple:
            return ""
        for name in self.fields:
            slot = self._slots.get(name)
            if name in stored or name in self._defaults_on_class:
                continue
            if slot is None or not _is_set(slot, record):
                return self._without_value(name)
        return ""

    def _is_derived(self, name: str) -> bool:
        """Whether an attribute is computed again when it is missing, as `cached_property` does, or
        belongs to Python, as the `__orig_class__` of a generic class."""
        attribute = _class_attribute(self.kind, name)
        return _is_dunder(name) or (
            hasattr(type(attribute), "__get__")
            and not hasattr(type(attribute), "__set__")
            and not isinstance(attribute, _NO_PROPERTY)
        )

    def _undeclared(self, name: str) -> str:
        return (
            f"{self.kind.__name__} has an attribute {name!r} that is not one of its fields, and "
            f"only fields reach other processes and states. {self.described.undeclared(name)}"
        )

    def _without_value(self, name: str) -> str:
        kind = self.kind.__name__
        attribute = _class_attribute(self.kind, name)
        if name not in self._slots and hasattr(type(attribute), "__set__"):
            return (
                f"the field {name!r} of {kind} is a property or descriptor that keeps its value "
                f"elsewhere. Make the attribute that has the value a field, and {name!r} a "
                f"property that is no field; or store it as `vars(self)[{name!r}]`"
            )
        where = "the constructor" if isinstance(self.described, ModelClass) else "__post_init__"
        return f"{kind} has no value of its field {name!r}: set it in {where}"


def _known_class(kind: Any) -> RecordClass | None:
    """The RecordClass of a class; None in an outline of a plan, where classes are empty."""
    return None if record_type_of(kind) is None else record_class(kind)


class _DictClass(RecordClass):
    """How the dictionaries of a TypedDict are taken apart and rebuilt."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.fields = record_fields(kind)
        self.described = cast("Any", record_type_of(kind))
        self.width = len(self.fields)
        self.is_tuple = self.is_custom = self._has_dict = False
        self._has_own_values = True
        self._other_slots, self._slots, self._defaults_on_class = {}, {}, {}
        getters = [itemgetter(name) for name in self.fields]
        self.values = itemgetter(*self.fields) if self.width > 1 else lambda row: (getters[0](row),)
        self.build = lambda row: dict(zip(self.fields, row, strict=True))
        self.build_all = self.make_all
        self._may_be_incomplete = True

    def make_all(self, rows: Iterable[Sequence[Any]]) -> list[Any]:
        return [*map(self.build, rows)]

    def _are_complete(self, records: Sequence[Any]) -> bool:
        names = self._names
        return all(record.keys() == names for record in records)

    def own_problem(self, record: Any) -> str:
        if record.keys() == self._names:
            return ""
        if missing := [name for name in self.fields if name not in record]:
            return f"a {self.kind.__name__} has no key {missing[0]!r}: give every key a value"
        name = next(name for name in record if name not in self._names)
        return (
            f"a {self.kind.__name__} has a key {name!r} that it does not declare, and only "
            f"declared keys reach other processes and states. {self.described.undeclared(name)}"
        )


def _record_class(kind: Any) -> RecordClass:
    described = record_type_of(kind)
    is_dict = described is not None and described.instances is dict
    return _DictClass(kind) if is_dict else RecordClass(kind)


# How records of a record type are taken apart and rebuilt. It raises RecordMismatch as
# `record_fields` does.
record_class: Callable[[Any], RecordClass] = lru_cache(1024)(_record_class)


def may_hold_checked(annotation: Any) -> bool:
    """Whether values of an annotation may be, or have within them, records that are checked."""
    if annotation is Any or annotation in LEAVES:
        return False
    try:
        classes = classes_in(annotation, "")
    except RecordMismatch:  # refused where it is declared
        return False
    return _has_type_variable(annotation) or any(
        record_class(kind)._has_own_values for kind in classes if not issubclass(kind, Enum)
    )


def problem_in(values: Iterable[Any]) -> str:
    """What of records among values, or within them, would be lost on the way; empty: nothing."""
    return next(filter(None, map(_problem_in, values)), "")


def _have_problem(values: Collection[Any], depth: int = 0) -> bool:
    """Whether `_problem_in` is not empty for one of them: in a tenth of the time for many."""
    by_kind: dict[type[Any], list[Any]] = {}
    for value in values:
        if type(value) not in LEAVES:
            by_kind.setdefault(type(value), []).append(value)
    for kind, several in by_kind.items():
        if depth > DEPTH_MAX or issubclass(kind, Enum):
            continue
        if is_record(kind):
            if record_class(kind).first_bad(several) is not None:
                return True
        elif issubclass(kind, dict):
            if _have_problem([*chain.from_iterable(several)], depth + 1) or _have_problem(
                [*chain.from_iterable(mapping.values() for mapping in several)], depth + 1
            ):
                return True
        elif issubclass(kind, list | tuple | set | frozenset) and _have_problem(
            [*chain.from_iterable(several)], depth + 1
        ):
            return True
    return False


def _problem_in(value: Any, depth: int = 0) -> str:
    kind = type(value)
    if kind in LEAVES or depth > DEPTH_MAX or isinstance(value, Enum):
        return ""
    if is_record(kind):
        return record_class(kind).problem(value, depth)
    items: Any = value
    if isinstance(value, dict):
        items = [*value.keys(), *value.values()]
    elif not isinstance(value, list | tuple | set | frozenset):
        return ""
    kinds = set(map(type, items))
    if kinds <= LEAVES:
        return ""
    return next(filter(None, (_problem_in(item, depth + 1) for item in items)), "")


# ---- Enums --------------------------------------------------------------------------------------


def member_key(kind: type[Enum]) -> Callable[[Any], Any]:
    """A function that returns what `member_of` finds a member by: the number of a Flag, the name of
    another member. It raises ValueError for a value that is no member."""
    if issubclass(kind, Flag):
        return attrgetter("_value_")
    members = kind.__members__

    def name_of(value: Any) -> str:
        name: str = value._name_
        if members.get(name) is not value:
            raise ValueError(
                f"{value!r} is not one of the members of {kind.__name__}, and is another object in "
                "another process; declare it as a member, or send its value"
            )
        return name

    return name_of


def member_of(kind: type[Any]) -> Callable[[Any], Any]:
    """The inverse of `member_key`; it does not call the `_missing_` of the class."""
    if not issubclass(kind, Flag):
        find: Callable[[Any], Any] = kind.__members__.__getitem__
        return find
    known = kind._value2member_map_
    make: Callable[[Any, Any], Any] = Flag._missing_.__func__  # type: ignore[attr-defined]

    def member(value: Any) -> Any:
        single = known.get(value)
        return make(kind, value) if single is None else single  # several members together

    return member


# ---- declared classes ---------------------------------------------------------------------------


class DeclaredClass(NamedTuple):
    """How values of an Enum or record type are taken apart and built again, in every format."""

    mark: str  # in JSON
    parts: Callable[[Any], Any]  # what `member_of` finds a member by, or the values of the fields
    build: Callable[[Any], Any]  # the inverse
    record: RecordClass | None  # None: an Enum


def declared_class(kind: type[Any]) -> DeclaredClass:
    """How values of a class that annotations name are taken apart and built again.

    `parts` raises Unserialisable for a record with values besides its fields, and ValueError for an
    Enum's value that is not a member. Raises RecordMismatch as `record_class`.
    """
    mark = f"<{kind.__qualname__}>"
    if issubclass(kind, Enum):
        return DeclaredClass(mark, member_key(kind), member_of(kind), None)
    known = record_class(kind)
    return DeclaredClass(mark, partial(_parts_of, known), partial(_built_of, known), known)


def _parts_of(known: RecordClass, record: Any) -> list[Any]:
    if why := known.own_problem(record):
        raise Unserialisable(why)
    return list(known.values(record))


def _built_of(known: RecordClass, values: Any) -> Any:
    if type(values) is not list or len(values) != known.width:
        raise ValueError(f"a {known.kind.__name__} has {known.width} fields")
    return known.build(values)


# ---- copies -------------------------------------------------------------------------------------


def reduced(value: Any, declared: Container[type[Any]] = ()) -> Any:
    """A record or an Enum's member as `__reduce__` returns it, so that `pickle` rebuilds it without
    code of its class; NotImplemented for other values.

    A class that says itself how it is pickled (`__reduce__`, `__getstate__`, …) is pickled so,
    unless it is among the `declared` record types: those are values everywhere.
    """
    kind: Any = type(value)
    if isinstance(value, Enum):
        is_member = issubclass(kind, Flag) or kind.__members__.get(value._name_) is value
        return (_member, (kind, member_key(kind)(value))) if is_member else NotImplemented
    if not is_record(kind) or kind.__module__.partition(".")[0] == "sunshower":
        return NotImplemented
    if kind not in declared and _says_how_to_pickle(kind):
        return NotImplemented
    items = list(tuple.__iter__(value)) if issubclass(kind, tuple) else None
    stored = dict(_dict_of(value)) if kind.__dictoffset__ else {}
    if kind in declared:
        fields = () if items else record_fields(kind)
        stored = {name: item for name, item in stored.items() if name in fields}
    slots = {
        name: slot.__get__(value) for name, slot in _slots_of(kind).items() if _is_set(slot, value)
    }
    # They come after the object exists, because it may be among them.
    return _empty, (kind, items), (stored, slots), None, None, _fill


def copied(value: T) -> T:
    """A deep copy; records and Enums, also within lists, dicts, tuples and sets, are copied without
    running code of their classes."""
    kind: Any = type(value)
    if kind in LEAVES or isinstance(value, Enum):
        return value
    copy: Any
    if kind in (list, tuple, set, frozenset):
        items = cast("Iterable[Any]", value)
        copy = kind(items if LEAVES.issuperset(map(type, items)) else map(copied, items))
    elif kind is dict:
        pairs = cast("dict[Any, Any]", value).items()
        copy = {copied(name): copied(item) for name, item in pairs}
    elif (parts := reduced(value)) is NotImplemented:
        copy = deepcopy(value)
    else:
        _, (_, items), (stored, slots), *_ = parts
        copy = _empty(kind, copied(items))
        if stored or slots:
            _fill(copy, (copied(stored), copied(slots)))
    return cast("T", copy)


def _empty(kind: Any, items: list[Any] | None) -> Any:
    return _blank(kind)() if items is None else tuple.__new__(kind, items)


@lru_cache(1024)
def _blank(kind: Any) -> Callable[[], Any]:
    """A function that makes an object of a class, whose fields are to be set, without running code
    of the class."""
    described = record_type_of(kind)
    if isinstance(described, StructClass):
        copies = [vars(base)["__copy__"] for base in kind.__mro__ if "__copy__" in vars(base)]
        return partial(copies[-1], _struct_without_values(described))
    if not isinstance(described, ModelClass):
        return partial(object.__new__, kind)
    slots = {slot: name for name, slot in _slots_of(kind).items() if "__pydantic_" in name}
    fields = record_fields(kind)

    def model() -> Any:
        record = object.__new__(kind)
        for slot, name in slots.items():
            slot.__set__(record, {*fields} if name.endswith("fields_set__") else None)
        return record

    return model


def _struct_without_values(described: StructClass) -> Any:
    """A Struct whose fields are None. Its `__post_init__` does not run: that of a subclass does."""
    kind = described.kind
    silent = type(kind)("Silent", (kind,), {"__post_init__": lambda _: None})
    struct = silent(**dict.fromkeys(described.fields))
    vars(object)["__class__"].__set__(struct, kind)
    return struct


def _fill(record: Any, parts: tuple[dict[str, Any], dict[str, Any]]) -> None:
    stored, in_slots = parts
    if stored:
        _dict_of(record).update(stored)
    kind: Any = type(record)
    slots = _slots_of(kind)
    for name, value in in_slots.items():
        slot = slots.get(name) or slots.get(".".join(name.split(".")[-2:]))  # a qualified name
        if slot is not None:
            slot.__set__(record, value)


def _member(kind: type[Any], key: Any) -> Any:
    return member_of(kind)(key)


@lru_cache(1024)
def _says_how_to_pickle(kind: type[Any]) -> bool:
    for base in kind.__mro__:
        if base in (object, tuple) or base.__module__.partition(".")[0] in ("pydantic", "msgspec"):
            continue
        for name in _HOOKS:
            hook = vars(base).get(name)
            is_generated = (
                hook is None
                or getattr(hook, "__module__", "") == "dataclasses"
                or "Automatically created by attrs." in (getattr(hook, "__doc__", None) or "")
                or (name == "__getnewargs__" and "_fields" in vars(base))
            )
            if not is_generated:
                return True
    return False


# ---- classes ------------------------------------------------------------------------------------


def _dict_of(record: Any) -> dict[str, Any]:
    attributes: dict[str, Any] = object.__getattribute__(record, "__dict__")
    return attributes


def _class_attribute(kind: type[Any], name: str) -> Any:
    """What a class has under a name, before a descriptor is asked."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), _ABSENT)


@lru_cache(1024)  # without it, copying a list of records takes three times as long
def _slots_of(kind: Any) -> Mapping[str, Any]:
    """The slots of a class, each by the class that has it and its name. Not by its qualified name,
    which a class that was sent by value does not keep."""
    return {
        f"{base.__name__}.{name}": slot
        for base in kind.__mro__
        for name, slot in vars(base).items()
        if isinstance(slot, MemberDescriptorType) and base not in (object, tuple)
    }


def _is_set(slot: Any, record: Any) -> bool:
    try:
        slot.__get__(record)
    except AttributeError:
        return False
    return True


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _has_type_variable(annotation: Any) -> bool:
    return isinstance(annotation, TypeVar) or any(map(_has_type_variable, get_args(annotation)))


def _getter(names: tuple[str, ...]) -> Callable[[Any], Sequence[Any]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple([getattr(record, name) for name in names])


def _tuple_values(kind: type[Any]) -> Callable[[Any], Sequence[Any]]:
    return itself if kind.__iter__ is tuple.__iter__ else lambda record: [*tuple.__iter__(record)]
