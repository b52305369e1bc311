"""Tests of loading a topology file, and of its error messages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sunshower.errors import LoadError, UnknownField
from sunshower.experiments.runner.loading import load
from tests.cli.conftest import Write

ONE = """
    topology = Topology("one")
    topology.spout("numbers", Counter(3))
"""
TWO = """
    first, second = Topology("first"), Topology("second")
    number = 3
"""


@pytest.mark.parametrize(
    ("code", "target", "id"),
    [
        ('anything = Topology("only")', "a.py", "only"),
        (TWO + '    topology = Topology("usual")', "a.py", "usual"),
        (TWO, "a.py:second", "second"),
        (ONE, "a:b.py", "one"),
    ],
    ids=["the only one", "the usual name", "a name", "a file whose name has a colon"],
)
def test_the_target_is_a_file_in_the_working_directory_and_perhaps_a_name(
    code: str, target: str, id: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = target.removesuffix(":second")
    monkeypatch.chdir(write(code, file).parent)
    assert load(target).topology.id == id


def test_a_file_named_like_a_module_of_python_does_not_replace_it(write: Write) -> None:
    import json

    load(str(write(ONE, "json.py")))
    assert sys.modules["json"] is json


def test_modules_of_its_folder_are_imported_and_shipped_with_the_file(
    write: Write, tmp_path: Path
) -> None:
    (tmp_path / "neighbour_of_it.py").write_text('NAME = "next-door"\n')
    (tmp_path / "package_of_it").mkdir()
    (tmp_path / "package_of_it" / "__init__.py").write_text("")
    loaded = load(
        str(write("import neighbour_of_it, package_of_it\nt = Topology(neighbour_of_it.NAME)"))
    )
    names = {module.__name__ for module in loaded.modules}
    assert loaded.topology.id == "next-door"
    assert names == {"some_topology", "neighbour_of_it", "package_of_it"}


def test_modules_of_another_folder_are_shipped_with_the_file_if_the_folder_is_given(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_above_it.py").touch()
    (tmp_path / "below").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    path = str(write("import module_above_it\nt = Topology('t')", "below/its_topology.py"))
    names = {module.__name__ for module in load(path, folder=tmp_path).modules}
    assert names == {"its_topology", "module_above_it"}
    del sys.modules["module_above_it"]
    assert {module.__name__ for module in load(path).modules} == {"its_topology"}


# ---- error messages -----------------------------------------------------------------------------


def refusal(target: object) -> str:
    with pytest.raises(LoadError) as raised:
        load(str(target))
    return str(raised.value)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import no_such_module_anywhere", "line 6: ModuleNotFoundError: No module named 'no_such"),
        ("topology = = 3", "line 6: SyntaxError"),
        ("import broken_neighbour", "broken_neighbour.py, line 1: SyntaxError"),
        ("raise SystemExit(3)", "SystemExit"),
        ("number = 3", 'topology = Topology("…")'),
    ],
)
def test_a_file_that_cannot_be_imported_or_has_no_topology(
    code: str, message: str, write: Write, tmp_path: Path
) -> None:
    (tmp_path / "broken_neighbour.py").write_text("def (:\n")
    path = write(code)
    text = refusal(path)
    assert message in text
    assert str(path) in text


@pytest.mark.parametrize(
    ("module", "extra"), [("pyspark.sql", "spark"), ("confluent_kafka", "kafka")]
)
def test_a_missing_package_of_an_extra_has_the_command_that_installs_it(
    write: Write, monkeypatch: pytest.MonkeyPatch, module: str, extra: str
) -> None:
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, module.partition(".")[0], None)  # as if it were not installed
    path = write(f"import {module}")
    with pytest.raises(LoadError, match=rf"line \d+: .*Install the extra {extra}: .*{extra}"):
        load(str(path))


def test_only_existing_python_files_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert "nowhere.py does not exist" in refusal(tmp_path / "nowhere.py")
    assert "is a folder" in refusal(tmp_path)
    assert "must end in .py" in refusal(tmp_path / "notes.txt")


def test_a_file_that_failed_can_be_corrected_and_loaded_again(write: Write) -> None:
    refusal(write("1 / 0"))
    assert load(str(write(ONE))).topology.id == "one"


def test_the_error_of_a_wrong_declaration_names_the_innermost_line_of_the_file(
    write: Write,
) -> None:
    path = write("""
        def declare(field):
            topology = Topology("t")
            topology.spout("numbers", Counter(3)).fields(field)

        declare("valeu")
    """)
    with pytest.raises(UnknownField, match="valeu") as raised:
        load(str(path))
    assert str(raised.value).startswith(f"{path}, line 9: ")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (":third", "has no 'third'"),
        (":number", "is of type int, not Topology"),
        ("", "several topologies"),
    ],
)
def test_an_unknown_name_or_none_lists_the_topologies(
    name: str, problem: str, write: Write
) -> None:
    text = refusal(f"{write(TWO)}{name}")
    assert problem in text
    assert "first, second" in text
    assert "some_topology.py:first" in text


# ---- names of modules that a run needs ----------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "module", "remedy"),
    [
        ("ray.py", "ray", "rename the file"),
        ("numpy.py", "numpy", "rename the file"),
        ("sunshower.py", "sunshower", "rename the file"),
        ("redis.py", "redis", "rename the file"),
        ("asyncio.py", "asyncio", "rename the file"),
        ("typing.py", "typing", "rename the file"),
        ("json.so", "json", "rename the file"),
        ("ray/__init__.py", "ray", "rename the folder"),
        ("json/__init__.py", "json", "rename the folder"),
        ("sunshower/__init__.py", "sunshower", "rename the folder"),
    ],
)
def test_a_file_that_hides_a_module_is_named(
    write: Write, tmp_path: Path, file: str, module: str, remedy: str
) -> None:
    path = write(ONE)
    hiding = tmp_path / file
    hiding.parent.mkdir(exist_ok=True)
    hiding.touch()
    with pytest.raises(LoadError) as raised:
        load(str(path))
    assert str(tmp_path / file.partition("/")[0]) in str(raised.value)
    assert f"has the name of the module {module!r}" in str(raised.value)
    assert str(raised.value).endswith(remedy)


def test_the_remedy_for_a_file_that_hides_a_module_works(write: Write, tmp_path: Path) -> None:
    path = write("    from numbers_of_it import N\n    topology = Topology(str(N))")
    (tmp_path / "ray.py").write_text("N = 3")
    with pytest.raises(LoadError):
        load(str(path))
    (tmp_path / "ray.py").rename(tmp_path / "numbers_of_it.py")
    assert load(str(path)).topology.id == "3"


def test_files_and_folders_that_hide_nothing_are_no_clash(write: Write, tmp_path: Path) -> None:
    path = write(ONE)
    (tmp_path / "ray").mkdir()  # without __init__.py the installed package comes first
    (tmp_path / "turtle.py").touch()  # of Python, and nothing of a run imports it
    (tmp_path / "numpy.txt").touch()
    assert load(str(path)).topology.id == "one"


def test_a_topology_in_a_file_with_the_name_of_a_package_is_refused(write: Write) -> None:
    with pytest.raises(LoadError, match=r"numpy\.py has the name of the module 'numpy'"):
        load(str(write(ONE, "numpy.py")))


@pytest.mark.parametrize(("file", "is_refused"), [("numpy.py", True), ("json.py", False)])
def test_a_file_in_the_working_directory_may_hide_a_package_in_workers(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, is_refused: bool
) -> None:
    (tmp_path / "folder").mkdir()
    path = write(ONE, "folder/topology.py")
    (tmp_path / file).touch()
    monkeypatch.chdir(tmp_path)
    if is_refused:
        with pytest.raises(LoadError, match=f"{file} has the name"):
            load(str(path))
    else:
        assert load(str(path)).topology.id == "one"


def test_a_file_in_the_folder_that_is_sent_to_the_cluster_is_named(
    write: Write, tmp_path: Path
) -> None:
    (tmp_path / "below").mkdir()
    path = write(ONE, "below/topology.py")
    (tmp_path / "pyarrow.py").touch()
    with pytest.raises(LoadError, match=r"pyarrow\.py has the name"):
        load(str(path), folder=tmp_path)
