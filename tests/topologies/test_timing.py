"""Timeouts and ticks of components, and the values that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from sunshower import BatchBolt, Bolt, Derived, Spout
from sunshower.errors import ConfigError, TopologyError
from sunshower.topologies.describe import as_text
from tests.topologies.conftest import refused
from tests.topologies.examples import Count, Total, Word, count, words


class TickingSpout(Spout[Word]):
    def records(self) -> Iterator[Word]:
        yield Word("rain")

    def tick(self) -> None: ...


class TickingBolt(Bolt[Word, Total]):
    def process(self, record: Word) -> Iterator[Total]:
        yield Total(record.word, 1)

    def tick(self) -> Iterator[Total]:
        yield Total("tick", 0)


class TickingRows(BatchBolt[Word, Word]):
    def process(self, table: pa.Table) -> Derived | None:
        return None

    def tick(self) -> None: ...


def test_spout_has_the_timeout_of_its_topology_or_its_own(topology: Any) -> None:
    topology.spout("words", words(), message_timeout_s=2.5)
    topology.spout("others", words())
    graph = topology.graph()
    timeouts = {s.id: graph.config_of(s).message_timeout_s for s in graph.spouts}
    assert timeouts == {"words": 2.5, "others": 30.0}


def test_a_timeout_of_a_spout_beyond_the_maximum_is_refused(topology: Any) -> None:
    topology.config = replace(topology.config, message_timeout_max_s=60)
    refused(
        ConfigError,
        lambda: topology.spout("words", words(), message_timeout_s=90),
        "spout 'words'",
        "message_timeout_max_s is 60",
        "90",
    )
    topology.spout("words", words(), message_timeout_s=50)
    graph = topology.graph()
    with pytest.raises(ConfigError, match=r"spout 'words': message_timeout_max_s is 40"):
        replace(graph, config=replace(graph.config, message_timeout_max_s=40))


@pytest.mark.parametrize("impl", [TickingBolt, TickingBolt(), TickingRows])
def test_a_bolt_can_have_a_tick(lines: Any, impl: Any) -> None:
    lines.shuffle().bolt("ticks", impl, tick_s=0.25)
    assert lines.topology.component("ticks").tick_s == 0.25


def test_a_spout_can_have_a_tick(topology: Any) -> None:
    topology.spout("words", TickingSpout, tick_s=2)
    assert topology.component("words").tick_s == 2
    assert "words  × 1  spout: records(), a tick every 2 s" in as_text(topology.graph())


@pytest.mark.parametrize("seconds", [0, -1, "5", float("inf"), float("nan"), True])
def test_a_time_that_is_no_duration_is_refused(topology: Any, lines: Any, seconds: Any) -> None:
    refused(
        TopologyError,
        lambda: topology.spout("more", words(), message_timeout_s=seconds),
        *("'more'", f"message_timeout_s is {seconds!r}", "above 0"),
    )
    ticking = lines.shuffle()
    refused(
        TopologyError,
        lambda: ticking.bolt("ticks", TickingBolt, tick_s=seconds),
        *("'ticks'", f"tick_s is {seconds!r}"),
    )


@pytest.mark.parametrize(
    ("impl", "settings", "texts"),
    [
        (count, {"tick_s": 1}, ["a function has none", "tick()"]),
        (Count, {"tick_s": 1}, ["Count has no tick"]),
        (words(), {"tick_s": 1}, ["no tick"]),
        (TickingBolt, {}, ["nothing says how often", "tick_s"]),
        (TickingRows(), {}, ["nothing says how often", "tick_s"]),
    ],
)
def test_ticks_and_their_intervals_belong_together(
    topology: Any, lines: Any, impl: Any, settings: Any, texts: list[str]
) -> None:
    declare = topology.spout if isinstance(impl, Spout) else lines.shuffle().bolt
    refused(TopologyError, lambda: declare("it", impl, **settings), "'it'", *texts)
