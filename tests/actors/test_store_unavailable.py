"""While Ray's key-value store does not answer, starting workers and emitting spouts try again."""

from __future__ import annotations

from typing import Any

from sunshower import Bolt, Counter, Number, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.config import Internals
from tests.guarantee.deaths import RECOVERY_S

TOTAL = 5_000
TIMES = 3  # each kind of call is refused so often in each process

refused: list[str] = []


class Table:
    """In the processes that unpickle this, the store refuses some of the next calls."""

    def __reduce__(self) -> Any:
        return refuse, ()


def refuse() -> Table:
    from ray.experimental import internal_kv

    def refusing(name: str, part: str) -> None:
        call = getattr(internal_kv, name)

        def maybe(key: str, *arguments: Any, **named: Any) -> Any:
            if part in str(key) and refused.count(f"{name} {part}") < TIMES:
                refused.append(f"{name} {part}")
                raise RuntimeError("the head does not answer")
            return call(key, *arguments, **named)

        setattr(internal_kv, name, maybe)

    if not refused:
        refused.append("")
        refusing("_internal_kv_get", "/reservation/")
        refusing("_internal_kv_put", "/reservation/")
    return Table()


class Keep(Bolt[Number, None]):
    def __init__(self) -> None:
        self.table = Table()

    def process(self, record: Number) -> None: ...

    def result(self) -> list[str]:
        return refused


def test_starting_worker_and_emitting_spout_wait_for_the_store(
    ray_cluster: RayCluster,
) -> None:
    topology = Topology("refused", workers=1, internals=Internals(idle_poll_s=0.01))
    topology.spout("numbers", Counter(TOTAL)).shuffle().bolt("keep", Keep())
    run = ray_cluster.submit(topology.graph())
    try:
        assert run.wait(RECOVERY_S)
        snapshot = run.snapshot()
        assert snapshot.component("numbers").acked == TOTAL
        assert snapshot.restarts == 0
        (lines,) = run.results("keep")
        for name in ("_internal_kv_get", "_internal_kv_put"):
            assert lines.count(f"{name} /reservation/") == TIMES
    finally:
        run.stop()
