"""PostgresTable: writes each record as a row of a PostgreSQL table, by INSERT … ON CONFLICT."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import chain, groupby
from math import isfinite
from typing import Any, NamedTuple
from uuid import UUID

from sunshower.arguments import NAME, NONE, PART, AnyOf, Each, Instance, checked
from sunshower.errors import (
    ConfigError,
    StoreError,
    StoreUnreachable,
    SunshowerError,
    Unavailable,
    user_errors,
)
from sunshower.json_values import json_text
from sunshower.records import Schema
from sunshower.secret import ADDRESS, Secret, address
from sunshower.state.backing import ANSWER_WITHIN_S
from sunshower.state.postgres_backing import PostgresClient
from sunshower.texts import describe, message_of, utf8
from sunshower.topologies.components import Bolt, Collector, Context, Stateless, Tuple
from sunshower.topologies.record_parts import Part, RecordParts

_SHOWN_BYTES = 200  # of a value, in errors
_ROWS_MAX = 5_000  # of a transaction, which ends within ANSWER_WITHIN_S
_APART_S = 8.0  # time to find the rows that are refused; the rest fails then
_ROWS_OF_STATEMENT = 100
_PARAMETERS_MAX = 65_535  # of a statement
_REPEATED = "21000"  # a statement has two rows with the same key
# The types of columns: that below a domain, and that of an array's elements.
_TYPES = """WITH RECURSIVE types (name, number, kind, length, not_null, is_array) AS (
        SELECT attname, attnum, atttypid, atttypmod, attnotnull, false FROM pg_attribute
            WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
        UNION ALL
        SELECT name, number, CASE typtype WHEN 'd' THEN typbasetype ELSE typelem END,
            CASE typtype WHEN 'd' THEN typtypmod ELSE length END,
            not_null OR (typnotnull AND NOT is_array), is_array OR typtype <> 'd'
            FROM types JOIN pg_type ON pg_type.oid = kind
            WHERE typtype = 'd' OR (typcategory = 'A' AND typelem <> 0)
    )
    SELECT name, number, kind, format_type(kind, length), length, not_null, is_array
    FROM types JOIN pg_type ON pg_type.oid = kind
    WHERE NOT (typtype = 'd' OR (typcategory = 'A' AND typelem <> 0))"""
# Whether a table, with these numbers of key columns, has a unique index for which NULLs are equal.
# Before PostgreSQL 15, no index has that property.
_HAS_EQUAL_NULLS = """SELECT EXISTS (
        SELECT FROM pg_index WHERE indrelid = %(table)s::regclass AND indisunique
            AND indpred IS NULL AND to_jsonb(pg_index) ->> 'indnullsnotdistinct' = 'true'
            AND (SELECT array_agg(number ORDER BY number)
                FROM unnest((indkey::int2[])[0:indnkeyatts - 1]) AS number) = %(key)s::int2[]
    ) OR relkind NOT IN ('r', 'p') FROM pg_class WHERE oid = %(table)s::regclass"""
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


class _Row(NamedTuple):
    """A record as a row."""

    input: Tuple[Any]
    values: list[Any]  # of all columns
    removes: bool = False  # whether the row with its key is deleted


class PostgresTable(Stateless, Bolt[Any, None]):
    """Writes each record as a row of `table`, or updates the row with the same key.

    `key`: the columns of the table's primary key, or of a unique constraint. `columns`: column → a
    field's name, or a function of the record; by default each field has a column of its name.
    `version`: a column that grows with each change of a row; a record whose version is below that
    of the stored row changes nothing. `removed`: a field, or a function of the record; where it is
    true, the row with the key is deleted. The rows of a batch of inputs are written in one
    transaction, and acked after its commit; docs/CONNECTORS.md has what the database may refuse.

    Raises ConfigError when it is declared, StoreError and ConfigError when it starts: also if a
    column of the key may be NULL, because NULLs are not equal, and each replay would add a row.
    """

    writes_outside = True

    @checked(dsn=ADDRESS, table=_TABLE, key=_KEY, removed=AnyOf((PART, NONE)))
    def __init__(
        self,
        dsn: str | Secret,
        table: str,
        *,
        key: str | Sequence[str],
        columns: Mapping[str, Part] | None = None,
        version: str | None = None,
        removed: Part | None = None,
    ) -> None:
        self.dsn, self.table = address(dsn), table
        self.key = (key,) if isinstance(key, str) else tuple(key)
        self.version, self.removed = version, removed
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
        if self._parts is None:
            self._use_columns({name: name for name in schema.fields})
        removed = () if self.removed is None else (self.removed,)
        self._reader.check(schema, (*(self._parts or {}).values(), *removed))

    def prepare(self, context: Context) -> None:
        """Connect, and let the database check the statement. Raises StoreError, StoreUnreachable
        and ConfigError."""
        if self._parts is None:
            raise ConfigError(f"{self._where}: it has no columns; give columns={{…}}")
        self._clock = context.clock
        self._getters = [self._reader.getter(part) for part in self._parts.values()]
        self._removes = None if self.removed is None else self._reader.getter(self.removed)
        self._rows: list[_Row] = []
        self._client = PostgresClient(self.dsn, f"table {self.table!r}", ANSWER_WITHIN_S)
        head, tail, table = self._statement()
        self._table = table
        nothing = ", ".join(["NULL"] * len(self._parts))
        self._explain = [f"EXPLAIN {head} ({nothing}) {tail}"]
        with self._client.transaction() as db:
            db.execute(self._explain[0])
            columns = [_Column(*row) for row in db.execute(_TYPES, (table,)).fetchall()]
            types = {column.name: column for column in columns}
            (is_exact,) = db.execute(_IS_EXACT, {"table": table}).fetchone()
            self._check_key(db, table, [types[name] for name in self.key])
            deletion = self._deletion(types)
            if self._removes is not None:
                self._explain.append(f"EXPLAIN {'NULL'.join(deletion)}")
                db.execute(self._explain[1])
        self._columns = [types[name] for name in self._parts]
        self._plain = [_PLAIN.get(column.kind, _NOTHING) for column in self._columns]
        self._head, self._tail = (part.replace("%", "%%") for part in (head, tail))
        places = list(self._parts)
        self._key_places = [places.index(name) for name in self.key]
        version = [] if self.version is None else [places.index(self.version)]
        self._deleted_places = [*self._key_places, *version]
        self._delete = "%s".join(part.replace("%", "%%") for part in deletion)
        # The type of the values whose order is the database's; None: there is no such type.
        self._key_types = [
            _ORDERED.get(column.kind) if is_exact and column.is_exact else None
            for column in (types[name] for name in self.key)
        ]

    def _check_key(self, db: Any, table: str, key: list[_Column]) -> None:
        nullable = [column.name for column in key if not column.not_null]
        if nullable:
            numbers = sorted(column.number for column in key)
            (are_equal,) = db.execute(_HAS_EQUAL_NULLS, {"table": table, "key": numbers}).fetchone()
            if not are_equal:
                names = [_quoted(name) for name in nullable]
                changes = ", ".join(f"ALTER COLUMN {name} SET NOT NULL" for name in names)
                raise ConfigError(
                    f"{self._where}: {', '.join(names)} of the key may be NULL, and NULLs are not "
                    "equal: each replay of such a record would add a row. Change that with ALTER "
                    f"TABLE {table} {changes}; or create the unique index with NULLS NOT DISTINCT"
                )

    def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
        """Add the record's row to the batch; `flush` writes it, and settles the input. Fail the
        input if a column would change its value."""
        self._collector = out
        row = [get(tuple.record) for get in self._getters]
        try:
            for place, (value, plain) in enumerate(zip(row, self._plain, strict=True)):
                if type(value) not in plain:
                    row[place] = self._converted(self._columns[place], value)
        except StoreError as error:
            out.fail(tuple, error)
        else:
            removes = self._removes is not None and bool(self._removes(tuple.record))
            self._rows.append(_Row(tuple, row, removes))

    def _converted(self, column: _Column, value: Any) -> Any:
        if column.kind in _JSON_TYPES and not column.is_array:
            return None if value is None else json_text(value)
        value = _for_column(value)
        check = _CHECKS.get(column.kind)
        if check is not None:
            for scalar in _scalars(value) if column.is_array else (value,):
                try:
                    problem = None if scalar is None else check(scalar, column.length)
                except OverflowError:
                    problem = None  # for the database to refuse
                if problem is not None:
                    shown = describe(scalar, _SHOWN_BYTES)
                    text = f"column {column.name!r} is {column.text}, and {shown} {problem}"
                    raise StoreError(f"{self._where}: {text}", of_value=True)
        return value

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
        except user_errors() as error:
            self._ack(chain(*parts))  # an error of `flush` fails what is acked
            if not isinstance(error, StoreError) or isinstance(error, Unavailable):
                raise
            raise StoreUnreachable(str(error)) from error

    def _write_parts(self, parts: list[list[_Row]]) -> None:
        """Write lists of rows, from the last to the first, and remove those that are settled."""
        until_s = self._clock.now() + _APART_S
        while parts:
            part = parts[-1]
            refusal = self._write(part)
            if refusal is not None and len(part) > 1:
                if self._clock.now() >= until_s:
                    late = f"not written in {_APART_S:g} s: other rows are refused ({refusal})"
                    for row in chain(*parts):
                        self._collector.fail(row.input, StoreUnreachable(late))
                    parts.clear()
                    return
                half = len(part) // 2
                parts[-1:] = [part[half:], part[:half]]
                continue
            parts.pop()
            if refusal is None:
                self._ack(part)
            else:
                self._collector.fail(part[0].input, refusal)

    def cleanup(self) -> None:
        self._client.close()

    def _use_columns(self, columns: Mapping[str, Part]) -> None:
        for name in (*self.key, *([] if self.version is None else [self.version])):
            if name not in columns:
                raise ConfigError(
                    f"{self._where}: there is no column {name!r}, which key or version names; the "
                    f"columns are: {', '.join(columns)}"
                )
        self._parts = dict(columns)

    def _sort(self, rows: list[_Row]) -> None:
        """Sort rows by their keys, and those of one key as they came, so that two tasks that lock
        the same rows do not deadlock. Where only the database can compare the keys, the rows stay
        as they came, and one task at a time writes them."""
        keys = [tuple([row.values[place] for place in self._key_places]) for row in rows]
        columns = zip(self._key_types, zip(*keys, strict=True), strict=False)
        self._is_sorted = all({*map(type, values)} == {kind} for kind, values in columns)
        if self._is_sorted:
            order = sorted(range(len(rows)), key=keys.__getitem__)
            rows[:] = [rows[place] for place in order]

    def _write(self, rows: list[_Row]) -> BaseException | None:
        """Write rows in one transaction. Returns the error if a row was refused: that of psycopg
        if it may be one of each row, so that the task may be in doubt. Raises StoreError for any
        other error."""
        try:
            try:
                self._insert(rows, _ROWS_OF_STATEMENT)
            except StoreError as error:
                if getattr(error.__cause__, "sqlstate", None) != _REPEATED:
                    raise
                self._insert(rows, 1)  # the database finds keys equal that are not so here
        except StoreError as error:
            if error.of_value:
                return error
            if type(error) is StoreUnreachable or not self._is_accepted():
                raise
            # A row may have caused it, by a policy or a cast; or a trigger, with every row.
            return error.__cause__ or error
        except SunshowerError:
            raise
        except user_errors() as error:  # such as a text that has no encoding in UTF-8
            return StoreError(f"{self._where} cannot send a row: {message_of(error)}")
        return None

    def _is_accepted(self) -> bool:
        """Whether the database accepts the statements without the values of rows."""
        try:
            with self._client.transaction() as db:
                for statement in self._explain:
                    db.execute(statement)
        except StoreError as error:
            if isinstance(error, StoreUnreachable):
                raise
            return False
        return True

    def _insert(self, rows: list[_Row], rows_max: int) -> None:
        """Write and delete rows in one transaction, up to `rows_max` with different keys in a
        statement."""
        rows_max = max(1, min(rows_max, _PARAMETERS_MAX // len(self._columns)))
        with self._client.transaction(TimeZone="UTC") as db:
            if not self._is_sorted:
                db.execute(_ONE_WRITER, (self._table,))
            statements = groupby(self._statements(rows, rows_max), self._sql)
            for sql, parts in statements:
                parameters = [[*chain.from_iterable(map(self._parameters, part))] for part in parts]
                db.cursor().executemany(sql.encode(), parameters)

    def _sql(self, part: list[_Row]) -> str:
        """The statement that writes, or deletes, the rows of a part."""
        if part[0].removes:
            return self._delete
        values = ", ".join([f"({', '.join(['%s'] * len(self._columns))})"] * len(part))
        return f"{self._head} {values} {self._tail}"

    def _parameters(self, row: _Row) -> list[Any]:
        values = row.values
        return [values[place] for place in self._deleted_places] if row.removes else values

    def _statements(self, rows: list[_Row], rows_max: int) -> Iterator[list[_Row]]:
        part: list[_Row] = []
        last = None
        for row in rows:
            key = [row.values[place] for place in self._key_places] if self._is_sorted else None
            is_apart = bool(part) and (row.removes or part[-1].removes)
            if len(part) == rows_max or is_apart or (part and self._is_sorted and key == last):
                yield part
                part = []
            part.append(row)
            last = key
        if part:
            yield part

    def _ack(self, rows: Iterable[_Row]) -> None:
        for row in rows:
            self._collector.ack(row.input)

    def _deletion(self, types: Mapping[str, _Column]) -> list[str]:
        """The DELETE of a row: what is before, between and behind its key, and its version."""
        where = [
            f"stored.{_quoted(name)} {'=' if types[name].not_null else 'IS NOT DISTINCT FROM'} "
            for name in self.key
        ]
        end = ""
        if self.version is not None:
            stored = f"stored.{_quoted(self.version)}"
            where, end = [*where, f"({stored} IS NULL OR {stored} <= "], ")"
        first, *others = where
        head = f"DELETE FROM {self._table} AS stored WHERE {first}"  # noqa: S608
        return [head, *(f" AND {other}" for other in others), end]

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


class _Column(NamedTuple):
    """A column of a table: without its domains, and of an array the type of the elements."""

    name: str
    number: int
    kind: int  # the OID of the type
    text: str  # the type as PostgreSQL writes it
    length: int  # the type's modifier, which holds a length or a precision; -1: there is none
    not_null: bool
    is_array: bool

    @property
    def is_exact(self) -> bool:
        """Whether equal values are stored as one: no length, no precision, no list."""
        return self.length == -1 and not self.is_array


def _for_column(value: Any) -> Any:
    """A value for psycopg: of an Enum its value, of NumPy's scalar Python's, for arrays lists."""
    kind = type(value)
    if isinstance(value, Enum):
        return _for_column(value.value)
    if kind in (list, tuple, set, frozenset):
        return [_for_column(item) for item in value]
    return value.item() if kind.__module__ == "numpy" and hasattr(value, "item") else value


def _scalars(value: Any) -> Iterator[Any]:
    if type(value) is list:
        for item in value:
            yield from _scalars(item)
    else:
        yield value


# ---- values that a column would change -----------------------------------------------------------
# Each check gets a value and the type's modifier, and returns what is wrong, and the remedy. What
# the database refuses by itself passes: other types, numbers that are too large.

_ROUNDED = "would be rounded: round it in `columns`, or give the column more digits"


def _integer(value: Any, _: int) -> str | None:
    if isinstance(value, float):
        return _ROUNDED if isfinite(value) and not value.is_integer() else None
    return _numeric(value, _NO_DIGITS) if isinstance(value, Decimal) else None


def _numeric(value: Any, modifier: int) -> str | None:
    if type(value) is int:
        value = Decimal(value)
    if isinstance(value, str):
        try:
            value = Decimal(value.strip())
        except ArithmeticError:
            return None  # for the database to read
    if isinstance(value, float) and isfinite(value):
        exact = Decimal(f"{value:.15g}")  # what the database makes of it
        if float(exact) != value:
            return f"would be rounded to {exact}: round it in `columns`, or use double precision"
        value = exact
    if not isinstance(value, Decimal) or not value.is_finite():
        return None
    scale = _SCALE_MAX if modifier == -1 else (((modifier - 4) & 0x7FF) ^ 0x400) - 0x400
    digits, exponent = value.as_tuple()[1:]
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    return _ROUNDED if value and -int(exponent) - zeros > scale else None


def _money(value: Any, _: int) -> str | None:
    return _numeric(value, _NO_DIGITS + 2)


def _double(value: Any, _: int) -> str | None:
    if type(value) is int:
        return None if int(float(value)) == value else _DIGITS_LOST
    if isinstance(value, Decimal) and value.is_finite():
        return None if Decimal(repr(float(value))) == value else _DIGITS_LOST
    return None


def _real(value: Any, _: int) -> str | None:
    is_exact = type(value) is int or (isinstance(value, Decimal) and value.is_finite())
    return _DIGITS_LOST if is_exact and _of_real(value) != value else None


def _of_real(value: int | Decimal) -> int | Decimal:
    """What a column of 4 bytes has of a number: in the fewest digits that lead to it again."""
    stored = _as_real(float(value))
    if type(value) is int:
        return int(stored)
    texts = (f"{stored:.{digits}g}" for digits in range(1, 10))
    return Decimal(next((text for text in texts if _as_real(float(text)) == stored), repr(stored)))


def _as_real(value: float) -> float:
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def _timestamp(value: Any, modifier: int) -> str | None:
    if isinstance(value, str):
        return _OFFSET_LOST if _OFFSET.search(value) else None
    if isinstance(value, datetime):
        return _OFFSET_LOST if value.tzinfo is not None else _micros(value.microsecond, modifier)
    return None


def _timestamp_with_zone(value: Any, modifier: int) -> str | None:
    if isinstance(value, datetime):
        return _NO_ZONE if value.utcoffset() is None else _micros(value.microsecond, modifier)
    return _NO_ZONE if isinstance(value, date) else None


def _date(value: Any, _: int) -> str | None:
    is_longer = isinstance(value, datetime)
    return "would lose its time: give its `.date()` in `columns`" if is_longer else None


def _time(value: Any, modifier: int) -> str | None:
    if isinstance(value, time):
        return _OFFSET_LOST if value.tzinfo is not None else _micros(value.microsecond, modifier)
    return _NOT_A_TIME if isinstance(value, datetime | timedelta) else None


def _time_with_zone(value: Any, modifier: int) -> str | None:
    if isinstance(value, time):
        return _NO_ZONE if value.utcoffset() is None else _micros(value.microsecond, modifier)
    return _NOT_A_TIME if isinstance(value, datetime | timedelta) else None


def _interval(value: Any, modifier: int) -> str | None:
    if isinstance(value, time):  # of which the database would make an interval
        return "is a time of day: give a timedelta in `columns`"
    if not isinstance(value, timedelta) or modifier == -1:
        return None
    if modifier >> 16 != _ALL_FIELDS:
        return "may lose a part: use interval without fields"
    return _micros(value.microseconds, -1 if modifier & 0xFFFF == 0xFFFF else modifier & 0xFFFF)


def _micros(microseconds: int, digits: int) -> str | None:
    return _ROUNDED if digits != -1 and microseconds % 10 ** (6 - digits) else None


def _text(value: Any, _: int) -> str | None:
    return None if isinstance(value, _WITH_TEXT) else "is not text: give its text in `columns`"


def _bytes(value: Any, _: int) -> str | None:
    is_bytes = isinstance(value, bytes | bytearray | memoryview)
    return None if is_bytes else "is not bytes: encode it in `columns`"


def _name(bytes_max: int) -> Callable[[Any, int], str | None]:
    def check(value: Any, _: int) -> str | None:
        if isinstance(value, str) and len(utf8(value)) > bytes_max:
            return f"would be cut after {bytes_max} bytes: use text"
        return None if isinstance(value, str) else _text(value, -1) or "is not text: use text"

    return check


# What has one text, from which it can be read again.
_WITH_TEXT = (str, int, float, Decimal, date, time, timedelta, UUID)
_NO_DIGITS = 4  # the modifier of a numeric without digits behind the point
_DIGITS_LOST = f"{_ROUNDED}; numeric stores all digits"
_SCALE_MAX = 16_383  # digits behind the point of a numeric without a scale
_ALL_FIELDS = 0x7FFF  # an interval that is not restricted to some fields
_OFFSET = re.compile(r"\d:\d\d(:\d\d(\.\d+)?)?\s*(Z|[+-]\d\d(:?\d\d)*)(\[.*)?\s*$", re.IGNORECASE)
_OFFSET_LOST = (
    "would lose its offset: use a column with time zone, or convert it in `columns`, such as "
    "value.astimezone(UTC).replace(tzinfo=None)"
)
_NO_ZONE = (
    "has no time zone, so it is not a moment: use a column without time zone, or give it one in "
    "`columns`, such as value.replace(tzinfo=UTC)"
)
_NOT_A_TIME = "is not a time of day: give its `.time()` or `.timetz()` in `columns`"
_CHECKS: dict[int, Callable[[Any, int], str | None]] = {
    **dict.fromkeys((20, 21, 23), _integer),  # bigint, smallint, integer
    **dict.fromkeys((25, 1042, 1043), _text),  # text, char, varchar
    17: _bytes,
    1700: _numeric,
    790: _money,
    701: _double,
    700: _real,
    1114: _timestamp,
    1184: _timestamp_with_zone,
    1082: _date,
    1083: _time,
    1266: _time_with_zone,
    1186: _interval,
    18: _name(1),  # "char"
    19: _name(63),  # name
}
# Types of columns → those of the values that are sent as they are.
_NOTHING: frozenset[type[Any]] = frozenset([type(None)])
_PLAIN: dict[int, frozenset[type[Any]]] = {
    **dict.fromkeys((20, 21, 23), _NOTHING | {int}),
    **dict.fromkeys((700, 701), _NOTHING | {float}),
    **dict.fromkeys((25, 1042, 1043), _NOTHING | {str}),  # text, char, varchar
    16: _NOTHING | {bool},
    17: _NOTHING | {bytes},
    1082: _NOTHING | {date},
    2950: _NOTHING | {UUID, str},
}
