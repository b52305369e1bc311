"""What all tests share: one local Ray for those that need a real one, and the command line."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from sunshower.cli import main
from sunshower.runtime.garbage import collect_seldom
from tests import seeds

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster


pytest_plugins = ["tests.servers", "sunshower.testing.pytest_plugin"]

Sunshower = Callable[..., int]

# The many Javas of tests live for seconds: the second compiler of each took half of all their work
# (a session of Spark and its first job: 22 s of processor time with it, 12 s without).
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# Properties are judged by what they say, not by how long a busy machine takes.
settings.register_profile(
    "all",
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile("short", settings.get_profile("all"), max_examples=20)


def pytest_configure(config: pytest.Config) -> None:
    """Without the long tests, as in `make test`, a property has few examples. More seeds than the
    option asks for are not even collected. Collections of garbage are as rare as in a worker."""
    collect_seldom()
    settings.load_profile("short" if "not long" in config.option.markexpr else "all")
    seeds.most = config.option.sunshower_seeds


def pytest_collection_finish() -> None:
    """The tests stay until the end: no collection of garbage looks at them again."""
    gc.freeze()


@pytest.fixture
def sunshower() -> Sunshower:
    """Run a command as `sunshower` does, in this process; returns its exit status."""

    def command(*arguments: object) -> int:
        with pytest.raises(SystemExit) as ended:
            main(list(map(str, arguments)))
        return int(ended.value.code or 0)

    return command


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """A Ray that is started once, for the first test that asks. What its workers print is heard."""
    from sunshower.actors.cluster import RayCluster

    with RayCluster(quiet=False) as cluster:
        yield cluster


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark each test that uses `ray_cluster`, so that `-m 'not ray'` leaves all of them out.

    And group the tests for `--dist loadgroup`: one process runs all tests on Spark, one all others
    on Ray. Of the rest, one process runs all of a file.
    """
    if "ray_cluster" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.ray)
    shared = filter(item.get_closest_marker, ("spark", "ray"))
    group = next(shared, item.nodeid.partition("::")[0])
    item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by what they need. A process has one session of Spark: tests that start their
    own precede those that share one, and those of one `place` follow each other. Tests in a browser
    come first, so that one process runs all of them, and does so while the others are busy."""
    kinds = {"browser": -1, "spark": 1, "ray": 2, "servers": 3}  # Spark on a cluster is both

    def kind(item: pytest.Item) -> str:
        return next(filter(item.get_closest_marker, kinds), "")

    def order(item: pytest.Item) -> tuple[int, str]:
        parameters = getattr(item, "callspec", None)
        found = parameters.params.get("place") if parameters else None
        return kinds.get(kind(item), 0), found if isinstance(found, str) else ""

    items.sort(key=order)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--by-folder", action="store_true", help="how long each folder took")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """With `--by-folder`: the rows of the table in docs/DEVELOPMENT.md, without collecting."""
    seconds: Counter[str] = Counter()
    if config.getoption("--by-folder"):
        for report in chain.from_iterable(terminalreporter.stats.values()):
            if isinstance(report, pytest.TestReport):
                seconds["/".join(report.nodeid.split("/")[:2])] += report.duration
    for folder, took in sorted(seconds.items()):
        terminalreporter.write_line(f"| `{folder}` | {took:.0f} s |")
