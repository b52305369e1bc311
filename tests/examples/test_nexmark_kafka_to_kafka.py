"""Queries of Nexmark from Kafka to Kafka on a real Ray: each result is there once, whatever dies.

Workers, that of the coordinator, the broker and the stores of the states fail meanwhile.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from examples.nexmark.events import Event, events
from examples.nexmark.inputs import declare
from examples.nexmark.queries import QUERIES
from sunshower import Topology
from sunshower.dev.kafka import Kafka
from sunshower.json_values import json_text
from sunshower.kafka import BatchOptions, Json, KafkaMessages, KafkaOpaque, KafkaTransactional
from sunshower.runtime.plan import Layout
from sunshower.state import PostgresState, RedisState
from sunshower.trident import Bounds, InSqlite, batches
from tests.actors.programs.evidence import submitted, worker_of
from tests.examples.plain_nexmark import PLAIN, Sorted
from tests.examples.test_nexmark import KEYS
from tests.guarantee.deaths import RECOVERY_S, until
from tests.kafka.topics import fill, new_topic, read_all

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster
    from sunshower.actors.run import RayRun

COUNT, RATE, PARTITIONS = 3_000, 10, 2
# q4 and q9 have rows of a state of the same name, so they are in two programs.
PROGRAMS = {
    "redis": (("q4", "q5", "q7", "q11"), KafkaOpaque),
    "postgres": (("q9", "q20"), KafkaTransactional),
}


def filled(bootstrap: str) -> str:
    topic = new_topic(bootstrap, PARTITIONS)
    generated = events(COUNT, rate=RATE)
    for partition in range(PARTITIONS):
        values = [json_text(event).encode() for event in generated[partition::PARTITIONS]]
        fill(bootstrap, topic, values, partition)
    return topic


def program(
    kafka: Kafka, source: str, names: Sequence[str], spout: type[Any], state: Any, folder: Path
) -> tuple[Topology, dict[str, str]]:
    """The queries in one topology, and the topic of each."""
    topology = Topology("nexmark", workers=3)
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": source}
    options = BatchOptions(bounds=Bounds(records=60), until_end=True)
    read = spout(settings, topics=[source], value=Json(Event), options=options)
    about: Any = {"store": InSqlite(folder / "batches.db"), "max_batches": 2, "interval_s": 0.3}
    stream: Any = batches(topology, "events", read, parallelism=2, **about)
    inputs, topics = declare(topology, stream, 2, state), dict[str, str]()
    for name in names:
        topics[name] = new_topic(kafka.bootstrap)
        rows: Any = QUERIES[name](inputs)
        target = KafkaMessages(
            *(settings, topics[name]), transactional_id=topics[name], state=state, name=f"to-{name}"
        )
        rows.apply(target).named(f"to-{name}")
    return topology, topics


def txid(run: RayRun) -> float:
    return run.snapshot().figures("$mastercoord-events").get("txid", 0.0)


def disturb(run: RayRun, faults: Sequence[Callable[[], None]]) -> None:
    """After each three batches one fault, until all were injected."""
    for fault in faults:
        begun = txid(run)
        until(lambda begun=begun: run.finished() or txid(run) >= begun + 3)
        assert not run.finished(), "it has ended before all faults"
        fault()


def lines(kafka: Kafka, topic: str) -> Iterator[str]:
    for message in read_all(kafka.bootstrap, topic, **{"isolation.level": "read_committed"}):
        yield json.dumps([*json.loads(message.value() or b"").values()])


def check(kafka: Kafka, name: str, topic: str) -> None:
    """The rows are those of the plain program, each once; of totals, the last row of each key."""
    written = [*lines(kafka, topic)]
    wanted = Counter(json.dumps(row) for row in PLAIN[name](Sorted(events(COUNT, rate=RATE))))
    if name in KEYS:
        written = [*{str(json.loads(row)[: KEYS[name]]): row for row in written}.values()]
    rows = Counter(written)
    assert (name, wanted - rows, rows - wanted) == (name, Counter(), Counter())


@pytest.mark.long
@pytest.mark.servers
@pytest.mark.parametrize("store", PROGRAMS)
def test_each_result_is_in_its_topic_once_although_everything_dies(
    ray_cluster: RayCluster,
    kafka: Kafka,
    store: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    names, spout = PROGRAMS[store]
    address = request.getfixturevalue(store)
    state: Any = PostgresState(address)
    if store == "redis":
        state = RedisState(address, prefix=uuid.uuid4().hex)
    source = filled(kafka.bootstrap)
    topology, topics = program(kafka, source, names, spout, state, tmp_path)
    with submitted(ray_cluster, topology, layout=Layout.PACK) as run:

        def kill(component: str) -> None:
            run.kill_worker(worker_of(run, component))

        def break_broker() -> None:
            kafka.kill(1)
            kafka.restart(1)

        stop = stop_redis if store == "redis" else end_clients_of_postgres
        faults = [
            partial(kill, f"to-{names[0]}"),
            partial(kill, "$mastercoord-events"),
            partial(stop, address),
            break_broker,
            partial(kill, "offers"),
            partial(kill, f"to-{names[1]}"),
        ]
        disturb(run, faults)
        assert run.wait(RECOVERY_S), run.snapshot()
        assert run.snapshot().restarts >= 4
    for name, topic in topics.items():
        check(kafka, name, topic)


def stop_redis(address: str) -> None:
    """It answers nobody for twelve seconds: longer than a client waits."""
    import redis

    with redis.Redis.from_url(address) as client:
        client.execute_command("CLIENT", "PAUSE", 12_000)


def end_clients_of_postgres(address: str) -> None:
    import psycopg

    with psycopg.connect(address) as client:
        client.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        )
