"""`python -m benchmarks.outages NAME … --seconds N`: real outages and overload on a real Ray.

NAME is a module of benchmarks/outage_scenarios, overload_scenarios or network; without names all of
them run. An outage lasts `--seconds`; an overload run takes `--seconds` in total. The figures are
printed and appended to results/outages.json. The exit status is 1 if a scenario could not run or
missed a bound.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

OVERLOAD = "overload_scenarios"
PACKAGES = (OVERLOAD, "outage_scenarios", "network")
RESULTS = Path(__file__).parent / "results" / "outages.json"
SHORT_S, LONG_S = 30.0, 600.0
OVERLOAD_LONG_S = 900.0  # 30 message timeouts
# Figures that must be 0 in the scenarios that have them.
_ZERO = ("lost", "missing", "timeouts", "dead_letters", "dead letters", "quarantined")
_ZERO_OF_SOME = (
    "batch_counts_wrong",
    "states_wrong",
    "lines_wrong",
    "acked_early",
    "charged",
    "zombies",
    "needless_replacements",
)
_RECOVERY_MAX_S = 30.0
_REPLACED_MAX_S = 60.0
_LETTER_MAX_S = 5.0
_SPEED_MIN = 0.9


def modules() -> dict[str, str]:
    """Scenario → its module, of those that have `run`."""
    here = Path(__file__).parent
    files = [file for folder in PACKAGES for file in sorted((here / folder).glob("[a-z]*.py"))]
    scenarios = [file for file in files if "\ndef run(" in file.read_text(encoding="utf-8")]
    return {file.stem: f"benchmarks.{file.parent.name}.{file.stem}" for file in scenarios}


def names() -> list[str]:
    """All scenarios."""
    return [*modules()]


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.outages", description="Outages and overload on a real Ray."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(names())}")
    parser.add_argument("--seconds", type=float, help=f"of each outage (default: {SHORT_S:g})")
    parser.add_argument(
        "--long",
        action="store_true",
        help=f"outages of {LONG_S:g} s, overload for {OVERLOAD_LONG_S:g} s",
    )
    options = parser.parse_args(given)
    if unknown := set(options.names) - set(names()):
        parser.error(f"there is no scenario {', '.join(sorted(unknown))}: {', '.join(names())}")
    options.names = options.names or names()
    return options


def seconds_of(name: str, options: argparse.Namespace) -> float:
    """How long a scenario's outage or overload lasts."""
    if options.seconds is not None:
        return float(options.seconds)
    if not options.long:
        return SHORT_S
    return OVERLOAD_LONG_S if f".{OVERLOAD}." in modules()[name] else LONG_S


def missed_bounds(figures: dict[str, Any]) -> list[str]:
    """The bounds that the figures of a scenario miss, one sentence each."""
    state = str(figures.get("state", ""))
    problems = [f"it is {state}: {figures.get('why', '')}"] if state.startswith("failed") else []
    problems += [
        f"{figures[name]} {name}" for name in (*_ZERO, *_ZERO_OF_SOME) if figures.get(name)
    ]
    if not 0 <= figures.get("recovery_s", 0) <= _RECOVERY_MAX_S:
        problems.append(f"recovery took {figures['recovery_s']} s (-1: never)")
    if not 0 <= figures.get("replaced_s", 0) <= _REPLACED_MAX_S:
        problems.append(f"the replacement took {figures['replaced_s']} s (-1: there was none)")
    if not 0 <= figures.get("all_keys_flow_s", 0) <= _REPLACED_MAX_S:
        problems.append(f"records of all keys flow after {figures['all_keys_flow_s']} s")
    if figures.get("resumed_s", 0) > _RECOVERY_MAX_S:
        problems.append(f"work resumed after {figures['resumed_s']} s")
    if figures.get("worst_s", 0) > _LETTER_MAX_S:
        problems.append(f"a letter took {figures['worst_s']} s")
    if figures.get("speed", 1) < _SPEED_MIN:
        problems.append(f"{figures['speed']} of the slow bolt's speed alone")
    return problems


def run_scenario(name: str, seconds: float) -> dict[str, Any]:
    """Run a scenario. Returns its figures, and the bounds that they miss."""
    module = importlib.import_module(modules()[name])
    begun_s = time.monotonic()
    figures: dict[str, Any] = module.run(seconds)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    took_s = round(time.monotonic() - begun_s)
    wrong = missed_bounds(figures)
    return {"name": name, "seconds": seconds, "at": at, "took_s": took_s, "wrong": wrong} | {
        "figures": figures
    }


def append(result: dict[str, Any], file: Path = RESULTS) -> None:
    """Add a run to the file."""
    earlier = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    text = json.dumps([*earlier, result], indent=1, ensure_ascii=False)
    file.write_text(text + "\n", encoding="utf-8")


def main() -> int:
    options = arguments()
    from rich.console import Console
    from rich.table import Table

    from benchmarks.machine import describe
    from benchmarks.measure import MissingRequirement

    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    bad = 0
    for name in options.names:
        seconds = seconds_of(name, options)
        console.print(f"[dim]{name} for {seconds:g} s …[/]")
        try:
            result = run_scenario(name, seconds)
        except MissingRequirement as error:
            console.print(f"{name} is skipped: {error}", markup=False)
            continue
        except Exception as error:  # a missing server, or a defect: the others still run
            console.print(f"{name} could not be run: {type(error).__name__}: {error}", markup=False)
            bad += 1
            continue
        append({**result, **describe()})
        table = Table("figure", name, title=f"{name}, {seconds:g} s", title_justify="left")
        for figure, value in result["figures"].items():
            table.add_row(figure, f"{value:,}" if isinstance(value, int) else str(value))
        console.print(table)
        for text in result["wrong"]:
            console.print(f"MISSED: {text}", markup=False)
        bad += bool(result["wrong"])
    console.print(f"Appended to benchmarks/results/{RESULTS.name}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
