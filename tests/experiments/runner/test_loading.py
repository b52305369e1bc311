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


def test_neighbours_are_imported_and_travel_with_the_file(write: Write, tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_it.py").write_text('NAME = "next-door"\n')
    (tmp_path / "package_of_it").mkdir()
    (tmp_path / "package_of_it" / "__init__.py").write_text("")
    loaded = load(
        str(write("import neighbour_of_it, package_of_it\nt = Topology(neighbour_of_it.NAME)"))
    )
    names = {module.__name__ for module in loaded.modules}
    assert loaded.topology.id == "next-door"
    assert names == {"some_topology", "neighbour_of_it", "package_of_it"}


# ---- what is wrong with it ----------------------------------------------------------------------


def refusal(target: object) -> str:
    with pytest.raises(LoadError) as raised:
        load(str(target))
    return str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    text = refusal(tmp_path / "nowhere.py")
    assert "nowhere.py does not exist" in text


def test_a_folder_is_not_a_topology(tmp_path: Path) -> None:
    assert "is a folder" in refusal(tmp_path)


def test_a_file_that_is_not_python_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert "must end in .py" in refusal(tmp_path / "notes.txt")


def test_an_import_that_fails_names_file_line_and_exception(write: Write) -> None:
    path = write("import no_such_module_anywhere")
    text = refusal(path)
    assert str(path) in text
    assert "line 6: ModuleNotFoundError: No module named 'no_such_module_anywhere'" in text


def test_a_syntax_error_names_its_line(write: Write) -> None:
    assert "line 6: SyntaxError" in refusal(write("topology = = 3"))


def test_a_syntax_error_next_door_names_that_file(write: Write, tmp_path: Path) -> None:
    (tmp_path / "broken_neighbour.py").write_text("def (:\n")
    assert "broken_neighbour.py, line 1: SyntaxError" in refusal(write("import broken_neighbour"))


def test_a_file_that_exits_is_refused(write: Write) -> None:
    assert "SystemExit" in refusal(write("raise SystemExit(3)"))


def test_a_file_that_failed_can_be_mended_and_loaded_again(write: Write) -> None:
    refusal(write("1 / 0"))
    assert load(str(write(ONE))).topology.id == "one"


def test_a_wrong_declaration_explains_itself(write: Write) -> None:
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


def test_a_name_that_is_not_there_lists_the_topologies(write: Write) -> None:
    text = refusal(f"{write(TWO)}:third")
    assert "has no 'third'" in text
    assert "first, second" in text


def test_something_else_of_that_name_is_not_a_topology(write: Write) -> None:
    text = refusal(f"{write(TWO)}:number")
    assert "is a int, not a Topology" in text
    assert "first, second" in text


def test_several_topologies_without_a_name_are_listed(write: Write) -> None:
    text = refusal(write(TWO))
    assert "several topologies" in text
    assert "some_topology.py:first" in text


def test_a_file_without_topologies_is_told_how_to_make_one(write: Write) -> None:
    assert 'topology = Topology("…")' in refusal(write("number = 3"))
