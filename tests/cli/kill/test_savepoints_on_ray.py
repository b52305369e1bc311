"""Tests of `kill --keep` and `submit --resume` on a real Ray."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import NewTopic

from sunshower import Bolt, Context, Counter, Number, Topology
from sunshower.dev.kafka import Kafka
from sunshower.errors import LifecycleError
from sunshower.kafka.consuming.consumer import Consumer
from sunshower.kafka.partitions.broker_offsets import KafkaOffsets
from sunshower.kafka.partitions.ports import Committed, Partition
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.control.savepoint import Savepoint
from sunshower.runtime.events.metrics import Snapshot
from tests.cli.conftest import Command, Write
from tests.kafka.producing.rig import paused
from tests.kafka.topics import admin, fill, new_topic

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster
    from sunshower.actors.run import RayRun

pytestmark = pytest.mark.ray

TOTAL = 40
WORDS = """
    from pathlib import Path
    from sunshower import Spout, KeyState

    GATE = Path({gate!r})

    class Word(NamedTuple):
        key: int
        number: int

    class Note(NamedTuple):
        word: Word

    class Words(Spout[Word]):
        def records(self) -> Iterator[Word | None]:
            for number in range({total}):
                while number == {total} // 2 and not GATE.exists():
                    yield None
                yield Word(number % 2, number)

    class Emits(Spout[Word]):
        def open(self, context):
            self.next = 0

        def next_tuple(self, out):
            if self.next < {total} // 2:
                out.emit(Word(0, self.next), message_id=Word(1, self.next))
                self.next += 1

        def snapshot(self):
            return self.next

        def restore(self, next):
            self.next = next

    def lag(word: Word, state: KeyState[Word]) -> list[Word]:
        old, state.value = state.value, word
        return [] if old is None else [old]

    def late(word: Word) -> Iterator[Word]:
        if not GATE.exists():
            raise ValueError("not yet")
        yield word

    class Sink(Bolt[Word, None]):
        def prepare(self, context: Context) -> None:
            self.seen = set()

        def process(self, word: Word) -> None:
            self.seen.add(Note(word))

        def snapshot(self) -> object:
            return self.seen

        def restore(self, state: object) -> None:
            self.seen = state

        def result(self) -> list[int]:
            assert all(type(note) is Note and type(note.word) is Word for note in self.seen)
            return sorted(note.word.number for note in self.seen)

    topology = Topology("words", workers=2, attempts_max=1_000)
    words = topology.spout("words", Words())
    words.group_by("key").process(lag, name="lag").shuffle().bolt("sink", Sink)
    topology.spout("emits", Emits()).shuffle().bolt("late", late).shuffle().bolt("all", Sink)
"""


def until(run: RayRun, what: Callable[[Snapshot], bool]) -> None:
    """Wait until `what` holds for the snapshot."""
    while not what(run.snapshot()):
        assert not run.wait(0.1)


def gone(file: Path) -> Path:
    """A savepoint with an object of a package that this machine does not have."""
    savepoint = Savepoint.from_bytes(file.name, file.read_bytes())
    sink = next(task.id for task in savepoint.tasks if task.component == "sink")
    other = replace(savepoint, transfers={**savepoint.transfers, sink: b"cgone_package\nThing\n."})
    path = file.with_name("gone")
    path.write_bytes(other.to_bytes())
    return path


def test_objects_of_classes_in_the_submitted_file_are_of_the_resumed_code(
    command: Command, here: Command, ray_cluster: RayCluster, write: Write, tmp_path: Path
) -> None:
    path = write(WORDS.format(gate=str(tmp_path / "gate"), total=TOTAL))
    savepoint = tmp_path / "words.savepoint"
    command("submit", path, "--no-wait")
    run = ray_cluster.find("words")
    until(run, lambda seen: seen.component("words").acked == TOTAL // 2)  # none is emitted again
    until(run, lambda seen: seen.component("late").failed >= TOTAL // 2)
    here("kill", "words", "--wait", 0, "--keep", savepoint)
    output = here("submit", path, "--resume", gone(savepoint), status=3).stderr
    assert "the state of sink[0]" in output
    assert "No module named 'gone_package'" in output
    assert "There is no topology" in here("list").stdout
    command("submit", path, "--resume", savepoint, "--no-wait")
    (tmp_path / "gate").touch()
    run = ray_cluster.find("words")
    until(run, lambda seen: seen.component("words").acked == TOTAL // 2)
    until(run, lambda seen: seen.component("emits").acked == TOTAL // 2)
    assert run.results("sink") == [[*range(TOTAL - 2)]], "each word but the last of each key"
    assert run.results("all") == [[*range(TOTAL // 2)]]
    assert not run.snapshot().component("words").failed


class Odd(Bolt[Number, None]):
    """Its state has an object of a class that only its process has."""

    def prepare(self, context: Context) -> None:
        self.seen = type("Local", (), {})()

    def process(self, number: Number) -> None: ...

    def snapshot(self) -> object:
        return self.seen

    def restore(self, state: object) -> None:
        self.seen = state


def even(number: Number) -> None: ...


@pytest.mark.parametrize("bolt", [Odd, even])
def test_a_topology_without_a_savepoint_or_with_an_unused_one_continues(
    ray_cluster: RayCluster, bolt: Any
) -> None:
    topology = Topology("numbers", workers=2, spout_pending=64)
    topology.spout("count", Counter()).shuffle().bolt("sink", bolt)
    run = ray_cluster.submit(topology.graph())
    if bolt is even:
        run.keep()
        assert run.go_on()
    else:
        with pytest.raises(LifecycleError, match="refers to class Local of module tests"):
            run.keep()
    acked = run.snapshot().component("count").acked
    until(run, lambda seen: seen.state == State.ACTIVE and seen.component("count").acked > acked)
    run.kill(0.0)


OUTAGE = """
    from sunshower.kafka import KafkaBolt, KafkaOptions, KafkaSpout, Received
    from sunshower.kafka import StartPosition, by_broker_group

    SERVERS = {{"bootstrap.servers": {bootstrap!r}, "group.id": "{topic}"}}

    class Value(NamedTuple):
        value: int

    def read(received: Received) -> Value:
        return Value(int(received.value))

    class Sink(Bolt[Value, None]):
        def prepare(self, context: Context) -> None:
            self.seen = set()

        def process(self, value: Value) -> None:
            self.seen.add(value.value)

        def snapshot(self) -> object:
            return self.seen

        def restore(self, state: object) -> None:
            self.seen = state

        def result(self) -> list[int]:
            return sorted(self.seen)

    topology = Topology("outage", workers=2)
    first = StartPosition.{first}
    options = KafkaOptions(sharing=by_broker_group, first=first)
    spout = KafkaSpout(SERVERS, topics=["{topic}"], translate=read, options=options)
    values = topology.spout("in", spout, 2)
    values.shuffle().bolt("sink", Sink)
    if {writes}:
        values.shuffle().bolt("out", KafkaBolt(SERVERS, "{topic}-out"))
"""


@pytest.mark.long
@pytest.mark.parametrize(("writes", "first"), [(True, "EARLIEST"), (False, "UNCOMMITTED_EARLIEST")])
def test_a_savepoint_of_an_outage_is_resumed_at_the_first_try(
    command: Command, ray_cluster: RayCluster, write: Write, tmp_path: Path, kafka: Kafka,
    writes: bool, first: str,
) -> None:  # fmt: skip
    topic, savepoint = new_topic(kafka.bootstrap, 2), tmp_path / "outage.savepoint"
    admin(kafka.bootstrap).create_topics([NewTopic(f"{topic}-out", 1)])[f"{topic}-out"].result()
    code = OUTAGE.format(bootstrap=kafka.bootstrap, topic=topic, writes=writes, first=first)
    path, here = write(code), Partition(topic, 0)
    fill(kafka.bootstrap, topic, [b"%d" % number for number in range(100)], 0)
    command("submit", path, "--no-wait")
    run = ray_cluster.find("outage")
    with closing(Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic})) as stranger:
        offsets, none = KafkaOffsets(stranger), Committed(0)
        until(run, lambda _: offsets.read([here]).get(here, none).offset == 100)
    with paused(kafka):
        command("kill", "outage", "--wait", 1, "--keep", savepoint)
        waits = command("submit", path, "--resume", savepoint, status=3).stderr
        assert "does not answer" in waits
    fill(kafka.bootstrap, topic, [b"%d" % number for number in range(100, 200)], 1)
    run = ray_cluster.find("outage")
    until(run, lambda seen: seen.component("in").acked >= 100)
    assert run.results("sink") == [[*range(200)]]
    counts = run.snapshot().component("in")
    assert (counts.emitted, counts.acked, counts.failed) == (100, 100, 0)
