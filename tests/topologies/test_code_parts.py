"""The code of the user that a component runs, as the page shows it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from sunshower import Bolt, Counter, KeyState, Number, Stdout, Topology
from sunshower.topologies.describe import code_parts
from sunshower.trident import FixedBatchSpout, InMemory, batches, count


def double(number: Number) -> Number:
    return Number(2 * number.value)


def plus(added: int, number: Number) -> Number:
    return Number(added + number.value)


def total(number: Number, state: KeyState[int]) -> Iterator[Number]:
    state.value = (state.value or 0) + number.value
    yield number


class Add:
    """Has a helper, and is called."""

    def __init__(self, helper: object) -> None:
        self.helper = helper

    def __call__(self, number: Number) -> Number:
        return number


class Stop(Bolt[Number, None]):
    def process(self, record: Number) -> None: ...


def parts() -> dict[str, dict[str, str]]:
    """Component → the name of each part → its source."""
    topology = Topology("parts")
    numbers = topology.spout("numbers", Counter(10))
    even = numbers.map(double).filter(lambda number: number.value > 3)
    sums = even.map(partial(plus, 3)).map(Add(double)).group_by("value").process(total, name="sum")
    sums.shuffle().bolt("stop", Stop())
    sums.shuffle().bolt("out", Stdout())
    rows = batches(
        topology, "rows", FixedBatchSpout([("a",)], 1, fields=("word",)), store=InMemory()
    )
    rows.filter(lambda row: row.word != "b").group_by("word").aggregate(count())
    graph = topology.graph()
    return {
        id: {part.name.rpartition(".")[2]: part.text for part in code_parts(component)}
        for id, component in graph.components.items()
    }


def test_each_way_of_giving_code_is_found_and_nothing_of_sunshower() -> None:
    code = parts()
    assert list(code["double"]) == ["double", "<lambda>", "plus", "Add"]
    assert code["double"]["double"] == (
        "def double(number: Number) -> Number:\n    return Number(2 * number.value)\n"
    )
    assert list(code["sum"]) == ["total"]
    assert code["stop"]["Stop"].startswith("class Stop(Bolt[Number, None]):")
    assert code["out"] == code["numbers"] == {}
    assert "word" in code["rows"]["<lambda>"]


def test_code_that_refers_to_itself_and_to_much_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    helper = Add([])
    helper.helper = [helper, *({"number": n} for n in range(100_000))]
    topology = Topology("deep")
    topology.spout("numbers", Counter(1)).map(helper)
    (component,) = (c for c in topology.graph().components.values() if not c.level.is_spout)
    assert [part.name for part in code_parts(component)] == ["Add"]
