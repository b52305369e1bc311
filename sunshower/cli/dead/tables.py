"""Formats dead letters: as a table, as JSON, or one letter in full."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.table import Table

from sunshower.cli.dead.letters import StoredLetter
from sunshower.cli.formatting import new_table
from sunshower.texts import clip
from sunshower.topologies.retry import DeadLetter

_CELL_BYTES = 80

Marks = Mapping[str, Mapping[str, Any]]  # letter → how its replay has ended: see `marks_of`


def letter_table(letters: Sequence[StoredLetter], marks: Marks, total: int) -> Table:
    """The selected of `total` letters, a row each; `time`: in UTC, without the year."""
    title = f"{len(letters):,} of {total:,} dead letters"
    columns = ("number", "time", "failed in", "cause", "error", "record")
    replayed = ["replayed"] if marks else []
    table = new_table(*columns, *replayed, title=title, clipped=["error", "record"])
    for one in letters:
        letter, mark = one.letter, marks.get(one.id)
        row = (
            str(one.number),
            time_of(letter.time)[5:-1],
            letter.component or "–",
            letter.cause,
            clip(letter.reason.strip().partition("\n")[0], _CELL_BYTES),
            _clipped(letter.record),
            "" if mark is None else str(mark.get("outcome")),
        )
        table.add_row(*row[: len(table.columns)])
    return table


def as_json(one: StoredLetter, marks: Marks) -> dict[str, Any]:
    """A letter with its number and place, and how its replay ended, if there was one."""
    return {
        "number": one.number,
        "place": one.place,
        "replayed": marks.get(one.id),
        **one.letter._asdict(),
    }


def details(one: StoredLetter, marks: Marks) -> Iterator[str]:
    """Lines with everything that a letter says. Values are JSON, so none has a line break."""
    letter = one.letter
    rows = {
        "place": one.place,
        "time": time_of(letter.time),
        "spout": f"{letter.spout}, stream {letter.stream}",
        "message": _text(letter.message_id),
        "attempts": str(letter.attempts),
        "cause": letter.cause,
        "failed in": _where(letter),
        "error": _text(letter.reason),
    }
    if (mark := marks.get(one.id)) is not None:
        rows["replayed"] = _text(mark)
    for name, value in rows.items():
        yield f"{name:<10} {value}"
    yield "record"
    for name, value in letter.record.items():
        mark_text = "   (only a text of the value)" if name in letter.as_text else ""
        yield f"  {_text(name)}: {_text(value)}{mark_text}"
    if letter.traceback:
        yield "traceback"
        yield from (f"  {line}" for line in letter.traceback.splitlines())


def time_of(unix_s: float) -> str:
    """A Unix time in UTC, to the second; `–` if it is unknown."""
    if unix_s <= 0:
        return "–"
    try:
        return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S}Z"
    except (ValueError, OverflowError, OSError):
        return "–"


def _where(letter: DeadLetter) -> str:
    task = f"[{letter.task}]" if letter.task >= 0 else ""
    worker = f", worker {letter.worker}" if letter.worker >= 0 else ""
    return f"{letter.component}{task}{worker}" if letter.component else "–"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _clipped(value: Any) -> str:
    return clip(_text(value), _CELL_BYTES)
