"""Operators of streams after failures of functions, kills of workers, and rebalances."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sunshower import Bolt, Cause, Collector, Context, Records, Retry, Topology, Tuple, count
from sunshower.clock import ManualClock
from sunshower.config import Internals
from sunshower.errors import RecordMismatch, SunshowerError, TopologyError, TopologyFailed
from sunshower.runtime.inline import Finished
from sunshower.state import SqliteState
from sunshower.topologies.operators.state_slot import StateSlot
from sunshower.trident import Attempt
from tests.topologies.operators.kinds import Kept, Sale
from tests.topologies.operators.test_operators import SALES, run, sales_topology

# ---- failures -----------------------------------------------------------------------------------

POISON = Sale("b", 100)


def letters_of(topology_of: Callable[[Retry], Topology], tmp_path: Path) -> tuple[Finished, Any]:
    retry = Retry(attempts=3, initial_s=0.01, dead_letters=tmp_path / "dead.jsonl")
    done = run(topology_of(retry))
    lines = [line for f in tmp_path.glob("dead*") for line in f.read_text().splitlines()]
    return done, [json.loads(line)["record"] for line in lines]


def test_a_function_that_raises_fails_its_own_record_only(tmp_path: Path) -> None:
    def check(sale: Sale) -> Sale:
        if sale == POISON:
            raise ValueError("poison")
        return sale

    done, letters = letters_of(
        lambda retry: sales_topology(
            lambda s: s.map(check).group_by("shop").aggregate(count()), retry=retry
        ),
        tmp_path,
    )
    assert letters == [POISON._asdict()]
    assert done.results["count"] == [{"a": 100, "b": 99, "c": 100}]
    assert done.snapshot.component("sales").causes == {Cause.EXCEPTION.value: 3}


def raises(sale: Sale) -> Iterator[Any]:
    yield from [sale] * 40
    if sale == POISON:
        raise ValueError("poison")


def misfits(sale: Sale) -> Iterator[Any]:
    yield from [sale] * 40
    if sale == POISON:
        yield 7


@pytest.mark.parametrize("makes", [raises, misfits])
def test_rows_of_failed_records_are_not_combined(
    makes: Callable[[Sale], Iterator[Any]], tmp_path: Path
) -> None:
    """A batch has several parts: 300 records make 12,000 rows."""
    done, letters = letters_of(
        lambda retry: sales_topology(
            lambda s: s.flat_map(makes, fields=Sale).group_by("shop").aggregate(count()),
            retry=retry,
        ),
        tmp_path,
    )
    assert letters == [POISON._asdict()]
    assert done.results["count"] == [{"a": 4000, "b": 3960, "c": 4000}]
    assert done.snapshot.component("sales").failed == 3  # the attempts of the poison


def test_an_aggregator_that_raises_for_a_part_of_a_batch_charges_the_poison_alone(
    tmp_path: Path,
) -> None:
    class Strict(count):
        def gather(self, table: Any, keys: Any, rows: Any, attempt: Attempt) -> None:
            if POISON in rows:
                raise ValueError("poison")
            super().gather(table, keys, rows, attempt)

    def many(sale: Sale) -> Iterator[Sale]:
        yield from [sale] * 40

    done, letters = letters_of(
        lambda retry: sales_topology(
            lambda s: s.flat_map(many).group_by("shop").aggregate(Strict()), retry=retry
        ),
        tmp_path,
    )
    assert letters == [POISON._asdict()]
    assert done.results["count"] == [{"a": 4000, "b": 3960, "c": 4000}]


def test_an_aggregator_that_raises_charges_the_poison_alone(tmp_path: Path) -> None:
    """The records of its batch are emitted again, each in its own batch."""

    class Strict(count):
        def gather(self, table: Any, keys: Any, rows: Any, attempt: Attempt) -> None:
            if POISON in rows:
                raise ValueError("poison")
            super().gather(table, keys, rows, attempt)

    done, letters = letters_of(
        lambda retry: sales_topology(lambda s: s.group_by("shop").aggregate(Strict()), retry=retry),
        tmp_path,
    )
    assert letters == [POISON._asdict()]
    assert done.results["count"] == [{"a": 100, "b": 99, "c": 100}]
    sales = done.snapshot.component("sales")
    assert (sales.acked, sales.dead) == (300, 1)
    assert sales.failed > 4  # each other record of its batch fails once


@pytest.mark.parametrize("manual", [False, True])
def test_a_bolt_that_raises_for_one_total_charges_its_record_alone(
    manual: bool, tmp_path: Path
) -> None:
    def refuse(record: Any) -> None:
        if record[0] == POISON.amount:
            raise ValueError("poison")

    class Manual(Bolt[Any, None]):
        def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
            refuse(tuple.record)
            out.ack(tuple)

    done, letters = letters_of(
        lambda retry: sales_topology(
            lambda s: s.group_by("amount").aggregate(count()),
            Manual if manual else refuse,
            retry=retry,
        ),
        tmp_path,
    )
    assert letters == [POISON._asdict()]
    (counts,) = done.results["count"]
    assert all(value >= 1 for value in counts.values())  # replayed records are counted again
    sales = done.snapshot.component("sales")
    assert (sales.acked, sales.dead, sales.pending) == (300, 1, 0)


# ---- states -------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_a_tree_with_several_records_in_a_batch_waits_for_their_outputs(times: int) -> None:
    """Their edges must not cancel out, even if the number of records is even."""

    class Many(Bolt[Sale, Sale]):
        def process(self, record: Sale) -> list[Sale]:
            return [record] * times

    class Refuses(Bolt[Any, None]):
        """Raises for the twentieth record that it receives."""

        def prepare(self, context: Context) -> None:
            self.executed = 0

        def process(self, record: Any) -> None:
            self.executed += 1
            if self.executed == 20:
                raise ValueError("the twentieth")

    topology = Topology("sales")
    sales = topology.spout("sales", Records(SALES, type=Sale))
    many = sales.shuffle().bolt("many", Many)
    totals = many.group_by("shop").aggregate(count())
    totals.shuffle().bolt("refuses", Refuses)
    done = run(topology)
    counts = done.snapshot.component("sales")
    assert counts.acked == 300
    assert counts.failed == counts.replayed > 0
    (numbers,) = done.results["count"]
    assert all(numbers[shop] >= 100 * times for shop in "abc")
    assert sum(numbers.values()) > 300 * times


# ---- special cases ------------------------------------------------------------------------------


def test_poison_with_several_records_in_its_batch_is_found(tmp_path: Path) -> None:
    class Strict(count):
        def gather(self, table: Any, keys: Any, rows: Any, attempt: Attempt) -> None:
            if POISON in rows:
                raise ValueError("poison")
            super().gather(table, keys, rows, attempt)

    done, letters = letters_of(
        lambda retry: sales_topology(
            lambda s: (
                s.shuffle()
                .bolt("many", lambda sale: [sale] * 3, fields=Sale)
                .group_by("shop")
                .aggregate(Strict())
            ),
            retry=retry,
        ),
        tmp_path,
    )
    assert letters == [POISON._asdict()]
    (totals,) = done.results["count"]
    assert totals["b"] >= 297
    assert min(totals["a"], totals["c"]) >= 300


def test_a_manual_bolt_that_takes_a_shared_batch_in_parts_charges_the_poison_alone(
    tmp_path: Path,
) -> None:
    class Manual(Bolt[Any, Sale]):
        def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
            if tuple.record[0] == POISON.amount:
                raise ValueError("poison")
            for _ in range(50):
                out.emit(Sale("z", 0), tuple)
            out.ack(tuple)

    def assemble(sales: Any) -> Any:
        return sales.group_by("amount").aggregate(count()).shuffle().bolt("manual", Manual)

    _, letters = letters_of(lambda retry: sales_topology(assemble, retry=retry), tmp_path)
    assert letters == [POISON._asdict()]


def test_a_shared_batch_with_too_many_outputs_is_split() -> None:
    def many(total: Any) -> list[Sale]:
        return [Sale("z", total[0])] * 150

    done = run(
        sales_topology(
            lambda s: (
                s.group_by("amount").aggregate(count()).shuffle().bolt("many", many, fields=Sale)
            ),
            window_records_max=400,
            internals=Internals(frame_records_max=100),
        )
    )
    sales = done.snapshot.component("sales")
    assert (sales.acked, sales.pending) == (300, 0)
    (rows,) = done.results["kept"]
    counts = Counter(amount for _, amount in rows)
    assert all(counts[sale.amount] >= 150 for sale in SALES)


def stops(sale: Sale) -> Sale:
    if sale == POISON:
        return next(iter(()))
    return sale


@pytest.mark.parametrize("readers", [1, 2])
def test_a_function_that_raises_stop_iteration_fails_its_record(
    readers: int, tmp_path: Path
) -> None:
    def assemble(sales: Any) -> Any:
        shuffled = sales.map(stops)
        if readers == 2:
            shuffled.filter(bool_of).shuffle().bolt("second", nothing)
        return shuffled.map(same)

    _, letters = letters_of(lambda retry: sales_topology(assemble, retry=retry), tmp_path)
    assert letters == [POISON._asdict()]


def bool_of(sale: Sale) -> bool:
    return bool(sale)


def same(sale: Sale) -> Sale:
    return sale


def nothing(sale: Any) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (lambda sale: sale.shop, r"a record is a tuple here, as in \(shop,\)"),
        (lambda sale: (sale.shop, 1), "it has 2 values"),
        (lambda sale: sale, "declare fields=Sale, or make a tuple of its values"),
    ],
)
def test_a_row_between_two_functions_is_checked(make: Any, remedy: str) -> None:
    topology = sales_topology(
        lambda s: s.map(make, fields=["shop"]).project("shop"), retry=Retry(attempts=1)
    )
    with pytest.raises(TopologyFailed, match=rf"its stream carries \(shop\): {remedy}"):
        run(topology)


def test_two_processes_that_write_one_state_overwrite_nothing(tmp_path: Path) -> None:
    """A process that was replaced while it was silent may still write."""
    state = SqliteState(tmp_path / "totals.db")
    slots = []
    for seconds in (1.0, 2.0):
        clock = ManualClock()
        clock.sleep(seconds)
        slot = StateSlot(state, "totals", "here")
        slot.open(Context("sales", "totals", 1, 0, 1, clock=clock))
        slots.append(slot)
    written = 0
    for slot in (*slots, *slots, *slots, *slots):
        try:
            slot.begin_commit(Attempt(0, 0, 0))
            (old,) = slot.state.multi_get(["a"])
            slot.state.multi_put(["a"], [(old or 0) + 1])
            slot.commit(Attempt(0, 0, 0))
        except SunshowerError:
            slot.state.abort()
        else:
            written += 1
    for slot in slots:
        slot.close()
    assert written >= 4
    assert dict(state.items()) == {"a": written}


def test_a_stage_reads_records_of_one_type() -> None:
    topology = Topology("sales")
    sales = topology.spout("sales", Records(SALES, type=Sale))
    others = topology.spout("others", Records([("x",)], fields=("x",)))
    sales.shuffle().stage("doubled").map(same).shuffle().bolt("kept", Kept)
    with pytest.raises(RecordMismatch, match="make them the same first"):
        others.shuffle().into("doubled")


def test_a_second_state_without_a_name_in_one_file_is_refused(tmp_path: Path) -> None:
    state = SqliteState(tmp_path / "totals.db")
    sales = Topology("sales").spout("sales", Records(SALES, type=Sale))
    sales.group_by("shop").aggregate(count(), state=state)
    with pytest.raises(TopologyError, match="give this state a name="):
        sales.group_by("amount").aggregate(count(), state=state)
