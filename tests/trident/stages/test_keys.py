"""Any value as a key: the same group before and after transport, in one process and in several."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import Spout, Topology, run_inline
from sunshower.clock import ManualClock
from sunshower.json_values import key_of as key_from
from sunshower.json_values import text_of_key
from sunshower.records import Schema, key_of
from sunshower.runtime.plan import Layout, PlannedStream
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.transport.packets import decode_frame, encode_frame
from sunshower.runtime.transport.routing import stable_hash
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from sunshower.topologies.graph import StreamSpec
from tests.runtime import field_values
from tests.runtime.field_values import SCHEMA, Color
from tests.trident.rigs.key_programs import KEYS, ROWS, STORED, Group, KeyCounts, expected, program

STREAM = PlannedStream(0, "a", StreamSpec("default", Schema(("key",))), SCHEMA.classes)


def has_no_surrogate(value: Any) -> bool:
    """Whether a text can be encoded as UTF-8; stored states refuse others."""
    return not isinstance(value, str) or value.encode(errors="ignore").decode() == value


scalars = (
    field_values.keys.filter(has_no_surrogate)
    | st.integers(-5, 5).map(np.int32)
    | st.floats(width=32).map(np.float32)
    | st.booleans().map(np.bool_)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.sets(field_values.nested(field_values.keys), max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner, max_size=3)
    ),
    max_leaves=8,
)


def transported(value: Any) -> Any:
    """A value as another process receives it."""
    fields = encode_frame(0, 0, Batch(0, 0, [(value,)]), STREAM, 1 << 20)
    frame = decode_frame(msgpack.unpackb(msgpack.packb(fields)), [STREAM])
    assert frame.error is None
    return frame.batch.records[0][0]


@given(values)
def test_a_key_is_the_same_after_transport_and_in_a_state(value: Any) -> None:
    key = key_of(value)
    after = key_of(transported(value))
    assert {key: 1}[after] == 1
    assert stable_hash(value) == stable_hash(after)
    assert key_of(key) == key or "nan" in repr(key).lower()
    text = text_of_key(value)
    assert text_of_key(after) == text
    assert {key: 1}[key_from(text)] == 1
    assert text_of_key(key_from(text)) == text


@given(st.lists(values, min_size=1, max_size=8))
def test_equal_keys_have_the_same_group_task_and_state(rows: list[Any]) -> None:
    texts, hashes = dict[Any, str](), dict[Any, int]()
    for key in Schema(("key",)).keys(["key"], [(row,) for row in rows]):
        assert texts.setdefault(key, text_of_key(key)) == text_of_key(key)
        assert hashes.setdefault(key, stable_hash(key)) == stable_hash(key)
    assert len({*texts.values()}) == len(texts)


def check(seen: KeyCounts, counts: MemoryState, pairs: MemoryState) -> None:
    every = expected(STORED)
    assert dict(counts.items("counts")) == every
    assert sum(number for _, number in pairs.items("pairs")) == every.total()
    for name in ("aggregate", "partition_by", "join"):
        assert seen[name] == every, name
    assert seen["window"] == every


@pytest.mark.parametrize("layout", [None, *Layout])
def test_every_grouping_of_a_batch_program_accepts_every_key(layout: Layout | None) -> None:
    seen: KeyCounts = defaultdict(Counter)
    states = {name: MemoryState() for name in ("counts", "pairs", "windows")}
    topology = program(states.__getitem__, seen)
    if layout is None:
        run_inline(topology.graph(), clock=ManualClock(), steps_max=50_000)
    else:
        assert SimCluster(0).submit(topology.graph(), layout).wait(120.0)
    check(seen, states["counts"], states["pairs"])


class Keyed(NamedTuple):
    key: Any | Color
    n: int


class Rows(Spout[Keyed]):
    def records(self) -> Iterator[Keyed]:
        yield from (Keyed(key, n) for n, key in enumerate(KEYS * ROWS))


def core() -> Topology:
    topology = Topology("keys")
    rows = topology.spout("rows", Rows(), parallelism=1)
    rows.fields("key").bolt("fields", Group, parallelism=3, fields=())
    rows.partial_key("key").bolt("partial", Group, parallelism=3, fields=())
    return topology


def check_core(results: Any) -> None:
    tasks = [Counter(dict(counts)) for counts in results("fields")]
    assert sum(tasks, Counter()) == expected(KEYS)
    assert all(
        not (task.keys() & other.keys()) for task in tasks for other in tasks if task != other
    )
    assert sum((Counter(dict(counts)) for counts in results("partial")), Counter()) == expected(
        KEYS
    )


@pytest.mark.parametrize("layout", [None, *Layout])
def test_fields_and_partial_key_accept_every_key(layout: Layout | None) -> None:
    if layout is None:
        run = run_inline(core().graph(), clock=ManualClock(), steps_max=50_000)
        check_core(run.results.__getitem__)
        return
    cluster = SimCluster(0).submit(core().graph(), layout)
    assert cluster.wait(120.0)
    check_core(cluster.results)
