"""Fixtures of all tests (local Ray, command line), Hypothesis profiles, and the order of tests."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from syrupy.assertion import SnapshotAssertion

from sunshower.cli import main
from sunshower.config import Config
from sunshower.runtime.garbage import collect_seldom
from tests import seeds

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster


pytest_plugins = ["tests.servers", "sunshower.testing.pytest_plugin"]

Sunshower = Callable[..., int]

# A Java process of a test runs for seconds, so its optimizing compiler costs more than it saves: a
# session of Spark and its first job take 22 s of processor time with it, and 12 s without.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# `tmp_path` is in memory if there is room: a commit to SQLite waits up to 0.5 s for a busy disk.
MEMORY, MEMORY_BYTES = Path("/dev/shm"), 2 << 30
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# No deadline: an example that is slow on a busy machine is no failure of the property.
settings.register_profile(
    "all",
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
# `make test` has the same few examples each time; `make test-all` looks for others.
settings.register_profile(
    "short", settings.get_profile("all"), max_examples=20, derandomize=True, database=None
)
# What a file with tests on a real Ray, Spark or server contains: a marker or a fixture.
OUTSIDE = re.compile(
    r"ray_cluster|every_store|mark\.(ray|spark|servers)|(?<=: )Command\b"
    r"|\b(gateway|place|releases): "
    r"|\b(kafka|zookeeper|redis|postgres)\w*: |\bstores\("
)


def pytest_configure(config: pytest.Config) -> None:
    """Set the number of examples and of seeds. Garbage is collected as rarely as in a worker.

    Without the long tests, as in `make test`, a property has few examples. Of the long seeds,
    those below the number of the option `--sunshower-seeds` are collected. The processes of the
    tests react to an interrupt also if a shell has started this one in the background.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    collect_seldom()
    settings.load_profile("short" if "not long" in config.option.markexpr else "all")
    seeds.collected_max = config.option.sunshower_seeds
    if config.option.one_by_one:
        Config.__init__.__kwdefaults__["generated_stages"] = False


def pytest_collection_finish() -> None:
    """Exclude the collected tests, which exist until the end, from garbage collections."""
    gc.freeze()


@pytest.fixture
def approved(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    """Equal to what was approved for this test, in the folder __snapshots__ beside it. After a
    wanted change, `pytest --snapshot-update` writes it; the diff shows what has changed."""
    return snapshot


@pytest.fixture
def sunshower() -> Sunshower:
    """Call it with a command of `sunshower`: it runs in this process, and returns its status."""

    def command(*arguments: object) -> int:
        with pytest.raises(SystemExit) as ended:
            main(list(map(str, arguments)))
        return int(ended.value.code or 0)

    return command


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """A Ray that is started once, for the first test that uses it. It shows its workers' output."""
    from sunshower.actors.cluster import RayCluster

    with RayCluster(quiet=False) as cluster:
        yield cluster


@cache
def uses_outside(file: Path) -> bool:
    """Whether tests of this file may need a real Ray, Spark or server."""
    return OUTSIDE.search(file.read_text(encoding="utf-8")) is not None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where only tests on Ray, Spark and servers are wanted, import no file without any: to
    collect all tests takes a process a minute."""
    is_outside = config.option.markexpr.startswith("(ray or spark or servers)")
    is_test = collection_path.match("test_*.py")
    return True if is_outside and is_test and not uses_outside(collection_path) else None


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
    """Sort the tests by what they need.

    A process has one session of Spark: tests that start their own session precede those that share
    one, and tests of one `place` follow each other. Tests in a browser come first, so that one
    process runs all of them, and does so while the others are busy.
    """
    kinds = {"browser": -1, "spark": 1, "ray": 2, "servers": 3}  # Spark on a cluster is both

    def kind(item: pytest.Item) -> str:
        return next(filter(item.get_closest_marker, kinds), "")

    def order(item: pytest.Item) -> tuple[int, str]:
        parameters = getattr(item, "callspec", None)
        place = parameters.params.get("place") if parameters else None
        return kinds.get(kind(item), 0), place if isinstance(place, str) else ""

    items.sort(key=order)
    for item in items:
        assert kind(item) not in ("spark", "ray", "servers") or uses_outside(item.path), (
            f"{item.nodeid}: add a word of its file to OUTSIDE in tests/conftest.py"
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--by-folder", action="store_true", help="how long each folder took")
    parser.addoption(
        "--one-by-one", action="store_true", help="stages without generated code, as the default"
    )


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """With `--by-folder`: print the rows of the table in docs/DEVELOPMENT.md.

    The time of collecting the tests is not included.
    """
    seconds: Counter[str] = Counter()
    if config.getoption("--by-folder"):
        for report in chain.from_iterable(terminalreporter.stats.values()):
            if isinstance(report, pytest.TestReport):
                seconds["/".join(report.nodeid.split("/")[:2])] += report.duration
    for folder, took in sorted(seconds.items()):
        terminalreporter.write_line(f"| `{folder}` | {took:.0f} s |")
