"""An exactly-once word count: the number of occurrences of each word in some text files.

    sunshower run examples/exactly_once_word_count.py
    sqlite3 exactly_once.db "SELECT key, value ->> 1 AS n FROM count ORDER BY n DESC LIMIT 9"

It reads the Python files of this repository in batches. Kill it, or one of its workers, as often as
you like, and start it again: it continues after its last batch, and counts no word twice. It writes
two SQLite files to the working directory: the counts, and the progress of the batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sunshower import Line, TextFiles, Topology
from sunshower.state import SqliteState
from sunshower.trident import InSqlite, batches, count

REPOSITORY = Path(__file__).resolve().parents[1]


class Word(NamedTuple):
    word: str


def split(line: Line) -> Iterator[Word]:
    for word in line.text.split():
        yield Word(word)


topology = Topology("exactly-once-word-count")
files = TextFiles(REPOSITORY / "sunshower/**/*.py")
lines = batches(topology, "lines", files, store=InSqlite("exactly_once_batches.db"), max_batches=3)
words = lines.shuffle(parallelism=2).flat_map(split)
words.group_by("word").aggregate(count(), state=SqliteState("exactly_once.db"), parallelism=2)
