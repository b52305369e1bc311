"""What fastavro rounds or does not read in Avro: decimals, UUIDs, durations; items of no bytes."""

from __future__ import annotations

import threading
from datetime import timedelta
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

from fastavro.read import LOGICAL_READERS

# fastavro's dictionary is one for the process, so the readers have names of their own there.
_NOTHING = "sunshower-nothing"
_NOTHING_MAX = 10_000  # items of a message that have no bytes: a few bytes may say how many
_OWN = {
    ("bytes", "decimal"): "sunshower-decimal",
    ("fixed", "decimal"): "sunshower-decimal",
    ("fixed", "uuid"): "sunshower-uuid",
    ("fixed", "duration"): "sunshower-duration",
}


def exact(deserializer: type[Any]) -> type[Any]:
    """A class of AvroDeserializer whose values are exact. It raises ValueError for a decimal with
    more digits than its precision, a duration with months, bytes that are left over, and more than
    10,000 items without bytes."""
    from confluent_kafka.schema_registry import dual_schema_id_deserializer

    class ExactDeserializer(deserializer):  # type: ignore[misc]
        def __init__(self, registry: Any) -> None:
            super().__init__(registry, conf={"schema.id.deserializer": self._payload_of})

        def _payload_of(self, *message: Any) -> Any:
            self._payload = dual_schema_id_deserializer(*message)
            self._first = self._payload.tell()
            return self._payload

        def __call__(self, data: bytes, context: Any = None) -> Any:
            _items.count = 0
            value = super().__call__(data, context)
            is_read = self._payload.tell() > self._first  # a rule of the schema may replace it
            if is_read and (left := len(self._payload.read())):
                raise ValueError(f"{left} bytes follow the value")
            return value

        def _get_parsed_schema(self, schema: Any) -> Any:
            parsed = super()._get_parsed_schema(schema)
            named = parsed.get(_NAMED, {}) if isinstance(parsed, dict) else {}
            return _with_own_types(parsed, named)

    if not hasattr(deserializer, "_get_parsed_schema"):
        raise ImportError("this release of confluent-kafka parses schemas elsewhere")
    for (kind, _), name in _OWN.items():
        LOGICAL_READERS[f"{kind}-{name}"] = _READERS[name]
    for kind in ("null", "record", "error", "fixed"):
        LOGICAL_READERS[f"{kind}-{_NOTHING}"] = _count
    return ExactDeserializer


def _with_own_types(schema: Any, named: Any) -> Any:
    """A parsed schema, whose logical types are read by the functions below. `named`: its types."""
    if isinstance(schema, list):
        return [_with_own_types(part, named) for part in schema]
    if not isinstance(schema, dict):
        return schema
    changed, kind = dict(schema), schema.get("type")
    is_nothing = kind in ("record", "error", "fixed") and _is_nothing(schema, named)
    for name in set() if is_nothing else _PARTS & schema.keys():
        changed[name] = _with_own_types(schema[name], named)
    if _NAMED in schema:
        types = schema[_NAMED].items()
        changed[_NAMED] = {name: _with_own_types(kind, named) for name, kind in types}
    if kind == "array" and schema["items"] in ("null", {"type": "null"}):
        changed["items"] = {"type": "null", "logicalType": _NOTHING}
    elif is_nothing:
        changed["logicalType"] = _NOTHING
    elif isinstance(kind, str) and (kind, schema.get("logicalType")) in _OWN:
        changed["logicalType"] = _OWN[kind, schema["logicalType"]]
    return changed


_PARTS = {"type", "items", "values", "fields"}
_NAMED = "__named_schemas"


def _is_nothing(schema: Any, named: Any, around: tuple[Any, ...] = ()) -> bool:
    """Whether each value of a schema has no bytes."""
    if isinstance(schema, str):
        schema = named.get(schema, schema)
    if schema in around:  # a record that contains itself has no values
        return False
    kind = schema.get("type") if isinstance(schema, dict) else schema
    if kind in ("record", "error"):
        fields = (field["type"] for field in schema["fields"])
        return all(_is_nothing(field, named, (*around, schema)) for field in fields)
    if isinstance(kind, dict):
        return _is_nothing(kind, named, around)
    return kind == "null" or (kind == "fixed" and not schema["size"])


class _Items(threading.local):
    count = 0


_items = _Items()


def _count(value: Any, *_: Any) -> Any:
    _items.count += 1
    if _items.count > _NOTHING_MAX:
        raise ValueError(f"it has more than {_NOTHING_MAX:,} items without bytes")
    return value


def _read_decimal(data: bytes, schema: Any, *_: Any) -> Decimal:
    unscaled = int.from_bytes(data, "big", signed=True)
    precision, scale = schema["precision"], schema.get("scale", 0)
    if abs(unscaled) >= 10**precision:
        raise ValueError(f"a decimal has more than its {precision} digits")
    return Decimal(unscaled).scaleb(-scale, Context(prec=max(precision, 1)))


def _read_uuid(data: bytes, *_: Any) -> UUID:
    return UUID(bytes=data)


def _read_duration(data: bytes, *_: Any) -> timedelta:
    months, days, millis = (int.from_bytes(data[at : at + 4], "little") for at in (0, 4, 8))
    if months:
        raise ValueError(f"a duration has {months} months, which have no length")
    return timedelta(days=days, milliseconds=millis)


_READERS: dict[str, Any] = {
    "sunshower-decimal": _read_decimal,
    "sunshower-uuid": _read_uuid,
    "sunshower-duration": _read_duration,
}
