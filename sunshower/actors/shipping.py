"""Pickles plans, and what belongs to their code, by the names of modules that are sent along.

What a module of the program defines is pickled by its name, and a worker imports that module from
the source that was sent (programs.py). The file that declares the topology is not run again: its
functions, classes and values are pickled, and are the content of its module in a worker.
"""

from __future__ import annotations

import copyreg
import functools
import io
import logging
import pickle
import sys
import typing
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from importlib import import_module
from itertools import repeat
from pathlib import PurePath
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ray import cloudpickle
from ray.cloudpickle import cloudpickle as internals  # no public API: see the pin of ray
from ray.cloudpickle.cloudpickle import _should_pickle_by_reference

from sunshower.actors import programs
from sunshower.actors.programs import (
    EmptyObject,
    Modules,
    Outline,
    OutlineUnpickler,
    Program,
    modules_here,
    outline_of,
    ship,
)
from sunshower.actors.starting import first_line
from sunshower.errors import LifecycleError, TopologyError
from sunshower.records import reduced
from sunshower.runtime.plan import Plan
from sunshower.topologies.describe import unsendable_part

__all__ = ["CodeClasses", "outline", "pickled", "ship"]

_VALUE_BYTES_MAX = 1 << 20  # of a value that no code uses, or of a module sent as source
_TOO_LARGE = f"it has more than {_VALUE_BYTES_MAX:,} bytes, and no code of the topology uses it"
_Name = tuple[str, str]  # module, name in it
_OF_SHELL = ("In", "Out", "get_ipython", "exit", "quit")
_REFLECTION = {"globals", "vars", "dir", "getmembers", "eval", "exec"}
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that was made by a class statement
_LOG = logging.getLogger("sunshower")


# ---- plans --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shipped:
    """A pickled plan, and the program that it needs. Unpickled, it is the plan."""

    program: Program | None
    plan: bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_plan, (self.program, self.plan)


def pickled(plan: Plan) -> bytes:
    """Pickle a plan, with its program. Raises TopologyError for what cannot be sent."""
    modules = modules_here(plan.graph.modules)
    check_components(plan, modules)
    pickler = _Pickler(file := io.BytesIO(), modules, declared=plan.record_types)
    pickler.dump(plan)
    program = programs.installed()
    if program is None and pickler.names:
        program = _program(plan, modules, pickler.names)
    data: bytes = cloudpickle.dumps(Shipped(program, file.getvalue()))
    return data


def check_components(plan: Plan, modules: Modules, pickler: type[_Pickler] | None = None) -> None:
    """Raise TopologyError for a component that cannot be pickled so."""
    send = partial((pickler or _Pickler).dumps, modules=modules, declared=plan.record_types)
    for id, component in plan.graph.components.items():
        try:
            send(component)
        except Exception as error:
            raise TopologyError(
                f"component {id!r} cannot be sent to its worker: {first_line(error)}"
                f"{unsendable_part(component, send)}. Open files, sockets and locks belong into "
                "prepare() or open()"
            ) from error


def _shipped(data: bytes) -> Shipped:
    parts = _Parts(io.BytesIO(data)).load()
    return parts if isinstance(parts, Shipped) else Shipped(None, data)


def outline(data: bytes) -> Plan:
    """A pickled plan without its code: no module of the program is imported, and no code of it
    runs. Each of its classes is an empty one that has the same name, bases of Sunshower's, and
    names of attributes."""
    shipped = _shipped(data)
    if shipped.program is None:
        plan: Plan = pickle.loads(shipped.plan)  # noqa: S301 (of this cluster)
    else:
        plan = OutlineUnpickler(shipped.plan, shipped.program).load()
    return plan


class _Parts(pickle.Unpickler):
    """Unpickles a Shipped, and not the plan."""

    def find_class(self, module: str, name: str) -> Any:
        return Shipped if name == _load_plan.__name__ else super().find_class(module, name)


def _load_plan(program: Program | None, data: bytes) -> Plan:
    if program is not None and not programs.is_here(program):
        _enter(program)
    plan: Plan = pickle.loads(data)  # noqa: S301 (of this cluster)
    return plan


def _enter(program: Program) -> None:
    """Make the modules of a program those of this process."""
    mains = programs.install(program)
    try:
        for name, module in mains.items():
            vars(module)["__getattr__"] = functools.partial(_attribute, name)
        entries, state = pickle.loads(program.state)  # noqa: S301 (of this cluster)
        objects = _Objects(entries)
        _rest[:] = [functools.partial(objects.loads, program.rest)]
        objects.loads(program.values)
        for name, error in programs.import_all(program).items():
            _LOG.warning(
                "the module %s of the program cannot be imported here: %s. A worker imports the "
                "modules of the program; what only the process that submits can do belongs into "
                "the file that declares the topology, or into a function",
                name,
                first_line(error),
            )
        _set_state(objects, state)
    except BaseException:
        programs.remove(program)
        raise


def _program(plan: Plan, modules: Modules, names: Iterable[_Name]) -> Program:
    roots, files = programs.files_of(modules)
    of_modules = _ModuleValues(modules)
    values, used, errors = _values(modules, of_modules)
    of_modules.name_copies()
    needed = _needed(used, [*names, *(name for name in used if _is_class(name, modules))])
    errors = {name: why for name, why in errors.items() if why != _TOO_LARGE or name not in needed}
    if needed & errors.keys():
        check_components(plan, modules, _ByValue)
    parts: tuple[list[_Set], list[_Set]] = [], []
    for name, value in values.items():
        sent = _Missing(errors[name]) if name in errors else value
        parts[name not in needed].append(_Set(*name, sent))
    return Program(
        programs.here(),
        roots,
        files,
        tuple(modules.others),
        tuple((name, getattr(module, "__file__", None)) for name, module in modules.mains.items()),
        of_modules.dumps(parts[0], defines=True),
        of_modules.dumps(parts[1], defines=True),
        of_modules.state(),
    )


def _values(
    modules: Modules, of_modules: _ModuleValues
) -> tuple[dict[_Name, Any], dict[_Name, set[_Name]], dict[_Name, str]]:
    """What the modules that are sent by value contain, what the code of each of these uses, and
    which of them cannot be sent, with the reason."""
    values: dict[_Name, Any] = {}
    used: dict[_Name, set[_Name]] = {}
    errors: dict[_Name, str] = {}
    for module, contents in modules.mains.items():
        for key, value in _contents(contents):
            pickler = of_modules.pickler(_Limited(_VALUE_BYTES_MAX), defines=True)
            values[module, key], used[module, key] = value, pickler.names
            try:
                pickler.dump([value])
            except _TooLarge:
                errors[module, key] = _TOO_LARGE
            except Exception as error:
                errors[module, key] = first_line(error)
    return values, used, errors


def _needed(used: Mapping[_Name, set[_Name]], names: Iterable[_Name]) -> set[_Name]:
    """These names, and all that their code uses."""
    needed = set[_Name]()
    frontier = [*names]
    while frontier:
        if (name := frontier.pop()) not in needed:
            needed.add(name)
            frontier += used.get(name, ())
    return {*used} if {key for _, key in needed} & _REFLECTION else needed


def _is_class(name: _Name, modules: Modules) -> bool:
    value = vars(modules.mains[name[0]]).get(name[1])
    return isinstance(value, type) and _module_of(value, modules) == name[0]


def _contents(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """What a module contains that is sent by value."""
    is_shell = "get_ipython" in vars(module)
    for key, value in [*vars(module).items()]:
        of_shell = is_shell and (key[:1] == "_" or key in _OF_SHELL)
        if not key.startswith("__") and not of_shell:
            yield key, value


class _Set:
    """An attribute of a module. Unpickled, the module has it."""

    def __init__(self, module: str, key: str, value: Any) -> None:
        self._entry = module, key, value

    def __reduce__(self) -> tuple[Any, ...]:
        return _set_attribute, self._entry


def _set_attribute(module: str, key: str, value: Any) -> None:
    if isinstance(value, _Missing):
        _missing[module, key] = value.why
    else:
        vars(sys.modules[module]).setdefault(key, value)


_missing: dict[tuple[str, str], str] = {}  # module and attribute that could not be sent, and why
_rest: list[Callable[[], Any]] = []  # loads more when an attribute is missing


def _attribute(module: str, key: str) -> Any:
    """The `__getattr__` of modules that are sent by value."""
    while _rest and not key.startswith("__"):
        _rest.pop()()
        if key in vars(sys.modules[module]):
            return vars(sys.modules[module])[key]
    why = _missing.get((module, key))
    raise AttributeError(
        f"module {module!r} has no attribute {key!r}"
        + (f" in a worker, because it cannot be sent: {why}" if why else "")
    )


@dataclass(frozen=True)
class _Missing:
    why: str


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


# ---- picklers -----------------------------------------------------------------------------------


class _TooLarge(Exception):
    """What is pickled has more bytes than the limit."""


class _Limited(io.BytesIO):
    """A file that refuses more than `limit` bytes."""

    def __init__(self, limit: int | None) -> None:
        super().__init__()
        self._limit = limit

    def write(self, data: Any) -> int:
        if self._limit is not None and self.tell() + len(data) > self._limit:
            raise _TooLarge
        return super().write(data)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles modules of the program, and what they define, by name; `defines`: those that are
    sent by value define it here.

    A function that has no such name is pickled by value, and is a function of its module there.
    Records are pickled so that no code of their classes runs; `declared`: the record types of the
    plan (see `reduced`).
    """

    def __init__(
        self,
        file: io.BytesIO,
        modules: Modules,
        *,
        defines: bool = False,
        declared: Container[type[Any]] = (),
    ) -> None:
        super().__init__(file)
        self.names = set[_Name]()  # of the program, that the code uses
        self._modules, self._defines, self._declared = modules, defines, declared

    @classmethod
    def dumps(
        cls,
        value: Any,
        modules: Modules,
        *,
        defines: bool = False,
        declared: Container[type[Any]] = (),
        limit: int | None = None,
    ) -> bytes:
        """Pickle a value. Raises whatever its pickling raises, _TooLarge above the limit."""
        file = _Limited(limit)
        cls(file, modules, defines=defines, declared=declared).dump(value)
        return file.getvalue()

    def reducer_override(self, obj: Any) -> Any:
        if (parts := reduced(obj, self._declared)) is not NotImplemented:
            return parts
        if isinstance(obj, ModuleType):
            if self._modules.get(obj.__name__) is not obj:
                return NotImplemented
            self.names.add((obj.__name__, ""))
            return import_module, (obj.__name__,)
        if isinstance(obj, type | FunctionType):
            if (module := _module_of(obj, self._modules)) is None:
                return _of_unnamed(obj) or self._of_others(obj)
            self.names.add((module, obj.__qualname__.partition(".")[0]))
            if self._defines and module in self._modules.mains:
                return self._defined(obj)
            if isinstance(obj, type):
                return _class_named, (module, obj.__qualname__, outline_of(obj))
            return _function_named, (module, obj.__qualname__)
        if self._defines and getattr(obj, "__module__", None) in self._modules.mains:
            return _definition(obj)
        return NotImplemented

    def _of_others(self, obj: type | FunctionType) -> Any:
        """As cloudpickle does; but with its outline what a module outside of the program has, if it
        shares the top-level name of one of the program: a master imports none of that name."""
        if not (self._modules.shares_top(obj.__module__) and _should_pickle_by_reference(obj)):
            return super().reducer_override(obj)
        name = (obj.__module__, obj.__qualname__)
        if isinstance(obj, type):
            return _class_named, (*name, outline_of(obj))
        return _function_named, name

    def _defined(self, obj: Any) -> tuple[Any, ...]:
        """A class or function by value, which its module has as soon as it exists."""
        make, *others = programs.class_reduced(obj) if isinstance(obj, type) else self._dynamic(obj)
        return _define, (obj.__module__, obj.__qualname__, make, others[0]), *others[1:]

    def _dynamic(self, function: FunctionType) -> tuple[Any, ...]:
        reduced: tuple[Any, ...] = super()._dynamic_function_reduce(function)
        module = self._modules.of_globals(function.__globals__)
        if module is None:
            return reduced
        make, (code, _, *others), (state, slots), *rest = reduced
        self.names.update((module.__name__, name) for name in _names_in(function.__code__))
        slots["__globals__"] = {}
        return make, (code, _Globals(module.__name__), *others), (state, slots), *rest

    _dynamic_function_reduce = _dynamic


class _ByValue(_Pickler):
    """Pickles all that the program defines by value, with the values that its code uses."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type | FunctionType) and _module_of(obj, self._modules) is not None:
            if isinstance(obj, type):
                return programs.class_reduced(obj)
            return self._dynamic_function_reduce(obj)
        return _of_unnamed(obj) or cloudpickle.Pickler.reducer_override(self, obj)

    _dynamic_function_reduce = cloudpickle.Pickler._dynamic_function_reduce


def _module_of(obj: Any, modules: Modules) -> str | None:
    """The module of the program that has a class or function under its name."""
    name = getattr(obj, "__module__", None)
    if (module := modules.get(name)) is None:
        return None
    value: Any = module
    for part in obj.__qualname__.split("."):
        value = vars(value).get(part) if isinstance(value, type | ModuleType) else None
    value = getattr(value, "__func__", value) if isinstance(obj, FunctionType) else value
    return module.__name__ if value is obj else None


def _of_unnamed(obj: type | FunctionType) -> tuple[Any, ...] | None:
    """A class that no module has under its name is pickled by value; one of an extension, as
    `cimpl.Consumer` of confluent_kafka.cimpl, by the module that has it."""
    if not isinstance(obj, type) or _should_pickle_by_reference(obj):
        return None
    if obj.__flags__ & _HEAP_TYPE:
        return programs.class_reduced(obj)
    for name, module in [*sys.modules.items()]:
        owns = isinstance(module, ModuleType) and f".{name}".endswith(f".{obj.__module__}")
        if owns and vars(module).get(obj.__qualname__) is obj:
            return getattr, (module, obj.__qualname__)
    return None


def _definition(obj: Any) -> Any:
    """How to pickle an object that pickles itself as a name in its module, where that defines it.
    Raises PicklingError for an unknown type of these."""
    if isinstance(obj, typing.TypeVar):
        return internals._make_typevar, internals._decompose_typevar(obj)
    if isinstance(obj, typing.NewType):
        return _new_type, (obj.__name__, obj.__supertype__, obj.__module__)
    if isinstance(obj, functools._lru_cache_wrapper):
        limits = obj.cache_parameters()
        return _cached, (obj.__wrapped__, limits["maxsize"], limits["typed"])
    if isinstance(reduced := obj.__reduce_ex__(pickle.HIGHEST_PROTOCOL), str):
        raise pickle.PicklingError(f"cannot pickle the {type(obj).__name__} {reduced}")
    return NotImplemented


def _new_type(name: str, supertype: Any, module: str) -> Any:
    new_type: Any = typing.NewType(name, supertype)  # type: ignore[misc]
    new_type.__module__ = module
    return new_type


def _cached(function: Any, maxsize: int | None, typed: bool) -> Any:
    return functools.lru_cache(maxsize, typed)(function)


class _Globals:
    """The attributes of a module, as the globals of a function."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __reduce__(self) -> tuple[Any, ...]:
        return _globals_of, (self._module,)


def _globals_of(module: str) -> dict[str, Any]:
    return vars(import_module(module))


def _define(module: str, name: str, make: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    with _without_init_subclass(args):
        obj = make(*args)
    if name.isidentifier():
        vars(sys.modules[module]).setdefault(name, obj)
    return obj


@contextmanager
def _without_init_subclass(args: tuple[Any, ...]) -> Iterator[None]:
    """Do not call the hook of base classes that are sent by value: its effects are sent, too."""
    bases = {
        kind for value in args if isinstance(value, tuple) for kind in value if _is_defined(kind)
    }
    hooks = [(value, vars(value)["__init_subclass__"]) for base in bases for value in base.__mro__
             if _is_defined(value) and "__init_subclass__" in vars(value)]  # fmt: skip
    for kind, _ in hooks:
        kind.__init_subclass__ = classmethod(_do_nothing)
    try:
        yield
    finally:
        for kind, hook in hooks:
            kind.__init_subclass__ = hook


def _do_nothing(_: type, /, **__: Any) -> None:
    """Instead of a hook."""


def _is_defined(kind: Any) -> bool:
    """Whether a class is in a module that is sent by value."""
    program = programs.installed()
    mains = {name for name, _ in program.mains} if program is not None else set()
    return isinstance(kind, type) and kind.__module__ in mains


def _class_named(module: str, name: str, _: Outline | None = None) -> Any:
    """The class or function of this name."""
    value: Any = import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _function_named(module: str, name: str) -> Any:
    return _class_named(module, name)


# ---- the values of modules that are sent as source ----------------------------------------------

_SCALARS = (type(None), bool, int, float, complex, str, bytes, PurePath)
_CONTAINERS = (dict, list, set, deque)
_FIXED = (*_SCALARS, tuple, frozenset)
_State = list[tuple[Any, dict[str, Any]]]  # module or class, and values of its attributes
_Attributes = tuple[dict[str, Any], dict[str, Any]]  # those of the object, and those in slots
_Place = tuple[Any, tuple[str, ...]]  # module or class; its attribute, and attributes or keys in it


class _ModuleValues:
    """The values in modules that are sent as source, and in their classes: a worker has them as
    they are here, also if they were changed after the import.

    An object that can be changed is sent as its place and its content. The worker changes the
    object that its import has put there, so that all that refers to it sees the change. What cannot
    be sent, such as a lock, is what the import has put there. All other pickles of the program
    refer to these objects by a number.
    """

    def __init__(self, modules: Modules) -> None:
        self._modules = modules
        owners: list[Any] = []
        for name, module in modules.others.items():
            kinds = [value for value in vars(module).values() if isinstance(value, type)]
            own_kinds = [kind for kind in kinds if _module_of(kind, modules) == name]
            owners += [module, *(kind for kind in own_kinds if not issubclass(kind, Enum))]
        self._state = [(owner, _values_in(owner, modules)) for owner in owners]
        self._numbers: dict[int, int] = {}  # by id
        self._objects: list[Any] = []
        self._places: list[_Place | None] = []
        self._copied = set[int]()  # ids of objects that were pickled as they are
        self._changeable = _places(self._state)
        for value, place in self._changeable:
            self._number(value, place)
        for owner, key, value in self._unnumbered():
            if not _is_sendable(value, modules):
                self._number(value, (owner, (key,)))

    def _number(self, value: Any, place: _Place | None) -> None:
        self._numbers[id(value)] = len(self._objects)
        self._objects.append(value)
        self._places.append(place)

    def _unnumbered(self) -> Iterator[tuple[Any, str, Any]]:
        """The other objects that modules and classes have, with their places."""
        for owner, _ in self._state:
            for key, value in [*vars(owner).items()]:
                if (key.startswith("_") and key.endswith("_")) or id(value) in self._numbers:
                    continue
                if not isinstance(value, (*_SCALARS, type, FunctionType, ModuleType, Enum)):
                    yield owner, key, value

    def name_copies(self) -> None:
        """Let what was pickled as it is have a number, if a module has it, too."""
        self._dumps_state()
        values = {id(owner): values for owner, values in self._state}
        for owner, key, value in [*self._unnumbered()]:
            if id(value) in self._copied:
                values[id(owner)][key] = value
                if id(value) not in self._numbers:
                    self._number(value, None)

    def pickler(self, file: io.BytesIO, *, defines: bool = False) -> _Pickler:
        """A pickler of values that may contain these objects."""
        return _NumberedPickler(file, self._modules, self._numbers, self._copied, defines=defines)

    def dumps(self, value: Any, *, defines: bool = False) -> bytes:
        """Pickle a value that may contain these objects, for `_Objects`."""
        self.pickler(file := io.BytesIO(), defines=defines).dump(value)
        return file.getvalue()

    def _dumps_state(self) -> bytes:
        contents = [(self._numbers[id(value)], _content(value)) for value, _ in self._changeable]
        return self.dumps((contents, [(owner, values) for owner, values in self._state if values]))

    def state(self) -> bytes:
        """The objects and the values, for `_enter`."""
        entries = []
        changeable = len(self._changeable)
        for number, (value, place) in enumerate(zip(self._objects, self._places, strict=True)):
            data = None  # what the import has made
            if number < changeable:
                data = self.dumps(_emptied(value))
            elif place is None:
                numbers = {object_id: n for object_id, n in self._numbers.items() if n != number}
                file = io.BytesIO()
                _NumberedPickler(file, self._modules, numbers, set()).dump(value)
                data = file.getvalue()
            where = None if place is None else (_name_of(place[0]), place[1])
            entries.append((where, data, number < changeable))
        return pickle.dumps((entries, self._dumps_state()))


def _name_of(owner: Any) -> _Name:
    if isinstance(owner, ModuleType):
        return owner.__name__, ""
    return owner.__module__, owner.__qualname__


def _is_sendable(value: Any, modules: Modules) -> bool:
    try:
        _Pickler.dumps(value, modules, limit=_VALUE_BYTES_MAX)
    except _TooLarge:
        return True
    except Exception:
        return False
    return True


def _values_in(owner: Any, modules: Modules) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in [*vars(owner).items()]:
        if not (key.startswith("_") and key.endswith("_")) and _is_value(value, owner, key):
            try:
                _Pickler.dumps(value, modules, limit=_VALUE_BYTES_MAX)
            except Exception as error:
                _LOG.debug("%s.%s is as its import makes it: %s", owner.__name__, key, error)
            else:
                values[key] = value
    return values


def _is_value(value: Any, owner: Any, key: str) -> bool:
    if isinstance(value, _CONTAINERS + _FIXED):
        return True
    if isinstance(value, type | FunctionType):  # replaced, or imported from elsewhere
        is_here = (value.__module__, value.__qualname__) == (owner.__name__, key)
        return isinstance(owner, ModuleType) and not is_here
    return isinstance(owner, ModuleType) and _attributes_of(value) is not None


def _attributes_of(value: Any) -> _Attributes | None:
    """The attributes of an object that consists of them; None: of another one."""
    hooks = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__")
    if isinstance(value, (type, FunctionType, *_FIXED)) or any(
        isinstance(vars(base).get(hook), FunctionType) for base in type(value).__mro__
        for hook in hooks
    ):  # fmt: skip
        return None
    try:
        parts: Any = object.__reduce_ex__(value, 2)
        make, arguments, state, *_ = parts
    except Exception:  # of an object that is not written in Python
        return None
    if make is not copyreg.__newobj__ or len(arguments) > 1:  # type: ignore[attr-defined]
        return None
    stored, in_slots = state if isinstance(state, tuple) else (state, None)
    return stored or {}, in_slots or {}


def _places(state: _State) -> list[tuple[Any, _Place | None]]:
    """The objects among these values, or within them, that can be changed; and where the worker
    finds them. None: it does not, as what has no name within a list."""
    places: dict[int, tuple[Any, _Place | None]] = {}
    named = deque[tuple[Any, _Place | None]](
        (value, (owner, (key,))) for owner, values in state for key, value in values.items()
    )
    others = deque[tuple[Any, _Place | None]]()
    while queue := named or others:  # an object may have a name besides
        value, place = queue.popleft()
        if id(value) in places or isinstance(value, _SCALARS):
            continue
        children: Iterable[tuple[Any, Any]] = ()
        if isinstance(value, _CONTAINERS):
            children = value.items() if isinstance(value, dict) else zip(repeat(None), value)
        elif isinstance(value, tuple | frozenset):
            others += [(child, None) for child in value]
            continue
        elif (attributes := _attributes_of(value)) is not None:
            has_identity = getattr(type(value), "__hash__", None) in (object.__hash__, None)
            if place is None and not has_identity:  # it may be a key before it has its attributes
                continue
            children = [child for each in attributes for child in each.items()]
        else:
            continue
        places[id(value)] = value, place
        for step, child in children:
            if place is not None and isinstance(step, str):
                named.append((child, (place[0], (*place[1], step))))
            else:
                others.append((child, None))
            others.append((step, None))
    return [*places.values()]


def _content(value: Any) -> tuple[list[Any], _Attributes]:
    """The items and the attributes of an object."""
    items: list[Any] = []
    if isinstance(value, _CONTAINERS):
        items = [*value.items()] if isinstance(value, dict) else [*value]
    return items, _attributes_of(value) or ({}, {})


def _emptied(value: Any) -> Any:
    """An empty collection like this one of Python's; the class of another object."""
    if type(value).__module__ not in ("builtins", "collections") or type(value) is object:
        return type(value)
    empty = copy(value)
    empty.clear()
    return empty


class _NumberedPickler(_Pickler):
    """Pickles the objects that have a number as it."""

    def __init__(
        self,
        file: io.BytesIO,
        modules: Modules,
        numbers: Mapping[int, int],
        copied: set[int],
        *,
        defines: bool = False,
    ) -> None:
        super().__init__(file, modules, defines=defines)
        self._numbers, self._copied = numbers, copied

    def persistent_id(self, obj: Any) -> int | None:
        return self._numbers.get(id(obj))

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, type | FunctionType | ModuleType):
            self._copied.add(id(obj))
        return super().reducer_override(obj)


class _Objects:
    """The numbered objects of a program, in a worker. Each is looked for when it is needed first,
    because its module is imported then."""

    def __init__(self, entries: Sequence[tuple[Any, bytes | None, bool]]) -> None:
        self._entries = entries
        self._found: dict[int, Any] = {}

    def loads(self, data: bytes) -> Any:
        """Unpickle what may refer to these objects."""
        return _NumberedUnpickler(data, self).load()

    def __getitem__(self, number: int) -> Any:
        if number not in self._found:
            place, data, is_changeable = self._entries[number]
            if data is None:
                self._found[number] = self._imported(*place)
            elif is_changeable:
                self._found[number] = _object_at(place, _TolerantUnpickler(data, self).load())
            else:
                self._found[number] = self.loads(data)
        return self._found[number]

    @staticmethod
    def _imported(owner: _Name, steps: tuple[str, ...]) -> Any:
        imported = _at(owner, steps)
        why = f"it is not picklable, and importing {owner[0]} does not make it here"
        return _Missing(why) if imported is _NOWHERE else imported


class _NumberedUnpickler(pickle.Unpickler):
    def __init__(self, data: bytes, objects: _Objects) -> None:
        super().__init__(io.BytesIO(data))
        self._objects = objects

    def persistent_load(self, pid: Any) -> Any:
        return self._objects[pid]


class _TolerantUnpickler(_NumberedUnpickler):
    """Unpickles what modules contain. What belongs to one that cannot be imported here is an
    object without content: nothing else can refer to it."""

    def find_class(self, module: str, name: str) -> Any:
        if name in ("_class_named", "_function_named", "import_module"):
            known = super().find_class(module, name)
            return functools.partial(_or_empty, known)
        if name in ("_empty", "_member"):
            return {"_empty": OutlineUnpickler.empty, "_member": OutlineUnpickler.member}[name]
        return super().find_class(module, name)


def _or_empty(find: Callable[..., Any], *name: Any) -> Any:
    try:
        return find(*name)
    except (Exception, SystemExit):  # of any module; it is logged where it is imported
        return EmptyObject


def _set_state(objects: _Objects, data: bytes) -> None:
    contents, state = _TolerantUnpickler(data, objects).load()
    parts = [(objects[number], content) for number, content in contents]
    # The collections come last: what they contain may be hashed by its attributes.
    for value, content in sorted(parts, key=lambda part: isinstance(part[0], _CONTAINERS)):
        _set_content(value, content)
    for owner, values in state:
        for key, value in values.items() if owner is not EmptyObject else ():
            here = vars(owner).get(key)
            is_equal = type(here) is type(value) and isinstance(here, _FIXED) and here == value
            if here is not value and not is_equal:
                setattr(owner, key, value)


_NOWHERE = object()


def _at(owner: _Name, steps: tuple[str, ...]) -> Any:
    """The object of this process at a place, or _NOWHERE."""
    with suppress(Exception, SystemExit):  # of an import
        module, name = owner
        here = _class_named(module, name) if name else import_module(module)
        for step in steps:
            parts = here if isinstance(here, dict) else getattr(here, "__dict__", {})
            here = parts[step] if step in parts else object.__getattribute__(here, step)
        return here
    return _NOWHERE


def _object_at(place: Any, empty: Any) -> Any:
    """The object at a place, if it is of this type; or else a new one."""
    kind = empty if isinstance(empty, type) else type(empty)
    if place is not None and type(here := _at(*place)) is kind and here is not _NOWHERE:
        return here
    if empty is not kind:
        return empty
    base = next((base for base in _CONTAINERS if issubclass(kind, base)), object)
    return base.__new__(kind)


def _set_content(value: Any, content: tuple[list[Any], _Attributes]) -> None:
    items, (stored, in_slots) = content
    if hasattr(value, "__dict__"):
        vars(value).clear()
        vars(value).update(stored)
    for key, part in in_slots.items():
        object.__setattr__(value, key, part)
    if isinstance(value, _CONTAINERS):
        value.clear()
        value.extend(items) if isinstance(value, list | deque) else value.update(items)


# ---- what workers send --------------------------------------------------------------------------


class ShippedAnswer:
    """What a worker answers to a client. A client with the code gets objects of its own classes,
    another one gets copies of the classes."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __reduce__(self) -> tuple[Any, ...]:
        modules = modules_here()
        pickler = _Pickler(file := io.BytesIO(), modules)
        pickler.dump(self._value)
        if not pickler.names:
            return pickle.loads, (file.getvalue(),)
        by_value = _WithClasses.dumps(self._value, modules)
        return _load_answer, (pickler.names, file.getvalue(), by_value)


class _WithClasses(_ByValue):
    """Pickles each class of the program by value once in this process: that takes 0.8 ms."""

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, type) or _module_of(obj, self._modules) is None:
            return super().reducer_override(obj)
        if id(obj) not in _pickled:
            _pickled[id(obj)] = obj, _ByValue.dumps(obj, self._modules)
        return _class_of, (_pickled[id(obj)][1],)


_pickled = dict[int, tuple[type[Any], bytes]]()  # by id, which no other gets: the class is kept


@functools.lru_cache(maxsize=1_000)
def _class_of(data: bytes) -> Any:
    return pickle.loads(data)  # noqa: S301 (of this cluster)


def _load_answer(names: Iterable[_Name], by_name: bytes, by_value: bytes) -> Any:
    known = modules_here()
    has_code = all(hasattr(known.get(module), name or "__name__") for module, name in names)
    return pickle.loads(by_name if has_code else by_value)  # noqa: S301 (of this cluster)


# ---- savepoints ---------------------------------------------------------------------------------


class CodeClasses:
    """Pickles values for a savepoint, and reads them, with the classes of the code of a `plan` by
    module and name: those that a module of the program or an installed one has, and those that the
    components, or functions and methods of them, refer to."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    @cached_property
    def _modules(self) -> Modules:
        return modules_here()

    @cached_property
    def _found(self) -> dict[_Name, type]:
        collector = _ClassCollector(io.BytesIO(), self._modules, self._plan.record_types)
        collector.dump(self._plan)
        return collector.found

    def dumps(self, value: Any) -> bytes:
        """Raises LifecycleError for a class that can neither be imported nor is in the plan."""
        file = io.BytesIO()
        _NamingPickler(file, self, self._modules, self._plan.record_types).dump(value)
        return file.getvalue()

    def dumps_by_value(self, value: Any) -> bytes:
        """Pickle a value for another process with the same program."""
        return _Pickler.dumps(value, self._modules, declared=self._plan.record_types)

    def loads(self, data: bytes) -> Any:
        """The value that `dumps`, or cloudpickle, has pickled. Raises LifecycleError for a class
        that the plan does not have; like pickle, anything else."""
        return _NamingUnpickler(io.BytesIO(data), self).load()

    def name_of(self, kind: type) -> _Name | None:
        """The name of a class that cannot be imported; None: it can."""
        if kind.__module__ == "builtins" or _module_of(kind, self._modules) is not None:
            return None
        if _should_pickle_by_reference(kind):
            return None
        name = _class_name(kind)
        if self._found.get(name) is not kind:
            raise LifecycleError(f"no code of the topology refers to {_format_class(name)}")
        return name

    def named(self, name: _Name) -> type:
        """The class with this name."""
        if name in self._found:
            return self._found[name]
        if self._modules.get(name[0]) is not None:
            return self.in_program(*name)
        raise LifecycleError(f"the code has no {_format_class(name)}")

    def in_program(self, module: str, name: str, _: Any = None) -> type:
        """What a module of the program has under that name."""
        try:
            kind: type = _class_named(module, name)
        except (ImportError, AttributeError):
            raise LifecycleError(f"the code has no {_format_class((module, name))}") from None
        return kind


def _class_name(kind: type) -> _Name:
    return kind.__module__, kind.__qualname__


def _format_class(name: _Name) -> str:
    return f"class {name[1]} of module {name[0]}"


class _ClassCollector(_Pickler):
    """Finds the classes that are pickled with a value."""

    def __init__(self, file: io.BytesIO, modules: Modules, declared: Container[type[Any]]) -> None:
        super().__init__(file, modules, declared=declared)
        self.found: dict[_Name, type] = {}

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type):
            self.found.setdefault(_class_name(obj), obj)
        return super().reducer_override(obj)


class _NamingPickler(_Pickler):
    def __init__(
        self,
        file: io.BytesIO,
        classes: CodeClasses,
        modules: Modules,
        declared: Container[type[Any]],
    ) -> None:
        super().__init__(file, modules, declared=declared)
        self._classes = classes

    def persistent_id(self, obj: Any) -> _Name | None:
        return self._classes.name_of(obj) if isinstance(obj, type) else None


class _NamingUnpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, classes: CodeClasses) -> None:
        super().__init__(file)
        self._classes = classes

    def find_class(self, module: str, name: str) -> Any:
        return (
            self._classes.in_program if name == "_class_named" else super().find_class(module, name)
        )

    def persistent_load(self, pid: Any) -> type:
        return self._classes.named(pid)
