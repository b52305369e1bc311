"""`sunshower experiment`: run one, list what was run, show and compare what it came to."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from sunshower.cli.folders import RunFolder
    from sunshower.faults.outcome import Outcome

app = typer.Typer(
    no_args_is_help=True,
    help="Hurt a topology on purpose, and prove from its history what survived.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Target = Annotated[
    str,
    typer.Argument(
        metavar="FILE.py[:NAME]",
        show_default=False,
        help="A Python file, and the name of the Experiment in it: by default the only one that "
        "is there, or `experiment`.",
    ),
]
ClusterName = Annotated[
    Literal["sim", "ray"],
    typer.Option(help="Where it runs: simulated, on virtual time, or on real processes."),
]
Seed = Annotated[
    int, typer.Option(min=0, metavar="N", help="What all chance comes from; of --repeat the first.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        show_default=False,
        help="Overrides a parameter of the experiment; may be repeated.",
    ),
]
Sweeps = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep",
        metavar="NAME=A,B,C",
        show_default=False,
        help="Runs it with each of these values; with several, in every combination.",
    ),
]
Repeat = Annotated[
    int, typer.Option(min=1, metavar="K", help="Runs each combination with K seeds, one by one.")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on the standard output.")
]
Root = Annotated[
    Path, typer.Option("--folder", metavar="DIR", help="Where the folders of all runs are.")
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        show_default=False,
        help="A running Ray to use. By default one is started here, and ended with the run.",
    ),
]
Run = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        show_default=False,
        help="A folder, NAME/TIME, or NAME for its latest run. By default the newest of all.",
    ),
]
Remake = Annotated[bool, typer.Option("--report", help="Make the report again.")]
One = Annotated[str, typer.Argument(metavar="A", show_default=False, help="As for `show`.")]
Other = Annotated[str, typer.Argument(metavar="B", show_default=False, help="As for `show`.")]
ROOT = Path("experiments")


@app.command(no_args_is_help=True)
def run(
    target: Target,
    cluster: ClusterName = "sim",
    seed: Seed = 0,
    settings: Settings = None,
    repeat: Repeat = 1,
    sweeps: Sweeps = None,
    as_json: AsJson = False,
    folder: Root = ROOT,
    address: Address = None,
) -> None:
    """Run an experiment, and say what survived.

    Each run leaves a folder experiments/NAME/TIME with its plan, its history, its results and a
    report to look at. An experiment that has a sweep of its own goes through it, unless --set or
    --sweep names its parameters. What user code writes to the standard
    output is not shown. The exit status is 0 only when
    the verdict is HOLDS; it is 1 for BROKEN and for UNKNOWN.
    """
    from sunshower.cli.campaign import Campaign
    from sunshower.cli.loading import load_experiment
    from sunshower.cli.orders import Order
    from sunshower.cli.parameters import variants
    from sunshower.cli.screen import Screen
    from sunshower.cli.session import check_address
    from sunshower.faults.outcome import Verdict
    from sunshower.faults.report.drawing import check_installed

    check_installed()
    screen = Screen()
    with redirect_stdout(sys.stderr):  # what the file itself prints is no result
        experiment, modules = load_experiment(target)
        chosen, swept = variants(
            experiment.parameters,
            experiment.sweep,
            set_=settings or (),
            sweeps=sweeps or (),
            seed=seed,
            repeat=repeat,
        )
        elsewhere = folder if folder != ROOT else None
        order = Order(target, cluster, address, tuple(swept), elsewhere)
        campaign = Campaign(order, experiment, chosen, screen)
    if cluster == "ray" and address:
        check_address(address)
    with screen:
        found = campaign.conduct(folder, modules, _typed())
    if as_json:
        typer.echo(json.dumps({**found.results, "folder": str(found.path)}))
    else:
        _print(found)
    raise typer.Exit(found.verdict is not Verdict.HOLDS)


@app.command("list")
def list_(folder: Root = ROOT) -> None:
    """List all runs, the newest first."""
    from rich.console import Console

    from sunshower.cli.folders import all_runs
    from sunshower.cli.results import runs_table

    runs = all_runs(folder)
    if runs:
        Console().print(runs_table(runs))
    else:
        typer.echo(f"{folder} has no run yet. Make one with: sunshower experiment run FILE.py")


@app.command()
def show(run: Run = None, report: Remake = False, folder: Root = ROOT) -> None:
    """Show what a run came to, and where its report is.

    With --report the report is made again from the files of the run; a run that did not come to
    its end, or whose history is cut, then has the verdict UNKNOWN.
    """
    from sunshower.cli.folders import find
    from sunshower.cli.reports import remake, remake_all

    found = find(folder, run)
    if not report:
        _print(found)
    elif found.is_group:
        remake_all(found)
        _print(found)
    else:
        _print(found, remake(found))


@app.command(no_args_is_help=True)
def compare(one: One, other: Other, folder: Root = ROOT) -> None:
    """Compare two runs: parameters, verdicts, and figures with their ratios (B over A).

    Of a sweep or a repetition the figures are medians.
    """
    from rich.console import Console

    from sunshower.cli.folders import find_both
    from sunshower.cli.results import comparison_table

    Console().print(comparison_table(*find_both(folder, one, other)))


def _print(found: RunFolder, outcome: Outcome | None = None) -> None:
    """What a run, or several, came to; and where the report is."""
    from rich.console import Console

    from sunshower.cli.folders import REPORT
    from sunshower.cli.results import group_table, outcome_table

    console = Console()
    if found.is_group:
        console.print(group_table(found))
    else:
        console.print(outcome_table(outcome or found.outcome))
    console.print(f"The report: {found.path / REPORT}", soft_wrap=True, highlight=False)


def _typed() -> str:
    """The command as it was typed."""
    return shlex.join(["sunshower", *sys.argv[1:]])
