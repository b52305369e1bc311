"""`python -m benchmarks`: runs benchmarks, writes results and their page, reports regressions."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from benchmarks.interpreter import restart_optimised
from benchmarks.names import NAMES, SHORT

if TYPE_CHECKING:
    from rich.console import Console

    from benchmarks.comparisons import SharedResources
    from benchmarks.measure import Comparison, ComparisonResults, Log
    from benchmarks.regressions import Regression
    from benchmarks.results_file import Run


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Compare Sunshower with a bare loop and Bytewax: at most 15 minutes.",
    )
    parser.add_argument(
        "--only", nargs="+", choices=NAMES, help="run only these benchmarks", metavar="NAME"
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="run all benchmarks, with all peers; with --only: the named ones, with all peers",
    )
    parser.add_argument("--repeat", type=int, default=3, help="rounds (default: %(default)s)")
    parser.add_argument("--words", type=int, default=4_000_000, help="words in each word count")
    parser.add_argument("--messages", type=int, default=1_000_000, help="in the Kafka topic")
    parser.add_argument(
        "--quick", action="store_true", help="one short round as a check; writes no results"
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="do not measure: run each entry of Sunshower once, and record its profile",
    )
    parser.add_argument(
        "--this-python",
        action="store_true",
        help="use this Python, even if it is not an optimised build and the distribution has one",
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="how long to wait before each run until other work on this machine ends",
    )
    options = parser.parse_args(given)
    if options.repeat < 1 or options.words < 1_000 or options.words % 1_000:
        parser.error("--repeat must be at least 1, --words a multiple of 1,000")
    options.only = options.only or (NAMES if options.all else SHORT)
    options.seconds, options.idle_seconds = 2.0, 10.0
    options.windows, options.simulated, options.batches = 50, 100, 200
    if options.profile:
        options.seconds = 6.0  # longer than a profile takes samples
    if options.quick:
        options.repeat, options.words = 1, min(options.words, 200_000)
        options.messages = min(options.messages, 40_000)
        options.seconds, options.idle_seconds = 1.0, 2.0
        options.windows, options.simulated, options.batches = 5, 5, 5
        options.patience = 0.0
    return options


def main() -> int:
    options = arguments()
    if not options.this_python:
        restart_optimised()
    from rich.console import Console
    from rich.markup import escape

    from benchmarks import machine, regressions, results_file
    from benchmarks.performance.page import write_page
    from benchmarks.tables import tables
    from benchmarks.targets import TARGETS

    console = Console(width=None if sys.stdout.isatty() else 132, highlight=False)
    begun_s = time.monotonic()

    def log(text: str) -> None:
        console.print(
            f"[dim]{time.monotonic() - begun_s:5.0f} s[/]  {escape(text)}", soft_wrap=True
        )

    settings = {"words": options.words, "messages": options.messages, "seconds": options.seconds}
    environment = {**machine.describe(), "settings": settings}
    run = results_file.Run(
        datetime.now(UTC).date().isoformat(), environment["commit"], options.repeat
    )
    before, committed, now = (
        results_file.read(),
        results_file.read_committed(),
        results_file.empty(),
    )

    def keep(comparison: Comparison, results: ComparisonResults) -> None:
        part = results_file.rows_and_ratios(results.series, comparison.ratios, run)
        now.update(results_file.merge(now, part))
        if not options.quick:
            merged = results_file.merge(before, now)
            results_file.write(results_file.with_targets(merged, environment, TARGETS))

    if options.profile:
        failures = record_profiles(options, log, run)
        write_page(results_file.read())
        console.print("Written: benchmarks/results/profiles.json, docs/PERFORMANCE.md.")
        return conclude(console, failures, None)
    failures = measure(options, log, keep)
    console.print(tables(results_file.with_targets(now, environment, TARGETS)))
    if options.quick:
        worse: list[Regression] | None = None
        console.print("A quick run writes no results. Do not use its figures.")
    else:
        worse = regressions.find_regressions(committed, now)
        write_page(results_file.read())
        console.print("Written: benchmarks/results/latest.json, docs/PERFORMANCE.md and its plots.")
    return conclude(console, failures, worse)


def measure(
    options: argparse.Namespace, log: Log, keep: Callable[[Comparison, ComparisonResults], None]
) -> dict[str, str]:
    """Run the selected comparisons. Returns the failures: name → reason.

    `keep` is called with the results of each comparison when it ends. Ctrl-C ends the run.
    """
    from benchmarks.measure import run_comparison

    def take(comparison: Comparison, _: SharedResources) -> Mapping[str, str]:
        results = run_comparison(comparison, options.repeat, options.patience, log)
        keep(comparison, results)
        return results.failures

    return for_each_comparison(options, log, take)


def record_profiles(options: argparse.Namespace, log: Log, run: Run) -> dict[str, str]:
    """Profile our entries of the selected comparisons. Returns the failures: name → reason."""
    from benchmarks.profiling import WorkerProfiles, profile

    workers = WorkerProfiles()

    def take(comparison: Comparison, shared: SharedResources) -> Mapping[str, str]:
        shared.cluster.during_run = workers.take
        profile(comparison, workers, run, log)
        return {}

    return for_each_comparison(options, log, take)


def for_each_comparison(
    options: argparse.Namespace,
    log: Log,
    take: Callable[[Comparison, SharedResources], Mapping[str, str]],
) -> dict[str, str]:
    """Prepare the selected comparisons, and call `take` with each. Returns the failures."""
    from benchmarks.comparisons import SharedResources, comparisons
    from benchmarks.measure import MissingRequirement

    failures: dict[str, str] = {}
    try:
        with ExitStack() as stack:
            shared = SharedResources(options, stack, log)
            for name, make in comparisons(shared):
                try:
                    comparison = make()
                except MissingRequirement as error:
                    log(f"{name} is skipped: {error}")
                    continue
                except Exception as error:
                    failures[name] = f"{type(error).__name__}: {error}"
                    log(f"{name} cannot be prepared, and is omitted: {failures[name]}")
                    continue
                failures |= take(comparison, shared)
    except KeyboardInterrupt:
        failures["the run"] = "it was interrupted; its results are those measured before"
    return failures


def conclude(
    console: Console, failures: Mapping[str, str], worse: Sequence[Regression] | None
) -> int:
    """Print the failures and the worse ratios in the last lines. Returns the exit status.

    `worse` is None if nothing was compared.
    """
    lines = [f"Failed: {name}: {why}" for name, why in failures.items()]
    lines += [f"Worse: {change}" for change in worse or ()]
    if worse:
        lines.append(
            f"Regression: {len(worse)} of the ratios are worse than in the last commit by more "
            "than 20 %. Status 1."
        )
    elif failures:
        lines.append(f"{len(failures)} could not be measured. Status 1.")
    style = "red" if lines else None
    if not lines and worse is not None:
        lines.append("No ratio is worse than in the last commit by more than 20 %.")
    for line in lines:
        console.print(line, style=style, markup=False, soft_wrap=True)
    return int(bool(failures or worse))


if __name__ == "__main__":
    sys.exit(main())
