"""Tests of `sunshower dead`: list, show, export and replay, also with damaged and old files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple, cast

import pytest
from syrupy.assertion import SnapshotAssertion

from sunshower import DeadLetter, Records, Retry, Topology, run_inline
from sunshower.cli.dead.letters import ReplayIndex, StoredLetter, as_line, read_files, replayed
from sunshower.cli.formatting import printable
from sunshower.clock import ManualClock
from sunshower.runtime.control.overview import Overview, edges_of, without_code
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.plan import make_plan
from tests.cli.conftest import Capture, Command, Start, Write, read_until
from tests.conftest import Sunshower
from tests.guarantee.deaths import until

LETTER = DeadLetter(
    7,
    {"number": 7, "text": "a\x1b[31m\nb"},
    "items",
    3,
    "exception",
    "picky",
    1,
    2,
    "ValueError: no seven\nsecond line",
    "ValueError",
    'Traceback (most recent call last):\n  File "x.py", line 1, in f\n\x1b]0;title\x07',
    time=1_700_000_000.0,
)
LETTERS = [
    LETTER,
    LETTER._replace(message_id=8, cause="timeout", component="slow", time=1_700_000_100.0),
    LETTER._replace(message_id=9, component="slow", time=1_700_000_200.0),
    LETTER._replace(message_id=10, time=0.0),
]
DeadCommand = Callable[..., str]


@pytest.fixture
def dead_command(
    sunshower: Sunshower, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> DeadCommand:
    """Run `sunshower dead …`; returns what it prints on both outputs."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object, status: int = 0) -> str:
        capsys.readouterr()
        code = sunshower("dead", *arguments)
        out, err = capsys.readouterr()
        assert code == status, err
        return str(out + err)

    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "dead.jsonl"
    path.write_text("".join(as_line(letter) + "\n" for letter in LETTERS))
    return path


def numbers(dead_command: DeadCommand, *arguments: object) -> list[int]:
    listed = json.loads(dead_command("list", *arguments, "--json"))
    return [letter["number"] for letter in listed["letters"]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), [1, 2, 3, 4]),
        (("--cause", "exception"), [1, 3, 4]),
        (("--component", "slow"), [2, 3]),
        (("--component", "slow", "--cause", "exception"), [3]),
        (("--cause", "timeout", "--cause", "exception", "--number", 2, "--number", 4), [2, 4]),
        (("--since", "2023-11-14T22:15:00+00:00"), [2, 3]),
        (("--until", "2023-11-14T22:15:00+00:00"), [1]),
        (("--since", "1h"), []),
    ],
)
def test_letters_are_selected_by_number_cause_component_and_time(
    dead_command: DeadCommand, file: Path, options: tuple[object, ...], expected: list[int]
) -> None:
    assert numbers(dead_command, file, *options) == expected


def test_letters_that_differ_in_their_records_only_are_one_row(
    dead_command: DeadCommand, tmp_path: Path
) -> None:
    path = tmp_path / "groups.jsonl"
    alike = [LETTERS[0]._replace(reason=f"KeyError: 'A-{n}'", record={"n": n}) for n in range(7)]
    letters = [*alike, LETTERS[1]]
    path.write_text("".join(as_line(letter) + "\n" for letter in letters))
    printed = dead_command("list", path, "--groups")
    (row,) = (line for line in printed.splitlines() if "KeyError: …" in line)
    assert row.split()[-2:] == ["7", "7"]
    assert "A-" not in printed
    assert len([line for line in printed.splitlines() if line.strip()]) == 2 + 2 * 2


def test_an_unknown_cause_is_refused_with_the_known_ones(
    dead_command: DeadCommand, file: Path
) -> None:
    refused = dead_command("list", file, "--cause", "exeption", status=2)
    assert "'exception'" in refused
    assert "'timeout'" in refused


def test_the_list_and_a_letter_have_their_control_characters_escaped(
    dead_command: DeadCommand, file: Path, approved: SnapshotAssertion
) -> None:
    for printed in (dead_command("list", file), dead_command("show", 1, file)):
        assert printable(printed) == printed
        assert printed.replace(str(file), "dead.jsonl") == approved
    assert "there is no dead letter 5: there are 4" in dead_command("show", 5, file, status=1)


def test_an_export_is_read_like_the_file_it_came_from(
    dead_command: DeadCommand, file: Path, tmp_path: Path
) -> None:
    target = tmp_path / "some.jsonl"
    assert "2 dead letters are in" in dead_command("export", target, file, "--component", "slow")
    assert [letter.letter for letter in read_files([str(target)]).letters] == [
        letter.letter for letter in read_files([str(file)]).letters[1:3]
    ]
    assert "cannot be written: File exists" in dead_command("export", target, file, status=1)


def test_files_of_several_tasks_are_a_pattern_and_other_lines_are_counted(
    dead_command: DeadCommand, tmp_path: Path
) -> None:
    for task, letter in enumerate(LETTERS[:2]):
        (tmp_path / f"dead.{task}.jsonl").write_text(as_line(letter) + '\n{"a": 1}\n{"message_id"')
    listed = json.loads(
        dead_command("list", tmp_path / "dead.*.jsonl", "--json").partition("\n")[0]
    )
    assert [fields["message_id"] for fields in listed["letters"]] == [7, 8]
    assert listed["not_letters"] == 4
    assert "4 lines are not valid dead letters." in dead_command("list", tmp_path / "dead.*.jsonl")
    assert "cannot be read" in dead_command("list", tmp_path / "none.jsonl", status=1)
    assert "give files with dead letters, or --topic" in dead_command("list", status=1)
    assert "is not a time; write" in dead_command("list", tmp_path, "--since", "soon", status=2)


def test_letters_of_an_older_release_have_defaults(tmp_path: Path) -> None:
    fields = {name: getattr(LETTER, name) for name in DeadLetter._fields[:11]}
    path = tmp_path / "old.jsonl"
    path.write_text(json.dumps(fields))
    (letter,) = read_files([str(path)]).letters
    assert (letter.letter.stream, letter.letter.time, letter.letter.record) == (
        "default",
        0.0,
        LETTER.record,
    )


def test_a_line_of_the_index_that_was_not_finished_is_left_out(file: Path) -> None:
    first, second, *_ = read_files([str(file)]).letters
    index = ReplayIndex(first.index)
    index.add(first, "t", "acked", 1.0)
    with first.index.open("a") as torn:
        torn.write('{"letter": "ab')
    again = ReplayIndex(first.index)
    assert [*again.replayed] == [first.id]
    again.add(second, "t", "dead letter", 2.0)
    assert [*ReplayIndex(first.index).replayed] == [first.id, second.id]


def test_look_is_called_while_no_letter_ends(file: Path) -> None:
    letters = read_files([str(file)]).letters
    looked = Event()

    def ask(_: StoredLetter) -> str:
        looked.wait()
        return "acked"

    ended = replayed(ask, letters, "t", lambda: 1.0, looked.set, look_s=0.001)
    assert [outcome for _, outcome in ended] == ["acked"] * len(letters)


class Word(NamedTuple):
    text: str


def refuse(word: Word) -> None:
    raise ValueError(word.text)


def test_the_file_that_a_topology_writes_is_listed(
    dead_command: DeadCommand, tmp_path: Path
) -> None:
    path = tmp_path / "dead.jsonl"
    topology = Topology("t")
    words = topology.spout(
        "words", Records([Word("a")], type=Word), retry=Retry(attempts=2, dead_letters=path)
    )
    words.shuffle().bolt("refuse", refuse)
    run_inline(topology.graph(), clock=ManualClock(1_700_000_000.0))
    (letter,) = json.loads(dead_command("list", path, "--json"))["letters"]
    assert (letter["number"], letter["place"]) == (1, f"{path}, line 1")
    assert (letter["record"], letter["component"], letter["attempts"]) == (
        {"text": "a"},
        "refuse",
        2,
    )
    assert letter["time"] >= 1_700_000_000


def pass_on(word: Word) -> Iterator[Word]:
    yield word


def test_the_components_that_letters_of_a_spout_reach_are_found_without_code() -> None:
    topology, source = Topology("t"), Records([], type=Word)
    parsed = topology.spout("first", source).shuffle().bolt("parse", pass_on)
    stored = parsed.shuffle().bolt("store", pass_on)
    stored.shuffle().into("parse")  # a cycle
    topology.spout("second", source).shuffle().into("store")
    topology.spout("third", source).shuffle().bolt("apart", pass_on)
    plan = make_plan(topology.graph())
    overview = Overview(without_code(plan), Snapshot("t"), None, 0.0, {}, edges_of(plan.graph))
    assert (
        overview.reached_from({"second"}) == overview.reached_from({"first"}) == {"parse", "store"}
    )
    assert overview.reached_from({"third", "unknown"}) == {"apart"}


SHOP = """
    from pathlib import Path
    from sunshower import JsonLines, Records, Retry

    class Sale(NamedTuple):
        number: int
        shop: str

    HERE = Path(__file__).parent

    def sales() -> Iterator[Sale | None]:
        for number in range(4):
            yield Sale(number, "a")
        while True:
            yield None

    def check(sale: Sale) -> Iterator[Sale]:
        if (HERE / "away").exists():
            raise ConnectionRefusedError("the shop is away")
        if sale.number in (1, 3) and not (HERE / f"open{sale.number}").exists():
            raise ValueError(f"shop of {sale.number} is closed")
        yield sale

    topology = Topology("shop")
    retry = Retry(attempts=2, initial_s=0.01, dead_letters=HERE / "dead.jsonl")
    stream = topology.spout("sales", Records(sales, type=Sale), retry=retry)
    stream.shuffle().bolt("check", check).shuffle().bolt("out", JsonLines(HERE / "out.jsonl"))
"""


@pytest.mark.ray
def test_a_running_topology_replays_letters_once_and_letters_that_fail_again_are_new_letters(
    here: Command,
    command: Command,
    dead_command: DeadCommand,
    start: Start,
    write: Write,
    tmp_path: Path,
) -> None:
    import ray

    dead, out = tmp_path / "dead.jsonl", tmp_path / "out.jsonl"
    here("submit", write(SHOP))
    until(lambda: dead.exists() and len(dead.read_bytes().splitlines()) >= 2)
    (tmp_path / "open1").touch()
    printed = command("dead", "replay", "shop", dead).stdout
    assert printed == "2 dead letters: 1 acked, 1 dead again, 0 not settled.\n"
    lines = [json.loads(line)["number"] for line in out.read_text().splitlines()]
    assert sorted(lines) == [0, 1, 2]
    assert outcomes(dead_command, dead) == {(1, "acked"), (3, "dead letter"), (3, None)}

    (tmp_path / "open3").touch()
    printed = here("dead", "replay", "shop", dead).stdout
    assert "Replayed before, or second copies: 2 of 3 dead letters" in printed
    assert "1 dead letter: 1 acked, 0 dead again, 0 not settled." in printed
    assert "There is nothing to replay." in here("dead", "replay", "shop", dead).stdout

    wrong = tmp_path / "wrong.jsonl"
    letters = [
        LETTER._replace(spout="sales", record={"number": "7", "shop": "a"}),
        LETTER._replace(spout="nobody"),
        LETTER._replace(spout="sales", record={"number": 8, "shop": "b"}),
    ]
    wrong.write_text("\n".join(map(as_line, letters)))
    ended = here("dead", "replay", "shop", wrong, status=1)
    assert "letter 1: sunshower: the letter of message 7 of spout 'sales' cannot" in ended.stderr
    assert "spouts with dead letters: sales" in ended.stderr
    assert "3 dead letters: 1 acked, 0 dead again, 2 not settled." in ended.stdout

    def status() -> dict[str, Any]:
        sales = json.loads(here("status", "shop", "--json").stdout)["components"]["sales"]
        return cast("dict[str, Any]", sales)

    until(lambda: not status()["pending"] and status()["acked"] >= 8)
    assert (status()["acked"], status()["dead"]) == (8, 3)

    (tmp_path / "away").touch()
    wrong.write_text(as_line(LETTER._replace(spout="sales", record={"number": 9, "shop": "b"})))
    replaying = ("dead", "replay", "shop", wrong)
    assert "0 dead again, 1 not settled" in here(*replaying, "--timeout", 1, status=1).stdout
    process = start(*replaying, "--address", ray.get_runtime_context().gcs_address)
    waits = read_until(process.stderr, "check[0] waits for a dependency")
    assert "last error: ConnectionRefusedError: the shop is away" in waits
    (tmp_path / "away").unlink()
    printed, _ = process.communicate(timeout=120)
    assert printed == "1 dead letter: 1 acked, 0 dead again, 0 not settled.\n"


def outcomes(dead_command: DeadCommand, path: Path) -> set[tuple[Any, Any]]:
    listed = dead_command("list", path, "--json").partition("\n")[0]  # lines of workers may follow
    rows = json.loads(listed)["letters"]
    return {(row["message_id"], (row["replayed"] or {}).get("outcome")) for row in rows}
