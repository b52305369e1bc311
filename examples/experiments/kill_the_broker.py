"""Kill the broker: open tuples are completed, and reading continues after the outage.

    sunshower experiment run examples/experiments/kill_the_broker.py --cluster ray

It needs the extras `kafka` and `servers`. A real Kafka with one broker is filled, and gets a
SIGKILL and a restart twice. The client that reads from it has a small buffer, so that the outage
has an effect. Look for: no emits while the broker is down, all emitted messages are completed, no
timeouts, and every number in the sink.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import cache, partial

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sunshower import Bolt, Context, Number, Topology
from sunshower.dev import Kafka
from sunshower.experiments import (
    AtLeastOnce,
    CheckResult,
    Duplicates,
    Experiment,
    Facts,
    History,
    NoPrematureAck,
    Recovers,
    Step,
    What,
    at,
    outage,
)
from sunshower.kafka import KafkaSpout, Received

TOTAL = 4_000
_SETTINGS = {"queued.max.messages.kbytes": 16, "fetch.message.max.bytes": 8_192}


@cache
def broker() -> Kafka:
    """A real broker, which ends with this process."""
    return Kafka().start()


def filled() -> str:
    """A new topic with the numbers from 0 on, in messages of 100 bytes."""
    topic, where = f"numbers-{uuid.uuid4().hex[:8]}", {"bootstrap.servers": broker().bootstrap}
    admin = AdminClient(where)
    admin.create_topics([NewTopic(topic, 2)])[topic].result(60)
    producer = Producer(where)
    for value in range(TOTAL):
        producer.produce(topic, b"%0100d" % value)
    assert producer.flush(60) == 0, "the numbers were not delivered"
    return topic


def number(message: Received) -> Number:
    return Number(int(message.value))


class Slow(Bolt[Number, None]):
    """A slow sink that reports each number."""

    def prepare(self, context: Context) -> None:
        self.context = context

    def process(self, record: Number) -> None:
        self.context.clock.sleep(0.002)
        self.context.wrote(record.value)


class AllSeen:
    """Every number of the topic reached the sink."""

    name = "all-seen"

    def check(self, history: History, facts: Facts) -> CheckResult:
        seen = {key for key, _ in history.rows(What.WROTE).details}
        missing = sorted(set(range(TOTAL)) - seen)
        said = f"{len(missing)} numbers were never seen, such as {missing[:3]}"
        return CheckResult(
            f"{len(seen)} of {TOTAL} numbers were seen", broken=[said] * bool(missing)
        )


def topology() -> Topology:
    topic = filled()
    settings = {"bootstrap.servers": broker().bootstrap, "group.id": topic, **_SETTINGS}
    topology = Topology("from-kafka", spout_pending=100)
    spout = KafkaSpout(settings, topics=[topic], translate=number, emits=Number)
    topology.spout("numbers", spout).fields("value").bolt("sink", Slow, parallelism=1)
    return topology


def plan(away_s: float) -> Iterator[Step]:
    away = outage(
        "the broker", partial(broker().kill, 1), partial(broker().restart, 1), for_s=away_s
    )
    yield from at(3.0, away)
    yield from at(8.0 + away_s, away)


experiment = Experiment(
    name="kill-the-broker",
    about="The broker that the topology reads from is killed twice and restarted.",
    topology=topology,
    plan=plan,
    checkers=[AtLeastOnce(), NoPrematureAck(), AllSeen(), Recovers(60), Duplicates()],
    parameters={"away_s": 3.0},
    messages_max=TOTAL,
    simulated=False,
)
