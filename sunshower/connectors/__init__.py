"""Connectors besides Kafka: HTTP, PostgreSQL tables, objects in S3.

Each can be read alone: `http_source` and `http_sink` (requests), `postgres_table` (rows), `objects`
(batches from and to objects, or files).
"""

from typing import TYPE_CHECKING

from sunshower.installed import lazy_exports

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
__getattr__ = lazy_exports(
    __name__,
    {
        "sunshower.arrow.record_columns": "Digits",
        "http_sink": "HttpSink",
        "http_source": "HttpSource",
        "objects": "ObjectBatches ObjectFiles ObjectRecord",
        "postgres_table": "PostgresTable",
    },
)
