"""Reads the demo's text and counts its words in a plain loop, as the expected result."""

from __future__ import annotations

import sysconfig
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sunshower.errors import SourceError
from sunshower.topologies.sources import TextFiles


@dataclass(frozen=True)
class Corpus:
    """The files that can be decoded, their lines, and how often each word is in them."""

    files: Mapping[str, int]  # path → its lines
    skipped: Mapping[str, str]  # path → why it cannot be decoded
    words: Counter[str]

    @classmethod
    def of(cls, patterns: Sequence[str]) -> Corpus:
        """Read and count the files that `patterns` name.

        Raises SourceError for a missing or unreadable file, and when not one can be decoded.
        """
        files: dict[str, int] = {}
        skipped: dict[str, str] = {}
        words = Counter[str]()
        for path in TextFiles(*patterns).files:
            try:
                text = _read(path)
            except (SyntaxError, UnicodeDecodeError) as error:
                skipped[path] = str(error).partition(" for ")[0]  # it names the file once more
                continue
            files[path] = len(text)
            words.update(word for line in text for word in line.split())
        if not files:
            raise SourceError(
                f"none of the {len(skipped)} files can be decoded by its own declaration, or as "
                "UTF-8; name others with --files"
            )
        return cls(files, skipped, words)

    @property
    def lines(self) -> int:
        """The number of lines of all files."""
        return sum(self.files.values())

    def share(self, index: int, parallelism: int) -> Iterator[str]:
        """Yield the lines that spout task `index` of `parallelism` reads, in its order."""
        for path in list(self.files)[index::parallelism]:
            yield from _read(path)

    def share_size(self, index: int, parallelism: int) -> int:
        """Return how many lines that share has."""
        return sum(list(self.files.values())[index::parallelism])


def standard_library() -> list[str]:
    """Return the Python files of the interpreter's standard library."""
    root = Path(sysconfig.get_path("stdlib"))
    others = {"site-packages", "dist-packages"}
    return [str(path) for path in root.rglob("*.py") if not others & set(path.parts)]


def _read(path: str) -> list[str]:
    """Read the lines of a file in the encoding that it declares (PEP 263), else in UTF-8."""
    with tokenize.open(path) as file:
        return file.readlines()
