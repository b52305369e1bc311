"""Operators on Arrow tables compute the same as on rows, with the same guarantees."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sunshower import (
    BatchBolt,
    Context,
    Derived,
    Records,
    Retry,
    Topology,
    average,
    batch,
    collect,
    count,
    max_,
    min_,
    run_inline,
    sum_,
)
from sunshower.clock import ManualClock
from sunshower.errors import BadEmit, TopologyError, UnknownField
from sunshower.records import Schema
from sunshower.simulation import SimCluster
from sunshower.state import MemoryState
from sunshower.topologies.operators.columns import CombineColumns, partial_rows
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.totals import Several
from sunshower.topologies.streams import Stream
from sunshower.trident import FixedBatchSpout, InMemory, batches
from tests.topologies.operators.kinds import SALES, Kept, Sale, Tables

TOTALS = {shop: sum(sale.amount for sale in SALES if sale.shop == shop) for shop in "abc"}
Assembly = Callable[[Stream[Sale]], Stream[Any]]


@batch
def plus_one(table: pa.Table) -> Derived:
    rows = table.set_column(1, "amount", pc.add(table["amount"], 1))
    return Derived(rows, pa.array(range(len(rows))))


@batch
def unchanged(table: pa.Table) -> Derived:
    return Derived(table, pa.array(range(len(table))))


def large(sale: Sale) -> bool:
    return sale.amount > 60


def results(assemble: Assembly, spout: Any) -> list[Any]:
    topology = Topology("sales")
    assemble(topology.spout("sales", spout)).shuffle().bolt("kept", Kept)
    (rows,) = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
    return sorted(rows, key=repr)


# ---- results ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assemble", "expected"),
    [
        (lambda s: s.filter(pc.field("amount") > 60), [*filter(large, SALES)]),
        (lambda s: s.filter(pc.field("amount") > 60).filter(large), [*filter(large, SALES)]),
        (lambda s: s.filter(pc.field("amount") < 0), []),
        (
            lambda s: s.filter(pc.field("amount") > 60).merge(s.filter(pc.field("amount") > 60)),
            [*filter(large, SALES), *filter(large, SALES)],
        ),
        (
            lambda s: s.shuffle().stage("near", 2).filter(pc.field("amount") > 60).project("shop"),
            [(sale.shop,) for sale in filter(large, SALES)],
        ),
    ],
)
def test_each_operator_does_what_python_does(assemble: Assembly, expected: Any) -> None:
    assert results(assemble, Tables()) == sorted(map(tuple, expected), key=repr)


def test_a_stream_of_tables_can_have_readers_of_tables_and_of_rows() -> None:
    topology = Topology("sales")
    many = topology.spout("sales", Tables()).flat_map(plus_one, fields=Sale)
    many.filter(pc.field("amount") > 60).group_by("shop").aggregate(count(), name="by-shop")
    many.filter(large).group_by("shop").aggregate(count(), name="by-function")
    many.shuffle().bolt("kept", Kept)
    done = run_inline(topology.graph(), clock=ManualClock()).results
    assert done["by-shop"] == done["by-function"] == [{"a": 20, "b": 20, "c": 20}]
    assert len(done["kept"][0]) == len(SALES)


class Lengths(BatchBolt[Any, Any]):
    """Returns the lengths of its tables as its result."""

    def prepare(self, context: Context) -> None:
        self.lengths: list[int] = []

    def process(self, table: pa.Table) -> None:
        self.lengths.append(len(table))

    def result(self) -> list[int]:
        return self.lengths


def test_a_stage_of_tables_is_one_bolt_and_groups_are_combined_before_they_are_sent() -> None:
    topology = Topology("sales")
    many = topology.spout("sales", Tables()).flat_map(plus_one, fields=Sale)
    shops = many.filter(pc.field("amount") >= 0).project("shop")
    shops.group_by("shop").aggregate(count(), state=MemoryState()).shuffle().bolt(
        "lengths", Lengths, fields=()
    )
    done = run_inline(topology.graph(), clock=ManualClock())
    assert list(done.results) == ["sales", "plus_one", "count", "lengths"]
    assert done.snapshot.component("plus_one").executed == len(SALES)
    assert sum(done.results["lengths"][0]) == done.snapshot.component("count").executed
    assert done.snapshot.component("count").executed < len(SALES)


# ---- kernels and Python agree -------------------------------------------------------------------


def combine(aggregator: Any, by: Sequence[str], table: pa.Table) -> tuple[bool, dict[Any, Any]]:
    """Return whether kernels combine a table, and the value of each group, as Python has it."""
    schema = Schema(tuple(table.column_names))
    parts = [part.bind(schema, "here") for part in getattr(aggregator, "combiners", [aggregator])]
    bound = Several(parts) if isinstance(aggregator, Several) else parts[0]
    operator = CombineColumns(schema, by, bound, parts)
    outputs: list[Any] = []
    for rows in (table, schema.rows_of_table(table)):
        state = operator.start(Attempt(0, 0, 0))
        operator.process(state, 0, rows, outputs.append)
        operator.finish(state, Attempt(0, 0, 0), outputs.append)
    by_kernel, by_python = outputs
    values = {repr(row[:-1]): row[-1] for row in partial_rows(by_kernel)}
    assert values == {repr(tuple(row[:-1])): row[-1] for row in by_python}
    return isinstance(by_kernel, pa.Table), values


NUMBERS = [3, -1, 4, 1, -5, 9]
KEYS = {
    "text": ["a", "b", "a", None, "b", None],
    "whole": [1, 2, 1, None, 2, 1],
    "bytes": [b"x", b"y", b"x", b"x", None, b""],
    "truth": [True, False, True, None, False, True],
}
ALL = Several([count(), sum_("n"), min_("n"), max_("n"), average("n")])


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "aggregator", [count(), sum_("n"), average("n"), min_("n"), max_("n"), ALL]
)
@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.float32(), pa.float64()])
def test_a_kernel_computes_the_same_values_as_python(
    key: str, aggregator: Any, kind: pa.DataType
) -> None:
    table = pa.table({"key": KEYS[key], "n": pa.array(NUMBERS, kind)})
    assert combine(aggregator, ["key"], table)[0]
    assert combine(aggregator, ["key"], pa.concat_tables([table, table]))[0]
    assert combine(aggregator, [], table)[0]
    assert combine(aggregator, ["n", "key"], table)[0]


def test_dictionary_encoded_keys_are_grouped_by_their_values() -> None:
    parts = [pa.array(keys).dictionary_encode() for keys in (["a", "b"], ["c", "a"])]
    table = pa.table({"key": pa.chunked_array(parts), "n": [1, 2, 3, 4]})
    by_kernel, values = combine(sum_("n"), ["key"], table)
    assert by_kernel
    assert values == {"('a',)": 5, "('b',)": 2, "('c',)": 3}


class Squares(sum_):
    """Inherits from an aggregator with a kernel, and computes something else."""

    def gather(self, table: Any, keys: Any, rows: Any, attempt: Attempt) -> None:
        for key, row in zip(keys, rows, strict=False):
            table[key] = table.get(key, 0) + self._get(row) ** 2


@pytest.mark.parametrize(
    ("aggregator", "column"),
    [
        (sum_("n"), pa.array([1 << 62, 1 << 62])),  # beyond 64 bits
        (average("n"), pa.array([-(1 << 63), -1])),
        (max_("n"), pa.array(["x", "y"])),
        (sum_("n"), pa.array(["x", "y"])),
        (max_("n"), pa.array([1.0, float("nan")])),
        (collect("n"), pa.array([1, 2])),
        (Squares("n"), pa.array([3, 4])),
        (Several([count(), collect("n")]), pa.array([1, 2])),
    ],
)
def test_a_table_is_combined_row_by_row_if_no_kernel_computes_the_same(
    aggregator: Any, column: pa.Array
) -> None:
    if isinstance(aggregator, sum_) and pa.types.is_string(column.type):
        with pytest.raises(BadEmit, match=r"sum_\('n'\): a value is a str"):
            combine(aggregator, ["key"], pa.table({"key": ["a", "a"], "n": column}))
        return
    by_kernel, _ = combine(aggregator, ["key"], pa.table({"key": ["a", "a"], "n": column}))
    assert not by_kernel


@pytest.mark.parametrize("aggregator", [count("n"), sum_("n"), average("n"), max_("n"), ALL])
@pytest.mark.parametrize("column", [[1, None], [0.1, None], [1e16, 1.0], [None, None]])
@pytest.mark.parametrize("kind", [pa.int64(), pa.float64()])
def test_nulls_are_passed_over_by_kernels_as_none_is_in_rows(
    aggregator: Any, column: list[Any], kind: pa.DataType
) -> None:
    numbers = pa.array(column, pa.float64()).cast(kind, safe=False)
    by_kernel, _ = combine(aggregator, ["key"], pa.table({"key": ["a", "a"], "n": numbers}))
    assert by_kernel


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([[1], [2], [1]]),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array([[1], [2]])),
    ],
)
def test_keys_that_arrow_cannot_group_by_are_grouped_in_python(keys: pa.Array) -> None:
    table = pa.table({"key": keys, "n": [1, 2, 3]})
    by_kernel, values = combine(count(), ["key"], table)
    assert not by_kernel
    assert sorted(values.values()) == [1, 2]


# ---- guarantees ---------------------------------------------------------------------------------


def test_totals_include_every_record_although_workers_die() -> None:
    """A property test: 20 seeds, each with a kill."""
    replays = 0
    for seed in range(20):
        state = MemoryState()
        topology = Topology("sales", workers=3)
        sales = topology.spout("sales", Tables()).flat_map(unchanged, fields=Sale)
        by_shop = sales.filter(pc.field("amount") >= 0).group_by("shop")
        by_shop.aggregate(count(), sum_("amount"), state=state, parallelism=2)
        with SimCluster(seed, latency_s=0.005) as cluster:
            current = cluster.submit(topology.graph())
            if kills := not current.wait(0.03):
                current.kill_worker(seed % 2)
            assert current.wait(120)
            component = current.snapshot().component("sales")
        assert (component.acked, component.pending) == (len(SALES), 0)
        replays += component.replayed
        totals = dict(state.items())
        assert all(totals[shop][0] >= 40 and totals[shop][1] >= TOTALS[shop] for shop in "abc")
        if not kills:
            assert totals == {shop: [40, TOTALS[shop]] for shop in "abc"}
    assert replays > 0


@batch
def refuses_7(table: pa.Table) -> Derived:
    if 7 in table["amount"].to_pylist():
        raise ValueError("seven")
    return Derived(table, pa.array(range(len(table))))


def test_only_the_poison_in_a_table_is_charged(tmp_path: Path) -> None:
    retry = Retry(attempts=3, initial_s=0.01, dead_letters=tmp_path / "dead.jsonl")
    topology = Topology("sales")
    fine = topology.spout("sales", Tables(), retry=retry).flat_map(refuses_7, fields=Sale)
    fine.group_by("shop").aggregate(count(), name="totals")
    done = run_inline(topology.graph(), clock=ManualClock())
    assert done.results["totals"] == [{"a": 40, "b": 39, "c": 40}]
    lines = [line for f in tmp_path.glob("dead*") for line in f.read_text().splitlines()]
    assert [json.loads(line)["record"] for line in lines] == [{"shop": "b", "amount": 7}]


# ---- wrong declarations -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "error", "message"),
    [
        (pc.field("town") == "x", UnknownField, "no field 'town'; its fields are: shop, amount"),
        (
            (pc.field("amount") > 1) & (pc.field("town") == "x"),
            UnknownField,
            "no field 'town'",
        ),
        (pc.field("town", "x") > 1, UnknownField, "no field 'town'"),
        (pc.field(7) > 1, UnknownField, "its fields are: shop, amount"),
    ],
)
def test_an_expression_on_an_unknown_column_is_refused(
    expression: Any, error: type[Exception], message: str
) -> None:
    sales = Topology("sales").spout("sales", Tables())
    with pytest.raises(error, match="topology 'sales', stream 'default' of 'sales', filter") as no:
        sales.filter(expression)
    assert message in str(no.value)


@batch
def nested(table: pa.Table) -> Derived:
    amounts = pa.StructArray.from_arrays([table["amount"].combine_chunks()], ["cents"])
    return Derived(pa.table({"paid": amounts}), range(len(table)))


def test_an_expression_may_name_a_field_of_a_struct() -> None:
    rows = results(
        lambda s: s.flat_map(nested, fields=("paid",)).filter(pc.field("paid", "cents") > 117),
        Tables(),
    )
    assert rows == [({"cents": 118},), ({"cents": 119},)]


def test_an_expression_on_rows_is_refused() -> None:
    topology = Topology("sales")
    rows = topology.spout("rows", Records(SALES, type=Sale))
    tables = topology.spout("tables", Tables())
    of_batches = batches(
        topology, "batches", FixedBatchSpout(SALES, 25, type=Sale), store=InMemory()
    )
    totals = tables.group_by("shop").aggregate(count())
    for stream in (rows, tables.filter(large), tables.merge(rows), totals, of_batches):
        with pytest.raises(TopologyError, match="the records of this stream are rows"):
            stream.filter(pc.field("shop") == "a")


def test_an_expression_that_does_not_fit_its_columns_fails_the_record_with_their_types() -> None:
    topology = Topology("sales")
    retry = Retry(attempts=1)
    topology.spout("sales", Tables(), retry=retry).filter(pc.field("shop") > 3).shuffle().bolt(
        "kept", Kept
    )
    with pytest.raises(Exception, match=r"shop: string") as raised:
        run_inline(topology.graph(), clock=ManualClock())
    assert BadEmit.__name__ in str(raised.value)
