"""docs/PERFORMANCE.md is generated from the results, and missed targets have reasons."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks import profiling
from benchmarks.figures import Key, Ratio, Series, Target
from benchmarks.performance.page import DOCS, FOLDER, files, missed_without_reason, read_frames
from benchmarks.performance.page import write_page as write
from benchmarks.results_file import Run, read, rows_and_ratios, with_targets

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
    return with_targets(rows_and_ratios(series, [ratio], RUN), PLACE, [])


def test_the_page_and_its_plots_are_generated_from_the_results() -> None:
    contents = files(read(), read_frames(), profiling.read())
    written = {str(path.relative_to(DOCS)) for path in (DOCS / FOLDER).iterdir()}
    assert written == {path for path in contents if path.startswith(FOLDER)}, (
        "make bench writes the plots"
    )
    for path, text in contents.items():
        shown, numbers = without_numbers((DOCS / path).read_text(encoding="utf-8"))
        same, expected = without_numbers(text)
        assert shown == same and numbers == pytest.approx(expected, abs=1e-4), (  # noqa: PT018
            f"docs/{path} is not up to date: run python -m benchmarks.performance.page"
        )


def without_numbers(text: str) -> tuple[str, list[float]]:
    """The text without decimal numbers, and these: the last digit of a point in a plot depends on
    the processor."""
    number = re.compile(r"-?\d+\.\d+")
    return number.sub("#", text), [float(digits) for digits in number.findall(text)]


def test_each_missed_target_has_a_reason() -> None:
    assert not missed_without_reason(read()), "add it to the target in benchmarks/targets.py"


def test_a_missed_target_without_a_reason_is_found() -> None:
    measured = {**results(), "ratios": {"const_id_null/pack-rows/storm": 0.5}}
    assert missed_without_reason(measured) == ["const_id_null/pack-rows/storm"]


def test_the_page_shows_rows_ratios_targets_and_plots() -> None:
    contents = files(results())
    assert set(contents) == {
        "PERFORMANCE.md",
        *(f"performance/{name}.svg" for name in ("systems", "words", "loop", "load", "keys")),
        *(f"performance/latency-{percent}.svg" for percent in ("p50", "p99")),
    }
    page = contents["PERFORMANCE.md"]
    assert "| 1 (0.5 to 1.5) | met | `word_count/operators-rows/loop` |" in page
    assert "| word_count | sunshower | operators-rows | 2 (1 to 3) | M words/s |" in page
    assert "| `word_count/operators-rows/loop` | 1 (0.5 to 1.5) | 2 | 2026-11-24 | abc |" in page
    assert "## Others" in page
    assert all(f"]({path})" in page for path in contents if path.endswith(".svg"))


def test_queries_from_files_have_a_table_with_a_column_for_each_system() -> None:
    ours, loop, flink = (
        Key("nexmark_files", system, "q5", "M bids/s")
        for system in ("sunshower", "loop", "flink-sql")
    )
    series = [Series(ours, [0.3]), Series(loop, [0.6]), Series(flink, [0.1])]
    ratios = [Ratio(f"nexmark_files/q5/{key.system}", ours, key) for key in (loop, flink)]
    page = files(with_targets(rows_and_ratios(series, ratios, RUN), PLACE, []))["PERFORMANCE.md"]
    assert "|  | sunshower | loop | flink-sql |" in page
    assert "| q5 | 0.3 | 0.6 (0.5 ×) | 0.1 (3 ×) |" in page
    assert "| ≥ 1.5 × Flink SQL (Java) | 3 | met | `nexmark_files/q5/flink-sql` |" in page


def test_plots_have_the_same_bytes_each_time_and_follow_the_theme() -> None:
    first, again = files(results()), files(results())
    assert first == again
    for path, svg in first.items():
        if path.endswith(".svg"):
            ET.fromstring(svg)  # raises if it is not XML
            assert "prefers-color-scheme:dark" in svg
            assert "currentColor" in svg
            assert len(svg) < 40_000


STACKS = {
    "loop;Worker.step (sunshower/runtime/worker.py:9);PacketSockets._wait (sunshower/x.py:3)": 60,
    "loop;a[0] (<task>:0);split (words.py:3)": 25,
    "loop;a[0] (<task>:0);split (words.py:3);flatten (site-packages/pyarrow/x.py:1)": 5,
    "loop;Router.send (sunshower/runtime/transport/routing.py:7)": 10,
    "calls of Ray;f (words.py:9)": 1_000,
}


def test_a_profile_has_the_shares_of_the_loop_and_the_functions_with_most_samples() -> None:
    assert profiling.shares(STACKS) == {
        "samples": 100,
        "waiting": 60,
        "parts": {"user code": 75, "routing": 25},
        "functions": {"split": 75, "Router.send": 25},
    }


def test_each_profile_of_missed_targets_is_printed_once() -> None:
    profile = {"date": "2026-11-24", "commit": "abc", **profiling.shares(STACKS)}
    profiles = {"word_count/operators-rows": profile, "word_count/pack-rows": profile}
    peers = ("loop", "bytewax", "storm")
    targets = [Target(f"word_count/operators-rows/{peer}", 1) for peer in peers]
    (sentence,) = profiling.sentences(profiles, [*targets, Target("idle/sunshower/six", 1)])
    assert sentence == (
        "[Profile](PROFILING.md#the-table) of `word_count/operators-rows`, commit abc, 2026-11-24: "
        "60% waiting; of the other samples user code 75%, routing 25%; most samples are in `split` "
        "75%, `Router.send` 25%."
    )
    longer = {"kafka/pack-null-at-least-once": profile}
    (sentence,) = profiling.sentences(longer, [Target("kafka/at-least-once/loop", 1)])
    assert "`kafka/pack-null-at-least-once`" in sentence
    heading = "Profiles of these runs"
    assert heading not in files(results(), None, profiles)["PERFORMANCE.md"]
    missed = {**results(), "ratios": {"word_count/operators-rows/loop": 0.1}}
    assert heading in files(missed, None, profiles)["PERFORMANCE.md"]


def test_frame_times_are_shown_if_there_are_any() -> None:
    row = {"what": "scroll", "value": 16.6, "unit": "ms", "date": "2026-11-24", "commit": "abc"}
    assert "| scroll | 16.6 | ms |" in files(results(), {"rows": [row]})["PERFORMANCE.md"]
    assert "## The web page" not in files(results())["PERFORMANCE.md"]


def test_a_plot_that_the_page_no_longer_has_is_removed(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    old = tmp_path / FOLDER / "old.svg"
    old.touch()
    write(results(), tmp_path)
    assert not old.exists()
    assert (tmp_path / FOLDER / "words.svg").exists()
