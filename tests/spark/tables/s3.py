"""An S3 server (moto's) over HTTP, which can hold back a request."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Held:
    """Holds back the first PUT of an object whose key matches, until `release`."""

    key: re.Pattern[str]
    arrived: threading.Event = field(default_factory=threading.Event)
    decided: threading.Event = field(default_factory=threading.Event)
    dropped: bool = False

    def release(self, *, dropped: bool = False) -> None:
        self.dropped = dropped
        self.decided.set()


class S3:
    """The server, as a WSGI application. `conditional`: whether it supports `If-None-Match`."""

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self._app = DomainDispatcherApplication(create_backend_app)
        self._held: list[Held] = []
        self.conditional = True

    def hold(self, key: str) -> Held:
        self._held.append(Held(re.compile(key)))
        return self._held[-1]

    def __call__(self, request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if not self.conditional:
            request.pop("HTTP_IF_NONE_MATCH", None)
        for held in self._held if request["REQUEST_METHOD"] == "PUT" else ():
            if held.key.search(request["PATH_INFO"]) and not held.arrived.is_set():
                held.arrived.set()
                held.decided.wait()
                if held.dropped:
                    start("503 Service Unavailable", [])
                    return [b""]
        response: Iterable[bytes] = self._app(request, start)
        return response


@contextmanager
def s3(secret: str) -> Iterator[tuple[S3, dict[str, str]]]:
    """The server with an empty bucket, and the settings for Spark to connect to it."""
    import boto3
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, type: str, message: str, *args: Any) -> None:
            pass

    app = S3()
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    address, keys = f"http://127.0.0.1:{server.port}", ("anybody", secret)
    access = {"aws_access_key_id": keys[0], "aws_secret_access_key": keys[1]}
    boto3.client("s3", "us-east-1", endpoint_url=address, **access).create_bucket(Bucket="bucket")
    s3a = {"endpoint": address, "access.key": keys[0], "secret.key": keys[1]}
    s3a |= {"path.style.access": "true", "retry.limit": "1"}
    try:
        yield app, {f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()}
    finally:
        for held in app._held:
            held.release(dropped=True)
        server.shutdown()
        thread.join()
