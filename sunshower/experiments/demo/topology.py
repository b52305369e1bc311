"""The demo's topology: reads lines of text files, splits them into words, counts the words."""

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
class LineResults:
    """The acks and failures of one spout task's lines, by their positions in its share."""

    acks: bytes  # for each line, how often it was acked
    failures: Counter[int]  # position → attempts that failed and were replayed


class Lines(TextFiles):
    """TextFiles that records the acks and failures of each line."""

    def open(self, context: Context) -> None:
        """Start the records. Lines settled before a restart of the task count as acked once."""
        super().open(context)
        self._acks = bytearray(b"\1" * context.committed)
        self._failures = Counter[int]()

    def ack(self, message_id: int) -> None:
        if message_id >= len(self._acks):
            self._acks.extend(bytes(message_id + 1 - len(self._acks)))
        self._acks[message_id] += 1

    def fail(self, message_id: int, failure: Failure) -> None:
        self._failures[message_id] += 1

    def result(self) -> LineResults:
        """Return the records."""
        return LineResults(bytes(self._acks), Counter(self._failures))


def split(line: Line) -> Iterator[Word]:
    """Yield the words of a line. A blank line has none, and is acked, too."""
    for word in line.text.split():
        yield Word(word)


class CountWords(Bolt[Word, None]):
    """Counts each word."""

    def prepare(self, context: Context) -> None:
        self._counts = Counter[str]()

    def process(self, record: Word) -> None:
        self._counts[record.word] += 1

    def result(self) -> Counter[str]:
        """Return the counts of this task's words."""
        return self._counts


def make_topology(files: Iterable[str], lines: int) -> Topology:
    """Return the topology over `files`, which have `lines` lines: six tasks and an acker."""
    # At most a fiftieth of the text is pending, so that a short text still runs at the kill.
    topology = Topology("demo", spout_pending=min(max(lines // 100, 64), 8_192))
    read = topology.spout("lines", Lines(*files, encoding="declared"), READERS)
    words = read.shuffle().bolt("split", split, parallelism=SPLITTERS)
    words.fields("word").bolt("count", CountWords, parallelism=COUNTERS)
    return topology
