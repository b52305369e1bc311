"""Rows that go from batches to a file on a real Ray: each is there after a worker was killed."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from sunshower import JsonLines, Line, Topology
from sunshower.state import SqliteState
from sunshower.trident import Bounds, InSqlite, TextFileBatches, batches, count
from tests.guarantee.deaths import until

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

WORDS = [f"{'early' if n < 1_500 else 'late'}-{n % 97}" for n in range(3_000)]


class Word(NamedTuple):
    word: str


@pytest.mark.long
def test_each_row_is_in_the_file_after_a_worker_was_killed(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    text = "\n".join(" ".join(WORDS[at : at + 3]) for at in range(0, len(WORDS), 3))
    (tmp_path / "words.txt").write_text(text)
    killed = tmp_path / "killed"

    def split(line: Line) -> Iterator[Word]:
        """The second half of the lines waits for the kill."""
        while line.text.startswith("late") and not killed.exists():
            threading.Event().wait(0.05)
        for word in line.text.split():
            yield Word(word)

    topology, state = Topology("leaving"), SqliteState(tmp_path / "counts.db")
    spout = TextFileBatches(tmp_path / "words.txt", bounds=Bounds(records=50))
    store = InSqlite(tmp_path / "batches.db")
    words = batches(topology, "lines", spout, store=store, max_batches=2, interval_s=0.2).flat_map(
        split
    )
    left = words.shuffle(parallelism=2).records("left", parallelism=2)
    left.fields("word").bolt("out", JsonLines(tmp_path / "out.jsonl"), parallelism=2)
    words.group_by("word").aggregate(count(), state=state, parallelism=2)
    run = ray_cluster.submit(topology.graph())
    try:
        (out, *_) = run.plan.tasks_of("out")
        until(lambda: run.snapshot().figures("$mastercoord-lines").get("txid", 0) >= 4)
        run.kill_worker(out.worker)
        killed.touch()
        assert run.wait(120), run.snapshot()
        assert run.snapshot().restarts
    finally:
        run.stop()
    found: Counter[str] = Counter()
    for line in (line for file in tmp_path.glob("out*") for line in file.read_text().splitlines()):
        with suppress(ValueError):  # a line that is incomplete because of the kill
            found[json.loads(line)["word"]] += 1
    assert found >= Counter(WORDS)
    assert dict(state.items()) == Counter(WORDS)
