"""The long run: samples of resources, growth, faults, and the figures on the page."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from benchmarks.endurance import page
from benchmarks.endurance.__main__ import arguments
from benchmarks.endurance.resources import (
    ALL,
    SPARK,
    ResourceUse,
    descendants,
    growth,
    name_of,
    sample,
)
from benchmarks.endurance.soak import SPARK_SUBMIT, kill_java, until_all_continue
from benchmarks.endurance.targets import judge_all

SAMPLES: list[dict[str, Any]] = [
    {"at_s": 5, ALL: [300.0, 30, 13, 2, 0], "worker-0": [300.0, 30, 13, 1, 0]},
    {"at_s": 65, ALL: [120.0, 20, 10, 1, 0], "ZooKeeper": [0.0, 0, 0, 0, 40]},
    {"at_s": 125, ALL: [310.0, 30, 13, 2, 0], "worker-0": [310.0, 30, 13, 1, 0]},
]


def samples(
    first: ResourceUse, last: ResourceUse, count: int = 100
) -> list[dict[str, ResourceUse]]:
    """Samples from `first` to `last` in equal steps."""
    steps = [number / (count - 1) for number in range(count)]
    return [
        {
            "it": ResourceUse(
                *(begin + step * (end - begin) for begin, end in zip(first, last, strict=True))
            )
        }
        for step in steps
    ]


@pytest.mark.parametrize("figure", ["mib", "files", "threads"])
def test_a_growing_figure_is_not_flat(figure: str) -> None:
    held = ResourceUse(100.0, 50, 20, 1)
    grown = held._replace(**{figure: 3 * getattr(held, figure)})
    assert [row["figure"] for row in growth(samples(held, grown)) if not row["flat"]] == [figure]
    assert all(row["flat"] for row in growth(samples(held, held)))
    assert all(row["flat"] for row in growth(samples(grown, held)))


@pytest.mark.parametrize("name", ["actors", "Java processes"])
def test_one_more_actor_or_java_process_is_not_flat(name: str) -> None:
    def of(processes: int) -> dict[str, ResourceUse]:
        return {name: ResourceUse(processes=processes), ALL: ResourceUse(processes=processes)}

    rows = growth([of(3)] * 80 + [of(4)] * 20)
    assert [(row["of"], row["flat"]) for row in rows] == [(name, False)]


def test_a_start_that_settles_is_flat_and_a_peak_at_the_end_is_not() -> None:
    low, high = {"it": ResourceUse(100.0)}, {"it": ResourceUse(400.0)}
    assert growth([low] * 15 + [high] * 85)[0]["flat"]
    assert not growth([low] * 85 + [high] * 15)[0]["flat"]


def test_a_sample_has_this_process_and_its_descendants() -> None:
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, text=True
    ) as child:
        while len(descendants(child.pid)) < 2:
            pass
        assert descendants(os.getpid())[0] == os.getpid()
        before = sample({})  # other tests may have servers in Java
        held = sample({1: "master", child.pid: "worker-3"})
        child.communicate("\n")
    assert held["this program"].processes == 1
    assert held["this program"].mib > 1
    assert held[ALL].processes >= 3
    assert held["actors"].processes == 2
    assert held["worker-3"].processes == 1
    assert held["Java processes"].processes == before["Java processes"].processes


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (b"ray::SunshowerWorker\0", "workers that have just started or ended"),
        (b"ray::IDLE\0", "other processes of Ray"),
        (b"/x/ray/core/src/ray/gcs/gcs_server\0--log_dir", "GCS"),
        (b"/x/ray/core/src/ray/raylet/raylet\0", "raylet"),
        (b"/usr/bin/java\0-Xmx512m\0kafka.Kafka\0", "Java: Kafka"),
        (b"/usr/bin/java\0-cp\0x\0org.apache.spark.deploy.SparkSubmit\0", SPARK),
        (b"/bin/sleep\x001\0", "others"),
    ],
)
def test_processes_are_named_by_their_commands(command: bytes, name: str) -> None:
    assert name_of(command) == name


def test_with_hours_only_the_long_run_is_made() -> None:
    assert arguments(["--hours", "0.5"]).what == ["soak"]
    assert "soak" not in arguments([]).what


def test_chains_continue_when_each_is_past_its_first_known_progress() -> None:
    answers = iter([None, None, [5, 9], None, [6, 9], [0, 0], [6, 10]])
    times = count()
    waited_s = until_all_continue("x", lambda: next(answers), lambda: None, lambda: next(times))
    assert list(answers) == []
    assert waited_s == 7  # the clock was read before the wait, in each pause and at the end


def test_chains_that_do_not_continue_fail_the_run() -> None:
    times = count(step=10)
    for answer in (None, [5, 9]):
        with pytest.raises(TimeoutError, match="after 'x' not all chains continue"):
            until_all_continue("x", lambda a=answer: a, lambda: None, lambda: next(times))


def test_the_java_of_spark_is_killed_and_counted() -> None:
    assert kill_java() == 0
    program = [sys.executable, "-c", "print(flush=True); input()", SPARK_SUBMIT]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(program, text=True, **pipes) as java:
        assert java.stdout is not None
        java.stdout.readline()
        assert kill_java() == 1
    assert java.returncode == -signal.SIGKILL


def report(hours: float, **figures: Any) -> dict[str, Any]:
    rows = [{"of": ALL, "figure": "mib", "first": 1527.5, "last": 1530, "flat": True}]
    faults = {"faults": {"worker killed": 17}, "recovery_s": {"worker killed": 4.2}}
    counts = dict.fromkeys((key for _, key in page.COUNTS), 0)
    others = dict.fromkeys(("failed", "dead_letters", "quarantined", "restarts", "replayed"), 0)
    of_spark = {"drawn": 2_163_462, "rows_of_spark": 719_000, "not_flat": 0}
    run = {"seconds": 3600 * hours, "state": "finished", **faults, **counts, **others, **of_spark}
    results = {"busy_cores": 0.1, "soak": {**run, "growth": rows, "samples": SAMPLES, **figures}}
    return {**results, "targets": judge_all(results)}


@pytest.mark.parametrize(
    "made",
    [
        report(0.5),
        report(1, lost=1),
        report(1, rows_of_spark=0),
        report(1, failed=1, state="failed"),
    ],
)
def test_a_short_run_or_one_that_missed_a_target_is_not_written_into_the_page(
    tmp_path: Path, made: dict[str, Any]
) -> None:
    file = tmp_path / "page.md"
    assert not page.write_figures(made, file)
    assert [*tmp_path.iterdir()] == []


def test_a_run_of_an_hour_replaces_the_figures_of_the_page(tmp_path: Path) -> None:
    copy = tmp_path / "page.md"
    copy.write_text(page.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    for _ in range(2):
        assert page.write_figures(report(1), copy)
        text = copy.read_text()
        figures = text.partition(page.BEGIN)[2].partition(page.END)[0]
        assert "| numbers emitted | 2,163,462 |" in figures
        assert "| worker killed | 17 | 4.2 |" in figures
        assert "| all processes | memory MiB | 1,527.5 | 1,530 |" in figures
        assert max(map(len, figures.splitlines())) <= 100
    before, after = (file.read_text(encoding="utf-8") for file in (page.PAGE, copy))
    assert after.partition(page.BEGIN)[0] == before.partition(page.BEGIN)[0]
    assert after.partition(page.END)[2] == before.partition(page.END)[2]
    assert text.endswith(page.PAGE.read_text().partition(page.END)[2])


def test_the_plot_has_a_line_for_each_process_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    copy = tmp_path / "page.md"
    copy.write_text(page.BEGIN + page.END, encoding="utf-8")
    assert page.write_figures(report(1), copy)
    assert f"]({page.PLOT})" in copy.read_text(encoding="utf-8")
    svg = (tmp_path / page.PLOT).read_text(encoding="utf-8")
    assert svg == page.plot(SAMPLES)
    for text in ("Memory (MiB), all processes", "Threads, each process", "worker-0", "minutes"):
        assert f">{text}</text>" in svg
    assert "ZooKeeper" not in svg  # it has nodes, but no memory


def test_the_page_is_written_again_from_a_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "page.md"
    copy.write_text(page.BEGIN + page.END, encoding="utf-8")
    file = tmp_path / "soak.json"
    with pytest.raises(SystemExit):
        page.main([str(file)], copy)
    assert "make endurance HOURS=1" in capsys.readouterr().err
    file.write_text(json.dumps(report(0.5)), encoding="utf-8")
    assert page.main([str(file)], copy) == 1
    assert "shorter than an hour" in capsys.readouterr().err
    file.write_text(json.dumps(report(1)), encoding="utf-8")
    assert page.main([str(file)], copy) == 0
    assert "| numbers emitted | 2,163,462 |" in copy.read_text(encoding="utf-8")
