"""Spouts that share partitions by the brokers' group: joining, leaving, and stale commits."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sunshower import Retry
from sunshower.dev.kafka import Kafka
from sunshower.errors import KafkaUnreachable, StaleGeneration
from sunshower.kafka.consuming.consumer import Consumer
from sunshower.kafka.consuming.partition_reader import Wanted
from sunshower.kafka.consuming.start_position import StartPosition
from sunshower.kafka.options import Interceptor, KafkaOptions, by_broker_group
from sunshower.kafka.partitions.broker_offsets import KafkaOffsets
from sunshower.kafka.partitions.ports import (
    Committed,
    Partition,
    RebalanceListener,
)
from sunshower.kafka.spout import KafkaSpout
from tests.kafka.producing.rig import paused
from tests.kafka.stage import Run, Seen, running, topology
from tests.kafka.topics import end_sessions_after, fill, new_topic
from tests.structure.reading import ROOT

# For a spout the strategies differ in whether a rebalance revokes all partitions.
NEW = "the new protocol"  # in which the brokers assign
LONG = tuple(pytest.param(way, marks=pytest.mark.long) for way in ("cooperative-sticky", NEW))
STRATEGIES = ("range", "cooperative-sticky", NEW)
ALL = ("range", *LONG)


def settings(kafka: Kafka, strategy: str = "range") -> dict[str, Any]:
    group = {"bootstrap.servers": kafka.bootstrap, "group.id": f"g-{uuid.uuid4().hex[:8]}"}
    if strategy == NEW:
        return {**group, "group.protocol": "consumer"}
    return {
        **group,
        "partition.assignment.strategy": strategy,
        "session.timeout.ms": 60_000,  # no member ends without leaving the group
        "heartbeat.interval.ms": 500,
    }


class CommitWitness(Interceptor):
    """The last committed offset of each partition, over all tasks."""

    def __init__(self) -> None:
        self.offsets: dict[Partition, int] = {}

    def __deepcopy__(self, memo: object) -> CommitWitness:
        return self

    def on_commit(self, offsets: Mapping[Partition, Committed]) -> None:
        self.offsets |= {partition: committed.offset for partition, committed in offsets.items()}


def member(topic: str, base: dict[str, Any]) -> KafkaSpout:
    options = KafkaOptions(sharing=by_broker_group, commit_s=0.1)
    return KafkaSpout(base, topics=[topic], options=options)


def partition_count(run: Run) -> int:
    return len(run.contiguous())


def numbers(*runs: Run) -> list[int]:
    return sorted(int(record.value) for run in runs for record in run.records())


def step_both(first: Run, second: Run, until: Any) -> None:
    """Step both runs in turn, until the condition is true."""

    def happened() -> bool:
        second.core.step()
        return bool(until())

    first.until(happened)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_member_that_joins_gets_partitions_and_one_that_leaves_returns_them(
    kafka: Kafka, strategy: str
) -> None:
    topic, base = new_topic(kafka.bootstrap, 4), settings(kafka, strategy)
    for partition in range(4):
        fill(kafka.bootstrap, topic, [b"%d" % n for n in range(partition, 400, 4)], partition)
    with running(topology(member(topic, base))) as first:
        first.until(lambda: partition_count(first) == 4 and len(first.records()) >= 100)
        with running(topology(member(topic, base))) as second:
            step_both(
                first, second, lambda: partition_count(first) == 2 and partition_count(second) == 2
            )
            for partition in range(4):
                values = [b"%d" % n for n in range(400 + partition, 800, 4)]
                fill(kafka.bootstrap, topic, values, partition)
            step_both(
                first,
                second,
                lambda: sum((first.contiguous() | second.contiguous()).values()) == 800,
            )
            assert second.records(), "it has read its share"
            seen = numbers(first, second)
            assert set(seen) == set(range(800)), "nothing is lost"
            second_read = second.records()
        first.until(lambda: partition_count(first) == 4)
        fill(kafka.bootstrap, topic, [b"800"], 3)
        first.until(lambda: 800 in numbers(first))
        assert {int(r.value) for r in second_read} <= set(range(800))


@pytest.mark.parametrize("strategy", ALL)
def test_what_a_member_has_settled_is_committed_before_another_gets_the_partition(
    kafka: Kafka, strategy: str
) -> None:
    topic, base = new_topic(kafka.bootstrap, 2), settings(kafka, strategy)
    for partition in range(2):
        fill(kafka.bootstrap, topic, [b"%d" % n for n in range(partition, 100, 2)], partition)
    witness = CommitWitness()
    options = KafkaOptions(sharing=by_broker_group, commit_s=3600.0, interceptor=witness)
    spout = KafkaSpout(base, topics=[topic], options=options)
    with running(topology(spout)) as first:
        first.until(lambda: sum(first.contiguous().values()) == 100)
        with running(topology(spout)) as second:
            step_both(first, second, lambda: partition_count(first) == partition_count(second) == 1)
            assert sum((first.contiguous() | second.contiguous()).values()) == 100
        first.until(lambda: partition_count(first) == 2)
        fill(kafka.bootstrap, topic, [b"100"])
        first.until(lambda: 100 in numbers(first))
        assert numbers(first, second) == [*range(101)], "nothing is read twice"
        assert first.spout().result()["stale commits"] == 0
    ends = {Partition(topic, number): 50 for number in range(2)}
    assert witness.offsets in [ends | {partition: 51} for partition in ends], "at the end, too"


def test_a_spout_whose_broker_does_not_answer_is_deactivated_and_closed_at_once(
    kafka: Kafka,
) -> None:
    topic, base = new_topic(kafka.bootstrap), settings(kafka)
    fill(kafka.bootstrap, topic, [b"0"])
    options = KafkaOptions(sharing=by_broker_group, commit_s=3600.0)
    spout = KafkaSpout(base, topics=[topic], options=options)
    with running(topology(spout)) as run:
        run.until(lambda: run.contiguous() == {f"{topic}[0]": 1})
        steps: list[str] = []

        def end() -> None:
            run.spout().deactivate()
            steps.append("deactivated")
            run.spout().poll(0)
            steps.append("polled")
            run.spout().close()
            steps.append("closed")

        ending = threading.Thread(target=end, daemon=True)
        with paused(kafka):
            ending.start()
            ending.join(60)
            assert steps == ["deactivated", "polled", "closed"]


def test_a_commit_of_a_partition_that_has_another_owner_is_refused(kafka: Kafka) -> None:
    topic, base = new_topic(kafka.bootstrap), settings(kafka)
    fill(kafka.bootstrap, topic, [b"0"])
    with running(topology(member(topic, base))) as run:
        run.until(lambda: run.contiguous() == {f"{topic}[0]": 1})
        stranger = Consumer(base)
        try:
            with pytest.raises(StaleGeneration, match="nothing is committed"):
                KafkaOffsets(stranger).write({Partition(topic, 0): Committed(0)})
        finally:
            stranger.close()


def test_a_stale_commit_is_counted_and_the_spout_continues(kafka: Kafka) -> None:
    topic, base = new_topic(kafka.bootstrap), settings(kafka)
    fill(kafka.bootstrap, topic, [b"0"])
    with running(topology(member(topic, base))) as run:
        run.until(lambda: run.contiguous() == {f"{topic}[0]": 1})
        offsets, stale = run.spout()._reader.committer._offsets, [StaleGeneration("an older one")]
        soon = offsets.write_soon

        def refused(wanted: Wanted) -> Future[None] | None:
            if not stale:
                return soon(wanted)
            written: Future[None] = Future()
            written.set_exception(stale.pop())
            return written

        offsets.write_soon = refused
        fill(kafka.bootstrap, topic, [b"1"])
        run.until(lambda: run.spout().result()["stale commits"] == 1)
        before = run.spout().result()["commits"]
        run.until(lambda: run.spout().result()["commits"] > before)
        assert not run.errors()


@pytest.mark.parametrize("strategy", ALL)
def test_a_member_that_cannot_read_its_offsets_joins_again(
    kafka: Kafka, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, base = new_topic(kafka.bootstrap, 2), settings(kafka, strategy)
    for partition in range(2):
        fill(kafka.bootstrap, topic, [b"%d" % partition], partition)
    fails, read = [True, True], KafkaOffsets.read

    def fails_twice(self: KafkaOffsets, partitions: Any) -> Any:
        if partitions and fails and fails.pop():
            raise KafkaUnreachable("no answer")
        return read(self, partitions)

    monkeypatch.setattr(KafkaOffsets, "read", fails_twice)
    with running(topology(member(topic, base), task_errors_max=6)) as run:
        run.until(lambda: numbers(run) == [0, 1])
        run.until(lambda: sum(run.contiguous().values()) == 2)
        assert "no answer" in run.errors()[0]
        assert not fails


@pytest.mark.parametrize("strategy", ALL)
def test_a_member_that_starts_at_the_end_commits_that_offset_at_once(
    kafka: Kafka, strategy: str
) -> None:
    topic, base = new_topic(kafka.bootstrap), settings(kafka, strategy)
    fill(kafka.bootstrap, topic, [b"0", b"1", b"2"])
    options = KafkaOptions(sharing=by_broker_group, commit_s=3600.0, first=StartPosition.LATEST)
    spout = KafkaSpout(base, topics=[topic], options=options)
    with running(topology(spout)) as run:
        run.until(lambda: partition_count(run) == 1)
        here = Partition(topic, 0)
        assert run.spout()._offsets.read([here])[here].offset == 3
        assert run.spout().result()["failed commits"] == 0
        fill(kafka.bootstrap, topic, [b"3"])
        run.until(lambda: numbers(run) == [3])


@pytest.mark.parametrize("strategy", ALL)
def test_a_group_reads_all_topics_that_match_a_pattern_also_new_ones(
    kafka: Kafka, strategy: str
) -> None:
    name = f"p-{uuid.uuid4().hex[:8]}"
    for topic in (f"{name}-1", f"{name}-x"):
        new_topic(kafka.bootstrap, name=topic)
        fill(kafka.bootstrap, topic, [b"1"])
    options = KafkaOptions(sharing=by_broker_group, refresh_s=0.5)
    spout = KafkaSpout(settings(kafka, strategy), pattern=name + r"-\d", options=options)
    with running(topology(spout)) as run:
        run.until(lambda: numbers(run) == [1])
        new_topic(kafka.bootstrap, name=f"{name}-2")
        fill(kafka.bootstrap, f"{name}-2", [b"2"])
        run.until(lambda: {*numbers(run)} == {1, 2})  # a rebalance may repeat the first
        assert not run.errors()


def test_fetched_messages_of_a_revoked_partition_are_read_by_the_new_owner(kafka: Kafka) -> None:
    topic, base = new_topic(kafka.bootstrap, 2), settings(kafka, "cooperative-sticky")
    for partition in range(2):
        values = [b"%d" % n for n in range(partition, 200, 2)]
        fill(kafka.bootstrap, topic, values, partition)
    stuck = [True]
    bolt = Seen(lambda _: stuck[0])
    retry = Retry(attempts=1_000_000, initial_s=0.3, max_s=0.3)
    program = topology(member(topic, base), bolt, retry=retry, spout_pending=4)
    with running(program) as first:
        first.until(lambda: partition_count(first) == 2 and len(first.spout()._reader.ahead) >= 3)
        with running(topology(member(topic, base))) as second:
            step_both(first, second, lambda: len(second.records()) == 100)
            stuck[0] = False
            step_both(first, second, lambda: len(first.records()) >= 100)
            assert numbers(first, second) == list(range(200))


@pytest.mark.parametrize(
    ("strategy", "shares"), [("range", [[0, 1], [2]]), ("roundrobin", [[0, 2], [1]])]
)
def test_a_strategy_divides_the_partitions_among_those_that_subscribe(
    kafka: Kafka, strategy: str, shares: list[list[int]]
) -> None:
    """Kafka: org/apache/kafka/clients/consumer/RangeAssignor.java, RoundRobinAssignor.java."""
    base, topics = settings(kafka, strategy), [new_topic(kafka.bootstrap, 3) for _ in range(2)]
    shared, other = sorted(topics)
    options = KafkaOptions(sharing=by_broker_group)

    def assigned(run: Run, topic: str) -> list[int]:
        return sorted(p.number for p in run.spout().standing() if p.topic == topic)

    both = topology(KafkaSpout(base, topics=topics, options=options))
    single = topology(KafkaSpout(base, topics=[shared], options=options))
    with running(both) as first, running(single) as second:
        step_both(
            first,
            second,
            lambda: assigned(second, shared) and len(assigned(first, other)) == 3,
        )
        step_both(
            first, second, lambda: len(assigned(first, shared) + assigned(second, shared)) == 3
        )
        assert sorted([assigned(first, shared), assigned(second, shared)]) == shares
        assert (assigned(first, other), assigned(second, other)) == ([0, 1, 2], [])


class Log(RebalanceListener):
    """Records calls: what, and the numbers of the partitions."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []

    def __deepcopy__(self, memo: object) -> Log:
        return self

    def assigned(self, partitions: Collection[Partition]) -> None:
        self.calls.append(("assigned", sorted(partition.number for partition in partitions)))

    def revoked(self, partitions: Collection[Partition], *, lost: bool) -> None:
        self.calls.append(("lost" if lost else "revoked", sorted(p.number for p in partitions)))


@pytest.mark.long
@pytest.mark.parametrize("strategy", ALL)
def test_the_partitions_of_an_expelled_member_are_lost_also_if_a_rebalance_had_begun(
    kafka: Kafka, strategy: str
) -> None:
    topic, base = new_topic(kafka.bootstrap, 4), settings(kafka, strategy)
    if strategy != NEW:
        base["session.timeout.ms"] = 6_000
    log = Log()
    options = KafkaOptions(sharing=by_broker_group, listener=log)
    slow = KafkaSpout({**base, "max.poll.interval.ms": 6_000}, topics=[topic], options=options)
    with running(topology(slow)) as first:
        first.until(lambda: partition_count(first) == 4)
        with running(topology(member(topic, base))) as second:  # and the first one stands still
            second.until(lambda: partition_count(second) == 4)
            step_both(
                first, second, lambda: partition_count(first) == 2 and partition_count(second) == 2
            )
            calls = [*log.calls]  # both runs end later
    lost = [number for what, partitions in calls for number in partitions if what == "lost"]
    assert sorted(lost) == [0, 1, 2, 3]
    assert "revoked" not in {what for what, _ in calls}


def read_until_killed(topic: str, base: dict[str, Any], file: str) -> None:
    """Run a member that writes the number of its partitions into the file at each step, once a line
    was read: the imports of its process take longer than the session of a member may last."""
    input("ready\n")
    with running(topology(member(topic, base))) as run:
        run.until(lambda: not Path(file).write_text(str(partition_count(run))), within_s=600)


@contextmanager
def process(topic: str, base: dict[str, Any], file: Path) -> Iterator[subprocess.Popen[bytes]]:
    call = f"from {__name__} import read_until_killed as r; r({topic!r}, {base!r}, {str(file)!r})"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", call], cwd=ROOT, **pipes) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline()
            yield child
        finally:
            child.kill()


def test_a_static_member_keeps_its_partitions_and_waits_for_a_killed_one_of_its_name(
    kafka: Kafka, tmp_path: Path
) -> None:
    topic, base = new_topic(kafka.bootstrap, 4), settings(kafka, NEW)
    end_sessions_after(kafka.bootstrap, base["group.id"], 10_000)
    log, file = Log(), tmp_path / "count"
    options = KafkaOptions(sharing=by_broker_group, commit_s=0.1, listener=log)
    stays = KafkaSpout({**base, "group.instance.id": "stays"}, topics=[topic], options=options)
    moves = {**base, "group.instance.id": "moves"}

    def send(first: int) -> None:
        for partition in range(4):
            values = [b"%d" % n for n in range(first + partition, first + 40, 4)]
            fill(kafka.bootstrap, topic, values, partition)

    with process(topic, moves, file) as child, running(topology(stays)) as first:
        with running(topology(member(topic, moves))) as second:
            step_both(first, second, lambda: partition_count(first) == partition_count(second) == 2)
        before = [*log.calls]
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
        first.until(lambda: file.exists() and file.read_text() == "2")
        assert log.calls == before, "the partitions were kept for the member of that name"
        child.kill()
        child.wait()
        send(0)
        with running(topology(member(topic, moves))) as third:
            step_both(first, third, lambda: any("'moves-0'" in text for text in third.errors()))
            step_both(first, third, lambda: partition_count(first) == partition_count(third) == 2)
            send(40)
            step_both(first, third, lambda: {*numbers(first, third)} == {*range(80)})


@pytest.mark.long
def test_a_static_member_of_the_classic_protocol_is_replaced_by_a_program_of_its_name(
    kafka: Kafka,
) -> None:
    topic = new_topic(kafka.bootstrap)
    base = {**settings(kafka), "group.instance.id": "same"}
    with running(topology(member(topic, base))) as first:
        first.until(lambda: partition_count(first) == 1)
        with running(topology(member(topic, base))) as second:
            step_both(first, second, lambda: any("'same-0'" in text for text in first.errors()))
            fill(kafka.bootstrap, topic, [b"1"])
            second.until(lambda: numbers(second) == [1])
            assert "give each spout, also of another program, an id of its own" in first.errors()[0]
