"""The experiments that the page's server reads: runs of its folder, charts and reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from sunshower.cli.ui.application import HEADERS, ExperimentFolders, served_page
from sunshower.experiments.runner.run_folders import figures_of_all, find
from tests.web.conftest import TOKEN, ask
from tests.web.experiments.prepared_experiments import BROKEN, FOREIGN, KEPT, SWEPT, UNFINISHED
from tests.web.prepared import PreparedSource


@pytest.fixture
def url(runs: Path) -> Iterator[str]:
    with served_page(
        PreparedSource(), TOKEN, port=0, experiments=ExperimentFolders(runs)
    ) as page_url:
        yield page_url


def path_of(run: str, kind: str = "") -> str:
    return f"/api/experiment{kind}?run={quote(run, safe='')}"


def test_the_list_has_all_runs_newest_first_with_unreadable_ones(url: str) -> None:
    listed = ask(url, "/api/experiments").json
    assert [run["run"] for run in listed["runs"]] == [FOREIGN, UNFINISHED, SWEPT, BROKEN, KEPT]
    assert "999" in listed["runs"][0]["error"]
    assert [run["verdict"] for run in listed["runs"][1:]] == [None, "HOLDS", "BROKEN", "HOLDS"]
    assert listed["runs"][2]["members"] == 2


def test_a_run_has_the_figures_of_compare_and_its_recoveries(url: str, runs: Path) -> None:
    for run in (BROKEN, SWEPT, f"{SWEPT}/001"):
        fields = ask(url, path_of(run)).json
        assert fields["figures"] == figures_of_all(find(runs, run))
    broken = ask(url, path_of(BROKEN)).json
    assert broken["recovery"] == {"count": 2, "longest_s": 1.5, "never": 1}
    assert [recovery["seconds"] for recovery in broken["recoveries"]] == [1.5, None]
    assert broken["charts"] == ["recovery", "timeline", "topology"]


def test_charts_are_images_and_a_report_is_downloaded(url: str, runs: Path) -> None:
    chart = ask(url, f"{path_of(BROKEN, '/chart')}&name=recovery", Accept="image/png")
    assert (chart.status, chart.headers["content-type"]) == (200, "image/png")
    report = ask(url, path_of(BROKEN, "/report"))
    assert report.text == (runs / BROKEN / "report.html").read_text(encoding="utf-8")
    assert report.headers["content-disposition"].startswith("attachment")
    for answer in (chart, report):
        assert {name: answer.headers[name.lower()] for name in HEADERS} == HEADERS


@pytest.mark.parametrize(
    "run",
    ["..", "../runs/x", "/etc", "kill-a-bolt", "a/b/c/d", "kill-a-bolt/latest/../x", "a/\0",
     "outside/link", ""],
)  # fmt: skip
def test_other_folders_are_no_runs(url: str, runs: Path, run: str) -> None:
    outside = runs.parent / "outside"
    outside.mkdir()
    (outside / "plan.json").write_text("{}")
    (runs / "outside").mkdir()
    (runs / "outside/link").symlink_to(outside)
    for kind in ("", "/report"):
        answer = ask(url, path_of(run, kind))
        assert answer.status == 404
        assert "there is no run" in answer.json["error"]


@pytest.mark.parametrize("name", ["../timeline", "plan.json", "*", ""])
def test_only_charts_of_a_run_are_served(url: str, name: str) -> None:
    answer = ask(url, f"{path_of(BROKEN, '/chart')}&name={quote(name, safe='')}")
    assert (answer.status, "has no chart" in answer.json["error"]) == (404, True)


def test_a_run_without_a_report_names_the_command_that_makes_it(url: str) -> None:
    answer = ask(url, path_of(UNFINISHED, "/report"))
    assert "sunshower experiment show" in answer.json["error"]
    assert "--report" in ask(url, path_of(UNFINISHED)).json["error"]
