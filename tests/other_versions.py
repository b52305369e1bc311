"""Runs tests with the lowest versions, the newest Python, and Spark 4: `make test-ci`.

They run at the same time, in environments of their own in build/versions, which are made anew: with
the lowest versions what uses libraries, with the newest Python more, each test with one seed. With
Spark 4, one program of batches in each place where Spark runs; `make test-all` runs more of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import again

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "versions"
LOWEST = (3, 11)  # the Python for which constraints-lowest.txt is resolved
NEWER = ((3, 14), (3, 13))
MARKED = "not ray and not servers and not spark and not mutants and not browser and not long"
# Folders, and patterns of files, in `tests`. `make test` runs all with the usual versions; here are
# those that fail first where a library or Python behaves in another way. A job has eight minutes.
WITH_LIBRARIES = (
    # Typer and Rich; OpenTelemetry, Prometheus, and what starts Ray
    *("cli/test_[cdfps]*.py", "cli/statistics/test_top.py", "cli/traces", "cli/metrics"),
    *("cli/jobs", "texts/test_terminal.py", "texts/test_reports.py"),
    # NumPy, Arrow, MessagePack, msgspec and record types
    *("values", "security/test_hostile_*.py", "runtime/transport", "runtime/bolts"),
    *("topologies/operators/columns", "topologies/operators/totals/test_[ac]*.py"),
    *("connectors/test_object*.py", "connectors/test_record_parts.py"),
    *("spark/tables/test_spark_schema.py", "spark/tables/test_*table*.py"),
    # Matplotlib, Starlette and Uvicorn, HTTP, Kafka and its schema registry, certificates, jars
    *(
        "experiments/report",
        "web/test_server.py",
        "web/test_letters.py",
        "connectors/test_http_*.py",
    ),
    *("kafka/test_*.py", "kafka/producing", "dev/test_certificates.py", "dev/test_j*.py"),
)
WITH_PYTHON = (
    # Pickled code, annotations, signatures, values
    *("actors", "cli/kill", "topologies/test_*.py", "runtime/tasks/test_own_copies.py"),
    *("values/test_record_*.py", "values/test_typed_reading.py", "values/test_values_*.py"),
    # Exceptions and their texts
    *("cli/test_commands.py", "cli/test_ten_mistakes.py", "runtime/tasks/test_*errors*.py"),
    *("texts/test_remedies.py", "texts/test_texts.py"),
    # Processes, threads, asyncio, SQLite
    *("cli/local", "dev/test_keeper.py", "runtime/tasks/test_shared_collector.py", "state"),
    *("connectors/test_http_source.py", "kafka/consuming", "kafka/producing", "web/test_server.py"),
    *("security/test_s*.py", "testing/test_pytest_plugin.py", "testing/test_inline_run.py"),
)
# RayDP and Spark 3.5 run the same program in `make test`.
WITH_SPARK_4 = ("spark/test_spark_batches.py",)
# Three jobs share two processors.
_ONE_PROGRAM = ("-k", "two_batches_at_a_time", "--timeout", "900")
MORE_WITH_SPARK_4 = (
    *WITH_SPARK_4,
    *("spark/test_pipeline_p*.py", "spark/test_spark_steps.py", "spark/test_spark_topology.py"),
    *("spark/sessions/test_spark_cluster.py", "spark/sessions/test_spark_gateway.py"),
    *("spark/tables/test_kafka_rows.py", "spark/tables/test_spark_state_on_spark.py"),
    "spark/tables/test_tables_on_spark.py",
)
# In all places what is about the place; the pipeline locally, too; the others at a server.
_CHOSEN = "connect or test_spark_batches or gateway or a_server or experiment or each_sale"
CHOSEN_OF_SPARK_4 = ("-m", "spark", "-k", _CHOSEN)
SEEDS = ("--sunshower-seeds", "1")
_PYTEST = ("-m", "pytest", "-q", "--by-folder")
_FEW = ("-m", MARKED, "-k", "not swarm")  # swarms run random programs, which takes minutes
CACHE = "cache"  # of pytest, in the environment of a job
_SHOWN_LINES, _END_LINES = 200, 40  # of a job that fails, of one that passes


@dataclass(frozen=True)
class Job:
    """Tests with a Python and versions of packages, and afterwards commands of `sunshower`."""

    name: str
    python: Path
    pins: str  # a file of constraints
    tests: tuple[str, ...]  # folders and patterns of files in `tests`
    commands: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    extras: str = "test"
    chosen: tuple[str, ...] = _FEW  # options of pytest that choose tests
    cached: bool = False  # whether an environment is used again


def spark_4(python: Path, **more: Any) -> Job:
    """Tests with PySpark 4, instead of the 3.5 of this environment."""
    options = {"name": "spark4", "tests": WITH_SPARK_4, "chosen": _ONE_PROGRAM, **more}
    pins, extras = "constraints-spark4.txt", "test,spark4"
    return Job(python=python, pins=pins, extras=extras, **options)


def pythons(version: tuple[int, int], path: str, home: Path) -> Iterator[Path]:
    """The interpreters of a version of Python: on a PATH, then those of pyenv and of uv."""
    name = "python{}.{}".format(*version)
    if on_path := shutil.which(name, path=path):
        yield Path(on_path)
    installed = "{}.{}.*".format(*version)
    yield from home.glob(f".pyenv/versions/{installed}/bin/{name}")
    yield from home.glob(f".local/share/uv/python/cpython-{installed}/bin/{name}")


def runs(python: Path, version: tuple[int, int]) -> bool:
    """Whether it starts, with this version; a shim of pyenv may not."""
    code = f"import sys; sys.exit(sys.version_info[:2] != {version})"
    return not subprocess.run([python, "-c", code], check=False, capture_output=True).returncode


def python_of(*versions: tuple[int, int]) -> Path | None:
    """An interpreter of the first of these versions that is here, or that uv can install."""
    path, home = os.environ.get("PATH", ""), Path.home()
    for version in versions:
        for python in pythons(version, path, home):
            if runs(python, version):
                return python
    last = "{}.{}".format(*versions[-1])
    install = (uv(), "python", "install", "-q", last)
    if subprocess.run(install, check=False, capture_output=True).returncode:
        return None
    return next(
        filter(lambda path: runs(path, versions[-1]), pythons(versions[-1], "", home)), None
    )


def uv() -> str:
    """The path of uv, which the extra `dev` installs."""
    return str(Path(sys.executable).with_name("uv"))


def tests_of(name: str) -> list[str]:
    """The paths of a folder, or of the files with a pattern, of `tests`."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").glob(name))


def commands(job: Job) -> Iterator[Sequence[str | Path]]:
    """The commands of a job, in their order."""
    place = FOLDER / job.name
    python = place / "bin" / "python"
    if not (job.cached and python.exists()):
        yield (uv(), "venv", "-q", "--clear", "--python", job.python, place)
    pins = ("-c", ROOT / job.pins, "--build-constraints", ROOT / "constraints.txt")
    project = f"{ROOT}[{job.extras}]"
    yield (uv(), "pip", "install", "-q", "--python", python, *pins, "-e", project)
    yield (python, "--version")
    paths = (path for name in job.tests for path in tests_of(name))
    yield (python, *_PYTEST, *job.chosen, "-o", f"cache_dir={place / CACHE}", *paths)
    for command in job.commands:
        yield (place / "bin" / "sunshower", command)


def run(job: Job) -> bool:
    """Run a job and print its log, if it fails the whole; whether every command succeeded."""
    log, place, begin_s = FOLDER / f"{job.name}.log", FOLDER / job.name, time.monotonic()
    with log.open("w") as file:
        options: dict[str, Any] = {
            "cwd": ROOT,
            "stdout": file,
            "stderr": file,
            "env": {**os.environ, **dict(job.environment)},
        }
        for command in commands(job):
            step_s = time.monotonic()
            status = subprocess.run(command, check=False, **options).returncode
            shown = " ".join(Path(word).name for word in map(str, command[:3]))
            print(f"{job.name}: {shown} …: {time.monotonic() - step_s:.0f} s", flush=True)
            succeeds = not status or (
                status == again.TESTS_FAILED
                and again.passes(place / "bin" / "python", place / CACHE, *SEEDS, **options)
            )
            if not succeeds:
                file.write(f"\n{' '.join(map(str, command))} exits with {status}\n")
                break
    lines = log.read_text(encoding="utf-8").splitlines()
    shown_lines = [*lines[:1], *lines[-_END_LINES:]] if succeeds else lines[-_SHOWN_LINES:]
    result = "passed" if succeeds else "FAILED"
    took = f"in {time.monotonic() - begin_s:.0f} s"
    print(f"\n{job.name}: {result} {took} ({log})", *shown_lines, sep="\n", flush=True)
    return succeeds


def main() -> int:
    """Run all jobs; the status is 1 if one fails. A Python that is missing is a printed line."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    jobs = []
    if python := python_of(LOWEST):
        pure = (("SUNSHOWER_PURE", "1"),)  # the loops of record_loops.py in Python
        jobs.append(
            Job("lowest", python, "constraints-lowest.txt", WITH_LIBRARIES, environment=pure)
        )
        jobs.append(spark_4(python))
    else:
        print(
            "SKIPPED the lowest versions and Spark 4: no Python 3.11 here, and uv cannot install it"
        )
    if python := python_of(*NEWER):
        jobs.append(Job("newest", python, "constraints.txt", WITH_PYTHON, ("demo",)))
    else:
        print("SKIPPED the newest Python: no Python 3.14 or 3.13 here, and uv cannot install 3.13")
    for job in jobs:
        print(f"{job.name}: {job.python}, versions of {job.pins} …", flush=True)
    with ThreadPoolExecutor() as pool:
        return int(not all(pool.map(run, jobs)))


if __name__ == "__main__":
    sys.exit(main())
