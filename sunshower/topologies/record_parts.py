"""Reads the parts of records that sinks write: a field, or the whole record as JSON has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, TypeAlias

from sunshower.errors import RecordMismatch
from sunshower.records import Schema, record_class

Part: TypeAlias = str | Callable[[Any], Any]  # a field's name, or a function of the record


class RecordParts:
    """Reads parts of records, also of plain tuples: the inputs' schemas have their names. The part
    None is the whole record, as field → value."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._names: dict[str | None, tuple[str, ...]] = {}  # of plain tuples, by part
        self._has_dicts = False  # an input has records of a TypedDict

    def check(self, schema: Schema, parts: Iterable[Part | None]) -> None:
        """Check that records of an input have the parts. Raises UnknownField, and RecordMismatch
        for plain tuples that have a field at another position than those of another input, or
        other fields if the whole record is a part. A function takes any record."""
        self._has_dicts |= schema.instances is dict
        for part in parts:
            if callable(part):
                continue
            if part is not None:
                schema.check_field(part, self._where)
            if schema.type is tuple:
                self._check_names(schema, part)

    def _check_names(self, schema: Schema, part: str | None) -> None:
        names = self._names.setdefault(part, schema.fields)
        if part is None:
            differs, at = names != schema.fields, ""
        else:
            differs = names.index(part) != schema.fields.index(part)
            at = f", with {part!r} at different positions"
        if differs:
            raise RecordMismatch(
                f"{self._where}: its inputs are plain tuples of different fields, "
                f"({', '.join(names)}) and {schema.name}{at}; emit NamedTuples, or add a sink"
            )

    def getter(self, part: Part | None) -> Callable[[Any], Any]:
        """A function that returns a part of a record; of the whole record, what JSON has. Call it
        when all inputs are checked."""
        if part is None:
            return self._named
        if callable(part):
            return part
        get_field = attrgetter(part)
        if part not in self._names and not self._has_dicts:
            return get_field
        index = self._names[part].index(part) if part in self._names else 0

        def get(record: Any) -> Any:
            if type(record) is tuple:
                return record[index]
            return record[part] if type(record) is dict else get_field(record)

        return get

    def _named(self, record: Any) -> Mapping[str, Any]:
        if isinstance(record, tuple):
            names = getattr(record, "_fields", self._names.get(None, ()))
            return dict(zip(names, record, strict=True))
        if type(record) is dict:
            return record
        known = record_class(type(record))
        return known.message(record)
