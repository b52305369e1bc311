"""A real HTTP server with the protocol of S3 (moto's), which may be killed and started again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sunshower.dev.servers import Ports

SECRET = "hunter2-planted"  # the key of the server


class S3Server:
    """One bucket; its objects survive a kill. All servers of a process share their buckets."""

    def __init__(self, port: int) -> None:
        self.port, self.bucket = port, f"bucket-{port}"
        self.start()
        import boto3

        access = {"aws_access_key_id": "anybody", "aws_secret_access_key": SECRET}
        address = f"http://127.0.0.1:{port}"
        self._client: Any = boto3.client("s3", "us-east-1", endpoint_url=address, **access)
        self._client.create_bucket(Bucket=self.bucket)

    def url(self, folder: str) -> str:
        options = f"endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"
        return f"s3://anybody:{SECRET}@{self.bucket}/{folder}?{options}"

    def put(self, name: str, data: bytes) -> None:
        self._client.put_object(Bucket=self.bucket, Key=name, Body=data)

    def start(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Quiet(WSGIRequestHandler):
            def log(self, type: str, message: str, *args: Any) -> None:
                pass

        app = DomainDispatcherApplication(create_backend_app)
        serve = make_server("127.0.0.1", self.port, app, threaded=True, request_handler=Quiet)
        self._server, self._thread = serve, threading.Thread(target=serve.serve_forever)
        self._thread.start()

    def kill(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def close(self) -> None:
        for entry in self._client.list_objects_v2(Bucket=self.bucket).get("Contents", []):
            self._client.delete_object(Bucket=self.bucket, Key=entry["Key"])
        self._client.delete_bucket(Bucket=self.bucket)
        self._client.close()
        self.kill()


@contextmanager
def s3_server() -> Iterator[S3Server]:
    pytest.importorskip("moto")
    ports = Ports()
    server = S3Server(ports.claim())
    try:
        yield server
    finally:
        server.close()
        ports.release()
