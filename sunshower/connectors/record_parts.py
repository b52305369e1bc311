"""The parts of a record that a sink writes: a field, or the result of a function of the record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeAlias

from sunshower.errors import RecordMismatch
from sunshower.records import Schema

Part: TypeAlias = str | Callable[[Any], Any]  # a field's name, or a function of the record


class RecordParts:
    """Reads parts of records, also of plain tuples: the inputs' schemas have their names."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._names: tuple[str, ...] = ()  # of plain tuples

    def check(self, schema: Schema, parts: Iterable[Part]) -> None:
        """Check that records of an input have the fields. Raises UnknownField, and RecordMismatch
        for plain tuples whose fields are not those of another input."""
        for part in parts:
            if isinstance(part, str):
                schema.check_field(part, self._where)
        if schema.type is not tuple:
            return
        if self._names and self._names != schema.fields:
            raise RecordMismatch(
                f"{self._where}: its inputs are plain tuples of different fields, "
                f"({', '.join(self._names)}) and {schema.name}; emit NamedTuples, or add a sink"
            )
        self._names = schema.fields

    def getter(self, part: Part) -> Callable[[Any], Any]:
        """A function that returns a part of a record."""
        if callable(part):
            return part
        get_field = attrgetter(part)
        if part not in self._names:
            return get_field
        index = self._names.index(part)

        def get(record: Any) -> Any:
            return record[index] if type(record) is tuple else get_field(record)

        return get

    def named(self, record: Any) -> Mapping[str, Any]:
        """Field → value."""
        if isinstance(record, tuple):
            return dict(zip(getattr(record, "_fields", self._names), record, strict=True))
        return {one.name: getattr(record, one.name) for one in fields(record)}
