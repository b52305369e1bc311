"""Mutated packets with a correct checksum stop no worker and take little memory.

`make test` sends 3,000 of them, and `make test-all` a million (marker `mutants`).
"""

from __future__ import annotations

import random
import resource
import sys
from collections import Counter
from functools import cache, partial
from typing import NamedTuple
from unittest.mock import patch
from zlib import crc32

import msgpack
import numpy as np
import pyarrow as pa
import pytest

from sunshower import Counter as Numbers
from sunshower import Derived, Number, Topology, batch
from sunshower.errors import CorruptPacket
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.transport import packets
from sunshower.runtime.transport.packets import read_content
from sunshower.runtime.transport.peer_link import PacketReceiver
from sunshower.simulation.network import SimPacket
from sunshower.simulation.worker import SimWorker
from tests.runtime.network import Network
from tests.security.hostile import mutated_bytes, mutated_messagepack

BODY = packets._HEADER.size + packets._ADDRESS.size
EACH = 250  # packets to one network
GROWTH_MAX = 256 << 20  # bytes of resident memory, over all packets


class Delivery(NamedTuple):
    """A packet, and the address of the worker that received it."""

    peer: int
    data: bytes


def twice(number: Number) -> list[Number]:
    """Fails for every tenth number."""
    if number.value % 10 == 9:
        raise ValueError(f"no {number}")
    return [number, number]


@batch
def columns(table: pa.Table) -> Derived:
    return Derived(table, np.arange(len(table)))


def keep(number: Number) -> None: ...


def network(seed: int) -> Network:
    """Its packets contain rows, columns, reports of acks and failures, verdicts and credits."""
    topology = Topology("t", workers=3, ackers=2, spout_pending=16)
    rows = topology.spout("numbers", Numbers(50)).fields("value").bolt("twice", twice, 2)
    topology.bolt("columns", columns, [rows.shuffle()], 2, fields=Number).all().bolt("keep", keep)
    return Network(make_plan(topology.graph(), Layout.ISOLATE), seed)


@cache
def recorded_packets() -> list[Delivery]:
    """Return the first packets of a run."""
    deliveries: list[Delivery] = []
    deliver = SimWorker.deliver

    def recording(worker: SimWorker, packet: SimPacket) -> None:
        deliveries.append(Delivery(worker.address, packet.data))
        deliver(worker, packet)

    with patch.object(SimWorker, "deliver", recording):
        net = network(1)
        net.until(lambda: len(deliveries) > 500 or len(net.workers) == 0)
    return deliveries


def with_checksum(head: bytes, body: bytes) -> bytes:
    """Return a packet with a correct checksum."""
    magic, version, _ = packets._HEADER.unpack_from(head)
    rest = head[packets._HEADER.size :] + body
    return packets._HEADER.pack(magic, version, crc32(rest, version)) + rest


def has_begun(net: Network) -> bool:
    return bool(net.task("numbers").stats().counts.emitted > 20)


def send_mutated_packets(total: int, seed: int) -> Counter[str]:
    """Send `total` mutated packets to running workers. Return how many were read or dropped."""
    dice, counts = random.Random(seed), Counter[str]()
    while counts.total() < total:
        net = network(dice.randrange(1000))
        net.until(partial(has_begun, net))
        for number in range(EACH):
            delivery = dice.choice(recorded_packets())
            body = mutated_messagepack(delivery.data[BODY:], dice)
            core = net.workers[delivery.peer]
            core.receive(with_checksum(delivery.data[:BODY], body))
            dropped = bool(core._reader.notices())
            counts["dropped" if dropped else "read"] += 1
            core.step()
            if number % 5 == 0:
                list(core.outgoing())
                core.stats()
    return counts


def resident() -> int:
    """Return the largest resident memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("total", [3_000, pytest.param(1_000_000, marks=pytest.mark.mutants)])
@pytest.mark.timeout(0)
def test_mutated_packets_stop_no_worker(total: int) -> None:
    before = resident()
    counts = send_mutated_packets(total, seed=total)
    growth = resident() - before
    sys.stdout.write(f"{counts}, memory {growth >> 20} MiB more\n")
    assert min(counts["dropped"], counts["read"]) > total // 20, counts
    assert growth < GROWTH_MAX


def test_a_packet_with_any_other_byte_is_refused() -> None:
    dice = random.Random(3)
    for _ in range(3_000):
        delivery = dice.choice(recorded_packets())
        data = mutated_bytes(delivery.data, dice)
        receiver = PacketReceiver(delivery.peer, 1)
        if data != delivery.data:
            assert str(receiver.answer(data)) != "0"


def changed_packet(**changed: object) -> bytes:
    """Return a recorded packet with a frame of rows, with the given parts of the frame changed."""
    names = ("target", "source", "index", "seq", "kind", "records")
    names += ("roots", "counts", "edges", "offsets")
    for delivery in recorded_packets():
        content = msgpack.unpackb(delivery.data[BODY:])
        if content[0] and content[0][0][4] == changed.get("kind", 0) and content[0][0][6]:
            content[0][0] = [changed.get(n, v) for n, v in zip(names, content[0][0], strict=True)]
            return delivery.data[:BODY] + msgpack.packb(content)
    raise AssertionError("no such frame")


MANY = (0xFFFF_FFFF).to_bytes(4, "little")
NESTED = b"\xdd\x00\x00\xff\xff" * 400  # nested lists that claim 65,535 elements each


@pytest.mark.parametrize(
    "changed",
    [
        {"counts": MANY * 1_000, "roots": b"\1" * 8_000},
        {"edges": b""},
        {"offsets": b"\xff" * 16},
        {"index": -1},
        {"index": 1 << 40},
        {"seq": "1"},
        {"target": True},
    ],
    ids=str,
)
def test_a_frame_that_contradicts_itself_is_refused_before_it_is_built(
    changed: dict[str, object],
) -> None:
    before = resident()
    with pytest.raises(CorruptPacket):
        read_content(changed_packet(**changed), network(1).plan.streams)
    assert resident() - before < GROWTH_MAX


def test_lists_that_claim_to_be_long_take_no_memory() -> None:
    before = resident()
    head = recorded_packets()[0].data[:BODY]
    with pytest.raises(CorruptPacket):
        read_content(head + NESTED * 200, network(1).plan.streams)
    assert resident() - before < GROWTH_MAX


def test_columns_with_offsets_outside_of_their_memory_are_not_read() -> None:
    table = pa.table({"name": ["one", "two", "three"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data = bytearray(sink.getvalue().to_pybytes())
    at = data.index(bytes([0, 0, 0, 0, 3, 0, 0, 0, 6, 0, 0, 0]))
    data[at + 4 : at + 8] = (1 << 30).to_bytes(4, "little")
    plan = network(1).plan
    frame = read_content(changed_packet(kind=0, records=bytes(data)), plan.streams).frames[0]
    assert frame.error is not None
    from sunshower.runtime.transport.packets import _COLUMNS, _decode_records

    with pytest.raises(pa.ArrowInvalid):
        _decode_records(_COLUMNS, bytes(data), plan.streams[0])
