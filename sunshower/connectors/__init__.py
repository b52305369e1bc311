"""Connectors besides Kafka: HTTP, PostgreSQL tables, objects in S3."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sunshower.connectors.http_sink import HttpSink
    from sunshower.connectors.http_source import HttpSource
    from sunshower.connectors.object_batches import ObjectBatches
    from sunshower.connectors.object_files import ObjectFiles
    from sunshower.connectors.postgres_table import PostgresTable

__all__ = ["HttpSink", "HttpSource", "ObjectBatches", "ObjectFiles", "PostgresTable"]

# Loaded on first use, so that a topology needs the packages of its own connectors only.
_WHERE = {
    "HttpSink": "http_sink",
    "HttpSource": "http_source",
    "ObjectBatches": "object_batches",
    "ObjectFiles": "object_files",
    "PostgresTable": "postgres_table",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"sunshower.connectors.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'sunshower.connectors' has no attribute {name!r}")
