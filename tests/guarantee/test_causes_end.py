"""Tests of failures that would repeat for ever: they use up the attempts of a message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from sunshower import Bolt, Cause, Retry, Spout, Topology
from sunshower.errors import TopologyFailed
from sunshower.records import Schema
from sunshower.simulation.worker import Killed
from tests.guarantee.stage import Journal, Letters, Stage, Work
from tests.seeds import seeds

SEEDS = seeds(10)
EMITTED_AGAIN = "it may have been emitted again before the last death is detected"
POISON = 3


@dataclass
class Heavy:
    """A record that kills the process in which it is rebuilt if the value is POISON: see `heavy`.
    A process may have no memory for it, for example."""

    value: int


rebuilt = Counter[int]()


@pytest.fixture(autouse=True)
def heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    build = Schema.build

    def build_heavy(schema: Schema, rows: Iterable[Sequence[Any]]) -> list[Any]:
        rows = [*rows]
        for (value,) in rows if schema.type is Heavy else ():
            rebuilt[value] += 1
            if value == POISON:
                raise Killed
        return build(schema, rows)

    monkeypatch.setattr(Schema, "build", build_heavy)


class HeavyNumbers(Spout[Heavy]):
    """The numbers from 0 on."""

    def __init__(self, journal: Journal, total: int) -> None:
        self.journal, self.total = journal, total

    def records(self) -> Iterator[Heavy]:
        yield from map(Heavy, range(self.total))

    def ack(self, message_id: int) -> None:
        self.journal.acked_s[message_id].append(self.journal.now())


class StoreHeavy(Bolt[Heavy, None]):
    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def process(self, record: Heavy) -> None:
        self.journal.stored[record.value] += 1


class Decoding(Stage):
    """A stage whose records are rebuilt in the process that receives them."""

    def declare(self, topology: Topology, work: Work, spout: dict[str, Any]) -> None:
        numbers = topology.spout("numbers", HeavyNumbers(self.journal, self.total), **spout)
        numbers.shuffle().bolt("store", StoreHeavy(self.journal))
        if spout["retry"].dead_letters:
            letters = numbers.stream("dead_letters").shuffle()
            letters.bolt("letters", Letters(self.journal))


@SEEDS
@pytest.mark.parametrize("attempts", [2, 4])
def test_record_whose_rebuilding_kills_the_process_is_a_dead_letter_after_its_attempts(
    seed: int, attempts: int
) -> None:
    rebuilt.clear()
    retry = Retry(attempts=attempts, dead_letters=True)
    journal = Decoding(seed=seed, spout={"retry": retry}).run()
    assert [letter.message_id for letter in journal.letters] == [POISON], "and no other record"
    (letter,) = journal.letters
    assert (letter.component, letter.cause) == ("store", Cause.ACTOR_DIED)
    assert letter.attempts in (attempts, attempts + 1), EMITTED_AGAIN
    assert rebuilt[POISON] in (attempts, attempts + 1), "each attempt has killed one process"


@SEEDS
def test_record_whose_rebuilding_kills_the_process_ends_the_topology_without_dead_letters(
    seed: int,
) -> None:
    rebuilt.clear()
    stage = Decoding(seed=seed, spout={"retry": Retry(attempts=2)})
    with pytest.raises(
        TopologyFailed, match=f"message {POISON} of spout 'numbers' failed [23] times"
    ):
        stage.run()
    assert rebuilt[POISON] in (2, 3), EMITTED_AGAIN
