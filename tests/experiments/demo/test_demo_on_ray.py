"""Runs the demo on a real Ray, with a real SIGKILL, over a part of the standard library."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import Sunshower

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

Capture = pytest.CaptureFixture[str]
LIBRARY = Path(sysconfig.get_path("stdlib"))
SOME = ["--files", f"{LIBRARY}/[a-t]*.py", "--files", f"{LIBRARY}/email/*.py"]


@pytest.mark.long
def test_a_killed_actor_loses_no_line(
    ray_cluster: RayCluster, sunshower: Sunshower, capsys: Capture
) -> None:
    assert sunshower("demo", "--json", *SOME) == 0
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert report["verdict"] == "HOLDS"
    assert report["lost"] == report["undercounted"] == 0
    assert report["lines"] == report["acked"] > 50_000
    assert report["replayed"] > 0
    assert f"process {report['killed_pid']}" in printed.err
    assert 0 < report["seconds_to_replay"] < report["seconds"]


@pytest.mark.long
def test_without_a_fault_every_count_is_exact(
    ray_cluster: RayCluster, sunshower: Sunshower, capsys: Capture
) -> None:
    assert sunshower("demo", "--no-fault", "--files", f"{LIBRARY}/email/*.py") == 0
    page = capsys.readouterr().out
    assert "HOLDS" in page
    assert "killed process" not in page


def test_too_little_text_for_a_kill_is_unknown(
    ray_cluster: RayCluster, sunshower: Sunshower, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "short.txt").write_text("to be\n")
    assert sunshower("demo", "--files", tmp_path / "short.txt") == 1
    assert "UNKNOWN" in capsys.readouterr().out
