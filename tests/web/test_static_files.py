"""The files of the page: libraries are unchanged, modules small, and data never become markup."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path

import pytest

from sunshower.cli.ui.application import STATIC, page_modules

VENDOR = STATIC / "vendor"
README = (VENDOR / "README.md").read_text(encoding="utf-8")
OWN = sorted(STATIC.glob("*.js"))
LINES_MAX = 260


def test_libraries_have_their_recorded_checksums() -> None:
    rows = re.findall(r"^\| `([\w.-]+\.js)` .* `([0-9a-f]{64})` \|$", README, re.MULTILINE)
    checksums = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.glob("*.js")
    }
    assert dict(rows) == checksums


def test_each_library_has_its_licence() -> None:
    named = set(re.findall(r"`([\w.-]+\.LICENSE)`", README))
    assert named == {path.name for path in VENDOR.glob("*.LICENSE")}
    assert re.findall(r"\| \d+\.\d+\.\d+ \| (?:MIT|Apache-2\.0),", README)


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_data_never_become_markup_or_code(path: Path) -> None:
    """Preact renders texts as text nodes. These functions would bypass it."""
    words = (
        r"innerHTML|outerHTML|insertAdjacent|document\.write|srcdoc|\beval\b|new Function|import\("
    )
    assert not re.findall(words, path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_modules_are_small_and_begin_with_a_description(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("// ")
    assert lines[0].endswith(".")
    assert len(lines) <= LINES_MAX


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_modules_import_only_existing_files(path: Path) -> None:
    for name in re.findall(r'from "([^"]+)"', path.read_text(encoding="utf-8")):
        assert name.startswith("./")
        assert (STATIC / name).is_file()


def test_all_modules_are_one_file_and_the_page_names_it_and_the_libraries() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    named = set(re.findall(r'(?:src|href)="/static/([^"]+\.js)"', page))
    assert named == {"page.js", *(f"vendor/{path.name}" for path in VENDOR.glob("*.js"))}
    modules = page_modules()
    assert not re.findall(r"^(?:export |import (?!\* as library))", modules, re.MULTILINE)
    for path in OWN:
        begin = path.read_text(encoding="utf-8").partition("\n")[0]
        count = 0 if path.name == "notebook.js" else 1  # which only notebooks load
        assert modules.count(f"{begin}\n") == count, path.name


def test_the_wheel_includes_the_whole_package() -> None:
    root = STATIC.parents[3]
    build = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["packages"] == ["sunshower"]
    assert "exclude" not in build["targets"]["wheel"]
    assert STATIC.relative_to(root).parts[0] == "sunshower"
