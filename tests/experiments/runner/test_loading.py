"""Tests of loading a topology file, and of its error messages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sunshower.errors import LoadError, TopologyError, UnknownField
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


def test_the_only_topology_needs_no_name(write: Write) -> None:
    path = write('anything = Topology("only")')
    assert load(str(path)).topology.id == "only"


def test_among_several_the_usual_name_is_taken(write: Write) -> None:
    path = write(TWO + '    topology = Topology("usual")')
    assert load(str(path)).topology.id == "usual"


def test_a_name_picks_one_of_several(write: Write) -> None:
    assert load(f"{write(TWO)}:second").topology.id == "second"


def test_a_path_is_taken_from_the_working_directory(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write(ONE).parent)
    assert load("some_topology.py:topology").topology.id == "one"


def test_a_file_whose_name_has_a_colon_can_be_loaded(write: Write) -> None:
    assert load(str(write(ONE, "a:b.py"))).topology.id == "one"


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


def test_only_existing_python_files_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert "nowhere.py does not exist" in refusal(tmp_path / "nowhere.py")
    assert "is a folder" in refusal(tmp_path)
    assert "must end in .py" in refusal(tmp_path / "notes.txt")


def test_a_file_that_failed_can_be_corrected_and_loaded_again(write: Write) -> None:
    refusal(write("1 / 0"))
    assert load(str(write(ONE))).topology.id == "one"


def test_the_error_of_a_wrong_declaration_names_its_line(write: Write) -> None:
    path = write('Topology("t").spout("numbers", Counter(3), parallelism=0)')
    with pytest.raises(TopologyError, match="parallelism is 0") as raised:
        load(str(path))
    assert str(raised.value).startswith(f"{path}, line 6: ")


def test_a_wrong_declaration_in_a_function_names_the_innermost_line_of_the_file(
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
