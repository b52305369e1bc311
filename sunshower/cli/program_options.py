"""Options of the commands that read a program or settings, and what they mean."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from inspect import Signature, signature
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sunshower.config import LIMITS, Config
from sunshower.errors import ConfigError
from sunshower.record_loops import PURE
from sunshower.secret import Secret, is_secret

if TYPE_CHECKING:
    from sunshower.topologies.graph import Graph

INTERRUPTED = 130  # the exit status after Ctrl-C: 128 + SIGINT, as in shells
Target = Annotated[
    str,
    typer.Argument(
        metavar="FILE.py[:NAME]",
        help="A Python file, and the name of the Topology in it: by default the "
        "only Topology, or `topology`.",
    ),
]
LayoutName = Annotated[
    Literal["pack", "isolate"],
    typer.Option(
        help="How tasks share worker processes: several in one process, for throughput, or one "
        "task in each process, for experiments."
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="The number of worker processes of `pack`; short for --set workers=N.",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="The Ray cluster. By default a local Ray is started, and ends with the run.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Override a setting of the topology's Config, also one of `sunshower.toml` and of a "
        "variable such as SUNSHOWER_WORKERS. May be repeated: "
        "--set spout_pending=1000 --set message_timeout_s=5",
    ),
]
FromFile = Annotated[
    list[str] | None,
    typer.Option(
        "--set-from-file",
        metavar="NAME=FILE",
        help="Like --set, with the text of a file: for passwords, because every user of a machine "
        "can see the arguments of its processes. May be repeated.",
    ),
]
FromEnvironment = Annotated[
    list[str] | None,
    typer.Option(
        "--set-from-env",
        metavar="NAME=VARIABLE",
        help="Like --set-from-file, with the value of an environment variable.",
    ),
]
WithPage = Annotated[
    bool,
    typer.Option(
        "--ui",
        help="Serve a web page that shows the run, as `sunshower ui` does: on a terminal until "
        "Ctrl-C, also when the run has ended.",
    ),
]
Stays = Annotated[
    bool | None,
    typer.Option(
        "--stay/--no-stay",
        help="Whether the page of --ui outlives the run. By default only if the standard error "
        "is a terminal.",
    ),
]
Internals = Annotated[
    bool,
    typer.Option(
        "--internals", help="Also show the coordinators and the streams of exactly-once batches."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


def made_of_options(**makers: Callable[..., Any]) -> Callable[[Callable[..., None]], Any]:
    """Let a command take, in place of each of these arguments, the options of a function that makes
    the argument: so several commands have the same options, which are declared once."""
    options = {name: signature(maker, eval_str=True).parameters for name, maker in makers.items()}

    def decorate(command: Callable[..., None]) -> Any:
        parameters = signature(command, eval_str=True).parameters
        all_of = [
            o for name in parameters for o in options.get(name, {name: parameters[name]}).values()
        ]

        @wraps(command)
        def call(**options_given: Any) -> None:
            for name, maker in makers.items():
                options_given[name] = maker(
                    **{option: options_given.pop(option) for option in options[name]}
                )
            command(**options_given)

        taken = [option.replace(kind=option.KEYWORD_ONLY) for option in all_of]
        call.__signature__ = Signature(taken)  # type: ignore[attr-defined]
        call.__annotations__ = {option.name: option.annotation for option in taken}
        return call

    return decorate


# ---- setting sources -----------------------------------------------------------------------------
# Settings of a topology from `sunshower.toml`, the environment and `--set`, each with its place.
#
#     the program's Config  <  sunshower.toml  <  SUNSHOWER_NAME in the environment  <  --set
#
# The file is that in the folder of the program, or else in the current one.

FILE = "sunshower.toml"
_PREFIX = "SUNSHOWER_"
_OF_KUBERNETES = re.compile(r"(SERVICE_|PORT($|_))")  # of a Service with the name `sunshower`


@dataclass(frozen=True)
class Setting:
    """The value of a setting, and where it comes from. `under`: what --set has replaced."""

    value: Any
    place: str
    under: Setting | None = None


def settings_of(folder: Path, given: Sequence[str]) -> dict[str, Setting]:
    """The settings for a program in `folder`: of the file and the environment, and those `given` as
    NAME=VALUE. Raises ConfigError for the first two, typer.BadParameter for `given`."""
    settings = {**_of_file(folder), **_of_environment(os.environ)}
    return {
        **settings,
        **{
            name: Setting(value, "--set", settings.get(name))
            for name, value in parse_settings(given).items()
        },
    }


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Parse `name=value` into arguments of Config. Raises a usage error for unknown names."""
    values: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in LIMITS:
            raise typer.BadParameter(
                f"{setting!r} is not NAME=VALUE with a NAME of these: {', '.join(LIMITS)}",
                param_hint="--set",
            )
        try:
            values[name] = _setting_value(name, value)
        except ConfigError as error:
            raise typer.BadParameter(str(error), param_hint="--set") from None
    try:
        Config(**values)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--set") from None
    return values


def _setting_value(name: str, text: str) -> Any:
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
    settings = {}
    for name, value in table.items():
        place = f"{path}{_line_of(name, text)}"
        _check_is_setting(name, place)
        if not isinstance(value, str | int | float):
            raise ConfigError(f"{place}: {name} is {LIMITS[name].typed}, not {json_text(value)}")
        settings[name] = Setting(_checked(place, name, json_text(value)), place)
    return settings


def _of_environment(variables: Mapping[str, str]) -> dict[str, Setting]:
    settings = {}
    for variable, text in sorted(variables.items()):
        rest = variable.removeprefix(_PREFIX)
        if variable in {rest, PURE} or _OF_KUBERNETES.match(rest):
            continue
        name = rest.lower()
        _check_is_setting(name, variable)
        settings[name] = Setting(_checked(variable, name, text), variable)
    return settings


def json_text(value: Any) -> str:
    """A value of TOML as it is typed after --set."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _checked(place: str, name: str, text: str) -> Any:
    try:
        return _setting_value(name, text)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None


def _check_is_setting(name: str, place: str) -> None:
    if name not in LIMITS:
        raise ConfigError(
            f"{place}: {name!r} is not a setting of a topology; these are: {', '.join(LIMITS)}"
        )


def _line_of(name: str, text: str) -> str:
    """The line of a file that begins with a name, as in `, line 3`."""
    start = re.compile(rf"\s*(\[+\s*)?[\"']?{re.escape(name)}\b")
    lines = enumerate(text.splitlines(), start=1)
    return next((f", line {number}" for number, line in lines if start.match(line)), "")


def load_graph(
    target: str, settings: list[str] | None, workers: int | None, folder: Path | None = None
) -> tuple[Graph, tuple[ModuleType, ...]]:
    """Load a topology with changed settings; returns its graph and the modules to ship: those below
    the folder of the file, and below `folder`."""
    from sunshower.experiments.runner.loading import load, split_target

    given = [*(settings or ()), *([f"workers={workers}"] if workers else ())]
    chosen = settings_of(split_target(target)[0].parent, given)
    loaded = load(target, folder=folder)
    graph = loaded.topology.graph()
    changes = {name: setting.value for name, setting in chosen.items()}
    try:
        config = replace(graph.config, **changes)
    except ConfigError as error:  # of two settings that contradict each other
        places = sorted({setting.place for setting in chosen.values()})
        raise ConfigError(f"{', '.join(places)}: {error}") from None
    under = {name: chosen.under for name, chosen in chosen.items() if chosen.place == "--set"}
    underlying = {
        name: getattr(graph.config, name) if setting is None else setting.value
        for name, setting in under.items()
    }
    return replace(graph, config=config, given=underlying), loaded.modules


def read_secrets(files: Sequence[str] | None, variables: Sequence[str] | None) -> dict[str, Secret]:
    """The values of `--set-from-file` and `--set-from-env`. Raises ConfigError for a file or a
    variable that is missing, typer.BadParameter for anything but NAME=WHERE."""
    secrets: dict[str, Secret] = {}
    sources = (
        ("--set-from-file", files, Secret.from_file),
        ("--set-from-env", variables, Secret.from_environment),
    )
    for option, texts, read in sources:
        for text in texts or ():
            name, equals, where = text.partition("=")
            if not equals or not name or not where:
                raise typer.BadParameter(f"{text!r} is not NAME=WHERE", param_hint=option)
            secrets[name] = read(where)
    return secrets


def refuse_secret(name: str) -> None:
    """Raise typer.BadParameter if a setting of that name must not be an argument."""
    if is_secret(name):
        raise typer.BadParameter(
            f"{name} is a secret, and every user of this machine can see the arguments of a "
            f"process: give it as --set-from-file {name}=FILE, or --set-from-env {name}=VARIABLE",
            param_hint="--set",
        )
