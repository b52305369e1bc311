"""Shows the progress of a topology on standard error, and prints its output on standard output.

So `sunshower run … > words.txt` keeps only the lines of Stdout sinks. On a terminal the table stays
at the bottom and those lines scroll above it; elsewhere a plain line is printed every two seconds.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from sunshower.cli.formatting import Terminal, duration
from sunshower.texts import printable, write
from sunshower.topologies.graph import Graph

if TYPE_CHECKING:  # imported while Ray starts, as what the functions below import
    from sunshower.cli.display import Display
    from sunshower.runtime.events.metrics import Snapshot

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
            from sunshower.cli.health import current_problems

            figures = map(Text, display.figures(snapshot))
            bad = map(red, current_problems(snapshot))
            self._draw(Group(display.table(snapshot, title), *figures, *bad))
        else:
            for line in (*display.lines(snapshot), *display.figures(snapshot)):
                self.console.print(line, highlight=False, soft_wrap=True)

    def watch(self, graph: Graph, title: str) -> Callable[[Snapshot, float], None]:
        """Return a function that shows a snapshot of a run and the run's time in seconds."""
        from sunshower.cli.display import Display

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
