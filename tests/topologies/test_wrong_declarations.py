"""A wrong declaration raises an error with the place, the mistake and the correction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from sunshower import Config, Counter, Spout
from sunshower.errors import (
    ConfigError,
    DuplicateComponent,
    RecordMismatch,
    TopologyError,
    UnknownComponent,
    UnknownField,
    UnknownStream,
)
from tests.topologies.conftest import Topology, refused
from tests.topologies.examples import Count, Everything, Manual, Total, Word, count, words


@pytest.mark.parametrize("id", ["", "two words", "a/b", "ü", 7, None])
def test_invalid_id_is_refused(topology: Any, id: Any) -> None:
    refused(TopologyError, lambda: topology.spout(id, words()), repr(id), "letters, digits")


@pytest.mark.parametrize("parallelism", [0, -1, 1.5, "2", True])
def test_parallelism_below_one_or_no_number_is_refused(topology: Any, parallelism: Any) -> None:
    refused(
        TopologyError,
        lambda: topology.spout("words", words(), parallelism=parallelism),
        "'words'",
        repr(parallelism),
        "at least 1",
    )


@pytest.mark.parametrize("columns", ["word", (), ("a", "a"), (1, 2)])
def test_stream_fields_that_are_no_names_are_refused(topology: Any, columns: Any) -> None:
    refused(
        TopologyError,
        lambda: topology.spout("words", words(), streams={"late": columns}),
        "'words'",
        "'late'",
        repr(columns),
        '("word", "count")',
    )


@pytest.mark.parametrize("grouping", ["fields", "partial_key"])
def test_grouping_by_a_field_that_does_not_exist_is_refused(lines: Any, grouping: str) -> None:
    refused(
        UnknownField,
        lambda: getattr(lines, grouping)("wrod"),
        "'clicks'",
        "'words'",
        "'default'",
        "'wrod'",
        "its fields are: word",
    )


@pytest.mark.parametrize("grouping", ["fields", "partial_key"])
def test_grouping_by_no_field_is_refused(lines: Any, grouping: str) -> None:
    refused(TopologyError, getattr(lines, grouping), "'words'", grouping, "one of: word")


@pytest.mark.parametrize("reader", [count, Count, Count(), Manual])
def test_bolt_that_reads_another_record_type_is_refused(topology: Any, reader: Any) -> None:
    numbers = topology.spout("numbers", Counter(5))
    refused(
        RecordMismatch,
        lambda: numbers.shuffle().bolt("count", reader),
        "'count'",
        "Word",
        "'default' of 'numbers'",
        "Number(value)",
    )


def test_a_refused_bolt_is_not_in_the_topology(topology: Any, lines: Any) -> None:
    with pytest.raises(TopologyError):
        topology.bolt("count", count, inputs=[lines])
    assert list(topology.graph().components) == ["words"]


def test_bolt_without_a_path_from_a_spout_is_refused(topology: Any, lines: Any) -> None:
    topology.bolt("dry", count)
    ring = topology.bolt("ring", Everything, fields=None, streams={"again": Word})
    ring.stream("again").shuffle().into("ring")
    refused(TopologyError, topology.graph, "'clicks'", "'dry', 'ring'", "into")


class Twice(Spout[Word]):
    streams: ClassVar = {"late": Word}

    def records(self) -> Iterator[Word]:
        yield Word("rain")


def reads_pairs(pair: tuple[str, int]) -> None: ...


REFUSED: dict[str, tuple[Any, Any, list[str]]] = {
    "input of a component that does not exist": (
        UnknownComponent,
        lambda lines: lines.all().into("cuont"),
        ["'clicks'", "'cuont'", "its components are: words"],
    ),
    "default stream of a sink": (
        UnknownStream,
        lambda lines: lines.shuffle().bolt("sink", Everything).shuffle(),
        ["'default'", "'sink'", "none"],
    ),
    "stream declared twice": (
        DuplicateComponent,
        lambda lines: lines.topology.spout("more", Twice, streams={"late": Word}),
        ["'more'", "'late'", "once"],
    ),
    "default stream among the further ones": (
        DuplicateComponent,
        lambda lines: lines.topology.spout("more", words(), streams={"default": Word}),
        ["'default'", "fields="],
    ),
    "input of another topology": (
        TopologyError,
        lambda lines: Topology("other").bolt("count", count, inputs=[lines.shuffle()]),
        ["'other'", "'count'", "'words'", "'clicks'"],
    ),
    "input of a spout": (
        TopologyError,
        lambda lines: lines.shuffle().into("words"),
        ["'words'", "is a spout"],
    ),
    "plain tuples of another width": (
        RecordMismatch,
        lambda lines: lines.shuffle().bolt("pairs", reads_pairs),
        ["'pairs'", "tuple[str, int]", "Word(word)"],
    ),
    "id that is taken": (
        DuplicateComponent,
        lambda lines: lines.shuffle().bolt("words", count),
        ["'clicks'", "'words'", "The ids in use are: words"],
    ),
    "id that is reserved": (
        DuplicateComponent,
        lambda lines: lines.topology.spout("__acker", words()),
        ["'__acker'", "reserved", "'acker'"],
    ),
    "invalid topology id": (
        TopologyError,
        lambda _: Topology("my topology"),
        ["'my topology'", "letters, digits"],
    ),
    "setting that does not exist": (
        ConfigError,
        lambda _: Topology("t", acker=2),
        ["'t'", "acker", "message_timeout_s"],
    ),
    "setting that is no number": (
        ConfigError,
        lambda _: Topology("t", workers="two"),
        ["'t'", "workers", "'two'", "number"],
    ),
    "setting out of range": (
        ConfigError,
        lambda _: Topology("t", config=Config(workers=3), message_timeout_s=0),
        ["message_timeout_s", "above 0"],
    ),
    "stream that its component does not have": (
        UnknownStream,
        lambda lines: lines.stream("lat"),
        ["'clicks'", "'lat'", "'words'", "default, late, to"],
    ),
    "stream read as another record type": (
        RecordMismatch,
        lambda lines: lines.stream("late", Total),
        ["'late'", "Word(word)", "Total"],
    ),
    "stream id that is reserved": (
        DuplicateComponent,
        lambda lines: lines.topology.spout("more", words(), streams={"__ack": Word}),
        ["'more'", "'__ack'", "reserved"],
    ),
    "stream type that is no record type": (
        RecordMismatch,
        lambda lines: lines.topology.spout("more", words(), streams={"late": int}),
        ["'more'", "'late'", "int", "NamedTuple"],
    ),
    # Storm: Task.java:160
    "direct grouping of a regular stream": (
        TopologyError,
        lambda lines: lines.direct(),
        ["'default' of 'words'", "DirectStream"],
    ),
    # Storm: Task.java:124
    "regular grouping of a direct stream": (
        TopologyError,
        lambda lines: lines.stream("to").shuffle(),
        ["'to' of 'words'", ".direct()", "shuffle"],
    ),
    "custom grouping without its methods": (
        TopologyError,
        lambda lines: lines.custom(object()),
        ["'words'", "custom(object)", "choose"],
    ),
    "input without a grouping": (
        TopologyError,
        lambda lines: lines.topology.bolt("count", count, inputs=[lines]),
        ["'count'", "Stream", "stream.shuffle()"],
    ),
    "stream read twice by one bolt": (
        TopologyError,
        lambda lines: lines.topology.bolt("count", count, inputs=[lines.shuffle(), lines.all()]),
        ["'count'", "'default' of 'words'", "already"],
    ),
    "topology without a spout": (
        TopologyError,
        lambda _: Topology("clicks").graph(),
        ["'clicks'", "no spout"],
    ),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_a_wrong_declaration_is_refused(lines: Any, wrong: str) -> None:
    kind, declare, texts = REFUSED[wrong]
    refused(kind, lambda: declare(lines), *texts)
