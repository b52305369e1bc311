"""A coordinator whose `success` raises does not end its topology: the batch is committed."""

from __future__ import annotations

from typing import Any, NamedTuple

from sunshower import Topology, count
from sunshower.state import MemoryState
from sunshower.trident import FixedBatchSpout, InMemory, batches
from sunshower.trident.spouts.port import Coordinator
from tests.trident.rigs.programs import run


class Step(NamedTuple):
    key: str
    number: int


class Raising(FixedBatchSpout):
    """Its coordinators raise when a batch is committed."""

    def coordinator(self, *about: Any) -> Coordinator:
        coordinator = super().coordinator(*about)

        def success(txid: int) -> None:
            succeeded.append(txid)
            raise ValueError(txid)

        coordinator.success = success  # type: ignore[method-assign]
        return coordinator


succeeded: list[int] = []


def test_batches_continue_and_all_coordinators_are_told() -> None:
    succeeded.clear()
    steps = [Step("ab"[n % 2], n) for n in range(20)]
    topology, state, store = Topology("steps"), MemoryState(), InMemory()
    first = batches(topology, "first", Raising(steps, 7, type=Step), store=store)
    first.group_by("key").aggregate(count(), state=state, name="found")
    run(topology)
    assert dict(state.items()) == {"a": 10, "b": 10}
    assert succeeded == sorted(set(succeeded))
    assert len(succeeded) >= 3
