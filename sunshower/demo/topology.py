"""The demo's topology: lines of text files, split into words, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sunshower.failures import Failure
from sunshower.topologies.components import Bolt, Context
from sunshower.topologies.sources import Line, TextFiles
from sunshower.topologies.topology import Topology

READERS = SPLITTERS = COUNTERS = 2


class Word(NamedTuple):
    """One word of a line."""

    word: str


@dataclass(frozen=True)
class Fates:
    """What became of the lines of one spout task, by their positions in its share."""

    acks: bytes  # per line, how often it was acked
    failures: Counter[int]  # position → attempts that failed, and were replayed


class Lines(TextFiles):
    """TextFiles that keeps book of what became of each line, to be looked at afterwards."""

    def open(self, context: Context) -> None:
        """Open a book for this task's share: what a former life has settled was acked there."""
        super().open(context)
        self._acks = bytearray(b"\1" * context.committed)
        self._failures = Counter[int]()

    def ack(self, message_id: int) -> None:
        if message_id >= len(self._acks):
            self._acks.extend(bytes(message_id + 1 - len(self._acks)))
        self._acks[message_id] += 1

    def fail(self, message_id: int, failure: Failure) -> None:
        self._failures[message_id] += 1

    def result(self) -> Fates:
        """The book."""
        return Fates(bytes(self._acks), Counter(self._failures))


def split(line: Line) -> Iterator[Word]:
    """The words of a line. A blank line has none, and is acked all the same."""
    for word in line.text.split():
        yield Word(word)


class CountWords(Bolt[Word, None]):
    """How often each word came by."""

    def prepare(self, context: Context) -> None:
        self._counts = Counter[str]()

    def process(self, record: Word) -> None:
        self._counts[record.word] += 1

    def result(self) -> Counter[str]:
        """The counts of the words that belong to this task."""
        return self._counts


def make_topology(files: Iterable[str], lines: int) -> Topology:
    """The topology over `files`, which have `lines` lines: six tasks and an acker."""
    # A fiftieth of the text under way at once: a little text, too, is still there to be hurt.
    topology = Topology("demo", spout_pending=min(max(lines // 100, 64), 8_192))
    read = topology.spout("lines", Lines(*files, encoding="declared"), READERS)
    words = read.shuffle().bolt("split", split, parallelism=SPLITTERS)
    words.fields("word").bolt("count", CountWords, parallelism=COUNTERS)
    return topology
