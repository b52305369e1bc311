"""Tests of dependencies: each is pinned, within the range that the project accepts."""

from __future__ import annotations

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests import other_versions
from tests.structure.reading import FILES, PACKAGE_FILES, ROOT, imports, text

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
USERS = sorted(EXTRAS.keys() - {"test", "dev", "all"})


def pins(file: str) -> list[str]:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def by_name(lines: list[str]) -> dict[str, str]:
    return {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in lines}


PINS, LOWEST = pins("constraints.txt"), pins("constraints-lowest.txt")
PINS_OF_SPARK_4 = pins("constraints-spark4.txt")


def requirements(*extras: str) -> list[Requirement]:
    """What builds and runs need, with these extras."""
    project = PROJECT["build-system"]["requires"], PROJECT["project"]["dependencies"]
    lines = [line for group in (*project, *map(EXTRAS.get, extras)) for line in group or ()]
    return [named for named in map(Requirement, lines) if named.name != "sunshower"]


def test_constraints_are_one_name_and_one_version() -> None:
    form = re.compile(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*")
    assert not [line for line in [*PINS, *LOWEST, *PINS_OF_SPARK_4] if not form.fullmatch(line)]


def test_no_name_is_pinned_twice() -> None:
    for lines in (PINS, PINS_OF_SPARK_4):
        names = [canonicalize_name(line.partition("==")[0]) for line in lines]
        assert len(names) == len(set(names))


def test_dependencies_are_pinned_within_their_ranges() -> None:
    usual = requirements(*EXTRAS.keys() - {"spark4"})
    for lines, wanted in (PINS, usual), (PINS_OF_SPARK_4, requirements("test", "spark4")):
        versions = by_name(lines)
        for requirement in wanted:
            version = versions.get(canonicalize_name(requirement.name))
            assert version, f"{requirement.name} has no line in the constraints"
            assert requirement.specifier.contains(version), f"{requirement} is pinned to {version}"


def test_spark_4_is_tested_with_the_usual_versions_of_everything_else() -> None:
    usual = by_name(PINS)
    others = {
        name
        for name, version in by_name(PINS_OF_SPARK_4).items()
        if usual.get(name, version) != version
    }
    assert others == {"pyspark", "py4j"}


def test_the_extras_of_spark_exclude_each_other() -> None:
    pyspark = [
        {requirement.name: requirement for requirement in map(Requirement, EXTRAS[extra])}[
            "pyspark"
        ].specifier
        for extra in ("spark", "spark4")
    ]
    for lines in (PINS, PINS_OF_SPARK_4):
        version = by_name(lines)["pyspark"]
        assert [specifier.contains(version) for specifier in pyspark].count(True) == 1
    pairs = [{side["extra"] for side in pair} for pair in PROJECT["tool"]["uv"]["conflicts"]]
    assert pairs == [{extra, "spark4"} for extra in ("spark", "all", "dev")]


def test_the_lowest_versions_are_the_floors_of_the_core_and_of_the_extras() -> None:
    versions = by_name(LOWEST)
    users = [key for key in USERS if not key.startswith("spark")]
    declared = [
        *PROJECT["project"]["dependencies"],
        *(line for key in users for line in EXTRAS[key]),
    ]
    floors: dict[str, Version] = {}
    for requirement in map(Requirement, declared):
        if requirement.marker and not requirement.marker.evaluate({"python_version": "3.11"}):
            continue
        name = canonicalize_name(requirement.name)
        (floor,) = (bound.version for bound in requirement.specifier if bound.operator == ">=")
        floors[name] = max(Version(floor), floors.get(name, Version(floor)))
    for name, floor in floors.items():
        lowest = Version(versions[name])
        assert lowest >= floor, name
        # 17 stands for the first release 17.0.2.1: no other one fits below what is tested.
        assert lowest.release[: len(floor.release)] == floor.release, f"{name} is not the floor"


def test_no_module_begins_with_a_package_that_only_tests_install() -> None:
    users = [*PROJECT["project"]["dependencies"], *(line for key in USERS for line in EXTRAS[key])]
    installed = {Requirement(line).name for line in users}
    of_tests = (
        {Requirement(line).name for line in EXTRAS["test"]} - installed - {"pytest", "sunshower"}
    )
    modules = {name.replace("-", "_") for name in of_tests}
    assert "fastavro" in modules  # the extra `kafka` works without Avro
    begins = [
        (path, imported.module)
        for path in PACKAGE_FILES
        for imported in imports(path)
        if not (imported.late or imported.typing_only)
        and imported.module.partition(".")[0] in modules
    ]
    assert not begins


def test_only_spark_and_sketches_need_an_older_python() -> None:
    project = PROJECT["project"]
    assert project["requires-python"] == ">=3.11"
    newer = {"python_version": "3.14"}
    for extra, requirements in EXTRAS.items():
        for requirement in map(Requirement, requirements):
            left_out = requirement.marker is not None and not requirement.marker.evaluate(newer)
            assert left_out or extra not in {"spark", "sketches"}, requirement
            assert not left_out or extra in {"spark", "sketches", "dev"}, requirement
    named = {
        classifier.rpartition(" ")[2]
        for classifier in project["classifiers"]
        if " :: 3." in classifier
    }
    assert named == {"3.11", "3.12", "3.13"}  # those on which the tests have run


def test_the_version_is_written_once() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert (ROOT / PROJECT["tool"]["hatch"]["version"]["path"]).name == "__init__.py"


def test_the_tests_that_other_versions_run_exist() -> None:
    names = {*other_versions.WITH_LIBRARIES, *other_versions.WITH_PYTHON}
    names |= {*other_versions.MORE_WITH_SPARK_4}
    assert all(other_versions.tests_of(name) for name in names)


def test_a_change_is_checked_tested_and_tested_with_other_versions() -> None:
    lines = text(ROOT / ".ci/run").splitlines()
    commands = [line for line in lines if line.startswith("make ")]
    assert commands == ["make check", "make test AGAIN=1", "make test-ci"]


def test_commands_to_install_name_existing_extras() -> None:
    texts = {path: text(path) for path in FILES if path.suffix in {".py", ".md"}}
    named = re.findall(r"make setup EXTRAS=([\w,]+)", "\n".join(texts.values()))
    assert not {name for names in named for name in names.split(",")} - EXTRAS.keys()
    on_an_index = re.compile(r"pip install '?sunshower\b")  # it is on none
    assert not [path for path, words in texts.items() if on_an_index.search(words)]


def test_the_readme_lists_the_extras_of_users() -> None:
    (listed,) = re.findall(r"is an extra:(.*?)\.\s", text(ROOT / "README.md"), re.DOTALL)
    assert {*re.findall(r"`(\w+)`", listed)} == EXTRAS.keys() - {"test", "dev"}
