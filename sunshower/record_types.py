"""The record types: which classes they are, and what they say of their fields and constructors.

A record type is a NamedTuple, a dataclass, an attrs class, a Struct of msgspec, a model of pydantic
or a TypedDict. Their libraries are recognised by the attributes that they give to a class, and are
not imported.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass
from functools import cached_property, lru_cache, partial
from types import BuiltinFunctionType, MemberDescriptorType, SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    NotRequired,
    Required,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

Default = Callable[[], Any]  # returns the default of a field
Types = Mapping[Any, Any]  # type variable → what is given for it

_SEVERAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, eq=False)
class RecordType:
    """What a NamedTuple class or a dataclass says of its fields; and the base of the others."""

    kind: Any

    def __reduce__(self) -> Any:
        return record_type_of, (self.kind,)

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """Their names, in order."""
        if self.is_tuple:
            return tuple(self.kind._fields)
        return tuple(field.name for field in dataclasses.fields(self.kind))

    @cached_property
    def is_tuple(self) -> bool:
        return issubclass(self.kind, tuple)

    @property
    def instances(self) -> type[Any]:
        """The class of the records."""
        kind: type[Any] = self.kind
        return kind

    @cached_property
    def is_frozen(self) -> bool:
        """Whether the values of the fields cannot be replaced."""
        return self.is_tuple or bool(self.kind.__dataclass_params__.frozen)

    @cached_property
    def parameters(self) -> Mapping[str, str]:
        """Field → the name that the constructor has for it."""
        return {name: name for name in self.fields}

    @property
    def names(self) -> Mapping[str, str]:
        """Field → its name in messages."""
        return self.parameters

    @property
    def marks(self) -> Mapping[str, Any]:
        """What messages have besides the fields, name → value."""
        return {}

    @cached_property
    def defaults(self) -> Mapping[str, Default]:
        """The fields that have a default."""
        if self.is_tuple:
            defaults: Mapping[str, Any] = getattr(self.kind, "_field_defaults", {})
            return {name: partial(_itself, value) for name, value in defaults.items()}
        factories: dict[str, Default] = {}
        for field in dataclasses.fields(self.kind):
            if field.default_factory is not MISSING:
                factories[field.name] = field.default_factory
            elif field.default is not MISSING:
                factories[field.name] = partial(_itself, field.default)
        described: Mapping[str, Any] = getattr(self.kind, "__pydantic_fields__", {})
        for name in described:  # its default may be that of pydantic.Field
            factories.pop(name, None)
        return {**factories, **_defaults_of_pydantic(described)}

    @cached_property
    def may_be_incomplete(self) -> bool:
        """Whether the constructor may leave a field without a value."""
        return not _is_generated(self.kind.__init__) or any(
            not field.init and field.default_factory is MISSING
            for field in dataclasses.fields(self.kind)
        )

    def hint(self, name: str, hints: Mapping[str, Any]) -> Any:
        """The annotation of a parameter of the constructor."""
        hint = hints.get(name, Any)
        return hint.type if isinstance(hint, dataclasses.InitVar) else hint

    def constructor(self) -> dict[str, tuple[Any, bool]]:
        """What the constructor takes, in the order of the fields, InitVars included: name → its
        annotation, and whether it has a default."""
        try:
            taken = dict(inspect.signature(self.kind).parameters)
        except (TypeError, ValueError):
            return dict.fromkeys(self.fields, (Any, False))
        hints = hints_of(self.kind)
        declared: Iterable[str] = getattr(self.kind, "__dataclass_fields__", self.fields)
        declared = [self.parameters.get(name, name) for name in declared]
        names = [name for name in declared if name in taken]
        names += [name for name in taken if name not in names]
        return {
            name: (self.hint(name, hints), taken[name].default is not inspect.Parameter.empty)
            for name in names
            if taken[name].kind not in _SEVERAL
        }

    def problem(self) -> str:
        """Why records cannot be rebuilt from their fields; empty: they can."""
        if self.is_tuple:
            return ""
        for base in self.kind.__mro__[:-1]:
            if isinstance(vars(base).get("__new__"), BuiltinFunctionType):
                return (
                    f"{self.kind.__name__} is a {base.__name__}, whose content is not in the "
                    "fields of the class, so it cannot be rebuilt from them: make the content "
                    f"a field, and do not derive from {base.__name__}"
                )
        return ""

    def message(self, record: Any) -> dict[str, Any]:
        """A record as JSON has it, name → value; records within it as they are."""
        return {
            **self.marks,
            **{self.names.get(name, name): getattr(record, name) for name in self.fields},
        }

    def undeclared(self, name: str) -> str:
        """What to do about a value that a record has under a name that is no field."""
        kind = self.kind.__name__
        if self.is_tuple:
            return f"Make it a field, or use a dataclass with `{name}: … = field(init=False)`"
        if name in self.kind.__dataclass_fields__:
            return (
                "It is an InitVar or ClassVar: keep it in a field of another name, declared "
                "with field(init=False)"
            )
        is_decorated = "__dataclass_fields__" in vars(self.kind)
        decorate = "" if is_decorated else f", and decorate {kind} with @dataclass"
        return f"Declare it: `{name}: … = field(init=False)`{decorate}"


class AttrsClass(RecordType):
    """What an attrs class says of its fields."""

    @cached_property
    def _attributes(self) -> Mapping[str, Any]:
        return {attribute.name: attribute for attribute in self.kind.__attrs_attrs__}

    @cached_property
    def fields(self) -> tuple[str, ...]:
        return tuple(self._attributes)

    @cached_property
    def is_frozen(self) -> bool:
        return getattr(self.kind.__setattr__, "__name__", "") == "_frozen_setattrs"

    @cached_property
    def parameters(self) -> Mapping[str, str]:
        return {name: attribute.alias for name, attribute in self._attributes.items()}

    @cached_property
    def defaults(self) -> Mapping[str, Default]:
        factories: dict[str, Default] = {}
        for name, attribute in self._attributes.items():
            factory = getattr(attribute.default, "factory", None)
            if factory is None and repr(attribute.default) != "NOTHING":
                factories[name] = partial(_itself, attribute.default)
            elif factory is not None and not attribute.default.takes_self:
                factories[name] = factory
        return factories

    @cached_property
    def may_be_incomplete(self) -> bool:
        return not _is_generated(self.kind.__init__) or any(
            not attribute.init and repr(attribute.default) == "NOTHING"
            for attribute in self._attributes.values()
        )

    def hint(self, name: str, hints: Mapping[str, Any]) -> Any:
        """A converter takes what it is annotated to take."""
        field = next((member for member, alias in self.parameters.items() if alias == name), name)
        attribute = self._attributes.get(field)
        if attribute is None or attribute.converter is None:
            return hints.get(field, Any)
        taken = self.kind.__init__.__annotations__.get(name)
        return taken if isinstance(taken, type) else Any

    def undeclared(self, name: str) -> str:
        if name == "_attrs_cached_hash":
            return f"Declare {self.kind.__name__} without the caching of its hash"
        is_decorated = "__attrs_attrs__" in vars(self.kind)
        decorate = "" if is_decorated else f", and decorate {self.kind.__name__} with @define"
        return f"Declare it: `{name}: … = field(init=False)`{decorate}"


class StructClass(RecordType):
    """What a Struct of msgspec says of its fields."""

    @cached_property
    def fields(self) -> tuple[str, ...]:
        return tuple(self.kind.__struct_fields__)

    @cached_property
    def is_frozen(self) -> bool:
        return bool(self.kind.__struct_config__.frozen)

    @cached_property
    def names(self) -> Mapping[str, str]:
        return dict(zip(self.fields, self.kind.__struct_encode_fields__, strict=True))

    @property
    def marks(self) -> Mapping[str, Any]:
        config = self.kind.__struct_config__
        return {} if config.tag is None else {config.tag_field: config.tag}

    @cached_property
    def defaults(self) -> Mapping[str, Default]:
        defaults = {
            name: parameter.default
            for name, parameter in inspect.signature(self.kind).parameters.items()
            if parameter.default is not inspect.Parameter.empty
        }
        return {
            name: getattr(default, "factory", None) or partial(_itself, default)
            for name, default in defaults.items()
        }

    @cached_property
    def may_be_incomplete(self) -> bool:
        return False

    def definition(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """What its `class` statement has: names → values, field → default factory, and keywords."""
        kind, config = self.kind, self.kind.__struct_config__
        hints = vars(kind).get("__annotations__", {})
        content = {
            name: value
            for name, value in vars(kind).items()
            if name in ("__module__", "__qualname__", "__doc__", "__annotations__")
            or not (isinstance(value, MemberDescriptorType) or name.startswith("__struct_"))
        }
        for name in ("__slots__", "__match_args__", "__dict__", "__weakref__"):
            content.pop(name, None)
        factories: dict[str, Any] = {}
        for name in hints:
            if name in self.defaults:
                default = inspect.signature(kind).parameters[name].default
                if (factory := getattr(default, "factory", None)) is None:
                    content[name] = default
                else:
                    factories[name] = factory
        options = ("frozen", "order", "eq", "tag", "tag_field", "forbid_unknown_fields", "weakref")
        keywords = {name: getattr(config, name) for name in (*options, "omit_defaults", "dict")}
        if hints:
            keywords["rename"] = {name: self.names[name] for name in hints if name in self.names}
        keywords["kw_only"] = all(
            parameter.kind is parameter.KEYWORD_ONLY
            for parameter in inspect.signature(kind).parameters.values()
        )
        return content, factories, keywords

    def problem(self) -> str:
        if self.kind.__struct_config__.array_like:
            return (
                f"{self.kind.__name__} is array_like, and a message has the names of its "
                "fields: leave it out"
            )
        return ""

    def undeclared(self, name: str) -> str:
        return f"Declare it as a field: `{name}: …`"


class ModelClass(RecordType):
    """What a model of pydantic says of its fields. pydantic reads and writes it."""

    @cached_property
    def fields(self) -> tuple[str, ...]:
        return tuple(self.kind.model_fields)

    @cached_property
    def is_frozen(self) -> bool:
        return bool(self.kind.model_config.get("frozen"))

    @cached_property
    def parameters(self) -> Mapping[str, str]:
        config = self.kind.model_config
        if config.get("populate_by_name") or config.get("validate_by_name"):
            return {name: name for name in self.fields}
        names: dict[str, str] = {}
        for name, info in self.kind.model_fields.items():
            alias = info.alias if info.validation_alias is None else info.validation_alias
            names[name] = alias if isinstance(alias, str) else name
        return names

    @cached_property
    def defaults(self) -> Mapping[str, Default]:
        return _defaults_of_pydantic(self.kind.model_fields)

    @cached_property
    def may_be_incomplete(self) -> bool:
        return True  # with model_construct()

    def constructor(self) -> dict[str, tuple[Any, bool]]:
        hints, defaults = hints_of(self.kind), self.defaults
        return {
            parameter: (hints.get(name, Any), name in defaults)
            for name, parameter in self.parameters.items()
        }

    def problem(self) -> str:
        kind = self.kind.__name__
        if getattr(self.kind, "__pydantic_root_model__", False):
            return (
                f"{kind} is a RootModel, whose content is no object with fields: make it a "
                "BaseModel with a field, or annotate the field that has it with the root's type"
            )
        if self.kind.model_config.get("extra") == "allow":
            return (
                f"{kind} allows extra values, and those without a field would be lost on the "
                "way to another process: let it ignore them, or keep them in a field of type dict"
            )
        if names := [*self.kind.__private_attributes__]:
            return (
                f"{kind} has the private attribute {names[0]!r}, whose value would be lost on the "
                "way to another process: make it a field, or a cached_property"
            )
        return ""

    def message(self, record: Any, mode: str = "json") -> dict[str, Any]:
        """`mode`: "python" for a format that has more types than JSON."""
        try:
            content: dict[str, Any] = record.model_dump(mode=mode, by_alias=True)
        except Exception as error:  # of a serializer of the user, too
            raise TypeError(f"pydantic cannot write a {self.kind.__name__}: {error}") from error
        return content

    def undeclared(self, name: str) -> str:
        return f"Declare it as a field: `{name}: …`"


class DictClass(RecordType):
    """What a TypedDict says of its keys. Its records are dictionaries."""

    @cached_property
    def fields(self) -> tuple[str, ...]:
        return tuple(hints_of(self.kind))

    @property
    def instances(self) -> type[Any]:
        return dict

    @cached_property
    def is_frozen(self) -> bool:
        return False

    @cached_property
    def defaults(self) -> Mapping[str, Default]:
        return {}

    def constructor(self) -> dict[str, tuple[Any, bool]]:
        return {name: (hint, False) for name, hint in hints_of(self.kind).items()}

    def problem(self) -> str:
        for name, hint in hints_of(self.kind).items():
            if not is_required(self.kind, name, hint):
                return (
                    f"{self.kind.__name__} need not have the key {name!r}, and every record of a "
                    f"stream has the same fields: make it required, as in `{name}: … | None`"
                )
        return ""

    def message(self, record: Any) -> dict[str, Any]:
        return dict(record)

    def undeclared(self, name: str) -> str:
        return f"Declare it in {self.kind.__name__}: `{name}: …`"


@lru_cache(1024)
def _described(kind: type[Any]) -> RecordType | None:
    if issubclass(kind, tuple):
        return RecordType(kind) if hasattr(kind, "_fields") else None
    if dataclasses.is_dataclass(kind):
        return RecordType(kind)
    if is_typeddict(kind):
        return DictClass(kind)
    if isinstance(getattr(kind, "__attrs_attrs__", None), tuple):
        return AttrsClass(kind)
    if isinstance(getattr(kind, "__struct_fields__", None), tuple):
        return StructClass(kind)
    if hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_fields"):
        return ModelClass(kind)
    return None


def record_type_of(kind: Any) -> RecordType | None:
    """What a class says of its fields; None: it is no record type."""
    return _described(kind) if isinstance(kind, type) else None


def is_record(kind: Any) -> bool:
    """Whether values of a class are records. Those of a TypedDict are dictionaries."""
    return isinstance(kind, type) and _has_records(kind)


@lru_cache(1024)  # copies ask for each value
def _has_records(kind: Any) -> bool:
    described = _described(kind)
    return described is not None and described.instances is kind


def is_required(kind: Any, name: str, hint: Any) -> bool:
    """Whether a TypedDict must have a key; it does not know so of annotations that are texts."""
    origin = get_origin(hint)
    return origin is not NotRequired and (origin is Required or name in kind.__required_keys__)


def hints_of(record_type: Any) -> dict[str, Any]:
    """Field → annotation, with `Annotated`; Any for an annotation that cannot be read here.

    Each is `resolved`: a type variable is what the class, or an alias such as Box[int], gives for
    it, and Self is the class or alias.
    """
    given = _types_in(record_type)
    hints = _hints_of(get_origin(record_type) or record_type)
    parameters = getattr(record_type, "__parameters__", ()) if record_type in given else ()
    own = record_type[parameters] if parameters else record_type
    for name, hint in hints.items():
        declares = [kind for kind in given if name in inspect.get_annotations(kind)]
        # The annotations of a TypedDict are also those of its bases.
        types = given[declares[-1 if is_typeddict(declares[0]) else 0]] if declares else {}
        hints[name] = resolved(hint, {**types, Self: own})
    return hints


def types_given(annotation: Any) -> Types:
    """What an alias such as Box[int] gives for each type variable of its class."""
    parameters = getattr(get_origin(annotation), "__parameters__", ())
    return dict(zip(parameters, get_args(annotation), strict=False))


def resolved(annotation: Any, given: Types, within: tuple[Any, ...] = ()) -> Any:
    """An annotation with what is given for its type variables and Self, and what type aliases and
    NewTypes stand for; without `Final` and `ReadOnly`. `within`: the aliases that it is in."""
    if isinstance(annotation, TypeVar) or annotation is Self:
        return given.get(annotation, annotation)
    if isinstance(annotation, NewType):
        return resolved(annotation.__supertype__, given, within)
    if isinstance(annotation, dataclasses.InitVar):
        return dataclasses.InitVar(resolved(annotation.type, given, within))
    origin, args = get_origin(annotation), get_args(annotation)
    alias = annotation if origin is None else origin
    if type(alias).__name__ == "TypeAliasType":
        try:
            value = Any if alias in within else alias.__value__  # a recursive one
        except Exception:  # its expression cannot be read here
            return Any
        args = tuple(resolved(part, given, within) for part in args)
        types = dict(zip(alias.__type_params__, args, strict=False))
        return resolved(value, types, (*within, alias))
    if getattr(origin, "_name", None) in ("Final", "ReadOnly"):
        return resolved(args[0], given, within)
    args = args[:1] if origin is Annotated else args
    if origin in (None, Literal) or not all(map(_is_annotation, args)):
        return annotation
    parts = tuple(resolved(part, given, within) for part in args)
    if all(part is former for part, former in zip(parts, args, strict=True)):
        return annotation
    if origin is Annotated:
        return Annotated[(*parts, *annotation.__metadata__)]
    if origin in (Union, UnionType):
        return Union[parts]  # noqa: UP007
    return annotation.copy_with(parts) if hasattr(annotation, "copy_with") else origin[parts]


def _is_annotation(part: Any) -> bool:
    return not isinstance(part, list)  # as in Callable[[int], str]


def _types_in(record_type: Any) -> dict[Any, Types]:
    """A class and its bases, in their order → what is given for their type variables."""
    kind = get_origin(record_type) or record_type
    given: dict[Any, Types] = {kind: types_given(record_type)}
    waiting = [kind]
    for child in waiting:
        of_pydantic = vars(child).get("__pydantic_generic_metadata__") or {}
        bases = [*vars(child).get("__orig_bases__", child.__bases__)]
        if (generic := of_pydantic.get("origin")) is not None:
            parameters = generic.__pydantic_generic_metadata__["parameters"]
            given[generic] = dict(zip(parameters, of_pydantic["args"], strict=False))
            waiting.append(generic)
        for base in bases:
            origin = get_origin(base) or base
            if isinstance(origin, type) and origin not in given:
                types = types_given(base).items()
                given[origin] = {name: resolved(part, given[child]) for name, part in types}
                waiting.append(origin)
    order = [base for base in kind.__mro__ if base in given]
    return {base: given[base] for base in dict.fromkeys([*order, *given])}


def _hints_of(record_type: type[Any]) -> dict[str, Any]:
    try:
        hints = get_type_hints(record_type, include_extras=True)
    except Exception:  # an annotation is any expression
        hints = {}
        for base in reversed(record_type.__mro__):
            names = vars(sys.modules.get(base.__module__, object))
            for name, written in inspect.get_annotations(base).items():
                holder = SimpleNamespace(__annotations__={name: written})
                try:
                    hints |= get_type_hints(holder, dict(names), include_extras=True)
                except Exception:
                    hints[name] = Any
    for attribute in getattr(record_type, "__attrs_attrs__", ()):  # attr.ib(type=int)
        if attribute.name not in hints and not isinstance(attribute.type, str | None):
            hints[attribute.name] = attribute.type
    return hints


def _itself(value: Any) -> Any:
    return value


def _is_generated(function: Any) -> bool:
    """Whether a library has written the code of a function."""
    return getattr(getattr(function, "__code__", None), "co_filename", "")[:1] == "<"


def _defaults_of_pydantic(described: Mapping[str, Any]) -> dict[str, Default]:
    """The defaults that pydantic.Field has."""
    return {
        name: partial(info.get_default, call_default_factory=True)
        for name, info in described.items()
        if not info.is_required()
    }
