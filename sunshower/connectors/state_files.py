"""Writes the keys and values of a state to a file, and reads them: JSON lines or Parquet.

    JSON lines   {"key": "u1", "value": 7}     what is stored; types that JSON lacks have marks
    Parquet      key, value                    if all are of one type: int, float, bool or str
                 key, a column for each field  if the state is declared to have one record type
                 key_json, value_json          otherwise: the texts of JSON lines

A Parquet file has the columns of a record only if they give the same values again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sunshower.connectors.file_formats import Misread, json_records, parquet_records
from sunshower.errors import ConfigError, user_errors
from sunshower.field_types import record_fields
from sunshower.json_values import hashable, text_of_key, values_of
from sunshower.record_reader import json_reader, record_reader
from sunshower.record_types import record_type_of
from sunshower.texts import message_of, utf8
from sunshower.trident.states.stored_states import StateImport, StoredState

if TYPE_CHECKING:
    import pyarrow as pa

Entry = tuple[Any, Any]  # a key and its value
_JSON_LINES, _PARQUET = (".jsonl", ".ndjson", ".json"), (".parquet",)
SUFFIXES = (*_JSON_LINES, *_PARQUET)
_MARKS = ("<", "(")  # begin the only name of an object that stands for another type


def is_parquet(file: Path) -> bool:
    """Whether a file is Parquet, by its suffix. Raises ConfigError for another suffix."""
    if file.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"{file}: the suffix says what is in a file: {', '.join(SUFFIXES[:-1])} for JSON "
            "lines, .parquet for Parquet"
        )
    return file.suffix.lower() in _PARQUET


# ---- writing -------------------------------------------------------------------------------------


def content_of(state: StoredState, entries: Sequence[Entry], *, parquet: bool) -> bytes:
    """The content of a file with these entries. Raises Unserialisable."""
    values = [state.text(value) for _, value in entries]
    keys = [text_of_key(key) for key, _ in entries]
    if parquet:
        return _parquet(state, entries, keys, values)
    lines = (f'{{"key":{key},"value":{value}}}\n' for key, value in zip(keys, values, strict=True))
    return utf8("".join(lines))


def _parquet(
    state: StoredState, entries: Sequence[Entry], keys: Sequence[str], values: Sequence[str]
) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    columns = _record_columns(state, [value for _, value in entries], values)
    if columns is None:
        columns = _column("value", [value for _, value in entries], values)
    table = pa.table(_column("key", [key for key, _ in entries], keys) | columns)
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink)
    return bytes(sink.getvalue())


def _column(name: str, values: Sequence[Any], texts: Sequence[str]) -> dict[str, pa.Array]:
    """A column of values that are all of one plain type, or else of their texts."""
    import pyarrow as pa

    plain = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    kinds = {*map(type, values)}
    if len(kinds) == 1 and (kind := plain.get(kinds.pop())) is not None:
        try:
            return {name: pa.array(values, kind)}
        except (pa.ArrowException, ValueError, OverflowError):
            """A large int, or a text that UTF-8 does not have."""
    return {f"{name}_json": pa.array(texts, pa.string())}


def _record_columns(
    state: StoredState, records: Sequence[Any], texts: Sequence[str]
) -> dict[str, pa.Array] | None:
    """The columns of a state with records of one type; None if it has others, or some column would
    not give its values again."""
    from sunshower.arrow.record_columns import PARQUET, RecordColumns

    record = state.record
    if record is None or {*map(type, records)} - {record}:
        return None
    try:
        columns = RecordColumns.of(record, f"state {state.name!r}", PARQUET)
        table = columns.table(records)
        read = record_reader(record)
        again = [state.text(read(row)) for row in _rows_of(table)]
    except user_errors():  # a type, or a value, that has no column
        return None
    if again != texts or {"key", "key_json"} & {*table.column_names}:
        return None
    return dict(zip(table.column_names, table.columns, strict=True))


def _rows_of(table: pa.Table) -> list[Any]:
    """The rows as they are read from a file."""
    import pyarrow as pa
    from pyarrow import parquet

    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink)
    return parquet_records("", bytes(sink.getvalue()), lambda row: row)


# ---- reading -------------------------------------------------------------------------------------


def read_into(target: StateImport, state: StoredState, file: Path, data: bytes) -> None:
    """Add all entries of a file to an import. Raises ConfigError that names the file, the line or
    row, and the field, for the first that it cannot have."""
    read = _Reader(target, state)
    if is_parquet(file):
        import pyarrow as pa

        try:
            results = parquet_records(file.name, data, read.row)
        except (pa.ArrowException, ValueError) as error:
            raise ConfigError(f"{file}: it is not a Parquet file ({message_of(error)})") from error
    else:
        results = json_records(file.name, data, read.line)
    wrong = [result for result in results if isinstance(result, Misread)]
    if wrong:
        first, word = wrong[0], "row" if is_parquet(file) else "line"
        more = f"; {len(wrong) - 1:,} more cannot be read either" if len(wrong) > 1 else ""
        raise ConfigError(
            f"{file}, {word} {first.record.number}: {first.reason}{more}. Nothing is imported"
        )


class _Reader:
    """Makes an entry of a line, or of a row, and adds it to an import."""

    def __init__(self, target: StateImport, state: StoredState) -> None:
        self._target, self._record = target, state.record
        self._values = None if state.store is None else state.store.values
        self._fields = () if self._record is None else record_fields(self._record)
        described = record_type_of(self._record)
        self._names = {} if described is None else described.names  # field → its name in files
        self._field_of = {name: field for field, name in self._names.items()}
        self._named = getattr(self._record, "__name__", "")
        self._of_json = self._record and json_reader(self._record)
        self._of_row = self._record and record_reader(self._record)

    def line(self, line: bytes) -> None:
        text = line.decode()
        raw = json.loads(text)
        if type(raw) is not dict or raw.keys() != {"key", "value"}:
            raise ConfigError(
                'it is not an object with "key" and "value", as in {"key": "u1", "value": 7}'
            )
        (entry,) = values_of([text])
        self._target.add(hashable(entry["key"]), self._value(raw["value"], entry["value"]))

    def row(self, row: Mapping[str, Any]) -> None:
        content = {name: row[name] for name in row if name not in ("key", "key_json")}
        is_one = content.keys() in ({"value"}, {"value_json"})
        is_record = not is_one or content.keys() <= {*self._fields, *self._field_of}
        if is_record:
            content = self._named_now(content)
        keys = {*row} & {"key", "key_json"}
        fits = not is_record or (self._of_row is not None and content.keys() <= {*self._fields})
        if len(keys) != 1 or not fits:
            wanted = ", ".join(self._names.values())
            raise ConfigError(
                f"its columns are {', '.join(row)}; they are key or key_json, and value, "
                f"value_json{f', or {wanted}' if wanted else ''}"
            )
        key = row["key"] if "key" in row else hashable(*values_of([row["key_json"]]))
        if is_record:
            assert self._of_row is not None
            self._target.add(key, self._of_row(self._in_file(content)))
        elif "value" in row:
            self._target.add(key, row["value"])
        else:
            text = row["value_json"]
            self._target.add(key, self._value(json.loads(text), *values_of([text])))

    def _named_now(self, content: dict[str, Any]) -> dict[str, Any]:
        """The fields of a record by their names now; a file has these, or those of messages."""
        content = {self._field_of.get(name, name): value for name, value in content.items()}
        if self._record is None or self._values is None:
            return content
        return self._values.named_now(self._record, content)

    def _in_file(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields of a record by their names in files, which are those in messages."""
        return {self._names.get(name, name): value for name, value in fields.items()}

    def _value(self, raw: Any, plain: Any) -> Any:
        """A value of JSON: as it is stored, or an object with the fields of the record type."""
        is_marked = type(raw) is dict and len(raw) == 1 and next(iter(raw)).startswith(_MARKS)
        if self._of_json is None or type(raw) is not dict or is_marked:
            return self._target.read(plain)
        raw = self._named_now(raw)
        if unknown := [name for name in raw if name not in self._fields]:
            raise ConfigError(
                f"{unknown[0]!r} is not a field of {self._named}, which has "
                f"{', '.join(self._fields)}"
            )
        return self._of_json(json.dumps(self._in_file(raw)))
