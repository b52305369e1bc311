"""Each module and class of a program is one object in a worker, however it is reached."""

from __future__ import annotations

import json
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.actors.modules.programs import MAIN, PACKAGE, SUBMIT, WORK, call, work, write

MODULE_IN_C = """
#include <Python.h>
static PyObject *answer(PyObject *self, PyObject *args) { return PyLong_FromLong(%s); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {0}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "fast", 0, -1, methods};
PyMODINIT_FUNC PyInit_fast(void) { return PyModule_Create(&definition); }
"""
USES_C = """
from sunshower import JsonLines, Records, Topology
import shop.fast

def check(row) -> list:
    import importlib
    fast = importlib.import_module("shop.fast")
    return [(fast is shop.fast, fast.answer())]

topology = Topology("in_c")
numbers = topology.spout("numbers", Records([(1,)], fields=("number",)))
numbers.shuffle().bolt("check", check, fields=("same", "answer")).shuffle().bolt(
    "out", JsonLines(<out>)
)
"""
# confluent_kafka says that the module of this class is "cimpl", which does not exist.
USES_A_CLASS_OF_C = """
from confluent_kafka import Consumer as Reader
from sunshower import JsonLines, Records, Topology

class Named:
    kind = Reader

topology = Topology("class_of_c")
numbers = topology.spout("numbers", Records([(1,)], fields=("number",)))
same = numbers.shuffle().bolt(
    "check", lambda row: [(Reader is Named.kind, f"{Reader.__enter__}")], fields=("same", "text")
)
same.shuffle().bolt("out", JsonLines(<out>))
"""
# A part of the package is outside of the folder of the file, and so is a library.
ELSEWHERE = {
    "spaces/kept.py": """
from library.bases import Counts

class Kept(Counts):
    pass

class Adds(Kept):
    pass

def twice(number):
    return 2 * number
""",
    "library/bases.py": """
from sunshower import Bolt

class Counts(Bolt):
    count = 0

    def process(self, record):
        self.count += record[0]
        return [(self.count,)]

    def snapshot(self):
        return self.count

    def restore(self, count):
        self.count = count
""",
}
USES_ELSEWHERE = {
    "spaces/part.py": "",
    "uses_elsewhere.py": """
import spaces.part
from library.bases import Counts
from spaces.kept import Adds, Kept, twice
from sunshower import JsonLines, Records, Topology

class Own(Kept):
    pass

class OfLibrary(Counts):
    pass

topology = Topology("elsewhere")
numbers = topology.spout("numbers", Records([(1,), (2,)], fields=("number",)))
for bolt in (Own, OfLibrary, Adds, Adds()):
    name = f"{getattr(bolt, '__name__', 'object')}"
    numbers.shuffle().bolt(name, bolt, fields=("number",))
counted = numbers.shuffle().bolt("kept", Own(), fields=("number",))
twice_as_much = counted.shuffle().bolt("twice", lambda row: [(twice(row[0]),)], fields=("n",))
twice_as_much.shuffle().bolt("out", JsonLines(<out>))
""",
}
MASTER = """
import sys
from sunshower.actors.shipping import outline
before = {*sys.modules}
plan = outline(sys.stdin.buffer.read())
from sunshower.topologies.graph import can_move
from sunshower.topologies.rescaling import kept_in_memory
for component in plan.graph.components.values():
    print(component.id, can_move(component), kept_in_memory(component))
print([name for name in {*sys.modules} - before if name.startswith(("shop", "spaces", "main"))])
"""

OBJECTS = {
    "goods/__init__.py": "",
    "goods/stock.py": """
import os
import threading
from collections import defaultdict
from dataclasses import dataclass
from functools import partial

if os.path.exists(<counter>):
    with open(<counter>, "a") as file:
        file.write("imported ")

LOCK = threading.Lock()
MISSING = object()
DEFAULTS = {"colour": MISSING}

class Handler:
    missing = {"colour": MISSING}
    all = []

    def __init__(self):
        self.stock = None
        Handler.all.append(self)

class Slotted:
    __slots__ = ("level",)

@dataclass(frozen=True)
class Setting:
    level: int

HANDLER = Handler()
HANDLERS = [HANDLER]
BY_NAME = defaultdict(list, handler=HANDLER)
NAMED = frozenset([HANDLER])
HANDLER.stock = {"handler": HANDLER}
SLOTTED = Slotted()
SLOTTED.level = 1
SETTING = Setting(1)
SETTINGS = {SETTING: (SETTING, SLOTTED)}
PART = partial(Handler.all.append)
PARTS = {"append": PART}
held = lambda: (HANDLER, SETTING)
""",
    "goods/here.py": """
import os
if os.getcwd() != <allowed>:
    raise ImportError("only where it is submitted")
NUMBER = 1
class Here:
    tags = []
HERE = Here()
HERES = {Here: HERE}
""",
    "objects.py": """
import goods.here
from goods import stock
from goods.stock import DEFAULTS, HANDLER, HANDLERS, LOCK, MISSING, NAMED, PART, SETTING, SLOTTED
from sunshower import JsonLines, Records, Topology

FIRST = HANDLERS[0]
stock.SLOTTED.level = 2
stock.BY_NAME["other"].append(HANDLER)

def check(row) -> list:
    import goods.stock as other
    checks = {
        "sentinel": MISSING is other.MISSING is other.Handler.missing["colour"]
                    and MISSING is DEFAULTS["colour"],
        "lock": LOCK is other.LOCK,
        "lists": HANDLERS is other.HANDLERS and FIRST is HANDLER is other.HANDLER is HANDLERS[0],
        "dicts": HANDLER is other.BY_NAME["handler"] is other.BY_NAME["other"][0],
        "default": other.BY_NAME["third"] == [],
        "frozenset": NAMED == other.NAMED and HANDLER in NAMED,
        "cycle": HANDLER.stock["handler"] is HANDLER,
        "class": other.Handler.all == [HANDLER],
        "slots": SLOTTED is other.SLOTTED is other.SETTINGS[SETTING][1] and SLOTTED.level == 2,
        "frozen": SETTING is other.SETTING is other.SETTINGS[SETTING][0],
        "partial": PART is other.PART is other.PARTS["append"],
        "closure": other.held() == (HANDLER, SETTING),
    }
    return [([name for name, holds in checks.items() if not holds], len(checks))]

topology = Topology("objects")
numbers = topology.spout("numbers", Records([(1,)], fields=("number",)))
checked = numbers.shuffle().bolt("check", check, fields=("broken", "checks"))
checked.shuffle().bolt("out", JsonLines(<out>))
""",
}


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The file of a program that writes `out.jsonl`."""
    files = {**PACKAGE, "its_main.py": MAIN}
    out = str(tmp_path / "out.jsonl")
    return write(tmp_path / "program", files, version="1", out=out) / "its_main.py"


def test_each_module_and_class_is_one_object(program: Path, tmp_path: Path) -> None:
    work(program, tmp_path)
    assert lines(tmp_path / "out.jsonl") == [{"broken": [], "checks": 21}]


def test_an_object_of_a_module_is_one_object_under_all_its_names(tmp_path: Path) -> None:
    counter, out = tmp_path / "counter", tmp_path / "out.jsonl"
    values = {"counter": str(counter), "allowed": str(tmp_path), "out": str(out)}
    program = write(tmp_path / "program", OBJECTS, **values) / "objects.py"
    plan = call(SUBMIT, str(program), cwd=tmp_path)
    counter.touch()
    call(WORK, data=plan, cwd=program.parent)  # where goods.here cannot be imported
    assert lines(out) == [{"broken": [], "checks": 12}]
    assert counter.read_text() == "imported "


def test_a_master_has_the_plan_without_the_modules_and_edits_are_not_used(
    program: Path, tmp_path: Path
) -> None:
    plan = call(SUBMIT, str(program), cwd=tmp_path)
    for file in program.parent.rglob("*.py"):
        file.write_text('raise ImportError("it was edited")')
    call(WORK, data=plan, cwd=tmp_path)
    assert lines(tmp_path / "out.jsonl") == [{"broken": [], "checks": 21}]
    output = call(MASTER, data=plan, cwd=tmp_path)
    assert output.decode().splitlines() == [
        "purchases True None",
        "check True None",
        "out True None",
        "[]",
    ]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler")
def test_a_module_in_c_is_sent_with_the_program(tmp_path: Path) -> None:
    folder = write(tmp_path / "program", {"shop/__init__.py": ""})
    write(folder, {"uses_c.py": USES_C}, out=str(tmp_path / "out.jsonl"))
    suffix = sysconfig.get_config_var("EXT_SUFFIX")

    def compile_to(path: Path, answer: int) -> None:
        (tmp_path / "fast.c").write_text(MODULE_IN_C % answer)
        includes = f"-I{sysconfig.get_path('include')}"
        command = ["gcc", "-shared", "-fPIC", includes, str(tmp_path / "fast.c"), "-o", str(path)]
        subprocess.run(command, check=True)

    compile_to(folder / "shop" / f"fast{suffix}", 41)
    plan = call(SUBMIT, str(folder / "uses_c.py"), cwd=tmp_path)
    compile_to(folder / "shop" / f"fast{suffix}", 42)  # after the submit
    call(WORK, data=plan, cwd=tmp_path)
    assert lines(tmp_path / "out.jsonl") == [{"same": True, "answer": 41}]


def test_a_class_of_an_extension_is_sent_by_the_module_that_has_it(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    program = write(tmp_path / "program", {"uses_class.py": USES_A_CLASS_OF_C}, out=str(out))
    plan = call(SUBMIT, str(program / "uses_class.py"), cwd=tmp_path)
    call(WORK, data=plan, cwd=tmp_path)
    assert [line["same"] for line in lines(out)] == [True]
    assert call(MASTER, data=plan, cwd=tmp_path).decode().splitlines()[-1] == "[]"


def test_classes_and_functions_outside_of_the_folder_of_the_program(tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "out.jsonl", str(write(tmp_path / "elsewhere", ELSEWHERE))
    program = write(tmp_path / "program", USES_ELSEWHERE, out=str(out)) / "uses_elsewhere.py"
    plan = call(SUBMIT, str(program), cwd=tmp_path, path=elsewhere)
    call(WORK, data=plan, cwd=tmp_path, path=elsewhere)
    assert lines(out) == [{"n": 2}, {"n": 6}]
    printed = call(MASTER, data=plan, cwd=tmp_path, path=elsewhere).decode().splitlines()
    movable = ["Own", "OfLibrary", "Adds", "object", "kept"]
    assert {f"{name} True None" for name in movable} < {*printed}
    assert printed[-1] == "[]"


ANSWERS = """
import sys
from typing import NamedTuple
from ray import cloudpickle
from sunshower.actors.shipping import ShippedAnswer

class Kind:
    pass

class Word(NamedTuple):
    text: str
    kind: Kind
    def is_of(self, kind):
        return isinstance(self.kind, Kind) and type(self.kind) is kind

cloudpickle.dump([cloudpickle.dumps(ShippedAnswer([Word(t, Kind()), Kind])) for t in "ab"],
                 sys.stdout.buffer)
"""
READS_ANSWERS = """
import pickle, sys
(first, kind), (second, same) = map(pickle.loads, pickle.load(sys.stdin.buffer))
print(first.text, second.text, type(first) is type(second), kind is same, first.is_of(same))
"""


def test_a_client_without_the_code_has_one_copy_of_each_class(tmp_path: Path) -> None:
    program = write(tmp_path / "program", {"answers.py": ANSWERS}) / "answers.py"
    code = f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')"
    for script in (ANSWERS, code):
        answers = call(script, cwd=tmp_path)
        output = call(READS_ANSWERS, data=answers, cwd=tmp_path)
        assert output.decode().split() == ["a", "b", "True", "True", "True"]


# A script that submits itself, without a guard, or the same given with `python -c`.
SCRIPT = """
import sys
from dataclasses import dataclass
from typing import NamedTuple
import attrs
from sunshower import JsonLines, Records, Topology
from sunshower.actors.shipping import pickled
from sunshower.runtime.plan import make_plan

class Own(NamedTuple):
    n: int

@dataclass
class OwnData:
    n: int

@dataclass(frozen=True, slots=True, weakref_slot=True)
class Frozen:
    n: int

@attrs.define
class Slotted:
    n: int
    def __attrs_post_init__(self):
        super().__init__()

@attrs.define
class Derived(Slotted):
    m: int = 2

REGISTRY = {"own": Own}
COUNTS = {}

def local():
    @dataclass(slots=True)
    class Local:
        n: int
    return Local(7)

SLOTTED = [Frozen(7), Slotted(7), Derived(7), local()]

def check(record: Own) -> list:
    import __main__ as me
    import pickle
    from its_neighbour import make, script
    COUNTS[record.n] = me.COUNTS is COUNTS
    return [(
        me.Own is Own is type(record) is script().REGISTRY["own"],
        type(make()) is OwnData and pickle.loads(pickle.dumps(OwnData(1))) == make(),
        pickle.loads(b"c__main__\\nOwnData\\n.") is OwnData,
        script().COUNTS == {1: True} and check.__globals__ is vars(me),
        all(record == type(record)(7) and record.n == 7 for record in SLOTTED),
        not any(hasattr(record, "__dict__") for record in SLOTTED),
    )]

topology = Topology("script")
records = topology.spout("records", Records([Own(1)], type=Own))
records.shuffle().bolt("check", check, fields=tuple("abcdef")).shuffle().bolt(
    "out", JsonLines(<out>)
)
sys.stdout.buffer.write(pickled(make_plan(topology.graph())))
"""
ITS_NEIGHBOUR = """
def script():
    import __main__
    return __main__

def make():
    return script().OwnData(1)
"""


@pytest.mark.parametrize("origin", ["file", "python -c", "stdin"])
def test_the_module_of_a_script_that_submits_itself_is_one_object(
    tmp_path: Path, origin: str
) -> None:
    files = {"its_neighbour.py": ITS_NEIGHBOUR, "script.py": SCRIPT}
    script = write(tmp_path / "script", files, out=str(tmp_path / "out.jsonl")) / "script.py"
    data = script.read_bytes() if origin == "stdin" else b""
    code = {"file": script, "python -c": script.read_text(), "stdin": Path("-")}[origin]
    plan = call(code, data=data, cwd=script.parent)
    path = "" if origin == "file" else str(script.parent)
    call(WORK, data=plan, cwd=tmp_path, path=path)
    assert lines(tmp_path / "out.jsonl") == [dict.fromkeys("abcdef", True)]
