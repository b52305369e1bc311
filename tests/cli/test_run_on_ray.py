"""Tests of `sunshower run` on a real Ray: its output, and its errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import Write
from tests.conftest import Sunshower
from tests.guarantee.deaths import until

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _nothing_is_left_running(ray_cluster: RayCluster) -> Iterator[None]:
    import ray

    yield
    until(lambda: not ray.util.list_named_actors(all_namespaces=True))


def test_a_topology_runs_to_its_end_and_its_lines_are_printed(
    write: Write, tmp_path: Path, sunshower: Sunshower, capsys: Capture
) -> None:
    """The workers cannot import the file and the other module of its folder by name."""
    (tmp_path / "spelling.py").write_text("NAMES = ['zero', 'one', 'two']\n")
    path = write("""
        import sys
        from spelling import NAMES

        class Name(NamedTuple):
            name: str

        def name(number: Number) -> Iterator[Name]:
            if number.value == 1:
                print("[warning] one", file=sys.stderr)
            yield Name(NAMES[number.value])

        topology = Topology("names")
        names = topology.spout("numbers", Counter(3)).shuffle().bolt("name", name)
        names.shuffle().bolt("out", Stdout)
    """)
    assert sunshower("run", path, "--workers", "1") == 0
    output = capsys.readouterr()
    assert sorted(output.out.split()) == ["one", "two", "zero"]
    assert ": [warning] one\n" in output.err
    assert "numbers × 1" in output.err
    assert "3 tuples taken in, all of them acked." in output.err


def test_output_of_cleanup_is_printed(write: Write, sunshower: Sunshower, capsys: Capture) -> None:
    path = write("""
        class Sum(Bolt[Number, None]):
            def prepare(self, context: Context) -> None:
                self.sum = 0

            def process(self, record: Number) -> None:
                self.sum += record.value

            def cleanup(self) -> None:
                print("the sum is", self.sum)

        topology = Topology("sum")
        topology.spout("numbers", Counter(11)).shuffle().bolt("sum", Sum)
    """)
    assert sunshower("run", path) == 0
    assert capsys.readouterr().out == "the sum is 55\n"


def test_every_line_of_many_is_printed_once(
    write: Write, sunshower: Sunshower, capsys: Capture
) -> None:
    path = write("""
        topology = Topology("many")
        topology.spout("numbers", Counter(50_000), 2).shuffle().bolt("out", Stdout, parallelism=2)
    """)
    assert sunshower("run", path) == 0
    assert sorted(map(int, capsys.readouterr().out.split())) == list(range(50_000))


def test_poison_tuple_is_a_line_in_a_file_after_exactly_its_attempts(
    write: Write, tmp_path: Path, sunshower: Sunshower, capsys: Capture
) -> None:
    dead, tried = tmp_path / "dead.jsonl", tmp_path / "tried.txt"
    path = write(f"""
        from sunshower import Retry

        def invert(number: Number) -> None:
            if number.value == 700:
                with open({str(tried)!r}, "a") as file:
                    file.write("once\\n")
            1 / (number.value - 700)

        topology = Topology("inverses")
        retry = Retry(attempts=3, initial_s=0.01, dead_letters={str(dead)!r})
        numbers = topology.spout("numbers", Counter(1_000), retry=retry)
        numbers.shuffle().bolt("invert", invert, parallelism=2)
    """)
    assert sunshower("run", path) == 0
    (letter,) = map(json.loads, dead.read_text().splitlines())
    assert (letter["message_id"], letter["record"]) == (700, {"value": 700})
    assert letter["attempts"] == len(tried.read_text().splitlines()) == 3
    assert letter["component"] == "invert"
    assert "1 / (number.value - 700)" in letter["traceback"]
    output = " ".join(capsys.readouterr().err.split())
    assert "999 acked, 1 among the dead letters, 3 failed on the way, 3 replayed." in output
    assert "failed, exception: 3" in output
    for attempt in (1, 2, 3):
        assert f"failed, attempt {attempt} of 3: exception in invert[" in output
    assert "Traceback" not in output


# ---- bad input: each error is one paragraph, which names the cause and a remedy -----------------


def paragraph(capsys: Capture) -> str:
    """The error message of the command; it must have no frames of Sunshower."""
    text = capsys.readouterr().err
    assert "sunshower/runtime" not in text
    assert "sunshower/actors" not in text
    return text[text.index("sunshower: ") :]


def test_the_error_for_a_file_that_cannot_be_decoded_names_the_byte(
    write: Write, tmp_path: Path, sunshower: Sunshower, capsys: Capture
) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    path = write(f"""
        def show(line: Line) -> None: ...

        topology = Topology("latin")
        lines = topology.spout("lines", TextFiles({str(tmp_path / "latin.txt")!r}))
        lines.shuffle().bolt("show", show)
    """)
    assert sunshower("run", path) == 1
    text = paragraph(capsys)
    assert "latin.txt, byte 3" in text
    assert 'errors="replace"' in text


def test_a_component_that_cannot_be_pickled(
    write: Write, sunshower: Sunshower, capsys: Capture
) -> None:
    path = write("""
        import threading

        class Locked(Bolt[Number, None]):
            def __init__(self) -> None:
                self.lock = threading.Lock()

            def process(self, record: Number) -> None: ...

        topology = Topology("locked")
        topology.spout("numbers", Counter(3)).shuffle().bolt("lock", Locked())
    """)
    assert sunshower("run", path) == 1
    text = paragraph(capsys)
    assert "component 'lock' cannot be sent to its worker" in text
    assert "prepare()" in text


def test_a_spout_that_is_quarantined_ends_the_run_with_its_error_when_the_others_are_done(
    write: Write, sunshower: Sunshower, capsys: Capture
) -> None:
    path = write("""
        from sunshower import Spout

        class Lost(Spout[Number]):
            def records(self) -> Iterator[Number]:
                raise OSError("no such queue")
                yield Number(10)

            def close(self) -> None:
                raise OSError("nothing to close")

        topology = Topology("lost")
        topology.spout("numbers", Counter(3)).shuffle().bolt("out", Stdout)
        topology.spout("lost", Lost).shuffle().bolt("too", Stdout)
    """)
    assert sunshower("run", path) == 1
    output = capsys.readouterr()
    assert sorted(output.out.split()) == ["0", "1", "2"]
    assert "close of lost[0] raised OSError: nothing to close" in output.err
    error_text = output.err[output.err.index("sunshower: ") :]
    assert "sunshower: records of lost[0] raised OSError: no such queue. Fix it" in error_text
    assert 'raise OSError("no such queue")' in error_text
