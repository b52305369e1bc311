"""An HTTP server in the place of a schema registry, for tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar


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
        answer = {"error_code": 40403, "message": "gone"}
        if schema is not None:
            answer = {"schema": json.dumps(schema)}
        status = 404 if schema is None else 200
        self.answer(status, "application/vnd.schemaregistry.v1+json", json.dumps(answer).encode())

    def answer(self, status: int, content_type: str, body: bytes, location: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


class WritableRegistry(RegistryHandler):
    """Also takes schemas, and gives them ids. It has no rules of compatibility, except that a
    subject `closed` refuses all."""

    schemas: ClassVar[dict[tuple[str, str], int]] = {}  # (kind, text) → id
    subjects: ClassVar[dict[str, list[int]]] = {}

    def schema_of(self, id: str) -> Any | None:
        texts = {str(known): text for (_, text), known in self.schemas.items()}
        return json.loads(texts[id]) if texts[id].startswith(("{", "[")) else texts[id]

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        parts = self.path.partition("?")[0].strip("/").split("/")
        subject, adds = parts[1], parts[2:] == ["versions"]
        key = sent.get("schemaType", "AVRO"), sent["schema"]
        versions = self.subjects.setdefault(subject, [])
        if adds and subject == "closed":
            return self._json(409, {"error_code": 409, "message": "incompatible"})
        if adds:
            id = self.schemas.setdefault(key, len(self.schemas) + 1)
            versions.extend([id] if id not in versions else [])
        elif (id := self.schemas.get(key, 0)) not in versions:
            return self._json(404, {"error_code": 40403, "message": "no such schema"})
        version = versions.index(id) + 1
        return self._json(200, {"subject": subject, "version": version, "id": id, **sent})

    def _json(self, status: int, content: Any) -> None:
        self.answer(status, "application/vnd.schemaregistry.v1+json", json.dumps(content).encode())


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server with this handler."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
