"""A new file that gets its name when it is complete."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Self

# ---- durable files -------------------------------------------------------------------------------


def sync_path(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk. Raises
    OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---- new file ------------------------------------------------------------------------------------


class NewFile:
    """A file that is written beside its place, and gets its name with `publish`, which replaces no
    other file. Only this user can read it.

    As a context manager it is removed at the end, unless it was published, or `leave` was called.
    The constructor raises FileExistsError if a file of this name, or an unfinished one, is there;
    like all methods, any other OSError if the folder or the disk does not allow it.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.unfinished = path, path.with_name(f".{path.name}.unfinished")
        self._stays = False
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        os.close(os.open(self.unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    def write(self, data: bytes) -> None:
        """Write the content to the disk, not under its name yet."""
        self.unfinished.write_bytes(data)
        sync_path(self.unfinished)

    def publish(self) -> None:
        """Give the file its name. Raises FileExistsError if another one has it by now."""
        try:
            os.link(self.unfinished, self.path)  # unlike a rename, it replaces nothing
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            self.unfinished.rename(self.path)
        self.unfinished.unlink(missing_ok=True)
        sync_path(self.path.parent)

    def leave(self) -> None:
        """Do not remove the unfinished file at the end."""
        self._stays = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if not self._stays:
            with suppress(OSError):
                self.unfinished.unlink(missing_ok=True)
