"""`sunshower dead list|show|export|replay`: the commands for dead letters."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.table import Table

from sunshower.cli.cluster_options import Address, Name, connect, moment_of
from sunshower.cli.dead.letters import (
    WAIT_S,
    Found,
    LetterGroup,
    Selection,
    StoredLetter,
    as_line,
    ask_of,
    groups_of,
    marks_of,
    not_replayed,
    outages_of,
    read_letters,
    replayed,
)
from sunshower.cli.formatting import (
    Terminal,
    echo,
    echo_json,
    format_error,
    new_table,
    number_of,
    print_lines,
)
from sunshower.cli.kafka import Bootstrap, client_settings
from sunshower.cli.kafka import Settings as ClientSettings
from sunshower.cli.program_options import AsJson, FromEnvironment, FromFile, made_of_options
from sunshower.errors import ConfigError, SourceError, SunshowerError
from sunshower.failures import Cause
from sunshower.texts import clip, utf8
from sunshower.topologies.retry import ACKED, DEAD_AGAIN, DeadLetter

dead = typer.Typer(
    name="dead",
    no_args_is_help=True,
    help="List, show, export and replay the dead letters in files and Kafka topics.",
)

Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE]...",
        help="JSON lines files with dead letters, or patterns, such as 'dead.*.jsonl'.",
    ),
]
Topic = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Read this Kafka topic, not files."),
]
Numbers = Annotated[
    list[int] | None,
    typer.Option("--number", metavar="N", help="The number in `list`."),
]
Causes = Annotated[
    list[Cause] | None,
    typer.Option("--cause", metavar="CAUSE", help="The cause, such as exception or timeout."),
]
Components = Annotated[
    list[str] | None,
    typer.Option("--component", metavar="NAME", help="Only letters that failed in this component."),
]
Text = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Only letters that contain this text."),
]
Since = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="From 2026-01-31T12:00 on, or the last 15m, 2h or 7d."),
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Before this time.")]
Groups = Annotated[
    bool,
    typer.Option(
        "--groups", help="Print one row for all letters that differ in their records only."
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", min=0.001, metavar="SECONDS", help="The longest wait for each letter."
    ),
]


# ---- tables --------------------------------------------------------------------------------------

_CELL_BYTES = 80
_LINE_BYTES = 200  # of a line that the terminal clips
# Of user code: "field `amount` of Sale(…)"; of a reader: "Sale.amount: 'abc' is no int", "Sale
# without amount".
_FIELD = re.compile(
    r"fields? `(?P<field>\w+)`"
    r"|^\w+[.\w\[\]]*?\.(?P<place>\w[^:\s]*): |^\w[.\w\[\]]* without (?P<absent>\w+)"
)

Marks = Mapping[str, Mapping[str, Any]]  # letter → how its replay has ended: see `marks_of`


def letter_table(letters: Sequence[StoredLetter], marks: Marks, total: int) -> Table:
    """The selected of `total` letters, two lines each; `time`: in UTC, without the year."""
    title = f"{len(letters):,} of {total:,} dead letters"
    columns = ("number", "time", "failed in", "error and record")
    replayed = ["replayed"] if marks else []
    table = new_table(*columns, *replayed, title=title, clipped=["error and record"])
    for stored in letters:
        letter, mark = stored.letter, marks.get(stored.id)
        error = letter.reason.strip().partition("\n")[0]
        row = (
            str(stored.number),
            time_of(letter.time)[5:-1],
            f"{letter.component or '–'}\n{letter.cause}",
            "\n".join(clip(line, _LINE_BYTES) for line in (error, _text(letter.record))),
            "" if mark is None else str(mark.get("outcome")),
        )
        table.add_row(*row[: len(table.columns)])
    return table


def group_table(groups: Sequence[LetterGroup], marks: Marks) -> Table:
    """A row of two lines for each group: what failed where and how often; the newest record."""
    table = new_table(
        "failed in", "error and newest record", "times (UTC)", numbers=["letters", "new"]
    )
    for group in groups:
        newest = max(group.letters, key=lambda stored: stored.letter.time)
        new = sum(stored.id not in marks for stored in group.letters)
        first, last = map(time_of, group.times)
        record = clip(_text(newest.letter.record), _CELL_BYTES)
        table.add_row(
            f"{group.component or '–'}\n{group.cause}",
            f"{group.message or group.cause}\n{newest.number}: {record}",
            f"{first}\n{last}",
            f"{len(group.letters):,}",
            f"{new:,}",
        )
    return table


def field_table(letters: Sequence[StoredLetter]) -> Table | None:
    """How many letters are about each field, by the type of the error; None: no error names one."""
    named = [(_FIELD.search(stored.letter.reason), stored.letter.exception) for stored in letters]
    counts = Counter((match[match.lastgroup or 0], kind) for match, kind in named if match)
    if not counts:
        return None
    table = new_table("field", "error", "letters", title="By field and type of the error")
    for (field, kind), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        table.add_row(field, kind, f"{count:,}")
    return table


def as_json(stored: StoredLetter, marks: Marks) -> dict[str, Any]:
    """A letter with its number and place, and how its replay ended, if there was one."""
    return {
        "number": stored.number,
        "place": stored.place,
        "replayed": marks.get(stored.id),
        **stored.letter._asdict(),
    }


def details(stored: StoredLetter, marks: Marks) -> Iterator[str]:
    """Lines with everything that a letter says. Values are JSON, so none has a line break."""
    letter = stored.letter
    rows = {
        "place": stored.place,
        "time": time_of(letter.time),
        "spout": f"{letter.spout}, stream {letter.stream}",
        "message": _text(letter.message_id),
        "attempts": str(letter.attempts),
        "cause": letter.cause,
        "failed in": _where(letter),
        "error": _text(letter.reason),
    }
    if (mark := marks.get(stored.id)) is not None:
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


# ---- command -------------------------------------------------------------------------------------


def read_all(
    files: Files = None,
    topic: Topic = None,
    bootstrap: Bootstrap = "127.0.0.1:9092",
    settings: ClientSettings = None,
    from_files: FromFile = None,
    from_environment: FromEnvironment = None,
) -> Found:
    """All letters of files or of a topic."""
    of_client = client_settings(settings, from_files, from_environment)
    letters_read = read_letters(files or (), topic, {"bootstrap.servers": bootstrap, **of_client})
    if letters_read.others:
        others = number_of(letters_read.others, "message" if topic else "line")
        echo(f"{others} are not valid dead letters.", err=True)
    return letters_read


def read_selected(
    files: Files = None,
    topic: Topic = None,
    number: Numbers = None,
    cause: Causes = None,
    component: Components = None,
    text: Text = None,
    since: Since = None,
    until: Until = None,
    bootstrap: Bootstrap = "127.0.0.1:9092",
    settings: ClientSettings = None,
    from_files: FromFile = None,
    from_environment: FromEnvironment = None,
) -> SelectedLetters:
    """The letters that satisfy each condition that is given."""
    now_s = time.time()
    selection = Selection(
        numbers=number or (),
        causes=cause or (),
        components=component or (),
        text=text or "",
        since_s=None if since is None else moment_of(since, now_s, "--since"),
        until_s=None if until is None else moment_of(until, now_s, "--until"),
    )
    letters_read = read_all(files, topic, bootstrap, settings, from_files, from_environment)
    return SelectedLetters(selection.of(letters_read.letters), letters_read)


class SelectedLetters(NamedTuple):
    """Some of the letters that were found."""

    letters: list[StoredLetter]
    found: Found


with_selected = made_of_options(selected=read_selected)


@dead.command("list")
@with_selected
def list_(
    selected: SelectedLetters,
    groups: Groups = False,
    as_json_: AsJson = False,
) -> None:
    """List dead letters, with their numbers, causes and records.

    An option that is given several times selects letters with any of its values.
    """
    letters, letters_read = selected
    marks = marks_of(letters)
    if as_json_:
        rows = [as_json(letter, marks) for letter in letters]
        echo_json({"letters": rows, "not_letters": letters_read.others})
        return
    if groups:
        Terminal().print(group_table(groups_of(letters), marks))
        return
    Terminal().print(letter_table(letters, marks, len(letters_read.letters)))
    if (fields := field_table(letters)) is not None:
        Terminal().print(fields)


@dead.command(no_args_is_help=True)
@made_of_options(letters_read=read_all)
def show(
    number: Annotated[int, typer.Argument(metavar="N", help="The number in `list`.")],
    letters_read: Found,
) -> None:
    """Show all fields of one dead letter, with control characters escaped."""
    chosen = [letter for letter in letters_read.letters if letter.number == number]
    if not chosen:
        raise ConfigError(
            f"there is no dead letter {number}: there are {len(letters_read.letters):,}, from 1 on"
        )
    for line in details(chosen[0], marks_of(chosen)):
        echo(line)


@dead.command(no_args_is_help=True)
@with_selected
def export(
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="The file to write; it must not exist.")
    ],
    selected: SelectedLetters,
) -> None:
    """Write the selected dead letters to a file, a line of JSON each.

    `sunshower dead replay` reads this file, so you can correct records in it first.
    """
    letters = selected.letters
    data = b"".join(utf8(as_line(letter.letter)) + b"\n" for letter in letters)
    try:
        with target.open("xb") as file:
            file.write(data)
    except OSError as error:
        raise SourceError(f"{target} cannot be written: {error.strerror}") from None
    echo(f"{_count(letters)} {'is' if len(letters) == 1 else 'are'} in {target}.")


@dead.command(no_args_is_help=True)
@with_selected
def replay(
    name: Name,
    selected: SelectedLetters,
    timeout_s: Timeout = WAIT_S,
    address: Address = "auto",
) -> None:
    """Emit the records of dead letters again, from the spouts of a running topology.

    Each record is a new tracked tuple, with all attempts: it is acked, or becomes a dead letter
    again. A file `….replayed` beside that of the letters, or for a topic in the current folder,
    lists replayed letters, which are not replayed again. While a component waits for a dependency,
    this is printed, with the error. Exit status 1: some letters were not settled.
    """
    letters = selected.letters
    new = not_replayed(letters)
    if len(new) < len(letters):
        echo(f"Replayed before, or second copies: {len(letters) - len(new):,} of {_count(letters)}")
    if not new:
        echo("There is nothing to replay.")
        return
    outcomes: Counter[str | None] = Counter()
    errors = Terminal(stderr=True)
    try:
        with connect(address, as_job=False) as cluster:
            run = cluster.find(name)
            outages = outages_of(run, new, time.monotonic)

            def look() -> None:
                print_lines(errors, outages(), "yellow")

            for stored, outcome in replayed(ask_of(run, timeout_s), new, name, time.time, look):
                if isinstance(outcome, SunshowerError):
                    outcomes[None] += 1
                    print_lines(errors, [f"letter {stored.number}: {format_error(outcome)}"], "red")
                else:
                    outcomes[outcome] += 1
    except KeyboardInterrupt:
        outcomes[None] = len(new) - outcomes[ACKED] - outcomes[DEAD_AGAIN]
        echo(_summary(new, outcomes))
        echo("Interrupted: the next call replays the letters that are not settled.")
        raise
    echo(_summary(new, outcomes))
    if outcomes[None]:
        raise typer.Exit(1)


def _summary(letters: list[StoredLetter], outcomes: Counter[str | None]) -> str:
    return (
        f"{_count(letters)}: {outcomes[ACKED]:,} acked, {outcomes[DEAD_AGAIN]:,} dead again, "
        f"{outcomes[None]:,} not settled."
    )


def _count(letters: Sequence[object]) -> str:
    return number_of(len(letters), "dead letter")
