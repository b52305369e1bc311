"""Tests of the files of `kill --keep`, also if one of its steps fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from sunshower.cli.control import end_with_savepoint
from sunshower.errors import ClusterError, LifecycleError
from sunshower.runtime.control.lifecycle import KillReport, State
from sunshower.runtime.control.savepoint import KeptComponent, Savepoint
from sunshower.runtime.plan import make_plan
from sunshower.simulation.cluster import SimCluster, SimRun
from sunshower.state import MemoryState
from sunshower.state.sqlite import NewFile
from tests.cli.conftest import PrintedBy
from tests.guarantee.changes.counted import program


@pytest.fixture
def run() -> Iterator[SimRun]:
    """A topology that has run for half a second."""
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(MemoryState()).graph())
        run.wait(0.5)
        yield run


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_continues(path: Path) -> None:
    """Continue the topology with its savepoint, on another cluster."""
    savepoint = Savepoint.from_bytes(str(path), path.read_bytes())
    with SimCluster(2, latency_s=0.005) as cluster:
        assert cluster.submit(program(MemoryState()).graph(), resume=savepoint).wait(600)


def test_the_file_has_its_name_once_the_topology_has_ended_and_is_private(
    run: SimRun, tmp_path: Path
) -> None:
    path = tmp_path / "words"
    with NewFile(path) as file:
        savepoint = run.keep()
        assert names(tmp_path) == [".words.unfinished"]
        end_with_savepoint(run, savepoint, file)
    assert run.stopped
    assert names(tmp_path) == ["words"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes() == savepoint.to_bytes()


def test_a_savepoint_that_cannot_be_written_leaves_no_file_and_the_topology_continues(
    run: SimRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: NewFile, __: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(NewFile, "write", full)
    with (
        NewFile(tmp_path / "words") as file,
        pytest.raises(LifecycleError, match=r"No space left on device.*is not ended"),
    ):
        end_with_savepoint(run, run.keep(), file)
    assert names(tmp_path) == []
    run.wait(0.5)
    assert run.snapshot().state is State.ACTIVE


def test_a_kill_that_comes_too_late_leaves_no_file(run: SimRun, tmp_path: Path) -> None:
    with NewFile(tmp_path / "words") as file:
        savepoint = run.keep()
        run.wait(61)
        with pytest.raises(LifecycleError, match="must not be used"):
            end_with_savepoint(run, savepoint, file)
    assert names(tmp_path) == []
    assert run.wait(600)


def test_after_ctrl_c_while_it_is_packed_the_topology_continues(
    run: SimRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: NewFile, __: bytes) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(NewFile, "write", interrupted)
    with NewFile(tmp_path / "words") as file, pytest.raises(KeyboardInterrupt):
        end_with_savepoint(run, run.keep(), file)
    assert names(tmp_path) == []
    run.wait(0.5)
    assert run.snapshot().state is State.ACTIVE


def test_a_topology_that_ends_although_its_client_fails_keeps_its_savepoint(
    run: SimRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill = run.kill

    def fails(wait_s: float | None = None) -> KillReport:
        kill(wait_s)
        raise ClusterError("its actors do not answer")

    monkeypatch.setattr(run, "kill", fails)
    with (
        NewFile(tmp_path / "words") as file,
        pytest.raises(ClusterError, match="'words' ends, and its savepoint is"),
    ):
        end_with_savepoint(run, run.keep(), file)
    assert names(tmp_path) == ["words"]


def test_if_it_is_unknown_whether_the_topology_has_ended_the_unfinished_file_stays(
    run: SimRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    savepoint = run.keep()

    def fails(_: float | None = None) -> KillReport:
        raise ClusterError("it does not answer")

    monkeypatch.setattr(run, "kill", fails)
    monkeypatch.setattr(run, "go_on", fails)
    with (
        NewFile(tmp_path / "words") as file,
        pytest.raises(ClusterError, match=r"not known whether 'words' has ended.*\.unfinished"),
    ):
        end_with_savepoint(run, savepoint, file)
    assert names(tmp_path) == [".words.unfinished"]
    (tmp_path / ".words.unfinished").rename(tmp_path / "words")  # it has ended
    assert_continues(tmp_path / "words")
    (tmp_path / "words").rename(tmp_path / ".words.unfinished")
    (tmp_path / ".words.unfinished").unlink()  # it goes on
    monkeypatch.undo()
    run.wait(61)
    with NewFile(tmp_path / "words") as file:
        end_with_savepoint(run, run.keep(), file)
    assert_continues(tmp_path / "words")


def test_a_file_that_has_appeared_meanwhile_is_not_replaced(run: SimRun, tmp_path: Path) -> None:
    path = tmp_path / "words"
    with NewFile(path) as file:
        savepoint = run.keep()
        path.write_text("of somebody else")
        with pytest.raises(ClusterError, match=r"has ended.*savepoint is .*\.unfin.* Rename it"):
            end_with_savepoint(run, savepoint, file)
    assert path.read_text() == "of somebody else"
    unfinished = tmp_path / ".words.unfinished"
    assert unfinished.read_bytes() == savepoint.to_bytes()
    assert_continues(unfinished.rename(tmp_path / "others"))


def test_the_error_names_the_unfinished_file_of_an_earlier_kill(
    printed_by: PrintedBy, tmp_path: Path
) -> None:
    (tmp_path / ".words.unfinished").touch()
    output = printed_by("kill", "words", "--keep", tmp_path / "words", status=2).err
    text = "".join(output.replace("│", "").split())
    assert ".words.unfinishedistherealready;nameanotherfile" in text


def test_a_savepoint_that_describes_records_among_the_shapes_is_read(run: SimRun) -> None:
    """As releases wrote it before fields of records could change."""
    savepoint = run.keep()
    former = {
        name: {
            **asdict(component),
            "shapes": {state: [*shape, "records"] for state, shape in component.shapes.items()},
        }
        for name, component in savepoint.components.items()
    }
    assert any(component["shapes"] for component in former.values())
    for component in former.values():
        del component["records"]
    components = {name: KeptComponent(**component) for name, component in former.items()}
    read = Savepoint.from_bytes("words", replace(savepoint, components=components).to_bytes())
    plan = make_plan(program(MemoryState()).graph())
    assert [task.id for task in read.resumed(plan).tasks] == [task.id for task in savepoint.tasks]
