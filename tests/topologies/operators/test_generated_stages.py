"""The generated function of a stage does what its steps do one by one, for random chains of them.

Errors, sources and profiles name the functions of users."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import json
import linecache
import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import Context, Records, Retry, Topology, count, run_inline
from sunshower.clock import ManualClock
from sunshower.errors import TopologyFailed
from sunshower.records import Schema
from sunshower.runtime.profiles import StackFrame, TimePart, part_of
from sunshower.state import MemoryState
from sunshower.topologies.describe import as_code
from sunshower.topologies.operators import generated_stages
from sunshower.topologies.operators.compiled_stage import OperatorBolt
from sunshower.topologies.operators.generated_stages import (
    code_of_record,
    function_of_record,
    generated_steps,
)
from sunshower.topologies.operators.steps import EachRow, Filter, Map, RowOperator
from sunshower.trident import FixedBatchSpout, InMemory, Skip, batches
from tests.topologies.operators.kinds import Kept

CLOCK = ManualClock()
GENERATED = Context("words", "split", 0, 0, 1, clock=CLOCK)
ONE_BY_ONE = Context("words", "split", 0, 0, 1, clock=CLOCK, generated_stages=False)
WAYS = pytest.mark.parametrize("generated", [True, False], ids=["generated", "one by one"])


class Pair(NamedTuple):
    number: int
    name: str


class Strange(BaseException):
    """Neither an Exception nor one of Python's."""


# ---- random chains -------------------------------------------------------------------------------

Calls = list[tuple[int, Any]]  # what user functions were called with: step, row
ERRORS = (ValueError, Strange, StopIteration, KeyError, asyncio.CancelledError, GeneratorExit)
MISFITS = (None, 7, (1,), (1, "a", 2), "ab", [1, "a"], Pair(1, "a"), (1, "a"))


@dataclass
class Behaviour:
    """What user functions do: the same for equal numbers and rows."""

    seed: int
    calls: Calls = field(default_factory=list)
    endless: bool = False  # whether generators may never end
    trouble: int = 12  # percent of the calls that raise, and of the rows that do not fit

    def random(self, step: int, row: Any) -> Random:
        self.calls.append((step, row))
        return Random(repr((self.seed, step, row)))

    def row(self, random: Random, kind: Any, row: Any) -> Any:
        """A row of a type, or perhaps not."""
        if random.randrange(100) < self.trouble:
            return random.choice(MISFITS)
        values = (random.randrange(5), random.choice("ab"))
        return values if kind is tuple else kind(*values)

    def may_raise(self, random: Random) -> None:
        if random.randrange(100) < self.trouble:
            raise random.choice(ERRORS)("trouble")

    def map(self, step: int, kind: Any, row: Any) -> Any:
        random = self.random(step, row)
        self.may_raise(random)
        return self.row(random, kind, row)

    async def map_async(self, step: int, kind: Any, row: Any) -> Any:
        await asyncio.sleep(0)
        return self.map(step, kind, row)

    def test(self, step: int, row: Any) -> Any:
        random = self.random(step, row)
        self.may_raise(random)
        return random.choice([True, False, 1, "", [0], None])

    def each(self, step: int, kind: Any, row: Any) -> Iterator[Any]:
        random = self.random(step, row)
        rows = (
            repeat(None)
            if self.endless and random.random() < 0.3
            else range(random.choice((0, 1, 2, 4)))
        )
        for _ in rows:
            self.may_raise(random)
            yield self.row(random, kind, row)
        self.may_raise(random)

    def listed(self, step: int, kind: Any, row: Any) -> Any:
        random = Random(repr((step, row)))
        rows = islice(self.each(step, kind, row), 5)
        return random.choice([list, tuple, iter, lambda _: None, lambda _: 3])(rows)

    def state(self, step: int, kind: Any, row: Any, state: Any) -> Iterator[Any]:
        state.value = (state.value or 0) + 1
        yield from self.each(step, kind, (row, state.value))


COLUMNS = ("number", "name")
KINDS: Sequence[Any] = (tuple, Pair)
OPERATIONS = ("map", "each", "listed", "filter", "peek", "project", "branch", "async", "process")
Chain = list[tuple[str, int]]  # operations, and a number that chooses among their variants
CHAINS = st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 3)), max_size=8)
ROWS = [(number, "ab"[number % 2]) for number in range(12)]


def making(operation: str, step: int, kind: Any, b: Behaviour) -> Callable[..., Any]:
    """A function that makes rows of a type."""

    def each(row: Any) -> Iterator[Any]:
        yield from b.each(step, kind, row)

    async def call(row: Any) -> Any:
        return await b.map_async(step, kind, row)

    def process(row: Any, state: Any) -> Iterator[Any]:
        yield from b.state(step, kind, row, state)

    return {
        "map": lambda row: b.map(step, kind, row),
        "each": each,
        "listed": lambda row: b.listed(step, kind, row),
        "async": call,
        "process": process,
    }[operation]


def declared(stream: Any, chain: Chain, behaviour: Behaviour, *, in_batches: bool) -> Any:
    """What the operations of a chain make of a stream."""
    for step, (operation, variant) in enumerate(chain):
        kind, test = KINDS[variant % 2], functools.partial(behaviour.test, step)
        fields = {"fields": COLUMNS if kind is tuple else kind}
        if operation == "project":
            stream = stream.project(*(COLUMNS if variant < 2 else COLUMNS[::-1]))
        elif operation == "branch":
            stream = stream.branch(lambda row, t=test: t(row), lambda row: row[0] > 2)[variant % 3]
        elif operation in ("filter", "peek"):
            stream = getattr(stream, operation)(lambda row, t=test: t(row))
        else:
            function = making(operation, step, kind, behaviour)
            if operation == "process":
                settings = {"state": MemoryState()} if in_batches else {}
                stream = stream.group_by("name").process(
                    function, name=f"p{step}", **fields, **settings
                )
            elif operation in ("map", "async"):
                stream = stream.map(function, **fields)
            else:
                stream = stream.flat_map(function, **fields)
    return stream


def stage_bolts(chain: Chain, behaviour: Behaviour) -> list[OperatorBolt]:
    topology = Topology("t")
    source = topology.spout("source", Records(ROWS, fields=COLUMNS)).local_or_shuffle()
    rows = declared(source.stage("first"), chain, behaviour, in_batches=False)
    rows.shuffle().bolt("kept", Kept)
    components = topology.graph().components.values()
    return [
        component.instance()
        for component in components
        if isinstance(component.implementation, OperatorBolt)
    ]


def pulled(rows: Iterator[Any]) -> tuple[list[Any], str]:
    """Up to 30 rows, and the error that ended them."""
    outputs: list[Any] = []
    try:
        outputs.extend(islice(rows, 30))
    except BaseException as error:
        return outputs, repr(error)
    return outputs, ""


def expanded(bolt: OperatorBolt, context: Context) -> Any:
    """What a prepared bolt makes of each row by itself, and its state."""
    with patch.object(generated_stages._LOG, "warning", refused):
        bolt.prepare(context)
    try:
        if bolt.calls is not None:
            return [(rows, repr(error)) for rows, error in bolt.calls.run(bolt.expand, ROWS)]
        bolt.announce(ROWS)
        outputs = [pulled(iter_of(bolt.expand, row)) for row in ROWS]
        bolt.flush()
        return outputs, bolt.snapshot()
    finally:
        bolt.cleanup()


def iter_of(expand: Callable[[Any], Any], row: Any) -> Iterator[Any]:
    yield from expand(row)


@given(chain=CHAINS, seed=st.integers(0, 99))
def test_a_record_becomes_the_same_rows_errors_and_states(chain: Chain, seed: int) -> None:
    """With generators that never end."""
    outcomes = []
    for context in (GENERATED, ONE_BY_ONE):
        behaviour = Behaviour(seed, endless=not any(name == "async" for name, _ in chain))
        bolts = stage_bolts(chain, behaviour)
        outcomes.append(([expanded(bolt, context) for bolt in bolts], behaviour.calls))
    assert outcomes[0] == outcomes[1]


def refused(*about: Any) -> None:
    """Fail instead of running a stage that cannot be compiled one by one."""
    raise AssertionError(about)


def outcome(chain: Chain, seed: int, *, in_batches: bool, totals: bool, generated: bool) -> Any:
    """All that a run of a chain shows."""
    behaviour = Behaviour(seed, trouble=4)
    with TemporaryDirectory() as folder, patch.object(generated_stages._LOG, "warning", refused):
        topology = Topology("t", generated_stages=generated)
        letters = Path(folder) / "dead.jsonl"
        if in_batches:
            skip, spout = Skip(2, letters), FixedBatchSpout(ROWS, 3, fields=COLUMNS)
            stream: Any = batches(topology, "source", spout, store=InMemory(), skip=skip)
        else:
            retry = Retry(attempts=2, initial_s=0.01, dead_letters=letters)
            source = topology.spout("source", Records(ROWS, fields=COLUMNS), retry=retry)
            stream = source.local_or_shuffle().stage("first")
        rows = declared(stream, chain, behaviour, in_batches=in_batches)
        if totals:
            rows = rows.group_by("name").aggregate(
                count(), **({"state": MemoryState()} if in_batches else {})
            )
        rows = rows.records("out") if in_batches else rows
        rows.shuffle().bolt("kept", Kept)
        try:
            done = run_inline(topology.graph(), clock=ManualClock(), steps_max=20_000)
        except TopologyFailed as failed:  # every input has failed for long
            return str(failed).partition("\n")[0], behaviour.calls
        lines = [line for file in sorted(Path(folder).iterdir()) for line in file.open()]
        dead = [[json.loads(line)[name] for name in ("record", "reason")] for line in lines]
        causes = done.snapshot.component("source").causes
        return done.results, dead, causes, behaviour.calls


@pytest.mark.parametrize("in_batches", [False, True], ids=["stream", "batches"])
@given(chain=CHAINS, seed=st.integers(0, 99), totals=st.booleans())
def test_a_run_has_the_same_results_failures_and_calls(
    in_batches: bool, chain: Chain, seed: int, totals: bool
) -> None:
    runs = [
        outcome(chain, seed, in_batches=in_batches, totals=totals, generated=generated)
        for generated in (True, False)
    ]
    assert runs[0] == runs[1]


# ---- what users see ------------------------------------------------------------------------------

WORD = Schema(("word",))


def split(row: Any) -> Iterator[Any]:
    for word in row[0].split():
        yield (word,)


def shout(row: Any) -> Any:
    if row[0] == "b":
        raise ValueError("b is not a word")
    return (row[0].upper(),)


def rows_of(steps: Sequence[RowOperator], row: Any, *, generated: bool = True) -> list[Any]:
    return list(function_of_record(steps, GENERATED if generated else ONE_BY_ONE)(row))


def test_a_traceback_has_the_line_of_the_user_and_the_source_of_the_stage() -> None:
    with pytest.raises(ValueError, match="b is not a word") as raised:
        rows_of([EachRow(split, WORD), Map(shout, WORD)], ("a b",))
    *_, stage, user = traceback.extract_tb(raised.value.__traceback__)
    assert (user.name, user.line) == ("shout", 'raise ValueError("b is not a word")')
    assert stage.filename.startswith("<stage split ")
    assert stage.line is not None
    assert stage.line.startswith("row2 = shout_")
    linecache.checkcache()
    assert linecache.getline(stage.filename, 1) == "def stage(row0):\n"


def test_a_debugger_steps_from_the_stage_into_the_functions() -> None:
    entered: list[str] = []

    def trace(frame: Any, event: str, _: Any) -> Any:
        if event == "call":
            entered.append(frame.f_code.co_name)
        return trace

    run = function_of_record([EachRow(split, WORD), Map(shout, WORD)], GENERATED)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        rows = list(run(("a",)))
    finally:
        sys.settrace(before)
    assert rows == [("A",)]
    assert [name for name in entered if name in ("stage", "split", "shout")][:3] == [
        "stage",
        "split",
        "shout",
    ]


def test_samples_in_generated_code_belong_to_operators() -> None:
    run = function_of_record([EachRow(split, WORD), Map(shout, WORD)], GENERATED)
    task = StackFrame("split[0]", "<task>", 1)
    stage = StackFrame("stage", inspect.unwrap(run).__code__.co_filename, 1)
    assert part_of([task, stage]) is TimePart.OPERATORS
    assert part_of([task, stage, StackFrame("split", "words.py", 3)]) is TimePart.USER


@WAYS
def test_a_stop_iteration_of_a_function_does_not_end_the_records(generated: bool) -> None:
    def stop(row: Any) -> Any:
        raise StopIteration

    for step in (Map(stop, WORD), Filter(stop), EachRow(stop, WORD)):
        with pytest.raises(RuntimeError, match="generator raised StopIteration"):
            rows_of([step], ("a",), generated=generated)


class Shouter:
    """An object whose functions have the name of another one."""

    def __call__(self, row: Any) -> Any:
        return (row[0] + "c",)

    def shout(self, row: Any, *, mark: str = "!") -> Any:
        return (row[0] + mark,)


@WAYS
def test_functions_of_every_kind_and_with_equal_names(generated: bool) -> None:
    first, second = (lambda row, n=n: (row[0] + n,) for n in "12")
    strange: Any = lambda row: row  # noqa: E731
    strange.__name__ = 'no name\nimport os  # "'
    functions = [
        *(first, second, strange, Shouter(), Shouter().shout, shout),
        functools.partial(Shouter().shout, mark="?"),
    ]
    steps: list[RowOperator] = [Map(function, WORD) for function in functions]
    steps.append(EachRow(lambda row: [row, row], WORD))
    steps += [EachRow(functools.partial(split), WORD), Filter(len)]
    assert rows_of(steps, ("x y",), generated=generated) == [("X",), ("Y12C!?",)] * 2


@WAYS
def test_stages_of_a_hundred_steps(generated: bool) -> None:
    steps: list[RowOperator] = []
    for _ in range(50):
        steps += [Map(lambda row: (row[0] + 1,), WORD), EachRow(lambda row: [row], WORD)]
    assert rows_of(steps, (0,), generated=generated) == [(50,)]
    if generated:
        rows: list[Any] = []
        operator = generated_steps(steps, GENERATED)
        assert operator is not None
        operator.process(None, 0, [(0,), (1,)], rows.extend)
        assert rows == [(50,), (51,)]


@WAYS
def test_a_function_may_have_the_name_of_a_generated_one(generated: bool) -> None:
    def stage(row: Any) -> Any:
        return [(row[0] + 1,)]

    steps: list[RowOperator] = []
    for _ in range(40):
        steps += [EachRow(lambda row: [row], WORD), EachRow(stage, WORD)]
    assert rows_of(steps, (0,), generated=generated) == [(40,)]


@WAYS
def test_a_generator_may_never_end_in_a_run(generated: bool) -> None:
    seen: list[int] = []

    def numbers(row: Pair) -> Iterator[Pair]:
        for number in itertools.count():
            yield Pair(number, row.name)

    def note(row: Pair) -> None:
        seen.append(row.number)
        if row.number == 1_000:
            raise TopologyFailed("that is enough")

    topology = Topology("endless", generated_stages=generated)
    rows = topology.spout("rows", Records([Pair(0, "a")], type=Pair))
    even = rows.flat_map(numbers, fields=Pair).filter(lambda row: row.number % 2 == 0)
    even.map(lambda row: row, fields=Pair).peek(note)
    with pytest.raises(TopologyFailed, match="that is enough"):
        run_inline(topology.graph(), clock=ManualClock())
    assert seen == [*range(0, 1_001, 2)]


class EmptyAtOne:
    """Rows whose iter() raises StopIteration for one number."""

    def __init__(self, row: Any) -> None:
        self.row = row

    def __iter__(self) -> Iterator[Any]:
        if self.row[0] == 1:
            next(iter(()))
        return iter([self.row])


async def same(row: Any) -> Any:
    return row


@WAYS
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_rows_that_cannot_be_iterated_fail_their_record(
    generated: bool, is_async: bool, tmp_path: Path
) -> None:
    def rows_of_it(row: Any) -> Any:
        return EmptyAtOne(row)

    topology = Topology("t", generated_stages=generated)
    retry = Retry(attempts=1, dead_letters=tmp_path / "dead.jsonl")
    source = topology.spout("source", Records(ROWS[:3], fields=COLUMNS), retry=retry)
    stream = source.map(same, fields=COLUMNS) if is_async else source.filter(len)
    stream.flat_map(rows_of_it, fields=COLUMNS).shuffle().bolt("kept", Kept)
    done = run_inline(topology.graph(), clock=ManualClock())
    assert sorted(done.results["kept"][0]) == [(0, "a"), (2, "a")]
    (letter,) = [line for file in tmp_path.iterdir() for line in file.open()]
    assert json.loads(letter)["record"] == {"number": 1, "name": "b"}
    assert "StopIteration" in json.loads(letter)["reason"]


@WAYS
def test_a_row_that_does_not_fit_names_the_function_that_made_it(
    generated: bool, tmp_path: Path
) -> None:
    def wrong(row: Any) -> Any:
        return [7]

    topology = Topology("t", generated_stages=generated)
    retry = Retry(attempts=1, dead_letters=tmp_path / "dead.jsonl")
    source = topology.spout("source", Records(ROWS[:1], fields=COLUMNS), retry=retry)
    source.flat_map(wrong, fields=COLUMNS).shuffle().bolt("kept", Kept)
    run_inline(topology.graph(), clock=ManualClock())
    (letter,) = [line for file in tmp_path.iterdir() for line in file.open()]
    assert "wrong made 7; its stream carries (number, name)" in json.loads(letter)["reason"]


def test_without_a_stage_that_compiles_the_steps_run_one_by_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(*_: Any) -> Any:
        return [generated_stages._Part("let", "not a program")]

    monkeypatch.setattr(generated_stages, "_STEPS", {Map: ("map", wrong)})
    with caplog.at_level(logging.WARNING, "sunshower"):
        assert rows_of([Map(shout, WORD)], ("a",)) == [("A",)]
        assert generated_steps([Map(shout, WORD)], GENERATED) is None
    assert "bolt split: its functions are called one by one" in caplog.text


def test_the_setting_turns_it_off() -> None:
    steps = [EachRow(split, WORD), Map(shout, WORD)]
    assert generated_steps(steps, ONE_BY_ONE) is None
    run: Any = function_of_record(steps, ONE_BY_ONE)
    assert not run.__code__.co_filename.startswith("<stage")


def test_rows_between_steps_are_checked_for_their_type_and_width() -> None:
    code = code_of_record([Map(shout, WORD), Map(shout, WORD)], are_last=True)
    assert code.count("check(") == 1  # the rows that leave are checked together


def test_describe_prints_the_code_of_streams_and_batches() -> None:
    topology = Topology("words")
    lines = topology.spout("lines", Records([("a b",)], fields=["line"]))

    async def look_up(row: Any) -> Any:
        return row

    words = lines.flat_map(split, fields=["word"]).map(look_up, fields=["word"]).filter(len)
    words.shuffle().bolt("kept", Kept)
    spout = FixedBatchSpout([("a b",)], 1, fields=["line"])
    rows = batches(topology, "batches", spout, store=InMemory())
    rows.flat_map(split, fields=["word"]).map(shout, fields=["word"]).records("out").shuffle().bolt(
        "also-kept", Kept
    )
    code = as_code(topology.graph())
    assert "# for all rows at the same time: look_up\n" in code
    assert re.search(r"for row1 in split_\d+\(row0\):  # flat_map: test_generated_stages.py", code)
    assert re.search(r"# batches\ndef stage\(rows\):\n    rows = \[output for row in rows", code)
    assert re.search(r"rows = \[shout_\d+\(row\) for row in rows\]  # map", code)
