"""Java class data archives: made once per release, they nearly halve the work of each start."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sunshower.dev.jars import Release, cache


@dataclass(frozen=True)
class ClassArchive:
    """The path of the archive for one Java and one set of jars; Java rejects any other.

    An empty file means that it cannot be made here. Java then starts without one.
    """

    path: Path

    def options(self, classes: Path) -> list[str]:
        """Options for `java`: use the archive, or list the classes that it should contain."""
        if self.path.exists():
            return [f"-XX:SharedArchiveFile={self.path}"] if self.path.stat().st_size else []
        return [f"-XX:DumpLoadedClassList={classes}"]

    def making(self, classes: Path) -> list[str]:
        """Options for `java`, beside the class path, to make the archive. Then call `publish`."""
        written = classes.read_bytes()
        whole = classes.with_name(f"whole-{classes.name}")  # the server still writes to `classes`
        whole.write_bytes(written[: written.rfind(b"\n") + 1])
        return [
            *("-Xshare:dump", f"-XX:SharedClassListFile={whole}"),
            f"-XX:SharedArchiveFile={self._part}",
        ]

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Lock the archive; yields whether it does not exist, and no other process makes it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield not self.path.exists()

    def publish(self, good: bool) -> None:
        """Move the finished archive to its path; if not `good`, an empty file."""
        if not good:
            self._part.write_bytes(b"")
        self._part.replace(self.path)

    @property
    def _part(self) -> Path:
        return self.path.with_suffix(f".{os.getpid()}")


def archive_of(release: Release, java: Path, class_path: str) -> ClassArchive:
    """The archive of a release, which may not exist yet."""
    return ClassArchive(folder() / f"{release.name}-{_key(java, class_path.split(os.pathsep))}.jsa")


def folder() -> Path:
    """The folder for archives, beside that of the jars."""
    return cache().with_name("classes")


def _key(java: Path, jars: Sequence[str]) -> str:
    """A hash of everything that Java checks before it accepts an archive."""
    files = [java.resolve(), *map(Path, jars)]
    facts = [f"{file} {file.stat().st_mtime_ns} {file.stat().st_size}" for file in files]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
