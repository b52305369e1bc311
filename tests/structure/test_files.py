"""Tests of style: first sentences, sizes, no paths of one machine, and links that work."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

from tests.structure.reading import FILES, PYTHON, ROOT, syntax, text

FILE_LINES_MAX = 1_000
FUNCTION_LINES_MAX = 60
LINE_COLUMNS_MAX = 100
FOLDER_FILES_MAX = 20  # Python files besides __init__.py

PAGES = tuple(path for path in FILES if path.suffix == ".md")
TESTS = tuple(path for path in PYTHON if path.parts[0] == "tests")


def none_is_wrong(wrong: list[str]) -> None:
    """Fail with one line for each."""
    assert not wrong, "\n".join(wrong)


def test_docstrings_are_texts_that_utf_8_has() -> None:
    """Python 3.13 cannot compile one with a lone surrogate: a raw docstring has its letters."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    none_is_wrong(
        [
            f"{path}: write r in front of its docstring"
            for path in PYTHON
            for node in ast.walk(syntax(path))
            if isinstance(node, kinds)
            and re.search("[\ud800-\udfff]", ast.get_docstring(node, clean=False) or "")
        ]
    )


def opening_mistake(path: Path) -> str | None:
    """What is wrong with the first line of a file."""
    opening = text(path).partition("\n")[0]
    if not opening.lstrip("r").startswith('"""'):
        return f"the first thing in it must be a docstring; it is {opening!r}"
    sentence = (ast.get_docstring(syntax(path)) or "").partition("\n")[0]
    if not re.search(r"[.!?:…]$", sentence):
        return f"the first line is no sentence: {sentence!r}"
    if re.search(r"(?<!e\.g)(?<!i\.e)[.!?] +[A-Z]", sentence):
        return f"the first line is more than one sentence: {sentence!r}"
    return None


def test_files_begin_with_one_sentence() -> None:
    none_is_wrong([f"{path}: {wrong}" for path in PYTHON if (wrong := opening_mistake(path))])


def test_folders_have_few_files() -> None:
    files = Counter(path.parent for path in PYTHON if path.name != "__init__.py")
    assert not [
        f"{folder} has {count} files; {FOLDER_FILES_MAX} are the limit: make packages of it"
        for folder, count in files.items()
        if count > FOLDER_FILES_MAX and folder.parts[0] != "benchmarks"
    ]


def test_no_docstring_only_refers_to_the_port() -> None:
    docstring = f'"""See {"the port"}."""'
    none_is_wrong([f"{path}: leave {docstring} out" for path in PYTHON if docstring in text(path)])


def test_lines_of_code_and_prose_fit_the_page() -> None:
    none_is_wrong(
        [
            f"{path}:{number} has {len(line)} columns"
            for path in (*PYTHON, *PAGES)
            for number, line in enumerate(text(path).splitlines(), start=1)
            if len(line) > LINE_COLUMNS_MAX
            and not (path in PAGES and line[:1] == "|")  # a table's row
        ]
    )


def test_files_have_few_lines() -> None:
    sizes = {path: len(text(path).splitlines()) for path in PYTHON}
    none_is_wrong(
        [
            f"{path} has {lines} lines; {FILE_LINES_MAX} are the limit"
            for path, lines in sizes.items()
            if lines > FILE_LINES_MAX
        ]
    )


def test_functions_have_few_lines() -> None:
    none_is_wrong(
        [
            f"{path}:{node.lineno} {node.name} has {lines} lines"
            for path in PYTHON
            for node in ast.walk(syntax(path))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
        ]
    )


def test_tests_wait_for_events_and_never_sleep() -> None:
    names = {"time": "sleep"}  # module → what a test must not take from it
    none_is_wrong(
        [
            f"{path}:{node.lineno} sleeps; wait for the event, or wind a ManualClock"
            for path in TESTS
            for node in ast.walk(syntax(path))
            if (isinstance(node, ast.Attribute) and ast.unparse(node) == "time.sleep")
            or (
                isinstance(node, ast.ImportFrom)
                and names.get(node.module or "") in {alias.name for alias in node.names}
            )
        ]
    )


# ---- nothing that only one machine has ----------------------------------------------------------

ELSEWHERE = {
    "a package registry": re.compile(
        r"https?://[^\s)\"'>]*(?:pypi|pythonhosted|npmjs|maven|debian|conda)"
        r"|--(?:extra-)?index-ur[l]|--find-link[s]"
    ),
    "a folder of one machine": re.compile(
        r"(?<![\w.~$})\]/-])/(?:home|root|Users|work|mnt|srv)/|(?<!\w)[A-Z]:\\\\?Users"
    ),
}


def lines_of(path: Path) -> list[str]:
    """The lines of a text file; none of a picture."""
    try:
        return text(path).splitlines()
    except UnicodeDecodeError:
        return []


def test_files_name_nothing_of_one_machine() -> None:
    none_is_wrong(
        [
            f"{path}:{number} names {what}: {line.strip()[:120]}"
            for path in FILES
            for number, line in enumerate(lines_of(path), start=1)
            for what, pattern in ELSEWHERE.items()
            if pattern.search(line)
        ]
    )


# ---- links and names in pages -------------------------------------------------------------------

LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
# `sunshower/runtime/tracking/ledger.py`, `tests/runtime/tracking/test_ledger.py::test_…`
MENTION = re.compile(
    r"`((?:sunshower|tests|benchmarks|examples|docs)/[\w./-]+\.\w+)(?:::([\w:]+))?(?:\[[^`]*\])?`"
)
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that a Markdown page's headings make, as code hosts write them."""
    headings = re.findall(r"^#+ +(.+)$", FENCE.sub("", text(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    broken = []
    for path in PAGES:
        for target in LINK.findall(FENCE.sub("", text(path))):
            if re.match(r"[a-z+.-]+:", target):
                continue
            file, _, anchor = target.partition("#")
            goal = (ROOT / path.parent / file).resolve() if file else ROOT / path
            if not goal.exists() or not goal.is_relative_to(ROOT):
                broken.append(f"{path} links to {target}: no such file")
            elif anchor and goal.suffix == ".md" and anchor not in anchors(goal.relative_to(ROOT)):
                broken.append(f"{path} links to {target}: no such heading")
    none_is_wrong(broken)


def test_pages_name_files_and_tests_that_exist() -> None:
    wrong = []
    for path in PAGES:
        for name, test in MENTION.findall(text(path)):
            if not (ROOT / name).is_file():
                wrong.append(f"{path} names {name}: no such file")
            elif test and f"def {test.split('::')[-1]}(" not in text(Path(name)):
                wrong.append(f"{path} names {test}: {name} has no such test")
    tests = {name for path in PYTHON for name in re.findall(r"def (test_\w+)", text(path))}
    wrong += [
        f"{path} names {test}: there is no such test"
        for path in PAGES
        for test in re.findall(r"`(test_\w+)`", text(path))
        if test not in tests
    ]
    none_is_wrong(wrong)


def test_examples_and_pages_import_only_public_names() -> None:
    inside = Path("examples/xor_of_a_tree.py")  # shows the acker itself
    programs = [path for path in PYTHON if path.parts[0] == "examples" and path != inside]
    pages = [path for path in PAGES if "decisions" not in path.parts]
    none_is_wrong(
        [
            f"{path}: import these names from the package they belong to: {deep}"
            for path in (*programs, *pages)
            for deep in re.findall(
                r"^ *(?:from|import) sunshower\.\w+\.[\w.]+.*$", text(path), re.MULTILINE
            )
        ]
    )
