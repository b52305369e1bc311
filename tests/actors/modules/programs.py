"""Programs of several modules, which check that each module and class is one object."""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[3]

# A package with circular and relative imports, a setting, a registry and a plug-in that nothing
# imports at the top of a module.
PACKAGE = {
    "shop/__init__.py": "",
    "shop/registry.py": """
REGISTRY = {}
ALIAS = REGISTRY

def register(kind):
    REGISTRY[kind.__name__] = kind
    return kind

def events():
    from . import events
    return events
""",
    "shop/events.py": """
import threading
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
from . import registry

LOCK = threading.Lock()
VERSION = <version>
SETTING = "as imported"
SETTINGS = {"region": "as imported"}

class Color(Enum):
    RED = 1

class Purchase(NamedTuple):
    n: int
    color: Color

@dataclass
class Sale:
    n: int

class MyError(Exception):
    pass

@registry.register
class Kind:
    pass

class Config:
    tags = []

class Options:
    def __init__(self):
        self.region = "as imported"

options = Options()

from . import shapes
""",
    "shop/shapes.py": """
from .events import Kind
from .registry import register

@register
class Shape(Kind):
    pass
""",
    "shop/plugins/csv.py": """
import shop.events
from ..events import Purchase

VERSION = <version>

def accepts(record):
    same = isinstance(record, shop.events.Purchase) and shop.events.Purchase is Purchase
    return same and record.color is shop.events.Color.RED
""",
    "spaces/part.py": "from shop import events\n",  # a namespace package
}

# The file that declares: it changes values of modules, and its own classes are in its module.
MAIN = """
import importlib, inspect, pickle, pkgutil, sys, threading
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

import spaces.part
from shop import events, registry
from shop.events import Color, MyError, Purchase, Sale
from sunshower import JsonLines, Records, Topology

events.SETTING = events.SETTINGS["region"] = events.options.region = "changed"
events.Config.tags.append("changed")
LOCK = threading.Lock()
OWN_SETTING = "as sent"
COUNTS = {}

class Own(NamedTuple):
    n: int

@dataclass
class OwnData:
    n: int

    def kind(self):
        return OwnData

class OwnColor(Enum):
    RED = 1

class OwnError(MyError):
    pass

class Base:
    kinds = []

    def __init_subclass__(cls):
        Base.kinds.append(cls.__name__)

class Derived(Base):
    def __init__(self):
        super().__init__()

@registry.register
class Registered(events.Kind):
    pass

@lru_cache
def cached(n):
    return OwnData(n)

def closure():
    number = 3
    return lambda: (number, OWN_SETTING, Own)

reads_setting = closure()

def here():
    return sys.modules[__name__]

def catches(make):
    try:
        raise make()
    except registry.events().MyError:
        return True

def check(record: Purchase) -> list:
    global OWN_SETTING
    import shop.events
    me, plugin = here(), importlib.import_module("shop.plugins.csv")
    COUNTS[record.n] = OWN_SETTING = "changed"
    pickled = [Own, OwnData, OwnColor.RED, OwnError, Color.RED, Sale, cached, check]
    checks = {
        "NamedTuple": isinstance(record, shop.events.Purchase) and Purchase is shop.events.Purchase,
        "Enum": record.color is shop.events.Color.RED is Color.RED,
        "dataclass": registry.events().Sale is Sale,
        "exception": catches(shop.events.MyError) and catches(OwnError),
        "plug-in": plugin.accepts(record),
        "unpickled": all(pickle.loads(pickle.dumps(one)) is one for one in pickled),
        "unpickled object": pickle.loads(pickle.dumps(OwnData(3))) == OwnData(3),
        "settings": {shop.events.SETTING, shop.events.SETTINGS["region"], events.options.region,
                     *events.Config.tags} == {"changed"},
        "registry": [*registry.REGISTRY] == ["Kind", "Shape", "Registered"],
        "registered": registry.REGISTRY["Registered"] is Registered is me.Registered,
        "alias": registry.REGISTRY is registry.ALIAS,
        "own module": me.OwnData is OwnData is OwnData(1).kind(),
        "own globals": me.check.__globals__ is vars(me) and me.COUNTS is COUNTS,
        "lambda": reads_setting() == (3, "changed", me.Own),
        "cache": cached(3) is cached(3),
        "subclass hook": Base.kinds == ["Derived"] and isinstance(Derived(), me.Base),
        "source": "OWN_SETTING" in inspect.getsource(check)
                  and "color: Color" in inspect.getsource(Purchase),
        "namespace": sys.modules["spaces.part"].events is shop.events,
        "iter_modules": [module.name for module in pkgutil.iter_modules(shop.__path__)]
                        == ["events", "registry", "shapes"],
        "version": (shop.events.VERSION, plugin.VERSION) == (<version>, <version>),
    }
    try:
        me.LOCK
    except AttributeError as error:
        checks["lock"] = "cannot be sent: TypeError" in str(error)
    return [([name for name, holds in checks.items() if not holds], len(checks))]

topology = Topology("checked")
purchases = topology.spout("purchases", Records([Purchase(1, Color.RED)], type=Purchase))
checked = purchases.shuffle().bolt("check", check, fields=("broken", "checks"))
checked.shuffle().bolt("out", JsonLines(<out>))
"""
STALE = 'raise ImportError("this is a stale copy")\n'

SUBMIT = """
import sys
from sunshower.actors.shipping import pickled, ship
from sunshower.experiments.runner.loading import load
from sunshower.runtime.plan import make_plan
loaded = load(sys.argv[1])
ship(loaded.modules)
sys.stdout.buffer.write(pickled(make_plan(loaded.topology.graph())))
"""
WORK = """
import sys
from ray import cloudpickle
from sunshower.runtime.inline import run_inline
run_inline(cloudpickle.loads(sys.stdin.buffer.read()).graph)
"""


def write(folder: Path, files: Mapping[str, str], **values: object) -> Path:
    """Write files below a folder, with these values instead of `<name>`. Returns the folder."""
    for name, pattern in files.items():
        file, text = folder / name, pattern
        file.parent.mkdir(parents=True, exist_ok=True)
        for key, value in values.items():
            text = text.replace(f"<{key}>", repr(value))
        file.write_text(text)
    return folder


# A process that has imported what all programs need, and forks for each: to import Ray takes a
# second. It reads requests, and answers each with the exit code of its program.
FORKS = """
import importlib, os, pickle, secrets, sys, traceback, types
import ray.cloudpickle
from sunshower.actors import programs
import sunshower.actors.shipping, sunshower.experiments.runner.loading, sunshower.runtime.inline

def run(text, file, given, path, folder, streams):
    os.chdir(folder)
    for number, name in enumerate(streams):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")
    sys.argv = [file or "-c", *given]
    sys.path[:1] = [os.path.dirname(file), *path]
    importlib.invalidate_caches()
    programs._HERE = secrets.token_hex(8)  # each process has its own
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if file:
        main.__file__ = file
    try:
        exec(compile(text, file or "<string>", "exec"), vars(main))
        code = 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

while True:
    try:
        request = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    if not (child := os.fork()):
        run(*request)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@cache
def forks() -> subprocess.Popen[bytes]:
    """The process that forks, which ends with this one."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", FORKS], env=environment, **pipes)
    atexit.register(process.communicate)
    return process


def call(
    program: str | Path, *arguments: str, data: bytes = b"", path: str = "", cwd: Path
) -> bytes:
    """Run a file or a text in a process of its own, or `data` itself (the file is `-`); `path`: a
    further folder of its sys.path."""
    if program == Path("-"):  # Python reads it: it has no file, and no text that its process knows
        command, environment = (
            (sys.executable, "-", *arguments),
            os.environ | {"PYTHONPATH": str(ROOT)},
        )
        options: dict[str, Any] = {"cwd": cwd, "env": environment, "capture_output": True}
        done = subprocess.run(command, check=False, input=data, **options)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout
    is_file, process = isinstance(program, Path), forks()
    assert process.stdin is not None
    assert process.stdout is not None
    with TemporaryDirectory() as folder:
        streams = [f"{folder}/{name}" for name in ("in", "out", "err")]
        Path(streams[0]).write_bytes(data)
        text = program.read_text() if isinstance(program, Path) else program
        file, more = str(program) if is_file else "", [path] if path else []
        pickle.dump((text, file, arguments, more, str(cwd), streams), process.stdin)
        process.stdin.flush()
        code = int(process.stdout.readline())
        assert code == 0, Path(streams[2]).read_text()
        return Path(streams[1]).read_bytes()


def work(program: Path, folder: Path) -> None:
    """Submit a program in one process, and run it in another one, where a stale copy of its modules
    is first on the path."""
    stale = write(folder / "stale", dict.fromkeys((*PACKAGE, f"{program.stem}.py"), STALE))
    plan = call(SUBMIT, str(program), cwd=folder)
    call(WORK, data=plan, path=str(stale), cwd=stale)
