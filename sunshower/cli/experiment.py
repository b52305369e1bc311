"""`sunshower experiment`: runs, lists, compares; separate because it is a command."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from typing import Annotated, Any, Literal

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sunshower.cli.cluster_options import RUNS_FOLDER, RunsFolder
from sunshower.cli.formatting import Terminal, echo, echo_json, new_table
from sunshower.cli.program_options import (
    Address,
    AsJson,
    FromEnvironment,
    FromFile,
    read_secrets,
    refuse_secret,
)
from sunshower.experiments.experiment import combinations
from sunshower.experiments.outcome import Outcome, Verdict
from sunshower.experiments.report.drawing import (
    SIGNS,
    counted,
    figure,
    longest,
    moment,
    outcome_summary,
    span,
)
from sunshower.experiments.runner.experiment_runner import Variant
from sunshower.experiments.runner.run_folders import RunFolder, figures_of_all, points_of
from sunshower.secret import Secret

app = typer.Typer(
    no_args_is_help=True,
    help="Inject faults into a topology, and check its guarantees in its event log.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Target = Annotated[
    str,
    typer.Argument(
        metavar="FILE.py[:NAME]",
        help="A Python file, and the name of the Experiment in it: by default the only "
        "Experiment, or `experiment`.",
    ),
]
ClusterName = Annotated[
    Literal["sim", "ray"],
    typer.Option(help="The cluster: `sim` in virtual time, or `ray` with real processes."),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0, metavar="N", help="The seed of all random choices; with --repeat, the first seed."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Override a parameter of the experiment. May be repeated.",
    ),
]
Sweeps = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep",
        metavar="NAME=A,B,C",
        help="Run with each of these values. With several --sweep, in every combination.",
    ),
]
Repeat = Annotated[
    int,
    typer.Option(
        min=1, metavar="K", help="Run each combination with K seeds, one after the other."
    ),
]
Run = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help="A folder, NAME/TIME, or NAME for its latest run. By default the latest run.",
    ),
]
Remake = Annotated[bool, typer.Option("--report", help="Write the report again.")]
One = Annotated[str, typer.Argument(metavar="A", help="A run, as in `show`.")]
Other = Annotated[str, typer.Argument(metavar="B", help="A run, as in `show`.")]


@app.command(no_args_is_help=True)
def run(
    target: Target,
    cluster: ClusterName = "sim",
    seed: Seed = 0,
    settings: Settings = None,
    from_files: FromFile = None,
    from_environment: FromEnvironment = None,
    repeat: Repeat = 1,
    sweeps: Sweeps = None,
    as_json: AsJson = False,
    folder: RunsFolder = RUNS_FOLDER,
    address: Address = None,
) -> None:
    """Run an experiment, and print its verdict.

    Each run writes a folder experiments/NAME/TIME with its plan, its event log, its results and a
    report. If the experiment declares a sweep, all its combinations run, unless --set or --sweep
    names its parameters. The standard output of user code is not shown. The exit status is 0 only
    if the verdict is HOLDS; it is 1 for BROKEN and for UNKNOWN.
    """
    from sunshower.cli.cluster_options import check_address
    from sunshower.cli.display import Screen
    from sunshower.experiments.report.drawing import check_installed
    from sunshower.experiments.runner.experiment_runner import ExperimentRunner, RunRequest
    from sunshower.experiments.runner.loading import load_experiment

    check_installed()
    screen = Screen()
    with redirect_stdout(sys.stderr):  # what the file prints is not a result
        experiment, modules = load_experiment(target)
        chosen, swept = variants(
            experiment.parameters,
            experiment.sweep,
            set_=settings or (),
            secrets=read_secrets(from_files, from_environment),
            sweeps=sweeps or (),
            seed=seed,
            repeat=repeat,
        )
        elsewhere = folder if folder != RUNS_FOLDER else None
        request = RunRequest(target, cluster, address, tuple(swept), elsewhere)
        runner = ExperimentRunner(request, experiment, chosen, screen)
    if cluster == "ray" and address:
        check_address(address)
    with screen:
        made_run = runner.run(folder, modules, shlex.join(["sunshower", *sys.argv[1:]]))
    if as_json:
        echo_json({**made_run.results, "folder": str(made_run.path)})
    else:
        _print(made_run)
    raise typer.Exit(made_run.verdict is not Verdict.HOLDS)


@app.command("list")
def list_(folder: RunsFolder = RUNS_FOLDER) -> None:
    """List all runs, the latest first."""
    from sunshower.experiments.runner.run_folders import all_runs

    runs = all_runs(folder)
    if runs:
        Terminal().print(runs_table(runs))
    else:
        echo(f"{folder} has no run yet. Make one with: sunshower experiment run FILE.py")


@app.command()
def show(run: Run = None, report: Remake = False, folder: RunsFolder = RUNS_FOLDER) -> None:
    """Show the outcome of a run, and the path of its report.

    With --report the report is written again from the files of the run. If the run did not finish,
    or its event log is incomplete, the verdict is then UNKNOWN.
    """
    from sunshower.experiments.runner.run_folders import find, remake, remake_all

    folder_of_run, outcome = find(folder, run), None
    if report and folder_of_run.is_group:
        remake_all(folder_of_run)
    elif report:
        outcome = remake(folder_of_run)
    _print(folder_of_run, outcome)


@app.command(no_args_is_help=True)
def compare(first: One, second: Other, folder: RunsFolder = RUNS_FOLDER) -> None:
    """Compare two runs: parameters, verdicts, and figures with their ratios (B over A).

    The figures of a sweep or a repetition are medians.
    """
    from sunshower.experiments.runner.run_folders import find_both

    Terminal().print(comparison_table(*find_both(folder, first, second)))


def _print(shown: RunFolder, outcome: Outcome | None = None) -> None:
    """Print the outcome of a run or a group, and the path of the report."""
    from sunshower.experiments.runner.run_folders import REPORT

    console = Terminal()
    console.print(group_table(shown) if shown.is_group else outcome_table(outcome or shown.outcome))
    console.print(f"The report: {shown.path / REPORT}", soft_wrap=True, highlight=False)


# ---- parameters ----------------------------------------------------------------------------------

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
    all_variants = [
        Variant({**defaults, **chosen, **combination}, seed + number)
        for combination in combinations(wanted)
        for number in range(repeat)
    ]
    return all_variants, list(wanted)


def _settings(settings: Sequence[str], defaults: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for setting in settings:
        name, value = _parted(setting, defaults, "--set", "NAME=VALUE")
        refuse_secret(name)
        yield name, value_of(name, value, defaults[name], "--set")


def _sweeps(sweeps: Sequence[str], defaults: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    for sweep in sweeps:
        name, value = _parted(sweep, defaults, "--sweep", "NAME=VALUE,VALUE,…")
        parts = [part.strip() for part in value.split(",") if part.strip()]
        if not parts:
            raise typer.BadParameter(
                f"{sweep!r} has no values; write them with commas: {name}=1,2,5",
                param_hint="--sweep",
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
    kinds = {bool: "true or false", int: "a whole number", float: "a number"}
    kind = kinds.get(type(default), f"a {type(default).__name__}")
    raise typer.BadParameter(f"{name} is {kind} such as {default!r}, not {text!r}", param_hint=hint)


# ---- experiment tables ---------------------------------------------------------------------------

VERDICT_STYLES = {
    Verdict.HOLDS: "bold green",
    Verdict.UNKNOWN: "bold yellow",
    Verdict.BROKEN: "bold red",
}
_EVIDENCE_MAX = 12  # lines of one checker; the report has all
_RECOVERIES_MAX = 8


def outcome_table(outcome: Outcome) -> RenderableType:
    """Return the findings, the figures and the verdict of one run."""
    head = f"{outcome.experiment}  ·  {outcome.cluster}  ·  seed {outcome.seed}"
    findings = new_table("checker", "verdict", "why", title=head)
    for finding in outcome.findings:
        lines = [*finding.reasons, *finding.evidence[:_EVIDENCE_MAX]]
        if len(finding.evidence) > _EVIDENCE_MAX:
            lines.append(f"… {len(finding.evidence) - _EVIDENCE_MAX} more lines in the report")
        findings.add_row(finding.checker, signed(finding.verdict), Text("\n".join(lines)))
    parts: list[RenderableType] = [findings, _figures(outcome)]
    if outcome.recoveries:
        parts.append(_recoveries(outcome))
    parts += [Text(f"not done: {step}", style="yellow") for step in outcome.undone]
    parts.append(Text.assemble(signed(outcome.verdict), f"  {outcome_summary(outcome)}"))
    return Group(*parts)


def group_table(group: RunFolder) -> RenderableType:
    """Return one row for each run of a group, and the gravest verdict."""
    points = points_of(group)
    names = list(points[0][1].values) if points else []
    title = f"{group.name}  ·  {group.plan['cluster']}"
    seeds = {member.values["seed"] for _, member in points}
    if len(seeds) == 1:  # a column less, to fit into 80 columns
        names.remove("seed")
        title += f"  ·  seed {seeds.pop()}"
    measured = ("recovery", "throughput", "replays", "duplicates")
    table = new_table("run", *names, "verdict", *measured, title=title)
    for folder, member in points:
        recovery = "" if member.recovery_s is None else span(member.recovery_s)
        table.add_row(
            folder,
            *(figure(member.values[name]) for name in names),
            signed(member.verdict),
            recovery if member.recovers else "never",
            "" if member.throughput is None else f"{figure(member.throughput)}/s",
            *("" if n is None else figure(n) for n in (member.replays, member.duplicates)),
        )
    counts = counted([member.verdict for _, member in points], "run")
    errors = [(folder, member.error) for folder, member in points if member.error]
    unfinished = [Text(f"{run}: {error}", style="yellow") for run, error in errors]
    return Group(table, *unfinished, Text.assemble(_verdict(group), f"  {counts}"))


def runs_table(runs: Sequence[RunFolder]) -> Table:
    """Return one row for each run or group."""
    table = new_table("experiment", "run", "cluster", "seed", "verdict")
    for folder in runs:
        plan, verdict = folder.plan, folder.verdict
        unfinished = Text(f"did not end ({plan.get('stopped') or 'or runs still'})", style="dim")
        members = len(folder.runs) if folder.is_group else 0
        table.add_row(
            folder.name,
            folder.path.name + (f" ({members} runs)" if folder.is_group else ""),
            str(plan["cluster"]),
            str(plan["seed"]),
            unfinished if verdict is None else signed(verdict),
        )
    return table


def comparison_table(first: RunFolder, other: RunFolder) -> Table:
    """Return two runs side by side; a group has medians."""
    both = (first, other)
    table = new_table("", *(f"{folder.name} {folder.path.name}" for folder in both), "B / A")
    table.add_row("verdict", *map(_verdict, both))
    for key in ("cluster", "seed"):
        table.add_row(key, *(str(folder.plan[key]) for folder in both))
    parameters = [folder.plan["parameters"] for folder in both]
    for name in _all_names(parameters):
        values = [figure(side.get(name, "–")) for side in parameters]
        table.add_row(name, *values, style="" if values[0] == values[1] else "bold")
    table.add_section()
    figures = [figures_of_all(folder) for folder in both]
    for name in _all_names(figures):
        table.add_row(name, *_compared(figures[0].get(name), figures[1].get(name)))
    return table


def signed(verdict: Verdict) -> Text:
    """Return the verdict with its sign and colour."""
    return Text(f"{SIGNS[verdict]} {verdict}", style=VERDICT_STYLES[verdict])


def _verdict(folder: RunFolder) -> Text:
    return signed(folder.verdict) if folder.verdict else Text("did not end")


def _all_names(sides: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for side in sides for name in side))


def _compared(first: float | None, other: float | None) -> Iterator[str]:
    for value in (first, other):
        yield "–" if value is None else figure(value)
    yield f"{other / first:.2f}×" if first and other is not None else ""


def _figures(outcome: Outcome) -> Table:
    table = new_table("figure", numbers=("",))
    for name, value in outcome.figures.items():
        table.add_row(name, figure(value))
    table.add_row("seconds", figure(round(outcome.seconds, 3)))
    return table


def _recoveries(outcome: Outcome) -> Table:
    shown = longest(outcome.recoveries, _RECOVERIES_MAX)
    more = len(outcome.recoveries) - len(shown)
    table = new_table(
        f"fault (the {len(shown)} worst)" if more else "fault", "at", "recovered after"
    )
    for recovery in shown:
        after = "never" if recovery.seconds is None else span(recovery.seconds)
        table.add_row(recovery.fault, moment(recovery.begun_s), after)
    return table
