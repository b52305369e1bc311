"""Logical types of Avro that fastavro rounds or does not read: decimals, UUIDs and durations."""

from __future__ import annotations

from datetime import timedelta
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

from fastavro.read import LOGICAL_READERS

# fastavro's dictionary is one for the process, so the readers have names of their own there.
_OWN = {
    ("bytes", "decimal"): "sunshower-decimal",
    ("fixed", "decimal"): "sunshower-decimal",
    ("fixed", "uuid"): "sunshower-uuid",
    ("fixed", "duration"): "sunshower-duration",
}


def exact(deserializer: type[Any]) -> type[Any]:
    """A class of AvroDeserializer whose values are exact: a decimal with more digits than its
    precision, a duration with months, and bytes that are left over raise ValueError."""
    from confluent_kafka.schema_registry import dual_schema_id_deserializer

    class ExactDeserializer(deserializer):  # type: ignore[misc]
        def __init__(self, registry: Any) -> None:
            super().__init__(registry, conf={"schema.id.deserializer": self._payload_of})

        def _payload_of(self, *message: Any) -> Any:
            self._payload = dual_schema_id_deserializer(*message)
            self._first = self._payload.tell()
            return self._payload

        def __call__(self, data: bytes, context: Any = None) -> Any:
            value = super().__call__(data, context)
            is_read = self._payload.tell() > self._first  # a rule of the schema may replace it
            if is_read and (left := len(self._payload.read())):
                raise ValueError(f"{left} bytes follow the value")
            return value

        def _get_parsed_schema(self, schema: Any) -> Any:
            return _with_own_types(super()._get_parsed_schema(schema))

    if not hasattr(deserializer, "_get_parsed_schema"):
        raise ImportError("this release of confluent-kafka parses schemas elsewhere")
    for (kind, _), name in _OWN.items():
        LOGICAL_READERS[f"{kind}-{name}"] = _READERS[name]
    return ExactDeserializer


def _with_own_types(schema: Any) -> Any:
    """A parsed schema, whose logical types are read by the functions below."""
    if isinstance(schema, list):
        return [*map(_with_own_types, schema)]
    if not isinstance(schema, dict):
        return schema
    changed = {
        name: _with_own_types(part) if name in _PARTS else part for name, part in schema.items()
    }
    key = schema.get("type"), schema.get("logicalType")
    if isinstance(key[0], str) and isinstance(key[1], str) and key in _OWN:
        changed["logicalType"] = _OWN[key]
    return changed


_PARTS = ("type", "items", "values", "fields")


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
