"""Totals of batches in a Kafka topic: the last message of each word has its exact count.

The worker that writes is killed meanwhile. The topology is the recipe in docs/EXACTLY_ONCE.md.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from sunshower import Topology
from sunshower.dev.kafka import Kafka
from sunshower.kafka import BatchOptions, Json, KafkaTransactional, TransactionalKafkaBolt
from sunshower.state import SqliteState
from sunshower.trident import Bounds, InSqlite, batches, count
from tests.guarantee.deaths import RECOVERY_S
from tests.kafka.topics import fill, new_topic, read_all

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

WORDS = [f"word-{number % 97}" for number in range(3_000)]


class Word(NamedTuple):
    word: str


@pytest.mark.long
@pytest.mark.servers
def test_the_last_message_of_each_word_has_its_count_although_the_writer_is_killed(
    ray_cluster: RayCluster, kafka: Kafka, tmp_path: Path
) -> None:
    source, out = new_topic(kafka.bootstrap), new_topic(kafka.bootstrap)
    fill(kafka.bootstrap, source, [json.dumps({"word": word}).encode() for word in WORDS])
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": source}
    options = BatchOptions(bounds=Bounds(records=50), until_end=True)
    topology, store = Topology("totals"), InSqlite(tmp_path / "batches.db")
    spout = KafkaTransactional(settings, topics=[source], value=Json(Word), options=options)
    totals = (
        batches(topology, "words", spout, store=store, max_batches=2, interval_s=0.1)
        .group_by("word")
        .aggregate(count(), state=SqliteState(tmp_path / "counts.db"))
    )
    write = TransactionalKafkaBolt(settings, out, key="word", transactional_id=out)
    totals.records("out").shuffle().bolt("write", write)
    run = ray_cluster.submit(topology.graph())
    try:
        (task,) = run.plan.tasks_of("write")
        end_s, is_killed = time.monotonic() + RECOVERY_S, False
        while time.monotonic() < end_s and not run.wait(0.05):
            if not is_killed and run.snapshot().figures("$mastercoord-words").get("txid", 0) >= 4:
                run.kill_worker(task.worker)
                is_killed = True
        assert run.finished(), run.snapshot()
        assert is_killed
        assert run.snapshot().restarts
    finally:
        run.stop()
    messages = read_all(kafka.bootstrap, out)
    last = {message.key(): json.loads(message.value() or b"") for message in messages}
    assert {total["word"]: total["count"] for total in last.values()} == Counter(WORDS)
