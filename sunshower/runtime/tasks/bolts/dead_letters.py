"""Builds dead letters that any sink can write, for every record."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, get_args

from sunshower.codec import Codec
from sunshower.errors import BadEmit, Unserialisable, user_errors
from sunshower.failures import Failure
from sunshower.json_values import StoredValues, for_json, letter_value, named, value_of_letter
from sunshower.record_reader import field_readers
from sunshower.record_types import hints_of, is_record
from sunshower.records import Schema, record_class
from sunshower.texts import carried, describe, size_of
from sunshower.topologies.components import DEFAULT
from sunshower.topologies.retry import DeadLetter, fitted

ROW_BYTES = 64  # what encoding a letter as a row of a frame may add
_LINE_MAX = 120  # characters of a message id or a reason in one line


# ---- letter values -------------------------------------------------------------------------------
# Writes the values of a record into a dead letter, as JSON that people read, and reads them back.
#
# A value is in the letter as `sunshower.json_values.for_json` has it, if reading it by the
# annotation of its field restores it. Others have marks, and the letter names their fields in
# `marked`:
#
#     (1, 2)             {"()": [1, 2]}
#     {1: "a"}           {"(dict)": [[1, "a"]]}
#     Point(3, NaN)      {"<Point>": {"x": 3, "y": {"(float)": "nan"}}}
#
# They are those of `sunshower.json_values`, and of numbers that JSON or MessagePack lacks.

_PLAIN = (str, bytes, int, float, bool)
_WHOLE = 1 << 62  # bytes: any size; `fitted` clips what is too large


class LetterValues:
    """How the values of one stream's records are in letters. `classes`: the Enums and record types
    that may travel in the topology, besides those of the schema."""

    def __init__(self, schema: Schema, classes: Collection[type[Any]] = ()) -> None:
        kind = schema.type
        declared = dict.fromkeys([*schema.classes, *classes])
        names = Counter(cls.__qualname__ for cls in declared)
        named = [cls for cls in declared if names[cls.__qualname__] == 1]  # others are refused
        self._codec = Codec(declared)
        self._stored = StoredValues(named, "a dead letter")
        self._hints = {} if kind is tuple else hints_of(kind)
        self._readers = {} if kind is tuple else field_readers(kind)

    def written(self, record: Mapping[str, Any]) -> tuple[dict[str, Any], list[str], list[str]]:
        """A record, field → value, as a letter has it; the fields whose value is only a text or
        another form of it; and the fields whose value has marks."""
        values, texts, marked = dict[str, Any](), list[str](), list[str]()
        for name, value in record.items():
            shown = readable(value)
            is_changed = shown is not value
            if not self._restores(name, value, shown):
                try:
                    travelled = self._codec.decode(self._codec.encode(value))
                    shown, is_changed = letter_value(self._stored.plain(travelled)), False
                    marked.append(name)
                except (Unserialisable, ValueError, RecursionError):
                    shown, is_changed = shown if is_changed else describe(value, _WHOLE), True
            values[name] = shown
            if is_changed:
                texts.append(name)
        return values, texts, marked

    def _restores(self, name: str, value: Any, shown: Any) -> bool:
        """Whether `read` finds the value in a letter that has `shown`."""
        if type(value) is self._hints.get(name) and type(value) in (str, int, bool):
            return shown is value and carried(value, _WHOLE) is value
        try:
            written = describe(shown, _WHOLE) if type(shown) is bytes else shown
            as_json = json.loads(json.dumps(named(written)))
            if carried(written, _WHOLE) is not written:
                return False
            restored = self._by_annotation(name, as_json, is_text=written is not value)
            return self._codec.encode(restored) == self._codec.encode(value)
        except user_errors():  # whatever the letter has cannot be read back
            return False

    def read(self, letter: DeadLetter) -> dict[str, Any]:
        """The record of a letter, field → value. Raises BadEmit for a value that the letter has
        only a text of, StateMismatch and ValueError for values that do not fit their fields."""
        return {
            name: (
                self._stored.value(value_of_letter(value))
                if name in letter.marked
                else self._by_annotation(name, value, is_text=name in letter.as_text)
            )
            for name, value in letter.record.items()
        }

    def _by_annotation(self, name: str, value: Any, *, is_text: bool) -> Any:
        """What a value without marks stands for."""
        hint, restored = self._hints.get(name, Any), value
        if hint is not Any or is_text:
            restored = _plain(hint, value, f"field {name!r}")
        if (convert := self._readers.get(name)) is not None:
            restored = convert(restored)
        if is_text and restored is value:
            raise BadEmit(f"the letter has only a text in place of the value of field {name!r}")
        return restored


def readable(value: Any) -> Any:
    """A date, decimal, UUID, Enum or record as record_reader reads it; others as they are."""
    kind = type(value)
    try:
        if is_record(kind):
            known = record_class(kind)
            plain: Any = dict(zip(known.fields, known.values(value), strict=True))
        else:
            plain = for_json(value)
        json.dumps(plain)  # before `carried`, which describes what is within
    except user_errors():  # of a record that is not complete, too
        return value
    return plain if carried(plain, _WHOLE) is plain else value


def _plain(hint: Any, value: Any, where: str) -> Any:
    """`value`, or the bytes that a text like "b'…'" stands for. Raises BadEmit for a value that is
    not of its plain type, which record_reader does not check."""
    is_of_bytes = hint is Any or bytes in (hint, *get_args(hint))
    if is_of_bytes and type(value) is str and value.startswith(("b'", 'b"')):
        with suppress(ValueError, SyntaxError):  # it was clipped
            literal = ast.literal_eval(value)
            value = literal if type(literal) is bytes else value
    if hint in _PLAIN and not _fits(hint, value):
        raise BadEmit(f"{where}: {describe(value)} is not a valid {hint.__name__}")
    return value


def _fits(kind: type[Any], value: Any) -> bool:
    is_bool = type(value) is bool and kind in (int, float)
    return (isinstance(value, kind) and not is_bool) or (kind is float and type(value) is int)


# ---- dead letters --------------------------------------------------------------------------------


def dead_letter(
    spout: str,
    message_id: Any,
    record: Mapping[str, Any],
    failure: Failure,
    attempts: int,
    bytes_max: int = (1 << 24) - ROW_BYTES,
    *,
    stream: str = DEFAULT,
    time: float,
    forms: LetterValues | None = None,
) -> DeadLetter:
    """The dead letter of a message of `spout` that failed `attempts` times, last with `failure`;
    `time`: Unix time; `forms`: how the values are written, so that a replay restores them.

    It has at most `bytes_max` bytes as MessagePack, by default what the usual `record_bytes_max`
    lets travel to another worker.
    """
    if forms is not None:
        values, texts, marked = forms.written(record)
    else:
        values, marked = {field: readable(value) for field, value in record.items()}, []
        texts = [field for field, value in record.items() if values[field] is not value]
    letter = DeadLetter(
        message_id,
        values,
        spout,
        attempts,
        str(failure.cause),
        failure.component,
        failure.task,
        failure.worker,
        failure.reason,
        failure.exception,
        failure.traceback,
        stream,
        time,
        tuple(texts),
        tuple(marked),
    )
    return fitted(letter, bytes_max, lambda clipped: size_of(tuple(clipped)))


def in_a_line(text: str) -> str:
    """The first line of `text`, cut to 120 characters."""
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= _LINE_MAX else f"{line[: _LINE_MAX - 1]}…"
