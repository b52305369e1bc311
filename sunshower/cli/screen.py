"""Where a topology is shown: progress on standard error, what sinks print on standard output.

So `sunshower run … > words.txt` keeps the lines of Stdout sinks and nothing else. On a terminal the
table stays at the bottom and those lines scroll by above it; elsewhere a plain line comes now and
then.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from sunshower.cli.display import Display
from sunshower.cli.troubles import present_troubles
from sunshower.runtime.metrics import Snapshot

_LINE_EVERY_S = 2.0
_DRAW_EVERY_S = 0.25  # workers tell how they stand as often


def bad_news(line: str) -> Text:
    """A line that is to be seen, word for word."""
    return Text(line, style="red")


class Screen:
    """Use it as a context manager. `hear` may be called on any thread, the rest on one."""

    def __init__(self, *, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.closed = threading.Event()  # nobody reads standard output any more
        self._live = Live(
            console=self.console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=self.console.is_terminal,
        )
        self._due_s: float | None = None  # when the next table or line is

    @property
    def is_live(self) -> bool:
        """Whether there is a terminal to draw on."""
        return self.console.is_terminal

    def show(self, display: Display, snapshot: Snapshot, title: str) -> None:
        """Show how things stand: the table on a terminal, else the lines when it is time."""
        now = time.monotonic()
        every_s = _DRAW_EVERY_S if self.is_live else _LINE_EVERY_S
        if self._due_s is None:
            self._due_s = now if self.is_live else now + every_s
        if now < self._due_s:
            return
        self._due_s = now + every_s
        if self.is_live:
            figures = map(Text, display.figures(snapshot))
            bad = map(bad_news, present_troubles(snapshot))
            self._draw(Group(display.table(snapshot, title), *figures, *bad))
        else:
            for line in (*display.lines(snapshot), *display.figures(snapshot)):
                self.console.print(line, highlight=False, soft_wrap=True)

    def say(self, text: str | Text) -> None:
        """Tell news: a line that stays. Markup is understood."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def doing(self, text: str) -> None:
        """Tell what is going on until the next `show`: it takes a moment."""
        if self.is_live:
            self._draw(Text(text, style="dim"))
        else:
            self.say(text)

    def hear(self, pid: int, is_error: bool, lines: list[str]) -> None:
        """What a worker has printed. The form is that of WorkerOutput."""
        if is_error:
            for line in lines:
                self.console.print(Text(f"worker {pid}: {line}"), soft_wrap=True)
        elif sys.stdout.isatty() and self.is_live:
            self.console.out("\n".join(lines), highlight=False)
        elif not self.closed.is_set():
            try:
                sys.stdout.write("\n".join([*lines, ""]))
                sys.stdout.flush()
            except OSError:  # as in `sunshower run … | head`
                self.closed.set()

    def __enter__(self) -> Self:
        if self.is_live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.is_live:
            with contextlib.suppress(OSError):
                self._live.stop()

    def _draw(self, what: RenderableType) -> None:
        self._live.update(Group(what), refresh=True)
