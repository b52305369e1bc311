"""HttpSource: takes POSTed JSON as records, and answers when their tuple trees are complete."""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any

from sunshower.arguments import COUNT, Instance, Values
from sunshower.failures import Cause, Failure
from sunshower.field_types import record_fields
from sunshower.installed import check_packages
from sunshower.record_reader import json_reader
from sunshower.secret import Secret, reveal
from sunshower.topologies.components import Context, Spout, SpoutCollector

if TYPE_CHECKING:
    from sunshower.connectors.http_endpoint import HttpEndpoint

_PORT = Values(int, "a port, a whole number", least=1, most=65535)
_TOKEN = Instance(
    (Secret, NoneType), 'a Secret, such as Secret.from_environment("TOKEN")', is_secret=True
)
_PATH = Instance((str,), 'a path, such as "/orders"', may_be_empty=False)
_HOST = Instance((str,), 'an address of this machine, such as "0.0.0.0"', may_be_empty=False)
_OF_CODE = {Cause.EXCEPTION, Cause.FAILED}


class HttpSource(Spout[Any]):
    """Records of `type` that clients POST to `path` as a JSON object, or as an array of several.

    A request is answered when the tuple trees of its records have ended: with 200 if all of them
    are complete; with 500 if the topology's code fails for one of them; with 503 and Retry-After
    after any other failure, if `pending_max` records are not processed, or while the topology is
    inactive or drains. Nothing is replayed: the client sends its request again. A process that dies
    closes its connections. So a record is processed at least once, if its client repeats the
    request until the answer is 200.

    Task i listens on `port` + i of its machine. With a `token`, requests need the header
    `Authorization: Bearer TOKEN`. A body may be compressed (`Content-Encoding: gzip` or `deflate`).
    One above `body_bytes_max`, also after it was decompressed, is refused with 413, one that is no
    record of the type with 400, any other encoding, or content-type but application/json, with 415.

    Raises ConfigError and RecordMismatch when it is declared.
    """

    replay = False

    def __init__(
        self,
        port: int,
        *,
        type: type[Any],
        path: str = "/",
        host: str = "127.0.0.1",
        token: Secret | None = None,
        pending_max: int = 1_000,
        body_bytes_max: int = 1_000_000,
    ) -> None:
        check_packages("http", "which HttpSource needs", "starlette", "uvicorn")
        _PORT.check("HttpSource: port", port)
        _PATH.check("HttpSource: path", path)
        _HOST.check("HttpSource: host", host)
        _TOKEN.check("HttpSource: token", token)
        COUNT.check("HttpSource: pending_max", pending_max)
        COUNT.check("HttpSource: body_bytes_max", body_bytes_max)
        record_fields(type)
        self.emits, self.port, self.path, self.host = type, port, path, host
        self.token, self.pending_max, self.body_bytes_max = token, pending_max, body_bytes_max
        self._endpoint: HttpEndpoint
        self._drains = False

    def open(self, context: Context) -> None:
        """Begin to listen. Raises Unavailable if the port is taken, else ConfigError."""
        from sunshower.connectors.http_endpoint import EndpointLimits, HttpEndpoint

        limits = EndpointLimits(self.pending_max, self.body_bytes_max)
        path = self.path if self.path.startswith("/") else f"/{self.path}"
        endpoint = HttpEndpoint(json_reader(self.emits), path, reveal(self.token), limits)
        endpoint.start(self.host, self.port + context.index)
        self._endpoint = endpoint

    def next_tuple(self, out: SpoutCollector[Any]) -> None:
        """Emit a record, if one waits."""
        if (found := self._endpoint.take()) is not None:
            id, record = found
            out.emit(record, id)

    def ack(self, message_id: Any) -> None:
        self._endpoint.settle(message_id)

    def fail(self, message_id: Any, failure: Failure) -> None:
        from sunshower.connectors.http_endpoint import HttpAnswer

        is_of_code = failure.cause in _OF_CODE and failure.is_charged
        place = f" in {failure.component}" if failure.component else ""
        failed = HttpAnswer(500 if is_of_code else 503, f"not processed: {failure.cause}{place}")
        self._endpoint.settle(message_id, failed)

    def activate(self) -> None:
        self._endpoint.accept(is_open=not self._drains)

    def deactivate(self) -> None:
        self._endpoint.accept(is_open=False)

    def drain(self) -> None:
        """Answer requests with 503 from now on."""
        self._drains = True
        self._endpoint.accept(is_open=False)

    def figures(self) -> dict[str, float]:
        """The number of records that are not settled."""
        return {"not settled": self._endpoint.pending}

    def close(self) -> None:
        """Answer what is not settled with 503, and stop listening."""
        self._endpoint.close()
