"""An HTTP server in the place of a schema registry, for tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class RegistryHandler(BaseHTTPRequestHandler):
    """Answers GET /schemas/ids/…, as the registry's REST interface does."""

    def schema_of(self, id: str) -> Any | None:
        """The schema of an id, or None if there is none."""
        raise NotImplementedError

    def do_GET(self) -> None:
        self.respond()

    def respond(self) -> None:
        folder, _, id = self.path.partition("?")[0].rpartition("/")
        schema = self.schema_of(id) if folder == "/schemas/ids" else None
        found = {"error_code": 40403, "message": "gone"}
        if schema is not None:
            found = {"schema": json.dumps(schema)}
        status = 404 if schema is None else 200
        self.answer(status, "application/vnd.schemaregistry.v1+json", json.dumps(found).encode())

    def answer(self, status: int, content_type: str, body: bytes, location: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def served(handler: type[RegistryHandler]) -> Iterator[str]:
    """The address of a server with this handler."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
