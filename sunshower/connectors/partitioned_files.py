"""PartitionedFiles: JSON lines in a folder for each period of event time, marked when complete.

    a record    ──▶ its line ──▶ flushed to a draft of its partition ──▶ acked
                ──▶ a note (partition, event time, end), one for each partition and batch
    a watermark ──▶ the drafts of partitions whose end it has passed get their names ──▶ _SUCCESS

    <place>/day=2024-03-29/.part-0002-1711670400000000-0000.jsonl   a draft of task 2
    <place>/day=2024-03-29/part-0002-1711670400000000-0000.jsonl    the same, complete
    <place>/day=2024-03-29/late-0002-1711670400000000-0001.jsonl    records that came after _SUCCESS

The notes are timers of a `process`, so a partition is as complete as a window that has ended: each
record of it is processed, and its line is in a file. Flink: the partition commit of its FileSystem
connector.

In exactly-once batches the notes have the lines of the batch. They and the ends of partitions wait
in a state until the batch is committed (`trident/stages/outbox.py`). Then its lines are written to
files of its own, and after them the markers:

    <place>/day=2024-03-29/part-1f0c…-000000000007.jsonl            the lines of batch 7
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any, NamedTuple, overload
from zoneinfo import ZoneInfo

from sunshower.arguments import COUNT, Instance, checked
from sunshower.errors import TopologyError
from sunshower.json_values import json_text
from sunshower.records import Schema
from sunshower.state.sqlite import sync_path
from sunshower.texts import utf8
from sunshower.topologies.components import Bolt, Context, Stateless
from sunshower.topologies.operators.joins.joined_streams import state_beside
from sunshower.topologies.operators.keyed.key_states import KeyState
from sunshower.topologies.operators.port import Attempt, Emit, Operator, Rows
from sunshower.topologies.operators.states import StateFactory
from sunshower.topologies.operators.windows.declaring import end_field, origins_of
from sunshower.topologies.operators.windows.event_times import (
    Time,
    TimeField,
    as_datetime,
    is_date,
    just_after,
)
from sunshower.topologies.operators.windows.panes import panes_of
from sunshower.topologies.operators.windows.window_kinds import (
    AlignedWindow,
    AnyWindow,
    Window,
    reader_of,
    type_of_end,
)
from sunshower.topologies.record_parts import RecordParts
from sunshower.topologies.streams import Stream
from sunshower.trident.declaration.keyed_batches import delivered, processed
from sunshower.trident.declaration.stateful import origins_of as origins_of_batches
from sunshower.trident.declaration.streams import BatchStream

_PLACE = Instance((str, os.PathLike), 'the path of a folder, such as "clicks"', False)
_MARKER = "_SUCCESS"
_DRAFTS, _COMPLETE, _LATE = ".part-", "part-", "late-"
_PARTITION, _END = "partition-0", "end-0"  # fields that no record type has
_NAMES_MAX = 10_000  # of periods that are known at a time
_NAME_BYTES = 255  # of a file or a folder
_BLOCK = 1 << 20


class CompletePartition(NamedTuple):
    """A partition that is complete, or late records that were added to it."""

    partition: str  #: its folder, below the place
    files: int  #: those that it has now, without those of late records
    late: int  #: records that came after it was complete, and are in a further file now


class PartitionedFiles:
    """What `stream.apply(PartitionedFiles("clicks", tumbling(days=1, field="at"), state=…))`
    writes: a folder of JSON lines for each window, with an empty file `_SUCCESS` when the watermark
    has passed its end. Returns a stream of CompletePartition.

    `place`: a folder that all workers see; `by`: a function of a record that returns the name of a
    folder in that of its window, such as `country=de`; `state`: where the ends of open partitions
    are; `parallelism`: tasks that write. At least once: a replayed record is written again. A
    record that comes after `_SUCCESS` is written to a further file, `late-….jsonl`, and counted.
    Raises TopologyError, at its declaration, for a window that is not `tumbling` with a `field`.
    """

    @checked(TopologyError, place=_PLACE, parallelism=COUNT)
    def __init__(
        self,
        place: str | os.PathLike[str],
        window: AnyWindow,
        *,
        state: StateFactory,
        by: Callable[[Any], str] | None = None,
        parallelism: int = 1,
        name: str = "files",
    ) -> None:
        self.place = Path(place).absolute()
        self.where = f"PartitionedFiles({self.place.name})"
        if self.place.is_file():
            raise TopologyError(f"{self.where}: {self.place} is a file; give a folder")
        if (
            not isinstance(window, Window)
            or (window.by_count or window.panes > 1)
            or (window.time is None or window.at_end != "end")
            or (window.repeated is not None or window.until is not None)
        ):
            raise TopologyError(
                f"{self.where}: {window!r:.200} does not divide event time into partitions; give "
                'tumbling(seconds=3600, field="at"), or days=, weeks= or months=, without at_end=, '
                "early=, allowed= and until="
            )
        if by is not None and not callable(by):
            raise TopologyError(
                f"{self.where}: by is {by!r:.100}; it is a function of a record that returns a "
                "text, the name of a folder such as country=de"
            )
        self.window, self.by, self.state = window, by, state
        self.parallelism, self.name = parallelism, name

    @overload
    def __call__(self, stream: Stream[Any]) -> Stream[CompletePartition]: ...
    @overload
    def __call__(self, stream: BatchStream[Any]) -> BatchStream[CompletePartition]: ...
    def __call__(self, stream: Any) -> Any:
        time = self.window.time
        assert time is not None
        if isinstance(stream, BatchStream):
            return self._of_batches(stream, time)
        where = f"{stream}, {self.where}"
        self._check(stream.schema, where)
        lines = _Lines(self, stream.schema, are_ends=end_field(origins_of(stream), time.name))
        stream.topology.keep_place(os.path.realpath(self.place), where)
        notes: Stream[Any] = stream.local_or_shuffle().bolt(
            self.name,
            _Writer(self.place, lines),
            self.parallelism,
            fields=(_PARTITION, time.name, _END),
        )
        completion = _Completion(self.place)
        return notes.group_by(_PARTITION).process(
            completion,
            on_timer=completion.complete,
            name=f"{self.name}-complete",
            state=self.state,
            **self._about(time),
        )

    def _of_batches(self, stream: BatchStream[Any], time: TimeField) -> BatchStream[Any]:
        where = stream.stage.where(self.where)
        self._check(stream.schema, where)
        lines = _Lines(
            self, stream.schema, are_ends=end_field(origins_of_batches(stream), time.name)
        )
        lines.parts.check(stream.schema, [None])
        stream.program.keep_place(os.path.realpath(self.place), where)
        notes = stream.operate(_Notes(lines), fields=(_PARTITION, time.name, _END, "txid", "lines"))
        settings = {"state": self.state, "parallelism": self.parallelism, **self._about(time)}
        known = {name: value for name, value in settings.items() if value is not None}
        ends = processed(
            notes,
            (_PARTITION,),
            _note_lines,
            _complete,
            None,
            {"name": f"{self.name}-complete", **known},
            where,
        )
        rows = BatchStream[_Row](ends.rows).named(ends.slot.name)
        state = state_beside(self.state, "rows")
        delivered(rows, _Delivery(self.place), state, f"{self.name}-rows", where)
        return rows.filter(_is_complete).map(_completed)

    def _check(self, schema: Schema, where: str) -> None:
        """Raise TopologyError for records without times for the window."""
        assert self.window.field is not None
        schema.check_field(self.window.field, where)
        type_of_end(self.window, schema, where)

    def _about(self, time: TimeField) -> Any:
        about = {"zone": time.zone, "ahead": time.ahead, "unit": time.unit}
        return {**about, "event_time": time.name, "late": self.window.late}


# ---- writing -------------------------------------------------------------------------------------


class _Lines:
    """The line of each record, and its partition."""

    def __init__(self, files: PartitionedFiles, schema: Schema, *, are_ends: bool) -> None:
        """`are_ends`: event times are ends of windows upstream."""
        self._window, self._by = files.window, files.by
        self._schema, self._are_ends = schema, are_ends
        self.parts = RecordParts(files.where)

    def prepare(self) -> None:
        reader = reader_of(self._window, self._schema)
        assert reader is not None
        self._reader, self._named = reader, self.parts.getter(None)
        self._panes = self._window.divided()
        self._periods: dict[tuple[int, bool], tuple[str, Time]] = {}

    def of(self, record: Any) -> tuple[str, Time, Time, str]:
        """The partition of a record, its event time, the end of its period, and its line."""
        values = self._reader.values([record])
        (time,) = self._reader.of_values(values)
        name, end = self._period(time, is_date=is_date(values[0]))
        if self._by is not None:
            name = f"{name}/{_folder_name(self._by(record))}"
        return name, time, end, f"{json_text(self._named(record))}\n"

    def _period(self, time: Time, *, is_date: bool) -> tuple[str, Time]:
        """The name of the period of an event time, and when it has ended."""
        (pane,) = panes_of(self._panes, [time], are_ends=self._are_ends)
        known = self._periods.get((pane, is_date))
        if known is None:
            begin, end = self._panes.start(pane), self._panes.start(pane + 1)
            # One that is the end of the period may still come.
            end = just_after(end) if self._are_ends else end
            known = _name_of(self._window, begin, is_date=is_date), end
            if len(self._periods) >= _NAMES_MAX:
                self._periods.clear()
            self._periods[pane, is_date] = known
        return known


class _Writer(Stateless, Bolt[Any, Any]):
    """Appends the line of each record to a draft of its partition, one for each task and life."""

    writes_outside = True

    def __init__(self, place: Path, lines: _Lines) -> None:
        self._place, self._records = place, lines

    def check_input(self, schema: Schema) -> None:
        """Raise RecordMismatch for plain tuples of inputs with different fields."""
        self._records.parts.check(schema, [None])

    def prepare(self, context: Context) -> None:
        self._records.prepare()
        self._lines: dict[str, list[str]] = {}  # of the batch
        self._life, self._number = f"{context.index:04}-{int(1e6 * context.clock.wall())}", 0
        self._numbers: dict[str, int] = {}  # partition → the number of its draft

    def process(self, record: Any) -> Iterator[tuple[str, Time, Time]]:
        name, time, end, line = self._records.of(record)
        lines = self._lines.get(name)
        if lines is not None:
            lines.append(line)
            return
        self._lines[name] = [line]
        yield name, time, end

    def flush(self) -> None:
        """Write the lines to the operating system: they survive this process. Raises the system's
        OSError; then the records of the batch are written again."""
        lines, self._lines = self._lines, {}
        for partition, of_partition in lines.items():
            self._append(partition, utf8("".join(of_partition)))

    def _append(self, partition: str, data: bytes) -> None:
        """Append to the draft, or to a new one if the former has got its name."""
        folder, number = self._place / partition, self._numbers.get(partition)
        file = None if number is None else _opened(self._draft(folder, number), 0)
        while file is None:
            folder.mkdir(parents=True, exist_ok=True)
            number, self._number = self._number, self._number + 1
            file = _opened(self._draft(folder, number), os.O_CREAT | os.O_EXCL)
            if len(self._numbers) >= _NAMES_MAX:
                self._numbers.clear()
            self._numbers[partition] = number
        try:
            written = 0
            try:
                while written < len(data):  # once, unless the disk fills up or a signal arrives
                    written += os.write(file, data[written:])
            except OSError:
                os.ftruncate(file, os.fstat(file).st_size - written)
                raise
        finally:
            os.close(file)

    def _draft(self, folder: Path, number: int) -> Path:
        return folder / f"{_DRAFTS}{self._life}-{number:04}.jsonl"


def _opened(path: Path, flags: int) -> int | None:
    """Open a file to append to it; None if it is not there, or there and should not be."""
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | flags, 0o666)
    except (FileNotFoundError, FileExistsError) as error:
        if isinstance(error, FileNotFoundError) and flags:
            raise
        return None


def _name_of(window: Window, begin: Time, *, is_date: bool) -> str:
    """The name of the period that begins at this time."""
    zone: tzinfo = UTC
    if isinstance(window, AlignedWindow) and window.calendar is not None:
        zone, form = ZoneInfo(window.zone), "%Y-%m" if window.calendar == "months" else "%Y-%m-%d"
        first = as_datetime(begin, window.per_s).astimezone(zone)
        return f"{window.calendar[:-1]}={first.strftime(form)}"
    if not is_date:
        return f"begin={begin}"
    moment = as_datetime(begin)
    return f"begin={moment.strftime('%Y-%m-%dT%H-%M-%S' + ('.%f' * (moment.microsecond > 0)))}Z"


def _folder_name(name: Any) -> str:
    """The folder that `by` has returned. Raises ValueError for one that readers pass over, that is
    elsewhere, or that file systems refuse."""
    if isinstance(name, str):
        parts = name.split("/")
        if not any(part[:1] in {"", ".", "_"} or _is_refused(part) for part in parts):
            return name
    raise ValueError(
        f"by returned {name!r:.100}; it returns the name of a folder, which does not begin with "
        f'".", "_" or "/", and which UTF-8 encodes to {_NAME_BYTES} bytes at most, none of them '
        'zero, such as "country=de"'
    )


def _is_refused(part: str) -> bool:
    try:
        return "\0" in part or len(part.encode()) > _NAME_BYTES
    except UnicodeEncodeError:
        return True


# ---- completing ----------------------------------------------------------------------------------


class _Completion:
    """Gives the drafts of a partition their names when its timer is due, and marks it."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._late = 0

    def figures(self) -> Mapping[str, float]:
        """How many records came after their partition was complete, in this process."""
        return {"late records": self._late}

    def __call__(self, note: tuple[Any, ...], state: KeyState[Any]) -> None:
        _, _, state.timer = note

    def complete(self, partition: str, state: KeyState[Any]) -> Iterator[CompletePartition]:
        folder = self._place / partition
        marker = folder / _MARKER
        was_complete, late = marker.exists(), 0
        for draft in sorted(folder.glob(f"{_DRAFTS}*")):
            prefix = _LATE if was_complete else _COMPLETE
            with suppress(FileNotFoundError):  # a former process gives it its name at this moment
                lines = _publish(draft, draft.with_name(draft.name.replace(_DRAFTS, prefix, 1)))
                late += lines if was_complete else 0
        marker.touch()
        _sync(folder, self._place)
        self._late += late
        files = sum(1 for _ in folder.glob(f"{_COMPLETE}*"))
        yield CompletePartition(partition, files, late)


def _sync(folder: Path, place: Path) -> None:
    """Let the names in a folder be on the disk, and those of the folders up to `place`."""
    for each in (folder, *folder.parents):
        sync_path(each)
        if each == place.parent:
            break


def _publish(draft: Path, target: Path) -> int:
    """Give a draft its name, on the disk, without a line that a death has torn. Returns how many
    lines it has. Raises FileNotFoundError."""
    with draft.open("rb+") as file:
        end = lines = size = 0
        while block := file.read(_BLOCK):
            lines += block.count(b"\n")
            if (last := block.rfind(b"\n")) >= 0:
                end = size + last + 1
            size += len(block)
        if end < size:
            file.truncate(end)
        os.fsync(file.fileno())
    if end:  # an empty one may be that of late records which are just being written
        draft.rename(target)
    return lines


# ---- in batches ----------------------------------------------------------------------------------


class _Notes(Operator):
    """Makes a row of each partition in a batch, with the lines of the batch."""

    by_row = False
    writes_outside = True  # as part of the sink

    def __init__(self, lines: _Lines) -> None:
        self._lines = lines

    def prepare(self, context: Context) -> None:
        self._lines.prepare()

    def start(self, attempt: Attempt) -> dict[str, tuple[Time, Time, list[str]]]:
        return {}

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        for row in rows:
            partition, time, end, line = self._lines.of(row)
            batch.setdefault(partition, (time, end, []))[2].append(line)

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        notes = batch.items()
        emit([(name, time, end, attempt.txid, lines) for name, (time, end, lines) in notes])


class _Row(NamedTuple):
    """What is delivered of a partition, with a batch."""

    partition: str
    lines: list[str] | None  # None: it is complete
    files: int  # of the partition, before late records
    late: int  # records after it was complete


def _note_lines(note: tuple[Any, ...], state: KeyState[list[int]]) -> Iterator[_Row]:
    """The state of a partition: whether it is complete, its files, the last batch of them, and
    late records that were not announced."""
    partition, _, end, txid, lines = note
    is_complete, files, last, late = state.value or [0, 0, 0, 0]
    if is_complete:
        late += len(lines)
    elif txid > last:
        files += 1
    state.value, state.timer = [is_complete, files, txid, late], end
    yield _Row(partition, lines, files, late)


def _complete(partition: str, state: KeyState[list[int]]) -> Iterator[_Row]:
    _, files, last, late = state.value or [0, 0, 0, 0]
    state.value = [1, files, last, 0]
    yield _Row(partition, None, files, late)


def _is_complete(row: _Row) -> bool:
    return row.lines is None


def _completed(row: _Row) -> CompletePartition:
    return CompletePartition(row.partition, row.files, row.late)


class _Delivery:
    """The delivery of an outbox, to files whose names have the number of their batch: a delivery
    that is repeated writes the same files again."""

    notes = False
    note = "the folder"
    anew = "the sink another name="

    def __init__(self, place: Path) -> None:
        self._place = place

    def prepare(self, context: Context) -> None: ...

    def packed(self, rows: Sequence[_Row]) -> Iterator[list[Any]]:
        for row in rows:
            yield [*row]

    def open(self, batches: str) -> int:
        self._batches = f"{zlib.crc32(batches.encode()):08x}"
        return 0

    def deliver(self, txid: int, packed: Sequence[Any]) -> None:
        """Write files, and then markers. Raises the system's OSError."""
        files: dict[Path, list[str]] = {}
        for partition, lines, _, late in packed:
            name = f"{_LATE if late else _COMPLETE}{self._batches}-{txid:012}.jsonl"
            files.setdefault(self._place / partition / name, []).extend(lines or ())
        for path, lines in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if lines:
                draft = path.with_name(f".{path.name}")
                with draft.open("wb") as file:
                    file.write(utf8("".join(lines)))
                    file.flush()
                    os.fsync(file.fileno())
                draft.rename(path)
        for partition in [partition for partition, lines, _, _ in packed if lines is None]:
            folder = self._place / partition
            sync_path(folder)
            (folder / _MARKER).touch()
        for folder in {path.parent for path in files}:
            _sync(folder, self._place)

    def close(self) -> None: ...
