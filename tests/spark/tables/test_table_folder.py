"""The folder of a table: readers see only whole, committed batches, also after a crash anywhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sunshower.errors import StateMismatch, WriteFailed
from sunshower.spark_integration.tables import tables
from sunshower.spark_integration.tables.tables import (
    TableBatch,
    TableFolder,
    batches_in,
    stage,
    staging,
)


def opened(folder: Path, current: int, **owner: str) -> TableFolder:
    return TableFolder(folder, **{"topology": "t", "batches": "b", **owner}, current=current)


def written(folder: Path, txid: int, attempt: int, text: str, run: int = 0) -> None:
    where = staging(folder, txid, attempt, run)
    where.mkdir(parents=True)
    (where / "part.parquet").write_text(text)
    stage(
        where, TableBatch(txid, attempt, rows=1, files=1, bytes=len(text), seconds=0.5, jobs=(7,))
    )


def seen(folder: Path) -> dict[str, str]:
    """The files that a reader finds; readers ignore names that begin with _."""
    return {path.parent.name: path.read_text() for path in folder.glob("[!_]*/*.parquet")}


def test_a_batch_is_seen_once_it_is_committed_and_not_before(tmp_path: Path) -> None:
    folder = tmp_path / "sales of March, 100%"
    table = opened(folder, 1)
    written(folder, 1, 0, "one")
    written(folder, 2, 0, "two")
    assert seen(folder) == {}
    table.publish(1)
    assert seen(folder) == {"txid=1": "one"}
    table.publish(1)
    table.publish(2)
    assert seen(folder) == {"txid=1": "one", "txid=2": "two"}
    assert batches_in(folder) == [
        TableBatch(txid, 0, rows=1, files=1, bytes=3, seconds=0.5, jobs=(7,)) for txid in (1, 2)
    ]
    assert not any((folder / "_sunshower" / "staged").iterdir()), "staged files are left"


def test_the_highest_complete_attempt_is_published(tmp_path: Path) -> None:
    table = opened(tmp_path, 1)
    for attempt in (10, 9, 0):
        written(tmp_path, 1, attempt, f"attempt {attempt}")
    incomplete = staging(tmp_path, 1, 11)
    incomplete.mkdir(parents=True)
    (incomplete / "part.parquet").write_text("half of")
    table.publish(1)
    assert seen(tmp_path) == {"txid=1": "attempt 10"}


def test_the_last_run_of_an_attempt_is_published(tmp_path: Path) -> None:
    table = opened(tmp_path, 1)
    for run in (2, 10, 9, 0):  # a run that survives the crash of its gateway may finish late
        written(tmp_path, 1, 3, f"run {run}", run)
    written(tmp_path, 1, 2, "the attempt before", 11)
    table.publish(1)
    assert seen(tmp_path) == {"txid=1": "run 10"}


def test_an_attempt_that_is_staged_too_late_is_never_visible_and_is_removed(tmp_path: Path) -> None:
    table = opened(tmp_path, 1)
    written(tmp_path, 1, 1, "committed")
    table.publish(1)
    written(tmp_path, 1, 0, "late")
    written(tmp_path, 2, 0, "two")
    table.publish(2)
    assert seen(tmp_path) == {"txid=1": "committed", "txid=2": "two"}
    assert not any((tmp_path / "_sunshower" / "staged").iterdir())


def test_opening_a_table_publishes_what_was_committed_meanwhile(tmp_path: Path) -> None:
    opened(tmp_path, 5)
    written(tmp_path, 5, 0, "five")
    written(tmp_path, 6, 0, "six")
    opened(tmp_path, 6)
    assert seen(tmp_path) == {"txid=5": "five"}


def test_two_lives_of_a_task_may_publish_the_same_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = opened(tmp_path, 1), opened(tmp_path, 1)
    written(tmp_path, 1, 0, "one")
    rename = Path.rename

    def overtaken(self: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        second.publish(1)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", overtaken)
    first.publish(1)
    assert seen(tmp_path) == {"txid=1": "one"}


class Crash(BaseException):
    """A simulated crash of the process."""


def crashing(monkeypatch: pytest.MonkeyPatch, at: int, *, after: bool) -> list[str]:
    """Crash at the `at`-th call that changes the disk; returns the list of the calls."""
    calls: list[str] = []

    def watched(owner: Any, name: str) -> None:
        call: Callable[..., Any] = getattr(owner, name)

        def dies(*args: Any, **options: Any) -> Any:
            calls.append(name)
            if len(calls) > at or (len(calls) == at and not after):
                raise Crash
            result = call(*args, **options)
            if len(calls) == at:
                raise Crash
            return result

        monkeypatch.setattr(owner, name, dies)

    for name in ("mkdir", "write_text", "unlink", "rename"):
        watched(Path, name)
    watched(os, "link")
    watched(tables.shutil, "rmtree")  # type: ignore[attr-defined]
    return calls


def work(folder: Path, committed: list[int]) -> None:
    """Write two batches, the first with two attempts; `committed` is the store of the batches."""
    table = opened(folder, 1)
    written(folder, 1, 0, "one, given up")
    written(folder, 1, 1, "one")
    committed.append(1)
    table.publish(1)
    written(folder, 2, 0, "two")
    committed.append(2)
    table.publish(2)


def test_after_a_crash_at_any_step_a_successor_finishes_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        steps = crashing(patched, 10_000, after=False)
        work(tmp_path / "whole", [])
    assert len(steps) > 20
    for at in range(1, len(steps) + 1):
        for after in (False, True):
            folder, committed = tmp_path / f"{at}-{after}", list[int]()
            with monkeypatch.context() as patched:
                crashing(patched, at, after=after)
                with pytest.raises(Crash):
                    work(folder, committed)
            before = seen(folder)
            table = opened(folder, len(committed) + 1)
            assert len(seen(folder)) == len(committed)
            for txid in {1, 2} - {*committed}:
                written(folder, txid, 2, ("one", "two")[txid - 1])
                table.publish(txid)
            assert before.items() <= seen(folder).items()
            assert seen(folder) == {"txid=1": "one", "txid=2": "two"}


def test_a_folder_with_another_owner_is_refused(tmp_path: Path) -> None:
    written(tmp_path, 1, 0, "one")
    opened(tmp_path, 1).publish(1)
    with pytest.raises(StateMismatch, match="table of topology 't', and this is 'u'"):
        opened(tmp_path, 2, topology="u")
    with pytest.raises(StateMismatch, match="table of batches 'b', and this is 'anew'"):
        opened(tmp_path, 2, batches="anew")
    with pytest.raises(StateMismatch, match="older copy of the store"):
        opened(tmp_path, 1)
    foreign = tmp_path / "foreign"
    (foreign / "_spark_metadata").mkdir(parents=True)
    with pytest.raises(StateMismatch, match="'_spark_metadata' in it, and is not a table"):
        opened(foreign, 1)


def test_a_batch_that_was_committed_without_the_table_is_reported(
    tmp_path: Path,
) -> None:
    table = opened(tmp_path, 1)
    written(tmp_path, 1, 0, "one")
    table.publish(1)
    with pytest.raises(StateMismatch, match="batch 2 is committed, and not here"):
        opened(tmp_path, 3)
    shutil.rmtree(tmp_path)
    opened(tmp_path, 3)
    assert batches_in(tmp_path) == []


def test_older_batches_may_be_removed(tmp_path: Path) -> None:
    table = opened(tmp_path, 1)
    for txid in (1, 2):
        written(tmp_path, txid, 0, str(txid))
    table.publish(2)
    shutil.rmtree(tmp_path / "txid=1")
    written(tmp_path, 3, 0, "3")
    opened(tmp_path, 4)
    assert seen(tmp_path) == {"txid=2": "2", "txid=3": "3"}


def test_a_folder_that_cannot_be_written_is_reported_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WriteFailed, match=r"table in .*/file/table: Not a directory"):
        opened(tmp_path / "file" / "table", 1)


def test_an_incomplete_record_of_a_batch_is_reported(tmp_path: Path) -> None:
    written(tmp_path, 1, 0, "one")
    opened(tmp_path, 1).publish(1)
    (tmp_path / "txid=1" / "_batch.json").write_text('{"txid": 1')
    with pytest.raises(StateMismatch, match="incomplete or damaged"):
        batches_in(tmp_path)
