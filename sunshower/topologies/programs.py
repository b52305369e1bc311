"""Lets versions of a program run in one process, one at a time: each finds its own modules.

A worker on Ray has one version. The simulator and `run_inline` may have several: an upgrade, or two
topologies whose modules have the same names.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from types import ModuleType

LIBRARIES = frozenset({"site-packages", "dist-packages", "node_modules", "__pycache__"})
_STANDARD = sysconfig.get_path("stdlib")


def file_of(module: ModuleType) -> str | None:
    """The path of a module's file."""
    file = getattr(module, "__file__", None)
    return str(Path(file).absolute()) if isinstance(file, str) else None


def is_below(path: str, folder: str) -> bool:
    """Whether a path is in a folder, or in one below it."""
    return path.startswith(f"{folder.rstrip('/')}/")


def is_library(path: str) -> bool:
    """Whether a file is of an installed package, or of Python."""
    return _is_of_library(path.rpartition("/")[0])


def is_users(name: str, module: ModuleType) -> bool:
    """Whether the module of this name is neither Sunshower's nor of a library."""
    file = None if name.partition(".")[0] == "sunshower" else file_of(module)
    return file is not None and not is_library(file)


@lru_cache(maxsize=4096)
def _is_of_library(folder: str) -> bool:
    return not LIBRARIES.isdisjoint(folder.split("/")) or is_below(f"{folder}/", _STANDARD)


def root_of(name: str, file: str) -> str:
    """The folder on sys.path from which a module was imported."""
    is_package = Path(file).name.partition(".")[0] == "__init__"
    return str(Path(file).parents[name.count(".") + is_package])


class ProgramModules:
    """The modules of a process when a topology was declared. Other processes do not get them."""

    def __init__(self) -> None:
        self.all = dict(sys.modules)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()

    @cached_property
    def _of_users(self) -> dict[str, ModuleType]:
        return {name: module for name, module in self.all.items() if is_users(name, module)}

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Let imports find these modules, also if the process has others of their names now.
        Modules that are imported meanwhile from their folders belong to them."""
        other: dict[str, ModuleType | None] = {
            name: sys.modules.get(name)
            for name, module in self._of_users.items()
            if sys.modules.get(name) is not module
        }
        if not other:
            yield
            return
        roots = {str(_root(name, self._of_users[name])): None for name in other}
        hidden = {_root(name, entry) for name, entry in other.items() if entry is not None}
        for name in sys.modules.keys() - self.all.keys() - self._of_users.keys():
            if _root(name, sys.modules[name]) in hidden:
                other[name] = sys.modules[name]
        path = [*sys.path]
        sys.path[:] = [*roots, *(entry for entry in path if entry not in hidden | roots.keys())]
        for name in other:
            sys.modules.pop(name, None)
        sys.modules.update({name: self._of_users[name] for name in other if name in self._of_users})
        before = {*sys.modules}
        try:
            yield
        finally:
            for name in sys.modules.keys() - before:
                if _root(name, sys.modules[name]) in roots:
                    self._of_users[name] = sys.modules[name]
                    other.setdefault(name, None)
            for name, module in other.items():
                if module is not None:
                    sys.modules[name] = module
                else:
                    sys.modules.pop(name, None)
            sys.path[:] = path


def _root(name: str, module: ModuleType | None) -> str | None:
    file = None if module is None else file_of(module)
    return None if file is None else root_of(name, file)
