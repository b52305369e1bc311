"""All processes of the pipeline are killed in turn, and its table equals that of a plain program.

    sunshower experiment run examples/kafka_to_spark/kills.py --cluster ray

A worker, the master, the broker, Spark's Java and its executor get a SIGKILL in an order that the
seed determines, each after another batch has been written to the table. `--set on=cluster`,
`--set into=delta` and `--set reads=ranges` have the effect of the variables of pipeline.py. A local
Spark has its executor in the driver's Java; there, a Python process of the executor is killed.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from pipeline import pipeline, place_of
from sales import differences, fill, rows_of

from sunshower import Topology
from sunshower.dev import Kafka
from sunshower.errors import ClusterError
from sunshower.experiments import (
    CheckResult,
    Ending,
    Experiment,
    Facts,
    History,
    Layout,
    NoPrematureAck,
    Step,
    kill,
    master,
    outage,
    worker,
)
from sunshower.spark_integration import delta, table

SALES, BATCH = 2_000, 200
FAULTS, MOMENT_S, AWAY_S, WITHIN_S = 5, 0.1, 2.0, 200.0
TEMPORARY = tempfile.TemporaryDirectory(prefix="kafka-to-spark-", ignore_cleanup_errors=True)
FOLDER = Path(TEMPORARY.name)  # has a folder for each run, with the name of its topic


@cache
def broker() -> Kafka:
    """A real broker, which ends with this process."""
    return Kafka().start()


def topology(on: str, into: str, reads: str) -> Topology:
    topic = f"sales-{uuid.uuid4().hex[:8]}"
    fill(SALES, broker().bootstrap, topic)
    return pipeline(
        broker().bootstrap,
        topic,
        FOLDER / topic,
        place=place_of({"local": "", "cluster": "cluster"}[on]),
        ranges={"rows": False, "ranges": True}[reads],
        into={"table": table, "delta": delta}[into],
        records=BATCH,
        until_end=True,
    )


def newest() -> Path | None:
    """The folder of the newest run."""
    begun = FOLDER.glob("*/batches.db")
    return max((file.parent for file in begun), key=lambda item: item.stat().st_ctime, default=None)


def batches() -> tuple[Path | None, int]:
    """The folder of this run, and the number of batches in its table."""
    if (folder := newest()) is None:
        return None, 0
    of_formats = (folder / "table").glob("txid=*"), (folder / "table").glob("_delta_log/*.json")
    return folder, sum(len([*files]) for files in of_formats)


@dataclass(frozen=True)
class Next:
    """A fault that begins when another batch has been added to the table."""

    fault: Any

    @property
    def for_s(self) -> float:
        return float(self.fault.for_s)

    def check(self, plan: Any) -> None:
        self.fault.check(plan)

    def begin(self, run: Any, plan: Any, generator: np.random.Generator) -> Any:
        before, end_s = batches(), time.monotonic() + WITHIN_S
        while (now := batches()) == before or not now[1]:
            if run.wait(0.1) or time.monotonic() > end_s:
                raise ClusterError(f"no batch was added to {now[1]} within {WITHIN_S:g} s")
        return self.fault.begin(run, plan, generator)

    def __str__(self) -> str:
        return f"{self.fault}, after another batch"


def of_spark(command: str) -> list[psutil.Process]:
    """The descendants of this process whose command contains this text."""
    processes = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if command in " ".join(process.cmdline()):
                processes.append(process)
    return processes


def executors() -> list[psutil.Process]:
    """Java of the executors; if the driver's Java runs them, its PySpark daemons instead."""
    pythons = [
        process for process in of_spark("pyspark.daemon") if process.parent().name() == "java"
    ]
    javas = [python.parent() for python in pythons]
    apart = [java for java in javas if "DefaultWorker" in " ".join(java.cmdline())]
    return apart or pythons


def kill_one(find: Any) -> None:
    """Kill the first process that `find` returns. Wait for it, because a new Java has no executor
    at first. Raises ClusterError if there is none in time."""
    end_s = time.monotonic() + WITHIN_S
    while time.monotonic() < end_s:
        with suppress(IndexError, psutil.NoSuchProcess, AttributeError):
            find()[0].kill()
            return
        time.sleep(0.1)
    raise ClusterError(f"there was no process to kill within {WITHIN_S:g} s")


def restart_broker() -> None:
    """One call, because the next fault waits for a batch, which needs the broker."""
    broker().kill(1)
    time.sleep(AWAY_S)
    broker().restart(1)


def plan(generator: np.random.Generator) -> Iterator[Step]:
    java = partial(of_spark, "deploy.SparkSubmit")
    faults = [
        kill(worker()),
        kill(master()),
        outage("the broker", restart_broker, bool, for_s=MOMENT_S),
        outage("Java", partial(kill_one, java), bool, for_s=MOMENT_S),
        outage("an executor", partial(kill_one, executors), bool, for_s=MOMENT_S),
    ]
    for at_s, chosen in enumerate(generator.permutation(FAULTS).tolist()):
        yield Step(1.0 + at_s, Next(faults[chosen]))


class SameTable:
    """All faults occurred, and the table and the dead letters are those of a plain program."""

    name = "same-table"

    def check(self, history: History, facts: Facts) -> CheckResult:
        folder, count = batches()
        rows = rows_of(folder / "table") if folder else []
        wrong = differences(rows, broker().bootstrap, folder.name) if folder else ["no run"]
        holds = f"{len(rows):,} sales in {count} batches, each once"
        if facts.ending is not Ending.FINISHED:
            return CheckResult(holds, unknown=[*wrong, "it did not finish"])
        few = [f"{len(history.faults)} of {FAULTS} faults began"]
        return CheckResult(holds, broken=wrong, unknown=few * (len(history.faults) < FAULTS))


experiment = Experiment(
    name="kafka-to-spark",
    about="A worker, the master, the broker, Java and an executor are killed in turn.",
    topology=topology,
    plan=plan,
    checkers=[SameTable(), NoPrematureAck()],
    parameters={"on": "local", "into": "table", "reads": "rows"},
    layout=Layout.PACK,
    seconds_max=900,
    simulated=False,
)
