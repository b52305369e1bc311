"""Shows the progress of a topology: a table for a terminal, lines for a file, the summary."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isnan
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sunshower.cli.formatting import Terminal, duration, number_of
from sunshower.cli.health import (
    WaitNews,
    current_problems,
    dead_letter_lines,
    expired_lines,
    late_lines,
    problems,
    quarantine_line,
)
from sunshower.cli.statistics import Row, add_row, batch_line, done_by, numbers_table
from sunshower.runtime.events.metrics import Counts, LatencyKind, Snapshot
from sunshower.texts import printable, write
from sunshower.topologies.graph import Graph, is_internal
from sunshower.trident.coordination.attempts import SUCCESS, batch_group_of

_COLUMNS = ("emitted", "acked", "failed", "replayed", "pending", "per s", "p50", "p99")
_WINDOW_S = 3.0  # rates are averages over this time


@dataclass(frozen=True)
class RunResult:
    """The end of a run."""

    snapshot: Snapshot  # the last one
    seconds: float  # from the start of the last worker
    drained: bool  # the user ended it before the spouts were exhausted


class Rates:
    """Computes how many records each component processes in a second."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Mapping[str, int]]] = deque()

    def see(self, now: float, done: Mapping[str, int]) -> None:
        """Add what each component has done until `now` (seconds on a monotonic clock)."""
        self._seen.append((now, done))
        while now - self._seen[0][0] > _WINDOW_S and len(self._seen) > 2:
            self._seen.popleft()

    def of(self, component: str) -> float:
        """Return records a second; 0 before the second snapshot."""
        if len(self._seen) < 2:
            return 0.0
        (start_s, before), (end_s, after) = self._seen[0], self._seen[-1]
        done = after.get(component, 0) - before.get(component, 0)
        return max(done, 0) / max(end_s - start_s, 1e-9)


class Display:
    """Formats the snapshots of one run."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._rates = Rates()
        self._waits = WaitNews()
        self._quarantined: set[int] = set()  # tasks whose quarantine was reported

    def see(self, snapshot: Snapshot, now: float) -> None:
        components = self._graph.components.items()
        done = {id: done_by(each, snapshot.component(id), self._graph) for id, each in components}
        self._rates.see(now, done)

    def table(
        self,
        snapshot: Snapshot,
        title: str,
        *,
        average_s: float | None = None,
        internals: bool = False,
    ) -> Table:
        """Return one row for each component, with current rates or averages over `average_s`;
        `internals`: with the coordinators of batches."""
        table = numbers_table("component", _COLUMNS, title)
        for component in self._graph.components.values():
            if is_internal(component.id) and not internals:
                continue
            counts = snapshot.component(component.id)
            done = done_by(component, counts, self._graph)
            rate = done / max(average_s, 1e-9) if average_s else self._rates.of(component.id)
            latencies = {LatencyKind.COMPLETE: snapshot.latencies(component.id)}
            row = Row(component.level.is_spout, counts, latencies, rate)
            style = "bold" if counts.failed else None
            add_row(table, f"{component.id} × {component.parallelism}", _COLUMNS, row, style)
        return table

    def lines(self, snapshot: Snapshot) -> Iterator[str]:
        """Yield one line for each spout, for output without a terminal."""
        for spout in self._graph.spouts:
            counts, rate = snapshot.component(spout.id), self._rates.of(spout.id)
            if not self._graph.config.tracked:
                yield f"{spout.id}: {counts.emitted:,} emitted, {rate:,.0f}/s, untracked"
                continue
            line = f"{spout.id}: {counts.acked:,} acked, {counts.failed:,} failed"
            causes = ", ".join(f"{cause} {count:,}" for cause, count in counts.causes.items())
            line += f" ({causes}), " if causes else ", "
            line += f"{counts.replayed:,} replayed, " if counts.replayed else ""
            line += f"{number_of(counts.dead, 'dead letter')}, " if counts.dead else ""
            line += f"{rate:,.0f}/s, pending {counts.pending:,}"
            slow_s = snapshot.latencies(spout.id).percentile(99)
            yield line + (f", p99 {duration(slow_s)}" if slow_s is not None else "")

    def figures(self, snapshot: Snapshot) -> Iterator[str]:
        """Yield a line for each component with figures of its own: the first one, and the others
        that are not 0; for a batch group, the state of its batches."""
        for id in self._graph.components:
            of_component = snapshot.figures(id)
            if of_component and (group := batch_group_of(id)) is not None:
                yield batch_line(group, of_component, snapshot)
                continue
            sums = [(name, n) for name, n in of_component.items() if "/" not in name]
            shown = [f"{name} {_figure(n)}" for at, (name, n) in enumerate(sums) if n or not at]
            if shown:
                yield f"{id}: {', '.join(shown)}"

    def news(self, snapshot: Snapshot, now: float) -> Iterator[str]:
        """Yield a line for each task that was quarantined since the last call, and for each
        component that began or ceased to wait for a dependency. `now`: as for `see`."""
        yield from self._waits.see(snapshot, now)
        self._quarantined &= snapshot.degraded.keys()  # a task may be quarantined again
        for task, error in snapshot.degraded.items():
            if task not in self._quarantined:
                self._quarantined.add(task)
                yield quarantine_line(error)


def summary(graph: Graph, result: RunResult) -> Group:
    """Return the totals of a run: a table with average rates, and a sentence."""
    snapshot = result.snapshot
    title = f"{graph.id}  ·  totals"
    table = Display(graph).table(snapshot, title, average_s=result.seconds)
    red = [Text(line, style="red") for line in problems(snapshot)]
    causes = spout_counts(graph, snapshot).causes.items()
    lines = [
        sentence(graph, result),
        *(f"failed, {cause}: {n:,}" for cause, n in sorted(causes, key=lambda pair: -pair[1])),
        *dead_letter_lines(graph, snapshot),
        *expired_lines(graph, snapshot),
        *late_lines(graph, snapshot),
    ]
    return Group(table, *red, Text("\n  ".join(lines)))


def sentence(graph: Graph, result: RunResult) -> str:
    """Summarize a run: `Finished after 12 s: 858,233 tuples taken in, all of them acked`, or of
    exactly-once batches `Finished after 12 s: 40 batches committed`."""
    each = {spout.id: result.snapshot.component(spout.id) for spout in graph.spouts}
    coordinators = [each.pop(id) for id in [*each] if is_internal(id)]
    parts = _done_by_spouts(graph, Counts.sum_of(each.values())) if each else []
    if coordinators:
        of_batches = Counts.sum_of(coordinators)
        committed = of_batches.emitted_to.get(SUCCESS, 0)
        parts.append(f"{number_of(committed, 'batch', 'batches')} committed")
        if of_batches.failed:
            parts.append(f"{number_of(of_batches.failed, 'attempt')} of batches failed on the way")
    verb = "Drained" if result.drained else "Finished"
    return f"{verb} after {duration(result.seconds)}: {', '.join(parts)}."


def _done_by_spouts(graph: Graph, counts: Counts) -> list[str]:
    taken = counts.emitted - counts.replayed
    parts = [f"{number_of(taken, 'tuple')} taken in"]
    if graph.config.tracked:
        acked = counts.acked - counts.dead
        parts.append("all of them acked" if acked == taken else f"{acked:,} acked")
        if counts.dead:
            parts.append(f"{counts.dead:,} among the dead letters")
        if counts.failed:
            parts.append(f"{counts.failed:,} failed on the way, {counts.replayed:,} replayed")
    else:
        parts.append("untracked: it is unknown whether they arrived")
    return parts


def taken_in(graph: Graph, snapshot: Snapshot) -> int:
    """Return how many tuples the spouts have emitted, replays not counted."""
    counts = spout_counts(graph, snapshot)
    return counts.emitted - counts.replayed


def spout_counts(graph: Graph, snapshot: Snapshot) -> Counts:
    """Return the sum over all spouts."""
    return Counts.sum_of(snapshot.component(spout.id) for spout in graph.spouts)


def _figure(value: float) -> str:
    return "unknown" if isnan(value) else f"{value:,.6g}"


# ---- on a screen ---------------------------------------------------------------------------------

# The progress is on standard error, so `sunshower run … > words.txt` keeps only the lines of Stdout
# sinks. On a terminal the table stays at the bottom and those lines scroll above it; elsewhere a
# plain line is printed every two seconds.

_LINE_EVERY_S = 2.0
_DRAW_EVERY_S = 0.25  # as often as workers report


def red(line: str) -> Text:
    """Return a red line without markup."""
    return Text(printable(line), style="red")


class Screen:
    """A context manager. `print_output` may be called on any thread, the rest on one."""

    def __init__(self, *, console: Console | None = None) -> None:
        self.console = console or Terminal(stderr=True)
        self.closed = threading.Event()  # standard output is a closed pipe
        # Asked now: while Live redirects it, standard output is no terminal for Rich 13.5.
        self._prints_to_terminal = sys.stdout.isatty()
        self._live = Live(
            console=self.console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=self._prints_to_terminal,
            redirect_stderr=self.console.is_terminal,
        )
        self._due_s: float | None = None  # when the next table or line is

    def show(self, display: Display, snapshot: Snapshot, title: str) -> None:
        """Show a snapshot if it is time: the table on a terminal, else lines."""
        now = time.monotonic()
        every_s = _DRAW_EVERY_S if self.console.is_terminal else _LINE_EVERY_S
        if self._due_s is None:
            self._due_s = now if self.console.is_terminal else now + every_s
        if now < self._due_s:
            return
        self._due_s = now + every_s
        if self.console.is_terminal:
            figures = map(Text, display.figures(snapshot))
            bad = map(red, current_problems(snapshot))
            self._draw(Group(display.table(snapshot, title), *figures, *bad))
        else:
            for line in (*display.lines(snapshot), *display.figures(snapshot)):
                self.console.print(line, highlight=False, soft_wrap=True)

    def watch(self, graph: Graph, title: str) -> Callable[[Snapshot, float], None]:
        """Return a function that shows a snapshot of a run and the run's time in seconds."""
        display = Display(graph)

        def look(snapshot: Snapshot, now_s: float) -> None:
            display.see(snapshot, time.monotonic())
            self.show(display, snapshot, f"{title}  ·  {duration(now_s)}")

        return look

    def say(self, text: str | Text) -> None:
        """Print a line that stays."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def doing(self, text: str) -> None:
        """Show the current activity until the next `show`."""
        if self.console.is_terminal:
            self._draw(Text(text, style="dim"))
        else:
            self.say(text)

    def print_output(self, pid: int, is_error: bool, lines: list[str]) -> None:
        """Print the output of a worker; called by WorkerOutput."""
        if is_error:
            for line in lines:
                self.console.print(f"worker {pid}: {line}", highlight=False, soft_wrap=True)
        elif self._prints_to_terminal and self.console.is_terminal:
            self.console.out("\n".join(lines), highlight=False)
        elif not self.closed.is_set():
            try:
                write(sys.stdout, "\n".join([*lines, ""]))
            except OSError:  # as in `sunshower run … | head`
                self.closed.set()

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.console.is_terminal:
            with contextlib.suppress(OSError):
                self._live.stop()

    def _draw(self, what: RenderableType) -> None:
        self._live.update(Group(what), refresh=True)
