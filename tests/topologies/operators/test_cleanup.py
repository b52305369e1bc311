"""A stage closes its functions when its task ends, or when one of them cannot be prepared."""

from __future__ import annotations

import pytest

from sunshower import Context, Records, Topology, run_inline
from sunshower.clock import ManualClock
from sunshower.errors import TopologyFailed
from tests.topologies.operators.kinds import SALES, Kept, Sale


@pytest.mark.parametrize("fails", ["prepare", "cleanup"])
def test_each_function_of_a_stage_is_closed_whatever_another_one_raises(fails: str) -> None:
    calls: list[str] = []

    class Part:
        def __init__(self, name: str) -> None:
            self.name = name

        def prepare(self, context: Context) -> None:
            self.do("prepare")

        def __call__(self, sale: Sale) -> Sale:
            return sale

        def cleanup(self) -> None:
            self.do("cleanup")
            if fails == "prepare":
                raise ValueError("cleanup after another error")

        def do(self, what: str) -> None:
            calls.append(f"{what} {self.name}")
            if (self.name, what) == ("second", fails):
                raise ValueError(f"{what} of the second")

    topology = Topology("closes")
    sales = topology.spout("sales", Records(SALES, type=Sale))
    for name in ("first", "second", "third"):
        sales = sales.map(Part(name), fields=Sale)
    sales.shuffle().bolt("kept", Kept)
    with pytest.raises(TopologyFailed, match=f"{fails} of the second"):
        run_inline(topology.graph(), clock=ManualClock())
    ends = (
        ["cleanup first"]
        if fails == "prepare"
        else [f"cleanup {n}" for n in ("third", "second", "first")]
    )
    assert calls[-len(ends) :] == ends
    assert sum(call.startswith("cleanup") for call in calls) == len(ends)
