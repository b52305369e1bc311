"""Tests of the example experiments: each holds in the simulator, and shows its effect."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sunshower.experiments import Experiment, Outcome, Verdict, run_experiment
from sunshower.experiments.experiment import combinations
from sunshower.experiments.runner.loading import load_experiment
from sunshower.simulation.cluster import SimCluster
from tests import seeds
from tests.conftest import Sunshower

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

FOLDER = Path(__file__).resolve().parents[2] / "examples/experiments"
FILES = {path.stem: path for path in sorted(FOLDER.glob("*.py"))}
# Shorter than in the examples, and still long enough to show the same effects.
SHORT: dict[str, dict[str, Any]] = {
    "keyed_streams": {"rate": 600.0, "kill_s": 0.7},
    "kill_a_bolt": {"total": 800, "kill_s": 0.6},
    "kill_an_acker_shard": {"total": 800, "kill_s": 0.8},
    "kill_the_spout": {"total": 800, "kill_s": 0.8},
    "slow_bolt": {"total": 1_200, "slow_s": 1.5},
    "lossy_network": {"total": 1_800, "bad_s": 2.0, "cut_s": 1.0},
    "poison_tuple": {"total": 1_200, "poison_s": 1.5},
    "rolling_kill": {"total": 1_000, "kill_s": 0.6},
    "acker_shards": {"total": 1_000, "kill_s": 0.4},
    "timeout_sweep": {"total": 500, "rate": 100.0, "pause_s": 1.5},
    "replay_storm": {"total": 500, "slow_s": 3.0},
}
Runs = list[tuple[Mapping[str, Any], Outcome]]
every_seed = seeds.seeds(3)

# These depend on systems that the simulator does not have.
REAL = {"disturbed_kafka", "exactly_once", "heavy_transform", "kill_the_broker"}


def experiment_of(name: str) -> Experiment:
    experiment, _ = load_experiment(str(FILES[name]))
    return experiment


@cache
def simulate(name: str, seed: int) -> Runs:
    """Run each combination of the sweep; if one seed is run, only the first and the last.

    An experiment without a sweep has one run.
    """
    experiment = experiment_of(name)
    runs: Runs = []
    swept = list(combinations(experiment.sweep))
    for combination in swept[:: max(1, len(swept) - 1)] if seeds.collected_max == 1 else swept:
        parameters = {**SHORT[name], **combination}
        with SimCluster(seed) as cluster:
            runs.append((combination, run_experiment(experiment, cluster, seed, parameters)[0]))
    return runs


def test_every_ready_experiment_is_tested() -> None:
    assert set(FILES) == set(SHORT) | REAL
    assert {name for name in FILES if not experiment_of(name).simulated} == REAL


@every_seed
@pytest.mark.parametrize("name", sorted(SHORT))
def test_each_experiment_holds(name: str, seed: int) -> None:
    for combination, outcome in simulate(name, seed):
        reasons_found = [(finding.checker, finding.reasons) for finding in outcome.findings]
        assert outcome.verdict is Verdict.HOLDS, (combination, outcome.error, reasons_found)
        assert not outcome.undone, combination


@pytest.mark.parametrize("name", sorted(FILES))
def test_each_experiment_has_a_description_and_its_command(name: str) -> None:
    experiment = experiment_of(name)
    assert experiment.name == name.replace("_", "-")
    assert experiment.about
    text = FILES[name].read_text(encoding="utf-8")
    assert f"sunshower experiment run examples/experiments/{name}.py" in text
    assert len(text.splitlines()) <= 160


def test_a_killed_bolt_causes_replays_and_no_timeout() -> None:
    ((_, outcome),) = simulate("kill_a_bolt", 0)
    assert outcome.figures["replays"] > 0
    assert "failed: timeout" not in outcome.figures


def test_a_killed_spout_emits_again_without_a_failure() -> None:
    ((_, outcome),) = simulate("kill_the_spout", 0)
    assert outcome.figures["replays"] > outcome.figures["failed"] == 0


def test_a_slow_bolt_causes_no_replay() -> None:
    ((_, outcome),) = simulate("slow_bolt", 0)
    assert outcome.figures["replays"] == 0
    assert outcome.figures["latency_p99_s"] > 10 * outcome.figures["latency_p50_s"]


def test_poison_tuples_become_dead_letters_and_all_others_are_written() -> None:
    ((_, outcome),) = simulate("poison_tuple", 0)
    figures = outcome.figures
    assert 0 < figures["dead"] == figures["messages"] - figures["written"]


def test_every_kind_of_process_is_killed() -> None:
    ((_, outcome),) = simulate("rolling_kill", 0)
    assert {recovery.fault for recovery in outcome.recoveries} == {
        *("kill numbers[0]", "kill relay[0]", "kill sink[0]", "kill __acker[0]", "kill the master")
    }


@pytest.mark.long
def test_a_timeout_longer_than_the_pause_fails_nothing() -> None:
    timeouts = {
        combination["timeout_s"]: outcome.figures.get("failed: timeout", 0)
        for combination, outcome in simulate("timeout_sweep", 0)
    }
    assert min(timeouts[0.5], timeouts[1]) > 0 == timeouts[2] == timeouts[5] == timeouts[30]


@every_seed
def test_automatic_pending_causes_fewer_replays(seed: int) -> None:
    replays = [outcome.figures["replays"] for _, outcome in simulate("replay_storm", seed)]
    assert replays[0] > 1.5 * replays[1], replays


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["kill_a_bolt", "rolling_kill", "poison_tuple"])
def test_experiments_hold_on_ray(
    name: str, ray_cluster: RayCluster, sunshower: Sunshower, tmp_path: Path
) -> None:
    del ray_cluster  # the command finds the running Ray
    options = ("--cluster", "ray", "--folder", tmp_path)
    assert sunshower("experiment", "run", FILES[name], *options) == 0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_experiment_holds_on_ray_with_a_real_broker(releases: None, tmp_path: Path) -> None:
    """In its own process, because the broker runs until that process ends."""
    command = ("experiment", "run", FILES["kill_the_broker"], "--cluster", "ray")
    done = subprocess.run(
        [sys.executable, "-m", "sunshower", *command, "--set", "away_s=1", "--folder", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (results,) = tmp_path.glob("kill-the-broker/2*/results.json")
    assert json.loads(results.read_text())["figures"]["faults"] == 2


def test_an_experiment_that_cannot_be_simulated_is_refused(
    sunshower: Sunshower, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sunshower("experiment", "run", FILES["kill_the_broker"], "--folder", tmp_path) == 1
    error = " ".join(capsys.readouterr().err.split())
    assert "'kill-the-broker' cannot be simulated" in error
    assert "Add --cluster ray" in error
    assert not list(tmp_path.iterdir())
