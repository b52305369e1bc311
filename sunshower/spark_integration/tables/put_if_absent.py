"""Has S3 refuse to overwrite an entry of a Delta Lake log: its PUT gets `If-None-Match: *`.

On S3 Delta asks whether an entry exists, and then writes it. A driver that is stopped in between
would overwrite what its successor has committed meanwhile. S3 can refuse that, but S3A of Hadoop
3.3.4 cannot ask for it, so a request handler in the driver's S3 client adds the header.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sunshower.errors import WriteFailed
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


def put_if_absent(session: SparkSession, path: str) -> None:
    """Let no driver of this table overwrite an entry of its log. Raises WriteFailed if the store
    overwrites nevertheless. File systems other than S3 refuse it without our help."""
    if not path.startswith(("s3:", "s3a:", "s3n:")):
        return
    if not _overwrites(session, path):
        return
    _add_handler(session, _client(session, path))
    if _overwrites(session, path):
        raise WriteFailed(
            f"{path}: this object store overwrites an object although it is told not to "
            "(If-None-Match: *), so two drivers could overwrite each other's commits. Use one "
            "that knows conditional writes, as Amazon S3 does"
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
