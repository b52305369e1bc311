"""Tests of wrong experiments and options: each message says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Write
from tests.conftest import Sunshower
from tests.experiments.runner.experiment_files import HEAD, HOLDING

Capture = pytest.CaptureFixture[str]
WITH_PLAN = (
    HEAD
    + """
    experiment = Experiment(
        name="x", topology=lambda: small(20), plan=lambda: {plan}, checkers=(AtLeastOnce(),)
    )
"""
)
NOTHING = HEAD + "    only = small(10)\n    word = 'x'\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def check(
    capsys: Capture, sunshower: Sunshower, status: int, arguments: tuple[object, ...], *message: str
) -> None:
    """Check the status and the words of the message; no traceback, and no folder."""
    assert sunshower("experiment", *arguments) == status
    error = " ".join(capsys.readouterr().err.replace("│", " ").split())
    for words in message:
        assert words in error
    assert "Traceback" not in error
    assert not Path("experiments").exists()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (NOTHING, "has no experiment; make one at its top level"),
        (NOTHING, "It has: only (a Topology)"),
        (HOLDING + "    other = experiment\n    del experiment\n    a = other", "several experim"),
        ("experiment = 3", "is of type int, not Experiment"),
        (WITH_PLAN.format(plan="at(1, kill(component('nobody')))"), "'nobody'"),
        (WITH_PLAN.format(plan="at(1, lossy(for_s=1, drop=2))"), "it must be a probability of at"),
    ],
)
def test_a_wrong_file(
    code: str, message: str, write: Write, sunshower: Sunshower, capsys: Capture
) -> None:
    target = f"{write(code)}:experiment" if "= 3" in code else write(code)
    check(capsys, sunshower, 1, ("run", target), message)


def test_a_file_that_is_not_there(sunshower: Sunshower, capsys: Capture) -> None:
    check(capsys, sunshower, 1, ("run", "nowhere.py"), "does not exist", "experiment run kill")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--set", "speed=3"), "'speed' is not a parameter of this experiment"),
        (("--set", "speed=3"), "total, kill_every_s, timeout_s"),
        (("--set", "total"), "is not NAME=VALUE"),
        (("--set", "total=many"), "total is a whole number such as 200, not 'many'"),
        (("--sweep", "speed=1,2"), "'speed' is not a parameter"),
        (("--sweep", "total="), "has no values; write them with commas: total=1,2,5"),
        (("--sweep", "total=,"), "has no values"),
        (("--sweep", "total"), "is not NAME=VALUE,VALUE"),
        (("--sweep", "total=1,x"), "not 'x'"),
        (("--set", "total=3", "--sweep", "total=1,2"), "total: it is set already"),
        (("--repeat", "0"), "--repeat"),
        (("--seed", "-1"), "--seed"),
        (("--cluster", "moon"), "--cluster"),
    ],
)
def test_wrong_options(
    options: tuple[str, ...], message: str, write: Write, sunshower: Sunshower, capsys: Capture
) -> None:
    check(capsys, sunshower, 2, ("run", write(HOLDING), *options), message)


def test_an_address_without_a_ray_is_refused(
    write: Write, sunshower: Sunshower, capsys: Capture
) -> None:
    arguments = ("run", write(HOLDING), "--cluster", "ray", "--address", "127.0.0.1:1")
    check(capsys, sunshower, 1, arguments, "no Ray answers at 127.0.0.1:1")


def test_unknown_runs_are_refused(sunshower: Sunshower, capsys: Capture) -> None:
    arguments = ("compare", "this", "that")
    check(capsys, sunshower, 1, arguments, "no run 'this'", "no run 'that'", "no runs at all")
    check(capsys, sunshower, 1, ("show", "this"), "no run 'this' in experiments")
    check(capsys, sunshower, 1, ("show",), "sunshower experiment run FILE.py")
