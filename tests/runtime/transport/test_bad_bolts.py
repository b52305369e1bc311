"""Mistakes in bolts, one by one, and the stated outcome of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from sunshower import Bolt, Cause, Collector, OnStream, Records, Spout, Topology, Tuple
from sunshower.clock import ManualClock
from sunshower.config import Internals
from sunshower.errors import TopologyError, TopologyFailed, Unserialisable
from sunshower.runtime.inline import run_inline
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.transport.packets import encode_frame, first_bad
from tests.runtime.batches import STREAMS
from tests.runtime.network import Network
from tests.runtime.rig import ROOT, Rig, Word, records_of, sink
from tests.runtime.test_under_load import Watch


def rig(impl: Any, **out: Any) -> Rig:
    """The topology words ──▶ bolt ──▶ next."""
    topology = Topology("t", ackers=1)
    source = topology.spout("words", Records([Word("rain")], type=Word))
    source.shuffle().bolt("bolt", impl, **out).shuffle().bolt("next", sink)
    return Rig(topology)


def failure_of(here: Rig, *words: str) -> tuple[str, set[int]]:
    """The reason why the last of `words` fails in the bolt, and the slots that are acked."""
    batch = here.batch("words", [Word(word) for word in words])
    here.bolt("bolt").process(batch)
    reported = here.reports()
    assert set(reported.fails) == {ROOT + len(words) - 1}
    ((failure,),) = reported.fails.values()
    assert failure.cause is Cause.EXCEPTION
    assert (failure.component, failure.task) == ("bolt", 0)
    return failure.reason, {root - ROOT for root in reported.acks}


# ---- ack and fail -------------------------------------------------------------------------------


class Settles(Bolt[Word, Word]):
    """Does what the word says, letter by letter: (a)ck, (f)ail, (e)mit anchored."""

    def execute(self, tuple: Tuple[Word], out: Collector[Word]) -> None:
        for letter in tuple.record.word:
            match letter:
                case "a":
                    out.ack(tuple)
                case "f":
                    out.fail(tuple, "letter f")
                case "e":
                    out.emit(tuple.record, tuple)


@pytest.mark.parametrize("word", ["aa", "af", "ae"])
def test_ack_then_ack_fail_or_emit(word: str) -> None:
    """The second call raises AlreadySettled, which fails the tuple; its ack does not count."""
    reason, acked = failure_of(rig(Settles, fields=Word), "a", word)
    assert reason.startswith("sunshower.errors.AlreadySettled: ")
    assert "in bolt[0]: it was acked before" in reason
    assert acked == {0}


@pytest.mark.parametrize("word", ["ff", "fa", "fe"])
def test_fail_then_ack_fail_or_emit(word: str) -> None:
    """AlreadySettled again, but the tuple has failed with the reason of the first call."""
    here = rig(Settles, fields=Word)
    here.bolt("bolt").process(here.batch("words", [Word(word)]))
    reported = here.reports()
    assert [failure.reason for failure in reported.fails[ROOT]] == ["letter f"]
    assert not reported.acks
    assert not here.sent("next"), "nothing is anchored to a tuple that has failed"


class Forgets(Bolt[Word, None]):
    """Neither acks nor fails."""

    def execute(self, tuple: Tuple[Word], out: Collector[Any]) -> None: ...


def test_neither_ack_nor_fail() -> None:
    """Each timeout counts as an attempt; after attempts_max of them the topology ends."""
    clock = ManualClock()

    class Source(Spout[Word]):
        def records(self) -> Iterator[Word | None]:
            yield Word("rain")
            while True:
                clock.advance(1.0)
                yield None

    topology = Topology("t", ackers=1, message_timeout_s=10, attempts_max=3)
    topology.spout("words", Source).shuffle().bolt("bolt", Forgets)
    story = r"message 0 of spout 'words' failed 3 times, the last time timeout: no verdict"
    with pytest.raises(TopologyFailed, match=story):
        run_inline(topology.graph(), clock=clock, steps_max=10_000)
    assert 30.0 <= clock.now() < 36.0


# ---- return instead of yield --------------------------------------------------------------------


@dataclass
class Place:
    name: str


def returns(what: Any) -> Any:
    """A function that is annotated to yield, and returns `what` for the word "bad"."""

    def bolt(word: Word) -> Iterator[Any]:
        return what if word.word == "bad" else iter([word])

    return bolt


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        (Word("rain"), "Word"),
        ("rain", "str"),
        ("", "str"),
        (b"rain", "bytes"),
        ({"word": "rain"}, "dict"),
        ({}, "dict"),
        (7, "int"),
        (Place("here"), "Place"),
        (OnStream("default", Word("rain")), "OnStream"),
    ],
)
def test_record_that_is_returned_and_not_yielded(what: Any, kind: str) -> None:
    """Its tuple fails with this reason: a NamedTuple or a str is not iterated."""
    here = rig(returns(what), fields=Word)
    reason, acked = failure_of(here, "good", "fine", "bad")
    assert f"BadEmit: returned a {kind} (" in reason
    assert "yield it, or return a list of records" in reason
    assert records_of(here.sent("next")) == [Word("good"), Word("fine")]
    assert acked == {0, 1}


def test_plain_tuple_that_is_returned_and_not_yielded() -> None:
    """The same, where records are plain tuples; a tuple of records is accepted like a list."""

    def pair(word: Word) -> Iterator[tuple[str, int]]:
        row: Any = (word.word, 1)
        return row if word.word == "bad" else (row, row)  # type: ignore[return-value]

    here = rig(pair, fields=("word", "times"))
    reason, acked = failure_of(here, "good", "bad")
    assert "returned a tuple (('bad', 1)); yield it" in reason
    assert records_of(here.sent("next")) == [("good", 1)] * 2
    assert acked == {0}


@pytest.mark.parametrize("many", [list, tuple, iter, set])
def test_several_records_that_are_returned(many: Any) -> None:
    """A list, a tuple, an iterator or a set of records is accepted as if they were yielded."""
    here = rig(lambda word: many([word, Word("and")]), fields=Word)
    here.bolt("bolt").process(here.batch("words", [Word("rain")]))
    assert sorted(records_of(here.sent("next"))) == [Word("and"), Word("rain")]


def test_record_that_a_sink_returns() -> None:
    """Its tuple fails, because there is nowhere to send the record."""
    topology = Topology("t", ackers=1)
    source = topology.spout("words", Records([Word("rain")], type=Word))
    source.shuffle().bolt("bolt", lambda word: word.word == "bad" and word, fields=())
    reason, acked = failure_of(Rig(topology), "good", "bad")
    assert "returned a Word" in reason
    assert acked == {0}


def test_execute_that_yields() -> None:
    """Refused at the declaration: it would return a generator that is never run."""

    class Yields(Bolt[Word, Word]):
        def execute(self, tuple: Tuple[Word], out: Collector[Word]) -> Any:
            yield tuple.record

    with pytest.raises(TopologyError, match=r"Yields.execute is a generator.*out.emit"):
        rig(Yields)


# ---- an input that is changed -------------------------------------------------------------------


@dataclass
class Basket:
    owner: str
    fruits: list[str] = field(default_factory=list)


def eats(basket: Basket) -> None:
    if basket.fruits:
        basket.fruits.pop()


class Keeps(Bolt[Basket, None]):
    def execute(self, tuple: Tuple[Basket], out: Collector[Any]) -> None:
        tuple.record.owner = "me"
        out.ack(tuple)


def baskets(impl: Any, **settings: Any) -> Topology:
    topology = Topology("t", ackers=1, **settings)
    values = [Basket("you"), Basket("him", ["plum", "fig"])]
    source = topology.spout("baskets", Records(values, type=Basket))
    source.shuffle().bolt("bolt", impl, fields=())
    return topology


@pytest.mark.parametrize("impl", [eats, Keeps])
def test_input_that_is_changed_with_check_mutation(impl: Any) -> None:
    """The topology ends; the error names the bolt, and the record before and after."""
    with pytest.raises(TopologyFailed, match=r"bolt\[0\] changed a record") as caught:
        run_inline(baskets(impl, check_mutation=True).graph())
    assert "Basket(owner=" in str(caught.value)
    assert " to Basket(owner=" in str(caught.value)


def test_input_that_is_changed_without_check_mutation() -> None:
    """No error: later receivers, and replays, get the changed record."""
    seen = []

    def eats_and_breaks(basket: Basket) -> None:
        seen.append(list(basket.fruits))
        eats(basket)
        if basket.fruits:
            raise ValueError("more to eat")

    run_inline(baskets(eats_and_breaks).graph())
    assert seen == [[], ["plum", "fig"], ["plum"]], "the replay carries the changed record"


def test_input_that_is_not_changed_passes_the_check() -> None:
    """Whatever it contains; a record that cannot be pickled is not checked."""
    seen = []
    run_inline(baskets(seen.append, check_mutation=True).graph())
    assert len(seen) == 2
    topology = Topology("t", ackers=1, check_mutation=True)
    unpicklable: Any = lambda: 0  # noqa: E731
    source = topology.spout("words", Records([Word(unpicklable)], type=Word))
    source.shuffle().bolt("bolt", seen.append, fields=())
    run_inline(topology.graph())
    assert len(seen) == 3


# ---- a record that is too large -----------------------------------------------------------------


def test_record_that_is_too_large_is_refused_with_size_and_limit() -> None:
    """Unserialisable has the size and the limit; `first_bad` finds the record."""
    batch = Batch(4, 1, [("small", 1), ("x" * 1_000, 2)], *[np.arange(1, 3, dtype=np.uint64)] * 2)
    with pytest.raises(Unserialisable, match=r"is 1,00\d bytes on the wire, more than .* 500"):
        encode_frame(3, 1, batch, STREAMS[4], 500)
    assert first_bad(batch, STREAMS[4], 500) == 1


class Grows(Bolt[Word, Word]):
    """Turns `b60000` into 60,000 times `b`."""

    def process(self, record: Word) -> Iterator[Word]:
        yield Word(record.word[0] * int(record.word[1:]))


def growing(watch: Watch, layout: Layout, *words: str) -> Network:
    class Source(Records[Word]):
        def fail(self, message_id: Any, failure: Any) -> None:
            watch.failures.append(failure)

    class Counts(Bolt[Word, None]):
        def process(self, record: Word) -> None:
            watch.done += 1

    topology = Topology(
        "t",
        workers=2,
        ackers=1,
        internals=Internals(packet_bytes_max=2_000),
        record_bytes_max=50_000,
        attempts_max=2,
    )
    source = topology.spout("words", Source(list(map(Word, words)), type=Word))
    source.shuffle().bolt("grows", Grows).shuffle().bolt("counts", Counts, parallelism=2)
    return Network(make_plan(topology.graph(), layout))


def test_record_that_is_too_large_to_travel() -> None:
    """Its tuple fails at the bolt that emitted it, and after its attempts the topology ends."""
    watch = Watch()
    net = growing(watch, Layout.ISOLATE, *["a10"] * 50, "b60000", *["c10"] * 50)
    story = r"(?s)message 50 of spout 'words' failed 2 times.*60,00\d bytes on the wire.*50,000"
    with pytest.raises(TopologyFailed, match=story):
        net.run()
    assert "(the record: Word(word='bbb" in watch.failures[0].reason
    assert (watch.failures[0].component, watch.failures[0].cause) == ("grows", Cause.EXCEPTION)


@pytest.mark.parametrize("layout", Layout)
def test_record_larger_than_a_packet_but_not_too_large(layout: Layout) -> None:
    """It travels, in a packet of its own."""
    watch = Watch()
    growing(watch, layout, *["a10"] * 50, "b45000", *["c10"] * 50, "d45000").run()
    assert (watch.done, watch.failures) == (102, [])


def test_record_of_any_size_within_a_worker() -> None:
    """The limit is for records that go to another worker."""
    topology = Topology("t", ackers=1, record_bytes_max=100)
    source = topology.spout("words", Records([Word("a100000")], type=Word))
    source.shuffle().bolt("grows", Grows).shuffle().bolt("next", sink, fields=())
    assert run_inline(topology.graph()).snapshot.component("words").acked == 1
