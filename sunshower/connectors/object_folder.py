"""A folder of objects in S3 or another object store, or of files: names, and whole contents."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sunshower.arguments import Instance
from sunshower.errors import ConfigError, StoreForbidden, StoreUnreachable
from sunshower.outages import is_unavailable
from sunshower.secret import Secret, address, reveal, without_secrets
from sunshower.state.files.durable_files import sync_path

PLACE = Instance(
    (str, Secret, os.PathLike), 'a folder, such as "s3://bucket/orders"', False, is_secret=True
)
# Parts of the messages of S3's client that say that the store is away.
_AWAY = (
    *("NETWORK_CONNECTION", "SERVICE_UNAVAILABLE", "INTERNAL_FAILURE", "SLOW_DOWN", "THROTTLING"),
    *("REQUEST_TIMEOUT", "REQUEST_TIME_TOO_SKEWED", "curlCode", "HTTP status 5"),
)


class ObjectFolder:
    """`place`: a URL that pyarrow opens (`s3://…`, `gs://…`, `abfs://…`, `file:///…`), or the path
    of a folder. Names are relative to it. The client is created when it is used."""

    def __init__(self, place: str | Secret | os.PathLike[str], where: str) -> None:
        PLACE.check(f"{where}: place", place)
        if isinstance(place, os.PathLike) or (isinstance(place, str) and "://" not in place):
            place = Path(place).absolute().as_uri()
        self._place: Secret = address(place)
        self._client: Any = None

    def __str__(self) -> str:
        return str(self._place).partition("?")[0].rstrip("/")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}  # a client cannot be pickled

    def names(self, below: str = "") -> list[str]:
        """The names of all objects, or of those below a folder, in order. Hidden ones, whose name
        or folder begins with "." or "_", are left out."""
        from pyarrow.fs import FileSelector, FileType

        with self._errors():
            client, root = self._opened()
            path = f"{root}/{below}" if below else root
            selected = FileSelector(path, allow_not_found=True, recursive=True)
            found = [
                info.path[len(root) + 1 :]
                for info in client.get_file_info(selected)
                if info.type == FileType.File
            ]
        return sorted(name for name in found if not _is_hidden(name))

    def read(self, name: str) -> bytes | None:
        """The content of an object; None if it does not exist."""
        with self._errors():
            client, root = self._opened()
            try:
                with client.open_input_stream(f"{root}/{name}", compression=None) as stream:
                    data: bytes = stream.read()
            except FileNotFoundError:
                return None
        return data

    def write(self, name: str, data: bytes) -> None:
        """Create or replace an object. It is never there in part. A file is on the disk when this
        returns."""
        with self._errors():
            client, root = self._opened()
            path = f"{root}/{name}"
            if client.type_name == "local":
                _write_file(Path(root or "/"), Path(path), data)
                return
            with client.open_output_stream(path) as stream:
                stream.write(data)

    def delete(self, name: str) -> None:
        """Remove an object, if it exists. A file is removed from the disk when this returns."""
        with self._errors():
            client, root = self._opened()
            path = f"{root}/{name}"
            try:
                client.delete_file(path)
            except FileNotFoundError:
                return
            if client.type_name == "local":
                sync_path(Path(path).parent)

    def _opened(self) -> tuple[Any, str]:
        from pyarrow import ArrowInvalid
        from pyarrow.fs import FileSystem

        if self._client is None:
            try:
                client, root = FileSystem.from_uri(reveal(self._place))
            except (ArrowInvalid, TypeError) as error:
                raise ConfigError(
                    f'{self} is no folder that pyarrow opens, such as "s3://bucket/orders": '
                    f"{without_secrets(str(error))}"
                ) from None
            self._client = client, root.rstrip("/")
        found: tuple[Any, str] = self._client
        return found

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert errors of the client. Raises StoreUnreachable, StoreForbidden: what the store
        refuses, such as a bucket that does not exist, is refused for every record."""
        try:
            yield
        except OSError as error:
            why = without_secrets(str(error))
            if is_unavailable(error) or any(part in why for part in _AWAY):
                raise StoreUnreachable(f"{self} cannot be used: {why}") from error
            raise StoreForbidden(f"{self} refuses that: {why}") from error


def _write_file(root: Path, path: Path, data: bytes) -> None:
    """Write a file below `root` under a hidden name, and rename it. Sync it, its folder, and all
    folders up to the lowest one that was there before. Raises OSError."""
    there = next(one for one in (root, *root.parents) if one.exists())
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}")
    draft.write_bytes(data)
    sync_path(draft)
    draft.replace(path)
    for folder in path.parents:
        sync_path(folder)
        if folder == there:
            return


def _is_hidden(name: str) -> bool:
    return any(part[:1] in {".", "_"} for part in name.split("/"))
