"""The results of `make bench`: figures, the file, the rounds, the inputs, and regressions."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from benchmarks.__main__ import arguments, conclude
from benchmarks.corpus import make_lines, write_files
from benchmarks.figures import Key, Ratio, Series, Target, significant, with_spread
from benchmarks.measure import (
    BenchmarkError,
    Comparison,
    Entry,
    MissingRequirement,
    Outcome,
    Sample,
    run_comparison,
)
from benchmarks.names import NAMES, SHORT
from benchmarks.regressions import find_regressions
from benchmarks.results_file import (
    Run,
    empty,
    merge,
    read,
    read_committed,
    rows_and_ratios,
    with_targets,
    write,
)
from benchmarks.tables import tables
from benchmarks.targets import TARGETS

OURS = Key("word_count", "sunshower", "pack-rows", "M words/s")
PEER = Key("word_count", "bytewax", "count_final", "M words/s")
RATIO = Ratio("word_count/pack-rows/bytewax", OURS, PEER)
SERIES = [
    Series(OURS, [2.0, 9.0, 3.0], {"cores": 1.9, "others": 0.0}),
    Series(PEER, [1.0, 3.0, 0.5]),
]
PLACE = {"machine": {"cores": 2}, "versions": {"python": "3.11"}, "commit": "abc"}
TODAY = Run("2026-11-24", "abc", 3)


def a_report(targets: list[Target]) -> dict[str, Any]:
    return with_targets(rows_and_ratios(SERIES, [RATIO], TODAY), PLACE, targets)


# ---- figures ------------------------------------------------------------------------------------


def test_the_spread_is_the_smallest_and_the_largest_sample() -> None:
    assert SERIES[0].median == 3.0
    assert SERIES[0].spread == (2.0, 9.0)


def test_a_ratio_is_computed_in_each_round_and_not_from_the_medians() -> None:
    compared = RATIO.of(SERIES)
    assert list(compared.samples) == [2.0, 3.0, 6.0]
    assert compared.median == 3.0


def test_a_ratio_needs_the_same_number_of_rounds_of_both() -> None:
    with pytest.raises(ValueError, match="zip"):
        RATIO.of([SERIES[0], Series(PEER, [1.0])])


@pytest.mark.parametrize(
    ("target", "value", "met", "off"),
    [
        (Target("x", at_least=2), 2.0, True, 0.0),
        (Target("x", at_least=2), 3.0, True, 0.5),
        (Target("x", at_least=2), 1.5, False, -0.25),
        (Target("x", at_most=16), 16.0, True, 0.0),
        (Target("x", at_most=16), 20.0, False, 0.25),
        (Target("x", at_least=2), None, None, None),
    ],
)
def test_a_target_is_judged_with_the_distance_from_its_bound(
    target: Target, value: float | None, met: bool | None, off: float | None
) -> None:
    judged = target.judge(value)
    assert (judged["met"], judged["off"]) == (met, off)


@pytest.mark.parametrize(
    ("value", "rounded"), [(1234567.0, 1235000.0), (0.0123456, 0.01235), (0.0, 0.0)]
)
def test_figures_keep_four_digits(value: float, rounded: float) -> None:
    assert significant(value) == rounded


# ---- the file -----------------------------------------------------------------------------------


def test_the_file_has_the_documented_shape(approved: SnapshotAssertion) -> None:
    assert json.loads(json.dumps(a_report([Target(RATIO.name, at_least=2)]))) == approved


def test_a_target_may_be_a_bound_on_a_figure_that_is_not_a_ratio() -> None:
    (judged,) = a_report([Target("word_count/sunshower/pack-rows", at_most=2)])["targets"]
    assert (judged["value"], judged["met"]) == (3.0, False)


def test_a_target_that_was_not_measured_is_neither_met_nor_missed() -> None:
    (judged,) = a_report([Target("ledger/in-order/dict", at_least=6)])["targets"]
    assert judged["met"] is None


def test_a_run_replaces_the_rows_that_it_measured_and_keeps_the_others(tmp_path: Path) -> None:
    before, later = a_report([]), Run("2026-12-01", "def", 1)
    now = rows_and_ratios([Series(OURS, [7.0])], [RATIO], later)
    target = Target(RATIO.name, at_least=2)
    merged = with_targets(merge(before, now), PLACE, [target])
    ours, peer = merged["results"]
    assert (ours["median"], ours["date"], ours["commit"], ours["rounds"]) == (7, *of_run(later))
    assert (peer["median"], peer["date"], peer["commit"], peer["rounds"]) == (1, *of_run(TODAY))
    assert merged["ratios"] == before["ratios"]  # one of its two keys was not measured
    assert merged["ratio_runs"][RATIO.name]["commit"] == "abc"
    assert merged["targets"][0]["met"] is True
    write(merged, tmp_path / "latest.json")
    assert read(tmp_path / "latest.json") == merged


def of_run(run: Run) -> tuple[Any, ...]:
    return run.date, run.commit, run.rounds


def test_another_configuration_of_a_peer_replaces_the_former_one() -> None:
    def peer(setup: str) -> dict[str, Any]:
        return rows_and_ratios([Series(PEER, [1.0], setup=setup)], [], TODAY)

    merged = merge(merge(empty(), peer("1 × 2")), peer("2 × 1"))
    assert [row["setup"] for row in merged["results"]] == ["2 × 1"]


def test_a_file_that_does_not_exist_has_no_results(tmp_path: Path) -> None:
    assert read(tmp_path / "no.json") == read_committed(tmp_path / "no.json") == empty()


def test_the_file_of_the_last_commit_is_read() -> None:
    assert read_committed()["ratios"]


def test_the_tables_show_by_how_much_a_target_is_missed() -> None:
    console = Console(file=io.StringIO(), width=160)
    missed = Target(RATIO.name, at_least=4)
    console.print(tables(a_report([missed, Target("idle/x/y", at_most=1)])))
    shown = console.file.getvalue()
    assert "missed by 25%" in shown
    assert "idle/x/y" not in shown  # it was not measured


def test_every_target_is_a_bound_on_one_figure() -> None:
    names = [target.figure for target in TARGETS]
    assert len(set(names)) == len(names)
    assert all(name.count("/") == 2 for name in names)
    assert all((target.at_least is None) != (target.at_most is None) for target in TARGETS)


# ---- the rounds ---------------------------------------------------------------------------------


def test_the_entries_of_a_comparison_run_in_turn() -> None:
    order: list[str] = []

    def run(name: str, value: float) -> Sample:
        order.append(name)
        return Sample(value, cores=1.0, more={"p50_s": value})

    entries = [Entry(OURS, lambda: run("ours", 4)), Entry(PEER, lambda: run("peer", 2))]
    logged: list[str] = []
    results = run_comparison(Comparison("pair", entries, [RATIO]), 3, 0.0, logged.append)
    series = results.series
    assert not results.failures
    assert order == ["ours", "peer"] * 3
    assert [list(entry.samples) for entry in series] == [[4] * 3, [2] * 3]
    assert series[0].more["p50_s"] == 4
    assert logged[-1].startswith("pair 6/6, round 3/3: word_count/bytewax/count_final")


def test_an_entry_that_fails_is_omitted_and_the_others_are_measured() -> None:
    def fail() -> Sample:
        raise BenchmarkError("99 were done, not 100")

    logged: list[str] = []
    entries = [Entry(PEER, fail), Entry(OURS, lambda: Sample(4.0))]
    results = run_comparison(Comparison("pair", entries, [RATIO]), 2, 0.0, logged.append)
    assert results.failures == {PEER.name: "BenchmarkError: 99 were done, not 100"}
    assert [(entry.key, list(entry.samples)) for entry in results.series] == [(OURS, [4.0, 4.0])]
    assert not rows_and_ratios(results.series, [RATIO], TODAY)["ratios"]
    assert sum("omitted" in line for line in logged) == 1


def test_an_entry_whose_requirements_are_missing_is_skipped_and_is_not_a_failure() -> None:
    def miss() -> Sample:
        raise MissingRequirement("there is no Java")

    logged: list[str] = []
    results = run_comparison(Comparison("one", [Entry(PEER, miss)]), 2, 0.0, logged.append)
    assert (list(results.series), results.failures) == ([], {})
    assert logged == [f"one 1/2, round 1/2: {PEER.name} is skipped: there is no Java"]


def test_a_comparison_may_have_fewer_rounds() -> None:
    match = Comparison("one", [Entry(OURS, lambda: Sample(4.0))], rounds=1)
    assert list(run_comparison(match, 3, 0.0, lambda _: None).series[0].samples) == [4.0]


def test_the_time_of_several_processes_is_from_the_first_start_to_the_last_end() -> None:
    both = Outcome(1.0, 3.0, 100, 2.0) + Outcome(1.5, 5.0, 300, 3.0)
    assert both.expect(400).sample(per=100) == Sample(1.0, cores=1.25)


def test_a_run_that_did_not_do_all_of_its_work_has_no_figure() -> None:
    with pytest.raises(BenchmarkError, match="99 were done, not 100"):
        Outcome(0.0, 1.0, 99).expect(100)


# ---- inputs -------------------------------------------------------------------------------------


def test_lines_have_ten_words_and_are_the_same_each_time() -> None:
    lines = make_lines(1_000)
    assert lines == make_lines(1_000)
    assert {len(line.split()) for line in lines} == {10}
    assert len(lines) == 100


def test_files_have_all_lines_the_given_number_of_times(tmp_path: Path) -> None:
    folder = write_files(tmp_path, 1_000, files=7, times=3)
    files = sorted(folder.iterdir())
    assert len(files) == 3 * 7
    assert [line for file in files for line in file.read_text().splitlines()] == make_lines(
        1000
    ) * 3


def test_quick_is_one_short_round() -> None:
    assert arguments(["--quick"]).repeat == 1
    assert arguments(["--quick"]).words < arguments([]).words


def test_the_default_benchmarks_run_unless_all_or_some_are_named() -> None:
    assert arguments([]).only == SHORT
    assert arguments(["--all"]).only == NAMES
    assert arguments(["--only", "ledger", "idle"]).only == ["ledger", "idle"]
    assert set(SHORT) < set(NAMES)


@pytest.mark.parametrize("wrong", ["--repeat=0", "--words=0", "--words=1234", "--only=nothing"])
def test_a_wrong_option_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments([wrong])
    assert "usage:" in capsys.readouterr().err


# ---- regressions --------------------------------------------------------------------------------


def ratios_of(value: float, better: str = "more") -> dict[str, Any]:
    return {
        "ratios": {RATIO.name: value},
        "ratio_spreads": {RATIO.name: [value / 2, value * 2]},
        "ratio_runs": {RATIO.name: {"better": better}},
    }


@pytest.mark.parametrize(
    ("before", "after", "better", "is_worse"),
    [
        (1.0, 0.81, "more", False),
        (1.0, 0.79, "more", True),
        (1.0, 5.0, "more", False),
        (1.0, 1.19, "less", False),
        (1.0, 1.21, "less", True),
        (1.0, 0.1, "less", False),
    ],
)
def test_a_ratio_is_a_regression_if_it_is_worse_by_more_than_a_fifth(
    before: float, after: float, better: str, is_worse: bool
) -> None:
    regressions = find_regressions(ratios_of(before, better), ratios_of(after, better))
    assert [regression.name for regression in regressions] == ([RATIO.name] if is_worse else [])


def test_ratios_that_only_one_file_has_are_not_compared() -> None:
    assert not find_regressions(empty(), ratios_of(0.1))
    assert not find_regressions(ratios_of(9.0), empty())


def test_a_ratio_of_times_is_worse_when_it_rises() -> None:
    keys = [Key("latency", system, "100-p50", "ms") for system in ("sunshower", "ray")]
    ratio = Ratio("latency/100-p50/ray", *keys)
    series = [Series(key, [1.0]) for key in keys]
    assert rows_and_ratios(series, [ratio], TODAY)["ratio_runs"][ratio.name]["better"] == "less"


def test_with_regressions_the_last_line_has_their_number_and_the_status_is_one() -> None:
    console = Console(file=io.StringIO(), width=80)
    assert conclude(console, {}, find_regressions(ratios_of(2.0), ratios_of(1.0))) == 1
    worse, last = console.file.getvalue().splitlines()
    assert worse == f"Worse: {RATIO.name}: 2 (1 to 4) before, 1 (0.5 to 2) now, -50%"
    assert last.startswith("Regression: 1 of the ratios")


def test_the_status_is_zero_only_if_nothing_failed_and_no_ratio_is_worse() -> None:
    console = Console(file=io.StringIO(), width=100)
    assert conclude(console, {}, None) == conclude(console, {}, []) == 0
    assert console.file.getvalue().splitlines() == [
        "No ratio is worse than in the last commit by more than 20 %."
    ]
    assert conclude(console, {"kafka": "BenchmarkError: no broker"}, []) == 1
    assert "Failed: kafka: BenchmarkError: no broker" in console.file.getvalue()


@pytest.mark.parametrize(
    ("value", "spread", "text"),
    [
        (0.4266, (0.2, 0.5), "0.427 (0.2 to 0.5)"),
        (1234567.0, (), "1,230,000"),
        (16.0, (16.0, 16.0), "16"),
        (999.6, (), "1,000"),
    ],
)
def test_a_figure_is_shown_with_its_spread(
    value: float, spread: tuple[float, ...], text: str
) -> None:
    assert with_spread(value, spread) == text
