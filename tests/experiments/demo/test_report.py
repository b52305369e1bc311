"""Tests of the demo's report, with its topology run in this process."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from rich.console import Console

from sunshower.cli.demo import render
from sunshower.experiments.demo import (
    Corpus,
    DemoNemesis,
    LineResults,
    Lines,
    Report,
    TaskResults,
    make_report,
    make_topology,
)
from sunshower.experiments.outcome import Verdict
from sunshower.failures import Cause, Failure
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.inline import run_inline
from sunshower.topologies.components import Context

TEXT = ["to be or\nnot to be\n\nthat is\n", "the question\n"]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    for number, text in enumerate(TEXT):
        (tmp_path / f"{number}.txt").write_text(text)
    return Corpus.of([f"{tmp_path}/*.txt"])


def run(corpus: Corpus) -> tuple[TaskResults, Snapshot]:
    finished = run_inline(make_topology(corpus.files, corpus.lines).graph())
    results = TaskResults()
    results.lines = list(finished.results["lines"])
    for counts in finished.results["count"]:
        results.counted.update(counts)
    return results, finished.snapshot


def report(
    corpus: Corpus, results: TaskResults, snapshot: Snapshot, killed_pid: int | None = None
) -> Report:
    nemesis = DemoNemesis(corpus.lines, print)
    nemesis.killed_pid = killed_pid
    wanted = killed_pid is not None
    return make_report(corpus, results, snapshot, 1.0, nemesis, fault_wanted=wanted)[0]


def test_an_undisturbed_run_holds(corpus: Corpus) -> None:
    results, snapshot = run(corpus)
    assert results.counted == corpus.words
    summary = report(corpus, results, snapshot)
    assert (summary.lines, summary.acked, summary.lost, summary.undercounted) == (5, 5, 0, 0)
    assert summary.verdict is Verdict.HOLDS


def test_the_report_has_the_documented_keys(corpus: Corpus) -> None:
    assert " ".join(asdict(report(corpus, *run(corpus)))) == (
        "lines acked failed replayed lost undercounted killed_pid seconds_to_replay seconds verdict"
    )


def test_a_missing_line_and_an_under_count_are_broken(corpus: Corpus) -> None:
    results, snapshot = run(corpus)
    results.lines[0] = replace(results.lines[0], acks=bytes([1, 1, 0, 1]))
    results.counted["question"] -= 1
    summary = report(corpus, results, snapshot)
    assert (summary.lost, summary.undercounted, summary.verdict) == (1, 1, Verdict.BROKEN)


@pytest.mark.parametrize(
    ("acks", "lost", "verdict"),
    [
        (b"\1\1\1\1", 0, Verdict.HOLDS),
        (b"\1\1", 2, Verdict.BROKEN),  # beyond the records
        (b"\1\0\1\1\1", 1, Verdict.BROKEN),  # a line that does not exist hides no lost one
        (b"\1\2\1\1", 0, Verdict.BROKEN),
    ],
)
def test_lines_that_were_never_acked_or_too_often_are_broken(
    corpus: Corpus, acks: bytes, lost: int, verdict: Verdict
) -> None:
    results, snapshot = run(corpus)
    results.lines[0] = replace(results.lines[0], acks=acks)
    judged = report(corpus, results, snapshot)
    assert (judged.lost, judged.verdict) == (lost, verdict)


def test_a_kill_without_a_replay_proves_nothing(corpus: Corpus) -> None:
    results, snapshot = run(corpus)
    assert report(corpus, results, snapshot, killed_pid=7).verdict is Verdict.UNKNOWN


def test_an_over_count_is_broken_unless_a_replay_explains_it(corpus: Corpus) -> None:
    results, snapshot = run(corpus)
    results.counted["to"] += 2
    assert report(corpus, results, snapshot).verdict is Verdict.BROKEN
    once = LineResults(
        results.lines[0].acks, Counter({0: 1})
    )  # "to be or" failed once, and no more
    results.lines[0] = once
    assert report(corpus, results, snapshot).verdict is Verdict.BROKEN
    for failures in ({0: 1, 1: 1}, {0: 2}):  # each attempt explains one more
        results.lines[0] = replace(once, failures=Counter(failures))
        assert report(corpus, results, snapshot).verdict is Verdict.HOLDS


def test_replays_are_looked_up_in_the_share_of_their_task(corpus: Corpus) -> None:
    results, snapshot = run(corpus)
    results.counted["question"] += 1
    results.lines[1] = replace(results.lines[1], failures=Counter({0: 1}))
    assert report(corpus, results, snapshot).verdict is Verdict.HOLDS


def test_the_spout_records_each_line(corpus: Corpus) -> None:
    spout = Lines(*corpus.files)
    spout.open(Context("demo", "lines", 1, 0, 1))
    failure = Failure(Cause.ACTOR_DIED)
    for position in (2, 0):
        spout.ack(position)
    spout.fail(1, failure)
    spout.fail(1, failure)
    spout.ack(1)
    assert spout.result() == LineResults(bytes([1, 1, 1]), Counter({1: 2}))


def test_lines_settled_before_a_restart_count_as_acked(corpus: Corpus) -> None:
    spout = Lines(*corpus.files)
    spout.open(Context("demo", "lines", 1, 0, 1, committed=2))
    spout.ack(2)
    assert spout.result().acks == bytes([1, 1, 1])


def test_the_closing_page_shows_words_and_verdict(corpus: Corpus) -> None:
    results, snapshot = run(corpus)
    summary, finding = make_report(
        corpus, results, snapshot, 1.0, DemoNemesis(5, print), fault_wanted=False
    )
    console = Console(width=80)
    with console.capture() as capture:
        console.print(render(summary, finding, results.counted, corpus.words, 5))
    text = capture.get()
    assert "to " in text
    assert "lost" in text
    assert "HOLDS: every line was processed" in text
