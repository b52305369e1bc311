"""Tasks that raise, or end their process, on real workers: the others finish their work."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sunshower import Bolt, Cause, Context, Counter, Failure, Number, Retry, Spout, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.run import RayRun
from sunshower.config import Internals
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.plan import ACKER, Layout
from tests.actors.programs.evidence import Held
from tests.guarantee.deaths import RECOVERY_S

TOTAL, FEW = 20_000, 2_000


def keep(number: Number) -> None: ...


class OneNumber(Spout[Number]):
    """One number; the causes of its failures are its result."""

    def open(self, context: Context) -> None:
        self.causes: list[Cause] = []

    def records(self) -> Iterator[Number]:
        yield Number(0)

    def fail(self, message_id: int, failure: Failure) -> None:
        self.causes.append(failure.cause)

    def result(self) -> list[Cause]:
        return self.causes


class DiesInPrepare(Bolt[Number, None]):
    def prepare(self, context: Context) -> None:
        os._exit(3)

    def process(self, record: Number) -> None: ...


def until(run: RayRun, enough: Callable[[Snapshot], bool]) -> Snapshot:
    end_s = time.monotonic() + RECOVERY_S
    while not enough(snapshot := run.snapshot()):
        assert time.monotonic() < end_s, f"the condition never held: {snapshot}"
        run.wait(0.05)
    return snapshot


def test_bolt_whose_process_always_dies_is_quarantined_and_the_others_finish(
    ray_cluster: RayCluster,
) -> None:
    topology = Topology(
        "dying",
        deaths_max=2,
        internals=Internals(restart_backoff_s=0.05, idle_poll_s=0.01),
        attempts_max=60_000,
    )
    topology.spout("numbers", Counter(FEW)).shuffle().bolt("keep", keep)
    topology.spout("one", OneNumber()).shuffle().bolt("dies", DiesInPrepare)
    run = ray_cluster.submit(topology.graph(), Layout.ISOLATE)
    try:
        snapshot = until(
            run,
            lambda seen: (
                bool(seen.degraded)
                and seen.component("numbers").acked == FEW
                and Cause.QUARANTINED in run.results("one")[0]
            ),
        )
        (task,) = run.plan.tasks_of("dies")
        ((id, error),) = snapshot.degraded.items()
        assert id == task.id
        assert "the process of its worker died 2 times in a row" in error.text
        assert snapshot.state == "active", "one record is not processed, and its spout decides"
    finally:
        run.stop()


@pytest.mark.long
@pytest.mark.parametrize("target", ["numbers", "keep", ACKER])
def test_master_and_worker_that_die_together_are_restarted_and_nothing_is_lost(
    ray_cluster: RayCluster, tmp_path: Path, target: str
) -> None:
    """The new worker says hello before there is a new master."""
    topology, gate = Topology("both", ackers=1, spout_pending=64), tmp_path / "gate"
    topology.spout("numbers", Held(TOTAL, gate)).shuffle().bolt("keep", keep)
    run = ray_cluster.submit(topology.graph(), Layout.ISOLATE)
    try:
        until(run, lambda seen: seen.component("numbers").acked > 0)
        (task,) = run.plan.tasks_of(target)
        run.kill_worker(task.worker)
        run.kill_master()
        gate.touch()
        assert run.wait(150)
        snapshot = run.snapshot()
        assert snapshot.restarts >= 1
        assert not snapshot.degraded
        if target != "numbers":  # a restarted spout may count records twice
            assert snapshot.component("numbers").acked == TOTAL
    finally:
        run.stop()


def exits(number: Number) -> Number:
    """Raises what would end the process of a plain program."""
    if number.value in EXITS:
        raise EXITS[number.value]
    return number


EXITS: dict[int, type[BaseException]] = {
    3: KeyboardInterrupt,
    4: SystemExit,
    5: asyncio.CancelledError,
    6: GeneratorExit,
}


async def exits_later(number: Number) -> Number:
    await asyncio.sleep(0)
    return exits(number)


def test_records_for_which_user_code_exits_fail_and_their_worker_lives(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    topology = Topology("exits")
    for name, code in {"plain": exits, "awaited": exits_later}.items():
        retry = Retry(attempts=2, dead_letters=tmp_path / f"{name}.jsonl")
        topology.spout(name, Counter(200), retry=retry).map(code)
    run = ray_cluster.submit(topology.graph())
    try:
        assert run.wait(RECOVERY_S)
        snapshot = run.snapshot()
    finally:
        run.stop()
    for name in ("plain", "awaited"):
        lines = (tmp_path / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        dead = {letter["record"]["value"]: letter["exception"] for letter in map(json.loads, lines)}
        assert dead == {n: kind.__name__ for n, kind in EXITS.items()}
        assert snapshot.component(name).acked == 200
    assert snapshot.restarts == 0
