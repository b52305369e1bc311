"""The introduction in Chinese: its programs are README's, its example runs, its files exist."""

from __future__ import annotations

import re
import runpy

import pytest

from tests.structure.reading import ROOT

PAGE = (ROOT / "docs/zh/README.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_its_programs_and_commands_are_those_of_readme() -> None:
    programs, commands = (
        blocks("python"),
        [line for block in blocks("sh") for line in block.splitlines()],
    )
    assert len(programs) == 1
    assert len(commands) == 6
    assert programs[0] in README
    for command in commands[:-1]:
        assert command.partition("#")[0].strip() in README, command


def test_the_tree_of_its_example_is_complete_at_the_last_ack(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (example,) = re.findall(r"^python (examples/\w+\.py)$", PAGE, re.MULTILINE)
    runpy.run_path(str(ROOT / example), run_name="__main__")
    reports = [line for line in capsys.readouterr().out.splitlines() if "→ acker" in line]
    assert [line.split()[-1] for line in reports] == ["open"] * 4 + ["complete"]
    values = [line.split()[-2] for line in reports]
    assert values[-1] == "0" * 16
    assert "0" * 16 not in values[:-1]


def test_each_file_that_it_names_exists() -> None:
    named = re.findall(r"`((?:sunshower|tests)/[\w/.]+)`", PAGE)
    assert len(named) > 15
    assert not [path for path in named if not (ROOT / path).exists()]
