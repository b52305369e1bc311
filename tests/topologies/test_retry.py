"""`retry=` of a spout: valid values, and the dead letters that it declares."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import Bolt, DeadLetter, Records, Retry, Spout, SpoutCollector, Topology
from sunshower.errors import ConfigError, DuplicateComponent, TopologyError


class Number(NamedTuple):
    n: int


def sink(record: Number) -> None: ...


def numbers() -> Records[Number]:
    return Records([Number(1)], type=Number)


def declare(retry: Any, **more: Any) -> Topology:
    topology = Topology("t")
    topology.spout("numbers", numbers(), retry=retry, **more).shuffle().bolt("sink", sink)
    return topology


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"attempts": 0}, "attempts is 0"),
        ({"attempts": 2.5}, "attempts is 2.5"),
        ({"attempts": True}, "attempts is True"),
        ({"initial_s": 0}, "it must be a number of seconds above 0"),
        ({"initial_s": 20}, "initial_s is 20 and max_s 10.0"),
        ({"max_s": float("inf")}, "max_s is inf"),
        ({"initial_s": float("nan")}, "initial_s is nan"),
        ({"factor": 0.5}, "factor is 0.5"),
        ({"factor": float("inf")}, "factor is inf"),
        ({"jitter": 1.5}, "jitter is 1.5"),
        ({"jitter": -0.1}, "jitter is -0.1"),
        ({"dead_letters": 7}, "dead_letters is 7"),
        ({"dead_letters": None}, "give False to halt"),
    ],
)
def test_an_invalid_retry_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Retry(**wrong)


def test_a_retry_without_dead_letters_adds_no_stream() -> None:
    for retry in (None, Retry(attempts=2)):
        graph = declare(retry).graph()
        assert set(graph.components["numbers"].streams) == {"default"}
        assert graph.components["numbers"].retry == retry


def test_dead_letters_without_a_reader_are_refused() -> None:
    with pytest.raises(TopologyError, match=r"no bolt reads the dead letters of spout 'numbers'.*"):
        declare(Retry(dead_letters=True)).graph()


def test_dead_letters_are_a_stream_of_the_spout() -> None:
    class ReadsLetters(Bolt[DeadLetter, None]):
        def process(self, record: DeadLetter) -> None: ...

    topology = declare(Retry(dead_letters=True))
    spout = topology.component("numbers")
    assert spout.streams["dead_letters"].schema.type is DeadLetter
    stream: Any = topology.spout("more", numbers(), retry=Retry(dead_letters=True))
    stream.stream("dead_letters", DeadLetter).shuffle().bolt("letters", ReadsLetters)
    with pytest.raises(TopologyError, match="'numbers'"):
        topology.graph()


def test_a_path_declares_the_bolt_that_reads_the_dead_letters(tmp_path: Path) -> None:
    for path in (tmp_path / "a.jsonl", str(tmp_path / "b.jsonl")):
        graph = declare(Retry(dead_letters=path)).graph()
        bolt = graph.components["numbers-dead-letters"]
        assert [(i.source, i.stream) for i in bolt.inputs] == [("numbers", "dead_letters")]


def test_path_that_cannot_be_written_is_refused_at_the_declaration() -> None:
    with pytest.raises(TopologyError, match="cannot be written"):
        declare(Retry(dead_letters="/no/such/folder/dead.jsonl"))


def test_spout_that_replays_by_itself_takes_no_retry() -> None:
    class Own(Spout[Number]):
        replay = False

        def next_tuple(self, out: SpoutCollector[Number]) -> None: ...

    with pytest.raises(TopologyError, match=r"spout 'own': it has replay = False"):
        Topology("t").spout("own", Own, retry=Retry())


def test_a_second_stream_called_dead_letters_is_refused() -> None:
    with pytest.raises(DuplicateComponent, match="'dead_letters'"):
        declare(Retry(dead_letters=True), streams={"dead_letters": Number})


def test_a_retry_of_another_type_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"retry is 5; give a Retry\(attempts=5"):
        declare(5)
