"""Batches on a real Ray, with progress and counts in a real ZooKeeper: crashes and a restart."""

from __future__ import annotations

import os
import signal
import uuid
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sunshower import Context
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.state import ZooKeeperState
from sunshower.state.zookeeper_tree import ZooKeeperTree
from sunshower.topologies.operators.port import Attempt
from sunshower.trident import InZooKeeper
from tests.guarantee.deaths import until
from tests.trident.rigs.group_rig import Hook, OpaqueNumbers, Rig
from tests.trident.rigs.real_states import InState

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

TOTAL, SIZE = 250, 10
KILLED_AT, OUTAGE_AT = 8, 16  # txids


class Recorder(Hook):
    """Records each batch in a file, holds batches from `hold_at` on until the file `go` exists, and
    kills its own worker in the middle of batch `kill_at`, once."""

    def __init__(self, folder: Path, kill_at: int = 0, hold_at: int = 0) -> None:
        self.folder, self.kill_at, self.hold_at = folder, kill_at, hold_at

    def __call__(self, step: str, attempt: Attempt, context: Context | None) -> None:
        if step != "in the middle" or context is None:
            return
        with (self.folder / "batches").open("a", encoding="utf-8") as file:
            file.write(f"{attempt.txid}\n")
        while attempt.txid >= self.hold_at > 0 and not (self.folder / "go").exists():
            context.clock.sleep(0.05)
        killed = self.folder / "killed"
        if attempt.txid == self.kill_at and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def batches(self) -> list[int]:
        file = self.folder / "batches"
        return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


def rig(hosts: str, hook: Hook) -> Rig:
    """Numbers that are counted, in a ZooKeeper with a password and a short session timeout."""
    mine = {"digest": ("me", "sesame"), "session_timeout_s": 6.0}
    return Rig(
        OpaqueNumbers(TOTAL, SIZE, Hook()),
        hook,
        InZooKeeper(hosts, **mine),
        max_batches=2,
        database=InState(ZooKeeperState(hosts, **mine)),
    )


@pytest.fixture
def hosts(zookeeper: ZooKeeper) -> str:
    """The address of the servers, with a new root node for this test."""
    return f"{zookeeper.connect}/{uuid.uuid4().hex}"


@pytest.mark.long
def test_each_row_counts_once_when_a_worker_and_zookeeper_die(
    ray_cluster: RayCluster, zookeeper: ZooKeeper, hosts: str, tmp_path: Path
) -> None:
    numbers_rig = rig(hosts, Recorder(tmp_path, KILLED_AT, hold_at=OUTAGE_AT))
    run = ray_cluster.submit(numbers_rig.topology("in-zookeeper").graph())
    try:
        until(lambda: OUTAGE_AT in Recorder(tmp_path).batches())
        assert run.snapshot().restarts == 1
        zookeeper.kill()
        try:
            (tmp_path / "go").touch()
            until(lambda: any(task.health.wait for task in run.snapshot().tasks()))
        finally:
            zookeeper.restart()
        assert run.wait(150), run.snapshot()
        assert run.snapshot().restarts == 1, "an outage of the store ends no worker"
    finally:
        run.stop()
    assert numbers_rig.database.counts == Counter(range(TOTAL))


@pytest.mark.long
def test_a_topology_that_is_killed_and_submitted_again_continues_at_its_batch(
    ray_cluster: RayCluster, hosts: str, tmp_path: Path
) -> None:
    first, second = (tmp_path / name for name in ("first", "second"))
    for folder in (first, second):
        folder.mkdir()
    numbers_rig = rig(hosts, Recorder(first, hold_at=12))
    run = ray_cluster.submit(numbers_rig.topology("in-zookeeper").graph())
    try:
        until(lambda: 12 in Recorder(first).batches())
    finally:
        run.stop()
    with closing(ZooKeeperTree(hosts, digest=("me", "sesame"))) as tree:
        node = tree.get("/transactional/numbers/coordinator/currtx")
    assert node
    following = int(node.value)
    assert 10 <= following <= 12
    hook = Recorder(second)
    run = ray_cluster.submit(rig(hosts, hook).topology("in-zookeeper").graph())
    try:
        assert run.wait(150), run.snapshot()
    finally:
        run.stop()
    assert min(hook.batches()) == following
    assert numbers_rig.database.counts == Counter(range(TOTAL))
