"""Settings of a topology from `sunshower.toml`, the environment and `--set`, each with its place.

    the program's Config  <  sunshower.toml  <  SUNSHOWER_NAME in the environment  <  --set

The file is that in the folder of the program, or else in the current one.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from sunshower.config import LIMITS, Config
from sunshower.errors import ConfigError

FILE = "sunshower.toml"
_PREFIX = "SUNSHOWER_"
_OF_KUBERNETES = re.compile(r"(SERVICE_|PORT($|_))")  # of a Service with the name `sunshower`


@dataclass(frozen=True)
class Setting:
    """The value of a setting, and where it comes from."""

    value: Any
    place: str


def settings_of(folder: Path, given: Sequence[str]) -> dict[str, Setting]:
    """The settings for a program in `folder`: of the file and the environment, and those `given` as
    NAME=VALUE. Raises ConfigError for the first two, typer.BadParameter for `given`."""
    found = {**_of_file(folder), **_of_environment(os.environ)}
    return {**found, **{name: Setting(value, "--set") for name, value in parse(given).items()}}


def parse(settings: Sequence[str]) -> dict[str, Any]:
    """Parse `name=value` into arguments of Config. Raises a usage error for unknown names."""
    found: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in LIMITS:
            raise typer.BadParameter(
                f"{setting!r} is not NAME=VALUE with a NAME of these: {', '.join(LIMITS)}",
                param_hint="--set",
            )
        try:
            found[name] = _value(name, value)
        except ConfigError as error:
            raise typer.BadParameter(str(error), param_hint="--set") from None
    try:
        Config(**found)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--set") from None
    return found


def _value(name: str, text: str) -> Any:
    try:
        value = LIMITS[name].read(text)
    except ValueError:
        raise ConfigError(f"{name} is {LIMITS[name].typed}, not {text!r}") from None
    LIMITS[name].check(name, value)
    return value


def _of_file(folder: Path) -> dict[str, Setting]:
    places = (folder / FILE, Path.cwd() / FILE)
    if (path := next((path for path in places if path.is_file()), None)) is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    found = {}
    for name, value in table.items():
        place = f"{path}{_line_of(name, text)}"
        _check_name(name, place)
        if not isinstance(value, str | int | float):
            raise ConfigError(f"{place}: {name} is {LIMITS[name].typed}, not {json_text(value)}")
        found[name] = Setting(_checked(place, name, json_text(value)), place)
    return found


def _of_environment(variables: Mapping[str, str]) -> dict[str, Setting]:
    found = {}
    for variable, text in sorted(variables.items()):
        rest = variable.removeprefix(_PREFIX)
        if rest == variable or _OF_KUBERNETES.match(rest):
            continue
        name = rest.lower()
        _check_name(name, variable)
        found[name] = Setting(_checked(variable, name, text), variable)
    return found


def json_text(value: Any) -> str:
    """A value of TOML as it is typed after --set."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _checked(place: str, name: str, text: str) -> Any:
    try:
        return _value(name, text)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None


def _check_name(name: str, place: str) -> None:
    if name not in LIMITS:
        raise ConfigError(
            f"{place}: {name!r} is not a setting of a topology; these are: {', '.join(LIMITS)}"
        )


def _line_of(name: str, text: str) -> str:
    """The line of a file that begins with a name, as in `, line 3`."""
    start = re.compile(rf"\s*(\[+\s*)?[\"']?{re.escape(name)}\b")
    lines = enumerate(text.splitlines(), start=1)
    return next((f", line {number}" for number, line in lines if start.match(line)), "")
