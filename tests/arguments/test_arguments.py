"""Tests that each argument is valid, or refused by a SunshowerError that names it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sunshower import Counter, Records, batch, secret
from sunshower.errors import SunshowerError
from sunshower.kafka import KafkaBolt, KafkaSpout, Text
from sunshower.state import MemoryState, RedisState
from sunshower.trident import Bounds, FixedBatchSpout, InSqlite, Skip, batches, count, tumbling
from tests.arguments.calls import BATCHES, TOPOLOGIES
from tests.arguments.calls_of_extensions import CONNECTORS, EXPERIMENTS, KAFKA, SPARK
from tests.arguments.calls_of_runs import RUNS
from tests.arguments.helpers import lines, nothing, rows, topology
from tests.topologies.examples import Word
from tests.topologies.examples import count as count_words

CALLS = {**TOPOLOGIES, **BATCHES, **RUNS, **KAFKA, **CONNECTORS, **SPARK, **EXPERIMENTS}


class Unknown:
    def __repr__(self) -> str:
        return "what no argument is"


NONSENSE = [Unknown(), math.nan, -1, 10**400, b"x", {Unknown()}]
POSSIBLE = [
    None,
    "x",
    "",
    "a b\n",
    5,
    0,
    0.5,
    math.inf,
    True,
    [],
    [5],
    {},
    {"errors": 5},
    nothing,
    Word,
]
# Arguments for which some of the nonsense is valid: the first value of a fold, a request, a key, an
# option of Spark, any collection; a negative timeout, which has passed.
LENIENT = {
    "checkers",
    "initial",
    "value",
    "key",
    "url",
    "rows",
    "source",
    "plan",
    "timeout_s",
    "offset",
}
# The words in messages for arguments that they do not name.
OTHER_WORDS = {
    "bolt": "no component",
    "event_time": "no field",
    "fields": "field names",
    "file": "a path or a glob",
    "group": "an id",
    "grouping": "needs an object with",
    "id": "no such stream|an id",
    "inputs": "is not an input",
    "impl": "is not a (spout|bolt)",
    "message": "no class that protoc has generated",
    "columns": "field names",
    "name": "an id",
    "operator": "no Operator",
    "of": "record type",
    "other": "is (no|not a) stream",
    "other_field": "no field",
    "predicate": "is not a function",
    "requests": "name is",
    "assembly": "apply is",
    "source": "list of records|does not fit",
    "spout": "makes no batches|no component",
    "type": "its records are",
    "updater": "is not a function",
}


def _names(argument: str, message: str) -> bool:
    other = OTHER_WORDS.get(argument)
    return argument in message or (other is not None and re.search(other, message) is not None)


@pytest.mark.parametrize("what", CALLS)
def test_an_argument_is_valid_or_refused_by_a_sunshower_error(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(secret, "_known", {})  # secrets of a process are hidden in all its messages
    call, valid = CALLS[what]
    call(**valid)
    wrong = []
    for name in valid:
        for number, value in enumerate([*NONSENSE, *([] if what in RUNS else POSSIBLE)]):
            where = f"{what}({name}={type(value).__name__})"
            try:
                call(**{**valid, name: value})
            except SunshowerError as error:
                if number < len(NONSENSE) and not _names(name, str(error)):
                    wrong.append(f"{where} is not named: {error!s:.200}")
            except Exception as error:
                wrong.append(f"{where}: {error!r:.200}")
            else:
                if number < len(NONSENSE) and name not in LENIENT:
                    wrong.append(f"{where} is accepted")
    assert not wrong, "\n".join(wrong)


FIVE: Any = 5
TEXT: Any = "5"
NOTHING: Any = None
COUNT = "it must be a whole number of at least"
REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: lines().bolt("b", count_words), r"declare a grouping, as in \.shuffle\(\)\.b"),
    (lambda: lines().shuffle().map(str), r"\.map\(…\) is called on a stream, not behind its group"),
    (lambda: lines().shuffle().schema, r"\.schema is an attribute of the stream, and its grouping"),
    (
        lambda: lines().group_by("word").connect(lines().group_by("word")).map(str),
        r"before group_by and connect, or behind what process\(…\) makes",
    ),
    (lambda: lines().shuffle().join(lines()), r"before the grouping, or begin new tasks"),
    (lambda: topology().bolt("b", count_words, inputs=lines().shuffle()), r"\[stream\.shuffle"),
    (lambda: lines().shuffle().bolt("b", count_words, fields=5), "5 are not field names"),
    (lambda: lines().shuffle().bolt("b", count_words, streams=["errors"]), r'\{"errors": Error\}'),
    (lambda: lines().fields(["word"]), r"no field \['word'\]; its fields are: word"),
    (lambda: batches(topology(), "b", FixedBatchSpout([], 1), parallelism=TEXT), f"'5'; {COUNT} 1"),
    (lambda: Bounds(records=TEXT), f"records is '5'; {COUNT} 1"),
    (lambda: FixedBatchSpout([], TEXT), f"size is '5'; {COUNT} 1"),
    (lambda: Skip(attempts=0), f"attempts is 0; {COUNT} 1"),
    (lambda: batch(len), "batch: .*len.* cannot be marked; define a function"),
    (lambda: tumbling(seconds=TEXT), "tumbling: seconds is '5'; it must be a number"),
    (lambda: rows().merge(5), "5 is not a stream of batches"),
    (lambda: rows().join(5, "word"), "5 is not a stream of batches"),
    (lambda: rows().merge(lines()), r"an ordinary stream is not .*; declare batches\(…\) of the"),
    (
        lambda: rows().group_by("word").connect(rows()),
        "the stream is not grouped by its key, as in",
    ),
    (lambda: rows().apply(5), "is 5; give a function"),
    (lambda: rows().aggregate(count(), state=MemoryState), "MemoryState is not a state"),
    (lambda: RedisState(FIVE), 'RedisState: url is an int; give an address, such as "redis://'),
    (lambda: InSqlite(NOTHING), "InSqlite: file is None; give a path"),
    (lambda: KafkaSpout(NOTHING, topics=["a"]), "settings is None; give what librdkafka"),
    (lambda: Text("a\0"), "Text: encoding: .*; give a codec"),
    (lambda: KafkaBolt({}, "t"), "the settings lack bootstrap.servers"),
    (lambda: Records(FIVE), "source is 5; give a list of records"),
    (lambda: Counter(TEXT), f"stop is '5'; {COUNT} 0, or None"),
]


@pytest.mark.parametrize(("mistake", "expected"), REFUSED)
def test_likely_mistakes_are_refused_with_the_correct_form(
    mistake: Callable[[], Any], expected: str
) -> None:
    with pytest.raises(SunshowerError, match=expected):
        mistake()


@pytest.mark.parametrize("name", ["map", "schema", "nothing"])
def test_a_grouping_says_that_it_lacks_what_its_stream_has(name: str) -> None:
    for grouped in (lines().shuffle(), lines().group_by("word"), rows().group_by("word")):
        assert not hasattr(grouped, name)
        assert getattr(grouped, name, None) is None


def test_a_missing_or_unknown_argument_is_refused_with_the_name_of_the_function() -> None:
    make: Any = Records
    for call in (make, lambda: make([], unknown=5)):
        with pytest.raises(TypeError, match=r"^Records\.__init__\(\) "):
            call()
