"""Connectors besides Kafka: HTTP, PostgreSQL tables, objects in S3."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sunshower.arrow.record_columns import Digits
    from sunshower.connectors.http_sink import HttpSink
    from sunshower.connectors.http_source import HttpSource
    from sunshower.connectors.objects import ObjectBatches, ObjectFiles, ObjectRecord
    from sunshower.connectors.postgres_table import PostgresTable

__all__ = [
    "Digits",
    "HttpSink",
    "HttpSource",
    "ObjectBatches",
    "ObjectFiles",
    "ObjectRecord",
    "PostgresTable",
]

# Loaded on first use, so that a topology needs the packages of its own connectors only.
_WHERE = {
    "Digits": "arrow.record_columns",
    "HttpSink": "connectors.http_sink",
    "HttpSource": "connectors.http_source",
    "ObjectBatches": "connectors.objects",
    "ObjectFiles": "connectors.objects",
    "ObjectRecord": "connectors.objects",
    "PostgresTable": "connectors.postgres_table",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"sunshower.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'sunshower.connectors' has no attribute {name!r}")
