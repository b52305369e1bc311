"""Peers of the benchmarks: their results, their builds, and peers that cannot run here."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.figures import Key
from benchmarks.measure import (
    BenchmarkError,
    Entry,
    MissingRequirement,
    Outcome,
    Sample,
    available,
)
from benchmarks.peer_comparisons import compared_with
from benchmarks.peers import jvm
from benchmarks.peers.cached_builds import cached_build, run_command
from benchmarks.peers.python_peers import last_outcome


def an_entry(system: str) -> Entry:
    return Entry(Key("word_count", system, "silent", "M words/s"), lambda: Sample(1.0))


def test_the_result_of_a_peer_is_found_in_its_log() -> None:
    printed = 'INFO start\n{"begun_s": 1.5, "ended_s": 3.5, "done": 10, "cpu_s": 2.5}\nINFO end\n'
    assert last_outcome(printed) == Outcome(1.5, 3.5, 10, 2.5)


def test_a_peer_that_prints_no_result_is_an_error() -> None:
    with pytest.raises(BenchmarkError, match=r"no result.*ready"):
        last_outcome("ready\n")


def test_a_peer_without_maven_or_java_is_skipped_and_the_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    logged: list[str] = []

    def storm() -> Entry:
        jvm.storm(logged.append)
        return an_entry("storm")

    entries = available({"storm": storm, "flink": lambda: an_entry("flink")}, logged.append)
    assert list(entries) == ["flink"]
    assert logged == [
        "storm is skipped: it needs Maven and a JDK, and there is no java on the PATH"
    ]


def test_a_peer_is_built_once_for_its_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "source"
    source.write_text("1")
    built: list[Path] = []
    assert cached_build("peer", [source], built.append) == cached_build(
        "peer", [source], built.append
    )
    assert len(built) == 1
    source.write_text("2")
    cached_build("peer", [source], built.append)
    assert len(set(built)) == 2


def test_a_failed_build_is_repeated_in_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "source"
    source.write_text("1")

    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise MissingRequirement("no network")

    with pytest.raises(MissingRequirement):
        cached_build("peer", [source], fail)
    folder = cached_build("peer", [source], lambda _: None)
    assert [path.name for path in folder.iterdir()] == ["complete"]


def test_the_error_of_a_command_has_its_output() -> None:
    with pytest.raises(BenchmarkError, match=r"(?s)sh failed.*no such word"):
        run_command(["sh", "-c", "echo no such word >&2; exit 3"], 10)


@pytest.mark.parametrize(
    ("system", "variant", "ours"),
    [
        ("storm", "silent", ("operators-rows", "pack-rows")),
        ("flink", "silent", ("operators-rows", "operators-columns")),
        ("flink", "totals", ("pack-classes",)),
        ("pathway", "silent", ("operators-rows",)),
        ("pyflink", "silent", ("operators-rows",)),
        ("streamparse", "silent", ("pack-rows",)),
    ],
)
def test_a_peer_is_compared_with_our_variants_that_do_the_same(
    system: str, variant: str, ours: tuple[str, ...]
) -> None:
    assert compared_with(Key("word_count", system, variant, "M words/s")) == ours
