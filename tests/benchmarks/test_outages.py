"""The commands for outages and overload: their scenarios, their lengths, and missed bounds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import outages, overload
from benchmarks.measure import MissingRequirement
from benchmarks.overload_scenarios.letters import TimeFile, last_times


def test_scenarios_are_the_modules_with_a_run_function() -> None:
    assert {"sink", "slow_chain", "letters", "node_lost"} <= set(outages.names())
    assert outages.arguments([]).names == outages.names()
    with pytest.raises(SystemExit):
        outages.arguments(["snik"])


def test_long_overload_runs_take_thirty_message_timeouts() -> None:
    short, long = outages.arguments([]), outages.arguments(["--long"])
    assert outages.seconds_of("sink", short) == 30
    assert outages.seconds_of("sink", long) == 600
    assert outages.seconds_of("slow_chain", long) == 900
    assert outages.seconds_of("sink", outages.arguments(["--long", "--seconds", "5"])) == 5


def test_figures_that_miss_a_bound_are_named() -> None:
    good = {"state": "finished", "lost": 0, "recovery_s": 3.2, "worst_s": 0.4, "speed": 0.97}
    assert not outages.missed_bounds(good)
    assert outages.missed_bounds({**good, "lost": 2, "quarantined": 1}) == [
        "2 lost",
        "1 quarantined",
    ]
    assert "never" in outages.missed_bounds({**good, "recovery_s": -1.0})[0]
    assert outages.missed_bounds({**good, "recovery_s": 31.0})
    assert outages.missed_bounds({**good, "replaced_s": 61.0})
    assert outages.missed_bounds({**good, "replaced_s": -1.0})
    assert outages.missed_bounds({**good, "resumed_s": 31.0})
    assert outages.missed_bounds({**good, "all_keys_flow_s": 61.0, "states_wrong": 1}) == [
        "1 states_wrong",
        "records of all keys flow after 61.0 s",
    ]
    assert outages.missed_bounds({**good, "zombies": 1, "needless_replacements": 2})
    assert outages.missed_bounds({**good, "charged": 1}) == ["1 charged"]
    assert not outages.missed_bounds({**good, "replaced_s": 22.0, "resumed_s": 3.0, "zombies": 0})
    assert outages.missed_bounds({**good, "worst_s": 5.1})
    assert outages.missed_bounds({**good, "speed": 0.89})
    assert outages.missed_bounds({"state": "failed after 160 s", "why": "it gave up"}) == [
        "it is failed after 160 s: it gave up"
    ]


def test_each_run_is_appended(tmp_path: Path) -> None:
    file = tmp_path / "outages.json"
    outages.append({"name": "sink"}, file)
    outages.append({"name": "disk"}, file)
    assert [run["name"] for run in json.loads(file.read_text())] == ["sink", "disk"]


def test_the_last_time_of_a_number_is_read(tmp_path: Path) -> None:
    file = tmp_path / "times"
    assert last_times(file) == {}
    times = TimeFile(file)
    times.write(999)
    first = last_times(file)[999]
    times.write(999)
    assert last_times(file)[999] >= first


def test_a_seed_that_raises_an_error_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(seed: int, away_s: float) -> None:
        raise ZeroDivisionError(f"seed {seed}")

    monkeypatch.setattr("benchmarks.simulated.outages.run_day", crash)
    assert overload.try_seed("outages", 0, 0.0, 7) == (7, ["ZeroDivisionError: seed 7"], 1.0)


def test_a_scenario_without_the_required_permissions_is_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(name: str, seconds: float) -> None:
        raise MissingRequirement("it needs root")

    monkeypatch.setattr(outages, "run_scenario", refuse)
    monkeypatch.setattr("sys.argv", ["outages", "partition_peers"])
    assert outages.main() == 0
    assert "partition_peers is skipped: it needs root" in capsys.readouterr().out
