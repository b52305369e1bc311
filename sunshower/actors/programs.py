"""The modules of a user's program; separate because processes that have none import by it.

This module says which they are, and how a process without them imports them. They are sent as
source, and compiled ones as files. The process that receives them finds them before anything else
on its `sys.path`, under the paths that they have where they were submitted: see
docs/decisions/0022-a-program-is-sent-as-its-modules.md.
"""

from __future__ import annotations

import hashlib
import io
import linecache
import os
import pickle
import secrets
import stat
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module, invalidate_caches
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    ExtensionFileLoader,
    ModuleSpec,
    SourceFileLoader,
)
from importlib.util import decode_source, spec_from_file_location
from pathlib import Path
from types import MemberDescriptorType, ModuleType, new_class
from typing import Any

from ray.cloudpickle import cloudpickle as internals  # no public API: see the pin of ray

from sunshower.errors import TopologyError
from sunshower.record_types import StructClass, record_type_of
from sunshower.records import member_of
from sunshower.topologies.programs import (
    LIBRARIES,
    ProgramModules,
    file_of,
    is_below,
    is_library,
    root_of,
)

BYTES_MAX = 64 << 20  # of all modules together
_SUFFIXES = (".py", *EXTENSION_SUFFIXES)
_HERE = secrets.token_hex(8)  # of this process, as the origin of a program


@dataclass(frozen=True)
class Program:
    """The modules of a program, for another process."""

    origin: str  # of the process that has submitted it
    roots: tuple[str, ...]  # folders, as on sys.path
    files: Mapping[str, bytes]  # path → content, of all modules that can be imported
    imported: tuple[str, ...]  # the modules that were imported, in that order
    mains: tuple[tuple[str, str | None], ...] = ()  # those that are sent by value, and their files
    values: bytes = b""  # what these contain that the code of the topology may use, pickled
    rest: bytes = b""  # what else they contain
    state: bytes = b""  # values in the other modules, pickled

    @cached_property
    def names(self) -> set[str]:
        """The top-level names that these modules are imported by."""
        files = [Path(path).relative_to(root).parts[0].partition(".")[0]
                 for path in self.files for root in self.roots if is_below(path, root)]  # fmt: skip
        return {*files, *(name.partition(".")[0] for name, _ in self.mains)}

    def has(self, module: str) -> bool:
        """Whether a module of this name is one of them."""
        return module.partition(".")[0] in self.names


@dataclass
class Modules:
    """The modules of the program of this process."""

    mains: dict[str, ModuleType] = field(default_factory=dict)
    others: dict[str, ModuleType] = field(default_factory=dict)

    def get(self, name: object) -> ModuleType | None:
        """The module of this name."""
        return self.mains.get(name) or self.others.get(name) if isinstance(name, str) else None

    def of_globals(self, namespace: Mapping[str, Any]) -> ModuleType | None:
        """The module whose attributes these are."""
        module = self.get(namespace.get("__name__"))
        return module if module is not None and vars(module) is namespace else None

    @cached_property
    def _tops(self) -> set[str]:
        return {name.partition(".")[0] for name in (*self.mains, *self.others)}

    def shares_top(self, name: object) -> bool:
        """Whether a module of the program has the top-level name of this one."""
        return isinstance(name, str) and name.partition(".")[0] in self._tops


_submitted: dict[str, ModuleType] = {}  # the file of a command, and the modules it has imported
_targets: set[str] = set()  # those of them that were given to a command


@dataclass
class _Process:
    installed: Program | None = None  # that this process has received
    modules: tuple[Any, Modules] | None = None  # found by modules_here, and for what


_process = _Process()


def ship(modules: Iterable[ModuleType]) -> None:
    """Send these modules with topologies from now on: the file that declares one, which is sent by
    value, and the modules that it has imported. Those of a former call are no longer sent."""
    _process.modules = None
    _submitted.clear()
    _targets.clear()
    for module in modules:
        if not _targets:
            _targets.add(module.__name__)
        _submitted[module.__name__] = module


def modules_here(declared: ProgramModules | None = None) -> Modules:
    """The modules of the program of this process: those shipped, the script, and what they have
    imported from their folders; of another version those with which it was `declared`."""
    key = (id(_process.installed), {*_targets}, len(sys.modules), declared)
    if _process.modules is None or _process.modules[0] != key:
        _process.modules = key, _modules_here({} if declared is None else declared.all)
    return _process.modules[1]


def _modules_here(declared: Mapping[str, ModuleType]) -> Modules:
    modules = Modules()
    if _process.installed is not None:
        mains = {name for name, _ in _process.installed.mains}
        for name, module in [*sys.modules.items()]:
            if name in mains:
                modules.mains[name] = module
            elif file_of(module) is not None and _process.installed.has(name):
                modules.others[name] = module
        return modules
    for name in _targets:
        modules.mains[name] = _submitted[name]
    if _is_script(main := sys.modules["__main__"]):
        modules.mains["__main__"] = main
    folders = {
        os.path.dirname(file) for module in modules.mains.values() if (file := file_of(module))
    }
    for name, module in {**sys.modules, **_submitted, **declared}.items():
        if name in modules.mains or getattr(module, "__name__", None) != name:
            continue
        if _submitted.get(name) is module or _is_own(name, module, folders):
            modules.others[name] = module
    return modules


def _is_own(name: str, module: ModuleType, folders: Iterable[str]) -> bool:
    places = [file] if (file := file_of(module)) else [*getattr(module, "__path__", ())]
    if name.partition(".")[0] == "sunshower":
        return False
    return any(
        is_below(place, folder) and not is_library(place) for place in places for folder in folders
    )


def _is_script(main: ModuleType) -> bool:
    """Whether `__main__` is user code: a script, or what is typed into an interpreter."""
    if (file := file_of(main)) is None:
        return not hasattr(main, "__file__") and "execnet" not in vars(main)
    spec = getattr(main, "__spec__", None)
    is_command = os.path.dirname(file) == os.path.realpath(sysconfig.get_path("scripts"))
    name = spec.name if spec is not None else ""
    return not (is_command or is_library(file) or name.partition(".")[0] == "sunshower")


# ---- what is sent --------------------------------------------------------------------------------


def files_of(modules: Modules) -> tuple[tuple[str, ...], dict[str, bytes]]:
    """The roots and the files of a program: its modules, those beside them, and all modules of
    their packages. Raises TopologyError if they are too large."""
    roots: dict[str, None] = {}
    paths: dict[str, None] = {}
    for module in modules.mains.values():
        if (file := file_of(module)) is not None:
            paths[file] = None
            root = root_of(module.__spec__.name if module.__spec__ else module.__name__, file)
            roots[root] = None
            if root == os.path.dirname(file):
                paths |= dict.fromkeys(_beside(root))
    for name, module in modules.others.items():
        if (file := file_of(module)) is None or not file.endswith(_SUFFIXES):
            continue
        paths[file] = None
        root = root_of(name, file)
        roots[root] = None
        top = os.path.join(root, name.partition(".")[0])
        if _is_package(top):
            paths |= dict.fromkeys(_below(top))
    return _in_order(roots), _read(paths)


def _in_order(roots: Iterable[str]) -> tuple[str, ...]:
    places = {os.path.abspath(path): at for at, path in reversed([*enumerate(sys.path)])}
    return tuple(sorted(roots, key=lambda root: places.get(root, len(places))))


def _is_package(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, "__init__.py"))


def _beside(folder: str) -> Iterator[str]:
    """The modules of a folder, and those of the packages in it."""
    for entry in _entries(folder):
        if entry.is_file() and _is_module(entry.name):
            yield entry.path
        elif entry.is_dir() and entry.name.isidentifier() and _is_package(entry.path):
            yield from _below(entry.path)


def _below(folder: str) -> Iterator[str]:
    """The modules of a package, with those of all folders in it."""
    for entry in _entries(folder):
        if entry.is_file() and _is_module(entry.name):
            yield entry.path
        elif entry.is_dir() and entry.name.isidentifier() and entry.name not in LIBRARIES:
            yield from _below(entry.path)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)
    return []


def _is_module(name: str) -> bool:
    return name.endswith(_SUFFIXES) and name.partition(".")[0].isidentifier()


def _read(paths: Iterable[str]) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    size = 0
    for path in paths:
        with suppress(OSError):
            size += os.path.getsize(path)
            if size > BYTES_MAX:
                raise TopologyError(
                    f"the modules of the program have more than {BYTES_MAX:,} bytes, with {path}: "
                    "a topology is sent with the modules beside its file and their packages. Move "
                    "the file into a folder of its own"
                )
            contents[path] = Path(path).read_bytes()
    return contents


# ---- in a process that has received it -----------------------------------------------------------


def installed() -> Program | None:
    """The program that this process has received."""
    return _process.installed


def is_here(program: Program) -> bool:
    """Whether this process has submitted the program, or has it already."""
    return program.origin == _HERE or program == _process.installed


def here() -> str:
    """The origin of programs that this process submits."""
    return _HERE


def install(program: Program) -> dict[str, ModuleType]:
    """Let this process import the modules of a program, instead of others of these names. Returns
    those that are sent by value, which are empty."""
    remove(program if _process.installed is None else _process.installed)
    remove(program)
    _process.installed = program
    finders = _Folders(program)
    sys.path_hooks.insert(0, finders.folder)
    for folder in finders.folders:
        sys.path_importer_cache.pop(folder, None)
    sys.path[:] = [*program.roots, *(path for path in sys.path if path not in program.roots)]
    for path, content in program.files.items():
        if path.endswith(".py"):
            with suppress(SyntaxError, UnicodeDecodeError):
                lines = decode_source(content).splitlines(keepends=True)
                linecache.cache[path] = (len(content), None, lines, path)
    return {name: _empty(name, file) for name, file in program.mains}


def remove(program: Program) -> None:
    """Forget the modules that have the names of a program, so that they are imported again."""
    for name in [*sys.modules]:
        if name != "__main__" and name.partition(".")[0] in program.names:
            del sys.modules[name]
    if _process.installed is program:
        _process.installed = None
        for hook in [*sys.path_hooks]:
            if isinstance(getattr(hook, "__self__", None), _Folders):
                sys.path_hooks.remove(hook)
                for folder in hook.__self__.folders:  # type: ignore[attr-defined]
                    sys.path_importer_cache.pop(folder, None)
        sys.path[:] = [path for path in sys.path if path not in program.roots]
    invalidate_caches()


def import_all(program: Program) -> dict[str, Exception | SystemExit]:
    """Import what was imported where the program was submitted. Returns what could not be."""
    failed: dict[str, Exception | SystemExit] = {}
    for name in program.imported:
        try:
            import_module(name)
        except (Exception, SystemExit) as error:
            failed[name] = error
    return failed


def _empty(name: str, file: str | None) -> ModuleType:
    module = ModuleType(name)
    if file is not None:
        module.__file__ = file
        module.__spec__ = spec_from_file_location(name, file)
    _former.append(sys.modules.get(name))
    sys.modules[name] = module
    return module


_former: list[ModuleType | None] = []  # its functions may still run


class _Folders:
    """The folders of a program, as an entry of `sys.path_hooks`."""

    def __init__(self, program: Program) -> None:
        self.files = program.files
        self.folders: dict[str, set[str]] = {root: set() for root in program.roots}
        for file in program.files:
            path = file
            while (folder := os.path.dirname(path)) != path:
                self.folders.setdefault(folder, set()).add(os.path.basename(path))
                if folder in program.roots:
                    break
                path = folder

    def folder(self, path: str) -> _Folder:
        """The finder for a folder. Raises ImportError for a folder of others."""
        if path not in self.folders:
            raise ImportError(f"{path} is not a folder of the program")
        return _Folder(path, self)


class _Folder:
    """Finds the modules of one folder: those that were sent, or else those that are there."""

    def __init__(self, path: str, folders: _Folders) -> None:
        self.path = path
        self._names, self._folders = folders.folders[path], folders
        self._disk: Any = None
        for hook in sys.path_hooks:
            if not isinstance(getattr(hook, "__self__", None), _Folders):
                with suppress(ImportError):
                    self._disk = hook(path)
                    break

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        """See importlib.abc.PathEntryFinder."""
        name = fullname.rpartition(".")[2]
        package = os.path.join(self.path, name)
        if name in self._names and "__init__.py" in self._folders.folders.get(package, ()):
            return self._spec(fullname, os.path.join(package, "__init__.py"), [package])
        for suffix in (*EXTENSION_SUFFIXES, ".py"):
            if name + suffix in self._names:
                return self._spec(fullname, package + suffix)
        spec: ModuleSpec | None = self._disk.find_spec(fullname, target) if self._disk else None
        if spec is None and name in self._names:  # a part of a namespace package
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [package]
        return spec

    def _spec(self, name: str, path: str, inside: list[str] | None = None) -> ModuleSpec | None:
        content = self._folders.files[path]
        if path.endswith(".py"):
            loader: Any = _Source(name, path, content)
        else:
            path = _extracted(path, content)
            loader = ExtensionFileLoader(name, path)
        return spec_from_file_location(name, path, loader=loader, submodule_search_locations=inside)

    def invalidate_caches(self) -> None:
        """See importlib.abc.PathEntryFinder."""
        if self._disk is not None:
            self._disk.invalidate_caches()

    def iter_modules(self, prefix: str = "") -> Iterator[tuple[str, bool]]:
        """The modules of this folder and whether they are packages, for `pkgutil`."""
        for name in sorted(self._names):
            is_package = "__init__.py" in self._folders.folders.get(f"{self.path}/{name}", ())
            module = name if is_package else name.partition(".")[0]
            if (is_package or name.endswith(_SUFFIXES)) and module != "__init__":
                yield prefix + module, is_package


class _Source(SourceFileLoader):
    """Loads a module from the source that was sent, whatever its file contains now."""

    def __init__(self, name: str, path: str, content: bytes) -> None:
        super().__init__(name, path)
        self._content = content

    def get_data(self, path: str) -> bytes:
        return self._content if path == self.path else super().get_data(path)

    def get_code(self, fullname: str) -> Any:
        return self.source_to_code(self._content, self.path)  # no cached byte code of the file


def _extracted(path: str, content: bytes) -> str:
    """The path of a file with this content, which only this user can change."""
    with suppress(OSError):
        if Path(path).read_bytes() == content:
            return path
    folder = Path(tempfile.gettempdir(), f"sunshower-modules-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) != 0o700:
        raise ImportError(f"other users can change {folder}, where modules are stored: remove it")
    folder = folder / hashlib.sha256(content).hexdigest()
    folder.mkdir(mode=0o700, exist_ok=True)
    file = folder / os.path.basename(path)
    if not file.exists():
        unfinished = folder / f"{file.name}.{secrets.token_hex(8)}"
        unfinished.write_bytes(content)
        unfinished.replace(file)
    return str(file)


# ---- classes by value ---------------------------------------------------------------------------


def class_reduced(kind: Any) -> tuple[Any, ...]:
    """How a class is pickled by value. A Struct of msgspec is made with its fields. Of another,
    cloudpickle makes an empty class, and then sets its attributes; it gets its slots at once."""
    described = record_type_of(kind)
    if isinstance(described, StructClass):
        return _struct_class, (kind.__name__, kind.__bases__, *described.definition())
    make, arguments, *others = internals._dynamic_class_reduce(kind)
    slots = vars(kind).get("__slots__")
    has_slots = any(isinstance(value, MemberDescriptorType) for value in vars(kind).values())
    if has_slots and isinstance(slots, str | tuple | list | dict):
        metaclass, name, bases, names, *more = arguments
        arguments = (metaclass, name, bases, {**names, "__slots__": slots}, *more)
    return make, arguments, *others


def _struct_class(
    name: str,
    bases: tuple[type, ...],
    content: dict[str, Any],
    factories: dict[str, Any],
    config: dict[str, Any],
) -> type:
    declare = import_module("msgspec").field
    fields = {
        attribute: declare(default_factory=factory) for attribute, factory in factories.items()
    }
    return new_class(name, bases, config, lambda names: names.update({**content, **fields}))


# ---- outlines ------------------------------------------------------------------------------------

# What a master asks of a class besides its bases.
Outline = tuple[tuple[type, ...], tuple[str, ...], tuple[str, ...] | None]


def outline_of(kind: type) -> Outline:
    """The classes that it derives from, as far as they are of the program or Sunshower's, the names
    of its attributes, and the fields of a record. An Enum is a class of the program alone."""
    bases = tuple(
        base for base in kind.__bases__ if base.__module__ not in ("builtins", "typing", "enum")
    )
    described = record_type_of(kind)
    return bases, _names_of(kind), (described.fields or None) if described else None


def _names_of(kind: type) -> tuple[str, ...]:
    return tuple(name for name in vars(kind) if not name.startswith("__") or "sunshower" in name)


class OutlineUnpickler(pickle.Unpickler):
    """Unpickles the plan of a program without importing its modules."""

    def __init__(self, data: bytes, program: Program) -> None:
        super().__init__(io.BytesIO(data))
        self._program = program
        self._replaced: Mapping[str, Any] = {
            "_class_named": self._class,
            "_function_named": self._function,
            "_globals_of": lambda _: {},
            "import_module": ModuleType,
            "subimport": ModuleType,
            "_empty": self.empty,
            "_member": self.member,
        }

    def find_class(self, module: str, name: str) -> Any:
        if name in self._replaced:
            return self._replaced[name]
        if self._program.has(module):
            return self._function(module, name)
        return super().find_class(module, name)

    @staticmethod
    def _class(module: str, name: str, outlined: Outline) -> type:
        bases, names, fields = outlined
        kinds = {kind: None for base in bases if isinstance(base, type) for kind in base.__mro__}
        known = [kind for kind in kinds if kind.__module__.startswith("sunshower.") or
                 issubclass(kind, EmptyObject)]  # fmt: skip
        above = {base for kind in known for base in kind.__mro__[1:]}
        ours = tuple(kind for kind in known if kind not in above)
        of_others = [kind for kind in kinds if kind not in known and kind is not object]
        inherited = [name for kind in of_others for name in _names_of(kind)]
        content: dict[str, Any] = dict.fromkeys((*inherited, *names))
        content |= {"__module__": module, "__qualname__": name}
        if fields is not None:
            content["_fields"] = fields
            ours = ours or (tuple,)
        with_empty = (
            ours if any(issubclass(base, EmptyObject) for base in ours) else (EmptyObject, *ours)
        )
        empty: type = type(name.rpartition(".")[2], with_empty, content)
        return empty

    @staticmethod
    def empty(kind: Any, items: Any) -> Any:
        """A record: see `reduced`."""
        if issubclass(kind, EmptyObject):
            return kind()
        return object.__new__(kind) if items is None else tuple.__new__(kind, items)

    @staticmethod
    def member(kind: Any, key: Any) -> Any:
        """A member of an Enum: see `reduced`."""
        return kind() if issubclass(kind, EmptyObject) else member_of(kind)(key)

    @staticmethod
    def _function(module: str, name: str) -> Any:
        def function(*_: Any, **__: Any) -> None:
            raise AssertionError(f"{module}.{name} runs only in workers")

        function.__module__, function.__qualname__ = module, name
        function.__name__ = name.rpartition(".")[2]
        return function


class EmptyObject:
    """The objects of classes of the program, where their code is not."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        return tuple.__new__(cls) if issubclass(cls, tuple) else object.__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        """Takes anything."""

    def __setstate__(self, state: Any) -> None:
        parts = state if isinstance(state, tuple) else (state,)
        for part in parts:
            if isinstance(part, dict) and hasattr(self, "__dict__"):
                vars(self).update(part)

    def append(self, _: Any) -> None:
        """As of a list."""

    def __setitem__(self, _: Any, __: Any) -> None:
        """As of a dict."""
