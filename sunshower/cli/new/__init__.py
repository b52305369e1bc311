"""`sunshower new` creates a small project: a topology, its tests, an experiment, a Makefile."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer
from packaging.utils import canonicalize_name

from sunshower.cli.doctor import requirements
from sunshower.cli.formatting import echo
from sunshower.errors import ProjectError

_TEMPLATE = Path(__file__).parent / "template"
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_SUFFIX = ".txt"  # of the templates: no tool takes them for code of Sunshower

Folder = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="The folder to create. Its name is the name of the project: lower-case letters, "
        "digits and hyphens.",
    ),
]


def new(folder: Folder) -> None:
    """Create a project: a topology, its tests, an experiment, a Makefile, a pyproject.toml.

    The folder must be empty, or not exist yet.
    """
    for path in make_project(folder, sys.modules["sunshower"].__version__):
        echo(str(path))
    echo(f"\nNext: cd {folder}, and make help")


def make_project(folder: Path, version: str) -> list[Path]:
    """Write the files of a project that uses this `version` of Sunshower. Returns their paths.

    Raises ProjectError for a name that is not valid, or is that of a package that the project
    needs, and for a folder that cannot be used.
    """
    name = folder.resolve().name
    if not _NAME.fullmatch(name):
        raise ProjectError(
            f"{name!r} is not a valid project name; use lower-case letters, digits and hyphens, "
            "such as word-count"
        )
    if name in _needed():
        raise ProjectError(
            f"{name!r} is the name of a package that the project needs; use another name, such as "
            f"my-{name}"
        )
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ProjectError(f"{folder} is not empty; name a new folder, or empty this one")
        for template in sorted(_TEMPLATE.iterdir()):
            text = template.read_text(encoding="utf-8")
            text = text.replace("@NAME@", name).replace("@VERSION@", version)
            path = folder / template.name.removesuffix(_SUFFIX)
            path.write_text(text, encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise ProjectError(f"{folder}: {error.strerror}; name another folder") from None
    return written


def _needed() -> set[str]:
    """The names of Sunshower, of what it and its extras require, and of the tests' framework."""
    required = {requirement.name for requirement, extra in requirements() if extra != "dev"}
    return {canonicalize_name(name) for name in {"sunshower", "pytest", *required}}
