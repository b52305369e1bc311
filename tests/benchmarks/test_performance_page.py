"""docs/PERFORMANCE.md is what the generator makes of the results; missed targets have reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from benchmarks.figures import Key, Ratio, Series
from benchmarks.performance.page import DOCS, FOLDER, files, missed_without_reason, read_frames
from benchmarks.performance.page import write_page as write
from benchmarks.results_file import Run, measured, read, with_targets

RUN = Run("2026-11-24", "abc", 2)
PLACE = {
    "machine": {"cpu": "a processor", "cores": 2, "memory_gib": 8},
    "versions": {"python": "3.11"},
    "commit": "abc",
}
OURS = Key("word_count", "sunshower", "operators-rows", "M words/s")
LOOP = Key("word_count", "loop", "rows", "M words/s")


def a_key(workload: str, variant: str, unit: str) -> Key:
    return Key(workload, "sunshower", variant, unit)


def results() -> dict[str, Any]:
    """Figures for every kind of plot."""
    variants = {
        a_key("latency", "isolate-10-p50", "ms"): [4.0, 5.0],
        a_key("latency", "isolate-100-p50", "ms"): [3.0, 5.0],
        a_key("latency", "isolate-10-p99", "ms"): [40.0, 50.0],
        a_key("load", "pack-p50-load-10", "ms"): [1.0],
        a_key("sweeps", "keys-10", "records/s"): [1e6],
        a_key("sweeps", "keys-1000", "records/s"): [1e5],
        a_key("another", "x", "s"): [1.0],
        OURS: [1.0, 3.0],
        LOOP: [2.0, 2.0],
    }
    series = [Series(key, samples) for key, samples in variants.items()]
    ratio = Ratio("word_count/operators-rows/loop", OURS, LOOP)
    return with_targets(measured(series, [ratio], RUN), PLACE, [])


def test_the_page_and_its_plots_are_what_the_generator_makes_of_the_results() -> None:
    made = files(read(), read_frames())
    written = {str(path.relative_to(DOCS)) for path in (DOCS / FOLDER).iterdir()}
    assert written == {path for path in made if path.startswith(FOLDER)}, "make bench writes them"
    for path, text in made.items():
        assert (DOCS / path).read_text(encoding="utf-8") == text, (
            f"docs/{path} is not that of the results: python -m benchmarks.performance.page"
        )


def test_each_missed_target_has_a_reason() -> None:
    assert not missed_without_reason(read()), "write it beside the target in benchmarks/targets.py"


def test_a_missed_target_without_a_reason_is_found() -> None:
    found = {**results(), "ratios": {"word_count/operators-rows/untracked": 0.5}}
    assert missed_without_reason(found) == ["word_count/operators-rows/untracked"]


def test_the_page_shows_rows_ratios_targets_and_plots() -> None:
    made = files(results())
    assert set(made) == {
        "PERFORMANCE.md",
        *(f"performance/{name}.svg" for name in ("words", "loop", "load", "keys")),
        *(f"performance/latency-{percent}.svg" for percent in ("p50", "p99")),
    }
    page = made["PERFORMANCE.md"]
    assert "| 1 (0.5 to 1.5) | met | `word_count/operators-rows/loop` |" in page
    assert "| word_count | sunshower | operators-rows | 2 (1 to 3) | M words/s |" in page
    assert "| `word_count/operators-rows/loop` | 1 (0.5 to 1.5) | 2 | 2026-11-24 | abc |" in page
    assert "## Others" in page
    assert all(f"]({path})" in page for path in made if path.endswith(".svg"))


def test_plots_are_the_same_bytes_each_time_and_follow_the_theme() -> None:
    first, again = files(results()), files(results())
    assert first == again
    for path, svg in first.items():
        if path.endswith(".svg"):
            ET.fromstring(svg)  # raises if it is not XML
            assert "prefers-color-scheme:dark" in svg
            assert "currentColor" in svg
            assert len(svg) < 40_000


def test_frame_times_are_shown_if_there_are_any() -> None:
    row = {"what": "scroll", "value": 16.6, "unit": "ms", "date": "2026-11-24", "commit": "abc"}
    assert "| scroll | 16.6 | ms |" in files(results(), {"rows": [row]})["PERFORMANCE.md"]
    assert "Frame times" not in files(results())["PERFORMANCE.md"]


def test_a_plot_that_the_page_no_longer_has_is_removed(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    old = tmp_path / FOLDER / "old.svg"
    old.touch()
    write(results(), tmp_path)
    assert not old.exists()
    assert (tmp_path / FOLDER / "words.svg").exists()
