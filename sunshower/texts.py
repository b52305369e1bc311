"""Makes texts and values of users safe to store, send and show: encodable, clipped, printable.

Records, keys and exceptions may hold anything: lone surrogates, control characters, 16 MiB of
bytes, lists that hold themselves, objects whose `__repr__` raises. None of them makes one of these
functions raise an error.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TextIO

from sunshower.errors import user_errors

REASON_BYTES = 1 << 12  # of a reason or an error's text that is kept
TRACEBACK_BYTES = 1 << 14
ERROR_BYTES = 1 << 16  # of why a topology failed: an error, with advice and a traceback
_ITEM_BYTES = 1 << 24  # of an item of a JSON object, as the other limits of values
_DEPTH_MAX = 100  # MessagePack refuses more than 511
_DIGITS_MAX = 4096  # bits of an int that is written in decimal: Python refuses 4,300 digits
_BRACKETS: dict[Any, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), dict: ("{", "}")}
# Control characters except tab and newline, line separators, marks that change the direction of
# text, and lone surrogates.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def utf8(text: str) -> bytes:
    r"""UTF-8. A lone surrogate, which UTF-8 cannot encode, becomes its escape, such as \udc80; in a
    JSON text that is the same value."""
    return text.encode("utf-8", "backslashreplace")


def printable(text: str) -> str:
    r"""The text for a terminal or a log: control characters are escaped, as in \x1b. Tabs and
    newlines stay."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def write(out: TextIO, text: str) -> None:
    """Write to a file of texts, and flush it. Characters that its encoding lacks are escaped, on a
    terminal also control characters. Raises what the file raises."""
    if out.isatty():
        text = printable(text)
    try:
        out.write(text)
    except UnicodeEncodeError:
        out.write(text.encode(out.encoding, "backslashreplace").decode(out.encoding))
    out.flush()


def clip(text: Any, bytes_max: int = REASON_BYTES) -> str:
    """A text of at most `bytes_max` bytes that UTF-8 can encode. Of a longer one the beginning and
    the end are kept, with a marker between them; anything but a text becomes its repr."""
    if not isinstance(text, str):
        return describe(text, bytes_max)
    if len(text) <= bytes_max:
        if text.isascii():
            return text
        data = utf8(text)
        if len(data) <= bytes_max:
            return data.decode()
    marker = f" … (clipped to {bytes_max:,} bytes) … "
    room = bytes_max - len(marker.encode())
    if room < 0:
        return utf8(text[:bytes_max])[:bytes_max].decode(errors="ignore")
    head, tail = utf8(text[:room])[: room - room // 2], utf8(text[-room:])
    end = tail[len(tail) - room // 2 :]
    return f"{head.decode(errors='ignore')}{marker}{end.decode(errors='ignore')}"


def describe(value: Any, bytes_max: int = REASON_BYTES) -> str:
    """`repr(value)`, clipped; a placeholder with the type's name if `__repr__` raises."""
    parts: list[str] = []
    left = bytes_max
    for part in _parts(value, bytes_max, ()):
        parts.append(part)
        left -= len(part)
        if left < 0:
            break
    return clip("".join(parts), bytes_max)


def id_text(message_id: Any, bytes_max: int = REASON_BYTES) -> str:
    """A message id for people: that of a partition's record is `orders[0] 41`, and that
    of a batch `batch 17`."""
    match message_id:
        case str():
            return clip(message_id, bytes_max)
        case (str(topic), int(partition), int(offset), *_):
            return clip(f"{topic}[{partition}] {offset}", bytes_max)
        case tuple() if hasattr(message_id, "txid"):
            return f"batch {message_id.txid}"
    return describe(message_id, bytes_max)


def did_you_mean(name: Any, names: Iterable[str]) -> str:
    """A hint for a name that is none of `names`, such as "; did you mean 'amount'?"; empty if none
    of them is like it."""
    known = [*names]
    if not isinstance(name, str) or name in known:
        return ""
    close = get_close_matches(name, known, 1) or [
        other for other in known if other.casefold() == name.casefold()
    ]
    return f"; did you mean {close[0]!r}?" if close else ""


def message_of(error: BaseException) -> str:
    """`str(error)`; a placeholder if that raises."""
    try:
        return str(error)
    except user_errors() as other:
        return f"<{type(error).__name__}, whose str raised {type(other).__name__}>"


def describe_error(error: BaseException) -> str:
    """The type and the message of an exception, clipped: `ValueError: no such word`."""
    return clip(f"{type(error).__name__}: {message_of(error)}")


def carried(value: Any, bytes_max: int) -> Any:
    """`value` if JSON and MessagePack can encode it, and it has at most `bytes_max` bytes as
    MessagePack; else a text that describes it.

    They can encode None, bool, int of 64 bits, finite float, str, and lists, tuples and dicts with
    str keys of these, up to 100 deep. Subclasses would lose what they add.
    """
    if _room_left(value, bytes_max, 0) >= 0:
        return value
    return clip(value, bytes_max) if type(value) is str else describe(value, bytes_max)


def json_of(fields: Mapping[str, Any], **layout: Any) -> str:
    """A JSON object of any values: one that JSON cannot represent becomes a text. `layout`: further
    arguments of json.dumps."""
    try:
        return json.dumps(fields, default=describe, allow_nan=False, **layout)
    except (TypeError, ValueError, RecursionError):  # a key that is no text, NaN, or too deep
        return json.dumps(_json_value(dict(fields)), **layout)


def size_of(value: Any) -> int:
    """At least the size as MessagePack of a value that `carried` has returned."""
    whole = 1 << 62
    return whole - _room_left(value, whole, 0)


def _json_value(value: Any, depth: int = 0) -> Any:
    """`value` with texts in place of what JSON cannot represent: single items of lists and
    dictionaries up to three deep, else the whole item at that depth."""
    kind = type(value)
    if kind not in _BRACKETS or depth == 3:  # items may be shared, or hold themselves
        return value if _room_left(value, _ITEM_BYTES, 0) >= 0 else clip(value, ERROR_BYTES)
    if kind is dict:
        return {clip(name): _json_value(item, depth + 1) for name, item in value.items()}
    return [_json_value(item, depth + 1) for item in value]


def _room_left(value: Any, room: int, depth: int) -> int:
    """What is left of `room` bytes after `value`; negative if it is too large, or not plain."""
    if room < 0 or depth > _DEPTH_MAX:
        return -1
    kind = type(value)
    if kind is str:
        size = len(value)
        if size <= room and not value.isascii():
            size = len(value.encode("utf-8", "surrogatepass"))
        return room - 5 - size
    if value is None or kind is bool:
        return room - 1
    if kind is int:
        return room - 9 if -(1 << 63) <= value < 1 << 64 else -1
    if kind is float:
        return room - 9 if math.isfinite(value) else -1
    if kind not in _BRACKETS:
        return -1
    room -= 5
    if kind is dict:
        for key in value:
            room = _room_left(key, room, depth + 1) if type(key) is str else -1
    for item in value.values() if kind is dict else value:
        room = _room_left(item, room, depth + 1)
        if room < 0:
            return -1
    return room


def _parts(value: Any, bytes_max: int, path: tuple[Any, ...]) -> Iterator[str]:
    """The repr of `value` in pieces; `path`: the lists, tuples and dicts that hold it."""
    kind = type(value)
    if kind in (str, bytes, bytearray):
        yield repr(value[: bytes_max + 1])
        return
    if kind not in _BRACKETS:
        yield _repr(value)
        return
    first, last = _BRACKETS[kind]
    if len(path) > _DEPTH_MAX or any(value is other for other in path):
        yield f"{first}...{last}"
        return
    yield first
    path = (*path, value)
    for number, item in enumerate(value.items() if kind is dict else value):
        if number:
            yield ", "
        for at, part in enumerate(item if kind is dict else (item,)):
            if at:
                yield ": "
            yield from _parts(part, bytes_max, path)
    yield "," * (kind is tuple and len(value) == 1) + last


def _repr(value: Any) -> str:
    try:
        if type(value) is int and value.bit_length() > _DIGITS_MAX:
            return hex(value)
        return repr(value)
    except user_errors() as error:
        return f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"


# ---- misfits ------------------------------------------------------------------------------------

SHOWN_BYTES = 128  # of a value in an error
ABSENT = object()
_PLACE = re.compile(r"(?:key` in `)?\$(?:\.(.*?))?((?:\[(?:\d+|\.\.\.)\])*)`", re.DOTALL)
_WRONG = re.compile(r"Expected `(.+?)`(?:, got `.+`)?")
_UNKNOWN = re.compile(r"Object contains unknown field `(.+)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.+)`", re.DOTALL)


class Misfit(ValueError):
    """A value that does not fit its type: what is wrong, or where in it the `cause` is. `{}` in the
    text stands for the value, which is described only for the error that is reported."""

    def __init__(
        self, text: str, value: Any = ABSENT, *, place: str = "", cause: Misfit | None = None
    ) -> None:
        super().__init__(text)
        self.value, self.place, self.cause = value, place, cause

    def message(self, name: str) -> str:
        """What is wrong and where, from the record called `name` on."""
        places, misfit = [self.place], self
        while misfit.cause is not None:
            misfit = misfit.cause
            places.append(misfit.place)
        text = str(misfit)
        if misfit.value is not ABSENT:
            text = text.replace("{}", describe(misfit.value, SHOWN_BYTES), 1)
        place = "".join(places)
        return f"{clip(name + place)}: {text}" if place else text


def reason_of(error: BaseException) -> str:
    """Why a value could not be read."""
    return "it is nested too deeply" if type(error) is RecursionError else message_of(error)


def misfit_of(error: BaseException, name: str, value: Any) -> Misfit:
    """What msgspec says of a value that is to be a record called `name`."""
    text, at, place = str(error).rpartition(" - at `")
    match = _PLACE.fullmatch(place) if at else None
    field, indexes = (match.groups() if match else ("", "")) or ("", "")
    where = f"{f'.{field}' if field else ''}{indexes.replace('[...]', '')}"
    if type(error.__cause__) is Misfit:
        return Misfit("", place=where, cause=error.__cause__)
    text = text if match else reason_of(error)
    if missing := _MISSING.fullmatch(text):
        return Misfit(f"{name} without {missing[1]}", place=where)
    if unknown := _UNKNOWN.fullmatch(text):
        return Misfit(f"{name} has no field {unknown[1]!r}", place=where)
    if type(error).__name__ != "ValidationError" or value is ABSENT:
        return Misfit(text, place=where)
    value = _value_at(value, field, indexes)
    if text.startswith("Expected `object`") and not where:
        return Misfit(f"{name} was expected, and it is {{}}", value)
    if wrong := _WRONG.fullmatch(text):
        has = "has a key that is" if place.startswith("key") else "is"
        expected = wrong[1].replace("int | float", "float")
        return Misfit(f"{{}} {has} no {expected}", value, place=where)
    return Misfit(f"{{}}: {text}", value, place=where)


def _value_at(value: Any, field: str, indexes: str) -> Any:
    """The value at a place that msgspec names, or the one around it that has a place."""
    if field and type(value) is dict:
        value = value[field]
    for index in re.findall(r"\[(.+?)\]", indexes):
        if index == "..." or type(value) not in (list, tuple):
            break
        value = value[int(index)]
    return value
