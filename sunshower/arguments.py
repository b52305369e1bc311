"""Rules for argument values: they check a value, describe what is allowed, and parse text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any, Protocol

from sunshower.errors import ConfigError, SunshowerError

Error = type[SunshowerError]


class Rule(Protocol):
    """A rule that a value must follow."""

    def check(self, name: str, value: Any, error: Error = ConfigError) -> None:
        """Raise `error`, which describes the allowed values, for any other value."""


@dataclass(frozen=True)
class Values:
    """Numbers from `least` to `most`, and single values, each with a word for the command line."""

    kind: type[int] | type[float] | None = None  # int: whole numbers; None: no numbers
    what: str = "a number"
    least: float = -inf
    most: float = inf
    above: bool = False  # `least` itself is not allowed
    words: Mapping[str, object] = field(default_factory=dict)

    def or_else(self, word: str, value: object) -> Values:
        """Return the same rule with one more value."""
        return replace(self, words={**self.words, word: value})

    def check(self, name: str, value: Any, error: Error = ConfigError) -> None:
        if not self._allows(value):
            raise error(f"{name} is {value!r:.200}; it must be {self}")

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

    def _allows(self, value: Any) -> bool:
        if any(type(value) is type(one) and value == one for one in self.words.values()):
            return True
        if self.kind is None or isinstance(value, bool):
            return False
        is_number = isinstance(value, Integral if self.kind is int else Real)  # numpy's, too
        if not is_number or not isfinite(value):
            return False
        enough = value > self.least if self.above else value >= self.least
        return bool(enough and value <= self.most)

    def __str__(self) -> str:
        numbers = self.what
        if self.least > -inf:
            numbers += f" {'above' if self.above else 'of at least'} {self.least:g}"
        if self.most < inf:
            numbers += f" and at most {self.most:,.12g}"
        return ", or ".join([*([numbers] if self.kind else []), *map(repr, self.words.values())])


@dataclass(frozen=True)
class Instance:
    """Instances of some classes; `instead` is the advice for any other value."""

    kinds: tuple[Any, ...]  # also of collections.abc, such as Callable
    instead: str
    may_be_empty: bool = True  # whether an empty text is allowed
    is_secret: bool = False  # whether a wrong value may contain a secret, and is not shown

    def check(self, name: str, value: Any, error: Error = ConfigError) -> None:
        if not isinstance(value, self.kinds) or (value == "" and not self.may_be_empty):
            hides = self.is_secret and value is not None
            shown = f"a {type(value).__name__}" if hides else f"{value!r:.200}"
            raise error(f"{name} is {shown}; give {self.instead}")


def check_all(given: object, rules: Mapping[str, Rule], where: str = "") -> None:
    """Check the attributes of `given` against the rule of each name. Raises ConfigError."""
    for name, rule in rules.items():
        rule.check(where + name, getattr(given, name))


def check_names(
    given: Iterable[str], known: Iterable[str], where: str, error: Error = ConfigError
) -> None:
    """Check that there is a setting of each name."""
    known = list(known)
    if wrong := [name for name in given if name not in known]:
        raise error(
            f"{where}: there is no setting {wrong[0]!r}; the settings are: {', '.join(known)}"
        )


COUNT = Values(int, "a whole number", least=1)
SECONDS = Values(float, "a number of seconds", least=0, above=True)
SECONDS_FROM_0 = Values(float, "a number of seconds", least=0)
PROBABILITY = Values(float, "a probability", least=0, most=1)
TASKS = Values(int, "the number of tasks, a whole number", least=1)
FLAG = Values(words={"true": True, "false": False})
FUNCTION = Instance((Callable,), "a function")
PATH = Instance((str, PurePath), 'a path, such as "folder/file"')
TEXT = Instance((str,), "a text")
