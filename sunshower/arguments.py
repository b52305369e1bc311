"""Rules for argument values: they check a value, describe what is allowed, and parse text.

A rule is given, or follows from an annotation: `check_all` checks the fields of a dataclass, and
`checked` the arguments of a function.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from enum import Enum
from functools import cache, reduce, wraps
from numbers import Integral, Real
from operator import or_
from pathlib import PurePath
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from sunshower.errors import ConfigError, SunshowerError, TopologyFailed, user_errors
from sunshower.texts import did_you_mean

Error = type[SunshowerError]
F = TypeVar("F", bound=Callable[..., Any])

_MOST = 2**63 - 1  # what int64 can be
_SHOWN_MOST = 1e9  # limits from here on are mentioned only where they are exceeded


class Rule(ABC):
    """A rule that a value must follow; as text, it is what is allowed."""

    verb: ClassVar[str] = "give"
    is_secret = False  # whether a wrong value may contain a secret, and is not shown

    @abstractmethod
    def allows(self, value: Any) -> bool:
        """Whether the value follows the rule."""

    def check(self, name: str, value: Any, error: Error = ConfigError) -> None:
        """Raise `error`, which describes the allowed values, for any other value."""
        if not self.allows(value):
            raise error(f"{name} is {self._shown(value)}; {self.verb} {self.described(value)}")

    def described(self, value: Any) -> str:
        """What is allowed instead of a value."""
        return str(self)

    def _shown(self, value: Any) -> str:
        try:
            shown = "" if self.is_secret and value is not None else f"{value!r:.200}"
        except user_errors():  # of the `repr` of users; also a number of too many digits
            shown = ""
        return shown or _with_article(type(value).__name__)


@dataclass(frozen=True)
class Values(Rule):
    """Numbers from `least` to `most`, and single values, each with a word for the command line."""

    verb: ClassVar[str] = "it must be"
    kind: type[int] | type[float] | None = None  # int: whole numbers; None: no numbers
    what: str = "a number"
    least: float = -_MOST
    most: float = _MOST
    above: bool = False  # `least` itself is not allowed
    words: Mapping[str, object] = field(default_factory=dict)

    def or_else(self, word: str, value: object) -> Values:
        """Return the same rule with one more value."""
        return replace(self, words={**self.words, word: value})

    def read(self, text: str) -> Any:
        """Parse `text` without checking the range. Raises ValueError."""
        if text in self.words:
            return self.words[text]
        if self.kind is None:
            raise ValueError(text)
        return self.kind(text)

    @property
    def typed(self) -> str:
        """What can be typed on the command line."""
        return " or ".join([*([self.what] if self.kind else []), *self.words])

    def allows(self, value: Any) -> bool:
        if any(type(value) is type(word) and value == word for word in self.words.values()):
            return True
        if not self._is_number(value):
            return False
        enough = value > self.least if self.above else value >= self.least
        return bool(enough and value <= self.most)

    def described(self, value: Any) -> str:
        too_large = self._is_number(value) and value > self.most >= _SHOWN_MOST
        return f"{self}, and at most {int(self.most):,}" if too_large else str(self)

    def _is_number(self, value: Any) -> bool:
        if self.kind is None or isinstance(value, bool):
            return False
        return isinstance(value, Integral if self.kind is int else Real)  # numpy's, too

    def __str__(self) -> str:
        numbers = self.what
        if self.least > -_MOST:
            numbers += f" {'above' if self.above else 'of at least'} {self.least:g}"
        if self.most < _SHOWN_MOST:
            numbers += f" and at most {self.most:,.12g}"
        return ", or ".join([*([numbers] if self.kind else []), *map(repr, self.words.values())])


@dataclass(frozen=True)
class Instance(Rule):
    """Instances of some classes; `instead` is the advice for any other value."""

    kinds: tuple[Any, ...]  # also of collections.abc, such as Callable
    instead: str
    may_be_empty: bool = True  # whether an empty text is allowed
    is_secret: bool = False
    but: tuple[Any, ...] = ()  # subclasses that are not allowed

    def allows(self, value: Any) -> bool:
        if not isinstance(value, self.kinds) or isinstance(value, self.but):
            return False
        return bool(self.may_be_empty or value != "")

    def __str__(self) -> str:
        return self.instead


@dataclass(frozen=True)
class Each(Rule):
    """Collections whose elements follow a rule. A text and a dictionary are none."""

    rule: Rule
    instead: str

    def allows(self, value: Any) -> bool:
        if isinstance(value, str | bytes | bytearray | Mapping):
            return False
        return isinstance(value, Collection) and all(map(self.rule.allows, value))

    def __str__(self) -> str:
        return self.instead


@dataclass(frozen=True)
class AnyOf(Rule):
    """What one of several rules allows."""

    rules: tuple[Rule, ...]

    @property
    def is_secret(self) -> bool:  # type: ignore[override]
        return any(rule.is_secret for rule in self.rules)

    def allows(self, value: Any) -> bool:
        return any(rule.allows(value) for rule in self.rules)

    def __str__(self) -> str:
        return ", or ".join(map(str, self.rules))


@dataclass(frozen=True)
class Methods(Rule):
    """Objects with the methods of a Protocol."""

    protocol: type[Any]

    def allows(self, value: Any) -> bool:
        names = [name for name in vars(self.protocol) if not name.startswith("_")]
        return not isinstance(value, type) and all(hasattr(value, name) for name in names)

    def __str__(self) -> str:
        return _with_article(self.protocol.__name__)


def check_all(
    given: object, rules: Mapping[str, Rule], where: str = "", error: Error = ConfigError
) -> None:
    """Check the attributes of `given` against the rule of each name. The fields of a dataclass that
    have no rule are checked against their annotation. Raises `error`."""
    kind: type[Any] = type(given)
    field_rules = _of_fields(kind) if is_dataclass(kind) else {}
    for name, rule in {**field_rules, **rules}.items():
        rule.check(where + name, getattr(given, name), error)


def checked(
    error: Error = ConfigError, where: str = "", /, **rules: Rule | None
) -> Callable[[F], F]:
    """Check the arguments that a function is called with: against the rule of their name, else
    against their annotation; a rule None allows anything. `where` begins the message (default: the
    name of the function, or of the class that is made). Raises `error`."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        parameters = signature.parameters

        @cache
        def all_rules() -> Mapping[str, Rule | None]:
            hints = {
                parameter: function.__annotations__.get(parameter, Any) for parameter in parameters
            }
            others = SimpleNamespace(__annotations__={**hints, **dict.fromkeys(rules, Any)})
            defaults = {name: parameter.default for name, parameter in parameters.items()}
            resolved = get_type_hints(others, function.__globals__)
            return {**_of_annotations(resolved, defaults), **rules}

        @wraps(function)
        def call(*positional: Any, **named: Any) -> Any:
            try:
                given = signature.bind(*positional, **named).arguments
            except TypeError:  # the call raises it with the name of the function
                with _arguments_noted(parameters):
                    return function(*positional, **named)
            place = where or _name_of_call(function, positional)
            for name, rule in all_rules().items():
                if rule is not None and name in given:
                    for value_name, value in _each_value(parameters[name], given[name]):
                        rule.check(f"{place}: {value_name}", value, error)
            try:
                return function(*positional, **named)
            except TopologyFailed as failed:  # its message has the lines of the user
                failed.__context__ = failed.__cause__ or failed.__context__
                raise failed.with_traceback(None) from None

        return call  # type: ignore[return-value]

    return decorate


@contextmanager
def _arguments_noted(parameters: Mapping[str, inspect.Parameter]) -> Iterator[None]:
    """Add the arguments of a function to Python's error for a call that does not fit them."""
    try:
        yield
    except TypeError as error:
        names = ", ".join(f"{name}=…" for name in parameters if name != "self")
        error.add_note(f"Its arguments are: {names}")
        raise


def _name_of_call(function: Callable[..., Any], positional: Sequence[Any]) -> str:
    name = function.__name__
    return type(positional[0]).__name__ if name == "__init__" else name


def _each_value(parameter: inspect.Parameter, given: Any) -> Iterable[tuple[str, Any]]:
    """The names and values of the arguments that a parameter takes."""
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return given.items()  # type: ignore[no-any-return]
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return [(parameter.name, value) for value in given]
    return [(parameter.name, given)]


def check_names(
    given: Iterable[str], known: Iterable[str], where: str, error: Error = ConfigError
) -> None:
    """Check that there is a setting of each name."""
    known = list(known)
    if wrong := [name for name in given if name not in known]:
        hint = did_you_mean(wrong[0], known)
        raise error(
            f"{where}: there is no setting {wrong[0]!r}{hint}; the settings are: {', '.join(known)}"
        )


@dataclass(frozen=True)
class Moments(Rule):
    """Datetimes with a time zone."""

    def allows(self, value: Any) -> bool:
        return isinstance(value, datetime) and value.utcoffset() is not None

    def __str__(self) -> str:
        return "a datetime with a time zone, such as datetime(2100, 1, 1, tzinfo=UTC)"


MOMENT = Moments()
COUNT = Values(int, "a whole number", least=1)
COUNT_FROM_0 = replace(COUNT, least=0)
SECONDS = Values(float, "a number of seconds", least=0, above=True, most=1e9)
SECONDS_FROM_0 = replace(SECONDS, above=False)
PROBABILITY = Values(float, "a probability", least=0, most=1)
TASKS = Values(int, "the number of tasks, a whole number", least=1)
FLAG = Values(words={"true": True, "false": False})
FUNCTION = Instance((Callable,), "a function")
PATH = Instance((str, PurePath), 'a path, such as "folder/file"', may_be_empty=False)
TEXT = Instance((str,), "a text")
NAME = Instance((str,), "a text that is not empty", may_be_empty=False)
PART = Instance((str, Callable), "a field's name, or a function of the record", False)
CLASS = Instance((type,), "a class")
NONE = Instance((NoneType,), "None")

# ---- rules of annotations ------------------------------------------------------------------------

_KNOWN: dict[Any, Rule] = {
    str: NAME,
    bool: FLAG,
    int: COUNT_FROM_0,
    float: Values(float),
    NoneType: NONE,
    type: CLASS,
    Callable: FUNCTION,
    str | PurePath: PATH,
    str | Callable[[Any], Any]: PART,
}


def _rule_of(hint: Any) -> Rule | None:
    """The rule of an annotation; None if it allows anything, or its values cannot be recognised."""
    parts = get_args(hint)
    kind: Any = get_origin(hint) or hint
    for known in (hint, kind):
        if known in _KNOWN:
            return _KNOWN[known]
    if kind in (Union, UnionType):
        return _rule_of_union(parts)
    if kind is Literal:
        return Values(words={str(part): part for part in parts})
    if kind in (Any, object) or not isinstance(kind, type):  # such as a type variable
        return None
    if getattr(kind, "_is_protocol", False):
        return Methods(kind)
    if issubclass(kind, Mapping):
        return Instance((kind,), "a dictionary", is_secret=True)
    if issubclass(kind, Collection) and len({*parts} - {...}) == 1:
        element = _rule_of(parts[0])
        return Each(element, f"a list, in which each is {element}") if element else None
    if issubclass(kind, Enum):
        return Instance((kind,), f"one of {kind.__name__}: {', '.join(kind.__members__)}")
    but = (str, bytes) if issubclass(kind, Iterable) else ()  # they are iterables of their parts
    return Instance((kind,), _with_article(kind.__name__), but=but)


def _rule_of_union(parts: Sequence[Any]) -> Rule | None:
    kinds = [part for part in parts if part is not NoneType]
    if len(kinds) == len(parts):
        rules = [_rule_of(part) for part in parts]
    else:
        rules = [_rule_of(reduce(or_, kinds)), NONE]
    known = [rule for rule in rules if rule is not None]
    return AnyOf(tuple(known)) if len(known) == len(rules) else None


@cache
def _of_fields(kind: type[Any]) -> Mapping[str, Rule]:
    hints, init_fields = get_type_hints(kind), [field for field in fields(kind) if field.init]
    defaults = {field.name: field.default for field in init_fields}
    return _of_annotations({field.name: hints[field.name] for field in init_fields}, defaults)


def _of_annotations(hints: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Rule]:
    """The rules of fields or parameters. An empty text is allowed where it is the default."""
    rules = {}
    for name, hint in hints.items():
        rule = TEXT if hint is str and defaults.get(name) == "" else _rule_of(hint)
        if name in defaults and rule is not None:
            rules[name] = rule
    return rules


def _with_article(name: str) -> str:
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
