"""Compares the demo's counts and acks with the plain loop, and gives the verdict.

At least once means: no line is missing, and a word is over-counted at most by its occurrences in
attempts that failed and were replayed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sunshower.experiments.checkers.checker import CheckResult
from sunshower.experiments.demo.corpus import Corpus
from sunshower.experiments.demo.nemesis import DemoNemesis
from sunshower.experiments.demo.topology import LineResults
from sunshower.experiments.evidence.outcome import Finding, Verdict
from sunshower.runtime.cluster import Run
from sunshower.runtime.events.metrics import Snapshot


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
