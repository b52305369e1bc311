"""Tests of `sunshower submit` with topologies that cannot work, on a real Ray."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from sunshower.dev.kafka import Kafka
from tests.cli.conftest import Command, Write
from tests.servers import SecuredKafka

pytestmark = pytest.mark.ray
long = pytest.mark.long

STORE = """
    class Store(Bolt[Number, None]):
        def prepare(self, context: Context) -> None:
            {prepare}

        def process(self, record: Number) -> None:
            {process}

    topology = Topology("broken", workers=1)
    topology.spout("numbers", Counter(3)).shuffle().bolt("store", Store, 2)
"""
SINK = """
    from sunshower.kafka import KafkaBolt, TransactionalKafkaBolt

    topology = Topology("broken", workers=1)
    topology.spout("numbers", Counter(3)).shuffle().bolt("store", {sink})
"""
BATCHES = """
    from sunshower.kafka import KafkaTransactional, Received
    from sunshower.state import SqliteState
    from sunshower.trident import FixedBatchSpout, InSqlite, batches, count

    def number(received: Received) -> Number:
        return Number(received.offset)

    def drop(number: Number) -> None: ...

    topology = Topology("broken", workers=1)
"""


def store(prepare: str = "...", process: str = "...") -> str:
    return STORE.format(prepare=prepare, process=process)


# What is broken → the file, and what `submit` says about it.
BROKEN = {
    "an exception in prepare": (
        store(prepare='raise ValueError("no such table: sales")'),
        (
            "store[0] on worker 0 is quarantined (on probation: tried again, every 30 s at most): "
            "prepare of store[0] raised ValueError: no such table: sales"
        ),
    ),
    "a module that prepare imports": (
        store(prepare="import no_such_module"),
        "ModuleNotFoundError: No module named 'no_such_module'",
    ),
    "a dependency that process needs": (
        store(process='raise ConnectionRefusedError("no database answers at localhost:1")'),
        "last error: ConnectionRefusedError: no database answers at localhost:1",
    ),
    "every record": (
        store(process='record.value + "one"'),
        " of spout 'numbers' failed 5 times, the last time exception in store[",
    ),
    "a prepare that does not return": (
        store(prepare="__import__('time').sleep(60)"),
        (
            "are not open yet: user code of the worker has not returned; "
            "`sunshower profile broken` shows where it is"
        ),
    ),
    "the source": (
        """
        from sunshower import Spout

        class Odd(Spout[Number]):
            def records(self) -> Iterator[Number]:
                yield Number(1 + "one")

        topology = Topology("broken", workers=1)
        topology.spout("odd", Odd).shuffle().bolt("out", Stdout)
        """,
        "records of odd[0] raised TypeError",
    ),
    "the open of the source": (
        """
        from sunshower import Spout

        class Odd(Spout[Number]):
            def open(self, context: Context) -> None:
                open("/no/such/file")

            def records(self) -> Iterator[Number]:
                yield Number(1)

        topology = Topology("broken", workers=1)
        topology.spout("odd", Odd).shuffle().bolt("out", Stdout)
        """,
        "FileNotFoundError: [Errno 2] No such file or directory: '/no/such/file'",
    ),
    "a file of a state that cannot be written": (
        BATCHES
        + """
    numbers = batches(topology, "numbers", FixedBatchSpout([Number(1)], 1, type=Number))
    counts = numbers.group_by("value").aggregate(
        count(), state=SqliteState("/proc/counts.db"), fields=("value", "count")
    )
    counts.records("out").shuffle().bolt("drop", Stdout)
    """,
        "/proc/counts.db",
    ),
}
QUICK = {"an exception in prepare", "every record"}


@pytest.fixture
def submit(here: Command, write: Write) -> Command:
    """Submit a broken topology; returns what the command prints, after status 3."""

    def run(*arguments: object, status: int = 3) -> subprocess.CompletedProcess[str]:
        code, *options = arguments
        return here("submit", write(str(code)), *options, status=status)

    return run


@pytest.mark.parametrize(
    "what",
    [mistake if mistake in QUICK else pytest.param(mistake, marks=long) for mistake in BROKEN],
)
def test_submit_says_why_a_topology_does_not_work(
    what: str, submit: Command, here: Command
) -> None:
    code, cause = BROKEN[what]
    output = submit(code)
    assert "broken is active on 1 worker" in output.stdout
    assert cause in output.stderr
    last = output.stderr.splitlines()[-1]
    assert last in (
        "broken does not work yet, and keeps trying.",
        "broken has failed. `sunshower kill broken` removes it.",
    )
    assert "broken is gone" in here("kill", "broken", "--now").stdout


@long
def test_submit_reports_nothing_with_no_wait(submit: Command) -> None:
    output = submit(store(prepare='raise ValueError("odd")'), "--no-wait", status=0)
    assert "quarantined" not in output.stderr


@long
def test_a_module_that_no_node_has_is_named_and_nothing_is_left(
    command: Command, write: Write, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("installed")
    module = "from sunshower import Number\n\ndef drop(number: Number) -> None: ...\n"
    (folder / "only_here.py").write_text(module)
    path = write(f"""
    import sys

    sys.path.insert(0, {str(folder)!r})
    import only_here

    topology = Topology("broken", workers=1)
    topology.spout("numbers", Counter(3)).shuffle().bolt("store", only_here.drop)
    """)
    output = command("submit", path, status=3)
    assert "does not load on node" in output.stderr
    assert "No module named 'only_here'. Install its imports on all nodes" in output.stderr
    assert "There is no topology" in command("list").stdout


@long
@pytest.mark.servers
@pytest.mark.parametrize("bolt", ["KafkaBolt({0}, 'sums')", ("TransactionalKafkaBolt({0}, 'sums', "
                                  "transactional_id='sums')")])  # fmt: skip
def test_a_topic_that_a_sink_needs_is_named(bolt: str, submit: Command, kafka: Kafka) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap}
    output = submit(SINK.format(sink=bolt.format(settings)))
    assert f"there is no topic 'sums' in the Kafka at {kafka.bootstrap}" in output.stderr


@long
@pytest.mark.servers
def test_a_topic_that_a_source_of_batches_needs_is_named(
    submit: Command, kafka: Kafka, tmp_path: Path
) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "sums"}
    output = submit(f"""{BATCHES}
    source = KafkaTransactional({settings}, topics=["absent"], translate=number, emits=Number)
    store = InSqlite({str(tmp_path / "batches.db")!r})
    batches(topology, "numbers", source, store=store).records("out").shuffle().bolt("drop", drop)
    """)
    assert "there is no topic 'absent'" in output.stderr


@long
@pytest.mark.servers
def test_a_wrong_password_is_named(submit: Command, kafka_secured: SecuredKafka) -> None:
    settings = {
        "bootstrap.servers": kafka_secured.kafka.addresses("SASL"),
        **kafka_secured.security.by_password("alice", "wrong"),
    }
    output = submit(SINK.format(sink=f"KafkaBolt({settings}, 'sums')"))
    assert "does not let this client have" in output.stderr
    assert "wrong" not in output.stderr


@long
def test_a_broker_that_is_not_there_is_named(submit: Command) -> None:
    with socket.socket() as closed:  # nothing listens at its port
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        settings = {"bootstrap.servers": address}
        output = submit(SINK.format(sink=f"KafkaBolt({settings}, 'sums')"))
    assert f"the Kafka at {address} does not answer" in output.stderr
    assert output.stderr.endswith("broken does not work yet, and keeps trying.\n")


@long
def test_a_store_of_another_topology_is_named(
    submit: Command, here: Command, tmp_path: Path
) -> None:
    code = f"""{BATCHES}
    source = FixedBatchSpout([Number(1)], 1, type=Number)
    store = InSqlite({str(tmp_path / "batches.db")!r})
    batches(topology, "numbers", source, store=store).records("out").shuffle().bolt("drop", drop)
    """
    submit(code.replace("broken", "earlier"), status=0)
    here("kill", "earlier", "--now")
    output = submit(code)
    assert "is of topology 'earlier', and here is 'broken'" in output.stderr
    assert "broken has failed. `sunshower kill broken` removes it." in output.stderr


@long
@pytest.mark.servers
def test_a_table_that_is_missing_is_named(submit: Command, postgres: str) -> None:
    sink = f"PostgresTable({postgres!r}, 'absent', key='value')"
    code = SINK.replace("sunshower.kafka import KafkaBolt, TransactionalKafkaBolt",
                        "sunshower.connectors import PostgresTable")  # fmt: skip
    output = submit(code.format(sink=sink))
    assert "'absent'" in output.stderr
