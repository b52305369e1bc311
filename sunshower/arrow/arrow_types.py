"""Converts Arrow types that Spark would misread to types that it reads correctly.

Spark's Arrow reader trusts the declared layout: a large_string declared as string, or nanoseconds
declared as microseconds, become other values without an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
from pyarrow import types

from sunshower.errors import Unserialisable


def normalise(table: pa.Table) -> pa.Table:
    """The same values in types that Spark reads correctly. Raises Unserialisable, naming the
    column, for a type that Spark does not have, and for values that the new type cannot hold."""
    fields = [pa.field(one.name, normal_type(one.type, one.name), True) for one in table.schema]
    return casts(table, pa.schema(fields))


def casts(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast a table column by column. Raises Unserialisable for values that would change."""
    columns = []
    for field, column in zip(schema, table.columns, strict=True):
        try:
            if types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)  # noqa: PLW2901
            columns.append(column.cast(field.type))
        except pa.ArrowException as error:
            raise Unserialisable(
                f"column {field.name!r} cannot go from {column.type} to {field.type} as it is: "
                f"{error}"
            ) from error
    return pa.Table.from_arrays(columns, schema=schema)


_TEXT = (types.is_string, types.is_large_string, types.is_string_view)
_BINARY = (
    *(types.is_binary, types.is_large_binary),
    *(types.is_fixed_size_binary, types.is_binary_view),
)
_LISTS = (
    *(types.is_list, types.is_large_list, types.is_fixed_size_list),
    *(types.is_list_view, types.is_large_list_view),
)
_NUMBERS_AND_DATES = (types.is_integer, types.is_floating, types.is_decimal, types.is_date)
_KEPT = {pa.float32(), pa.float64(), pa.bool_(), pa.date32()}


def _is(type: pa.DataType, family: Iterable[Callable[[pa.DataType], bool]]) -> bool:
    return any(check(type) for check in family)


def normal_type(type: pa.DataType, path: str) -> pa.DataType:
    """The type Spark reads for values of `type`. Raises Unserialisable, naming `path`."""
    if types.is_dictionary(type):
        return normal_type(type.value_type, path)
    if _is(type, _TEXT):
        return pa.string()
    if _is(type, _BINARY):
        return pa.binary()
    if types.is_timestamp(type):
        return pa.timestamp("us", tz="UTC" if type.tz else None)
    if types.is_date64(type):
        return pa.date32()
    if types.is_unsigned_integer(type):
        return {8: pa.int16(), 16: pa.int32()}.get(type.bit_width, pa.int64())
    if types.is_float16(type):
        return pa.float32()
    if types.is_decimal(type) and type.precision <= 38 and 0 <= type.scale <= type.precision:
        return pa.decimal128(type.precision, type.scale)
    if types.is_signed_integer(type) or type in _KEPT:
        return type
    return _nested_type(type, path)


def _nested_type(type: pa.DataType, path: str) -> pa.DataType:
    if _is(type, _LISTS):
        return pa.list_(pa.field("element", normal_type(type.value_type, f"{path}[]")))
    if types.is_map(type):
        key = normal_type(type.key_type, f"{path}.keys()")
        return pa.map_(key, normal_type(type.item_type, f"{path}.values()"))
    if types.is_struct(type):
        return pa.struct([(one.name, normal_type(one.type, f"{path}.{one.name}")) for one in type])
    raise Unserialisable(
        f"column {path!r} is {type}, which Spark does not have: cast it, or leave it out"
    )


def is_safe(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast to a normal type keeps the meaning of the values; the cast itself checks that
    they fit."""
    if types.is_null(found) or found == wanted:
        return True
    if types.is_dictionary(found):
        return is_safe(found.value_type, wanted)
    if types.is_struct(wanted):
        if not types.is_struct(found) or found.names != wanted.names:
            return False
        return all(map(is_safe, (one.type for one in found), (one.type for one in wanted)))
    if types.is_map(wanted):
        if not types.is_map(found):
            return False
        return is_safe(found.key_type, wanted.key_type) and is_safe(
            found.item_type, wanted.item_type
        )
    if types.is_list(wanted):
        return _is(found, _LISTS) and is_safe(found.value_type, wanted.value_type)
    if types.is_timestamp(wanted):
        return types.is_timestamp(found) and (found.tz is None) == (wanted.tz is None)
    if types.is_string(wanted) or types.is_binary(wanted):
        return _is(found, _TEXT if types.is_string(wanted) else _BINARY)
    return any(alike(found) and alike(wanted) for alike in _NUMBERS_AND_DATES)
