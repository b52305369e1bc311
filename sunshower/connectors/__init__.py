"""Connectors besides Kafka: HTTP, PostgreSQL tables."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sunshower.connectors.http_sink import HttpSink
    from sunshower.connectors.http_source import HttpSource
    from sunshower.connectors.postgres_table import PostgresTable

__all__ = ["HttpSink", "HttpSource", "PostgresTable"]

# Loaded on first use, so that a topology needs the packages of its own connectors only.
_WHERE = {
    "HttpSink": "http_sink",
    "HttpSource": "http_source",
    "PostgresTable": "postgres_table",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"sunshower.connectors.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'sunshower.connectors' has no attribute {name!r}")
