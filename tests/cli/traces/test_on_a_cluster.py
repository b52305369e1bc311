"""Tests of `sunshower trace` on a real Ray, also while user code hangs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import Command, Write

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

pytestmark = pytest.mark.ray

WORDS = """
    import time
    from pathlib import Path

    GATE = Path({gate!r})

    class Word(NamedTuple):
        word: str

    class Fail(Bolt[Word, None]):
        def __init__(self) -> None:
            self.seen = set()

        def process(self, record: Word) -> None:
            if record.word == "bad" and record.word not in self.seen:
                self.seen.add(record.word)
                raise ValueError("no bad word, password=hunter2-planted")
            while record.word == "wait" and not GATE.exists():
                time.sleep(0.01)

    def split(line: Line) -> Iterator[Word]:
        for word in line.text.split():
            yield Word(word)

    topology = Topology("words", workers=2{settings})
    lines = topology.spout("lines", TextFiles({lines!r}))
    lines.shuffle().bolt("split", split).shuffle().bolt("fail", Fail())
"""


def until(look: Any, enough: Any) -> Any:
    end_s = time.monotonic() + 120
    while not enough(answer := look()):
        assert time.monotonic() < end_s, answer
    return answer


def file(write: Write, folder: Path, lines: list[str], settings: str = "") -> tuple[Path, Path]:
    text, gate = folder / "lines.txt", folder / "gate"
    text.write_text("".join(f"{line}\n" for line in lines))
    return write(WORDS.format(gate=str(gate), lines=str(text), settings=settings)), gate


def test_trees_are_listed_drawn_and_exported_from_a_cluster(
    here: Command, ray_cluster: RayCluster, write: Write, tmp_path: Path
) -> None:
    # The tree that waits must neither time out nor end its worker before the gate is open.
    settings = ", trace_share=1, message_timeout_s=600, block_max_s=600"
    path, gate = file(write, tmp_path, ["the cat", "a bad dog", "please wait"], settings)
    begun_s = time.time()
    here("submit", path)

    def listed(*how: str) -> list[dict[str, Any]]:
        answer = until(
            lambda: json.loads(here("trace", "words", "--json", *how).stdout),
            lambda answer: answer["silent"] == [],  # every worker has answered in time
        )
        trees: list[dict[str, Any]] = answer["trees"]
        return trees

    hung = until(
        listed,
        lambda trees: any(
            hop["record"] == "Word(word='wait')" and hop["delivered_s"]
            for tree in trees
            for hop in tree["hops"]
        ),
    )
    (root,) = {t["root"] for t in hung if any("wait" in hop["record"] for hop in t["hops"])}
    drawn = here("trace", "words", root).stdout  # user code has not returned
    assert "open" in drawn
    assert "not acked  Word(word='wait')" in drawn
    gate.touch()
    until(listed, lambda trees: sum(tree["outcome"] == "complete" for tree in trees) == 3)

    (failed,) = listed("--failed")
    assert (failed["outcome"], failed["cause"], failed["attempt"]) == ("failed", "exception", 1)
    assert "ValueError: no bad word" in failed["reason"]
    assert begun_s - 1 < failed["emitted_s"] < time.time() + 1
    (replay,) = (tree for tree in listed() if tree["attempt"] == 2)
    assert replay["message_id"] == failed["message_id"]
    assert [hop["source"] for hop in replay["hops"]] == ["lines[0]", *["split[0]"] * 3]
    workers = {hop["worker"] for hop in replay["hops"]}
    assert workers <= {0, 1}

    text = here("trace", "words").stdout
    assert text.index("latest") < text.index("slowest") < text.index("failed")
    drawn = here("trace", "words", failed["root"]).stdout
    assert "failed: exception  Word(word='bad')" in drawn
    output = here("trace", "words", "0" * 15 + "1", status=1).stderr
    assert "no tree 0000000000000001 of 'words' is recorded" in output
    assert "is not a valid root of a tree" in here("trace", "words", "nonsense", status=1).stderr
    output = here("trace", "words", "--otlp", "http://127.0.0.1:9", status=1).stderr
    assert "does not take spans" in output


def test_if_no_trees_are_traced_the_reason_is_printed(
    here: Command, write: Write, tmp_path: Path
) -> None:
    path, _ = file(write, tmp_path, ["the cat"], ", ackers=0")
    here("submit", path)
    assert "ackers=0: its tuples are not tracked" in here("trace", "words").stdout
    here("kill", "words", "--now")
    path, _ = file(write, tmp_path, ["the cat"], ", trace_share=0")
    here("submit", path)
    assert "trace_share=0: nothing is recorded" in here("trace", "words").stdout
