"""Partitions of files in exactly-once batches: each line is there once, and then the marker."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from sunshower import Topology, count, run_inline, tumbling
from sunshower.clock import ManualClock
from sunshower.connectors import CompletePartition, PartitionedFiles
from sunshower.errors import TopologyError, TopologyFailed, UnknownField
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState, SqliteState
from sunshower.trident import FixedBatchSpout, InMemory, StateKind, batches
from tests.connectors.test_partitioned_files import lines, markers
from tests.seeds import seeds
from tests.trident.rigs.moving_states import Life, MortalState, ProcessEnded
from tests.trident.rigs.numbers import OpaqueRowBatches, RowBatches
from tests.trident.rigs.programs import SETTINGS, kill_three


class Click(NamedTuple):
    user: str
    at: int
    number: int


CLICKS = [Click("ab"[n % 2], 2 * n - 3 * (n % 3), n) for n in range(40)]
WINDOW = tumbling(seconds=20, field="at", late=6)


def of_user(click: Click) -> str:
    return f"user={click.user}"


def place_of(click: Click) -> str:
    return f"begin={click.at // 20 * 20}/user={click.user}"


def expected() -> dict[str, Counter[int]]:
    counts = defaultdict[str, Counter[int]](Counter)
    for click in CLICKS:
        counts[place_of(click)][click.number] += 1
    return dict(counts)


def numbers(place: Path, pattern: str = "part-*") -> dict[str, Counter[int]]:
    return {
        name: Counter(row["number"] for row in rows) for name, rows in lines(place, pattern).items()
    }


def declare(topology: Topology, place: Path, spout: Any, state: Any, **settings: Any) -> Any:
    clicks = batches(topology, "clicks", spout, **{"store": InMemory(), **settings})
    return clicks.apply(PartitionedFiles(place, WINDOW, by=of_user, state=state, parallelism=2))


def check(place: Path) -> None:
    assert numbers(place) == expected()
    assert markers(place) == {*expected()}
    assert not [*place.rglob("late-*")]


def test_a_partition_has_a_file_of_each_batch_and_a_marker_when_it_is_complete(
    tmp_path: Path,
) -> None:
    topology, announced = Topology("clicks"), list[CompletePartition]()
    spout = FixedBatchSpout(CLICKS, 4, type=Click)
    declare(topology, tmp_path, spout, SqliteState(tmp_path / "s.db", name="ends")).peek(
        announced.append
    )
    run_inline(topology.graph(), clock=ManualClock())
    check(tmp_path)
    assert {row.partition: row.files for row in announced} == {
        name: len([*(tmp_path / name).glob("part-*")]) for name in expected()
    }
    assert len(announced) == len(expected())
    assert not [*tmp_path.rglob(".*")]


def test_late_records_are_in_a_further_file(tmp_path: Path) -> None:
    topology, announced = Topology("clicks"), list[CompletePartition]()
    clicks = [Click("a", at, number) for number, at in enumerate([1, 60, 90, 5, 6, 100])]
    spout = FixedBatchSpout(clicks, 1, type=Click)
    declare(topology, tmp_path, spout, MemoryState()).peek(announced.append)
    run_inline(topology.graph(), clock=ManualClock())
    assert numbers(tmp_path, "late-*") == {"begin=0/user=a": Counter([3, 4])}
    of_first = [row for row in announced if row.partition == "begin=0/user=a"]
    assert of_first == [("begin=0/user=a", 1, 0), *[("begin=0/user=a", 1, 1)] * 2]


@pytest.mark.parametrize("kind", [RowBatches, OpaqueRowBatches])
@pytest.mark.parametrize("is_after", [False, True])
def test_each_line_is_there_once_when_the_process_ends_at_any_write(
    kind: type[Any], tmp_path: Path, *, is_after: bool
) -> None:
    for last in range(1, 200, 2):
        place, store, inner = tmp_path / str(last), InMemory(), MemoryState()

        def run(life: Life, place: Path = place, store: Any = store, inner: Any = inner) -> bool:
            topology, spout = Topology("clicks"), kind(CLICKS, 4, partitions=2)
            declare(topology, place, spout, MortalState(inner, life), store=store)
            try:
                run_inline(topology.graph(), clock=ManualClock())
            except ProcessEnded:
                return False
            return True

        if run(Life(last, is_after)):
            assert last > 10
            return
        assert run(Life())
        check(place)
    raise AssertionError("the run never completes")


@seeds(20)
def test_each_line_is_there_once_although_workers_are_killed(seed: int, tmp_path: Path) -> None:
    topology, draw = Topology("clicks", workers=3, **SETTINGS), Random(seed)
    spout = (RowBatches, OpaqueRowBatches)[seed % 2](CLICKS, 3, partitions=2)
    about: Any = {"max_batches": draw.choice((1, 3)), "interval_s": 0.1}
    declare(topology, tmp_path, spout, MemoryState(), **about)
    sim = SimCluster(seed, check=True).submit(topology.graph())
    kill_three(sim, seed, lambda number: 0.2 + 0.1 * (number % 5))
    assert sim.wait(300.0)
    check(tmp_path)


def test_a_window_of_a_field_that_rows_do_not_have_is_refused(tmp_path: Path) -> None:
    spout = FixedBatchSpout([("a",)], 1, fields=("user",))
    with pytest.raises(UnknownField, match=r"PartitionedFiles\(.*no field 'at'"):
        declare(Topology("clicks"), tmp_path, spout, MemoryState())


def test_a_run_with_nothing_new_writes_nothing_again(tmp_path: Path) -> None:
    """A reader has taken the files, and removed them; then new ones come."""
    store, state = InMemory(), MemoryState()
    place = tmp_path / "place"

    def run(clicks: list[Click]) -> None:
        topology = Topology("clicks")
        declare(topology, place, FixedBatchSpout(clicks, 4, type=Click), state, store=store)
        run_inline(topology.graph(), clock=ManualClock())
        for path in [*place.rglob("*.jsonl"), *place.rglob("_SUCCESS")]:
            path.rename(tmp_path / f"{len([*tmp_path.iterdir()])}-{path.name}")

    run(CLICKS)
    files = {*tmp_path.iterdir()}
    run(CLICKS)
    assert {*tmp_path.iterdir()} == files
    run([*CLICKS, Click("a", 1_000, 40)])
    (new,) = [path for path in {*tmp_path.iterdir()} - files if path.suffix]
    assert '"number":40' in new.read_text().replace(" ", "")


def test_sinks_never_replace_the_files_of_another(tmp_path: Path) -> None:
    """In one program they are refused; those of two programs have other names."""
    topology = Topology("clicks")
    clicks = batches(topology, "clicks", FixedBatchSpout(CLICKS, 4, type=Click), store=InMemory())
    clicks.apply(PartitionedFiles(tmp_path, WINDOW, state=MemoryState()))
    again = PartitionedFiles(tmp_path / ".." / tmp_path.name, WINDOW, state=MemoryState(), name="b")
    with pytest.raises(TopologyError, match=r"PartitionedFiles\(.*has one place that writes it"):
        clicks.apply(again)
    for _ in range(2):
        topology, spout = Topology("clicks"), FixedBatchSpout(CLICKS, 4, type=Click)
        declare(topology, tmp_path, spout, MemoryState())
        run_inline(topology.graph(), clock=ManualClock())
    assert numbers(tmp_path) == {name: counts + counts for name, counts in expected().items()}


@pytest.mark.parametrize("name", ["x" * 256, "a\0b", "a\ud800", "ok/" + "ü" * 128])
def test_a_folder_that_file_systems_refuse_fails_its_batch(name: str, tmp_path: Path) -> None:
    topology = Topology("clicks")
    spout = FixedBatchSpout([*CLICKS, Click(name, 80, 40)], 4, type=Click)
    declare(topology, tmp_path, spout, MemoryState())
    with pytest.raises(TopologyFailed, match=r"batch 11.*by returned .*, such as \"country=de\""):
        run_inline(topology.graph(), clock=ManualClock())


def test_plain_tuples_behind_a_window_are_written(tmp_path: Path) -> None:
    topology = Topology("clicks")
    clicks = batches(topology, "clicks", FixedBatchSpout(CLICKS, 4, type=Click), store=InMemory())
    clicks.window(tumbling(seconds=10, field="at", late=6), count(), state=MemoryState()).apply(
        PartitionedFiles(tmp_path, tumbling(seconds=20, field="window"), state=MemoryState())
    )
    run_inline(topology.graph(), clock=ManualClock())
    rows = [row for rows in lines(tmp_path).values() for row in rows]
    assert sum(row["count"] for row in rows) == len(CLICKS)


def test_a_file_that_cannot_be_written_is_an_error_that_names_the_sink(tmp_path: Path) -> None:
    topology = Topology("clicks")
    (tmp_path / "begin=0").write_text("no folder")
    declare(topology, tmp_path, FixedBatchSpout(CLICKS, 4, type=Click), MemoryState())
    message = r"PartitionedFiles\(.*'files-rows': batch 1 is committed, and cannot.*another name="
    with pytest.raises(TopologyFailed, match=message):
        run_inline(topology.graph(), clock=ManualClock())


def test_wrong_settings_are_errors_of_partitioned_files(tmp_path: Path) -> None:
    spout = FixedBatchSpout(CLICKS, 4, type=Click)
    state = MemoryState(StateKind.TRANSACTIONAL)
    with pytest.raises(TopologyError, match=r"PartitionedFiles\([^)]*\): a state of kind trans"):
        declare(Topology("clicks"), tmp_path, spout, state)
