r"""Writes values as JSON, for states, keys and dead letters, and reads them back.

What JSON has no type for is an object with one mark, of `sunshower.value_types`:

    (1, 2)             {"()": [1, 2]}                        as a key: [1, 2]
    {2, 1}             {"(set)": [1, 2]}                     sorted
    b"a"               {"(bytes)": "YQ=="}                   base64
    Decimal("1.50")    {"(Decimal)": "1.50"}                 likewise dates, times, UUIDs
    {1: "a"}           {"()": {"dict": [[1, "a"]]}}          likewise a Counter
    "\ud800"           {"()": {"str": "7aCA"}}               a text that UTF-8 does not have

Any tool can read the text; decoding restores the value exactly. Numbers that are equal in Python
are one key, so 1.0, True and Decimal(1) are kept as 1 in a key; a moment is one key, in UTC; and a
dictionary in a key is {"dict": [[name, value], …]}, sorted.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from decimal import Decimal
from enum import Enum
from functools import partial
from itertools import chain
from json import encoder as json_encoder
from json.encoder import encode_basestring
from types import NoneType
from typing import Any, NamedTuple, TypeAlias

from sunshower.errors import RecordMismatch, StateMismatch, Unserialisable, type_name, user_errors
from sunshower.record_types import is_record, record_type_of
from sunshower.records import DeclaredClass, DictKey, declared_class
from sunshower.records import key_of as key_of_value
from sunshower.scalars import SCALARS, as_number
from sunshower.texts import SHOWN_BYTES, clip, describe
from sunshower.value_types import CONTAINERS, LEAVES, TEXTS, without_numpy

_OVERHEAD = 64  # bytes of an object, about
_LISTS = {list, tuple}
_OF_KEYS = {int, str}  # types of most keys
UNCHANGING = {str, int, float, bool, NoneType}  # immutable, so callers cannot change a cached one
_JSON_TYPES = UNCHANGING | {list}
_LISTS_MAX = 6  # in each other: deeper values are rare
_NAMES = frozenset({str})
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)


def _encoder() -> Callable[[Any], str]:
    """What writes JSON: `JSONEncoder.encode`, which makes an encoder in C for each value, in half
    of its time."""
    if json_encoder.c_make_encoder is None:  # type: ignore[attr-defined]
        return _ENCODER.encode
    about = (None, ":", ",", False, False, True)  # indent, separators, sort, skip, allow NaN
    parts = json_encoder.c_make_encoder(  # type: ignore[attr-defined]
        None, _ENCODER.default, encode_basestring, *about
    )
    return lambda value: "".join(parts(value, 0))


_encode = _encoder()


# ---- forms --------------------------------------------------------------------------------------


class _Form:
    """Converts values to the types that a format has."""

    leaves: AbstractSet[type[Any]] = UNCHANGING  # which are as they are

    def __init__(self) -> None:
        self.writers: dict[type[Any], Callable[[Any], Any]] = {
            Counter: partial(self.pairs, "Counter")
        }

    def plain(self, value: Any) -> Any:
        """The value in types of the format. Raises Unserialisable, naming the type that it lacks,
        and what an Enum or record raises."""
        kind, leaves = type(value), self.leaves
        if kind in leaves:
            return value
        if kind is list or kind is tuple:
            items = [item if type(item) in leaves else self.plain(item) for item in value]
            return items if kind is list else self.of_tuple(items)
        if kind is dict:
            if not _NAMES.issuperset(map(type, value)) or (
                len(value) == 1 and self.is_mark(*value)
            ):
                return self.pairs("dict", value)
            return {
                name: item if type(item) in leaves else self.plain(item)
                for name, item in value.items()
            }
        writer = self.writers.get(kind)
        return self.other(value) if writer is None else writer(value)

    def pairs(self, name: str, value: dict[Any, Any]) -> dict[str, Any]:
        """A dictionary whose keys are not all texts, or one that looks like a mark."""
        pairs = [[self.plain(key), self.plain(item)] for key, item in value.items()]
        return self.marked_pairs(name, pairs)

    def other(self, value: Any) -> Any:
        """A scalar of NumPy, as it would be after a journey between workers."""
        plain = without_numpy(value)
        if plain is value:
            raise self.refusal(value)
        return self.plain(plain)

    def is_mark(self, name: str) -> bool:
        """Whether a dictionary with this name alone looks like what the format has no type for."""
        raise NotImplementedError

    def of_tuple(self, items: list[Any]) -> Any:
        raise NotImplementedError

    def marked_pairs(self, name: str, pairs: list[Any]) -> dict[str, Any]:
        raise NotImplementedError

    def refusal(self, value: Any) -> Unserialisable:
        raise NotImplementedError


class _TextForm(_Form):
    """Values in the types of JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.writers |= {
            set: lambda value: {CONTAINERS[set].mark: self.in_order(value)},
            frozenset: lambda value: {CONTAINERS[frozenset].mark: self.in_order(value)},
            **dict.fromkeys(
                (bytes, bytearray, memoryview),
                lambda value: {_BYTES: b64encode(value).decode()},
            ),
        }
        for kind, row in TEXTS.items():
            self.writers[kind] = partial(_of_text, row.mark, row.parts)

    def is_mark(self, name: str) -> bool:
        return name in _BUILD

    def of_tuple(self, items: list[Any]) -> Any:
        return {_TUPLE: items}

    def marked_pairs(self, name: str, pairs: list[Any]) -> dict[str, Any]:
        return {_TUPLE: {name: pairs}}

    def refusal(self, value: Any) -> Unserialisable:
        kind = type_name(type(value))
        return Unserialisable(f"a {kind} is not for JSON: {_remedy(value)}")

    def in_order(self, members: Iterable[Any]) -> list[Any]:
        return sorted(map(self.plain, members), key=_encode)


class _Utf8Form(_TextForm):
    """As `_TextForm`, of values with lone surrogates."""

    leaves: AbstractSet[type[Any]] = UNCHANGING - {str}

    def __init__(self) -> None:
        super().__init__()
        self.writers[str] = self._text

    def plain(self, value: Any) -> Any:
        if type(value) is dict and not all(
            type(name) is not str or _is_utf8(name) for name in value
        ):
            return self.pairs("dict", value)
        return super().plain(value)

    def in_order(self, members: Iterable[Any]) -> list[Any]:
        return [*map(self.plain, sorted(members, key=lambda member: _encode(_TEXT.plain(member))))]

    def _text(self, text: str) -> Any:
        if _is_utf8(text):
            return text
        return {_TUPLE: {"str": b64encode(text.encode(errors="surrogatepass")).decode()}}


class _LetterForm(_Utf8Form):
    """As `_Utf8Form`, without numbers that only Python writes and reads as JSON."""

    leaves = frozenset({bool, NoneType})

    def __init__(self) -> None:
        super().__init__()
        self.writers |= {float: _of_float, int: _of_int}

    def is_mark(self, name: str) -> bool:
        return name in (_FLOAT, _INT) or super().is_mark(name)


def _of_text(mark: str, text_of: Callable[[Any], str], value: Any) -> dict[str, str]:
    return {mark: text_of(value)}


def _of_float(value: float) -> Any:
    return value if math.isfinite(value) else {_FLOAT: repr(value)}


def _of_int(value: int) -> Any:
    # Python refuses to write more than 4,300 decimal digits.
    return value if -(1 << 63) <= value < 1 << 64 else {_INT: hex(value)}


def _remedy(value: Any) -> str:
    if isinstance(value, Enum):
        return "keep its value"
    if isinstance(value, tuple) or is_record(type(value)):
        return "keep its fields, as a tuple or in a dict"
    plain = (base for base in (dict, list, str, int, float) if isinstance(value, base))
    base = next(plain, None)
    return f"keep a {base.__name__}" if base else "keep what it is made of, in a list or a dict"


def _is_utf8(text: str) -> bool:
    """Whether it has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# ---- reading ------------------------------------------------------------------------------------


def _of_tuple_mark(content: Any) -> Any:
    """A tuple, or what had no mark when values were first stored: a list is none of these."""
    if type(content) is not dict:
        return tuple(content)
    ((name, inner),) = content.items()
    if name not in _LATER:
        raise ValueError(f"{name!r} is no type: a later release may have written it")
    return _LATER[name](inner)


def _rebuilt(build: Mapping[str, Callable[[Any], Any]], read: dict[str, Any]) -> Any:
    if len(read) != 1:
        return read
    ((mark, content),) = read.items()
    return build[mark](content) if mark in build else read


_TUPLE, _COUNTER = CONTAINERS[tuple].mark, CONTAINERS[Counter].mark
_BYTES, _FLOAT, _INT = "(bytes)", "(float)", "(int)"
_LATER: dict[str, Callable[[Any], Any]] = {
    "dict": dict,
    "Counter": lambda pairs: Counter(dict(pairs)),
    "str": lambda text: b64decode(text).decode(errors="surrogatepass"),
}
_BUILD: dict[str, Callable[[Any], Any]] = {
    _TUPLE: _of_tuple_mark,
    _BYTES: b64decode,
    **{CONTAINERS[kind].mark: kind for kind in (set, frozenset)},
    **{row.mark: row.build for row in TEXTS.values()},
}
_DECODER = json.JSONDecoder(object_hook=partial(_rebuilt, _BUILD))
_LETTERS = json.JSONDecoder(
    object_hook=partial(_rebuilt, {**_BUILD, _FLOAT: float, _INT: lambda text: int(text, 16)})
)
_TEXT, _UTF8, _LETTER = _TextForm(), _Utf8Form(), _LetterForm()


# ---- texts of states and keys -------------------------------------------------------------------


def text_of(value: Any) -> str:
    """A value as JSON. Raises Unserialisable, naming the type, if decoding would not restore it."""
    kind = type(value)
    if value is None:
        return "null"
    try:
        if kind is int:
            return str(value)
        text = encode_basestring(value) if kind is str else _encode(_TEXT.plain(value))
        if not text.isascii() and not _is_utf8(text):
            text = _encode(_UTF8.plain(value))
    except (ValueError, RecursionError) as error:
        raise Unserialisable(f"a {type_name(type(value))} is not for JSON: {error}") from error
    return text


def texts_of(values: Sequence[Any]) -> list[str]:
    """Many values as JSON; those that are leaves and lists in a third of the time. Raises as
    `text_of`."""
    simple = [value for value in values if type(value) in _JSON_TYPES]
    if not _are_json(simple):
        return [*map(text_of, values)]
    with suppress(ValueError):  # an integer with too many digits
        texts = [*map(str if {*map(type, simple)} == {int} else _encode, simple)]
        together = "".join(texts)
        if together.isascii() or _is_utf8(together):
            if len(texts) == len(values):
                return texts
            of_simple = iter(texts)
            return [next(of_simple) if type(v) in _JSON_TYPES else text_of(v) for v in values]
    return [*map(text_of, values)]


def _are_json(values: Sequence[Any]) -> bool:
    """Whether values are of the types of JSON without dictionaries, in a few lists."""
    for _ in range(_LISTS_MAX):
        kinds = {*map(type, values)}
        if kinds <= UNCHANGING:
            return True
        if not kinds <= _JSON_TYPES:
            return False
        lists = values if len(kinds) == 1 else [item for item in values if type(item) is list]
        values = [*chain.from_iterable(lists)]
    return False


def text_of_key(key: Any) -> str:
    """A key as JSON: a value, or a tuple of values. Raises Unserialisable."""
    if type(key) in _OF_KEYS:
        return text_of(key)
    if type(key) is tuple:
        try:
            return f"[{','.join([*map(text_of_key, key)])}]"
        except RecursionError as error:
            raise Unserialisable(f"a tuple is not for JSON: {error}") from error
    return text_of(listed(number_as_key(key_of_value(key))))


def texts_of_keys(keys: Sequence[Any]) -> list[str]:
    """Many keys as JSON; for plain strings in a third of the time."""
    if {*map(type, keys)} != {str}:
        return [*map(text_of_key, keys)]
    texts = [*map(encode_basestring, keys)]
    together = "".join(texts)
    if not together.isascii() and not _is_utf8(together):
        return [*map(text_of_key, keys)]
    return texts


def values_of(texts: Sequence[str]) -> list[Any]:
    """The values of JSON texts. Raises ValueError if one is not JSON."""
    values = _DECODER.decode(f"[{','.join(texts)}]")  # a fifth of the time of decoding each
    if len(values) != len(texts):
        raise ValueError("one of them is not one value")
    return list(values)


def key_of(text: str) -> Any:
    """The key that was encoded by `text_of_key`."""
    return hashable(_DECODER.decode(text))


def keys_of(texts: Sequence[str]) -> list[Any]:
    """The keys of many texts."""
    return [key if type(key) is str else hashable(key) for key in values_of(texts)]


def listed(key: Any) -> Any:
    """A key as a value for `text_of`, from which `hashable` makes it again."""
    if type(key) is tuple:
        return [*map(listed, key)]
    if isinstance(key, dict):
        pairs = [[listed(name), listed(value)] for name, value in key.items()]
        return {"dict": sorted(pairs, key=text_of)}
    return key


def hashable(value: Any) -> Any:
    """The key of what `listed` returned, also after it was stored."""
    if isinstance(value, list | tuple):
        return tuple(map(hashable, value))
    if isinstance(value, dict):
        return DictKey({hashable(name): hashable(item) for name, item in value["dict"]})
    return key_of_value(value)


def number_as_key(key: Any) -> Any:
    """Equal numbers as one of them: whole floats and bools as integers."""
    if type(key) is tuple:
        return tuple(map(number_as_key, key))
    if type(key) is DictKey:
        return DictKey({number_as_key(n): number_as_key(item) for n, item in key.items()})
    if type(key) is frozenset:
        return frozenset(map(number_as_key, key))
    if type(key) is Decimal:
        return as_number(key)
    is_whole = type(key) is bool or (type(key) is float and key.is_integer())
    return int(key) if is_whole else key


def letter_value(value: Any) -> Any:
    """A value in types of JSON, as a dead letter has it. Raises Unserialisable as `text_of`."""
    return _LETTER.plain(value)


def value_of_letter(plain: Any) -> Any:
    """The value that `letter_value` has converted, also after it was read as JSON. Raises TypeError
    and ValueError if somebody has changed it."""
    return _LETTERS.decode(json.dumps(plain))


# ---- messages -----------------------------------------------------------------------------------

_TEXTS_AND_NUMBERS = LEAVES - {bytes}


def for_json(value: Any) -> Any:
    """What JSON can have of a value that it has no type for: the text of a scalar, the value of an
    Enum, the fields of a record. The `default` of json.dumps. Raises TypeError for others."""
    if type(value) in SCALARS:
        return SCALARS[type(value)].text(value)
    if isinstance(value, Enum):
        return value.value
    described = record_type_of(type(value))
    if described is not None:
        return described.message(value)
    raise TypeError(f"a {type(value).__qualname__} is not for JSON")


_encode_message = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, default=lambda value: _named_for_json(for_json(value))
).encode


def json_text(value: Any) -> str:
    """A value as JSON, with the records in it as objects, field → value. Raises TypeError for a
    type that it has no text for, and ValueError for NaN and for two keys with one text. They name
    the place in the value, and what to do."""
    is_flat = (
        type(value) is dict
        and _NAMES.issuperset(map(type, value))
        and _TEXTS_AND_NUMBERS.issuperset(map(type, value.values()))
    )
    try:
        return _encode_message(value if is_flat else _named_for_json(value))
    except (TypeError, ValueError) as error:
        kind, reason = TypeError if isinstance(error, TypeError) else ValueError, ""
        with suppress(TypeError, RecursionError):  # pydantic refuses it; it contains itself
            reason = _refusal(value, "")
        if not reason:
            raise
        raise kind(reason) from None


def _refusal(value: Any, place: str) -> str:
    """Where a value has within it what JSON does not have, and what to do; empty: nowhere."""
    start = f"{clip(place)}: " if place else ""
    if isinstance(value, Enum):
        return _refusal(value.value, place)
    if value is None or isinstance(value, str | int) or type(value) in SCALARS:
        return ""
    if isinstance(value, float):
        is_number = math.isfinite(value)
        return "" if is_number else f"{start}{value} is not for JSON: make it None or a text"
    parts: Iterable[tuple[str, Any]]
    described = record_type_of(type(value))
    if isinstance(value, dict):
        if problem := _problem_of_keys(value):
            return f"{start}{problem}"
        parts = ((f"[{name!r}]" if place else f"{name}", item) for name, item in value.items())
    elif described is not None:
        parts = ((f".{name}", item) for name, item in described.message(value).items())
    elif isinstance(value, list | tuple):
        parts = ((f"[{index}]", item) for index, item in enumerate(value))
    else:
        return f"{start}a {type_name(type(value))} is not for JSON: {_remedy_of_type(value)}"
    return next(filter(None, (_refusal(item, f"{place}{part}") for part, item in parts)), "")


def _remedy_of_type(value: Any) -> str:
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return "make it a plain value, with its method tolist"
    if isinstance(value, AbstractSet):
        return "make it a list"
    if isinstance(value, bytes | bytearray | memoryview):
        return "make it a text, such as that of base64"
    return "make it a number, a text, or a list or dictionary of these"


def _problem_of_keys(value: dict[Any, Any]) -> Exception | None:
    """Why JSON cannot have a dictionary with these keys; None: it can."""
    texts: dict[str, Any] = {}
    for key in value:
        if key is not None and not isinstance(key, str | int | float):
            kind = type_name(type(key))
            return TypeError(f"a key that is a {kind} is not for JSON: make it a text or a number")
        text = str.__str__(key) if isinstance(key, str) else json.dumps(key)
        if text in texts:
            both = f"{describe(texts[text], SHOWN_BYTES)} and {describe(key, SHOWN_BYTES)}"
            return ValueError(f"the keys {both} are one in JSON: make them other texts")
        texts[text] = key
    return None


def named(value: Any) -> Any:
    """A value with the NamedTuples in it, at any depth, as dictionaries, field → value; the value
    itself if it has none. Within other records they stay as they are."""
    return _named(value, _any_keys) if _has_named(value, _any_keys) else value


def _named_for_json(value: Any) -> Any:
    """As `named`. Raises TypeError and ValueError for a dictionary that JSON cannot have."""
    return _named(value, _check_keys) if _has_named(value, _check_keys) else value


_Check: TypeAlias = Callable[[dict[Any, Any]], None]


def _any_keys(value: dict[Any, Any]) -> None:
    """Accept all keys."""


def _check_keys(value: dict[Any, Any]) -> None:
    if not _NAMES.issuperset(map(type, value)) and (problem := _problem_of_keys(value)):
        raise problem


def _has_named(value: Any, check: _Check) -> bool:
    kind = type(value)
    if kind is dict:
        check(value)
        items = value.values()
    elif kind is list or kind is tuple:
        items = value
    else:
        return isinstance(value, dict | list | tuple)  # a NamedTuple, or perhaps
    return any(type(item) not in _TEXTS_AND_NUMBERS and _has_named(item, check) for item in items)


def _named(value: Any, check: _Check) -> Any:
    if isinstance(value, dict):
        check(value)
        return {name: _named(item, check) for name, item in value.items()}
    if isinstance(value, list):
        return [_named(item, check) for item in list.__iter__(value)]
    if isinstance(value, tuple):
        items = [_named(item, check) for item in tuple.__iter__(value)]
        names = getattr(value, "_fields", None)
        return items if names is None else dict(zip(names, items, strict=True))
    return value


# ---- keyed states -------------------------------------------------------------------------------


_STATE_SETS: dict[type[Any], str] = {set: "(a set)", frozenset: "(a frozenset)"}


def _set_of(kind: type[Any], members: list[Any]) -> Any:
    """A set, in which the fields of a record are a DictKey: see `as_fields`."""
    try:
        return kind(members)
    except TypeError:
        return kind(map(_as_key, members))


def _dict_of(pairs: list[Any]) -> dict[Any, Any]:
    try:
        return dict(pairs)
    except TypeError:
        return {_as_key(key): value for key, value in pairs}


def _as_key(value: Any) -> Any:
    if type(value) is tuple:
        return tuple(map(_as_key, value))
    return key_of_value(value) if type(value) is dict else value


_STATE_MARKS: dict[str, Callable[[Any], Any]] = {
    "(dict)": _dict_of,
    _COUNTER: lambda pairs: Counter(_dict_of(pairs)),
    **{mark: partial(_set_of, kind) for kind, mark in _STATE_SETS.items()},
}


class _StateForm(_Form):
    """Values in types that every state stores, which are more than those of JSON."""

    leaves = LEAVES

    def __init__(self, declared: Mapping[type[Any], DeclaredClass]) -> None:
        super().__init__()
        self.writers |= {
            DictKey: lambda value: self.plain(dict(value)),
            **dict.fromkeys((bytearray, memoryview), bytes),
        }
        for kind, mark in _STATE_SETS.items():
            self.writers[kind] = partial(self._members, mark)
        for kind, known in declared.items():
            self.writers[kind] = partial(self._declared, known)

    def is_mark(self, name: str) -> bool:
        return name[:1] in ("<", "(")

    def of_tuple(self, items: list[Any]) -> Any:
        return tuple(items)

    def marked_pairs(self, name: str, pairs: list[Any]) -> dict[str, Any]:
        return {f"({name})": pairs}

    def refusal(self, value: Any) -> Unserialisable:
        kind = type(value)
        why = f"which a state does not store: {_remedy(value)}"
        if isinstance(value, Enum) or is_record(kind):
            why = "which no annotation of the state names: name it there, as in "
            why += f"`dict[str, {kind.__name__}]`"
        return Unserialisable(f"a value is a {type_name(kind)}, {why}")

    def _members(self, mark: str, members: AbstractSet[Any]) -> Any:
        if LEAVES.issuperset(map(type, members)):
            return members.copy()  # type: ignore[attr-defined]
        return {mark: sorted(map(self.plain, members), key=repr)}

    def _declared(self, known: DeclaredClass, value: Any) -> dict[str, Any]:
        parts = known.parts(value)
        if known.record is None:
            return {known.mark: parts}
        return {known.mark: dict(zip(known.record.fields, self.plain(parts), strict=True))}


Renamed = Mapping[str, str | None]
_KINDS_OF_ROWS = {"(list)": "KeyList", "(map)": "KeyMap"}


class FieldChanges(NamedTuple):
    """How stored records become those of a class whose fields have changed. A field whose values
    are dropped must be named, if another one is new: it may have been renamed."""

    renamed: Mapping[str, str]  # a stored field → its name now
    added: tuple[str, ...]  # they have their defaults
    dropped: tuple[str, ...]
    why_not: str = ""  # empty: they can be read

    def __str__(self) -> str:
        parts = [f"{old!r} becomes {new!r}" for old, new in self.renamed.items()]
        parts += [f"{name!r} is new, with its default" for name in self.added]
        return ", ".join([*parts, *(f"{name!r} is dropped" for name in self.dropped)])


class StoredValues:
    """Converts values that can be sent between workers to types that every state stores, and back.

        Visit(3, Color.RED)     {"<Visit>": {"count": 3, "color": {"<Color>": "RED"}}}
        {1: "a"}                {"(dict)": [[1, "a"]]}       keys that are no texts
        Counter("aab")          {"(Counter)": [["a", 2], ["b", 1]]}

    Records are stored with the names of their fields, so the fields of a class may change: see
    `FieldChanges`. What is converted shares nothing mutable with the value. `classes`: the Enums
    and record types that values may have, each by its name.
    """

    def __init__(
        self, classes: Iterable[type[Any]], where: str, renamed: Renamed | None = None
    ) -> None:
        """`renamed`: a former field → its name now; None: its values are dropped. Without it fields
        can only be added. Raises RecordMismatch for two classes of one name."""
        self._where, self.classes, self.may_drop = where, tuple(classes), renamed is not None
        self.renamed = dict(renamed or {})
        declared = {kind: declared_class(kind) for kind in self.classes}
        self._named = {known.mark: known for known in declared.values()}
        if len(self._named) < len(declared):
            names = Counter(known.mark for known in declared.values())
            raise RecordMismatch(
                f"{where}: two classes are called {names.most_common(1)[0][0][1:-1]}, and a state "
                "stores classes by name; rename one of them"
            )
        self._form = _StateForm(declared)
        self.unchanging = {  # marks of Enums, and of records that cannot change
            known.mark
            for known in declared.values()
            if known.record is None or known.record.is_frozen
        }
        self._fields = {  # mark of a record type → its fields, and those with a default
            mark: (tuple(known.record.fields), frozenset(known.record.defaults))
            for mark, known in self._named.items()
            if known.record is not None
        }
        self._former: dict[str, dict[str, str | None]] = {}  # mark → as `renamed`, of the store
        self._changes: dict[tuple[str, tuple[str, ...]], FieldChanges] = {}

    def __deepcopy__(self, memo: Any) -> StoredValues:
        """Itself: what changes in it is the same for all tasks, and functions of an Enum cannot be
        copied."""
        return self

    def plain(self, value: Any) -> Any:
        """The value in types that every state stores. Raises Unserialisable, naming the type."""
        kind = type(value)
        if kind in LEAVES:
            return value
        try:
            return self._form.plain(value)
        except Unserialisable as error:
            raise Unserialisable(f"{self._where}: {error}") from error
        except (ValueError, AttributeError, RecursionError) as error:
            raise Unserialisable(f"{self._where}: a {kind.__qualname__}: {error}") from error

    def value(self, plain: Any) -> Any:
        """The value that was converted. Raises StateMismatch if its class has changed, or somebody
        else has written it."""
        try:
            return _built(plain, self._build)
        except (TypeError, ValueError, RecursionError) as error:
            raise StateMismatch(
                f"{self._where}: a stored value cannot be read ({error}): another program has "
                f"written there: {plain!r:.100}"
            ) from error

    def shapes(self) -> dict[str, list[str]]:
        """The fields of each record type, by its name."""
        return {mark[1:-1]: [*fields] for mark, (fields, _) in self._fields.items()}

    def check_renamed(self) -> None:
        """Raise RecordMismatch for a renamed field that is still there, or whose new name no record
        type has."""
        types = [(mark[1:-1], fields) for mark, (fields, _) in self._fields.items()]
        everything = {field for _, fields in types for field in fields}
        for old, new in self.renamed.items():
            for name, fields in types:
                if old in fields and (new in fields or len(types) == 1):
                    raise RecordMismatch(f"{self._where}: renamed: {name} has a field {old!r} now")
            name_now = self._name_now(old, everything - {old}, self.renamed)
            if name_now is not None and name_now not in everything:
                raise RecordMismatch(
                    f"{self._where}: renamed: no record type of the state has a field {new!r}"
                )

    def learn(self, renamed: Mapping[str, Mapping[str, str | None]]) -> None:
        """Note the former names of fields that a store knows, by the name of the record type."""
        for name, names in renamed.items():
            self._former.setdefault(f"<{name}>", {}).update(names)
        self._changes.clear()

    def former(self, stored: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str | None]]:
        """The former names of fields after those of `stored` shapes, in the form of `learn`."""
        names_of_kinds = {mark[1:-1]: dict(names) for mark, names in self._former.items()}
        for name, had in stored.items():
            changes = self.changes(name, had)
            gone = {**changes.renamed, **dict.fromkeys(changes.dropped)}
            if gone:
                names_of_kinds.setdefault(name, {}).update(gone)
        return names_of_kinds

    def named_now(self, kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of fields of a record type by their names now; they may have former ones.
        Raises RecordMismatch for two that are one now."""
        mark = declared_class(kind).mark
        has, renamed = self._fields[mark][0], {**self._former.get(mark, {}), **self.renamed}
        values_now: dict[str, Any] = {}
        for old, value in values.items():
            name = self._name_now(old, has, renamed)
            if name in values_now:
                raise RecordMismatch(f"two of its fields are called {name!r} now")
            if name is not None:
                values_now[name] = value
        return values_now

    def changed(self, stored: Mapping[str, Sequence[str]]) -> str:
        """How a record type differs from `stored` shapes, so that its stored records cannot be
        built; empty if they can."""
        for name, had in stored.items():
            if f"<{name}>" not in self._fields:
                return f"a record {name} is stored, and no annotation of the state names it"
            if why := self.changes(name, had).why_not:
                return why
        return ""

    def changes(self, name: str, had: Iterable[str]) -> FieldChanges:
        """What becomes of the stored fields of a record type."""
        key = f"<{name}>", tuple(had)
        if (known := self._changes.get(key)) is None:
            known = self._changes[key] = self._compared(*key)
        return known

    def _compared(self, mark: str, had: tuple[str, ...]) -> FieldChanges:
        has, defaults = self._fields[mark]
        former = self._former.get(mark, {})
        names = {old: self._name_now(old, has, {**former, **self.renamed}) for old in had}
        now = [name for name in names.values() if name is not None]
        added = [field for field in has if field not in now]
        gone = [old for old, name in names.items() if name is not None and name not in has]
        shape = f"{mark[1:-1]} was stored as ({', '.join(had)}), and is ({', '.join(has)})"
        why = ""
        if not self.may_drop and set(had) - set(has):
            why = shape
        elif back := [old for old in former if old in has]:
            why = f"{shape}: stored values may have another {back[0]!r}, of an earlier program"
        elif len({*now}) < len(now):
            why = f"{shape}: two of its fields would be renamed to one"
        elif needed := [field for field in added if field not in defaults]:
            hint = f', or say renamed={{"{gone[0]}": "{needed[0]}"}}' if gone else ""
            why = f"{shape}: {needed[0]!r} has no default{hint}"
        elif added and gone:
            why = (
                f'{shape}: say what became of {gone[0]!r}, as in renamed={{"{gone[0]}": '
                f'"{added[0]}"}}, or None if its values are to be dropped'
            )
        dropped = [old for old, name in names.items() if name is None or name in gone]
        renamed = {old: name for old, name in names.items() if name and name in has and name != old}
        return FieldChanges(renamed, tuple(added), tuple(dropped), why)

    @staticmethod
    def _name_now(old: str, has: Collection[str], renamed: Renamed) -> str | None:
        """The name that a stored field has now; None: it is dropped; `old`: unchanged, or gone."""
        name: str | None = old
        for _ in renamed:
            if name is None or name in has or name not in renamed:
                break
            name = renamed[name]
        return name

    def _build(self, mark: str, content: Any) -> Any:
        known = self._named.get(mark)
        if (kind := _KINDS_OF_ROWS.get(mark)) is not None:
            raise StateMismatch(
                f"{self._where}: the state of a key was stored as a {kind}, and is read as a "
                f"KeyState: annotate {kind}, or give the state another name="
            )
        try:
            if known is None:
                raise TypeError("no annotation of the state names such a class")
            if known.record is None:
                return known.build(content)
            if content.keys() != {*known.record.fields}:
                content = self._renamed(mark, content)
            return known.record.build_named(content)
        except user_errors() as error:  # of a default_factory, too
            raise StateMismatch(
                f"{self._where}: a stored {mark[1:-1]} cannot be built ({error}): its class has "
                "changed since it was stored"
            ) from error

    def _renamed(self, mark: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """The values of stored fields by their names now. Raises TypeError as `changed` says."""
        changes = self.changes(mark[1:-1], content)
        if changes.why_not:
            raise TypeError(changes.why_not)
        gone = changes.dropped
        return {
            changes.renamed.get(name, name): value
            for name, value in content.items()
            if name not in gone
        }


def as_fields(plain: Any) -> Any:
    """A converted value, with a dictionary of its fields for each record, and names for Enums: for
    those who do not have the classes. In a set, and as a key, such a dictionary is a DictKey."""
    return _built(plain, lambda _, content: content)


def are_flat(values: Collection[Any], depth: int, leaves: AbstractSet[type[Any]] = LEAVES) -> bool:
    """Whether values have nothing in them but lists, at most `depth` in each other, of values that
    cannot change, of the types `leaves`, and tuples of these. Every state stores them as they are.
    It takes 40 ns for each part of many values, and most of a microsecond for one."""
    for _ in range(depth + 1):
        kinds = set(map(type, values))
        if kinds <= leaves:
            return True
        if not kinds - _LISTS <= leaves:
            return False
        if tuple in kinds:
            within = chain.from_iterable([item for item in values if type(item) is tuple])
            if not set(map(type, within)) <= leaves:
                return False
            if list not in kinds:
                return True
        lists = values if len(kinds) == 1 else [item for item in values if type(item) is list]
        values = [*chain.from_iterable(lists)]
    return False


def byte_size(plain: Any) -> int:
    """The bytes that a converted value takes in memory, about."""
    kind = type(plain)
    if kind is str or kind is bytes:
        return _OVERHEAD + len(plain)
    if kind is list or kind is tuple:
        return _OVERHEAD + sum(map(byte_size, plain))
    if kind is dict:
        return 2 * _OVERHEAD + sum(map(byte_size, plain)) + sum(map(byte_size, plain.values()))
    return _OVERHEAD


def _built(plain: Any, build: Callable[[str, Any], Any]) -> Any:
    kind = type(plain)
    if kind is list or kind is tuple:
        items = [item if type(item) in LEAVES else _built(item, build) for item in plain]
        return items if kind is list else tuple(items)
    if kind is not dict:
        return set(plain) if kind is set else plain
    if len(plain) != 1 or next(iter(plain))[:1] not in ("<", "("):
        return {name: _built(item, build) for name, item in plain.items()}
    ((mark, content),) = plain.items()
    content = _built(content, build)
    return _STATE_MARKS[mark](content) if mark in _STATE_MARKS else build(mark, content)
