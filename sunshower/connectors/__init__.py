"""Connectors besides Kafka: HTTP, PostgreSQL tables, files of records, objects in S3.

Each can be read alone: `http_source` and `http_sink` (requests), `postgres_table` (rows),
`record_files` (records of files as they appear), `objects` (batches from and to objects, or files),
`partitioned_files` (folders that are marked as complete). `file_formats` reads JSON lines, CSV and
Parquet.
"""

from typing import TYPE_CHECKING

from sunshower.installed import exports

if TYPE_CHECKING:
    from sunshower.arrow.record_columns import Digits as Digits
    from sunshower.connectors.file_formats import ObjectRecord as ObjectRecord
    from sunshower.connectors.http_sink import HttpSink as HttpSink
    from sunshower.connectors.http_source import HttpSource as HttpSource
    from sunshower.connectors.objects import ObjectBatches as ObjectBatches
    from sunshower.connectors.objects import ObjectFiles as ObjectFiles
    from sunshower.connectors.partitioned_files import CompletePartition as CompletePartition
    from sunshower.connectors.partitioned_files import PartitionedFiles as PartitionedFiles
    from sunshower.connectors.postgres_table import PostgresTable as PostgresTable
    from sunshower.connectors.record_files import FollowedFiles as FollowedFiles
    from sunshower.connectors.record_files import RecordFiles as RecordFiles


if not TYPE_CHECKING:  # so that a topology needs the packages of its own connectors only
    __all__, __getattr__ = exports(__name__)
