"""The style, as a test: first sentences, sizes, nothing of one machine, links that lead on."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.structure.reading import FILES, PYTHON, ROOT, syntax, text

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
LINE_COLUMNS_MAX = 100
FOLDER_FILES_MAX = 16  # Python files besides __init__.py

PAGES = tuple(path for path in FILES if path.suffix == ".md")
TESTS = tuple(path for path in PYTHON if path.parts[0] == "tests")

every_file = pytest.mark.parametrize("path", FILES, ids=str)
every_python_file = pytest.mark.parametrize("path", PYTHON, ids=str)
every_page = pytest.mark.parametrize("path", PAGES, ids=str)


@every_python_file
def test_file_opens_with_one_sentence(path: Path) -> None:
    docstring = ast.get_docstring(syntax(path))
    opening = text(path).partition("\n")[0]
    assert opening.lstrip("r").startswith('"""'), (
        f"{path}: the first thing in it must be a docstring; it is {opening!r}"
    )
    assert docstring, f"{path}: its docstring is empty"
    sentence = docstring.partition("\n")[0]
    assert re.search(r"[.!?:…]$", sentence), f"{path}: the first line is no sentence: {sentence!r}"
    assert not re.search(r"(?<!e\.g)(?<!i\.e)[.!?] +[A-Z]", sentence), (
        f"{path}: the first line is more than one sentence: {sentence!r}"
    )


def test_folder_can_be_read_as_a_table_of_contents() -> None:
    files = Counter(path.parent for path in PYTHON if path.name != "__init__.py")
    assert not [
        f"{folder} has {count} files; {FOLDER_FILES_MAX} are the limit: make packages of it"
        for folder, count in files.items()
        if count > FOLDER_FILES_MAX and folder.parts[0] != "benchmarks"
    ]


@every_python_file
def test_no_docstring_only_refers_to_the_port(path: Path) -> None:
    assert f'"""See {"the port"}."""' not in text(path), f"{path}: leave such a docstring out"


@every_python_file
def test_lines_fit_the_page(path: Path) -> None:
    assert not [
        f"{path}:{number} has {len(line)} columns"
        for number, line in enumerate(text(path).splitlines(), start=1)
        if len(line) > LINE_COLUMNS_MAX
    ]


@every_page
def test_prose_fits_the_page(path: Path) -> None:
    assert not [
        f"{path}:{number} has {len(line)} columns"
        for number, line in enumerate(text(path).splitlines(), start=1)
        if len(line) > LINE_COLUMNS_MAX and line[:1] != "|"  # but a table's row
    ]


@every_python_file
def test_file_fits_in_a_sitting(path: Path) -> None:
    lines = len(text(path).splitlines())
    assert lines <= FILE_LINES_MAX, f"{path} has {lines} lines; {FILE_LINES_MAX} are the limit"


@every_python_file
def test_functions_fit_on_a_screen(path: Path) -> None:
    sizes = {
        f"{path}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert not {name: size for name, size in sizes.items() if size > FUNCTION_LINES_MAX}


@pytest.mark.parametrize("path", TESTS, ids=str)
def test_tests_wait_for_events_and_never_sleep(path: Path) -> None:
    names = {"time": "sleep"}  # module → what a test must not take from it
    assert not [
        f"{path}:{node.lineno} sleeps; wait for the event, or wind a ManualClock"
        for node in ast.walk(syntax(path))
        if (isinstance(node, ast.Attribute) and ast.unparse(node) == "time.sleep")
        or (
            isinstance(node, ast.ImportFrom)
            and names.get(node.module or "") in {alias.name for alias in node.names}
        )
    ]


# ---- nothing that is true on one machine only ---------------------------------------------------

ELSEWHERE = {
    "a package registry": re.compile(
        r"https?://[^\s)\"'>]*(?:pypi|pythonhosted|npmjs|maven|debian|conda)"
        r"|--(?:extra-)?index-ur[l]|--find-link[s]"
    ),
    "a folder of one machine": re.compile(
        r"(?<![\w.~$})\]/-])/(?:home|root|Users|work|mnt|srv)/|(?<!\w)[A-Z]:\\\\?Users"
    ),
}


@every_file
def test_file_names_nothing_of_one_machine(path: Path) -> None:
    try:
        lines = text(path).splitlines()
    except UnicodeDecodeError:
        return  # a picture
    assert not [
        f"{path}:{number} names {what}: {line.strip()[:120]}"
        for number, line in enumerate(lines, start=1)
        for what, pattern in ELSEWHERE.items()
        if pattern.search(line)
    ]


# ---- pages that follow the code -----------------------------------------------------------------

LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
# `sunshower/runtime/tracking/ledger.py`, `tests/runtime/tracking/test_ledger.py::test_double_ack`
MENTION = re.compile(
    r"`((?:sunshower|tests|benchmarks|examples|docs)/[\w./-]+\.\w+)(?:::([\w:]+))?(?:\[[^`]*\])?`"
)
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that a Markdown page's headings make, as code hosts write them."""
    headings = re.findall(r"^#+ +(.+)$", FENCE.sub("", text(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_links_lead_somewhere(path: Path) -> None:
    broken = []
    for target in LINK.findall(FENCE.sub("", text(path))):
        if re.match(r"[a-z+.-]+:", target):
            continue
        file, _, anchor = target.partition("#")
        goal = (ROOT / path.parent / file).resolve() if file else ROOT / path
        if not goal.exists() or not goal.is_relative_to(ROOT):
            broken.append(f"{path} links to {target}: no such file")
        elif anchor and goal.suffix == ".md" and anchor not in anchors(goal.relative_to(ROOT)):
            broken.append(f"{path} links to {target}: no such heading")
    assert not broken


@every_page
def test_pages_name_files_and_tests_that_exist(path: Path) -> None:
    wrong = []
    for name, test in MENTION.findall(text(path)):
        if not (ROOT / name).is_file():
            wrong.append(f"{path} names {name}: no such file")
        elif test and f"def {test.split('::')[-1]}(" not in text(Path(name)):
            wrong.append(f"{path} names {test}: {name} has no such test")
    assert not wrong


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.parts[0] == "examples" or path in PAGES], ids=str
)
def test_examples_and_pages_import_public_names_alone(path: Path) -> None:
    if path.suffix not in {".py", ".md"} or "decisions" in path.parts:
        return
    deep = re.findall(r"^ *(?:from|import) sunshower\.\w+\.[\w.]+.*$", text(path), re.MULTILINE)
    assert not deep, f"{path}: import these names from the package they belong to: {deep}"
