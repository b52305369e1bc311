"""Tests of dependencies: each is pinned, within the range that the project accepts."""

from __future__ import annotations

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.structure.reading import FILES, ROOT, text

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
PINS = [
    line
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
REQUIREMENTS = [
    requirement
    for group in (
        PROJECT["build-system"]["requires"],
        PROJECT["project"]["dependencies"],
        *EXTRAS.values(),
    )
    for requirement in map(Requirement, group)
    if requirement.name != "sunshower"
]


def test_constraints_are_one_name_and_one_version() -> None:
    form = re.compile(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*")
    assert not [line for line in PINS if not form.fullmatch(line)]


def test_no_name_is_pinned_twice() -> None:
    names = [canonicalize_name(line.partition("==")[0]) for line in PINS]
    assert len(names) == len(set(names))


def test_dependencies_are_pinned_within_their_ranges() -> None:
    versions = {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in PINS}
    for requirement in REQUIREMENTS:
        version = versions.get(canonicalize_name(requirement.name))
        assert version, f"{requirement.name} has no line in constraints.txt"
        assert requirement.specifier.contains(version), f"{requirement} is pinned to {version}"


def test_commands_to_install_name_existing_extras() -> None:
    texts = {path: text(path) for path in FILES if path.suffix in {".py", ".md"}}
    named = re.findall(r"make setup EXTRAS=([\w,]+)", "\n".join(texts.values()))
    assert not {name for names in named for name in names.split(",")} - EXTRAS.keys()
    on_an_index = re.compile(r"pip install '?sunshower\b")  # it is on none
    assert not [path for path, words in texts.items() if on_an_index.search(words)]


def test_the_readme_lists_the_extras_of_users() -> None:
    (listed,) = re.findall(r"is an extra:(.*?)\.\s", text(ROOT / "README.md"), re.DOTALL)
    assert {*re.findall(r"`(\w+)`", listed)} == EXTRAS.keys() - {"dev"}
