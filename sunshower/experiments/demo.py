"""Compares the demo's counts and acks with the plain loop, and gives the verdict.

At least once means: no line is missing, and a word is over-counted at most by its occurrences in
attempts that failed and were replayed.
"""

from __future__ import annotations

import sysconfig
import time
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sunshower.errors import SourceError
from sunshower.experiments.checkers import CheckResult
from sunshower.experiments.outcome import Finding, Verdict
from sunshower.failures import Failure
from sunshower.runtime.cluster import Run
from sunshower.runtime.events.metrics import Snapshot
from sunshower.topologies.components import Bolt, Context
from sunshower.topologies.sources import Line, TextFiles
from sunshower.topologies.topology import Topology

# ---- topology ------------------------------------------------------------------------------------

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
        return self._counts


def make_topology(files: Iterable[str], lines: int) -> Topology:
    """Return the topology over `files`, which have `lines` lines: six tasks and an acker."""
    # At most a fiftieth of the text is pending, so that a short text still runs at the kill.
    topology = Topology("demo", spout_pending=min(max(lines // 100, 64), 8_192))
    read = topology.spout("lines", Lines(*files, encoding="declared"), READERS)
    words = read.shuffle().bolt("split", split, parallelism=SPLITTERS)
    words.fields("word").bolt("count", CountWords, parallelism=COUNTERS)
    return topology


# ---- nemesis -------------------------------------------------------------------------------------


class DemoNemesis:
    """Kills a worker process once, when a third of `lines` is acked."""

    def __init__(self, lines: int, say: Callable[[str], None]) -> None:
        self._lines = lines
        self._say = say
        self.killed_pid: int | None = None
        self._killed_s = 0.0

    def look(self, run: Run, snapshot: Snapshot) -> None:
        """Kill the process if it is time, and lines are still open."""
        acked = snapshot.component("lines").acked
        if self.killed_pid is None and self._lines / 3 <= acked < self._lines:
            target = run.plan.tasks_of("split")[0]
            self._killed_s = time.monotonic()
            self.killed_pid = run.kill_worker(target.worker)
            self._say(
                f"SIGKILL for {target.name}, process {self.killed_pid}, after {acked:,} lines"
            )

    def seconds_to_replay(self, snapshot: Snapshot) -> float | None:
        """Return the time from the kill to the first completed replay after it, or None."""
        replays = [task.first_replay_s for task in snapshot.tasks() if task.first_replay_s]
        seconds = min(replays, default=0.0) - self._killed_s
        return round(seconds, 3) if self.killed_pid is not None and seconds > 0 else None


# ---- corpus --------------------------------------------------------------------------------------


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


# ---- verdict -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """The figures of a demo run, as `--json` prints them."""

    lines: int  # in the files
    acked: int
    failed: int  # attempts
    replayed: int
    lost: int  # lines never acked
    undercounted: int  # words counted less often than they occur
    killed_pid: int | None
    seconds_to_replay: float | None  # from the kill to the first completed replay
    seconds: float  # from the moment when all actors had started
    verdict: Verdict


class TaskResults:
    """The results of the tasks of a demo run."""

    def __init__(self) -> None:
        self.lines: list[LineResults] = []
        self.counted = Counter[str]()

    def collect(self, run: Run) -> None:
        """Read the results while the workers still run."""
        self.lines = run.results("lines")
        for part in run.results("count"):
            self.counted.update(part)


def make_report(
    corpus: Corpus,
    results: TaskResults,
    snapshot: Snapshot,
    seconds: float,
    nemesis: DemoNemesis,
    *,
    fault_wanted: bool,
) -> tuple[Report, Finding]:
    """Compare a finished run, with its last snapshot and its duration, with the plain loop."""
    readers = len(results.lines)
    acks = [task.acks for task in results.lines]
    sizes = [corpus.share_size(index, readers) for index in range(readers)]
    under = corpus.words - results.counted  # word → how many of its occurrences are missing
    explained = corpus.words + replayed_words(corpus, results)
    counts = snapshot.component("lines")
    missing = lost(acks, sizes)
    finding = demo_finding(
        lost=missing,
        in_excess=acked_in_excess(acks, sizes),
        under=under,
        unexplained=results.counted - explained,
        replayed=counts.replayed,
        fault_wanted=fault_wanted,
        killed=nemesis.killed_pid is not None,
    )
    report = Report(
        lines=corpus.lines,
        acked=counts.acked,
        failed=counts.failed,
        replayed=counts.replayed,
        lost=missing,
        undercounted=len(under),
        killed_pid=nemesis.killed_pid,
        seconds_to_replay=nemesis.seconds_to_replay(snapshot),
        seconds=round(seconds, 3),
        verdict=finding.verdict,
    )
    return report, finding


def replayed_words(corpus: Corpus, results: TaskResults) -> Counter[str]:
    """Count the words of all failed attempts; reads those lines again."""
    words = Counter[str]()
    for index, task in enumerate(results.lines):
        for position, line in enumerate(corpus.share(index, len(results.lines))):
            if attempts := task.failures[position]:
                words.update(line.split() * attempts)
    return words


def lost(acks: Sequence[bytes], sizes: Sequence[int]) -> int:
    """Count the lines that were never acked. `sizes`: the number of lines of each spout task."""
    known = zip((task[:size] for task, size in zip(acks, sizes, strict=True)), sizes, strict=True)
    return sum(size - len(task) + task.count(0) for task, size in known)


def acked_in_excess(acks: Sequence[bytes], sizes: Sequence[int]) -> int:
    """Count the lines that were acked twice or do not exist."""
    return sum(
        len(task) - task.count(0) - task[:size].count(1)
        for task, size in zip(acks, sizes, strict=True)
    )


def demo_finding(
    *,
    lost: int,
    in_excess: int,
    under: Mapping[str, int],
    unexplained: Mapping[str, int],
    replayed: int,
    fault_wanted: bool,
    killed: bool,
) -> Finding:
    """Return the verdict with its reasons."""
    broken, unknown = [], []
    if lost:
        broken.append(f"{lost:,} lines were never acked")
    if in_excess:
        broken.append(f"{in_excess:,} lines were acked twice, or do not exist")
    if under:
        broken.append(f"{len(under):,} words are under-counted, such as {_example(under)}")
    if unexplained:
        broken.append(
            f"{len(unexplained):,} words are counted more often than replays explain, "
            f"such as {_example(unexplained)}"
        )
    if fault_wanted and not killed:
        unknown.append("all was done before anything could be killed: give it more text")
    elif fault_wanted and not replayed:
        unknown.append("the kill had no effect: no line had to be replayed")
    holds = "every line was processed, and no word is counted beyond what replays explain"
    return CheckResult(holds, broken, unknown).finding("at-least-once")


def _example(words: Mapping[str, int]) -> str:
    word, times = max(words.items(), key=lambda item: item[1])
    return f"{word!r} by {times:,}"
