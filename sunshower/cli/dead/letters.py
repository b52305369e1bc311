"""Reads dead letters from JSON lines files and Kafka topics, and selects some of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from glob import glob
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from sunshower.errors import ClusterError, ConfigError, SourceError, SunshowerError, TopologyFailed
from sunshower.failures import group_key, normalised
from sunshower.texts import utf8
from sunshower.topologies.retry import DeadLetter

if TYPE_CHECKING:
    from sunshower.actors.run import RayRun

_ID_DIGITS = 24
_DEFAULTS = DeadLetter._field_defaults
_KINDS: Mapping[str, Any] = {
    "record": dict,
    **dict.fromkeys(("spout", "cause", "component", "reason", "exception", "traceback"), str),
    **dict.fromkeys(("attempts", "task", "worker"), int),
    "stream": str,
    "time": (int, float),
    "as_text": list,
    "marked": list,
}


@dataclass(frozen=True)
class StoredLetter:
    """A dead letter as it was found."""

    number: int  # from 1, over all places that were read
    place: str  # `dead.jsonl, line 3`, or `dead[0], offset 17`
    index: Path  # the file that says which letters of that place were replayed
    letter: DeadLetter

    @cached_property
    def id(self) -> str:
        """The same for equal letters, wherever they are: a letter may be written twice."""
        return hashlib.sha256(utf8(as_line(self.letter))).hexdigest()[:_ID_DIGITS]


@dataclass(frozen=True)
class Found:
    """What files or a topic hold."""

    letters: list[StoredLetter]
    others: int  # lines or messages that are not dead letters


@dataclass(frozen=True)
class Selection:
    """Which letters to take: those that satisfy each condition that is given."""

    numbers: Sequence[int] = ()
    causes: Sequence[str] = ()
    components: Sequence[str] = ()
    text: str = ""  # in any part of the letter; upper and lower case are the same
    since_s: float | None = None  # Unix time
    until_s: float | None = None
    group: str = ""  # an id of LetterGroup

    def of(self, letters: Iterable[StoredLetter]) -> list[StoredLetter]:
        """The selected letters. One without a time is not of any time."""
        return [letter for letter in letters if self._has(letter)]

    def _has(self, stored: StoredLetter) -> bool:
        letter, is_timed = stored.letter, self.since_s is not None or self.until_s is not None
        return (
            (not self.numbers or stored.number in self.numbers)
            and (not self.causes or letter.cause in self.causes)
            and (not self.components or letter.component in self.components)
            and (not self.text or self.text.casefold() in _all_text(letter))
            and (letter.time > 0 or not is_timed)
            and (self.since_s is None or letter.time >= self.since_s)
            and (self.until_s is None or letter.time < self.until_s)
            and (not self.group or group_id(letter) == self.group)
        )


def _all_text(letter: DeadLetter) -> str:
    """All texts and values of a letter, without the names of its own fields."""
    parts = (
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for value in letter
    )
    return "\n".join(parts).casefold()


def as_line(letter: DeadLetter) -> str:
    """A letter as a line of JSON, as JsonLines writes it. One without marks is as in a release that
    had none, because the id is made of it."""
    fields = letter._asdict()
    if not letter.marked:
        del fields["marked"]
    return json.dumps(fields, ensure_ascii=False)


def read_files(patterns: Sequence[str]) -> Found:
    """The letters of JSON lines files, in the order of the files' names; a pattern such as
    `dead.*.jsonl` stands for the files of several tasks. Raises SourceError."""
    paths = [path for pattern in patterns for path in sorted(glob(pattern)) or [pattern]]
    placed: list[tuple[str, Path, str | bytes]] = []
    for path in dict.fromkeys(map(Path, paths)):
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise SourceError(
                f"{path} cannot be read ({error.strerror}); name a file that "
                'Retry(dead_letters="dead.jsonl") has written, or a pattern of several'
            ) from None
        index = path.with_name(f"{path.name}.replayed")
        placed += [(f"{path}, line {n}", index, line) for n, line in enumerate(lines, 1) if line]
    return _found(placed)


def read_topic(settings: Mapping[str, Any], topic: str) -> Found:
    """The letters of a Kafka topic, oldest first in each partition; the index is in the current
    folder. Raises UnknownTopic, NotAuthorised, KafkaUnreachable."""
    from sunshower.kafka.partitions.topic_ends import messages

    index, placed = Path(f"{topic}.replayed"), list[tuple[str, Path, str | bytes]]()
    for message in messages(settings, topic):
        place = f"{topic}[{message.partition()}], offset {message.offset()}"
        placed.append((place, index, message.value() or b""))
    return _found(placed)


def read_letters(files: Sequence[str], topic: str | None, settings: Mapping[str, Any]) -> Found:
    """The letters of files or of a topic. Raises ConfigError unless exactly one is given."""
    if bool(files) == bool(topic):
        raise ConfigError("give files with dead letters, or --topic NAME, and not both")
    return read_topic(settings, topic) if topic else read_files(files)


def _found(placed: Iterable[tuple[str, Path, str | bytes]]) -> Found:
    letters: list[StoredLetter] = []
    others = 0
    for place, index, text in placed:
        letter = _letter_of(text)
        if letter is None:
            others += 1
        else:
            letters.append(StoredLetter(len(letters) + 1, place, index, letter))
    return Found(letters, others)


def _letter_of(text: str | bytes) -> DeadLetter | None:
    """The letter that a JSON text stands for; fields that an older release did not write have their
    defaults. None if it is not a letter."""
    try:
        fields = json.loads(text)
    except ValueError:
        return None
    if not isinstance(fields, dict) or not fields.keys() >= {*DeadLetter._fields} - {*_DEFAULTS}:
        return None
    values = {**_DEFAULTS, **{name: fields[name] for name in DeadLetter._fields if name in fields}}
    values |= {name: [*values[name]] for name in ("as_text", "marked") if values[name] == ()}
    if not all(isinstance(values[name], kind) for name, kind in _KINDS.items()):
        return None
    return DeadLetter(**values)


class ReplayIndex:
    """Which letters were replayed: a file beside theirs, with a line of JSON for each.

    A line is written once the topology has said how the replay ended. If this process or the
    topology dies before, the letter is replayed again: at least once.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = ((str(line["letter"]), line) for line in self._lines())
        self.replayed: dict[str, dict[str, Any]] = dict(lines)  # letter → the line

    def add(self, letter: StoredLetter, topology: str, outcome: str, wall_s: float) -> None:
        """Note that a letter is settled: the line survives this process, but not a power failure.
        Raises SourceError."""
        line = {"letter": letter.id, "topology": topology, "outcome": outcome, "time": wall_s}
        try:
            with self.path.open("a+b") as file:
                file.seek(max(file.tell() - 1, 0))
                torn = file.read() not in (b"", b"\n")  # a process was killed while it wrote
                file.write(b"\n" * torn + json.dumps(line).encode() + b"\n")
        except OSError as error:
            raise SourceError(
                f"{self.path} cannot be written ({error.strerror}), so the letter {letter.number} "
                "would be replayed again; make its folder writable"
            ) from None
        self.replayed[letter.id] = line

    def _lines(self) -> Iterator[dict[str, Any]]:
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return
        except OSError as error:
            raise SourceError(f"{self.path} cannot be read ({error.strerror})") from None
        for text in lines:
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict) and "letter" in line:
                yield line


def indexes_of(letters: Iterable[StoredLetter]) -> dict[Path, ReplayIndex]:
    """The index of each place, by its path."""
    return {path: ReplayIndex(path) for path in dict.fromkeys(letter.index for letter in letters)}


def marks_of(letters: Iterable[StoredLetter]) -> dict[str, Mapping[str, Any]]:
    """The lines of the indexes about letters that were replayed, by the letter's id."""
    letters = list(letters)
    indexes = indexes_of(letters)
    pairs = ((letter.id, indexes[letter.index].replayed.get(letter.id)) for letter in letters)
    return {id: mark for id, mark in pairs if mark is not None}


# ---- groups --------------------------------------------------------------------------------------


@dataclass
class LetterGroup:
    """Letters of one component that are alike but for their records."""

    id: str  # the same as long as there are such letters
    component: str
    cause: str
    exception: str
    message: str  # with `…` in place of what differs
    letters: list[StoredLetter] = field(default_factory=list)

    @property
    def times(self) -> tuple[float, float]:
        """The first and the last time, in Unix time; 0: not known."""
        times = [stored.letter.time for stored in self.letters if stored.letter.time > 0]
        return min(times, default=0.0), max(times, default=0.0)


def group_id(letter: DeadLetter) -> str:
    """The id of a letter's group."""
    key = group_key(letter.component, letter.cause, letter.exception, letter.reason)
    return hashlib.sha256(utf8(json.dumps(key))).hexdigest()[:_ID_DIGITS]


def groups_of(letters: Iterable[StoredLetter]) -> list[LetterGroup]:
    """The groups of letters, the largest first."""
    groups: dict[str, LetterGroup] = {}
    for stored in letters:
        letter, id = stored.letter, group_id(stored.letter)
        what = letter.component, letter.cause, letter.exception, normalised(letter.reason)
        groups.setdefault(id, LetterGroup(id, *what)).letters.append(stored)
    return sorted(groups.values(), key=lambda group: -len(group.letters))


# ---- replays -------------------------------------------------------------------------------------

_LOOK_S = 2.0
WAIT_S = 60.0  # how long a letter may take, unless told otherwise
_AT_ONCE = 16  # letters that a topology is sent at a time
_FATAL = (ClusterError, TopologyFailed)  # no other letter can be replayed either
Ask = Callable[[StoredLetter], str]  # replays one letter; returns how it has ended


def ask_of(run: RayRun, timeout_s: float = WAIT_S) -> Ask:
    """Sends a letter to its spout, and waits for its end."""

    def ask(stored: StoredLetter) -> str:
        (outcome,) = run.ask(stored.letter.spout, stored.letter, timeout_s=timeout_s)
        return str(outcome)

    return ask


def not_replayed(letters: Iterable[StoredLetter]) -> list[StoredLetter]:
    """Those without the ones that were replayed before, and without second copies."""
    letters = list(letters)
    marks = marks_of(letters)
    return list({letter.id: letter for letter in letters if letter.id not in marks}.values())


def outages_of(
    run: RayRun, letters: Iterable[StoredLetter], now: Callable[[], float]
) -> Callable[[], Iterator[str]]:
    """A function that yields the news since its last call, as lines: which components wait for a
    dependency, with the error, and which continue. It covers the components that these letters
    reach."""
    from sunshower.cli.health import WaitNews

    news = WaitNews(run.overview().reached_from({letter.letter.spout for letter in letters}))

    def look() -> Iterator[str]:
        with suppress(*_FATAL):  # the letters say that, too
            yield from news.see(run.snapshot(), now())

    return look


def replayed(
    ask: Ask,
    letters: Iterable[StoredLetter],
    name: str,
    wall: Callable[[], float],
    look: Callable[[], object] = lambda: None,
    look_s: float = _LOOK_S,
) -> Iterator[tuple[StoredLetter, str | SunshowerError]]:
    """Send letters to topology `name`, and write their outcomes into their indexes, with the time
    of `wall`. Yields the outcome or the error of each letter. Calls `look` if none has ended for
    `look_s` seconds. Other errors than those of single letters are raised when all letters that
    were sent have ended. The end of the process does not wait for these letters."""
    letters = list(letters)
    indexes, left = indexes_of(letters), iter(letters)
    ended = SimpleQueue[tuple[StoredLetter, str | BaseException]]()

    def send(letter: StoredLetter) -> None:
        try:
            ended.put((letter, ask(letter)))
        except BaseException as error:  # the loop below yields or raises it
            ended.put((letter, error))

    under_way, fatal = 0, None
    while True:
        for letter in islice(left, 0 if fatal else _AT_ONCE - under_way):
            Thread(target=send, args=(letter,), daemon=True).start()
            under_way += 1
        if not under_way:
            break
        try:
            letter, outcome = ended.get(timeout=look_s)
        except Empty:
            look()
            continue
        under_way -= 1
        if isinstance(outcome, str):
            indexes[letter.index].add(letter, name, outcome, wall())
            yield letter, outcome
        elif isinstance(outcome, SunshowerError) and not isinstance(outcome, _FATAL):
            yield letter, outcome
        else:
            fatal = fatal or outcome
    if fatal is not None:
        raise fatal
