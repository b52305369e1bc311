"""Pickles user code by value, so that workers need not import the submitter's modules."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from ray import cloudpickle

from sunshower.actors.starting import first_line
from sunshower.errors import TopologyError
from sunshower.runtime.plan import Plan

# The source of modules that protoc has generated, by module name: of those that this process has
# shipped or received. Their classes cannot be pickled by value: a worker imports them.
_generated: dict[str, str] = {}


def ship(modules: Iterable[ModuleType]) -> None:
    """Pickle the definitions of these imported modules by value from now on, not by name. Modules
    that protoc has generated are sent as source."""
    for module in modules:
        if type(vars(module).get("DESCRIPTOR")).__name__ == "FileDescriptor" and module.__file__:
            _generated[module.__name__] = Path(module.__file__).read_text(encoding="utf-8")
        else:
            cloudpickle.register_pickle_by_value(module)


def pickled(plan: Plan) -> bytes:
    """Pickle the plan by value. Raises TopologyError naming a component that cannot be pickled."""
    for component in plan.graph.components.values():
        try:
            _dumps(component)
        except Exception as error:
            raise TopologyError(
                f"component {component.id!r} cannot be sent to its worker: {first_line(error)}. "
                "Open files, sockets and locks belong into prepare() or open(), not into the "
                "object that is declared"
            ) from error
    data = _dumps(plan)
    if not _generated:
        return data
    with_source: bytes = cloudpickle.dumps(_WithSource(data, _generated))
    return with_source


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles generated modules and their classes by name, also below a package that is shipped."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ModuleType) and obj.__name__ in _generated:
            return import_module, (obj.__name__,)
        if isinstance(obj, type) and obj.__module__ in _generated:
            return NotImplemented  # by name
        return super().reducer_override(obj)


def _dumps(value: Any) -> bytes:
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


class _WithSource:
    """A pickled object, and the source of modules that it needs. Unpickled, it is the object."""

    def __init__(self, data: bytes, sources: Mapping[str, str]) -> None:
        self.data, self.sources = data, dict(sources)

    def __reduce__(self) -> tuple[Any, ...]:
        return _loads, (self.data, self.sources)


def _loads(data: bytes, sources: dict[str, str]) -> Any:
    for name, source in sources.items():
        if name in sys.modules and _generated.get(name, source) != source:
            raise TopologyError(
                f"the module {name}, which protoc has generated, has changed, and a process cannot "
                "have two versions of its messages: submit the topology again instead"
            )
    _generated.update(sources)
    if _FINDER not in sys.meta_path:
        sys.meta_path.append(_FINDER)  # last: a module that is installed has precedence
    return cloudpickle.loads(data)


class _Finder(MetaPathFinder, InspectLoader):
    """Imports generated modules from their source, and the packages around them."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        spec: ModuleSpec | None = None
        if name in _generated or self.is_package(name):
            spec = spec_from_loader(name, self, is_package=self.is_package(name))
        return spec

    def is_package(self, fullname: str) -> bool:
        return any(name.startswith(f"{fullname}.") for name in _generated)

    def get_source(self, fullname: str) -> str:
        return _generated.get(fullname, "")


_FINDER = _Finder()
