"""Pickles user code by value, so that workers need not import the submitter's modules.

In a savepoint the classes of user code are stored by name instead (CodeClasses): after
`submit --resume` they are other objects, and a record of a former class fits no stream.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from ray import cloudpickle
from ray.cloudpickle.cloudpickle import _should_pickle_by_reference  # no public API: see the pin

from sunshower.actors.starting import first_line
from sunshower.errors import LifecycleError, TopologyError
from sunshower.records import reduced
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
            _dumps(component, plan)
        except Exception as error:
            raise TopologyError(
                f"component {component.id!r} cannot be sent to its worker: {first_line(error)}. "
                "Open files, sockets and locks belong into prepare() or open(), not into the "
                "object that is declared"
            ) from error
    data = _dumps(plan, plan)
    if not _generated:
        return data
    with_source: bytes = cloudpickle.dumps(_WithSource(data, _generated))
    return with_source


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles generated modules and their classes by name, also below a package that is shipped,
    and records so that no code of their classes runs."""

    def __init__(self, file: io.BytesIO, plan: Plan) -> None:
        super().__init__(file)
        self._declared = plan.record_types

    def reducer_override(self, obj: Any) -> Any:
        if (parts := reduced(obj, self._declared)) is not NotImplemented:
            return parts
        if isinstance(obj, ModuleType) and obj.__name__ in _generated:
            return import_module, (obj.__name__,)
        if isinstance(obj, type) and obj.__module__ in _generated:
            return NotImplemented  # by name
        return super().reducer_override(obj)


def _dumps(value: Any, plan: Plan) -> bytes:
    file = io.BytesIO()
    _Pickler(file, plan).dump(value)
    return file.getvalue()


class CodeClasses:
    """Pickles values for a savepoint, and reads them, with the classes of the code of a `plan` by
    module and name: all classes that its components, or functions and methods of them, refer to.

    Others are pickled as usual: by name if a module that can be imported has them.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    @cached_property
    def _found(self) -> dict[_ClassName, type]:
        collector = _ClassCollector(io.BytesIO(), self._plan)
        collector.dump(self._plan)
        return collector.found

    def dumps(self, value: Any) -> bytes:
        """Raises LifecycleError for a class that can neither be imported nor is in the plan."""
        file = io.BytesIO()
        _NamingPickler(file, self._plan, self).dump(value)
        return file.getvalue()

    def dumps_by_value(self, value: Any) -> bytes:
        """The same with the classes, for a process of this run."""
        return _dumps(value, self._plan)

    def loads(self, data: bytes) -> Any:
        """The value that `dumps`, or cloudpickle, has pickled. Raises LifecycleError for a class
        that the plan does not have; like pickle, anything else."""
        return _NamingUnpickler(io.BytesIO(data), self).load()

    def name_of(self, kind: type) -> _ClassName | None:
        """The name of a class that cannot be imported; None: it can."""
        if kind.__module__ == "builtins" or _should_pickle_by_reference(kind):
            return None
        name = _class_name(kind)
        if self._found.get(name) is not kind:
            raise LifecycleError(f"no code of the topology refers to {_format_class(name)}")
        return name

    def named(self, name: _ClassName) -> type:
        """The class with this name."""
        if name not in self._found:
            raise LifecycleError(f"the code has no {_format_class(name)}")
        return self._found[name]


_ClassName = tuple[str, str]  # module, qualified name


def _class_name(kind: type) -> _ClassName:
    return kind.__module__, kind.__qualname__


def _format_class(name: _ClassName) -> str:
    return f"class {name[1]} of module {name[0]}"


class _ClassCollector(_Pickler):
    """Finds the classes that are pickled with a value."""

    def __init__(self, file: io.BytesIO, plan: Plan) -> None:
        super().__init__(file, plan)
        self.found: dict[_ClassName, type] = {}

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type):
            self.found.setdefault(_class_name(obj), obj)
        return super().reducer_override(obj)


class _NamingPickler(_Pickler):
    def __init__(self, file: io.BytesIO, plan: Plan, classes: CodeClasses) -> None:
        super().__init__(file, plan)
        self._classes = classes

    def persistent_id(self, obj: Any) -> _ClassName | None:
        return self._classes.name_of(obj) if isinstance(obj, type) else None


class _NamingUnpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, classes: CodeClasses) -> None:
        super().__init__(file)
        self._classes = classes

    def persistent_load(self, pid: Any) -> type:
        return self._classes.named(pid)


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
