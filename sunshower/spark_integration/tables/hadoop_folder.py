"""Names below a folder of any file system of Spark, through the driver's JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sunshower.errors import SparkMissing
from sunshower.spark_integration.error_report import error_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HadoopFolder:
    """A folder, which need not exist. Names are relative to it. Raises what Java raises, and
    SparkMissing for an address on S3 without the jars for it."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self.path = path
        self._of = session._jvm.org.apache.hadoop.fs.Path
        settings = session.sparkContext._jsc.hadoopConfiguration()
        try:
            self._files = self._of(path).getFileSystem(settings)
        except Exception as error:
            if "S3AFileSystem not found" not in error_text(error):
                raise
            raise SparkMissing(
                f"{path}: Spark has no way to S3: give its place jars=(…, *spark_s3()), from "
                "sunshower.dev"
            ) from error

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none if it does not exist."""
        found = self._of(f"{self.path}/{folder}" if folder else self.path)
        if not self._files.exists(found):
            return []
        return sorted(str(one.getPath().getName()) for one in self._files.listStatus(found))

    def create(self, name: str) -> None:
        """Create an empty file, in place of one of that name."""
        self._files.create(self._of(f"{self.path}/{name}"), True).close()

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it, if it exists."""
        self._files.delete(self._of(f"{self.path}/{name}"), True)
