"""Makes records of JSON, MessagePack, Avro and Protobuf; undoes `sunshower.json_values.json_text`.

msgspec checks and converts the values. Each record type has a Struct with the same fields; the
constructor of the record is called with the values of the Struct. What msgspec has no type for is
read by a hook: dates and decimals, which are texts; Enums; records within records; unions. A model
of pydantic is read by pydantic.

A hook reads one value of the message, and calls msgspec for the values within it. The records that
are tried for a union are stored until the end of the message, so that each value is read at most
once for each record type: the time is linear in the size of the message.
"""

from __future__ import annotations

import binascii
import inspect
import json
import math
from base64 import b64decode
from collections import Counter, abc
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, Flag
from functools import partial
from numbers import Integral, Real
from operator import attrgetter
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    is_typeddict,
)

import msgspec

from sunshower.errors import RecordMismatch, UnreadableRecord, user_errors, user_errors_suppressed
from sunshower.field_types import record_fields, stands_for
from sunshower.json_values import for_json
from sunshower.record_types import (
    AttrsClass,
    DictClass,
    ModelClass,
    RecordType,
    StructClass,
    Types,
    hints_of,
    is_record,
    is_required,
    record_type_of,
    resolved,
    types_given,
)
from sunshower.records import member_of, record_class
from sunshower.scalars import SCALARS, read_scalar
from sunshower.texts import (
    ABSENT,
    SHOWN_BYTES,
    Misfit,
    clip,
    did_you_mean,
    misfit_of,
    reason_of,
)
from sunshower.value_types import DEPTH_MAX, itself

Read = Callable[[Any], Any]

_WRAPPERS: tuple[Any, ...] = (Annotated, Required, NotRequired)
_NATIVE: frozenset[Any] = frozenset({NoneType, bool, int, float, str})
_TEXT = frozenset({str})
_COPIED = (list, dict, set, bytearray, msgspec.Struct)
_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"
_as_json = json.JSONEncoder(default=for_json).encode


# ---- readers ------------------------------------------------------------------------------------


def record_reader(kind: type[Any]) -> Read:
    """A function that makes a record of a decoded object, field → value.

    It calls the constructor, once, with the fields and InitVars that this takes. Unknown names are
    ignored, fields without a default must be present. It raises UnreadableRecord, naming record,
    field, the value and the expected type. Raises RecordMismatch for a class that is no record
    type.
    """
    return _Readers().top(kind).of_object


def records_reader(kind: type[Any]) -> Read:
    """As `record_reader`; an array of objects becomes a list of records."""
    read = _Readers().top(kind)

    def records(value: Any) -> Any:
        if type(value) in (list, tuple):
            return [read.of_object(item, f"[{index}]") for index, item in enumerate(value)]
        return read.of_object(value)

    return records


def text_reader(kind: type[Any]) -> Read:
    """As `record_reader`, of an object of texts, as CSV has them: `"7"` is a number where a field
    is one. An empty text is None where a field may be None."""
    read = _Readers(of_texts=True).top(kind)
    nullable = _nullable(kind)

    return lambda values: read.of_object(
        {name: value or (None if name in nullable else "") for name, value in values.items()}
    )


def rows_reader(kind: type[Any], columns: Sequence[str]) -> Callable[[list[list[Any]]], list[Any]]:
    """A function that makes records of rows with these columns, as `text_reader` does of each: a
    third of its time. Columns that are no fields are passed over. It raises ValueError, without a
    name of the place, if some row cannot be read."""
    if type(record_type_of(kind)) is not RecordType:  # it has rules of its own
        read = text_reader(kind)
        return lambda rows: [read(dict(zip(columns, row, strict=True))) for row in rows]
    readers = _Readers(of_texts=True)
    fields, build, by_name = _constructor(kind)
    order = [*columns, *(name for name in fields if name not in columns)]
    specs: list[Any] = []
    for index, name in enumerate(order):
        annotation, default = fields.get(name, (Any, None))
        more = [] if index < len(columns) else [_default(default)]
        specs.append((f"f{index}", readers.wire(annotation), *more))
    readers.finish()
    struct: Any = msgspec.defstruct("Row", specs, array_like=True)
    values = _getter([order.index(name) for name in fields])
    if by_name:
        build = _by_name(build, tuple(fields))
    nullable = [place for place, name in enumerate(columns) if name in _nullable(kind)]

    def records(rows: list[list[Any]]) -> list[Any]:
        if {*map(len, rows)} - {len(columns)}:
            raise ValueError("a row has more values than there are columns, or fewer")
        for place in nullable:
            for row in rows:
                row[place] = row[place] or None
        return [*map(build, map(values, readers.convert(rows, list[struct])))]

    return records


def _nullable(kind: type[Any]) -> set[str]:
    """The fields that may be None."""
    fields = message_fields(kind)
    return {name for name, (hint, _) in fields.items() if _may_be_none(hint)}


def _may_be_none(hint: Any) -> bool:
    args = get_args(hint)
    if get_origin(hint) in _WRAPPERS:
        return _may_be_none(args[0])
    return NoneType in args or None in args


def message_fields(kind: type[Any]) -> dict[str, tuple[Any, bool]]:
    """What a message of a record type has: name → annotation, and whether there is a default.
    Raises RecordMismatch for a class that is no record type."""
    record_fields(kind)
    described = cast("RecordType", record_type_of(kind))
    return {described.names.get(name, name): of for name, of in described.constructor().items()}


def json_reader(kind: type[Any]) -> Callable[[bytes | str], Any]:
    """A function that makes a record of a JSON object, or a list of records of a JSON array of
    objects. It raises as `record_reader` says, and for bytes that are no JSON."""
    return _Readers(of_json=True).top(kind).of_json


def messagepack_reader(kind: type[Any], unpack: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """As `json_reader`, of MessagePack. `unpack` decodes it where msgspec would lose something: the
    nanoseconds of a timestamp, names that are no texts."""
    readers, read = _Readers(), records_reader(kind)
    reader = readers.top(kind)
    if not readers.may_read_again(reader):
        return lambda data: read(unpack(data))

    def records(data: bytes) -> Any:
        struct = reader.struct_of_messagepack(data)
        return read(unpack(data)) if struct is None else reader.of_struct(struct)

    return records


def read_json(data: bytes | str) -> Any:
    """The value of JSON. Raises UnreadableRecord, also for NaN and numbers that are too large."""
    try:
        return msgspec.json.decode(_trimmed(data))
    except user_errors() as error:
        raise UnreadableRecord(reason_of(error)) from error


def field_readers(kind: type[Any]) -> Mapping[str, Read]:
    """Functions that restore the values of a record that existed before, each by its field; they do
    not run code of its classes. They raise as `record_reader` says."""
    readers, hints = _Readers(restores=True, of_json=True), hints_of(kind)
    fields = {
        name: partial(readers.field, readers.of(hints.get(name, Any)), name)
        for name in record_fields(kind)
    }
    readers.finish()
    return fields


def _trimmed(data: bytes | str) -> bytes:
    """JSON without a byte order mark, and without blanks before it."""
    data = data.encode() if isinstance(data, str) else data
    return data.removeprefix(_BOM).lstrip(_BLANK)


def _finite(text: str) -> Any:
    return value if math.isfinite(value := float(text)) else text


# ---- hooks --------------------------------------------------------------------------------------


class _Hooked(type):
    """The class of types that msgspec calls `_hook` for."""

    read: Read

    # msgspec checks what the hook returns. The id is not zero: each value is an instance.
    __instancecheck__ = id  # type: ignore[assignment]


def _hooked(read: Read | None = None) -> Any:
    return _Hooked("Hooked", (), {} if read is None else {"read": staticmethod(read)})


def _hook(kind: Any, value: Any) -> Any:
    try:
        return kind.read(value)
    except Misfit:
        raise
    except user_errors() as error:  # a constructor may raise anything
        raise Misfit(reason_of(error)) from error


class _Readers:
    """Functions that read a decoded value by an annotation.

    `of_json`: bytes are texts, in base64. `of_texts`: so are numbers. `restores`: the values are
    those of records that existed before; no constructor runs.
    """

    def __init__(
        self, *, restores: bool = False, of_json: bool = False, of_texts: bool = False
    ) -> None:
        self._restores, self.of_json, self.is_strict = restores, of_json or of_texts, not of_texts
        # By their type and what is given for its type variables; one may contain its own type.
        self._records: list[tuple[type[Any], Types, _RecordReader]] = []
        self._is_guarded = False
        self.depth = 0
        # Of a message: the records that were read, by value and type. The value is stored, because
        # another object may have its id once it is gone.
        self.known: dict[tuple[int, _RecordReader], tuple[Any, Any]] = {}

    def top(self, kind: type[Any]) -> _RecordReader:
        """The reader of records that are messages."""
        record_fields(kind)  # or RecordMismatch
        reader = self.record(kind)
        self.finish()
        return reader

    def finish(self) -> None:
        """Call this when all types are known."""
        for _, _, reader in self._records:
            reader.finish(self._is_guarded)

    def may_read_again(self, top: _RecordReader) -> bool:
        """Whether a message that is refused may be read a second time: no constructor of the user
        would run twice for the records within that of `top`, and it takes little time."""
        nested = (reader for _, _, reader in self._records if reader is not top)
        return not self._is_guarded and not any(reader.runs_code for reader in nested)

    def convert(self, value: Any, wire: Any) -> Any:
        return msgspec.convert(value, wire, dec_hook=_hook, str_keys=True, strict=self.is_strict)

    def of(self, annotation: Any) -> Read:
        """The function for an annotation. It raises a misfit."""
        return self._of_wire(self.wire(annotation))

    def _of_wire(self, wire: Any) -> Read:
        if wire is Any:
            return itself
        if isinstance(wire, _Hooked):
            return partial(_hook, wire)

        def read(value: Any) -> Any:
            try:
                return self.convert(value, wire)
            except user_errors() as error:
                raise misfit_of(error, "", value) from None

        return read

    def field(self, read: Read, name: str, value: Any) -> Any:
        try:
            return read(value)
        except Misfit as error:
            raise UnreadableRecord(error.message(name)) from error
        finally:
            self.known.clear()

    def wire(self, annotation: Any) -> Any:
        """What msgspec reads for an annotation."""
        origin, args = get_origin(annotation), get_args(annotation)
        kind = annotation if origin is None else origin
        if kind in _WRAPPERS:
            return self._limited(self.wire(args[0]), annotation)
        if kind in (Union, UnionType):
            return self._union(args)
        if kind is Literal:
            return self._literal(args)
        if isinstance(kind, TypeVar):
            return self._union(kind.__constraints__ or (kind.__bound__ or Any,))
        if is_typeddict(kind):
            return self._typed_dict(annotation)
        if is_record(kind) and not issubclass(kind, Enum):
            return self.record(annotation).hooked
        return self._class(kind, args) if isinstance(kind, type) else Any

    def _limited(self, wire: Any, annotation: Any) -> Any:
        """What msgspec reads for a type with its limits, as in Annotated[int, Meta(ge=0)]."""
        notes = getattr(annotation, "__metadata__", ())
        limits = [note for note in notes if isinstance(note, msgspec.Meta)]
        if self._restores or not limits:
            return wire
        parts = get_args(wire) if get_origin(wire) is Union else (wire,)  # msgspec limits a type
        limited = [part if part is NoneType else _with_limits(part, limits) for part in parts]
        return Union[tuple(limited)]  # noqa: UP007

    def _class(self, kind: type[Any], args: tuple[Any, ...]) -> Any:
        kind = stands_for(kind)
        if kind in SCALARS:
            return _hooked(_scalar(kind))
        if issubclass(kind, Enum):
            read = _enum(kind, self._restores)
            return _hooked(read if self.is_strict else _of_text(read)) if kind.__members__ else Any
        if issubclass(kind, bytes | bytearray | memoryview):
            return _hooked(partial(_bytes, self.of_json and not self._restores))
        if (plain := _plain_kind(kind)) is not None:
            return Any if self._restores else plain  # annotations of plain types are not enforced
        if issubclass(kind, abc.Mapping):
            return self._mapping(kind, args)
        if issubclass(kind, abc.Iterable) and not issubclass(kind, str):
            return self._array(kind, args)
        return Any

    def record(self, annotation: Any) -> _RecordReader:
        """The reader of a record type, or of an alias such as Box[int]."""
        kind, given = get_origin(annotation) or annotation, types_given(annotation)
        if sum(of is kind for of, _, _ in self._records) > DEPTH_MAX:  # Node[list[T]] in Node[T]
            given = {}
        known = (reader for of, types, reader in self._records if of is kind and types == given)
        reader = next(known, None)
        if reader is None:
            reads_itself = isinstance(record_type_of(kind), ModelClass) and not self._restores
            make = _ModelReader if reads_itself else _RecordReader
            reader = make(kind, self, restores=self._restores)
            self._records.append((kind, given, reader))
            reader.declare(given)
        elif not reader.is_declared:  # it contains its own type
            self._is_guarded = True
        return reader

    def struct(self, fields: Mapping[str, tuple[Any, Any]], of: Any = None) -> Any:
        """A Struct with these fields, name → annotation and default; they are f0, f1 and so on.
        `of`: a Struct of the user, whose rules for other names it has."""
        specs: list[Any] = []
        for index, (annotation, default) in enumerate(fields.values()):
            more = [] if default is inspect.Parameter.empty else [_default(default)]
            specs.append((f"f{index}", self.wire(annotation), *more))
        names = {f"f{index}": name for index, name in enumerate(fields)}
        rules = {} if self._restores else _rules_of(of)
        return msgspec.defstruct("Fields", specs, rename=names, kw_only=True, **rules)

    def _typed_dict(self, annotation: Any) -> Any:
        kind, hints = get_origin(annotation) or annotation, hints_of(annotation)
        required = {name for name, hint in hints.items() if is_required(kind, name, hint)}
        struct = self.struct({name: (hint, ABSENT) for name, hint in hints.items()})
        values_of = _getter(range(len(hints)))

        def read(value: Any) -> Any:
            items = dict(_object(value))
            if missing := [name for name in hints if name in required and name not in items]:
                raise Misfit(f"{kind.__name__} without {', '.join(missing)}")
            known = {name: items[name] for name in hints if name in items}
            try:
                values = values_of(self.convert(known, struct))
            except user_errors() as error:
                raise misfit_of(error, kind.__name__, known) from None
            pairs = zip(hints, values, strict=True)
            return items | {name: item for name, item in pairs if item is not ABSENT}

        return _hooked(read)

    def _mapping(self, kind: type[Any], args: tuple[Any, ...]) -> Any:
        key = self.wire(args[0]) if args else Any
        items = args[1] if len(args) > 1 else int if kind is Counter else Any
        if kind is not Counter and key in (str, int, Any):
            return dict[key, self.wire(items)]  # type: ignore[misc, valid-type]
        read_key = itself if key is Any else self._key(args[0])
        read_value = self.of(items)

        def read(value: Any) -> Any:
            mapping: dict[Any, Any] = {}
            for name, item in _object(value).items():
                converted = read_key(name)
                if converted in mapping:
                    raise Misfit("two keys are {}", name)
                try:
                    mapping[converted] = read_value(item)
                except Misfit as error:
                    raise Misfit("", place=f"[{clip(str(name))!r}]", cause=error) from None
            return Counter(mapping) if kind is Counter else mapping

        return _hooked(read)

    def _key(self, annotation: Any) -> Read:
        """The function for the keys of a dict, which JSON and Avro have as texts."""
        of_value = self.of(annotation)
        kind = get_origin(annotation) or annotation

        def read(text: Any) -> Any:
            for form in [text, *_values_of_key(text)]:
                try:
                    if kind is not float or type(form) is float:
                        return of_value(form)
                except Misfit:
                    continue
            raise Misfit(f"the key {{}} is no {_name(annotation)}", text)

        return read

    def _array(self, kind: type[Any], args: tuple[Any, ...]) -> Any:
        if kind is tuple and args and args[-1] is not Ellipsis:
            return tuple[tuple(map(self.wire, args))]  # type: ignore[misc]
        items: Any = self.wire(args[0]) if args else Any
        if issubclass(kind, abc.Set):  # also an abstract one
            return frozenset[items] if issubclass(frozenset, kind) else set[items]
        return tuple[items, ...] if kind is tuple else list[items]

    def _literal(self, args: tuple[Any, ...]) -> Any:
        readers = [(literal, self._of_wire(self._member(type(literal)))) for literal in args]

        def read(value: Any) -> Any:
            for member, reader in readers:
                try:
                    value_read = reader(value)
                except Misfit:
                    continue
                if type(value_read) is type(member) and value_read == member:
                    return member
            raise Misfit(f"{{}} is none of {', '.join(map(repr, args))}", value)

        return _hooked(read)

    def _union(self, kinds: Sequence[Any]) -> Any:
        wires = [self._member(kind) for kind in kinds]
        if Any in kinds or object in kinds or {*wires} <= {Any, NoneType}:
            return Any
        several = len(wires) - wires.count(NoneType) > 1
        if not several or {*wires} <= {*_NATIVE, _FLOAT}:
            return Union[tuple(wires)]  # noqa: UP007
        self._is_guarded = True
        members = [(kind, self._of_wire(wire)) for kind, wire in zip(kinds, wires, strict=True)]
        return _hooked(_UnionReader(members, self).read)

    def _member(self, kind: Any) -> Any:
        """What msgspec reads for a member of a union, which must be checked."""
        is_plain = isinstance(kind, type) and not issubclass(kind, Enum)
        return (_plain_kind(kind) if is_plain else None) or self.wire(kind)


class _RecordReader:
    """Reads the records of a type."""

    def __init__(self, kind: type[Any], readers: _Readers, *, restores: bool) -> None:
        self._kind, self._readers, self._restores = kind, readers, restores
        self._described = cast("RecordType", record_type_of(kind))
        self._is_tuple = self._described.is_tuple
        self.hooked = _hooked()
        self.is_declared = False

    def declare(self, given: Types) -> None:
        """Make the Struct. The types of its fields may refer to this reader."""
        kind = self._kind
        if self._restores:
            hints, defaults = hints_of(kind), record_class(kind).defaults
            empty = inspect.Parameter.empty
            fields = {
                name: (hints.get(name, Any), ABSENT if name in defaults else empty)
                for name in record_fields(kind)
            }
            build: Read = record_class(kind).build_named
            by_name = True
        else:
            fields, build, by_name = _constructor(kind)
        fields = {name: (resolved(hint, given), has) for name, (hint, has) in fields.items()}
        is_plain = isinstance(self._described, StructClass | DictClass)
        has_code = not is_plain and (by_name or isinstance(self._described, AttrsClass))
        self.runs_code = has_code or hasattr(kind, "__post_init__")
        self.names = frozenset([*fields, *self._described.marks])
        self._required = {
            name for name, (_, value) in fields.items() if value is inspect.Parameter.empty
        }
        self._order = tuple(fields)
        self._struct = self._readers.struct(fields, kind)
        self._build = _by_name(build, self._order) if by_name else build
        self._values = _getter(range(len(fields)))
        self._convert = partial(
            msgspec.convert,
            type=self._struct,
            dec_hook=_hook,
            str_keys=True,
            strict=self._readers.is_strict,
        )
        self.is_declared = True
        try:
            self._one = msgspec.json.Decoder(self._struct, dec_hook=_hook)
            self._packed = msgspec.msgpack.Decoder(
                self._struct, dec_hook=_hook, ext_hook=_no_extension
            )
            several: Any = list[self._struct]  # type: ignore[name-defined]
            self._many = msgspec.json.Decoder(several, dec_hook=_hook)
        except TypeError as error:  # for example a limit of numbers for a text
            raise RecordMismatch(
                f"{kind.__name__} has annotations that do not fit: {error}"
            ) from None

    def finish(self, is_guarded: bool) -> None:
        self.hooked.read = staticmethod(self._read_guarded if is_guarded else self._read)

    def lacks(self, value: Any) -> bool:
        """Whether it does not know all names of an object, or the object not all that it needs."""
        return type(value) is dict and not self._required <= value.keys() <= self.names

    # ---- messages -------------------------------------------------------------------------------

    def of_object(self, value: Any, place: str = "") -> Any:
        """The record of an object that is a message, or an item of one. Raises UnreadableRecord."""
        try:
            if type(value) is not dict:
                raise Misfit(f"{self._kind.__name__} was expected, and it is {{}}", value)
            return self._read(value)
        except Misfit as error:
            raise self._refusal(error, place) from error
        except user_errors() as error:
            raise self._refusal(Misfit(reason_of(error)), place) from error
        finally:
            if self._readers.known:
                self._readers.known.clear()

    def of_json(self, data: bytes | str) -> Any:
        """The record of a JSON object, or the records of an array. Raises UnreadableRecord."""
        first, place = data[:1], ""
        try:
            if first not in (b"{", b"["):
                data = _trimmed(data)
                first = data[:1]
            if first != b"[":
                return self._made(self._one.decode(data))
            records = []
            for index, struct in enumerate(self._many.decode(data)):
                place = f"[{index}]"
                records.append(self._made(struct))
            return records
        except Misfit as error:
            raise self._refusal(error, place) from error
        except user_errors() as error:
            raise self._refusal(self._located(error, data), place) from error
        finally:
            if self._readers.known:
                self._readers.known.clear()

    def struct_of_messagepack(self, data: bytes) -> Any:
        """The Struct of a map; None: it must be read in another way, or is refused."""
        if b"\xff" in data:  # perhaps the type of a timestamp
            return None
        try:
            return self._packed.decode(data)
        except user_errors():
            return None

    def of_struct(self, struct: Any) -> Any:
        try:
            return self._made(struct)
        except Misfit as error:
            raise self._refusal(error, "") from error

    def _located(self, error: BaseException, data: bytes | str) -> Misfit:
        value: Any = ABSENT
        if isinstance(error, msgspec.ValidationError) and type(error.__cause__) is not Misfit:
            with user_errors_suppressed():  # such as a number that is too large for any field
                value = msgspec.json.Decoder(float_hook=_finite).decode(data)
        return misfit_of(error, self._kind.__name__, value)

    def _refusal(self, error: Misfit, place: str) -> UnreadableRecord:
        located = Misfit("", place=place, cause=error) if place else error
        return UnreadableRecord(located.message(self._kind.__name__))

    # ---- values ---------------------------------------------------------------------------------

    def _read_guarded(self, value: Any) -> Any:
        """As `_read`, for records that may contain their own type, or are in a union. What was read
        of this value before is returned, or raised."""
        readers, key = self._readers, (id(value), self)
        if (before := readers.known.get(key)) is not None:
            if type(before[1]) is Misfit:
                raise Misfit("", cause=before[1])
            return before[1]
        if readers.depth >= DEPTH_MAX:
            raise Misfit(f"records are nested more than {DEPTH_MAX} deep, and cannot travel")
        readers.depth += 1
        try:
            result = self._read(value)
        except user_errors() as error:
            misfit = error if type(error) is Misfit else Misfit(reason_of(error))
            readers.known[key] = value, misfit
            raise misfit from error.__cause__
        finally:
            readers.depth -= 1
        readers.known[key] = value, result
        return result

    def _read(self, value: Any) -> Any:
        """The record of a value within a message. A NamedTuple may be a list of its values, as
        earlier versions wrote it. Raises a misfit."""
        # One function, because each level of a message takes its calls from those that Python has.
        if type(value) is not dict:
            value = self._as_object(value)
        if self._restores:
            self._check_names(value)
        try:
            struct = self._convert(value)
        except user_errors() as error:
            if _TEXT.issuperset(map(type, value)):
                raise misfit_of(error, self._kind.__name__, value) from None
            value = {name: item for name, item in value.items() if type(name) is str}
            return self._read(value)  # other names of MessagePack are ignored
        try:
            return self._build(self._values(struct))
        except user_errors() as error:
            raise self._refused(error) from error

    def _as_object(self, value: Any) -> dict[str, Any]:
        if not self._is_tuple or type(value) not in (list, tuple):
            raise Misfit(f"{self._kind.__name__} was expected, and it is {{}}", value)
        if len(value) != len(self._order):
            raise Misfit(
                f"{{}} has {len(value)} values, and {self._kind.__name__} has {len(self._order)} "
                "fields",
                value,
            )
        return dict(zip(self._order, value, strict=True))

    def _check_names(self, value: dict[str, Any]) -> None:
        if unknown := value.keys() - self.names:
            name = min(map(str, unknown))
            hint = did_you_mean(name, self.names)
            raise Misfit(f"{self._kind.__name__} has no field {name!r}{hint}")

    def _made(self, struct: Any) -> Any:
        try:
            return self._build(self._values(struct))
        except user_errors() as error:
            raise self._refused(error) from error

    def _refused(self, error: BaseException) -> Misfit:
        """What a constructor raises, which may be anything."""
        return Misfit(f"{self._kind.__name__}: {reason_of(error)}")


class _ModelReader(_RecordReader):
    """Reads the records of a model of pydantic, by its own validation."""

    _described: ModelClass

    def declare(self, given: Types) -> None:
        required = self._described.constructor().items()
        self.names = frozenset(self._described.parameters.values())
        self._required = {name for name, (_, has_default) in required if not has_default}
        self.runs_code = self.is_declared = True

    def of_json(self, data: bytes | str) -> Any:
        value = read_json(data)
        if type(value) is not list:
            return self.of_object(value)
        return [self.of_object(item, f"[{index}]") for index, item in enumerate(value)]

    def struct_of_messagepack(self, data: bytes) -> Any:
        return None

    def _read(self, value: Any) -> Any:
        if type(value) is not dict:
            raise Misfit(f"{self._kind.__name__} was expected, and it is {{}}", value)
        try:
            if self._readers.of_json:
                return self._kind.model_validate_json(msgspec.json.encode(value))
            return self._kind.model_validate(value)
        except user_errors() as error:
            raise self._of_pydantic(error) from error

    def _of_pydantic(self, error: BaseException) -> Misfit:
        """The first misfit that pydantic names."""
        errors = getattr(error, "errors", None)
        if type(error).__name__ != "ValidationError" or errors is None:
            return self._refused(error)
        misfit = errors(include_url=False, include_context=False)[0]
        place = "".join(f"[{part}]" if type(part) is int else f".{part}" for part in misfit["loc"])
        if misfit["type"] == "missing":
            around, _, name = place.rpartition(".")
            return Misfit(f"{self._kind.__name__} without {name}", place=around)
        if not place:
            return Misfit(f"{self._kind.__name__}: {misfit['msg']}")
        return Misfit(f"{{}}: {misfit['msg']}", misfit["input"], place=place)


class _UnionReader:
    """Reads a value that may be of several types: of the first that it fits. If several of them are
    read from objects, a record must know all names of the object, one that has no others comes
    first, and two records must not fit."""

    def __init__(self, members: Sequence[tuple[Any, Read]], readers: _Readers) -> None:
        kinds = [get_origin(kind) or kind for kind, _ in members]
        self._members = [
            (read, readers.record(annotation) if is_record(kind) else None)
            for kind, (annotation, read) in zip(kinds, members, strict=True)
        ]
        self._is_strict = sum(is_record(kind) or _is_of_objects(kind) for kind in kinds) > 1
        self._has_one_record = sum(map(is_record, kinds)) == 1
        self._names = " | ".join(_name(kind) for kind, _ in members)

    def read(self, value: Any) -> Any:
        misfits: list[Misfit] = []
        members = self._members
        if self._is_strict and type(value) is dict:
            names, known = value.keys(), members
            members = [(read, of) for read, of in known if of is not None and of.names == names]
            if fitting := self._fitting(value, members, misfits):
                return self._only(value, fitting)
            members = [
                member
                for member in known
                if member not in members and (member[1] is None or not member[1].lacks(value))
            ]
        if fitting := self._fitting(value, members, misfits):
            return self._only(value, fitting)
        if self._has_one_record and misfits:
            raise Misfit("", cause=misfits[0])  # with the field that does not fit
        raise Misfit(f"{{}} is no {self._names}", value)

    def _fitting(self, value: Any, members: Any, misfits: list[Misfit]) -> list[Any]:
        """What is read for the first member that fits; for a record, for the others, too."""
        fitting: list[Any] = []
        for read, record in members:
            if fitting and record is None:
                break
            try:
                fitting.append(read(value))
            except Misfit as error:
                misfits += [] if record is None else [error]
            else:
                if record is None or not self._is_strict:
                    break
        return fitting

    def _only(self, value: Any, records: list[Any]) -> Any:
        if len(records) == 1:
            return records[0]
        names = " and ".join(sorted(type(record).__name__ for record in records))
        raise Misfit(f"{{}} may be a record of {names}", value)


# ---- values without a type in msgspec ---------------------------------------------------------


_FLOAT = Union[int, float]  # noqa: UP007  (a float would round an int)


def _plain_kind(kind: type[Any]) -> Any:
    """The plain type of a class of texts or numbers; None: it is another class."""
    if kind in (NoneType, bool, int, str):
        return kind
    if issubclass(kind, str):
        return str
    if issubclass(kind, Integral):
        return int
    return _FLOAT if issubclass(kind, Real) else None


def _with_limits(kind: Any, limits: Sequence[Any]) -> Any:
    for limit in limits:
        kind = Annotated[kind, limit]
    return kind


def _rules_of(kind: Any) -> dict[str, Any]:
    """The rules of a Struct for names that are no fields of it."""
    if not isinstance(record_type_of(kind), StructClass):
        return {}
    config = kind.__struct_config__
    return {
        "tag": config.tag,
        "tag_field": config.tag_field,
        "forbid_unknown_fields": config.forbid_unknown_fields,
    }


def _is_of_objects(kind: Any) -> bool:
    return is_typeddict(kind) or (isinstance(kind, type) and issubclass(kind, abc.Mapping))


def _constructor(kind: type[Any]) -> tuple[dict[str, tuple[Any, Any]], Read, bool]:
    """What a constructor takes, name → annotation and default; a function of the values; whether it
    takes them by name, without those that are absent."""
    described = cast("RecordType", record_type_of(kind))
    parameters_of, empty = described.constructor(), inspect.Parameter.empty
    if isinstance(described, StructClass | DictClass):
        in_message = {described.names.get(name, name): name for name in parameters_of}
        has = {
            name: (parameters_of[parameter][0], ABSENT if parameters_of[parameter][1] else empty)
            for name, parameter in in_message.items()
        }

        def build(values: Mapping[str, Any]) -> Any:
            return kind(**{in_message[name]: value for name, value in values.items()})

        return has, build, True
    try:
        parameters = dict(inspect.signature(kind).parameters)
    except (TypeError, ValueError):
        parameters = {}
    code = getattr(kind.__init__, "__code__", None)
    new = next(vars(base)["__new__"] for base in kind.__mro__ if "__new__" in vars(base))
    is_plain_tuple = issubclass(kind, tuple) and record_class(kind).is_made_as_tuple
    is_generated = is_plain_tuple or (
        getattr(code, "co_filename", "")[:1] == "<" and new is object.__new__
    )
    positional = all(
        parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.POSITIONAL_ONLY)
        for parameter in parameters.values()
    )
    if is_generated and positional and parameters_of.keys() == parameters.keys():
        fields = {
            name: (parameters_of[name][0], parameter.default)
            for name, parameter in parameters.items()
        }
        if is_plain_tuple:
            return fields, partial(tuple.__new__, kind), False
        return fields, lambda values: kind(*values), False
    named = {name: (hint, ABSENT if has else empty) for name, (hint, has) in parameters_of.items()}
    return named, lambda values: kind(**values), True


def _by_name(build: Read, names: tuple[str, ...]) -> Read:
    def named(values: Sequence[Any]) -> Any:
        pairs = zip(names, values, strict=True)
        return build({name: value for name, value in pairs if value is not ABSENT})

    return named


def _getter(fields: Sequence[int]) -> Callable[[Any], tuple[Any, ...]]:
    """The values of these fields of a Struct."""
    names = [f"f{index}" for index in fields]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda struct: tuple(getattr(struct, name) for name in names)


def _default(value: Any) -> Any:
    if isinstance(value, _COPIED):  # msgspec copies them if they are empty, or refuses them
        return msgspec.field(default_factory=lambda: value)
    return value


def _name(annotation: Any) -> str:
    return getattr(annotation, "__name__", None) or str(annotation)


def _scalar(kind: type[Any]) -> Read:
    of_text = SCALARS[kind].read

    def read(value: Any) -> Any:
        if type(value) is str:
            try:
                if len(value) < SHOWN_BYTES:
                    return of_text(value)
            except user_errors():  # which `read_scalar` describes
                return read_scalar(kind, value)
            return read_scalar(kind, value)
        if type(value) is kind:  # Avro has some of them
            return value
        raise Misfit(f"{{}} is no {kind.__name__}, which is a text", value)

    return read


def _no_extension(code: int, _: memoryview) -> Any:
    raise ValueError(f"an extension of type {code}")


def _bytes(is_text: bool, value: Any) -> Any:
    if type(value) is bytes:
        return value
    if is_text and type(value) is str:
        try:
            return b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            pass
    raise Misfit(f"{{}} is no bytes{', which are base64 in JSON' if is_text else ''}", value)


def _of_text(read: Read) -> Read:
    """Reads a text, or what it stands for."""

    def of_text(value: Any) -> Any:
        forms = [value, *_values_of_key(value)]
        for form in forms[:-1]:
            with suppress(Misfit):
                return read(form)
        return read(forms[-1])

    return of_text


def _enum(kind: type[Enum], restores: bool) -> Read:
    members, within, types = dict[str, Enum](), list[tuple[Any, Enum]](), set[type[Any]]()
    for member in kind:
        try:
            text = _as_json(member.value)
        except (TypeError, ValueError):  # a value that JSON cannot have
            continue
        plain = json.loads(text)
        types.add(type(plain))
        if type(plain) in (list, dict):
            within.append((plain, member))
        else:
            members.setdefault(text, member)
        if type(plain) is float and plain.is_integer():  # which other programs write as 1
            members.setdefault(_as_json(int(plain)), member)
            types.add(int)
    is_flag = issubclass(kind, Flag)
    may_be_made = is_flag or not restores
    make: Any = member_of(kind) if restores else kind

    def read(value: Any) -> Any:
        member_of_value = None
        if type(value) in (list, tuple, dict):
            plain = list(value) if type(value) is tuple else value
            member_of_value = next((member for form, member in within if form == plain), None)
        elif type(value) in types:
            member_of_value = members.get(_as_json(value))
        if member_of_value is not None:
            return member_of_value
        try:
            if may_be_made and type(value) in types and not (is_flag and value < 0):
                return make(value)  # several of a Flag, which has others for a negative number
        except (TypeError, ValueError):
            pass
        raise Misfit(f"{{}} is no {kind.__name__}", value)

    return read


def _object(value: Any) -> dict[Any, Any]:
    if isinstance(value, dict):
        return value
    raise Misfit("{} is no object", value)


def _values_of_key(text: Any) -> list[Any]:
    """What a key of JSON stands for besides a text: a number, true, false or null."""
    if type(text) is not str or len(text) > SHOWN_BYTES:
        return []
    if text in ("true", "false", "null"):
        return [{"true": True, "false": False, "null": None}[text]]
    for kind in (int, float):
        try:
            value: int | float = kind(text)
        except ValueError:
            continue
        if str(value) == text and math.isfinite(value):
            return [value]
    return []
