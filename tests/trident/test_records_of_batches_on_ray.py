"""Rows that go from batches to a file on a real Ray: each is there after a worker was killed."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from sunshower import JsonLines, Line, Topology
from sunshower.trident import Bounds, InSqlite, SqliteState, TextFileBatches, batches, count

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

WORDS = [f"word-{n % 97}" for n in range(3_000)]


class Word(NamedTuple):
    word: str


def split(line: Line) -> Iterator[Word]:
    for word in line.text.split():
        yield Word(word)


@pytest.mark.long
def test_each_row_is_in_the_file_after_a_worker_was_killed(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    text = "\n".join(" ".join(WORDS[at : at + 3]) for at in range(0, len(WORDS), 3))
    (tmp_path / "words.txt").write_text(text)
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
        end_s, killed = time.monotonic() + 120, False
        while time.monotonic() < end_s and not run.wait(0.05):
            if not killed and run.snapshot().figures("$mastercoord-lines").get("txid", 0) >= 4:
                run.kill_worker(out.worker)
                killed = True
        assert run.finished(), run.snapshot()
        assert killed
        assert run.snapshot().restarts
    finally:
        run.stop()
    found: Counter[str] = Counter()
    for line in (line for file in tmp_path.glob("out*") for line in file.read_text().splitlines()):
        with suppress(ValueError):  # a line that is incomplete because of the kill
            found[json.loads(line)["word"]] += 1
    assert found >= Counter(WORDS)
    assert dict(state.items()) == Counter(WORDS)
