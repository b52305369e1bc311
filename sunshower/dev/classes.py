"""Java's archive of a release's classes: made once, it nearly halves the work of each start."""

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
class Archive:
    """Where the archive is for one Java and these very jars; another Java would not take it.

    An empty file says that it cannot be made here. Java goes on without one then.
    """

    path: Path

    def options(self, classes: Path) -> list[str]:
        """What the command `java` is told: use the archive, or write down what would be in it."""
        if self.path.exists():
            return [f"-XX:SharedArchiveFile={self.path}"] if self.path.stat().st_size else []
        return [f"-XX:DumpLoadedClassList={classes}"]

    def making(self, classes: Path) -> list[str]:
        """What it is told to make the archive, beside the class path. Call `made` afterwards."""
        written = classes.read_bytes()
        whole = classes.with_name(f"whole-{classes.name}")  # the server is still at the other
        whole.write_bytes(written[: written.rfind(b"\n") + 1])
        return [
            *("-Xshare:dump", f"-XX:SharedClassListFile={whole}"),
            f"-XX:SharedArchiveFile={self._part}",
        ]

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether it is to be made by whoever asks: it is not there, and nobody else is at it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield not self.path.exists()

    def made(self, good: bool) -> None:
        """Put it where it belongs, whole."""
        if not good:
            self._part.write_bytes(b"")
        self._part.replace(self.path)

    @property
    def _part(self) -> Path:
        return self.path.with_suffix(f".{os.getpid()}")


def archive_of(release: Release, java: Path, class_path: str) -> Archive:
    """The archive, whether it is there or not."""
    return Archive(folder() / f"{release.name}-{_key(java, class_path.split(os.pathsep))}.jsa")


def folder() -> Path:
    """Where archives are: beside the jars."""
    return cache().with_name("classes")


def _key(java: Path, jars: Sequence[str]) -> str:
    """Of all that Java looks at before it takes an archive."""
    files = [java.resolve(), *map(Path, jars)]
    facts = [f"{file} {file.stat().st_mtime_ns} {file.stat().st_size}" for file in files]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
