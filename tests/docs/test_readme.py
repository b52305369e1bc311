"""Runs the programs of README and TOPOLOGIES, checks figures, and parses commands of all pages."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sunshower import JsonLines, Line, testing
from sunshower.runtime.inline import run_inline
from tests.conftest import Sunshower

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TOPOLOGIES = (ROOT / "docs/TOPOLOGIES.md").read_text(encoding="utf-8")
PERFORMANCE = (ROOT / "docs/PERFORMANCE.md").read_text(encoding="utf-8")
PROGRAM = ROOT / "examples/word_count.py"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TARGETS = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def commands() -> list[tuple[str, str]]:
    """Each command line in the blocks of the pages, with the name of its page."""
    listed = []
    for page in PAGES:
        parts = re.split(r"^(```.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        inside = zip(parts[1::4], parts[2::4], strict=True)
        shown = [text for fence, text in inside if fence in {"```", "```sh"}]
        lines = [line for text in shown for line in text.splitlines()]
        listed += [(page.name, line) for line in lines if re.match(r"(sunshower|make) ", line)]
    return listed


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like a clone, in which the program finds one short file."""
    (tmp_path / "examples").mkdir()
    shutil.copy(PROGRAM, tmp_path / "examples")
    (tmp_path / "sunshower/deep").mkdir(parents=True)
    (tmp_path / "sunshower/deep/short.py").write_text("rain and sun\nand wind\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def program(page: str) -> str:
    """The first program of a page."""
    shown: list[str] = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return shown[0]


def test_the_first_program_counts_the_words_of_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("words.py").write_text(program(README), encoding="utf-8")
    assert len([line for line in program(README).splitlines() if line]) <= 10
    module = runpy.run_path("words.py")
    done = run_inline(module["topology"].graph())
    texts = [path.read_text() for path in Path(module["folder"]).glob("json/*.py")]
    expected = Counter(word for text in texts for word in text.split())
    assert {word: n for task in done.results["count"] for word, n in task.items()} == expected
    assert Path("word_count.jsonl").stat().st_size


def test_the_bolt_program_is_the_example_for_other_files() -> None:
    shown = program(TOPOLOGIES)
    for of_the_page, of_the_file in (
        ("import sysconfig\n", ""),
        (
            'LIBRARY = Path(sysconfig.get_path("stdlib"))  # or a folder with texts of yours',
            "REPOSITORY = Path(__file__).resolve().parents[1]",
        ),
        ('LIBRARY / "json/*.py"', 'REPOSITORY / "sunshower/**/*.py"'),
    ):
        assert shown.count(of_the_page) == 1
        shown = shown.replace(of_the_page, of_the_file)
    text = PROGRAM.read_text(encoding="utf-8")
    assert text.endswith(f"from __future__ import annotations\n\n{shown}")


def test_the_bolt_program_runs_in_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("words.py").write_text(program(TOPOLOGIES), encoding="utf-8")
    done = run_inline(runpy.run_path("words.py")["topology"].graph())
    assert done.snapshot.component("lines").acked > 0
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == [
        "word_count.0.jsonl",
        "word_count.1.jsonl",
    ]


def test_the_bolt_program_counts_every_word(clone: Path) -> None:
    run_inline(runpy.run_path("examples/word_count.py")["topology"].graph())
    files = sorted(path.name for path in clone.glob("word_count.*"))
    assert files == ["word_count.0.jsonl", "word_count.1.jsonl"]
    lines = [line for name in files for line in Path(name).read_text().splitlines()]
    last = Counter[str]()
    for total in map(json.loads, lines):
        last[total["word"]] = max(last[total["word"]], total["times"])
    assert last == {"rain": 1, "and": 2, "sun": 1, "wind": 1}


def test_shuffled_tasks_count_wrong_and_the_repair_counts_right(
    tmp_path: Path, sunshower: Sunshower, capsys: pytest.CaptureFixture[str]
) -> None:
    section = TOPOLOGIES.partition("### State and several tasks")[2].partition("## ")[0]
    wrong, right = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"^```text\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    path, text = tmp_path / "words.py", program(TOPOLOGIES)
    (line,) = re.findall(r"^totals = .*\n", text, re.MULTILINE)
    for declaration, is_right in ((wrong, False), (right, True)):
        path.write_text(text.replace(line, declaration), encoding="utf-8")
        names = runpy.run_path(str(path))
        sources = {"lines": [Line("sun and rain")] * 50, "store": JsonLines(tmp_path / "totals")}
        done = testing.run(names["topology"], sources)
        testing.assert_lossless(done)
        totals = {total.word: total.times for total in done.emitted("count")}
        assert (totals == {"sun": 50, "and": 50, "rain": 50}) == is_right
        assert sunshower("describe", path) == 0
        assert (shown in capsys.readouterr().out) != is_right


def measured(figure: str) -> float:
    (shown,) = re.findall(rf"^\| `{figure}` \| ([\d.]+) ", PERFORMANCE, re.MULTILINE)
    return float(shown)


def test_the_comparison_of_the_readme_is_the_measured_one() -> None:
    assert "Flink's Java operators are twice as fast" in README
    assert measured("word_count/operators-rows/flink") == pytest.approx(0.5, rel=0.25)
    text = " ".join(README.split())
    assert "reach half to nine tenths of Storm's rate" in text
    assert measured("word_count/pack-classes/storm") == pytest.approx(0.5, rel=0.25)
    assert measured("word_count/pack-rows/storm") == pytest.approx(0.9, rel=0.25)
    assert "durable state (SQLite) halves the rate of operators" in text
    ratio = measured("word_count/operators-rows-sqlite/operators-rows")
    assert ratio == pytest.approx(0.5, rel=0.25)


def named(name: str) -> str:
    """The program of the README that begins with a comment of its file name."""
    (shown,) = re.findall(rf"^```python\n(# {name}\n.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return str(shown)


def test_the_program_with_a_window_counts_the_sales_of_each_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("minutes.py").write_text(named("minutes.py"), encoding="utf-8")
    names = runpy.run_path("minutes.py")
    sale, minute = names["Sale"], names["Minute"]
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    sales = [sale("north", noon + timedelta(seconds=at), 100) for at in (0, 59, 60, 200)]

    def ignore(record: Any) -> None: ...

    replaced = {"sales": sales, "minutes": ignore, "late": ignore}
    done = testing.run(names["topology"], replaced)
    testing.assert_lossless(done)
    ends = [noon + timedelta(minutes=minutes) for minutes in (1, 2, 4)]
    assert done.emitted("windows", "windows") == [
        minute("north", end, number, number * 100)
        for end, number in zip(ends, (2, 1, 1), strict=True)
    ]


@pytest.mark.spark
def test_the_program_with_spark_is_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("revenue.py").write_text(named("revenue.py"), encoding="utf-8")
    graph = runpy.run_path("revenue.py")["topology"].graph()
    assert {"sales", "sales-2"} <= graph.components.keys()


@pytest.mark.parametrize(("page", "line"), commands())
def test_command_lines_have_existing_commands_and_options(
    page: str, line: str, sunshower: Sunshower
) -> None:
    program, *words = shlex.split(line, comments=True)
    if program == "make":
        assert next(word for word in words if "=" not in word) in TARGETS
        return
    missing = [word for word in words if word[:9] == "examples/" and not (ROOT / word).is_file()]
    assert not missing, f"{page} names files that do not exist"
    assert sunshower(*words, "--help") == 0  # an unknown option would be an error before the help
