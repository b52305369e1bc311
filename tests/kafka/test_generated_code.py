"""Modules that protoc has generated reach a worker that cannot import them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from sunshower.actors.cluster import RayCluster
from sunshower.actors.shipping import pickled, ship
from sunshower.clock import SystemClock
from sunshower.experiments.runner.loading import load
from sunshower.runtime.plan import make_plan

ROOT = Path(__file__).resolve().parents[2]
# The code that protoc generates.
GENERATED = """
from google.protobuf import descriptor_pool
from google.protobuf.internal import builder

DESCRIPTOR = descriptor_pool.Default().AddSerializedFile({serialized!r})
builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, {name!r}, globals())
"""
PROGRAM = """
from typing import Any, NamedTuple
from sunshower import Bolt, Topology
from sunshower.kafka import KafkaSpout, Protobuf
from {package} import shipped_pb2
from {package}.shipped_pb2 import Shipped

class Sale(NamedTuple):
    id: int

def to_bytes(id):
    yield shipped_pb2.Shipped(id=id).SerializeToString() + Shipped().SerializeToString()

class Bytes(Bolt[Any, None]):
    def __init__(self, of):
        self.of = of

    def execute(self, tuple, out):
        out.ack(tuple)

topology = Topology("sales")
settings = {{"bootstrap.servers": "127.0.0.1:9", "group.id": "sales"}}
source = KafkaSpout(settings, topics=["sales"], value=Protobuf(Shipped, Sale))
sales = topology.spout("sales", source)
sales.shuffle().bolt("bytes", Bytes(to_bytes))
"""
ON_RAY = """
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple
from sunshower import JsonLines, Records, Topology
from {package} import shipped_pb2

class Number(NamedTuple):
    id: int

def numbers():
    for number in count():  # it does not end before the test does
        yield Number(number)

def convert(number: Number) -> Iterator[Number]:
    yield Number(shipped_pb2.Shipped(id=number.id).id)

topology = Topology("generated", workers=1, spout_pending=10)
source = topology.spout("numbers", Records(numbers, type=Number))
source.flat_map(convert).shuffle().bolt("lines", JsonLines({out!r}))
"""
# A process that forwards the plan, as a master does; and one that unpickles it, as a worker does.
MASTER = """
import sys
from ray import cloudpickle
from sunshower.actors.shipping import pickled
sys.stdout.buffer.write(pickled(cloudpickle.loads(sys.stdin.buffer.read())))
"""
WORKER = """
import sys
from ray import cloudpickle
data = sys.stdin.buffer.read()
graph = cloudpickle.loads(data).graph
format = graph.components["sales"].implementation.reads[0]
(data_of_7,) = graph.components["bytes"].implementation.of(7)
print(format.decoder("sales", "value")(data_of_7))
"""


def run(program: str, data: bytes) -> bytes:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, input=data, capture_output=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def generate(tmp_path: Path) -> str:
    """Write a module shipped_pb2 in a new package. Returns the package's name."""
    package = f"shop{tmp_path.name.replace('-', '_')}"
    file = FileDescriptorProto(name=f"{package}/shipped.proto", package=package, syntax="proto3")
    file.message_type.add(name="Shipped").field.add(name="id", number=1, type=3, label=1)
    folder = tmp_path / package
    folder.mkdir()
    (folder / "shipped_pb2.py").write_text(
        GENERATED.format(serialized=file.SerializeToString(), name=f"{package}.shipped_pb2")
    )
    return package


@pytest.mark.parametrize("has_init", [False, True])
def test_a_generated_module_is_sent_as_source(tmp_path: Path, has_init: bool) -> None:
    package = generate(tmp_path)
    if has_init:
        (tmp_path / package / "__init__.py").touch()
    program = tmp_path / "program_of_generated_code.py"
    program.write_text(PROGRAM.format(package=package))
    loaded = load(str(program))
    ship(loaded.modules)
    data = pickled(make_plan(loaded.topology.graph()))
    answer = run(WORKER, run(MASTER, data))
    assert answer.decode().splitlines() == ["Sale(id=7)"]


@pytest.mark.long
def test_a_topology_with_a_generated_module_runs_on_ray_and_is_upgraded(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    package, out = generate(tmp_path), tmp_path / "lines.jsonl"
    (tmp_path / "program_on_ray.py").write_text(ON_RAY.format(package=package, out=str(out)))
    loaded = load(str(tmp_path / "program_on_ray.py"))
    ship(loaded.modules)
    run = ray_cluster.submit(loaded.topology.graph())
    try:
        wait_until(lambda: out.exists() and len(out.read_text().splitlines()) > 10)
        graph = loaded.topology.graph()
        run.rebalance(2)
        run.upgrade(graph)
        before = len(out.read_text().splitlines())
        wait_until(lambda: len(out.read_text().splitlines()) > before + 10)
    finally:
        run.kill(wait_s=5)


def wait_until(true: Callable[[], bool]) -> None:
    clock = SystemClock()
    end_s = clock.now() + 60.0
    while not true():
        assert clock.now() < end_s
        clock.sleep(0.05)
