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

# ---- ids ----------------------------------------------------------------------------------------


def test_component_that_does_not_exist_is_refused(topology: Any, lines: Any) -> None:
    lines.shuffle().bolt("count", count)
    refused(
        UnknownComponent,
        lambda: lines.stream("late").all().into("cuont"),
        "'clicks'",
        "'cuont'",
        "words, count",
    )


def test_id_that_is_taken_is_refused(topology: Any, lines: Any) -> None:
    refused(
        DuplicateComponent,
        lambda: lines.shuffle().bolt("words", count),
        "'clicks'",
        "'words'",
        "The ids in use are: words",
    )


def test_id_that_is_reserved_is_refused(topology: Any) -> None:
    refused(
        DuplicateComponent,
        lambda: topology.spout("__acker", words()),
        "'__acker'",
        "reserved",
        "'acker'",
    )


@pytest.mark.parametrize("id", ["", "two words", "a/b", "ü", 7, None])
def test_invalid_id_is_refused(topology: Any, id: Any) -> None:
    refused(TopologyError, lambda: topology.spout(id, words()), repr(id), "letters, digits")


def test_invalid_topology_id_is_refused() -> None:
    refused(TopologyError, lambda: Topology("my topology"), "'my topology'", "letters, digits")


@pytest.mark.parametrize("parallelism", [0, -1, 1.5, "2", True])
def test_parallelism_below_one_or_no_number_is_refused(topology: Any, parallelism: Any) -> None:
    refused(
        TopologyError,
        lambda: topology.spout("words", words(), parallelism=parallelism),
        "'words'",
        repr(parallelism),
        "at least 1",
    )


def test_setting_that_does_not_exist_is_refused() -> None:
    refused(ConfigError, lambda: Topology("t", acker=2), "'t'", "acker", "message_timeout_s")


def test_setting_that_is_no_number_is_refused() -> None:
    refused(ConfigError, lambda: Topology("t", workers="two"), "'t'", "workers", "'two'", "number")


def test_setting_out_of_range_is_refused() -> None:
    refused(
        ConfigError,
        lambda: Topology("t", config=Config(workers=3), message_timeout_s=0),
        "message_timeout_s",
        "above 0",
    )


# ---- streams and fields -------------------------------------------------------------------------


def test_stream_that_its_component_does_not_have_is_refused(lines: Any) -> None:
    refused(
        UnknownStream,
        lambda: lines.stream("lat"),
        "'clicks'",
        "'lat'",
        "'words'",
        "default, late, to",
    )


def test_default_stream_of_a_sink_is_refused(lines: Any) -> None:
    sink = lines.shuffle().bolt("sink", Everything)
    refused(UnknownStream, sink.shuffle, "'default'", "'sink'", "none")


def test_stream_read_as_another_record_type_is_refused(lines: Any) -> None:
    refused(RecordMismatch, lambda: lines.stream("late", Total), "'late'", "Word(word)", "Total")


def test_stream_declared_twice_is_refused(topology: Any) -> None:
    class Twice(Spout[Word]):
        streams: ClassVar = {"late": Word}

        def records(self) -> Iterator[Word]:
            yield Word("rain")

    refused(
        DuplicateComponent,
        lambda: topology.spout("words", Twice, streams={"late": Word}),
        "'words'",
        "'late'",
        "once",
    )
    refused(
        DuplicateComponent,
        lambda: topology.spout("words", words(), streams={"default": Word}),
        "'default'",
        "fields=",
    )


def test_stream_id_that_is_reserved_is_refused(topology: Any) -> None:
    refused(
        DuplicateComponent,
        lambda: topology.spout("words", words(), streams={"__ack": Word}),
        "'words'",
        "'__ack'",
        "reserved",
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


def test_stream_type_that_is_no_record_type_is_refused(topology: Any) -> None:
    refused(
        RecordMismatch,
        lambda: topology.spout("words", words(), streams={"late": int}),
        "'words'",
        "'late'",
        "int",
        "NamedTuple",
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


def test_direct_grouping_of_a_regular_stream_is_refused(lines: Any) -> None:  # Storm: Task.java:160
    refused(TopologyError, lines.direct, "'default' of 'words'", "DirectStream")


def test_regular_grouping_of_a_direct_stream_is_refused(lines: Any) -> None:  # Storm: Task.java:124
    refused(TopologyError, lines.stream("to").shuffle, "'to' of 'words'", ".direct()", "shuffle")


def test_custom_grouping_without_its_methods_is_refused(lines: Any) -> None:
    refused(TopologyError, lambda: lines.custom(object()), "'words'", "custom(object)", "choose")


# ---- inputs -------------------------------------------------------------------------------------


def test_input_of_another_topology_is_refused(lines: Any) -> None:
    other = Topology("other")
    refused(
        TopologyError,
        lambda: other.bolt("count", count, inputs=[lines.shuffle()]),
        "'other'",
        "'count'",
        "'words'",
        "'clicks'",
    )


def test_input_without_a_grouping_is_refused(topology: Any, lines: Any) -> None:
    refused(
        TopologyError,
        lambda: topology.bolt("count", count, inputs=[lines]),
        "'count'",
        "Stream",
        "stream.shuffle()",
    )


def test_input_of_a_spout_is_refused(topology: Any, lines: Any) -> None:
    topology.spout("other", words())
    refused(TopologyError, lambda: lines.shuffle().into("other"), "'other'", "spout")


def test_stream_read_twice_by_one_bolt_is_refused(topology: Any, lines: Any) -> None:
    refused(
        TopologyError,
        lambda: topology.bolt("count", count, inputs=[lines.shuffle(), lines.all()]),
        "'count'",
        "'default' of 'words'",
        "already",
    )


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


def test_bolt_that_reads_plain_tuples_of_another_width_is_refused(
    topology: Any, lines: Any
) -> None:
    def pairs(pair: tuple[str, int]) -> None: ...

    refused(
        RecordMismatch,
        lambda: lines.shuffle().bolt("pairs", pairs),
        "'pairs'",
        "tuple[str, int]",
        "Word(word)",
    )


def test_a_refused_bolt_is_not_in_the_topology(topology: Any, lines: Any) -> None:
    with pytest.raises(TopologyError):
        topology.bolt("count", count, inputs=[lines])
    assert list(topology.graph().components) == ["words"]


# ---- the topology -------------------------------------------------------------------------------


def test_topology_without_a_spout_is_refused(topology: Any) -> None:
    refused(TopologyError, topology.graph, "'clicks'", "no spout")


def test_bolt_without_a_path_from_a_spout_is_refused(topology: Any, lines: Any) -> None:
    topology.bolt("dry", count)
    ring = topology.bolt("ring", Everything, fields=None, streams={"again": Word})
    ring.stream("again").shuffle().into("ring")
    refused(TopologyError, topology.graph, "'clicks'", "'dry', 'ring'", "into")
