"""A prepared topology that hands batches to Spark, for tests of the page."""

from __future__ import annotations

from sunshower import Counter, Topology
from tests.web.prepared import Load, Pass, Prepared


def sales() -> Prepared:
    """A bolt whose two tasks have open batches at Spark. One batch has failed."""
    topology = Topology("sales")
    topology.spout("orders", Counter(1)).shuffle().bolt("totals", Pass, 2)
    sums = {"batches": 41.0, "failed": 1.0, "lost": 1.0, "rows in": 410_000.0, "rows out": 8_200.0,
            "wait seconds": 0.02, "hand-over seconds": 0.31, "job seconds": 1.9,
            "mean job seconds": 2.2}  # fmt: skip
    figures = {f"spark {name}": value for name, value in sums.items()}
    for id, phase, attempt, age_s in (("42", 1.0, 2.0, 3.1), ("43", 0.0, 1.0, 0.4),
                                      ("up to 41", 2.0, 1.0, 0.2)):  # fmt: skip
        facts = {"phase": phase, "attempt": attempt, "rows": 10_000.0, "age seconds": age_s}
        figures |= {f"spark batch {id}/{name}": value for name, value in facts.items()}
    return Prepared(topology, {"orders": Load(4_000), "totals": Load(4_000, 0.3, figures=figures)})
