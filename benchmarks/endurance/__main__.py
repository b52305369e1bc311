"""`python -m benchmarks.endurance`: runs the endurance experiments, and checks their targets.

With --hours: one long run with kills and outages, and the memory, files and threads of all
processes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.interpreter import restart_optimised

RESULTS = Path(__file__).parents[1] / "results"
NAMES = ("chaos", "slow", "poison", "programs")
LONG = ("load", "groups")  # half an hour; an hour with --seconds 3600: only by their names
RATE = 20_000  # tuples a second in the experiment chaos
_PATIENCE_S = 20.0  # for an idle machine, at most; the results record how busy it was


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    from benchmarks.endurance.kills import KINDS

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.endurance",
        description="Run topologies with kills, a slow bolt, poison tuples, and other loads; and "
        "twelve programs over event time, on both kinds of stream, each for a quarter of "
        "--seconds.",
    )
    parser.add_argument(
        "what", nargs="*", choices=[[], *NAMES, *LONG], metavar="|".join(NAMES + LONG)
    )
    parser.add_argument("--hours", type=float, help="only make one long run of this length")
    parser.add_argument("--seconds", type=float, default=60.0, help="(default: %(default)g)")
    parser.add_argument("--seed", type=int, default=1, help="of the kills (default: %(default)s)")
    parser.add_argument("--victims", nargs="+", choices=KINDS, default=KINDS, metavar="KIND")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(given)
    options.what = ["soak"] if options.hours else options.what or list(NAMES)
    if options.seconds < 10:
        parser.error("--seconds must be at least 10, so that a process can be killed and recover")
    return options


def main() -> int:
    options = arguments()
    if options.what == ["groups"] and not options.json:  # a measure of time
        restart_optimised("benchmarks.endurance")
    from rich.console import Console
    from rich.markup import escape

    from benchmarks.endurance import page
    from benchmarks.endurance.tables import tables
    from benchmarks.endurance.targets import judge_all
    from benchmarks.machine import describe, wait_until_idle
    from benchmarks.measure import BenchmarkError
    from sunshower.errors import SunshowerError

    console = Console(
        width=None if sys.stdout.isatty() else 132, highlight=False, stderr=options.json
    )
    begun_s = time.monotonic()

    def log(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - begun_s:5.0f} s[/]  {escape(text)}")

    seconds = options.hours * 3600 if options.hours else options.seconds
    settings = {"seconds": seconds, "seed": options.seed, "rate": RATE}
    report: dict[str, Any] = {**describe(), "settings": {**settings, "victims": options.victims}}
    report["busy_cores"] = round(wait_until_idle(_PATIENCE_S), 2)  # by other work, before the run
    try:
        report |= experiments(options, log)
    except (BenchmarkError, SunshowerError) as error:
        console.print("[red]The run has failed:[/]", escape(str(error)), soft_wrap=True)
        return 1
    report["targets"] = judge_all(report)
    if options.hours:
        report["targets"] = [target for target in report["targets"] if target["value"] is not None]
    text = json.dumps(report, indent=1, ensure_ascii=False)
    file = page.RESULT if options.hours else RESULTS / "endurance.json"
    file.write_text(text + "\n", encoding="utf-8")
    if options.json:
        print(text)
    else:
        console.print(tables(report))
        console.print(f"Written to benchmarks/results/{file.name}")
    if options.hours and page.write_figures(report):
        log("docs/RELIABILITY.md has these figures and their plot")
    return int(any(target["met"] is False for target in report["targets"]))


def experiments(options: argparse.Namespace, log: Any) -> dict[str, Any]:
    """Run the selected experiments in sequence, on one Ray."""
    from benchmarks import start_signal
    from benchmarks.endurance import groups, kills, load, programs, row_files, topologies
    from benchmarks.endurance.chaos import run_chaos
    from benchmarks.endurance.slow import run_slow
    from benchmarks.endurance.targets import LAYOUTS
    from benchmarks.simulated import stage_chains
    from sunshower.actors.cluster import RayCluster
    from sunshower.actors.output import worker_output
    from sunshower.actors.shipping import ship
    from sunshower.runtime.plan import Layout

    if options.hours:
        from benchmarks.endurance.soak import run_soak

        return {"soak": run_soak(options.hours * 3600, options.seed, log)}
    ship([start_signal, row_files, kills, topologies, load, programs, stage_chains])
    figures: dict[str, Any] = {}
    if "groups" in options.what:
        with tempfile.TemporaryDirectory(prefix="sunshower-") as name:
            figures["groups"] = groups.run_groups(Path(name) / "groups", options.seconds, log)
        if options.what == ["groups"]:
            return figures
    with (
        tempfile.TemporaryDirectory(prefix="sunshower-") as name,
        RayCluster() as cluster,
        worker_output(lambda *_: None),  # without Ray's message for each killed process
    ):
        folder = Path(name)
        if "chaos" in options.what:
            parameters = (options.seconds, RATE, options.seed, options.victims, log)
            figures["chaos"] = {
                layout: run_chaos(cluster, folder / layout, Layout(layout), *parameters)
                for layout in LAYOUTS
            }
        if "slow" in options.what:
            figures["slow"] = run_slow(cluster, folder / "slow", options.seconds, log)
        if "poison" in options.what:
            from benchmarks.endurance.poison import run_poison

            figures["poison"] = run_poison(cluster, folder / "poison", options.seconds, log)
        if "programs" in options.what:
            parameters = (folder / "programs", options.seconds / 4, options.seed, log)
            figures["programs"] = programs.run_programs(cluster, *parameters)
        if "load" in options.what:
            figures["load"] = load.run_load(cluster, folder / "load", log)
    return figures


if __name__ == "__main__":
    sys.exit(main())
