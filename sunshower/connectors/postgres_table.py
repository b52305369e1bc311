"""PostgresTable: writes each record as a row of a PostgreSQL table, by INSERT … ON CONFLICT."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from enum import Enum
from itertools import chain
from typing import Any, TypeAlias
from uuid import UUID

from sunshower.arguments import NAME, PART, AnyOf, Each, Instance, checked
from sunshower.errors import ConfigError, StoreError, StoreUnreachable, SunshowerError, Unavailable
from sunshower.records import Part, RecordParts, Schema
from sunshower.scalars import for_json
from sunshower.secret import ADDRESS, Secret, address
from sunshower.state.backing import ANSWER_WITHIN_S
from sunshower.state.postgres_backing import PostgresClient
from sunshower.texts import message_of
from sunshower.topologies.components import Bolt, Collector, Context, Stateless, Tuple

Row: TypeAlias = tuple[Tuple[Any], list[Any]]  # an input, and the values of its columns

_ROWS_MAX = 5_000  # of a transaction, which ends within ANSWER_WITHIN_S
_APART_S = 8.0  # time to find the rows that are refused; the rest fails then
_TYPES = """SELECT attname, atttypid, atttypmod FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0"""
# Whether keys of one type are equal only if the database finds that their values are the same: not
# if a trigger may change them, or a collation compares texts in another way.
_IS_EXACT = """SELECT NOT EXISTS (
        SELECT FROM pg_trigger WHERE tgrelid = %(table)s::regclass AND NOT tgisinternal
    ) AND NOT EXISTS (
        SELECT FROM pg_index JOIN pg_collation ON pg_collation.oid = ANY (indcollation)
        WHERE indrelid = %(table)s::regclass AND indisunique AND NOT collisdeterministic
    )"""
_JSON_TYPES = {114, 3802}  # json, jsonb
# Types of columns, without a length or precision → the type of the values whose order is the
# database's. Others, such as 7 and 7.0 for numeric, are equal there, and different here.
_ORDERED: dict[int, type[Any]] = {
    **dict.fromkeys((20, 21, 23, 1700), int),  # bigint, smallint, integer, numeric
    **dict.fromkeys((25, 1043), str),  # text, varchar
    16: bool,
    17: bytes,
    1082: date,
    2950: UUID,
}
_ONE_WRITER = "SELECT pg_advisory_xact_lock(7357014, %s::regclass::oid::int8::bit(32)::int4)"
_TABLE = Instance((str,), 'the name of a table, such as "totals" or "shop.totals"', False)
_COLUMNS = Instance((Mapping,), "a dictionary: column → field, or function of the record")
_COLUMN = "the name of a column"
_KEY = AnyOf((replace(NAME, instead=_COLUMN), Each(NAME, "a list of such names")))


class PostgresTable(Stateless, Bolt[Any, None]):
    """Writes each record as a row of `table`, or updates the row with the same key.

    `key`: the columns of the table's primary key, or of a unique constraint. `columns`: column →
    a field's name, or a function of the record; by default each field has a column of its name.
    `version`: a column that grows with each change of a row. A record whose version is below that
    of the stored row changes nothing; without it the record that arrives last is stored, even if
    it is the replay of an older one. Keys are equal if the database says so: 7 and 7.0, one moment
    in two zones, "b" with and without a space behind it in a char(2).

    The rows of a batch of inputs are written in one transaction, and acked after its commit. If
    the database refuses a row (a type, a constraint, a trigger), that row fails alone. While the
    database is away the task waits. Values for columns of type json and jsonb are converted to
    JSON; an Enum is its value, a tuple or set is an array.

    Raises ConfigError when it is declared, StoreError and ConfigError when it starts.
    """

    @checked(dsn=ADDRESS, table=_TABLE, key=_KEY)
    def __init__(
        self,
        dsn: str | Secret,
        table: str,
        *,
        key: str | Sequence[str],
        columns: Mapping[str, Part] | None = None,
        version: str | None = None,
    ) -> None:
        self.dsn, self.table = address(dsn), table
        self.key = (key,) if isinstance(key, str) else tuple(key)
        self.version = version
        self._where = f"PostgresTable({table})"
        self._reader = RecordParts(self._where)
        if not self.key:
            raise ConfigError(f"{self._where}: key has no column; name those of the primary key")
        self._parts: dict[str, Part] | None = None
        if columns is not None:
            _COLUMNS.check(f"{self._where}: columns", columns)
            for name, part in columns.items():
                PART.check(f"{self._where}: columns[{name!r}]", part)
            self._use_columns(columns)

    def check_input(self, schema: Schema) -> None:
        """Raise an error if records lack the fields to be written."""
        if self._parts is None:
            self._use_columns({name: name for name in schema.fields})
        self._reader.check(schema, (self._parts or {}).values())

    def prepare(self, context: Context) -> None:
        """Connect, and let the database check the statement. Raises StoreError, StoreUnreachable
        and ConfigError."""
        if self._parts is None:
            raise ConfigError(f"{self._where}: it has no columns; give columns={{…}}")
        self._clock = context.clock
        self._getters = [self._reader.getter(part) for part in self._parts.values()]
        self._rows: list[Row] = []
        self._client = PostgresClient(self.dsn, f"table {self.table!r}", ANSWER_WITHIN_S)
        head, tail, table = self._statement()
        self._table = table
        nothing = ", ".join(["NULL"] * len(self._parts))
        with self._client.db() as db:
            db.execute(f"EXPLAIN {head} ({nothing}) {tail}")
            types = {name: more for name, *more in db.execute(_TYPES, (table,)).fetchall()}
            (is_exact,) = db.execute(_IS_EXACT, {"table": table}).fetchone()
        self._is_json = [types[name][0] in _JSON_TYPES for name in self._parts]
        values = ", ".join(["%s"] * len(self._parts))
        head, tail = (part.replace("%", "%%") for part in (head, tail))
        self._insert = f"{head} ({values}) {tail}"
        places = list(self._parts)
        self._key_places = [places.index(name) for name in self.key]
        # The type of the values whose order is the database's; None: there is no such type.
        self._key_types = [
            _ORDERED.get(kind) if is_exact and length == -1 else None
            for kind, length in (types[name] for name in self.key)
        ]

    def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
        """Add the record's row to the batch; `flush` writes it, and settles the input."""
        self._collector = out
        values = [get(tuple.record) for get in self._getters]
        row = [
            _as_json(value) if is_json else _for_column(value)
            for value, is_json in zip(values, self._is_json, strict=True)
        ]
        self._rows.append((tuple, row))

    def flush(self) -> None:
        """Write the rows, commit, and settle their inputs.

        If the database refuses a part of the rows, its halves are written in transactions of their
        own, and so on. Raises StoreUnreachable if the database is away, and if it refuses the
        statement itself: the runtime fails the inputs, and the task waits.
        """
        rows, self._rows = self._rows, []
        parts = [rows]
        try:
            self._sort(rows)
            parts = [rows[at : at + _ROWS_MAX] for at in range(0, len(rows), _ROWS_MAX)][::-1]
            self._write_parts(parts)
        except Exception as error:
            self._ack(chain(*parts))  # an error of `flush` fails what is acked
            if not isinstance(error, StoreError) or isinstance(error, Unavailable):
                raise
            raise StoreUnreachable(str(error)) from error

    def _write_parts(self, parts: list[list[Row]]) -> None:
        """Write lists of rows, from the last to the first, and remove those that are settled."""
        until_s = self._clock.now() + _APART_S
        while parts:
            part = parts[-1]
            refusal = self._write([row for _, row in part])
            if refusal is not None and len(part) > 1:
                if self._clock.now() >= until_s:
                    late = f"not written in {_APART_S:g} s: other rows are refused ({refusal})"
                    for tuple, _ in chain(*parts):
                        self._collector.fail(tuple, StoreUnreachable(late))
                    parts.clear()
                    return
                half = len(part) // 2
                parts[-1:] = [part[half:], part[:half]]
                continue
            parts.pop()
            if refusal is None:
                self._ack(part)
            else:
                self._collector.fail(part[0][0], refusal)

    def cleanup(self) -> None:
        """Close the connection."""
        self._client.close()

    def _use_columns(self, columns: Mapping[str, Part]) -> None:
        for name in (*self.key, *([] if self.version is None else [self.version])):
            if name not in columns:
                raise ConfigError(
                    f"{self._where}: there is no column {name!r}, which key or version names; the "
                    f"columns are: {', '.join(columns)}"
                )
        self._parts = dict(columns)

    def _sort(self, rows: list[Row]) -> None:
        """Sort rows by their keys, and those of one key as they came, so that two tasks that lock
        the same rows do not deadlock. Where only the database can compare the keys, the rows stay
        as they came, and one task at a time writes them."""
        keys = [tuple([row[place] for place in self._key_places]) for _, row in rows]
        columns = zip(self._key_types, zip(*keys, strict=True), strict=False)
        self._is_sorted = all({*map(type, values)} == {kind} for kind, values in columns)
        if self._is_sorted:
            order = sorted(range(len(rows)), key=keys.__getitem__)
            rows[:] = [rows[place] for place in order]

    def _write(self, rows: list[list[Any]]) -> StoreError | None:
        """Write rows in one transaction. Returns the error if a row was refused. Raises StoreError
        for any other error."""
        try:
            with self._client.db() as db, db.transaction():
                if not self._is_sorted:
                    db.execute(_ONE_WRITER, (self._table,))
                db.cursor().executemany(self._insert, rows)
        except StoreError as error:
            if not error.of_value:
                raise
            return error
        except SunshowerError:
            raise
        except Exception as error:  # such as a text that has no encoding in UTF-8
            return StoreError(f"{self._where} cannot send a row: {message_of(error)}")
        return None

    def _ack(self, rows: Iterable[Row]) -> None:
        for tuple, _ in rows:
            self._collector.ack(tuple)

    def _statement(self) -> tuple[str, str, str]:
        """The INSERT up to its values, its rest after them, and the name of the table."""
        names = list(self._parts or ())
        table = ".".join(map(_quoted, self.table.split(".")))
        others = [_quoted(name) for name in names if name not in self.key]
        update = "NOTHING"
        if others:
            update = "UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in others)
        if others and self.version is not None:
            stored, new = (f"{of}.{_quoted(self.version)}" for of in ("stored", "excluded"))
            update += f" WHERE {stored} IS NULL OR {new} >= {stored}"
        head = f"INSERT INTO {table} AS stored ({_listed(names)}) VALUES"
        return head, f"ON CONFLICT ({_listed(self.key)}) DO {update}", table


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(_quoted, names))


def _as_json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, default=for_json, allow_nan=False)


def _for_column(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return list(value) if type(value) in (tuple, set, frozenset) else value
