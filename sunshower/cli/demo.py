"""`sunshower demo`: runs the demo experiment, and prints its figures and its verdict."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sunshower.cli.formatting import Terminal, duration, echo_json, new_table
from sunshower.cli.program_options import INTERRUPTED, AsJson, Stays, WithPage
from sunshower.record_loops import compiled

if TYPE_CHECKING:
    from sunshower.experiments.demo import Report
    from sunshower.experiments.outcome import Finding

_TOP_WORDS = 10

Files = Annotated[
    list[str] | None,
    typer.Option(
        "--files",
        metavar="GLOB",
        help="Text to count instead of the standard library. May be repeated.",
    ),
]
Fault = Annotated[bool, typer.Option("--fault/--no-fault", help="Whether to kill a worker.")]


def demo(
    files: Files = None,
    fault: Fault = True,
    as_json: AsJson = False,
    with_page: WithPage = False,
    stays: Stays = None,
) -> None:
    """Count words on Ray, kill a worker during the run, and check that no line is missing.

    The text is the standard library of the running Python. Every task has its own process; after a
    third of the text, one of the two `split` processes is killed with SIGKILL. At the end the
    counts are compared with those of a plain loop. The exit status is 0 only if the verdict is
    HOLDS: no line is missing, and words are counted twice only in replayed lines.
    """
    from sunshower.cli.display import Screen, taken_in
    from sunshower.cli.session import TopologySession
    from sunshower.cli.ui.page import RunPage, staying
    from sunshower.experiments.demo import (
        Corpus,
        DemoNemesis,
        TaskResults,
        make_report,
        make_topology,
        standard_library,
    )
    from sunshower.experiments.outcome import Verdict
    from sunshower.runtime.plan import Layout

    screen = Screen()
    whose = "your files" if files else "the standard library"
    screen.say(f"Counting the words of {whose} in a plain loop, to compare with …")
    corpus = Corpus.of(files or standard_library())
    screen.say(
        f"{corpus.lines:,} lines in {len(corpus.files):,} files, "
        f"{corpus.words.total():,} words. Now the same on Ray, "
        f"{'with' if compiled else 'without'} the compiled core."
    )
    for path, reason in corpus.skipped.items():
        screen.say(f"Left out, because it cannot be decoded: {path} ({reason})")

    nemesis, results = DemoNemesis(corpus.lines, screen.say), TaskResults()
    graph = make_topology(corpus.files, corpus.lines).graph()
    look = nemesis.look if fault else None
    with RunPage(screen, stays) if with_page else nullcontext() as page, staying(page):
        session = TopologySession(screen)
        run = session.run(graph, Layout.ISOLATE, look=look, ended=results.collect, page=page)
        if run.drained:
            screen.say("Interrupted: there is no verdict about lines that were not read.")
            raise typer.Exit(INTERRUPTED)
        report, finding = make_report(
            corpus, results, run.snapshot, run.seconds, nemesis, fault_wanted=fault
        )
        if as_json:
            echo_json(asdict(report))
            screen.say(f"{finding.verdict}: {'; '.join(finding.reasons)}.")
        else:
            taken = taken_in(graph, run.snapshot)
            Terminal().print(render(report, finding, results.counted, corpus.words, taken))
    raise typer.Exit(finding.verdict is not Verdict.HOLDS)


def render(
    report: Report, finding: Finding, counted: Counter[str], expected: Counter[str], taken: int
) -> RenderableType:
    """Return the closing page. `taken`: how many lines the spouts have taken in."""
    from sunshower.cli.experiment import VERDICT_STYLES

    sides = Table.grid(padding=(0, 4))
    sides.add_row(_top_words(counted, expected), _figures(report, taken))
    verdict = Text.assemble(
        (f"{finding.verdict}: ", VERDICT_STYLES[finding.verdict]), "; ".join(finding.reasons), "."
    )
    return Group("", sides, verdict)


def _top_words(counted: Counter[str], expected: Counter[str]) -> Table:
    table = new_table("top words", numbers=("counted", "in files"))
    for word, times in counted.most_common(_TOP_WORDS):
        table.add_row(Text(word), f"{times:,}", f"{expected[word]:,}")
    return table


def _figures(report: Report, taken: int) -> Table:
    table = new_table("lines", numbers=("",))
    table.add_row("in the files", f"{report.lines:,}")
    table.add_row("taken in", f"{taken:,}")
    table.add_row("acked", f"{report.acked:,}")
    table.add_row("failed, and replayed", f"{report.failed:,}, {report.replayed:,}")
    table.add_row("lost", f"{report.lost:,}")
    table.add_row("words under-counted", f"{report.undercounted:,}")
    if report.killed_pid is not None:
        table.add_row("killed process", str(report.killed_pid))
        replay_s = report.seconds_to_replay
        after = "never" if replay_s is None else duration(replay_s)
        table.add_row("first replay done after", after)
    table.add_row("time", duration(report.seconds))
    table.add_row("lines a second", f"{report.lines / max(report.seconds, 1e-9):,.0f}")
    return table
