"""The packages that sunshower requires, with their installed and their tested versions."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from sunshower.errors import ConfigError

_ROOT = Path(__file__).resolve().parents[3]  # of the repository, if it runs from one


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
        """Whether an accepted version is installed."""
        have, wanted = self.installed, SpecifierSet(self.wanted)
        return have is not None and wanted.contains(have, prereleases=True)


def packages() -> list[Package]:
    """Return the packages of the core and of the users' extras, in declared order."""
    pins = _pins()
    return [
        Package(
            one.name,
            extra,
            str(one.specifier),
            _installed(one.name),
            pins.get(canonicalize_name(one.name)),
        )
        for one, extra in requirements()
        if one.name != "sunshower" and extra not in {"dev", "all"}
    ]


def install_command(extra: str | None) -> str:
    """Return the command that installs the core or an extra into this Python."""
    if extra and Path(sys.prefix) == _ROOT / ".venv":
        there = "" if Path.cwd() == _ROOT else f" -C {_ROOT}"
        return f"make{there} setup EXTRAS={extra}"
    python, name = _short(Path(sys.executable)), f"[{extra}]" if extra else ""
    if _in_repository():
        pins, folder = _short(_ROOT / "constraints.txt"), _short(_ROOT)
        return f"{python} -m pip install -c {pins} -e '{folder}{name}'"
    return f"{python} -m pip install 'path/to/the/clone{name}'"  # it is not on a package index


def check_packages(extra: str, purpose: str, *modules: str) -> None:
    """Raise ConfigError, with the install command, if a module of an extra is missing. `purpose`
    follows its name: `which serves the page`."""
    for module in modules:
        try:
            missing = importlib.util.find_spec(module) is None
        except ModuleNotFoundError:  # of a package that contains it
            missing = True
        if missing:
            raise ConfigError(f"{module}, {purpose}, is missing: {install_command(extra)}")


def requirements() -> Iterator[tuple[Requirement, str | None]]:
    """Each requirement and its extra, from pyproject.toml or else from the installed package."""
    if _in_repository():
        project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for extra, wanted in {
            None: project["dependencies"],
            **project["optional-dependencies"],
        }.items():
            yield from ((Requirement(one), extra) for one in wanted)
        return
    found = metadata.metadata("sunshower")
    extras = found.get_all("Provides-Extra", [])
    for one in map(Requirement, found.get_all("Requires-Dist", [])):
        marker = one.marker
        yield (
            one,
            next((extra for extra in extras if marker and marker.evaluate({"extra": extra})), None),
        )


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _pins() -> dict[str, str]:
    if not _in_repository():
        return {}
    lines = (_ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def _in_repository() -> bool:
    return (_ROOT / "constraints.txt").is_file() and (_ROOT / "pyproject.toml").is_file()


def _short(path: Path) -> str:
    """Return the path relative to the current folder, if it is below."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
