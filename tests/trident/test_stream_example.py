"""Runs the exactly-once example twice on Ray, with the command that its first lines give."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sunshower import TextFiles
from sunshower.state import SqliteState
from tests.conftest import Sunshower

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_example_counts_the_words_of_this_repository_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sunshower: Sunshower,
    ray_cluster: RayCluster,
) -> None:
    monkeypatch.chdir(tmp_path)
    example = REPOSITORY / "examples/exactly_once_word_count.py"
    files = TextFiles(REPOSITORY / "sunshower/**/*.py").files
    expected = Counter(word for file in files for word in Path(file).read_text().split())
    for _ in range(2):  # the second run finds that all batches are committed
        assert sunshower("run", example, "--workers", "1") == 0
        assert dict(SqliteState("exactly_once.db").items()) == expected
