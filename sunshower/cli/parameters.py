"""Parses `--set`, `--set-from-…` and `--sweep` into settings, and the parameters of each run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import typer

from sunshower.cli.run import refuse_secret
from sunshower.experiments.experiment import combinations
from sunshower.experiments.runner.run_request import Variant
from sunshower.secret import Secret

_WORDS = {"true": True, "false": False, "none": None}


def variants(
    defaults: Mapping[str, Any],
    sweep: Mapping[str, Sequence[Any]],
    *,
    set_: Sequence[str],
    sweeps: Sequence[str],
    seed: int,
    repeat: int,
    secrets: Mapping[str, Secret] | None = None,
) -> tuple[list[Variant], list[str]]:
    """Return the runs that the options ask for, and the names of the swept parameters.

    `secrets`: values from files. `sweep`: the experiment's own sweep; a `--set` or a `--sweep` of
    the same name replaces it. Each combination is run with the seeds `seed`, `seed` + 1, …. Raises
    typer.BadParameter for unknown names and unreadable values.
    """
    for name in secrets or {}:
        _check_known(name, "", defaults, "--set-from-…")
    chosen = {**dict(_settings(set_, defaults)), **(secrets or {})}
    wanted = {name: list(values) for name, values in sweep.items() if name not in chosen}
    wanted |= dict(_sweeps(sweeps, defaults))
    if twice := sorted(wanted.keys() & chosen.keys()):
        raise typer.BadParameter(f"{', '.join(twice)}: it is set already", param_hint="--sweep")
    found = [
        Variant({**defaults, **chosen, **combination}, seed + number)
        for combination in combinations(wanted)
        for number in range(repeat)
    ]
    return found, list(wanted)


def _settings(settings: Sequence[str], defaults: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for setting in settings:
        name, value = _parted(setting, defaults, "--set", "NAME=VALUE")
        refuse_secret(name)
        yield name, value_of(name, value, defaults[name], "--set")


def _sweeps(sweeps: Sequence[str], defaults: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    for one in sweeps:
        name, value = _parted(one, defaults, "--sweep", "NAME=VALUE,VALUE,…")
        parts = [part.strip() for part in value.split(",") if part.strip()]
        if not parts:
            raise typer.BadParameter(
                f"{one!r} has no values; write them with commas: {name}=1,2,5", param_hint="--sweep"
            )
        yield name, [value_of(name, part, defaults[name], "--sweep") for part in parts]


def _parted(option: str, defaults: Mapping[str, Any], hint: str, form: str) -> tuple[str, str]:
    name, equals, value = option.partition("=")
    _check_known(name, "" if equals else f"{option!r} is not {form}", defaults, hint)
    return name, value


def _check_known(name: str, problem: str, defaults: Mapping[str, Any], hint: str) -> None:
    """Raise typer.BadParameter for an unknown name, and for a `problem`."""
    if name not in defaults:
        problem = f"{name!r} is not a parameter of this experiment"
    if problem:
        known = ", ".join(defaults) or "none: this experiment has no parameters"
        raise typer.BadParameter(f"{problem}; its parameters: {known}", param_hint=hint)


def value_of(name: str, text: str, default: Any, hint: str) -> Any:
    """Return `text` as a value of the type of `default`; of any type if that is None.

    A number may be whole or not, whatever the default is. Raises typer.BadParameter.
    """
    if isinstance(default, str):
        return text
    value: Any = text
    if text.lower() in _WORDS:
        value = _WORDS[text.lower()]
    else:
        with suppress(ValueError):
            value = json.loads(text)
    if default is None or value is None or type(value) is type(default):
        return value
    if {type(value), type(default)} == {int, float}:
        return float(value)
    raise typer.BadParameter(
        f"{name} is {_kind(default)} such as {default!r}, not {text!r}", param_hint=hint
    )


def _kind(value: Any) -> str:
    kinds = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    return kinds.get(type(value), f"a {type(value).__name__}")
