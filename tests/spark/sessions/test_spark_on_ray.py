"""The session on a cluster: how it is shared, stopped and replaced, and errors from its node."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import ray

from sunshower.arrow.record_columns import RecordColumns
from sunshower.errors import SparkError, SparkLost, TransformFailed
from sunshower.spark_integration.sessions import spark_on_ray as on_ray
from sunshower.spark_integration.sessions.spark_on_ray import GatewayActor, RayDPSpark
from sunshower.spark_integration.sessions.spark_port import BatchInfo, Gateway, SparkStep
from tests.spark.conftest import ON_RAY
from tests.spark.processes import java_left, java_processes
from tests.spark.sales import identity, run

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

WITHIN_S = 120.0
only_there = pytest.mark.parametrize("place", ["on_ray"], indirect=True)


class Number(NamedTuple):
    number: int


SOME = RecordColumns.of(Number).table([Number(1), Number(2)])


def works(gateway: Gateway) -> bool:
    rows = run(gateway, SparkStep(identity, Number), SOME)
    return sorted(rows) == [Number(1), Number(2)]


def fails(gateway: Gateway, transform: Any) -> SparkError:
    with pytest.raises(SparkError) as caught:
        run(gateway, SparkStep(transform, Number), SOME)
    return caught.value


@pytest.mark.long
@pytest.mark.timeout(600)  # on a busy machine two sessions opened in 300 s
@only_there
def test_a_stopped_session_is_replaced_for_the_next_batch(
    gateway: Gateway, place: RayDPSpark
) -> None:
    assert works(gateway)
    place.stop()
    assert isinstance(fails(gateway, identity), SparkLost)  # the caller submits the batch again
    assert works(gateway)


def test_a_ray_that_the_program_has_started_is_no_joined_cluster(
    ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_a_worker = ray.remote(num_cpus=0)(on_ray.why_not_on_ray).remote()
    assert "ends with the program that has started it" in ray.get(in_a_worker)
    monkeypatch.setattr(on_ray, "why_not_on_ray", lambda: None)
    assert isinstance(on_ray.DefaultSpark().open(), on_ray.RayGateway)
    RayDPSpark().stop()


def killing_the_master(df: Any, batch: BatchInfo) -> Any:
    ray.kill(ray.get_actor(f"{df.sparkSession.sparkContext.appName}_SPARK_MASTER"))
    return df


@pytest.mark.long
@only_there
def test_a_session_ends_with_raydps_master(gateway: Gateway) -> None:
    assert isinstance(fails(gateway, killing_the_master), SparkLost)
    assert works(gateway)


@pytest.mark.long
@only_there
def test_a_task_may_have_a_session_of_its_own(gateway: Gateway, place: RayDPSpark) -> None:
    assert works(gateway)
    before = java_processes()
    own_gateway = replace(place, name=None).open()
    try:
        assert works(own_gateway)
        assert works(gateway)
        assert len(java_processes()) > len(before)
    finally:
        own_gateway.close()
    assert java_left(before) == []
    assert works(gateway)


class FromElsewhere:
    """A transform from a module that the session's node does not have."""

    def __reduce__(self) -> Any:
        return importlib.import_module, ("module_of_one_machine",)


class UserError(SparkError):
    """An error that a user has defined."""


def raising(df: Any, batch: BatchInfo) -> Any:
    raise UserError("no such page")


@only_there
def test_errors_on_the_node_of_the_session_are_raised_in_the_caller(gateway: Gateway) -> None:
    error = fails(gateway, FromElsewhere())
    assert isinstance(error, TransformFailed)
    assert "No module named 'module_of_one_machine'. It gets the functions" in str(error)
    assert str(fails(gateway, raising)) == "no such page"


class LateHost:
    """A host whose session is not open at the first check."""

    def __init__(self) -> None:
        self.asked, self.stopped = 0, False

    @property
    def opened(self) -> bool:
        self.asked += 1
        return self.asked > 1

    def stop(self) -> None:
        self.stopped = True


def test_an_idle_session_that_opens_late_ends_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = threading.Event()
    monkeypatch.setattr(on_ray, "os", SimpleNamespace(_exit=lambda _: ended.set()))
    actor, host = GatewayActor(replace(ON_RAY, idle_s=0.2)), LateHost()
    actor.stop()
    monkeypatch.setattr(actor, "_host", host)
    assert ended.wait(WITHIN_S)
    assert (host.asked, host.stopped) == (2, True)


IMPORTS = """
import sys, threading
from sunshower.spark_integration.sessions.spark_on_ray import GatewayActor, RayDPSpark

GatewayActor(RayDPSpark())

def open_session():
    import raydp

def unpack_step():
    while "pyspark" not in sys.modules:
        pass
    import pyspark.sql.functions

threads = [threading.Thread(target=target) for target in (open_session, unpack_step)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
import raydp
"""


def test_threads_of_the_actor_import_spark_at_the_same_time() -> None:
    """Otherwise Python detects a deadlock of import locks: the import fails in the second thread,
    and leaves a pyspark without its version, so that no session can open in that process."""
    pytest.importorskip("pyspark")
    command = [sys.executable, "-c", IMPORTS]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
