"""The demo's topology in a plain loop, examined as if it had run on Ray."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from sunshower.cli.session import Ended
from sunshower.demo.corpus import Corpus
from sunshower.demo.examination import Harvest, examine
from sunshower.demo.nemesis import Nemesis
from sunshower.demo.report import render
from sunshower.demo.topology import Fates, Lines, make_topology
from sunshower.demo.verdict import Report
from sunshower.failures import Cause, Failure
from sunshower.faults.outcome import Verdict
from sunshower.runtime.inline import run_inline
from sunshower.topologies.components import Context

TEXT = ["to be or\nnot to be\n\nthat is\n", "the question\n"]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    for number, text in enumerate(TEXT):
        (tmp_path / f"{number}.txt").write_text(text)
    return Corpus.of([f"{tmp_path}/*.txt"])


def run(corpus: Corpus) -> tuple[Harvest, Ended]:
    finished = run_inline(make_topology(corpus.files, corpus.lines).graph())
    harvest = Harvest()
    harvest.fates = list(finished.results["lines"])
    for counts in finished.results["count"]:
        harvest.counted.update(counts)
    return harvest, Ended(finished.snapshot, 1.0, drained=False)


def report(corpus: Corpus, harvest: Harvest, ended: Ended) -> Report:
    nemesis = Nemesis(corpus.lines, print)
    return examine(corpus, harvest, ended, nemesis, fault_wanted=False)[0]


def test_an_undisturbed_run_holds(corpus: Corpus) -> None:
    harvest, ended = run(corpus)
    assert harvest.counted == corpus.words
    found = report(corpus, harvest, ended)
    assert (found.lines, found.acked, found.lost, found.undercounted) == (5, 5, 0, 0)
    assert found.verdict is Verdict.HOLDS


def test_the_report_has_the_promised_keys(corpus: Corpus) -> None:
    assert " ".join(report(corpus, *run(corpus)).as_dict()) == (
        "lines acked failed replayed lost undercounted killed_pid seconds_to_replay seconds verdict"
    )


def test_a_missing_line_breaks_it(corpus: Corpus) -> None:
    harvest, ended = run(corpus)
    harvest.fates[0] = replace(harvest.fates[0], acks=bytes([1, 1, 0, 1]))
    found = report(corpus, harvest, ended)
    assert (found.lost, found.verdict) == (1, Verdict.BROKEN)


def test_an_under_count_breaks_it(corpus: Corpus) -> None:
    harvest, ended = run(corpus)
    harvest.counted["question"] -= 1
    found = report(corpus, harvest, ended)
    assert (found.undercounted, found.verdict) == (1, Verdict.BROKEN)


def test_an_over_count_breaks_it_unless_a_replay_explains_it(corpus: Corpus) -> None:
    harvest, ended = run(corpus)
    harvest.counted["to"] += 2
    assert report(corpus, harvest, ended).verdict is Verdict.BROKEN
    once = Fates(harvest.fates[0].acks, Counter({0: 1}))  # "to be or" failed once, and no more
    harvest.fates[0] = once
    assert report(corpus, harvest, ended).verdict is Verdict.BROKEN
    harvest.fates[0] = replace(once, failures=Counter({0: 1, 1: 1}))
    assert report(corpus, harvest, ended).verdict is Verdict.HOLDS


def test_replays_are_looked_up_in_the_share_of_their_task(corpus: Corpus) -> None:
    harvest, ended = run(corpus)
    harvest.counted["question"] += 1
    harvest.fates[1] = replace(harvest.fates[1], failures=Counter({0: 1}))
    assert report(corpus, harvest, ended).verdict is Verdict.HOLDS


def test_the_spout_keeps_book_of_each_line(corpus: Corpus) -> None:
    spout = Lines(*corpus.files)
    spout.open(Context("demo", "lines", 1, 0, 1))
    failure = Failure(Cause.ACTOR_DIED)
    for position in (2, 0):
        spout.ack(position)
    spout.fail(1, failure)
    spout.fail(1, failure)
    spout.ack(1)
    assert spout.result() == Fates(bytes([1, 1, 1]), Counter({1: 2}))


def test_what_a_former_life_of_the_spout_has_settled_counts_as_acked(corpus: Corpus) -> None:
    spout = Lines(*corpus.files)
    spout.open(Context("demo", "lines", 1, 0, 1, committed=2))
    spout.ack(2)
    assert spout.result().acks == bytes([1, 1, 1])


def test_the_closing_page_shows_words_and_verdict(corpus: Corpus) -> None:
    harvest, ended = run(corpus)
    found, finding = examine(corpus, harvest, ended, Nemesis(5, print), fault_wanted=False)
    console = Console(width=80)
    with console.capture() as capture:
        console.print(render(found, finding, harvest.counted, corpus.words, 5))
    text = capture.get()
    assert "to " in text
    assert "lost" in text
    assert "HOLDS: every line was processed" in text
