"""What the demo shows at its end: the top words, the figures, and the verdict."""

from __future__ import annotations

from collections import Counter

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sunshower.cli.display import duration
from sunshower.demo.verdict import Report
from sunshower.faults.outcome import Finding, Verdict

_TOP = 10
_STYLES = {Verdict.HOLDS: "bold green", Verdict.UNKNOWN: "bold yellow", Verdict.BROKEN: "bold red"}


def render(
    report: Report, finding: Finding, counted: Counter[str], expected: Counter[str], taken: int
) -> RenderableType:
    """The whole closing page. `taken`: how many lines the spouts have taken in."""
    sides = Table.grid(padding=(0, 4))
    sides.add_row(_top_words(counted, expected), _figures(report, taken))
    verdict = Text.assemble(
        (f"{finding.verdict}: ", _STYLES[finding.verdict]), "; ".join(finding.reasons), "."
    )
    return Group("", sides, verdict)


def _top_words(counted: Counter[str], expected: Counter[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("top words", no_wrap=True)
    table.add_column("counted", justify="right")
    table.add_column("in files", justify="right")
    for word, times in counted.most_common(_TOP):
        table.add_row(Text(word), f"{times:,}", f"{expected[word]:,}")
    return table


def _figures(report: Report, taken: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("lines", no_wrap=True)
    table.add_column("", justify="right")
    table.add_row("in the files", f"{report.lines:,}")
    table.add_row("taken in", f"{taken:,}")
    table.add_row("acked", f"{report.acked:,}")
    table.add_row("failed, and replayed", f"{report.failed:,}, {report.replayed:,}")
    table.add_row("lost", f"{report.lost:,}")
    table.add_row("words under-counted", f"{report.undercounted:,}")
    if report.killed_pid is not None:
        table.add_row("killed process", str(report.killed_pid))
        replay_s = report.seconds_to_replay
        table.add_row(
            "first replay done after", "never" if replay_s is None else duration(replay_s)
        )
    table.add_row("time", duration(report.seconds))
    rate = report.lines / max(report.seconds, 1e-9)
    table.add_row("lines a second", f"{rate:,.0f}")
    return table
