"""What `make bench` writes down: medians, spreads, ratios by round, targets, and their shape."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.__main__ import NAMES, arguments
from benchmarks.corpus import make_lines, write_files
from benchmarks.figures import Key, Ratio, Series, Target, report, significant
from benchmarks.measure import BenchmarkError, Entry, Match, Outcome, Sample, play
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


def a_report(targets: list[Target]) -> dict[str, Any]:
    return report(PLACE, SERIES, [RATIO], targets)


# ---- figures ------------------------------------------------------------------------------------


def test_the_median_is_the_middle_and_the_spread_the_ends() -> None:
    assert SERIES[0].median == 3.0
    assert SERIES[0].spread == (2.0, 9.0)


def test_a_ratio_is_taken_in_each_round_and_not_of_the_medians() -> None:
    compared = RATIO.of(SERIES)
    assert list(compared.samples) == [2.0, 3.0, 6.0]
    assert compared.median == 3.0


def test_a_ratio_needs_as_many_rounds_of_both() -> None:
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
def test_a_target_says_whether_it_is_met_and_by_how_much(
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


def test_the_file_has_the_promised_shape() -> None:
    found = json.loads(json.dumps(a_report([Target(RATIO.name, at_least=2)])))
    assert found.keys() == {
        *("machine", "versions", "commit"),
        *("results", "ratios", "ratio_spreads", "targets"),
    }
    first = found["results"][0]
    assert (
        first
        | {
            "workload": "word_count",
            "system": "sunshower",
            "variant": "pack-rows",
            "median": 3.0,
            "spread": [2.0, 9.0],
            "unit": "M words/s",
        }
        == first
    )
    assert found["ratios"] == {"word_count/pack-rows/bytewax": 3.0}
    assert found["ratio_spreads"] == {"word_count/pack-rows/bytewax": [2.0, 6.0]}
    assert found["targets"] == [
        {"figure": RATIO.name, "bound": "≥ 2", "value": 3.0, "met": True, "off": 0.5}
    ]


def test_a_target_may_be_set_on_a_figure_that_is_no_ratio() -> None:
    (judged,) = a_report([Target("word_count/sunshower/pack-rows", at_most=2)])["targets"]
    assert (judged["value"], judged["met"]) == (3.0, False)


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    (judged,) = a_report([Target("ledger/in-order/dict", at_least=6)])["targets"]
    assert judged["met"] is None


def test_the_tables_tell_by_how_much_a_target_is_missed() -> None:
    console = Console(file=io.StringIO(), width=160)
    missed = Target(RATIO.name, at_least=4)
    console.print(tables(a_report([missed, Target("idle/x/y", at_most=1)])))
    shown = console.file.getvalue()
    assert "missed by 25%" in shown
    assert "not measured" in shown


def test_every_target_is_a_bound_on_one_figure() -> None:
    names = [target.figure for target in TARGETS]
    assert len(set(names)) == len(names)
    assert all(name.count("/") == 2 for name in names)
    assert all((one.at_least is None) != (one.at_most is None) for one in TARGETS)


# ---- the rounds ---------------------------------------------------------------------------------


def test_all_that_are_compared_run_in_turn() -> None:
    order: list[str] = []

    def run(name: str, value: float) -> Sample:
        order.append(name)
        return Sample(value, cores=1.0, more={"p50_s": value})

    entries = [Entry(OURS, lambda: run("ours", 4)), Entry(PEER, lambda: run("peer", 2))]
    told: list[str] = []
    series = play(Match("pair", entries, [RATIO]), 3, 0.0, told.append)
    assert order == ["ours", "peer"] * 3
    assert [list(one.samples) for one in series] == [[4] * 3, [2] * 3]
    assert series[0].more["p50_s"] == 4
    assert told[-1].startswith("pair 6/6, round 3/3: word_count/bytewax/count_final")


def test_processes_of_one_run_are_timed_from_the_first_start_to_the_last_end() -> None:
    both = Outcome(1.0, 3.0, 100, 2.0) + Outcome(1.5, 5.0, 300, 3.0)
    assert both.expect(400).sample(per=100) == Sample(1.0, cores=1.25)


def test_a_run_that_did_not_do_its_work_is_no_figure() -> None:
    with pytest.raises(BenchmarkError, match="99 were done, not 100"):
        Outcome(0.0, 1.0, 99).expect(100)


# ---- what goes in -------------------------------------------------------------------------------


def test_lines_have_ten_words_and_are_the_same_each_time() -> None:
    lines = make_lines(1_000)
    assert lines == make_lines(1_000)
    assert {len(line.split()) for line in lines} == {10}
    assert len(lines) == 100


def test_files_have_all_lines_as_often_as_is_said(tmp_path: Path) -> None:
    folder = write_files(tmp_path, 1_000, files=7, times=3)
    files = sorted(folder.iterdir())
    assert len(files) == 3 * 7
    assert [line for file in files for line in file.read_text().splitlines()] == make_lines(
        1000
    ) * 3


def test_quick_is_one_short_round() -> None:
    assert arguments(["--quick"]).repeat == 1
    assert arguments(["--quick"]).words < arguments([]).words


def test_all_is_measured_unless_some_are_named() -> None:
    assert tuple(arguments([]).only) == NAMES
    assert arguments(["--only", "ledger", "idle"]).only == ["ledger", "idle"]


@pytest.mark.parametrize("wrong", ["--repeat=0", "--words=0", "--words=1234", "--only=nothing"])
def test_a_wrong_option_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments([wrong])
    assert "usage:" in capsys.readouterr().err
