"""A folder of committed batches: each appears as a whole under its txid, or not at all.

    FOLDER/txid=7/part-….parquet, _batch.json     batch 7, committed
    FOLDER/_sunshower/table.json                  which topology owns the table
    FOLDER/_sunshower/staged/8/2.0-4f1c…/         attempt 2 of batch 8, not yet decided

    written ──add `_batch.json`──▶ staged ──batch 8 is committed──▶ renamed to txid=8

`_batch.json` is written last, so a folder that has one is complete. The committed attempt of a
batch is the highest staged one: attempts only grow, and none begins after the commit. The same
holds for the runs of an attempt (2.1 after 2.0), which is submitted again when Spark dies. The
rename is the commit of the table; after a crash the successor repeats it, and finds it done or does
it. Readers such as Spark, pyarrow and pandas ignore names that begin with `_`.

The versions of a step's state are such a folder too (`spark_state.py`): txid=7 is what batch 7 has
left, and only the last two versions are kept.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import Any

from sunshower import versions
from sunshower.arguments import checked
from sunshower.errors import StateMismatch, StoreUnreachable, WriteFailed
from sunshower.state.sqlite import sync_path
from sunshower.topologies.operators.port import Attempt

# Errors that waiting does not resolve.
_PERMANENT = {
    *(errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.EROFS, errno.ENAMETOOLONG),
    errno.ELOOP,
}
_PRIVATE, _RECORD, _NAME = "_sunshower", "_batch.json", "txid="
_VERSIONS = 2  # of a state: what the next batch reads, and one more for readers


@dataclass(frozen=True)
class TableBatch:
    """The record of a batch in a table. `application` and `jobs` are Spark's ids."""

    txid: int
    attempt: int
    rows: int
    files: int
    bytes: int
    seconds: float  # how long Spark took
    application: str = ""
    jobs: tuple[int, ...] = ()


@checked()
def batches_in(folder: str | PurePath) -> list[TableBatch]:
    """The committed batches of a table, by txid. Raises StateMismatch, StoreUnreachable,
    WriteFailed."""
    with _convert_errors(Path(folder)):
        found = [_record(_published(Path(folder), txid)) for txid in _txids(Path(folder), _NAME)]
    return [one for one in found if one is not None]


def staging(folder: Path, txid: int, attempt: int, run: int = 0) -> Path:
    """A new folder to write a run of an attempt to."""
    return folder / _PRIVATE / "staged" / str(txid) / f"{attempt}.{run}-{uuid.uuid4().hex[:8]}"


def stage(where: Path, written: TableBatch) -> None:
    """Sync all files of an attempt and add its record. Raises OSError."""
    for file in where.iterdir():
        sync_path(file)
    _create(where / _RECORD, asdict(written))


class TableFolder:
    """A table, as the task that writes it opens it. `current` is the batch to be committed next.

    `topology` and `batches` (the incarnation of its txids) identify the owner. With `columns` it
    holds the versions of a state with these columns. Raises StateMismatch for a folder with another
    owner or other columns, StoreUnreachable for one that cannot be written now, and WriteFailed for
    one that never can be.
    """

    def __init__(
        self, folder: Path, topology: str, batches: str, current: int, columns: str | None = None
    ) -> None:
        self._folder, self._is_state = folder, columns is not None
        with _convert_errors(folder):
            owner = {"topology": topology, "batches": batches, "columns": columns}
            self._first = self._claim(owner, current)
            shown = _txids(folder, _NAME)
        if shown and shown[-1] >= current:
            raise StateMismatch(
                f"{folder} has batch {shown[-1]}, and by the store of the batches {current} is "
                "still to be committed: an older copy of the store? Give the right one back, or "
                "give the table another folder"
            )
        self._next = shown[-1] + 1 if shown else self._first
        self.publish(current - 1)

    def version_before(self, txid: int) -> Path | None:
        """What the batch before `txid` has left of a state; None if `txid` is the first. Call it
        when all batches before `txid` are committed. Raises like `publish`."""
        self.publish(txid - 1)
        if txid == self._first:
            return None
        found = _published(self._folder, txid - 1)
        if not (found / _RECORD).exists():
            raise self._missing(txid - 1)
        return found

    def last_attempt(self) -> Attempt | None:
        """The last attempt that is published or staged; of coordinator 0, since none is stored."""
        txids = _txids(self._folder / _PRIVATE / "staged")
        whole = [staged for txid in txids if (staged := self._staged(txid)) is not None]
        whole += [_published(self._folder, txid) for txid in _txids(self._folder, _NAME)[-1:]]
        found = [Attempt(one.txid, one.attempt, 0) for one in map(_record, whole) if one]
        return max(found, default=None)

    def publish(self, last: int) -> None:
        """Publish the batches up to `last`, which are committed. Raises StateMismatch for one that
        is not here, StoreUnreachable, WriteFailed."""
        if last < self._next:
            return
        with _convert_errors(self._folder):
            while self._next <= last:
                self._publish_one(self._next)
                self._next += 1
            sync_path(self._folder)
            staged = self._folder / _PRIVATE / "staged"
            for txid in _txids(staged):
                if txid <= last:  # also late files of a task that was thought dead
                    shutil.rmtree(staged / str(txid), ignore_errors=True)
            for txid in _txids(self._folder, _NAME) if self._is_state else ():
                if txid <= last - _VERSIONS:
                    shutil.rmtree(_published(self._folder, txid), ignore_errors=True)

    def _publish_one(self, txid: int) -> None:
        target, staged = _published(self._folder, txid), self._staged(txid)
        if target.exists():
            return
        if staged is None:
            raise self._missing(txid)
        try:
            staged.rename(target)
        except OSError:  # a former or later life of this task has renamed it
            if not target.exists():
                raise

    def _missing(self, txid: int) -> StateMismatch:
        if self._is_state:
            return StateMismatch(
                f"{self._folder}: batch {txid} is committed, and the state that it has left is not "
                "here: the program has run without this state, or files of it were removed. Put "
                "back what was there, or give the state another folder, in which it begins empty "
                "with the next batch"
            )
        return StateMismatch(
            f"{self._folder}: batch {txid} is committed, and not here: the program has run "
            "without this table, or files of it were removed. Give the table another folder, "
            "or remove this one as a whole, to begin with the next batch"
        )

    def _staged(self, txid: int) -> Path | None:
        """The highest complete attempt at a batch, and of its runs the last."""
        above = self._folder / _PRIVATE / "staged" / str(txid)
        whole = [path.parent for path in above.glob(f"*/{_RECORD}")]
        return max(whole, key=lambda path: attempt_and_run(path.name), default=None)

    def _claim(self, owner: dict[str, Any], current: int) -> int:
        """Create the owner's record, or check it. Returns the table's first batch."""
        path = self._folder / _PRIVATE / "table.json"
        if not path.exists():
            self._check_empty()
            path.parent.mkdir(parents=True, exist_ok=True)
            _create(path, {**owner, "first": current, "version": versions.TABLE})
        found = _read(path)
        way_out = "use the release that wrote it, or give the table another folder"
        versions.check(str(self._folder), found.get("version", 1), versions.TABLE, way_out)
        for what, ours in owner.items():
            if found.get(what) != ours:
                raise StateMismatch(
                    f"{self._folder} is the table of {what} {found.get(what)!r}, and this is "
                    f"{ours!r}: set that back (batches: the spout's id, and its store), give the "
                    "table another folder, or remove this one as a whole to start over"
                )
        return int(found["first"])

    def _check_empty(self) -> None:
        there = sorted(self._folder.iterdir()) if self._folder.exists() else []
        if foreign := [one.name for one in there if not one.name.startswith((".", _PRIVATE))]:
            raise StateMismatch(
                f"{self._folder} has {foreign[0]!r} in it, and is no table of batches: give the "
                "table a folder of its own"
            )


def attempt_and_run(staged: str) -> list[int]:
    """The numbers in the name of a staged folder."""
    return [int(number) for number in staged.partition("-")[0].split(".")]


def _published(folder: Path, txid: int) -> Path:
    return folder / f"{_NAME}{txid}"


def _txids(folder: Path, before: str = "") -> list[int]:
    """The txids in the names of the entries, lowest first."""
    names = [one.name for one in folder.iterdir()] if folder.exists() else []
    numbers = [name.removeprefix(before) for name in names if name.startswith(before)]
    return sorted(int(number) for number in numbers if number.isdecimal())


def _record(folder: Path) -> TableBatch | None:
    """The record of a batch; None if it was removed meanwhile."""
    try:
        found = _read(folder / _RECORD)
        return TableBatch(**{**found, "jobs": tuple(found["jobs"])})
    except FileNotFoundError:
        return None
    except (TypeError, KeyError) as error:
        raise StateMismatch(f"{folder / _RECORD} is no record of a batch: {error}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise StateMismatch(
            f"{path} is incomplete or damaged (no JSON object): restore it, or remove the whole "
            "table"
        )
    return found


def _create(path: Path, values: dict[str, Any]) -> None:
    """Create a file atomically; an existing one stays."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    draft.write_text(json.dumps(values))
    sync_path(draft)
    with suppress(FileExistsError):
        os.link(draft, path)
    draft.unlink()
    sync_path(path.parent)


@contextmanager
def _convert_errors(folder: Path) -> Iterator[None]:
    """Convert OSError to WriteFailed or StoreUnreachable."""
    try:
        yield
    except OSError as error:
        kind = WriteFailed if error.errno in _PERMANENT else StoreUnreachable
        raise kind(
            f"the table in {folder}: {error.strerror or error} ({error.filename}). All processes "
            "of the topology and of Spark must be able to write there"
        ) from error
