"""Tests of the note that a bolt with several tasks gets if its input is shuffled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import Bolt, JsonLines, Records, Stdout, Topology, count
from sunshower.errors import TopologyFailed
from sunshower.topologies.describe import as_text, state_notes
from tests.conftest import Sunshower


class Word(NamedTuple):
    word: str
    times: int = 1


class Counts(Bolt[Word, None]):
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def process(self, record: Word) -> None:
        self.counts[record.word] = self.counts.get(record.word, 0) + record.times


def counts_in_a_global(word: Word) -> None: ...


def splits(word: Word) -> Iterator[Word]:
    yield word


def notes(declare: Callable[[Any], object]) -> list[str]:
    topology = Topology("words")
    declare(topology.spout("words", Records([], type=Word), 2))
    graph = topology.graph()
    texts = state_notes(graph)
    for note in texts:
        assert note.partition(": ")[2] in as_text(graph)
    assert as_text(graph).count("each task sees a part of every key") == len(texts)
    return texts


SHUFFLED = (
    "it × 2: each task sees a part of every key; group by the key "
    '(.fields("word")) if it keeps state'
)


@pytest.mark.parametrize(
    "declare",
    [
        lambda s: s.shuffle().bolt("it", Counts, 2),
        lambda s: s.local_or_shuffle().bolt("it", Counts(), 2),
        lambda s: s.none().bolt("it", Counts, 2),
        lambda s: s.shuffle().bolt("it", counts_in_a_global, 2),
        lambda s: s.map(lambda word: word, fields=Word).shuffle().bolt("it", Counts, 2),
    ],
)
def test_a_bolt_with_several_tasks_and_a_shuffled_input_gets_a_note(declare: Any) -> None:
    assert notes(declare) == [SHUFFLED]


@pytest.mark.parametrize(
    "declare",
    [
        lambda s: s.shuffle().bolt("it", Counts, 1),
        lambda s: s.fields("word").bolt("it", Counts, 2),
        lambda s: s.partial_key("word").bolt("it", Counts, 2),
        lambda s: s.global_().bolt("it", Counts, 2),
        lambda s: s.all().bolt("it", Counts, 2),
        lambda s: s.shuffle().bolt("it", JsonLines("words.jsonl"), 2),
        lambda s: s.shuffle().bolt("it", Stdout, 2),
        lambda s: s.shuffle().stage("it", 2).flat_map(splits).peek(print),
        lambda s: s.group_by("word").aggregate(count()),
    ],
)
def test_others_get_none(declare: Any) -> None:
    assert notes(declare) == []


def test_run_prints_the_notes(
    tmp_path: Path,
    sunshower: Sunshower,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class NoRay:
        def __init__(self, *_: object) -> None: ...

        def run(self, *_: object, **__: object) -> None:
            raise TopologyFailed("no Ray here")

    monkeypatch.setattr("sunshower.cli.session.TopologySession", NoRay)
    program = tmp_path / "words.py"
    program.write_text(
        "from sunshower import Records, Topology\n"
        "def count(word) -> None: ...\n"
        "topology = Topology('words')\n"
        "words = topology.spout('words', Records([]), fields=['word', 'times'])\n"
        "words.shuffle().bolt('it', count, parallelism=2, fields=())\n"
    )
    assert sunshower("run", program) != 0
    assert SHUFFLED in capsys.readouterr().err.replace("\n", " ")
