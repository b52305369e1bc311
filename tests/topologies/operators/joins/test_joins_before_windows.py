"""Windows behind joins: no record of a join is late there."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, NamedTuple

import pytest

from sunshower import Topology, count, run_inline, tumbling
from sunshower.clock import ManualClock
from tests.seeds import seed_ranges
from tests.topologies.operators.joins.test_stream_joins import Slow
from tests.topologies.operators.kinds import Kept

LATE = 4
FIELDS = ("key", "at", "number", "then", "other")


class Fact(NamedTuple):
    key: str
    at: float
    number: int


JOINS: dict[str, dict[str, Any]] = {
    "near": {"within": 3, "how": "left"},
    "after": {"within": (0, 5), "how": "inner"},
    "interval": {"within": lambda a: (a.at, a.at + a.number % 9), "how": "left"},
    "pairs": {"within": lambda a: (a.at, a.at + a.number % 9), "how": "inner"},
    "semi": {"within": (1, 3), "how": "semi"},
    "anti": {"within": (1, 3), "how": "anti"},
    "as of": {"as_of": "at", "how": "left"},
}
NANOSECONDS = 17 * 10**17  # floats are hundreds of them apart there


def facts_of(draw: Random, first: int) -> list[Fact]:
    facts = [Fact(draw.choice("ab"), first + draw.randrange(50), number) for number in range(25)]
    return sorted(facts, key=lambda fact: fact.at + draw.random() * LATE)


@seed_ranges(60, few=1, size=1)
@pytest.mark.parametrize(
    ("kind", "first"),
    [*((kind, 0) for kind in JOINS), *((kind, NANOSECONDS) for kind in ("near", "anti", "as of"))],
)
def test_a_window_behind_a_join_counts_all_its_records(seeds: range, kind: str, first: int) -> None:
    for seed in seeds:
        draw, settings = Random(f"{seed} {kind}"), dict(JOINS[kind])
        topology = Topology("facts")
        left, right = (
            topology.spout(name, Slow(facts_of(draw, first), draw.random() * 9), fields=Fact)
            for name in ("left", "right")
        )
        other: Any = right
        if "as_of" in settings:
            other = right.group_by("key").table(field="at", wait=False)
        else:
            settings["field"] = "at"
        if settings["how"] not in ("semi", "anti"):
            settings["fields"] = FIELDS
        joined = left.join(other, "key", late=LATE, **settings)
        rows = joined.window(tumbling(seconds=5, field="at"), count())
        joined.shuffle().bolt("joined", Kept)
        rows.shuffle().bolt("kept", Kept)
        rows.late.shuffle().bolt("late", Kept)
        results = run_inline(topology.graph(), clock=ManualClock()).results
        expected = Counter(row[1] // 5 * 5 + 5 for row in results["joined"][0])
        assert Counter(dict(results["kept"][0])) == expected, f"{seed}, {kind}"
        assert results["late"] == [[]], f"{seed}, {kind}"
