"""Correct declarations: the frozen graph, and its description."""

from __future__ import annotations

import pickle
import runpy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sunshower import Bolt, Config, Derived, DirectStream, OnStream, Records, Topology, batch
from sunshower.records import Schema
from sunshower.topologies import groupings
from sunshower.topologies.describe import as_mermaid, as_text
from sunshower.topologies.graph import Graph, Level, StreamSpec, Subscription
from tests.topologies.examples import Count, Everything, Manual, Order, Total, Word, count, words

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_graph_holds_what_was_declared() -> None:
    topology = Topology("clicks", ackers=3, config=Config(workers=4, ackers=1))
    lines = topology.spout("words", words(), parallelism=2)
    lines.fields("word").bolt("count", Count, parallelism=3)
    graph = topology.graph()
    assert (graph.id, graph.config) == ("clicks", Config(workers=4, ackers=3))
    spout, bolt = graph.components.values()
    assert (spout.id, spout.level, spout.parallelism) == ("words", Level.RECORDS, 2)
    assert (bolt.id, bolt.level, bolt.parallelism) == ("count", Level.PROCESS, 3)
    assert spout.streams == {"default": StreamSpec("default", Schema.of(Word))}
    assert bolt.streams == {"default": StreamSpec("default", Schema.of(Total))}
    assert bolt.inputs == (Subscription("words", "default", groupings.Fields(("word",))),)


def test_graph_is_frozen_and_can_be_pickled() -> None:
    topology = Topology("clicks")
    lines = topology.spout("words", words())
    graph = topology.graph()
    lines.shuffle().bolt("count", count)
    assert list(graph.components) == ["words"]
    assert list(pickle.loads(pickle.dumps(topology.graph())).components) == ["words", "count"]


class Reads(Bolt[Any, None]):
    """Keeps the fields of its inputs."""

    def __init__(self) -> None:
        self.fields: list[tuple[str, ...]] = []

    def check_input(self, schema: Schema) -> None:
        self.fields.append(schema.fields)

    def process(self, record: Any) -> None: ...


def test_each_declaration_of_a_bolt_has_an_instance_with_its_own_inputs() -> None:
    bolt, read_fields = Reads(), []
    for names in (("word", "count"), ("word", "weight")):
        topology = Topology("clicks")
        first, other = (
            topology.spout(id, Records([("a", 1)]), fields=fields)
            for id, fields in (("one", names), ("other", ("id",)))
        )
        first.shuffle().bolt("read", bolt)
        other.shuffle().into("read")
        read_fields.append(topology.graph().components["read"].instance().fields)
    assert read_fields == [[("word", "count"), ("id",)], [("word", "weight"), ("id",)]]
    assert bolt.fields == []


class ToFirst:
    def prepare(self, targets: Sequence[int]) -> None:
        self.first = targets[:1]

    def choose(self, record: Any) -> Sequence[int]:
        return self.first


@pytest.mark.parametrize(
    ("word", "description"),
    [
        ("shuffle", "shuffle"),
        ("all", "all"),
        ("global_", "global"),
        ("none", "none"),
        ("local_or_shuffle", "local_or_shuffle"),
        ("fields", "fields(word)"),
        ("partial_key", "partial_key(word)"),
        ("custom", "custom(ToFirst)"),
        ("direct", "direct"),
    ],
)
def test_every_grouping_has_a_description(word: str, description: str) -> None:
    topology = Topology("clicks")
    lines = topology.spout("words", words(), streams={"to": DirectStream(Word)})
    if word == "direct":
        lines = lines.stream("to", Word)
    arguments: dict[str, list[Any]] = {
        "fields": ["word"],
        "partial_key": ["word"],
        "custom": [ToFirst()],
    }
    getattr(lines, word)(*arguments.get(word, [])).bolt("count", Count)
    (subscription,) = topology.graph().components["count"].inputs
    assert groupings.describe(subscription.grouping) == description


def test_streams_come_from_the_class_and_from_the_argument() -> None:
    class Sorter(Bolt[Word, Word]):
        streams: ClassVar = {"long": Word}

        def process(self, record: Word) -> Iterator[Word | OnStream]:
            yield OnStream("long", record) if len(record.word) > 9 else record

    topology = Topology("clicks")
    bolt = (
        topology.spout("words", words())
        .shuffle()
        .bolt("sort", Sorter, streams={"pairs": ("word", "times"), "to": DirectStream(Order)})
    )
    bolt.stream("pairs").fields("times").bolt("pairs", Everything)
    assert topology.graph().components["sort"].streams == {
        "default": StreamSpec("default", Schema.of(Word)),
        "long": StreamSpec("long", Schema.of(Word)),
        "pairs": StreamSpec("pairs", Schema(("word", "times"))),
        "to": StreamSpec("to", Schema.of(Order), direct=True),
    }


def test_fields_declare_what_annotations_do_not() -> None:
    def pairs(word: Word) -> Iterator[tuple[str, int]]:
        yield word.word, 1

    @batch
    def columns(table: Any) -> Derived | None: ...

    topology = Topology("clicks")
    lines = topology.spout("words", Records([("rain",)], fields=("word",)))
    topology.spout("other", Records([("rain",)]), fields=["word"])
    typed = topology.spout("typed", words()).shuffle()
    typed.bolt("pairs", pairs, fields=("word", "times"))
    lines.shuffle().bolt("lambda", lambda word: [word * 2], fields=("first", "second"))
    lines.shuffle().bolt("columns", columns, fields=Word)
    lines.shuffle().bolt("swallow", columns, fields=())
    lines.shuffle().bolt("manual", Everything)
    typed.bolt("direct", Manual, fields=DirectStream(Total))
    specs = {c.id: c.streams.get("default") for c in topology.graph().components.values()}
    assert {id: spec and (spec.schema.name, spec.direct) for id, spec in specs.items()} == {
        "words": ("(word)", False),
        "other": ("(word)", False),
        "typed": ("Word(word)", False),
        "pairs": ("(word, times)", False),
        "lambda": ("(first, second)", False),
        "columns": ("Word(word)", False),
        "swallow": None,
        "manual": None,
        "direct": ("Total(word, times)", True),
    }


def test_an_instance_can_declare_what_its_class_does_not() -> None:
    class Keep(Bolt[Any, Any]):
        def __init__(self, kind: type[Any]) -> None:
            self.emits = kind

        def process(self, record: Any) -> Iterator[Any]:
            yield record

    topology = Topology("clicks")
    stream = topology.spout("words", words()).shuffle().bolt("keep", Keep(Word))
    assert stream.spec.schema == Schema.of(Word)


def test_bolt_reads_several_streams() -> None:
    def join(record: Word | Order) -> None: ...

    topology = Topology("clicks")
    lines = topology.spout("words", words())
    orders = topology.spout("orders", Records([Order(1, 2.5)], type=Order))
    topology.bolt("join", join, inputs=[lines.fields("word"), orders.fields("id")])
    assert [i.source for i in topology.graph().components["join"].inputs] == ["words", "orders"]


def test_cycle_closes_with_into() -> None:
    topology = Topology("clicks")
    lines = topology.spout("words", words())
    retried = lines.shuffle().bolt("try", count, streams={"again": Word})
    retried.stream("again").shuffle().into("try")
    graph = topology.graph()
    assert graph.downstream("words") == {"try"}
    assert graph.downstream("try") == {"try"}


# ---- descriptions -------------------------------------------------------------------------------


@pytest.fixture
def graph() -> Graph:
    topology = Topology("clicks", message_timeout_s=10)
    lines = topology.spout("words", words(), streams={"to": DirectStream(("word", "task"))})
    totals = lines.fields("word").bolt("count", count, parallelism=12)
    sink = topology.bolt("sink", Everything, inputs=[totals.all(), lines.stream("to").direct()])
    assert sink.component == "sink"
    return topology.graph()


def test_text_shows_every_component_stream_and_grouping(graph: Graph) -> None:
    assert (
        as_text(graph)
        == """\
topology clicks: an acker for each worker, timeout: 10 s

words  × 1  spout: records()
       → Word(word)
       → to: (word, task) direct

count  × 12  bolt: a function of a record
       ← words fields(word)
       → Total(word, times)

sink   × 1  bolt: process(record)
       ← count all
       ← words to: direct"""
    )


def test_mermaid_draws_the_same(graph: Graph) -> None:
    assert (
        as_mermaid(graph)
        == """\
flowchart LR
    c0(["words × 1"])
    c1["count × 12"]
    c2["sink × 1"]
    c0 -->|"fields(word)"| c1
    c1 -->|"all"| c2
    c0 -->|"to: direct"| c2"""
    )


def test_text_shows_that_a_topology_is_untracked() -> None:
    topology = Topology("clicks", ackers=0)
    topology.spout("words", words())
    assert as_text(topology.graph()).startswith("topology clicks: untracked\n")


def test_mermaid_escapes_quotes() -> None:
    topology = Topology("clicks")
    topology.spout("words", words(), fields=None, streams={"odd": ('say "hi"',)}).stream(
        "odd"
    ).fields('say "hi"').bolt("sink", Everything)
    assert '|"odd: fields(say #quot;hi#quot;)"|' in as_mermaid(topology.graph())


def test_example_declares_a_word_count() -> None:
    topology = runpy.run_path(str(EXAMPLES / "word_count.py"))["topology"]
    assert list(topology.graph().components) == ["lines", "split", "count", "store"]
