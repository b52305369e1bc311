"""Serves the page with a new token, until a context or a run ends."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sunshower.cli.cluster_options import RUNS_FOLDER
from sunshower.errors import ClusterError

if TYPE_CHECKING:
    from sunshower.actors.run import RayRun
    from sunshower.cli.screen import Screen
    from sunshower.cli.ui.source import TopologySource
    from sunshower.runtime.events.metrics import Snapshot


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
    from sunshower.cli.ui.experiments import ExperimentFolders
    from sunshower.cli.ui.server import served_page
    from sunshower.runtime.garbage import rare_collections

    token = secrets.token_urlsafe(16)
    with (
        rare_collections(),
        served_page(source, token, host, port, ExperimentFolders(folder)) as url,
    ):
        yield [f"The page is at {url}", f"Its actions need this token: {token}"]


@contextmanager
def page_of_run(screen: Screen) -> Iterator[Callable[[RayRun, Snapshot], None]]:
    """Yields what TopologySession.run calls with each snapshot: the first call opens the page,
    which the end of this context closes."""
    check_server()
    from sunshower.cli.ui.source import RaySource

    with ExitStack() as stack:
        opened: list[RayRun] = []

        def look(run: RayRun, snapshot: Snapshot) -> None:  # noqa: ARG001
            if not opened:
                opened.append(run)
                source = RaySource(lambda: [run.topology], partial(_find, run), "drain")
                for line in stack.enter_context(opened_page(source)):
                    screen.say(line)

        yield look


def _find(run: RayRun, name: str) -> RayRun:
    if name != run.topology:
        raise ClusterError(f"this page shows {run.topology!r} alone, not {name!r}")
    return run
