"""The dead letters of a topology for the page: their places, searches, and one letter in full."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from glob import escape
from itertools import count
from math import inf, isfinite, nextafter
from pathlib import Path
from typing import Any

from sunshower.cli.dead.letters import Found, Selection, StoredLetter, marks_of, read_letters
from sunshower.errors import ConfigError, SourceError
from sunshower.texts import clip, printable
from sunshower.topologies.retry import DeadLetter, LetterStore

LISTED_MAX = 100
FILES_BYTES_MAX = 256 << 20  # they are in the memory of the server while it reads them
_CELL_BYTES = 200
_VALUE_BYTES = 20_000  # of a letter that is shown
_FIELDS_MAX = 200
Stores = Mapping[str, LetterStore | None]  # by the bolt that writes there


@dataclass(frozen=True)
class ReadLetters:
    """What the places of a topology hold, in the order in which they were read."""

    letters: list[StoredLetter]
    others: int  # lines or messages that are no dead letters
    places: list[str]
    notes: list[str]  # sentences about what could not be read


def read_stores(stores: Stores, settings: Mapping[str, Any]) -> ReadLetters:
    """All letters of a topology. `settings`: of Kafka's client, added to those of the topology.
    Raises ConfigError for files that are too large, SourceError, and KafkaError."""
    places, notes, found = [], [], list[Found]()
    for bolt, store in stores.items():
        if store is None:
            notes.append(
                f"{bolt} writes dead letters where this page cannot read them; "
                "`sunshower dead` reads JSON lines files and Kafka topics"
            )
        elif store.topic:
            places.append(f"topic {store.topic}")
            found.append(read_letters((), store.topic, {**store.settings, **settings}))
        else:
            places += store.files
            there = [path for path in store.files if os.access(path, os.R_OK)]
            notes += [
                f"{path} cannot be read on this server's machine: it is on that of a worker of "
                f"{bolt}"
                for path in store.files
                if path not in there
            ]
            _check_size(there)
            if there:
                found.append(read_letters([escape(path) for path in there], None, {}))
    numbers = count(1)
    letters = [replace(one, number=next(numbers)) for part in found for one in part.letters]
    return ReadLetters(letters, sum(part.others for part in found), places, notes)


def selection_of(chosen: Mapping[str, str]) -> Selection:
    """The selection of these conditions. Raises ConfigError for a time that is not valid."""
    return Selection(
        causes=[chosen["cause"]] if "cause" in chosen else (),
        components=[chosen["component"]] if "component" in chosen else (),
        text=chosen.get("text", ""),
        since_s=_time(chosen, "since"),
        until_s=_time(chosen, "until"),
    )


def find_letter(read: ReadLetters, id: str) -> StoredLetter:
    """The letter with an id. Raises ConfigError."""
    for one in read.letters:
        if one.id == id:
            return one
    raise ConfigError(f"there is no dead letter {clip(id, 40)} any more: refresh the list")


def list_facts(read: ReadLetters, chosen: Mapping[str, str]) -> dict[str, Any]:
    """The newest of the letters that match, with how many there are, and what can be chosen."""
    letters = selection_of(chosen).of(read.letters)
    marks = marks_of(letters)
    unique = {one.id: one for one in letters}
    newest = sorted(unique.values(), key=lambda one: (-one.letter.time, -one.number))
    return {
        "places": read.places,
        "notes": [*read.notes, *_others(read.others)],
        "all": len(read.letters),
        "matching": len(letters),
        "new": sum(one not in marks for one in unique),
        "until": _end(letters),
        "causes": _counted(one.letter.cause for one in read.letters),
        "components": _counted(one.letter.component for one in read.letters),
        "letters": [_row(one, marks.get(one.id)) for one in newest[:LISTED_MAX]],
    }


def _end(letters: list[StoredLetter]) -> float | None:
    """The time that selects these letters and no newer ones; None if some have no time."""
    times = [one.letter.time for one in letters]
    return nextafter(max(times), inf) if times and min(times) > 0 else None


def letter_facts(one: StoredLetter) -> dict[str, Any]:
    """All of a letter; long values are clipped."""
    letter = one.letter
    fields = list(letter.record.items())
    return {
        **_row(one, marks_of([one]).get(one.id)),
        "place": one.place,
        "stream": _word(letter.stream),
        "message": _json(letter.message_id, _VALUE_BYTES),
        "attempts": letter.attempts,
        "worker": letter.worker if letter.worker >= 0 else None,
        "reason": printable(clip(letter.reason, _VALUE_BYTES)),
        "traceback": printable(clip(letter.traceback, _VALUE_BYTES)),
        "record": [
            {"field": _word(name), "value": _json(value, _VALUE_BYTES),
             "is_text": name in letter.as_text}
            for name, value in fields[:_FIELDS_MAX]
        ],
        "fields_left_out": max(0, len(fields) - _FIELDS_MAX),
    }  # fmt: skip


def _row(one: StoredLetter, mark: Mapping[str, Any] | None) -> dict[str, Any]:
    letter: DeadLetter = one.letter
    return {
        "letter": one.id,
        "time": letter.time if letter.time > 0 and isfinite(letter.time) else None,
        "component": _word(letter.component) or None,
        "task": letter.task if letter.task >= 0 else None,
        "spout": _word(letter.spout),
        "cause": _word(letter.cause),
        "error": _word(letter.reason.strip().partition("\n")[0]),
        "record": _json(letter.record, _CELL_BYTES),
        "replayed": None if mark is None else str(mark.get("outcome")),
    }


def _json(value: Any, bytes_max: int) -> str:
    """A value as `sunshower dead show` prints it, clipped."""
    return printable(clip(json.dumps(value, ensure_ascii=False), bytes_max))


def _word(text: str) -> str:
    return printable(clip(text, _CELL_BYTES))


def _counted(values: Iterable[str]) -> dict[str, int]:
    """How often each value is there, the most frequent ones first; without empty and long ones."""
    short = (value for value in values if 0 < len(value) <= _CELL_BYTES)
    return dict(Counter(short).most_common(LISTED_MAX))


def _others(others: int) -> Iterator[str]:
    if others:
        yield f"{others:,} lines or messages there are no dead letters"


def _check_size(files: list[str]) -> None:
    try:
        size = sum(Path(path).stat().st_size for path in files)
    except OSError as error:  # removed meanwhile
        raise SourceError(f"dead letters cannot be read: {error}") from None
    if size > FILES_BYTES_MAX:
        raise ConfigError(
            f"the files with dead letters have {size:,} bytes, and this page reads at most "
            f"{FILES_BYTES_MAX:,}: use `sunshower dead list {files[0]}`"
        )


def _time(chosen: Mapping[str, str], name: str) -> float | None:
    if name not in chosen:
        return None
    try:
        found = float(chosen[name])
    except ValueError:
        found = float("nan")
    if not isfinite(found):
        raise ConfigError(f"{name} is {clip(chosen[name], 40)}, and not a Unix time in seconds")
    return found
