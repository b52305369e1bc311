"""A partition whose position a batch does not change has no rows in it, nor in its repeats.

This holds for every partitioned spout, ours and those of users, whatever it returns for "no rows".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sunshower import TextFiles
from sunshower.trident.spouts.bounds import Room
from sunshower.trident.spouts.fixed import TextFileBatches
from sunshower.trident.spouts.ordinary_spouts import PlainSpout
from sunshower.trident.spouts.port import OpaquePartitionedSpout, PartitionedSpout
from tests.trident.rigs.emitting import Drive
from tests.trident.rigs.numbers import OpaqueRowBatches, RowBatches

ROWS = {"a": ["a0", "a1", "a2"], "b": ["b0", "b1", "b2", "b3", "b4", "b5", "b6"]}
ALL = sorted(row for rows in ROWS.values() for row in rows)
BATCHES = 8


class Reader:
    """Emits two rows of each partition in a batch, while there are any; the stream never ends."""

    emits = ("row",)

    def partitions(self) -> list[str]:
        return [*ROWS]

    def emit_new(self, partition: str, last: Any, room: Room) -> Any:
        at = last["end"] if last else 0
        rows = ROWS[partition][at : at + 2]
        if not rows:
            return self.nothing(last)
        room.emit([(row,) for row in rows])
        return self.moved(last, at, at + len(rows))

    def nothing(self, last: Any) -> Any:
        return last

    def moved(self, last: Any, at: int, end: int) -> Any:
        return {"at": at, "end": end, "pair": (at, end)}


class Transactional(PartitionedSpout):
    def emit_again(self, partition: str, metadata: Any, room: Room) -> None:
        room.emit([(row,) for row in ROWS[partition][metadata["at"] : metadata["end"]]])
        metadata["at"] = "changed in place"


class Opaque(OpaquePartitionedSpout):
    pass


class Equal(Reader):
    """Returns a new, equal value if there are no rows."""

    def nothing(self, last: Any) -> Any:
        return last and {"pair": (last["at"], last["end"]), "end": last["end"], "at": last["at"]}


class Changing(Reader):
    """Changes the metadata that it receives, and returns them."""

    def moved(self, last: Any, at: int, end: int) -> Any:
        last = {} if last is None else last
        last.update({"at": at, "end": end})
        return last


class AllAtOnce(Reader):
    """Reads all partitions at once, and returns an entry for each."""

    def emit_all_new(self, last: Mapping[str, Any], room: Room) -> dict[str, Any]:
        return {name: self.emit_new(name, before, room) for name, before in last.items()}


def kinds(how: type[Reader]) -> list[Any]:
    return [
        type(f"{how.__name__}{base.__name__}", (how, base), {})()
        for base in (Transactional, Opaque)
    ]


SPOUTS: list[Any] = [spout for how in (Reader, Equal, Changing, AllAtOnce) for spout in kinds(how)]


def names(rows: list[Any]) -> list[str]:
    return [row[0] for row in rows]


@pytest.mark.parametrize("spout", SPOUTS, ids=lambda spout: type(spout).__name__)
@pytest.mark.parametrize("restarts", [False, True])
def test_each_row_is_in_one_batch_though_each_batch_is_repeated(spout: Any, restarts: bool) -> None:
    drive, emitted = Drive(spout), list[str]()
    for txid in range(1, BATCHES):
        first = names(drive.emit(txid))
        if restarts:
            drive.restart()
            drive.tree_says(txid)
        again = names(drive.batch(txid, 1))
        assert sorted(again) == sorted(first)
        drive.tree_says(txid + 1)
        emitted += again
    assert sorted(emitted) == ALL


@pytest.mark.parametrize("spout", SPOUTS, ids=lambda spout: type(spout).__name__)
def test_each_row_is_in_one_batch_though_batches_overlap(spout: Any) -> None:
    drive, emitted = Drive(spout), list[str]()
    for txid in range(1, BATCHES, 2):
        drive.emit(txid)
        drive.emit(txid + 1)
        emitted += names(drive.emit(txid, 1)) + names(drive.emit(txid + 1, 1))
        for done in (txid, txid + 1):
            drive.commit(done, 1)
            drive.success(done, 1)
            drive.tree_says(done + 1)
    assert sorted(emitted) == ALL


class Cyclic(PartitionedSpout):
    """Has the same row and the same metadata in each batch, which is not the same as no rows."""

    emits = ("row",)

    def partitions(self) -> list[str]:
        return ["a"]

    def emit_new(self, partition: str, last: Any, room: Room) -> Any:
        room.emit([("x",)])
        return {"row": "x"}

    def emit_again(self, partition: str, metadata: Any, room: Room) -> None:
        room.emit([(metadata["row"],)])


def test_rows_under_unchanged_metadata_are_emitted_again() -> None:
    drive = Drive(Cyclic())
    for txid in (1, 2, 3):
        assert names(drive.emit(txid)) == names(drive.batch(txid, 1)) == ["x"]


def lines(folder: Path) -> TextFiles:
    for name, rows in ROWS.items():
        (folder / f"{name}.txt").write_text("".join(f"{row}\n" for row in rows))
    return TextFiles(str(folder / "*.txt"))


OURS: list[Callable[[Path], Any]] = [
    lambda folder: TextFileBatches(*lines(folder).files, shares=2),
    lambda folder: PlainSpout(lines(folder), repeats=True),
    lambda _: RowBatches([(row,) for row in ALL], 2, partitions=2, fields=("row",)),
    lambda _: OpaqueRowBatches([(row,) for row in ALL], 2, partitions=2, fields=("row",)),
]


@pytest.mark.parametrize("make_spout", OURS)
def test_our_own_spouts_emit_nothing_twice_at_the_end(make_spout: Any, tmp_path: Path) -> None:
    drive, emitted = Drive(make_spout(tmp_path)), list[str]()
    for txid in range(1, BATCHES):
        drive.emit(txid)
        emitted += names(drive.batch(txid, 1))
        drive.tree_says(txid + 1)
    assert sorted(emitted) == ALL
