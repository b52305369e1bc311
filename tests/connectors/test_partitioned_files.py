"""Partitions of files: their names and markers, late records, deaths, and wrong declarations."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import (
    Bolt,
    Context,
    Records,
    Retry,
    Topology,
    count,
    run_inline,
    sessions,
    sliding,
    tumbling,
)
from sunshower.clock import ManualClock
from sunshower.connectors import CompletePartition, PartitionedFiles
from sunshower.errors import TopologyError, TopologyFailed
from sunshower.runtime.events.event_log import What
from sunshower.runtime.inline import Finished
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState, SqliteState
from sunshower.topologies.operators.windows.window_kinds import AnyWindow
from sunshower.trident import FixedBatchSpout, InMemory, batches
from tests.seeds import seeds
from tests.topologies.operators.kinds import Kept
from tests.topologies.operators.windows.event_time_swarm import (
    LATE,
    SETTINGS,
    EventProgram,
    LogReader,
    relay,
    run_program,
)
from tests.topologies.operators.windows.test_windows import Click, Paced

TENS = tumbling(seconds=10, field="at")


class Visit(NamedTuple):
    country: str
    at: datetime


def country_of(record: Any) -> str:
    return f"country={record[0]}"


def run(topology: Topology) -> Finished:
    return run_inline(topology.graph(), clock=ManualClock())


def lines(place: Path, pattern: str = "part-*") -> dict[str, list[Any]]:
    """The records of the files of each partition, in order."""
    records_of: dict[str, list[Any]] = {}
    for file in sorted(place.rglob(pattern)):
        records = [json.loads(line) for line in file.read_text().splitlines()]
        records_of.setdefault(str(file.parent.relative_to(place)), []).extend(records)
    return records_of


def markers(place: Path) -> set[str]:
    return {str(file.parent.relative_to(place)) for file in place.rglob("_SUCCESS")}


def written(place: Path, source: Any, window: Any, **settings: Any) -> list[CompletePartition]:
    """Write the records of a spout. Returns the partitions, as they were announced."""
    topology = Topology("clicks")
    stream = source if callable(source) else lambda: topology.spout("clicks", source)
    files = PartitionedFiles(place, window, **{"state": MemoryState(), **settings})
    stream().apply(files).shuffle().bolt("kept", Kept)
    (rows,) = run(topology).results["kept"]
    return [CompletePartition(*row) for row in rows]


def test_each_window_has_its_folder_with_a_marker(tmp_path: Path) -> None:
    partitions = written(tmp_path, Paced(1, 12, 9, 25), tumbling(seconds=10, field="at", late=5))
    assert partitions == [(f"begin={n}", 1, 0) for n in (0, 10, 20)]
    ats = {name: [row["at"] for row in rows] for name, rows in lines(tmp_path).items()}
    assert ats == {"begin=0": [1, 9], "begin=10": [12], "begin=20": [25]}
    assert markers(tmp_path) == {"begin=0", "begin=10", "begin=20"}
    assert not [*tmp_path.rglob(".*")]


def test_days_of_a_zone_and_a_function_name_the_folders(tmp_path: Path) -> None:
    noon = datetime(2024, 3, 30, 12, tzinfo=UTC)
    visits = [Visit("de" if n % 2 else "fr", noon + timedelta(hours=5 * n)) for n in range(6)]
    day = tumbling(days=1, zone="Europe/Berlin", field="at")
    written(tmp_path, Records(visits, type=Visit), day, by=country_of)
    assert {name: len(rows) for name, rows in lines(tmp_path).items()} == {
        "day=2024-03-30/country=fr": 2,
        "day=2024-03-30/country=de": 1,
        "day=2024-03-31/country=de": 2,
        "day=2024-03-31/country=fr": 1,
    }
    assert markers(tmp_path) == {*lines(tmp_path)}


@pytest.mark.parametrize(
    ("window", "name"),
    [
        (tumbling(seconds=3600, field="at"), "begin=2024-03-30T12-00-00Z"),
        (tumbling(seconds=0.5, field="at"), "begin=2024-03-30T12-30-15.500000Z"),
        (tumbling(weeks=1, field="at"), "week=2024-03-25"),
        (tumbling(months=1, field="at"), "month=2024-03"),
    ],
)
def test_periods_of_datetimes_are_named_by_their_begin(
    tmp_path: Path, window: Any, name: str
) -> None:
    visit = Visit("de", datetime(2024, 3, 30, 12, 30, 15, 700_000, tzinfo=UTC))
    written(tmp_path, Records([visit], type=Visit), window)
    assert markers(tmp_path) == {name}


def test_the_rows_of_a_window_are_in_the_partition_that_ends_with_it(tmp_path: Path) -> None:
    topology = Topology("clicks")
    clicks = topology.spout("clicks", Paced(1, 9, 12, 25, 31, 47))
    tens = clicks.window(TENS, count(), state=MemoryState())
    files = PartitionedFiles(
        tmp_path, tumbling(seconds=20, field="window"), state=MemoryState(), name="twenties"
    )
    tens.apply(files).shuffle().bolt("kept", Kept)
    run(topology)
    ends = {name: [row["window"] for row in rows] for name, rows in lines(tmp_path).items()}
    assert ends == {"begin=0": [10, 20], "begin=20": [30, 40], "begin=40": [50]}
    assert markers(tmp_path) == {*ends}


def test_a_record_for_a_complete_partition_is_in_a_further_file(tmp_path: Path) -> None:
    partitions = written(tmp_path, Paced(1, 12, 25, 2, 3, 26), TENS)
    assert lines(tmp_path)["begin=0"] == [{"user": "a", "at": 1}]
    assert [row["at"] for row in lines(tmp_path, "late-*")["begin=0"]] == [2, 3]
    assert sum(row.late for row in partitions) == 2
    assert partitions[0] == ("begin=0", 1, 0)


def test_an_open_partition_is_completed_by_the_next_run(tmp_path: Path) -> None:
    """Its line that a death has torn is not in it."""
    place, state = tmp_path / "files", SqliteState(tmp_path / "files.db")
    topology = Topology("clicks")
    topology.spout("clicks", Paced(1, 2, 12)).apply(PartitionedFiles(place, TENS, state=state))
    with SimCluster(1) as cluster:
        cluster.submit(topology.graph()).wait(1.5)
    (draft,) = place.rglob(".part-*")
    with draft.open("a") as file:
        file.write('{"user": "a", "a')
    assert not markers(place)
    partitions = written(place, Paced(12, 25), TENS, state=state)
    assert partitions[0].partition == "begin=0"
    assert {row["at"] for row in lines(place)["begin=0"]} == {1, 2}
    assert markers(place) == {"begin=0", "begin=10", "begin=20"}


def test_a_folder_that_is_elsewhere_fails_its_record(tmp_path: Path) -> None:
    topology = Topology("clicks")
    source = Records([Click("../a", 1), Click("b", 2)], type=Click)
    aside = Retry(attempts=1, dead_letters=True)
    clicks = topology.spout("clicks", source, retry=aside)
    files = PartitionedFiles(
        tmp_path / "files", TENS, state=MemoryState(), by=lambda click: str(click.user)
    )
    clicks.apply(files)
    clicks.stream("dead_letters").shuffle().bolt("letters", Kept)
    (letter,) = run(topology).results["letters"][0]
    assert "by returned" in str(letter)
    assert markers(tmp_path) == {"files/begin=0/b"}


@pytest.mark.parametrize(
    "window",
    [
        tumbling(seconds=10),
        tumbling(count=10),
        sliding(seconds=10, every=5, field="at"),
        sessions(gap=10, field="at"),
        tumbling(seconds=10, field="at", at_end="keep"),
        tumbling(seconds=10, field="at", allowed=60),
        tumbling(seconds=10, field="at", early=1),
        tumbling(seconds=10, field="at", until=bool),
    ],
)
def test_a_window_that_divides_no_event_time_is_refused(tmp_path: Path, window: AnyWindow) -> None:
    kind: Any = window
    with pytest.raises(TopologyError, match="does not divide event time into partitions"):
        PartitionedFiles(tmp_path, kind, state=MemoryState())


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "clicks").touch()
    with pytest.raises(TopologyError, match="clicks is a file; give a folder"):
        PartitionedFiles(tmp_path / "clicks", TENS, state=MemoryState())


def test_days_of_numbers_need_their_unit(tmp_path: Path) -> None:
    class Sent(NamedTuple):
        user: str
        at: Any

    day = tumbling(days=1, field="at")
    with pytest.raises(TopologyError, match="'at' is a number, and days= needs its unit"):
        written(tmp_path, Records([Click("a", 1)], type=Click), day)
    files = PartitionedFiles(tmp_path, day, state=MemoryState())
    spout = FixedBatchSpout([], 1, type=Click)
    with pytest.raises(TopologyError, match="'at' is a number, and days= needs its unit"):
        batches(Topology("clicks"), "in", spout, store=InMemory()).apply(files)
    with pytest.raises(TopologyFailed, match="a number, and days= of the window needs its unit"):
        written(tmp_path, Records([Sent("a", 1_704_067_200_000)], type=Sent), day)
    in_millis = tumbling(days=1, field="at", unit="ms")
    written(tmp_path, Records([Sent("a", 1_704_067_200_000)], type=Sent), in_millis)
    assert markers(tmp_path) == {"day=2024-01-01"}


@pytest.mark.parametrize(("first", "second"), [(0, 0), (0, 1), (1, 0)])
def test_a_second_sink_with_the_folder_is_refused(
    first: bool, second: bool, tmp_path: Path
) -> None:
    """Also if one of them is on batches, or its path is another one to the same folder."""
    topology = Topology("clicks")
    clicks = [Click("a", 1)]
    batch = FixedBatchSpout(clicks, 1, type=Click)
    streams: tuple[Any, ...] = (
        topology.spout("clicks", Records(clicks, type=Click)),
        batches(topology, "batches", batch, store=InMemory()),
    )
    (tmp_path / "link").symlink_to(tmp_path / "clicks", target_is_directory=True)
    folders = tmp_path / "clicks", tmp_path / "link"
    first_sink, second_sink = (
        PartitionedFiles(folder, TENS, state=MemoryState(), name=name)
        for folder, name in zip(folders, "ab", strict=True)
    )
    streams[first].apply(first_sink)
    with pytest.raises(TopologyError, match=r"PartitionedFiles\(link\): .* has one place that wri"):
        streams[second].apply(second_sink)
    again = PartitionedFiles(tmp_path / "others", TENS, state=MemoryState(), name="b")
    streams[second].apply(again)


# ---- deaths --------------------------------------------------------------------------------------


class Reader(Bolt[CompletePartition, None]):
    """Reads a partition when it is announced."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def prepare(self, context: Context) -> None:
        self.context = context

    def process(self, done: CompletePartition) -> None:
        self.context.wrote(done.partition, numbers(self.place / done.partition, "part-*"))


def numbers(folder: Path, pattern: str) -> Counter[int]:
    return Counter(row["number"] for rows in lines(folder, pattern).values() for row in rows)


class FilesProgram(EventProgram):
    """Writes the events to partitions of four seconds, and a part of the event's number."""

    place: Path

    def topology(self) -> Topology:
        topology = Topology("files", spout_pending=64, **SETTINGS)
        spouts = [
            topology.spout(
                f"in-{n}", LogReader(log, self.draw.choice((1, 4, 50))), parallelism=tasks
            )
            for n, (log, tasks) in enumerate(zip(self.logs, self.tasks, strict=True))
        ]
        rows = [spout.map(relay, fields=("key", "number", "at")) for spout in spouts]
        merged = rows[0].merge(*rows[1:])
        window = tumbling(seconds=4, field="at", late=LATE, unit="s")
        files = PartitionedFiles(
            self.place,
            window,
            state=MemoryState(),
            by=lambda row: f"part={row[1] % 2}",
            parallelism=self.draw.randint(1, 3),
        )
        merged.apply(files).shuffle().bolt("reader", Reader(self.place))
        return topology


@seeds(500, kinds=4)
def test_a_partition_that_is_complete_has_all_records_that_are_not_late(
    seed: int, tmp_path: Path
) -> None:
    program = FilesProgram(seed)
    program.place = tmp_path
    finished = run_program(program)
    complete, late = numbers(tmp_path, "part-*"), numbers(tmp_path, "late-*")
    assert program.on_time <= complete.keys(), f"seed {seed}: late {sorted(late)}"
    assert complete.keys() | late.keys() == program.on_time | program.too_old
    assert markers(tmp_path) == {*lines(tmp_path)} | {*lines(tmp_path, "late-*")}
    read = [entry.detail for entry in finished.history() if entry.what is What.WROTE]
    assert {partition for partition, _ in read} == markers(tmp_path)
    for partition, numbers_then in read:
        assert numbers_then == numbers(tmp_path / partition, "part-*"), f"seed {seed}: it changed"
