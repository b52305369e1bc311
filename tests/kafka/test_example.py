"""The Kafka example on Ray counts every word although its broker is killed in the middle."""

from __future__ import annotations

import json
import runpy
from collections import Counter
from pathlib import Path

import pytest

from sunshower.actors.cluster import RayCluster
from sunshower.clock import SystemClock
from sunshower.dev.kafka import Kafka
from sunshower.runtime.plan import Layout
from tests.kafka.topics import admin, read_all

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/kafka_word_count.py"
WITHIN_S = 200.0
MESSAGES = 8_000


@pytest.mark.long
@pytest.mark.timeout(400)
def test_all_words_are_counted_although_the_broker_is_killed(
    kafka: Kafka, ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA", kafka.bootstrap)
    client = admin(kafka.bootstrap)
    left = [name for name in ("lines", "totals") if name in client.list_topics(timeout=30).topics]
    for done in (client.delete_topics(left) if left else {}).values():
        done.result(60)
    example = runpy.run_path(str(EXAMPLE))
    sent = example["fill"](MESSAGES)
    clock = SystemClock()
    end_s = clock.now() + WITHIN_S
    run = ray_cluster.submit(example["topology"].graph(), Layout.PACK)

    def acked(count: int) -> None:
        while run.snapshot().component("lines").acked < count:
            assert clock.now() < end_s, run.snapshot()
            clock.sleep(0.1)

    try:
        acked(500)
        kafka.kill(1)
        kafka.restart(1)
        sent += example["fill"](1000, seed=8)
        acked(MESSAGES + 1000)
        replayed = run.snapshot().component("lines").replayed
    finally:
        run.stop()
    totals = Counter[str]()
    for message in read_all(kafka.bootstrap, "totals"):
        total = json.loads(message.value() or b"")
        totals[total["word"]] = max(totals[total["word"]], total["times"])
    assert totals.keys() == sent.keys()
    more = {word: totals[word] - sent[word] for word in sent}
    assert min(more.values()) >= 0, "a word is missing"
    assert sum(more.values()) <= 8 * replayed, "only replayed lines are counted twice"
