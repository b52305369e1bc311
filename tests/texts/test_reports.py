"""Files and pages of experiments can be written with any text and value."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from sunshower.experiments.event_history import History, to_lines
from sunshower.experiments.outcome import Finding, Verdict
from sunshower.experiments.report.drawing import Background, run_page
from sunshower.experiments.runner.run_folders import RunFolder
from sunshower.runtime.events.event_log import Entry, What
from tests.experiments.report.samples import outcome
from tests.texts.hostile import ODD_TEXTS, texts, values

with_fixtures = settings(suppress_health_check=list(HealthCheck))


@with_fixtures
@given(texts, values)
def test_file_of_a_run_is_written(
    tmp_path_factory: pytest.TempPathFactory, text: str, value: Any
) -> None:
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    folder.write("page.html", text)
    folder.write("results.json", {"reason": text, "value": value})
    written = json.loads((folder.path / "results.json").read_bytes())
    assert written["reason"] in (text, text.encode("utf-8", "backslashreplace").decode())
    (folder.path / "page.html").read_bytes().decode()


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_page_of_a_run_is_written(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    findings = (Finding("at-least-once", Verdict.BROKEN, (text,), (text,), {}),)
    page = run_page(replace(outcome(), findings=findings), Background(text, text), ())
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    folder.write("report.html", page)
    (folder.path / "report.html").read_bytes().decode()


@with_fixtures
@given(texts, values)
def test_line_of_a_history_is_json(text: str, value: Any) -> None:
    entries = [
        Entry(0.0, What.WROTE, 1, detail=(text, value)),
        Entry(0.0, What.NOTED, 1, detail=(text, {text: value})),
        Entry(0.0, What.BEGUN, detail=text),
    ]
    for line in to_lines(History(entries, {1: "sink[0]"}, 0.0)):
        assert isinstance(json.loads(line), dict)
