"""Converts record types to Arrow schemas, and records to tables and back.

| annotation                  | Arrow                | comes back as            | in         |
|-----------------------------|----------------------|--------------------------|------------|
| int, float, bool, str, bytes| int64, double, …     | itself; NaN is not null  | both       |
| Decimal                     | decimal128(38, 18)   | the same number          | both       |
| date                        | date32               | itself                   | both       |
| datetime, with a zone       | timestamp[us, UTC]   | the same moment, in UTC  | both       |
| time, without a zone        | time64[us]           | itself                   | files      |
| timedelta                   | duration[us]         | itself                   | files      |
| UUID                        | uuid                 | itself                   | files      |
| Enum                        | as its values        | the member               | both       |
| list[T], tuple[T, ...]      | list                 | itself                   | both       |
| dict[K, V]                  | map                  | itself                   | both       |
| NamedTuple, dataclass       | struct               | itself                   | both       |
| T or None                   | nullable             | None is null             | both       |

"Both": Spark and files. Any other annotation raises RecordMismatch at declaration, with the name of
the field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sunshower.arrow.arrow_types import casts, is_safe
from sunshower.arrow.field_kinds import SPARK, NestedRecords, TypeSystem, records_of
from sunshower.errors import RecordMismatch, ResultMismatch, Unserialisable
from sunshower.records import Schema


@dataclass(frozen=True)
class RecordColumns:
    """A record type as columns: its Arrow schema, and conversions between records and tables."""

    kind: NestedRecords
    arrow: pa.Schema

    @classmethod
    def of(cls, record_type: Any, where: str = "spark", types: TypeSystem = SPARK) -> RecordColumns:
        """Raises RecordMismatch, naming the field, for a type that has no column type."""
        if record_type is tuple:
            raise RecordMismatch(
                f"{where}: plain tuples say nothing of the types of their fields; "
                "declare a NamedTuple or a dataclass (operators take one as fields=Total)"
            )
        try:
            name = getattr(record_type, "__name__", str(record_type))
            kind = records_of(record_type, name, types)
        except RecordMismatch as error:
            raise RecordMismatch(f"{where}: {error}") from None
        except NameError as error:
            raise RecordMismatch(f"{where}: the annotations cannot be read ({error})") from None
        return cls(kind, pa.schema(list(kind.type)))

    @property
    def schema(self) -> Schema:
        """The schema of the record type, as streams use it."""
        return self.kind.schema

    def table(self, records: Sequence[Any]) -> pa.Table:
        """Records as a table. Raises Unserialisable for a value that does not match its field."""
        columns = list(zip(*self.schema.rows(records), strict=True))
        columns = columns or [()] * len(self.schema.fields)
        arrays = [one.array(column) for one, column in zip(self.kind.fields, columns, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self.arrow)

    def records(self, table: pa.Table) -> list[Any]:
        """The rows of a table that `conform` has returned. Raises ResultMismatch for a null in a
        non-optional field, and for a value that no Enum member has."""
        columns = [
            kind.values(column.combine_chunks() if column.num_chunks else pa.array([], column.type))
            for kind, column in zip(self.kind.fields, table.columns, strict=True)
        ]
        return self.schema.build(zip(*columns, strict=True))

    def check(self, found: pa.Schema) -> None:
        """Raise ResultMismatch unless such columns can be read as this record type."""
        name, wanted = self.kind.path, self.arrow.names
        if double := [one for at, one in enumerate(found.names) if one in found.names[:at]]:
            raise ResultMismatch(
                f"there are two columns {double[0]!r}, and {name} is to have one: join by the "
                f"name, a.join(b, {double[0]!r}), or leave one out, .drop(b[{double[0]!r}])"
            )
        if missing := [one for one in wanted if one not in found.names]:
            raise ResultMismatch(
                f"{name} has a field {missing[0]!r}, and there is no such column; the columns are: "
                f"{', '.join(found.names) or 'none'}"
            )
        if more := [one for one in found.names if one not in wanted]:
            raise ResultMismatch(
                f"there is a column {more[0]!r} that {name} does not have; its fields are: "
                f"{', '.join(wanted)}. Leave it out: .select({', '.join(map(repr, wanted))})"
            )
        for field in self.arrow:
            if not is_safe(found.field(field.name).type, field.type):
                raise ResultMismatch(
                    f"{name}.{field.name} is {field.type}, and the column is "
                    f"{found.field(field.name).type}: cast one to the other"
                )

    def conform(self, table: pa.Table) -> pa.Table:
        """Convert a table with these columns to the column order and types that `table` gives.
        Raises ResultMismatch for other columns, and for values that would change."""
        self.check(table.schema)
        try:
            return casts(table.select(self.arrow.names), self.arrow)
        except Unserialisable as error:
            raise ResultMismatch(f"{self.kind.path}: {error}") from error
