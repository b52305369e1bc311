"""Loads the topology or experiment that `FILE.py` or `FILE.py:NAME` names."""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Generic, TypeVar

from sunshower.errors import LoadError, SunshowerError
from sunshower.installed import install_command
from sunshower.topologies.programs import is_library
from sunshower.topologies.topology import Topology

if TYPE_CHECKING:
    from sunshower.experiments.experiment import Experiment

T = TypeVar("T")
# Packages that programs import themselves, and the extras that install them.
_EXTRAS = {"pyspark": "spark", "confluent_kafka": "kafka"}
_loaded: dict[str, ModuleType] = {}  # the modules of the last file, which another one may have, too


@dataclass(frozen=True)
class LoadKind(Generic[T]):
    """The type of object to find in a file, and its words for error messages."""

    type: type[T]
    noun: str  # also the default name of the object
    nouns: str
    command: str  # an example
    example: str  # of a declaration


@dataclass(frozen=True)
class Loaded:
    """A topology, and the modules that only this process can import."""

    topology: Topology
    modules: tuple[ModuleType, ...]


def load(target: str, command: str = "run word_count.py", folder: Path | None = None) -> Loaded:
    """Import the file that `target` names, and find the topology in it.

    The file's folder is put first on `sys.path`, as Python does for a script. `modules` are the
    file's, and those below its folder, and below `folder` if that is given. Each call imports them
    again; a topology that was loaded before keeps its modules. Raises LoadError, also for a file in
    these folders that hides a module which a run needs, and the SunshowerErrors of the declaration.
    """
    example = 'topology = Topology("…")'
    kind = LoadKind(Topology, "topology", "topologies", command, example)
    return Loaded(*_load(target, kind, folder))


def load_experiment(target: str) -> tuple[Experiment, tuple[ModuleType, ...]]:
    """Import the file that `target` names, and find the experiment in it."""
    from sunshower.experiments.experiment import Experiment

    example = "experiment = Experiment(name=…, topology=…, plan=…, checkers=…)"
    command = "experiment run kill_a_bolt.py"
    return _load(target, LoadKind(Experiment, "experiment", "experiments", command, example))


def _load(
    target: str, kind: LoadKind[T], folder: Path | None = None
) -> tuple[T, tuple[ModuleType, ...]]:
    path, name = split_target(target)
    if not path.is_file():
        other = "is not an ordinary file" if path.exists() else "does not exist"
        what = "is a folder" if path.is_dir() else other
        raise LoadError(f"{path} {what}; give a Python file, as in: sunshower {kind.command}")
    for former, module in _loaded.items():
        if sys.modules.get(former) is module:
            del sys.modules[former]
    folders = [path.parent] if folder is None else [path.parent, folder]
    _check_names(folders, path)
    before = set(sys.modules)
    if sys.path[:1] != [str(path.parent)]:  # a file may be loaded many times
        sys.path.insert(0, str(path.parent))
    module = _import(path)
    _loaded.clear()
    modules = (module, *_neighbours(folders, before | {module.__name__}))
    _loaded.update({each.__name__: each for each in modules})
    return _find(module, path, name, kind), modules


def split_target(target: str) -> tuple[Path, str | None]:
    """The absolute path of the file in `FILE.py` or `FILE.py:NAME`, and the name."""
    file, colon, name = target.rpartition(":")
    if not colon or Path(target).is_file():
        file, name = target, ""
    return Path(file).absolute(), name or None


def _check_names(folders: Sequence[Path], target: Path) -> None:
    """Raise LoadError if a file or package in these folders would be imported instead of a module
    that the commands or the workers need. Ray adds the working directory to the paths of workers,
    which have imported the modules of Python by then."""
    places = [(each, True) for each in folders]
    if Path.cwd() not in folders:
        places.append((Path.cwd(), False))
    hiding = [
        (name, entry)
        for folder, is_first in places
        for name, entry in _modules_in(folder)
        if _is_hidden(name, entry, folders, of_python=is_first)
    ]
    if any(name not in sys.modules for name, _ in hiding):
        import_module("sunshower.actors.cluster")  # all that a run needs, before they hide it
    for name, entry in hiding:
        is_ours = entry == target and name in sys.stdlib_module_names  # it has another name here
        if (name in sys.modules and not is_ours) or name in _requirements():
            kind = "of Python" if name in sys.stdlib_module_names else "that Sunshower needs"
            what = "folder" if entry.is_dir() else "file"
            raise LoadError(
                f"{entry} has the name of the module {name!r} {kind}, and would be imported "
                f"instead of it: rename the {what}"
            )


def _modules_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the modules and packages in a folder: name and path."""
    entries = list[Path]()
    with suppress(OSError):  # a folder that may be passed through, and not listed
        entries = sorted(folder.iterdir())
    for entry in entries:
        is_module = entry.name.endswith((".py", *EXTENSION_SUFFIXES))
        if is_module or (entry / "__init__.py").is_file():
            yield entry.name.partition(".")[0], entry


def _is_hidden(name: str, entry: Path, folders: Sequence[Path], *, of_python: bool) -> bool:
    """Whether there is another module of that name, of an installed package or of Python."""
    if name == "sunshower":
        return entry.resolve() != Path(__file__).resolve().parents[2]
    if name in sys.stdlib_module_names:
        return of_python
    others = [place for place in sys.path if Path(place).absolute() not in (*folders, entry.parent)]
    spec = PathFinder.find_spec(name, others)
    return spec is not None and spec.origin is not None and is_library(spec.origin)


@cache
def _requirements() -> frozenset[str]:
    """The packages that Sunshower requires, also for its extras, as they are imported."""
    try:
        lines = metadata.requires("sunshower") or []
    except metadata.PackageNotFoundError:  # a copy that is not installed
        lines = []
    of_users = (line for line in lines if "extra == 'dev'" not in line.replace('"', "'"))
    return frozenset(re.split(r"[^\w-]", line)[0].replace("-", "_") for line in of_users)


def _import(path: Path) -> ModuleType:
    taken = path.stem in sys.modules or path.stem in sys.stdlib_module_names
    spec = importlib.util.spec_from_file_location(f"{path.stem}_" if taken else path.stem, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"{path} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except SunshowerError as error:  # add the place to the message
        error.args = (f"{path}, {_place(error, path)}{error}",)
        raise
    except (Exception, SystemExit) as error:
        raise LoadError(
            f"{path} cannot be imported: {_place(error, path)}{type(error).__name__}: {error}. "
            f"{_remedy(error)}"
        ) from error
    return module


def _remedy(error: BaseException) -> str:
    missing = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    if (extra := _EXTRAS.get(missing.partition(".")[0])) is not None:
        return f"Install the extra {extra}: {install_command(extra)}"
    return "Correct it until `python` runs it without an error"


def _place(error: BaseException, path: Path) -> str:
    """Return where in the file an error was raised: `line 3: `, or another file's line."""
    if isinstance(error, SyntaxError) and error.filename:
        elsewhere = "" if error.filename == str(path) else f"{error.filename}, "
        return f"{elsewhere}line {error.lineno}: "
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    return f"line {lines[-1]}: " if lines else ""


def _find(module: ModuleType, path: Path, name: str | None, kind: LoadKind[T]) -> T:
    known = {key: value for key, value in vars(module).items() if isinstance(value, kind.type)}
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    chosen = vars(module).get(name or kind.noun)
    if isinstance(chosen, kind.type):
        return chosen
    names = ", ".join(known)
    if name is not None and name in vars(module):
        problem = f"{name!r} in {path} is of type {type(chosen).__name__}, not {kind.type.__name__}"
    elif name is not None:
        problem = f"{path} has no {name!r}"
    elif known:
        problem = f"{path} has several {kind.nouns}"
    else:
        problem = f"{path} has no {kind.noun}"
    if known:
        raise LoadError(
            f"{problem}; name one of them, as in {path.name}:{next(iter(known))}. "
            f"Its {kind.nouns} are: {names}"
        )
    others = [
        f"{key} (a {type(value).__name__})"
        for key, value in vars(module).items()
        if not key.startswith("_")
        and str(getattr(value, "__module__", "")).startswith("sunshower.")
        and not isinstance(value, type | FunctionType)
    ]
    has = f" It has: {', '.join(others)}." if others else ""
    raise LoadError(f"{problem}; make one at its top level: {kind.example}.{has}")


def _neighbours(folders: Sequence[Path], before: set[str]) -> Iterator[ModuleType]:
    """Yield the modules that the import loaded from these folders."""
    for name in set(sys.modules) - before:
        module = sys.modules[name]
        file = getattr(module, "__file__", None)
        if not file or name.split(".")[0] == "sunshower":
            continue
        path = Path(file).absolute()
        below = [path.relative_to(folder) for folder in folders if path.is_relative_to(folder)]
        if any("site-packages" not in relative.parts for relative in below):
            yield module
