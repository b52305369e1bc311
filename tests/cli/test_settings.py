"""Tests of settings: `--set name=value`, `sunshower.toml`, the environment, and their order."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from sunshower.cli.program_options import parse_settings
from tests.cli.conftest import PrintedBy, Write


def test_settings_have_the_types_of_config() -> None:
    assert parse_settings(["spout_pending=1000", "message_timeout_s=2.5", "ackers=none"]) == {
        "spout_pending": 1000,
        "message_timeout_s": 2.5,
        "ackers": None,
    }
    assert parse_settings(
        ["spout_pending=auto", "message_timeout_max_s=60", "check_mutation=true"]
    ) == {
        "spout_pending": "auto",
        "message_timeout_max_s": 60.0,
        "check_mutation": True,
    }


def test_of_two_settings_of_one_name_the_last_counts() -> None:
    assert parse_settings(["workers=1", "workers=3"]) == {"workers": 3}


@pytest.mark.parametrize(
    ("setting", "error_text"),
    [
        ("spout_pending", "is not NAME=VALUE"),
        ("speed=3", "with a NAME of these: message_timeout_s, message_timeout_max_s"),
        ("workers=two", "workers is a whole number, not 'two'"),
        ("workers=none", "workers is a whole number, not 'none'"),
        ("workers=1.5", "workers is a whole number"),
        ("ackers=some", "ackers is a whole number or none"),
        ("message_timeout_s=soon", "message_timeout_s is a number of seconds"),
        ("message_timeout_max_s=soon", "message_timeout_max_s is a number of seconds or none"),
        ("spout_pending=much", "spout_pending is a whole number or auto, not 'much'"),
        ("check_mutation=1", "check_mutation is true or false, not '1'"),
        ("workers=0", "it must be a whole number of at least 1"),
    ],
)
def test_a_wrong_setting_is_an_error_of_usage(setting: str, error_text: str) -> None:
    with pytest.raises(typer.BadParameter, match=error_text.replace("(", r"\(")):
        parse_settings([setting])


# ---- sunshower.toml and the environment ----------------------------------------------------------

TOPOLOGY = """
    from sunshower import Config
    topology = Topology("ten", workers=7, spout_pending=70)
    topology.spout("numbers", Counter(10)).shuffle().bolt("out", Stdout())
"""


@pytest.fixture
def file(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return write(TOPOLOGY)


def rows(printed: str) -> dict[str, list[str]]:
    """Setting → its value, and the words of its source."""
    return {words[0]: words[1:] for line in printed.splitlines() if len(words := line.split()) > 2}


def test_set_wins_over_the_environment_over_the_file_over_the_program(
    file: Path, printed_by: PrintedBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = "workers = 1\nackers = 11\nblock_max_s = 0.5\ncheck_mutation = true\n"
    file.with_name("sunshower.toml").write_text(f'message_timeout_max_s = "none"\n{names}')
    monkeypatch.setenv("SUNSHOWER_ACKERS", "22")
    monkeypatch.setenv("SUNSHOWER_BLOCK_MAX_S", "0.25")
    monkeypatch.setenv("COLUMNS", "400")
    settings = rows(printed_by("describe", "--settings", "--set", "block_max_s=0.125", file).out)
    assert settings["block_max_s"] == ["0.125", "--set"]
    assert settings["ackers"] == ["22", "SUNSHOWER_ACKERS"]
    place = f"{file.with_name('sunshower.toml')},"
    assert settings["workers"] == ["1", place, "line", "2"]
    assert settings["check_mutation"] == ["True", place, "line", "5"]
    assert settings["message_timeout_max_s"] == ["None", place, "line", "1"]
    assert settings["spout_pending"] == ["70", "the", "program"]
    assert settings["deaths_max"] == ["6", "the", "default"]


def test_the_file_of_the_current_folder_counts_if_the_program_has_none(
    file: Path, printed_by: PrintedBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("sunshower.toml").write_text("workers = 5")
    monkeypatch.setenv("COLUMNS", "400")
    assert rows(printed_by("describe", "--settings", file).out)["workers"][0] == "5"
    file.with_name("sunshower.toml").write_text("workers = 6")
    assert rows(printed_by("describe", "--settings", file).out)["workers"][0] == "6"


def test_a_run_has_the_settings_of_the_file(file: Path, printed_by: PrintedBy) -> None:
    Path("sunshower.toml").write_text("ackers = 0")
    assert "untracked" in printed_by("run", "--inline", file).err


@pytest.mark.parametrize(
    ("text", "error_texts"),
    [
        ("workers = 2\nworkerz = 3", ["sunshower.toml, line 2: 'workerz'", "these are: message"]),
        ("[workers]\nmany = 3", ["sunshower.toml, line 1: workers is a whole number, not {"]),
        ("[run]\nworkers = 3", ["sunshower.toml, line 1: 'run' is not a setting"]),
        ('workers = "two"', ["sunshower.toml, line 1: workers is a whole number, not 'two'"]),
        ("workers = 0", ["sunshower.toml, line 1", "at least 1"]),
        ("\nworkers = true", ["sunshower.toml, line 2: workers is a whole number, not 'true'"]),
        ("workers = \nackers = 1", ["sunshower.toml cannot be read", "line 1"]),
        ("message_timeout_max_s = 1", ["sunshower.toml, line 1", "shorter than"]),
    ],
)
def test_what_is_wrong_in_the_file_is_named_with_its_line(
    text: str, error_texts: list[str], file: Path, printed_by: PrintedBy
) -> None:
    Path("sunshower.toml").write_text(text)
    errors = printed_by("run", "--inline", file, status=1).err
    for error_text in error_texts:
        assert error_text in errors


@pytest.mark.parametrize(
    ("variable", "value", "error_text"),
    [
        ("SUNSHOWER_WORKER", "2", "SUNSHOWER_WORKER: 'worker' is not a setting"),
        ("SUNSHOWER_WORKERS", "two", "SUNSHOWER_WORKERS: workers is a whole number, not 'two'"),
        ("SUNSHOWER_WORKERS", "", "SUNSHOWER_WORKERS: workers is a whole number, not ''"),
        ("SUNSHOWER_WORKERS", "0", "SUNSHOWER_WORKERS: workers"),
    ],
)
def test_what_is_wrong_in_the_environment_is_named_with_its_variable(
    variable: str, value: str, error_text: str, file: Path, printed_by: PrintedBy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv(variable, value)
    assert error_text in printed_by("run", "--inline", file, status=1).err


def test_variables_of_a_kubernetes_service_are_no_settings(
    file: Path, printed_by: PrintedBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SERVICE_HOST", "SERVICE_PORT", "PORT", "PORT_80_TCP_ADDR"):
        monkeypatch.setenv(f"SUNSHOWER_{name}", "tcp://10.0.0.1:80")
    printed_by("run", "--inline", file)
