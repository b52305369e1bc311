"""`sunshower state`: a user seeds, reads, repairs and continues states, and makes mistakes."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from sunshower.errors import StoreUnreachable
from sunshower.state.sqlite import SqliteBacking
from tests.cli.conftest import PrintedBy, Write

VISITS = """
    from sunshower import KeyState, Records, SqliteState, count

    class Visit(NamedTuple):
        user: str
        page: str

    class Seen(NamedTuple):
        visits: int
        last: str = ""

    def visits() -> Iterator[Visit]:
        for number in range(6):
            yield Visit(f"u{number % 2}", f"p{number}")

    def seen(visit: Visit, state: KeyState[Seen]) -> None:
        known = state.value or Seen(0)
        state.value = Seen(known.visits + 1, visit.page)

    FILE = Path(__file__).with_name("states.db")
    topology = Topology("visits")
    stream = topology.spout("visits", Records(visits))
    stream.group_by("user").process(seen, state=SqliteState(FILE), parallelism=2)
    stream.group_by("user").aggregate(count(), state=SqliteState(FILE), name="counts")
"""


def test_a_state_is_seeded_continued_read_and_repaired(
    write: Write, printed_by: PrintedBy, tmp_path: Path
) -> None:
    program = write("from pathlib import Path\n" + VISITS.replace("\n    ", "\n"))
    seed = tmp_path / "seed.jsonl"
    seed.write_text('{"key":"u0","value":{"visits":10}}\n{"key":"old","value":{"visits":1}}\n')
    listed = printed_by("state", "list", program).out
    assert ["seen", "seen", "process", "–", "–", "0", "–"] in [*map(str.split, listed.splitlines())]
    assert printed_by("state", "import", program, "seen", seed).out == (
        "2 keys imported into state 'seen'.\n"
    )
    printed_by("run", program, "--inline")
    assert printed_by("state", "get", program, "seen", "u0").out == (
        '{"<Seen>":{"visits":13,"last":"p4"}}\n'
    )
    assert printed_by("state", "get", program, "counts", "u1").out == "3\n"
    for suffix in ("jsonl", "parquet"):
        file = tmp_path / f"seen.{suffix}"
        assert (
            "has 3 keys of state 'seen'" in printed_by("state", "export", program, "seen", file).out
        )
        assert "3 keys imported" in printed_by("state", "import", program, "seen", file).out
    (tmp_path / "repair.jsonl").write_text('{"key":"old","value":null}\n')
    repair = tmp_path / "repair.jsonl"
    assert "1 key removed" in printed_by("state", "import", program, "seen", repair).out
    states = json.loads(printed_by("state", "list", program, "--json").out)["states"]
    assert [(state["state"], state["of"], state["keys"]) for state in states] == [
        ("seen", "process", 2),
        ("counts", "totals", 2),
    ]


def test_a_state_that_no_component_has_is_read_and_not_imported_into(
    write: Write, printed_by: PrintedBy, tmp_path: Path
) -> None:
    code = "from pathlib import Path\n" + VISITS.replace("\n    ", "\n")
    printed_by("run", write(code), "--inline")
    program = write(code.replace('name="counts"', 'name="totals"'), "later.py")
    assert "counts" in printed_by("state", "list", program).out
    assert printed_by("state", "get", program, "counts", "u0").out == "3\n"
    seed = tmp_path / "seed.jsonl"
    seed.write_text('{"key":"u0","value":1}\n')
    error = printed_by("state", "import", program, "counts", seed, status=1).err
    assert "no component of the program has it" in error


def test_mistakes_are_named_with_a_way_out(
    write: Write, printed_by: PrintedBy, tmp_path: Path
) -> None:
    program = write("from pathlib import Path\n" + VISITS.replace("\n    ", "\n"))

    def error(*arguments: object) -> str:
        return printed_by("state", *arguments, status=1).err

    seed = tmp_path / "seed.jsonl"
    seed.write_text('{"key":"u0","value":{"visits":1}}\n{"key":"u1","value":{"visits":"many"}}\n')
    wrong = error("import", program, "seen", seed)
    assert "seed.jsonl, line 2: " in wrong
    assert "visits" in wrong
    assert "Nothing is imported" in wrong
    assert "has no key u0" in error("get", program, "seen", "u0")
    assert "there are: counts, seen" in error("get", program, "visitors", "u0")
    assert ".parquet for Parquet" in error("import", program, "seen", tmp_path / "seed.csv")
    assert "cannot be read" in error("import", program, "seen", tmp_path / "missing.jsonl")
    assert "cannot be written: File exists" in error("export", program, "seen", seed)


def test_an_import_that_is_interrupted_and_whose_file_is_gone_is_completed(
    write: Write, printed_by: PrintedBy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = write("from pathlib import Path\n" + VISITS.replace("\n    ", "\n"))
    seed, other = tmp_path / "seed.jsonl", tmp_path / "other.jsonl"
    seed.write_text("".join(f'{{"key":"u{n}","value":{{"visits":1}}}}\n' for n in range(9)))
    other.write_text("")
    put, writes = SqliteBacking.put, 0

    def put_four(self: SqliteBacking, *arguments: Any) -> None:
        nonlocal writes
        if writes == 4:
            raise StoreUnreachable("the disk is away")
        writes += 1
        put(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(SqliteBacking, "put", put_four)
        assert "disk is away" in printed_by("state", "import", program, "seen", seed, status=1).err
    seed.unlink()
    assert "importing seed.jsonl" in printed_by("state", "list", program).out
    for command in (("get", program, "seen", "u1"), ("import", program, "seen", other)):
        assert "import another one with --instead" in printed_by("state", *command, status=1).err
    monkeypatch.setattr("sunshower.cli.health._FIRST_REACH_S", 1.0)
    printed_by("run", program, "--inline", status=1)
    printed_by("state", "import", program, "seen", other, "--instead")
    copy = tmp_path / "copy.jsonl"
    printed_by("state", "export", program, "seen", copy)
    assert 0 < len(copy.read_text().splitlines()) < 9
    assert "keys imported" in printed_by("state", "import", program, "seen", copy).out
    printed_by("run", program, "--inline")


def test_an_import_is_refused_while_the_program_runs(
    write: Write, printed_by: PrintedBy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster is asked at `--address`; the way out is then taken."""
    runs = {"visits": "visits-1"}

    class Cluster:
        def runs(self) -> dict[str, str]:
            return runs

    monkeypatch.setattr(
        "sunshower.cli.cluster_options.connect", lambda *_, **__: nullcontext(Cluster())
    )
    program = write("from pathlib import Path\n" + VISITS.replace("\n    ", "\n"))
    seed = tmp_path / "seed.jsonl"
    seed.write_text('{"key":"u0","value":{"visits":1}}\n')
    arguments = ("state", "import", program, "seen", seed, "--address", "127.0.0.1:1")
    assert "`sunshower kill visits`, import" in printed_by(*arguments, status=1).err
    assert "has no key" in printed_by("state", "get", program, "seen", "u0", status=1).err
    runs.clear()
    assert printed_by(*arguments).out == "1 key imported into state 'seen'.\n"


def test_states_of_one_name_in_two_stores(
    write: Write, printed_by: PrintedBy, tmp_path: Path
) -> None:
    """The command names their components, by which each is found."""
    program = write("""
        from pathlib import Path

        from sunshower import Records, SqliteState, count

        class Visit(NamedTuple):
            user: str
            page: str

        def visits() -> Iterator[Visit]:
            yield Visit("u", "p")

        FOLDER = Path(__file__).parent
        topology = Topology("visits")
        stream = topology.spout("visits", Records(visits))
        for field in ("user", "page"):
            state = SqliteState(FOLDER / f"{field}.db", name="counts")
            stream.group_by(field).aggregate(count(), state=state, name=f"by_{field}")
    """)
    printed_by("run", program, "--inline")
    error = printed_by("state", "get", program, "counts", "u", status=1).err
    assert "2 states are called 'counts': say which by by_user, by_page" in " ".join(error.split())
    assert json.loads(printed_by("state", "get", program, "by_user", "u").out) == 1
    assert json.loads(printed_by("state", "get", program, "by_page", "p").out) == 1
