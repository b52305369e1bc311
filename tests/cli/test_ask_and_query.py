"""Tests of `sunshower query` and `sunshower ask` on a real Ray: their output and their errors."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Command, Write
from tests.guarantee.deaths import until

STATES = """
    from dataclasses import dataclass
    from datetime import date
    from sunshower import KeyState, Records, count

    class Sale(NamedTuple):
        shop: str
        day: int

    @dataclass
    class Last:
        day: date
        shops: set[str]

    def keep(sale: Sale, state: KeyState[Last]) -> None:
        state.value = Last(date(2026, 1, sale.day), {sale.shop})

    def endless() -> Iterator[Sale | None]:
        yield Sale("a b", 3)
        yield Sale("a b", 3)
        yield Sale("5", 4)
        while True:
            yield None

    topology = Topology("states", workers=2)
    sales = topology.spout("sales", Records(endless, type=Sale))
    sales.group_by("shop", "day").aggregate(count(), parallelism=2)
    sales.group_by("day").process(keep, parallelism=2)
"""


@pytest.mark.ray
def test_a_value_is_a_line_of_json_and_a_missing_key_is_an_error(
    here: Command, command: Command, write: Write
) -> None:
    here("submit", write(STATES))
    status = ("status", "states", "--json")
    until(lambda: json.loads(here(*status).stdout)["components"]["sales"]["acked"] >= 3)
    assert here("query", "states", "count", "a b", 3).stdout == "2\n"
    assert here("query", "states", "count", "5", 4).stdout == "1\n"  # a text and a number
    value = json.loads(command("query", "states", "keep", "3").stdout)
    assert value == {"day": "2026-01-03", "shops": ["a b"]}
    lines = here("query", "states", "count").stdout.splitlines()
    assert sorted(map(json.loads, lines), key=str) == [
        {"key": ["5", 4], "value": 1},
        {"key": ["a b", 3], "value": 2},
    ]
    assert len(here("query", "states", "count", "--limit", 1).stdout.splitlines()) == 1
    for key, message in (
        (("count", "a", 3), "'count' of topology 'states' has no value for a 3"),
        (("count", "a"), "the key of 'count' has 2 values (shop, day), and it is not 'a'"),
        (("sales", "a"), "'sales' has no keyed state; those with a keyed state are: count, keep"),
    ):
        assert message in here("query", "states", *key, status=1).stderr.replace("\n", " ")


LENGTHS = """
    class Word(NamedTuple):
        text: str
        day: str = "Monday"

    class Length(NamedTuple):
        text: str
        length: int

    def measure(word: Word) -> Iterator[Length]:
        if word.text == "none":
            raise ValueError("no such word")
        for part in word.text.split():
            yield Length(part, len(part))

    topology = Topology("lengths")
    topology.requests("words", Word).shuffle().bolt("measure", measure).answer()
"""


@pytest.mark.ray
def test_an_answer_is_a_line_of_json_for_each_row_and_a_failure_is_an_error(
    here: Command, command: Command, write: Write
) -> None:
    here("submit", write(LENGTHS))
    printed = command("ask", "lengths", "words", '{"text": "the whale"}').stdout
    assert [json.loads(line) for line in printed.splitlines()] == [
        {"text": "the", "length": 3},
        {"text": "whale", "length": 5},
    ]
    assert not here("ask", "lengths", "words", '{"text": ""}').stdout
    for value, message in (
        ('{"text": "none"}', "exception in measure[0]: ValueError: no such word"),
        ('{"word": "none"}', "a request of 'words' is Word(text, day)"),
    ):
        printed = here("ask", "lengths", "words", value, "--timeout", 30, status=1).stderr
        assert message in printed.replace("\n", " ")
    assert "no JSON" in here("ask", "lengths", "words", "{a", status=1).stderr
    assert "it takes: words" in here("ask", "lengths", "verbs", "a", status=1).stderr
