"""The packages that sunshower requires, with their installed and their tested versions."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from sunshower.installed import ROOT, in_repository


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
    """Return the packages of the core and of the users' extras."""
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
        if one.name != "sunshower" and extra not in {"test", "dev", "all"}
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
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}
