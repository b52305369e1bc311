"""From what the tasks tell at the end to a report: the counts against those of the plain loop."""

from __future__ import annotations

from collections import Counter

from sunshower.cli.session import Ended
from sunshower.demo.corpus import Corpus, pick
from sunshower.demo.nemesis import Nemesis
from sunshower.demo.topology import Fates
from sunshower.demo.verdict import (
    Report,
    acked_in_excess,
    judge,
    lost,
    under_counts,
    unexplained,
    words_in_replays,
)
from sunshower.faults.outcome import Finding
from sunshower.runtime.cluster import Run


class Harvest:
    """What the tasks of a run have to say before they go."""

    def __init__(self) -> None:
        self.fates: list[Fates] = []
        self.counted = Counter[str]()

    def gather(self, run: Run) -> None:
        """Ask them."""
        self.fates = run.results("lines")
        for part in run.results("count"):
            self.counted.update(part)


def examine(
    corpus: Corpus, harvest: Harvest, ended: Ended, nemesis: Nemesis, *, fault_wanted: bool
) -> tuple[Report, Finding]:
    """Compare a finished run with the plain loop."""
    readers = len(harvest.fates)
    acks = [fates.acks for fates in harvest.fates]
    sizes = [corpus.share_size(index, readers) for index in range(readers)]
    under = under_counts(corpus.words, harvest.counted)
    counts = ended.snapshot.component("lines")
    missing = lost(acks, sizes)
    finding = judge(
        lost=missing,
        in_excess=acked_in_excess(acks, sizes),
        under=under,
        unexplained=unexplained(corpus.words, harvest.counted, replayed_words(corpus, harvest)),
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
        seconds_to_replay=nemesis.seconds_to_replay(ended.snapshot),
        seconds=round(ended.seconds, 3),
        verdict=finding.verdict,
    )
    return report, finding


def replayed_words(corpus: Corpus, harvest: Harvest) -> Counter[str]:
    """Word → its occurrences in all attempts that failed; those lines are read once more."""
    words = Counter[str]()
    for index, fates in enumerate(harvest.fates):
        share = corpus.share(index, len(harvest.fates))
        words += words_in_replays(pick(share, fates.failures), fates.failures)
    return words
