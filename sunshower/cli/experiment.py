"""`sunshower experiment`: runs experiments; lists, shows and compares their outcomes."""

from __future__ import annotations

import shlex
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sunshower.cli.cluster_options import RUNS_FOLDER, RunsFolder
from sunshower.cli.formatting import Terminal, echo, echo_json
from sunshower.cli.run import Address, AsJson, FromEnvironment, FromFile, read_secrets

if TYPE_CHECKING:
    from sunshower.experiments.evidence.outcome import Outcome
    from sunshower.experiments.runner.run_folders import RunFolder

app = typer.Typer(
    no_args_is_help=True,
    help="Inject faults into a topology, and check its guarantees in its event log.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Target = Annotated[
    str,
    typer.Argument(
        metavar="FILE.py[:NAME]",
        show_default=False,
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
        show_default=False,
        help="Override a parameter of the experiment. May be repeated.",
    ),
]
Sweeps = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep",
        metavar="NAME=A,B,C",
        show_default=False,
        help="Run with each of these values. With several --sweep, in every combination.",
    ),
]
Repeat = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="K",
        help="Run each combination with K seeds, one after the other.",
    ),
]
Run = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        show_default=False,
        help="A folder, NAME/TIME, or NAME for its latest run. By default the latest run.",
    ),
]
Remake = Annotated[bool, typer.Option("--report", help="Write the report again.")]
One = Annotated[str, typer.Argument(metavar="A", show_default=False, help="A run, as in `show`.")]
Other = Annotated[str, typer.Argument(metavar="B", show_default=False, help="A run, as in `show`.")]


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
    from sunshower.cli.parameters import variants
    from sunshower.cli.screen import Screen
    from sunshower.experiments.evidence.outcome import Verdict
    from sunshower.experiments.report.drawing import check_installed
    from sunshower.experiments.runner.experiment_runner import ExperimentRunner
    from sunshower.experiments.runner.loading import load_experiment
    from sunshower.experiments.runner.run_request import RunRequest

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
        found = runner.run(folder, modules, shlex.join(["sunshower", *sys.argv[1:]]))
    if as_json:
        echo_json({**found.results, "folder": str(found.path)})
    else:
        _print(found)
    raise typer.Exit(found.verdict is not Verdict.HOLDS)


@app.command("list")
def list_(folder: RunsFolder = RUNS_FOLDER) -> None:
    """List all runs, the latest first."""
    from sunshower.cli.experiment_tables import runs_table
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
    from sunshower.experiments.runner.run_folders import find
    from sunshower.experiments.runner.run_reports import remake, remake_all

    found = find(folder, run)
    if not report:
        _print(found)
    elif found.is_group:
        remake_all(found)
        _print(found)
    else:
        _print(found, remake(found))


@app.command(no_args_is_help=True)
def compare(one: One, other: Other, folder: RunsFolder = RUNS_FOLDER) -> None:
    """Compare two runs: parameters, verdicts, and figures with their ratios (B over A).

    The figures of a sweep or a repetition are medians.
    """
    from sunshower.cli.experiment_tables import comparison_table
    from sunshower.experiments.runner.run_folders import find_both

    Terminal().print(comparison_table(*find_both(folder, one, other)))


def _print(found: RunFolder, outcome: Outcome | None = None) -> None:
    """Print the outcome of a run or a group, and the path of the report."""
    from sunshower.cli.experiment_tables import group_table, outcome_table
    from sunshower.experiments.runner.run_folders import REPORT

    console = Terminal()
    if found.is_group:
        console.print(group_table(found))
    else:
        console.print(outcome_table(outcome or found.outcome))
    console.print(f"The report: {found.path / REPORT}", soft_wrap=True, highlight=False)
