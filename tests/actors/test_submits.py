"""Clients that submit at once, clients of two releases, and what Ray prints to a client."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._private import worker
from ray.experimental import internal_kv

from sunshower import versions
from sunshower.actors import run as run_module
from sunshower.actors.cluster import RayCluster
from sunshower.actors.names import CALL_S, NAMESPACE, master_name
from sunshower.actors.run import MasterActor
from sunshower.actors.starting import warn_of_other_settings
from sunshower.actors.store import RayStore, claimed
from sunshower.errors import ClusterError, TopologyFailed, VersionMismatch
from sunshower.runtime.control.lifecycle import State
from tests.actors.programs import submitter
from tests.guarantee.deaths import until
from tests.leftovers import check_program

pytestmark = pytest.mark.ray

ROOT = Path(__file__).parents[2]
NAME = "wanted-twice"


@contextmanager
def client(name: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is connected, and submits `name` when it is sent a line."""
    address = ray.get_runtime_context().gcs_address
    with subprocess.Popen(
        [sys.executable, "-m", submitter.__name__, address, name],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def runs_left() -> set[str]:
    """The runs of `NAME` of which anything is in Ray's store, or has a name."""
    keys = internal_kv._internal_kv_list(NAME, namespace=NAMESPACE)
    actors = ray.util.list_named_actors(all_namespaces=True)
    names = [actor["name"] for actor in actors] + [key.decode() for key in keys]
    return {name.partition("/")[0] for name in names if name.startswith(NAME)}


def claims() -> int:
    """How many clients have claimed `NAME`; those that died still have."""
    return len(internal_kv._internal_kv_list(f"claim/{NAME}", namespace=NAMESPACE))


def test_of_two_processes_that_submit_one_topology_one_is_accepted(ray_cluster: RayCluster) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(client(NAME)) for _ in range(2)]
        for process in clients:  # both are connected: from here on they run at the same time
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        (refused,), (entered,) = (
            [line for line in output if line.startswith(word)]
            for output in [[process.stdout.read().strip() for process in clients if process.stdout]]
            for word in ("refused: ", "in: ")
        )
    run = entered.removeprefix("in: ")
    assert "another client is submitting" in refused or "is there already" in refused
    assert runs_left() == {run}
    ray_cluster.find(NAME).stop()
    assert runs_left() == set()


def test_a_client_is_refused_while_another_one_submits_and_leaves_nothing(
    ray_cluster: RayCluster,
) -> None:
    with claimed(NAME), client(NAME) as other:
        output, _ = other.communicate("\n")
    assert f"refused: another client is submitting a topology '{NAME}'" in output
    assert runs_left() == set()
    with claimed(NAME), pytest.raises(ClusterError, match="another client"), claimed(NAME):
        pass
    with claimed(NAME):  # the lock is free at once
        assert claims() == 1
    assert claims() == 0


def test_local_ray_has_the_settings_of_sunshower(
    ray_cluster: RayCluster, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_other_settings()
    assert not caplog.records


def claim_and_die() -> None:
    """Claim `NAME` in a client that dies."""
    program = (
        "import os, sys\n"
        "from sunshower.actors.cluster import RayCluster\n"
        "from sunshower.actors.store import claimed\n"
        "RayCluster(sys.argv[1], detached=True)\n"
        "with claimed(sys.argv[2]): os._exit(9)"
    )
    address = ray.get_runtime_context().gcs_address
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    died = subprocess.run(
        [sys.executable, "-c", program, address, NAME], env=environment, check=False
    )
    assert died.returncode == 9


def is_free() -> bool:
    """Whether `NAME` can be claimed."""
    try:
        with claimed(NAME):
            return True
    except ClusterError:
        return False


def test_lock_of_a_client_that_died_is_free(ray_cluster: RayCluster) -> None:
    for deaths in (1, 2):
        claim_and_die()
        until(is_free)  # as soon as Ray notices the death
        assert claims() == deaths
    with claimed(NAME):
        assert not is_free()


def test_lock_of_a_client_that_died_goes_to_one_of_many(ray_cluster: RayCluster) -> None:
    claim_and_die()
    until(is_free)
    entered, free = list[int](), threading.Event()
    barrier = threading.Barrier(8)

    def enter(number: int) -> None:
        barrier.wait()
        with suppress(ClusterError), claimed(NAME):
            entered.append(number)
            free.wait()

    threads = [threading.Thread(target=enter, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: sum(thread.is_alive() for thread in threads) == 1)
    assert len(entered) == 1
    free.set()
    threads[entered[0]].join()
    assert is_free()


def test_lock_of_a_task_that_died_is_free(ray_cluster: RayCluster) -> None:
    """A task, whose job goes on, has submitted a topology."""

    @ray.remote(num_cpus=0, max_retries=0)
    def claim() -> None:
        with claimed(NAME):
            os._exit(9)

    with pytest.raises(ray.exceptions.WorkerCrashedError):
        ray.get(claim.remote())
    until(is_free)


def restarts(run: str) -> int:
    """How often Ray has restarted a master."""
    from ray._private import state

    actors = state.actors().values()
    return next(int(actor["NumRestarts"]) for actor in actors if actor["Name"] == master_name(run))


class SlowMaster(MasterActor):
    """Needs longer to start than a call may take, as on a busy machine."""

    def __init__(self, *arguments: Any) -> None:
        threading.Event().wait(CALL_S + 3.0)
        super().__init__(*arguments)


@pytest.mark.long
def test_a_master_that_starts_slowly_is_waited_for(
    ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(SlowMaster)
    monkeypatch.setattr(run_module, "MasterClass", slow)
    run = ray_cluster.submit(submitter.topology(NAME).graph())
    try:
        assert run.snapshot().state is State.ACTIVE
    finally:
        run.stop()


# ---- releases ------------------------------------------------------------------------------------


def test_worker_of_another_release_is_refused_before_its_hello(ray_cluster: RayCluster) -> None:
    run = ray_cluster.submit(submitter.topology(NAME).graph())
    try:
        RayStore(run.id).write("version", versions.stamp(99))
        run.kill_worker(0)
        with pytest.raises(TopologyFailed, match=r"worker 0 on node .* version 99, and this rel"):
            run.wait(150)
        with pytest.raises(VersionMismatch, match=r"version 99, and .* uses version \d+: install"):
            ray_cluster.find(NAME)
    finally:
        run.stop()
    assert runs_left() == set()


def test_master_that_restarts_with_another_release_is_started_again(
    ray_cluster: RayCluster,
) -> None:
    run = ray_cluster.submit(submitter.topology(NAME).graph())
    try:
        theirs = RayStore(run.id).read("version")
        assert theirs is not None
        RayStore(run.id).write("version", versions.stamp(99))
        run.kill_master()
        until(lambda: restarts(run.id) >= 2)  # the successor is refused
        RayStore(run.id).write("version", theirs)
        acked = run.snapshot().component("numbers").acked
        until(lambda: run.snapshot().component("numbers").acked > acked)
    finally:
        run.stop()


@pytest.mark.long
def test_two_releases_on_one_cluster_refuse_each_other(tmp_path: Path) -> None:
    check_program("tests.actors.programs.two_releases", tmp_path)


@pytest.mark.parametrize(("pid", "is_error"), [("raylet", True), (4711, False)])
def test_notices_of_ray_go_to_the_standard_error(
    ray_cluster: RayCluster, capsys: pytest.CaptureFixture[str], pid: object, is_error: bool
) -> None:
    worker.print_to_stdstream({"lines": ["a line"], "pid": pid, "is_err": False}, True)
    printed = capsys.readouterr()
    assert ("a line" in printed.err, "a line" in printed.out) == (is_error, not is_error)
