"""Serves the page with a new token, until a context or a run ends."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from sunshower.cli.cluster_options import RUNS_FOLDER
from sunshower.cli.formatting import echo, format_error
from sunshower.errors import ClusterError, SunshowerError

if TYPE_CHECKING:
    from sunshower.actors.run import RayRun
    from sunshower.cli.display import Screen
    from sunshower.cli.ui.source import TopologySource
    from sunshower.runtime.control.overview import Overview
    from sunshower.runtime.events.metrics import Snapshot
    from sunshower.runtime.inline import InlineTopology

_FRESH_S = 0.5  # how old what the page shows of a run in this process may be


def check_server() -> None:
    """Raise ConfigError if a package that serves the page is missing."""
    from sunshower.installed import check_packages

    check_packages("ui", "which serves the page", "starlette", "uvicorn")


@contextmanager
def opened_page(
    source: TopologySource,
    host: str = "127.0.0.1",
    port: int | None = None,
    folder: Path = RUNS_FOLDER,
) -> Iterator[list[str]]:
    """Serve the page with a new token; yields the lines that tell the user both. `folder`: of the
    runs of experiments."""
    from sunshower.cli.ui.application import ExperimentFolders, served_page
    from sunshower.runtime.garbage import rare_collections

    token = secrets.token_urlsafe(16)
    with (
        rare_collections(),
        served_page(source, token, host, port, ExperimentFolders(folder)) as url,
    ):
        yield [f"The page is at {url}", f"Its actions need this token: {token}"]


class RunPage:
    """The page of one run, which TopologySession calls. Its end closes the page."""

    def __init__(self, screen: Screen, stays: bool | None = None) -> None:
        """`stays`: whether it outlives the run; None: if the user sees it, on a terminal. Raises
        ConfigError if a package is missing."""
        check_server()
        self._screen = screen
        self._stays = screen.console.is_terminal if stays is None else stays
        self._stack = ExitStack()
        self._source: TopologySource | None = None
        self._overview: Overview | None = None  # of a run in this process: only its thread reads it
        self._overview_s = -inf
        self._lines: list[str] = []

    def look(self, run: RayRun, snapshot: Snapshot) -> None:
        """Open the page of a run on Ray, unless it is open."""
        if self._source is None:
            from sunshower.cli.profiles import recorded_profile
            from sunshower.cli.ui.source import RaySource

            find = partial(_find, run)
            self._open(RaySource(lambda: [run.topology], find, "drain", recorded_profile))

    def look_inline(self, run: InlineTopology, snapshot: Snapshot) -> None:
        """Open the page of a run in this process, and refresh what it shows."""
        if (now_s := time.monotonic()) >= self._overview_s + _FRESH_S:
            self._overview, self._overview_s = run.overview(), now_s
        if self._source is None:
            from sunshower.cli.ui.source import TopologySource

            self._open(TopologySource(lambda: [run.plan.graph.id], self._shown))

    def closing(self, run: RayRun | InlineTopology) -> None:
        """Take the last overview of a run that ends."""
        if self._source is None:
            return
        overviews: dict[str, Overview] = {}
        with suppress(SunshowerError):
            overview = run.overview()
            overviews[overview.plan.graph.id] = overview
        self._source.freeze(overviews)

    @property
    def is_staying(self) -> bool:
        return self._stays and self._source is not None

    def stay(self) -> None:
        """Serve until the user interrupts."""
        from sunshower.experiments.runner.interrupts import Interrupts

        with Interrupts() as interrupts:
            interrupts.defer()
            self._screen.say(f"The run has ended. {self._lines[0]} until Ctrl-C.")
            interrupts.wait_for_request()

    def __enter__(self) -> RunPage:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _open(self, source: TopologySource) -> None:
        self._source = source
        self._lines = self._stack.enter_context(opened_page(source))
        for line in self._lines if source.actions() else self._lines[:1]:
            self._screen.say(line)

    def _shown(self, name: str) -> Overview:
        if self._overview is None or name != self._overview.plan.graph.id:
            raise ClusterError(f"this page shows another topology, not {name!r}")
        return self._overview


@contextmanager
def staying(page: RunPage | None) -> Iterator[None]:
    """While entered, the run; then the page stays, if it shall. An error is printed before that,
    and typer.Exit is raised after it."""
    try:
        yield
    except SunshowerError as error:
        if page is None or not page.is_staying:
            raise
        echo(format_error(error), err=True)
        page.stay()
        raise typer.Exit(1) from error
    if page is not None and page.is_staying:
        page.stay()


def _find(run: RayRun, name: str) -> RayRun:
    if name != run.topology:
        raise ClusterError(f"this page shows {run.topology!r} alone, not {name!r}")
    return run
