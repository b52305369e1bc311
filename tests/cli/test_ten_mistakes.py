"""Mistakes of new users: each is named with its step, record or line, and a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import PrintedBy, Write

SALES = """
    from typing import TypedDict
    from sunshower import Records, Retry, count

    class Sale(NamedTuple):
        item: str
        amount: int

    topology = Topology("shop", message_timeout_s=1)
    several = [Sale("a", number) for number in range(50)]
    sales = topology.spout("sales", Records(several, type=Sale), retry=Retry(attempts=2))
"""


MISTAKES: dict[str, tuple[str, list[str]]] = {
    "a wrong type": (
        """
    def add(sale: Sale) -> Sale:
        return Sale(sale.item, sale.amount + "1")
    sales.shuffle().stage("prices").map(add).peek(print)
    """,
        ["TypeError", "step `add`, field `amount` of Sale(item='a', amount=", 'sale.amount + "1"'],
    ),
    "a function that fails for every record but an empty one": (
        """
    def add(sale: Sale) -> Sale:
        return sale if sale.amount % 7 == 0 else Sale(sale.item, sale.itme)
    sales.shuffle().stage("prices").map(add).peek(print)
    """,
        ["AttributeError", "step `add`, record Sale(item='a', amount=", "did you mean 'item'?"],
    ),
    "a helper that fails": (
        """
    def half(text: str) -> int:
        return int(text) // 2
    def add(sale: Sale) -> Iterator[Sale]:
        yield Sale(sale.item, half(sale.item))
    sales.shuffle().bolt("prices", add)
    """,
        ["ValueError", "step `add`, field `item` of Sale(", "half(sale.item)", "int(text) // 2"],
    ),
    "a key that a dictionary does not have": (
        """
    class Row(TypedDict):
        item: str
        amount: int
    def row(sale: Sale) -> Row:
        return Row(item=sale.item, amount=sale.amount)
    def add(row: Row) -> Row:
        return Row(item=row["item"], amount=row["amuont"])
    sales.shuffle().stage("prices").map(row).map(add).peek(print)
    """,
        ["KeyError: 'amuont'", "step `add`, record {'item': 'a'", "did you mean 'amount'?"],
    ),
    "a bolt that yields for ever": (
        """
    def add(sale: Sale) -> Iterator[Sale]:
        while True:
            yield sale
    sales.shuffle().bolt("prices", add)
    """,
        ["prices[0]", "records of one input in 1 s", "does it yield for ever", "record Sale("],
    ),
    "a missing return": (
        """
    def add(sale: Sale) -> Sale:
        Sale(sale.item, sale.amount + 1)
    sales.shuffle().stage("prices").map(add).peek(print)
    """,
        [
            "add (some_topology.py:",
            "returned None",
            "Is there a `return` missing?",
            "record Sale(item='a', amount=",
        ],
    ),
    "a record instead of a list of records": (
        """
    def add(sale: Sale) -> Iterator[Sale]:
        return Sale(sale.item, sale.amount + 1)
    sales.shuffle().bolt("prices", add)
    """,
        ["prices[0]", "returned a Sale", "yield it, or return a list of records"],
    ),
    "bad JSON without dead letters": (
        """
    import json
    from sunshower import JsonLines
    bad = Records([Line('{"item": "a"}'), Line('{"item": a}')], type=Line)
    topology = Topology("shop")
    def parse(line: Line) -> Sale:
        return Sale(json.loads(line.text)["item"], 1)
    lines = topology.spout("lines", bad, retry=Retry(attempts=2))
    lines.shuffle().stage("parse").map(parse).peek(print)
    """,
        ["JSONDecodeError", "field `text` of Line(text='{\"item\": a}')", "dead_letters="],
    ),
    "a wrong field in group_by": (
        'sales.group_by("itme").aggregate(count())',
        ["group_by: there is no field 'itme'", "did you mean 'item'?", "some_topology.py, line "],
    ),
    "a lambda with the wrong number of arguments": (
        "sales.shuffle().stage('prices').filter(lambda sale, other: True).peek(print)",
        ["filter(lambda)", "must take exactly one record, and it takes (sale, other)", ", line "],
    ),
}
LINES_MAX = 15  # of a traceback


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake: str, write: Write, printed_by: PrintedBy) -> None:
    code, expected = MISTAKES[mistake]
    head = "\n".join(f"    {line.strip()}" if not line.startswith("    ") else line
                     for line in SALES.splitlines())  # fmt: skip
    code = code if code.startswith("\n") else f"\n    {code}\n"
    error = printed_by("run", "--inline", write(head + code), status=1).err
    shown = error[error.rindex("sunshower: ") :]
    for text in expected:
        assert text in shown, shown
    _, *trace = shown.splitlines()
    assert len(trace) <= LINES_MAX
    if trace:
        assert "some_topology.py" in trace[0], "the line of the user is the first"


def test_describe_names_what_cannot_be_sent(write: Write, printed_by: PrintedBy) -> None:
    code = """
    import threading
    def adder() -> object:
        own = threading.Lock()
        def add(sale: Sale) -> Sale:
            with own:
                return sale
        return add
    sales.shuffle().stage("prices").map(adder()).peek(print)
    """
    error = printed_by("describe", write(SALES + code), status=1).err
    assert "component 'prices' cannot be sent to its worker" in error
    assert "`own`, a lock, of the function add, some_topology.py:" in error
    assert "belong into prepare() or open()" in error


def test_a_topology_from_the_standard_input_is_refused(printed_by: PrintedBy) -> None:
    error = printed_by("run", Path("-"), status=1).err
    assert "give a Python file, as in: sunshower run word_count.py" in error
