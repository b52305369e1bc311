"""The packages that sunshower requires, with their installed and their tested versions."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]  # of the repository, if it runs from one
_REQUIREMENT = re.compile(
    r"^\s*([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*([^;]*)(?:;.*extra\s*==\s*['\"](\w+)['\"])?"
)
_BOUND = re.compile(r"(>=|<=|==|<|>)\s*([0-9][0-9.]*)")
_HOLDS = {
    ">=": lambda have, want: have >= want,
    "<=": lambda have, want: have <= want,
    "==": lambda have, want: have == want,
    "<": lambda have, want: have < want,
    ">": lambda have, want: have > want,
}


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
        return self.installed is not None and within(self.installed, self.wanted)


def packages() -> list[Package]:
    """Return the packages of the core and of the users' extras, in declared order."""
    pins = dict(_pins())
    return [
        Package(name, extra, wanted, _installed(name), pins.get(_canonical(name)))
        for name, wanted, extra in map(parse, _requirements())
        if name != "sunshower" and extra not in {"dev", "all"}
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


def parse(requirement: str) -> tuple[str, str, str | None]:
    """`kazoo<3,>=2.11; extra == "zookeeper"` → name, bounds, extra."""
    found = _REQUIREMENT.match(requirement)
    assert found, f"{requirement!r} is not a requirement as sunshower writes them"
    name, wanted, extra = found.groups()
    return name, wanted.strip(), extra


def within(version: str, wanted: str) -> bool:
    """Return whether a version is within bounds such as `>=2.60,<3`."""
    return all(
        _HOLDS[sign](_numbers(version), _numbers(bound)) for sign, bound in _BOUND.findall(wanted)
    )


def _numbers(version: str) -> list[int]:
    numbers = [int(number) for number in re.findall(r"\d+", version.partition("+")[0])]
    return [*numbers, 0, 0, 0, 0][:4]  # so that 2.60 and 2.60.0 are equal


def _requirements() -> Iterable[str]:
    """Read the requirements of the installed package, else of pyproject.toml."""
    try:
        return metadata.requires("sunshower") or ()
    except metadata.PackageNotFoundError:
        project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras = project["optional-dependencies"].items()
        return [
            *project["dependencies"],
            *(f"{wanted}; extra == '{extra}'" for extra, them in extras for wanted in them),
        ]


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _pins() -> Iterator[tuple[str, str]]:
    if _in_repository():
        for line in (_ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
            name, pinned, version = line.partition("==")
            if pinned and not line.startswith("#"):
                yield _canonical(name), version


def _in_repository() -> bool:
    return (_ROOT / "constraints.txt").is_file() and (_ROOT / "pyproject.toml").is_file()


def _short(path: Path) -> str:
    """Return the path relative to the current folder, if it is below."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
