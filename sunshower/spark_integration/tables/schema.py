"""Converts schemas between Spark and Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sunshower.errors import ResultMismatch

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def spark_schema(arrow: pa.Schema) -> StructType:
    """The Spark schema of a normalised table; a timestamp without a zone stays one."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(arrow, prefer_timestamp_ntz=True)


def arrow_schema(spark: StructType) -> pa.Schema:
    """The Arrow schema of a Spark result. Raises ResultMismatch for types that Arrow lacks."""
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(spark)
    except PySparkTypeError as error:
        raise ResultMismatch(f"the result has a type that cannot be handed back: {error}") from None
