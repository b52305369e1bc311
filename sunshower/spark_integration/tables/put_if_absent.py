"""Prevents drivers from overwriting existing entries of a Delta Lake log.

Delta asks whether an entry exists, and then creates it. On S3 and on local disks another driver may
have created it in between, and that entry would be overwritten.

- S3 refuses that if the request has `If-None-Match: *`. S3A of Hadoop 3.3.4 cannot send that, so a
  request handler in the driver's S3 client adds the header.
- On local disks (`file:`) a driver locks a file as long as it commits. The lock belongs to the
  driver's Java and ends with it. Iceberg's hadoop catalog needs it too.

HDFS refuses to rename to a name that exists, and needs neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from sunshower.errors import SparkUnavailable, WriteFailed
from sunshower.spark_integration.error_report import error_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFUSED = "Status Code: 412"  # in the text of the exception
_ENTRY = re.compile(r"/_delta_log/\d{20}\.json$")
_PROBE = "_sunshower/_delta_log/00000000000000000000.json"


class _Handler:
    """A `com.amazonaws.handlers.RequestHandler`, which Java calls for each request of a client."""

    class Java:
        implements = ("com.amazonaws.handlers.RequestHandler",)

    def beforeRequest(self, request: Any) -> None:  # noqa: N802
        if _ENTRY.search(str(request.getResourcePath())):
            method = str(request.getHttpMethod())
            in_parts = "uploadId" in request.getParameters()  # then the last request creates it
            if method == ("POST" if in_parts else "PUT"):
                request.addHeader("If-None-Match", "*")

    def afterResponse(self, request: Any, response: Any, timing: Any) -> None:  # noqa: N802
        pass

    def afterError(self, request: Any, error: Any) -> None:  # noqa: N802
        pass


@contextmanager
def put_if_absent(session: SparkSession, path: str) -> Iterator[None]:
    """Commit inside to the table at `path`. Raises SparkUnavailable while another driver of this
    machine commits, WriteFailed if the object store ignores the condition."""
    if path.startswith(("s3:", "s3a:", "s3n:")):
        _check_s3(session, path)
        yield
    elif path.startswith("file:"):
        with table_lock(session, path):
            yield
    else:
        yield


@contextmanager
def table_lock(session: SparkSession, path: str) -> Iterator[None]:
    """Commit inside to the table at `path` on a disk. Raises SparkUnavailable while another driver
    of this machine commits."""
    java = session._jvm
    folder = java.org.apache.hadoop.fs.Path(path).toUri().getPath()
    file = java.java.io.RandomAccessFile(f"{folder}/_sunshower/lock", "rw")
    try:
        try:
            lock = file.getChannel().tryLock()
        except Exception as error:
            if "OverlappingFileLockException" not in error_text(error):
                raise
            lock = None  # another job of this driver has it
        if lock is None:
            raise SparkUnavailable(f"{path}: another driver commits to this table now")
        yield
    finally:
        with suppress(Exception):  # Java may be gone
            file.close()


def _check_s3(session: SparkSession, path: str) -> None:
    """Have S3 refuse to overwrite entries. Raises WriteFailed if it does not."""
    if not _overwrites(session, path):
        return
    _add_handler(session, _client(session, path))
    if _overwrites(session, path):
        raise WriteFailed(
            f"{path}: this object store ignores the condition of a write (If-None-Match: *), so "
            "two drivers could overwrite each other's commits. Use one that knows conditional "
            "writes, as Amazon S3 does"
        )


def _overwrites(session: SparkSession, path: str) -> bool:
    """Whether a second PUT of an entry succeeds, in the way that Delta takes."""
    uri = session._jvm.org.apache.hadoop.fs.Path(f"{path}/{_PROBE}").toUri()
    client = _client(session, path)
    try:
        for _ in range(2):
            client.putObject(uri.getAuthority(), uri.getPath().lstrip("/"), "")
    except Exception as error:
        if REFUSED not in error_text(error):
            raise
        return False
    return True


def _client(session: SparkSession, path: str) -> Any:
    settings = session.sparkContext._jsc.hadoopConfiguration()
    files = session._jvm.org.apache.hadoop.fs.Path(path).getFileSystem(settings)
    return files.getAmazonS3ClientForTesting("sunshower")


def _add_handler(session: SparkSession, client: Any) -> None:
    """Replace the list of handlers, which others may be reading."""
    from pyspark.java_gateway import ensure_callback_server_started

    ensure_callback_server_started(session.sparkContext._gateway)
    java = session._jvm
    loader = client.getClass().getClassLoader()
    base = java.java.lang.Class.forName("com.amazonaws.AmazonWebServiceClient", True, loader)
    field = base.getDeclaredField("requestHandler2s")  # a client of S3A takes no more handlers
    field.setAccessible(True)
    handlers = java.java.util.ArrayList(field.get(client))
    handlers.add(java.com.amazonaws.handlers.RequestHandler2.adapt(_Handler()))
    field.set(client, handlers)
