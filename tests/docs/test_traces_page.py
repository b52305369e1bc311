"""Runs the example of docs/TRACES.md, and compares its limits and options with the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer.main

from sunshower.cli import make_app
from sunshower.config import Config
from sunshower.runtime.events import trace_choice, trace_recorder

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/TRACES.md").read_text(encoding="utf-8")


def test_the_example_is_a_test_that_passes() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {"__name__": "test_words"}
    exec(compile(code, "test_words.py", "exec", dont_inherit=True), names)
    names["test_each_word_of_a_line_is_shown"]()


def test_limits_equal_those_of_the_code() -> None:
    rows = dict(re.findall(r"^\| ([a-z][^|]*) \| ([^|]+) \|$", PAGE, re.MULTILINE))
    assert rows["trees that one spout task begins to trace, replays first"] == (
        f"{trace_choice.TREES_AT_ONCE:,} at once, then {trace_choice.TREES_PER_S:.0f} per second"
    )
    assert rows["trees in one worker process"] == (
        f"the last {trace_recorder.TREES_MAX:,}, and {trace_recorder.BYTES_MAX >> 20} MiB"
    )
    assert rows["edges of one tree in one worker"].startswith(f"{trace_recorder.EDGES_MAX};")
    assert rows["a record, a message id, the reason of a failure"].startswith(
        f"{trace_recorder.TEXT_BYTES} bytes"
    )
    assert f"by default {Config().trace_share}" in PAGE


def test_each_command_has_existing_options() -> None:
    command = typer.main.get_command(make_app()).commands["trace"]  # type: ignore[attr-defined]
    options = {name for parameter in command.params for name in parameter.opts}
    lines = re.findall(r"^sunshower trace (.*?)(?: +#.*)?$", PAGE, re.MULTILINE)
    assert len(lines) == 6
    used = {word for line in lines for word in line.split() if word.startswith("--")}
    assert used <= options
