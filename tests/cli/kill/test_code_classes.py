"""Tests of classes of user code in a savepoint: a later run reads them as its own classes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sunshower import Topology
from sunshower.actors.shipping import CodeClasses
from sunshower.errors import LifecycleError
from sunshower.runtime.plan import Layout, Plan, make_plan

FILE = """
from enum import Enum
from typing import Iterator, NamedTuple
from sunshower import Bolt, Spout

class Color(Enum):
    RED = 1

class Word(NamedTuple):
    text: str
    color: Color

class Seen:
    def __init__(self, words):
        self.words = words

class Words(Spout[Word]):
    def records(self) -> Iterator[Word]:
        yield Word("a", Color.RED)

class Sink(Bolt[Word, None]):
    def process(self, word: Word) -> None:
        self.seen = Seen([word])
"""


def loaded() -> Any:
    """The code of a file that no process can import, loaded as by one submit."""
    code: dict[str, Any] = {"__name__": "submitted_words"}
    exec(FILE, code)
    return SimpleNamespace(**code)


def plan_of(code: Any, *, sink: bool = True) -> Plan:
    topology = Topology("words")
    words = topology.spout("words", code.Words)
    if sink:
        words.shuffle().bolt("sink", code.Sink)
    return make_plan(topology.graph(), Layout.PACK)


def test_objects_have_the_classes_of_the_code_that_reads_them() -> None:
    former, code = loaded(), loaded()
    value = former.Seen([former.Word("a", former.Color.RED)])
    loaded_value = CodeClasses(plan_of(code)).loads(CodeClasses(plan_of(former)).dumps(value))
    assert type(loaded_value) is code.Seen is not former.Seen
    assert type(loaded_value.words[0]) is code.Word
    assert loaded_value.words == [("a", code.Color.RED)]


def test_classes_and_classes_in_functions_are_those_of_the_code_that_reads_them() -> None:
    former, code = loaded(), loaded()
    function = eval("lambda: Word", {"Word": former.Word})
    data = CodeClasses(plan_of(former)).dumps([former.Word, function, int, type(None), Topology])
    kind, word_class, *others = CodeClasses(plan_of(code)).loads(data)
    assert kind is word_class() is code.Word
    assert others == [int, type(None), Topology]


def test_a_class_that_no_code_refers_to_cannot_be_kept() -> None:
    code = loaded()
    with pytest.raises(LifecycleError, match="refers to class Seen of module submitted_words"):
        CodeClasses(plan_of(code, sink=False)).dumps(code.Seen([]))
    with pytest.raises(LifecycleError, match="refers to class Seen of module submitted_words"):
        CodeClasses(plan_of(code)).dumps(loaded().Seen([]))


def test_a_class_that_the_new_code_does_not_have_cannot_be_read() -> None:
    code = loaded()
    data = CodeClasses(plan_of(code)).dumps(code.Seen([]))
    with pytest.raises(LifecycleError, match="the code has no class Seen of module submitted"):
        CodeClasses(plan_of(code, sink=False)).loads(data)
