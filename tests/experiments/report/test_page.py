"""Tests of the report pages: they load nothing, and escape all text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from syrupy.assertion import SnapshotAssertion

from sunshower.errors import ExperimentError
from sunshower.experiments.outcome import Outcome, Verdict
from sunshower.experiments.report.drawing import (
    Background,
    Chart,
    check_installed,
    figure,
    group_page,
    make_series,
    outcome_summary,
    point,
    recovery_chart,
    run_page,
    span,
    sweep_chart,
    timeline,
)
from sunshower.installed import install_command
from tests.experiments.report.samples import EVIL, history, outcome

BACKGROUND = Background("About <this>.", "sunshower experiment run x.py --seed 7", {"b": 1}, ["a"])
DRAWN = Chart("timeline", "caption", '<svg width="1" height="2"><g id="x"/></svg>', b"")


class Reader(HTMLParser):
    """The tags of a page, what it loads, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loaded: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in {"src", "href", "xlink:href", "data", "action"}:
                self.loaded.append(value or "")

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] != ["style"]:
            self.text += f"{data} "


def page(result: Outcome | None = None, *charts: Chart) -> Reader:
    return Reader(run_page(result or outcome(), BACKGROUND, charts))


def test_html_in_the_evidence_is_escaped() -> None:
    reader = page()
    assert "script" not in reader.tags
    assert EVIL in reader.text
    assert "kill & <recover>" in reader.text
    assert "About <this>." in reader.text


def test_a_page_loads_nothing_and_contains_its_charts() -> None:
    charts = [timeline(make_series(history())), recovery_chart(outcome().recoveries)]
    text = run_page(outcome(), BACKGROUND, charts)
    reader = Reader(text)
    assert reader.tags.count("svg") == 2
    assert all(url.startswith("#") for url in reader.loaded)
    assert not re.findall(r"url\((?!#)|@import", text)
    assert {"link", "img", "iframe", "object"}.isdisjoint(reader.tags)
    for chart in charts:
        assert f'id="{chart.name}"' in text
        assert chart.caption in reader.text


OUTCOMES = {
    "broken": outcome(),
    "holds": outcome(Verdict.HOLDS),  # its evidence is folded
    "a fault without recovery": outcome(recovered_s=None),
}


@pytest.mark.parametrize("result", OUTCOMES.values(), ids=OUTCOMES)
def test_a_page_shows_all_fields_of_the_outcome(
    result: Outcome, approved: SnapshotAssertion
) -> None:
    shown = page(result)
    assert [" ".join(line.split()) for line in shown.text.splitlines() if line.strip()] == approved
    folded = "<details><summary>evidence" in run_page(result, BACKGROUND, [])
    assert folded is (result.verdict is Verdict.HOLDS)


def test_a_page_can_be_printed() -> None:
    text = run_page(outcome(), BACKGROUND, [])
    assert "@media print" in text
    assert 'name="color-scheme" content="light dark"' in text
    assert "@media screen and (prefers-color-scheme: dark)" in text, "paper is white"


def test_the_summary_gives_the_most_serious_reason() -> None:
    expected = "at-least-once: message 17 is missing. Of 2 checkers: 1 HOLDS, 1 BROKEN."
    assert outcome_summary(outcome()) == expected
    assert outcome_summary(outcome(Verdict.HOLDS)) == "Of 2 checkers: 2 HOLDS."


def test_a_page_of_several_runs_links_to_each() -> None:
    points = [(f"00{n}", point(outcome(seed=n), ["timeout_s"])) for n in (1, 2)]
    reader = Reader(group_page("swept", points, {"other": 3}, BACKGROUND, [DRAWN]))
    assert [url for url in reader.loaded if url] == ["001/report.html", "002/report.html"]
    assert "Of 2 runs: 2 BROKEN." in reader.text


def test_the_chart_of_a_sweep_is_on_its_page() -> None:
    points = [("001", point(outcome(), ["timeout_s"]))]
    chart = sweep_chart([run_point for _, run_point in points], "timeout_s")
    text = group_page("swept", points, {}, BACKGROUND, [chart])
    assert "<svg" in text
    assert "by-timeout_s.png" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "3"), (12345.0, "12,345"), (0.123456, "0.1235"), (True, "True"), ("<b>", "<b>")],
)
def test_numbers_are_formatted_for_readers(value: object, text: str) -> None:
    assert figure(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (2e-5, "20 µs"), (0.0185, "18.5 ms"), (0.6089, "0.609 s"), (72.42, "72.4 s"),
     (12_345.6, "12,346 s")],
)  # fmt: skip
def test_spans_have_three_significant_digits(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_a_missing_extra_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ExperimentError, match=re.escape(install_command("experiments"))):
        check_installed()
