"""`sunshower demo`: the command, from reading the text to the verdict."""

from __future__ import annotations

import json
from typing import Annotated

import typer

INTERRUPTED = 130  # as shells have it: 128 + SIGINT

Files = Annotated[
    list[str] | None,
    typer.Option(
        "--files",
        metavar="GLOB",
        show_default=False,
        help="Text to count instead of the standard library; may be repeated.",
    ),
]
Fault = Annotated[bool, typer.Option("--fault/--no-fault", help="Kill an actor, or leave them be.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")]


def demo(files: Files = None, fault: Fault = True, as_json: AsJson = False) -> None:
    """Count words on Ray, kill an actor in the middle, and prove that no line is missing.

    The text is the standard library of the running Python. Every task has a process of its own; a
    third of the way through one of the two `split` processes is killed with SIGKILL. At the end the
    counts are compared with those of a plain loop. The exit status is 0 only when the verdict is
    HOLDS: no line missing, and no word over-counted beyond its occurrences in replayed attempts.
    """
    from rich.console import Console
    from rich.markup import escape

    from sunshower.cli.screen import Screen
    from sunshower.cli.session import Session
    from sunshower.cli.summary import taken_in
    from sunshower.demo.corpus import Corpus, standard_library
    from sunshower.demo.examination import Harvest, examine
    from sunshower.demo.nemesis import Nemesis
    from sunshower.demo.report import render
    from sunshower.demo.topology import make_topology
    from sunshower.faults.outcome import Verdict
    from sunshower.runtime.plan import Layout

    screen = Screen()
    whose = "your files" if files else "the standard library"
    screen.say(f"Counting the words of {whose} in a plain loop, to compare with …")
    corpus = Corpus.of(files or standard_library())
    screen.say(
        f"{corpus.lines:,} lines in {len(corpus.files):,} files, "
        f"{corpus.words.total():,} words. Now the same on Ray."
    )
    for path, reason in corpus.skipped.items():
        screen.say(escape(f"Left out, for it cannot be decoded: {path} ({reason})"))

    nemesis, harvest = Nemesis(corpus.lines, screen.say), Harvest()
    graph = make_topology(corpus.files, corpus.lines).graph()
    look = nemesis.look if fault else None
    ended = Session(screen).run(graph, Layout.ISOLATE, look=look, ended=harvest.gather)
    if ended.drained:
        screen.say("Interrupted: of the lines that were not read nothing can be said.")
        raise typer.Exit(INTERRUPTED)
    report, finding = examine(corpus, harvest, ended, nemesis, fault_wanted=fault)
    if as_json:
        typer.echo(json.dumps(report.as_dict()))
        screen.say(f"{finding.verdict}: {'; '.join(finding.reasons)}.")
    else:
        taken = taken_in(graph, ended.snapshot)
        Console().print(render(report, finding, harvest.counted, corpus.words, taken))
    raise typer.Exit(finding.verdict is not Verdict.HOLDS)
