"""`python -m benchmarks`: measure, show, and write the results down."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.names import NAMES

RESULTS = Path(__file__).parent / "results"


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Sunshower beside Bytewax, Faust, Quix, Spark. Takes 30 minutes.",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=NAMES,
        default=NAMES,
        help="measure these alone",
        metavar="NAME",
    )
    parser.add_argument("--repeat", type=int, default=5, help="rounds (default: %(default)s)")
    parser.add_argument("--words", type=int, default=2_000_000, help="of the word counts")
    parser.add_argument("--messages", type=int, default=1_000_000, help="in the topic of Kafka")
    parser.add_argument("--quick", action="store_true", help="one short round, to see it work")
    parser.add_argument(
        "--patience",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="how long to wait before each run for other work on this machine to end",
    )
    options = parser.parse_args(given)
    if options.repeat < 1 or options.words < 1_000 or options.words % 1_000:
        parser.error("--repeat must be at least 1, --words a multiple of 1,000")
    options.seconds = 3.0
    options.idle_seconds = 10.0
    options.windows, options.simulated, options.batches = 50, 100, 200
    if options.quick:
        options.repeat, options.words = 1, min(options.words, 200_000)
        options.messages = min(options.messages, 40_000)
        options.seconds, options.idle_seconds = 1.0, 2.0
        options.windows, options.simulated, options.batches = 5, 5, 5
    return options


def main() -> int:
    options = arguments()
    from rich.console import Console
    from rich.markup import escape

    from benchmarks import machine
    from benchmarks.figures import report
    from benchmarks.matches import Shared, matches
    from benchmarks.measure import BenchmarkError, play
    from benchmarks.tables import tables
    from benchmarks.targets import TARGETS
    from sunshower.errors import SunshowerError

    console = Console(width=None if sys.stdout.isatty() else 132, highlight=False)
    begun_s, broken_off = time.monotonic(), False

    def tell(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - begun_s:5.0f} s[/]  {text}", soft_wrap=True)

    series, ratios, whole = [], [], set(options.only) == set(NAMES) and not options.quick
    settings = {"words": options.words, "rounds": options.repeat, "seconds": options.seconds}
    place = {**machine.describe(), "settings": settings}
    try:
        with ExitStack() as stack:
            for match in matches(Shared(options, stack, tell)):
                series += play(match, options.repeat, options.patience, tell)
                ratios += match.ratios
    except (BenchmarkError, SunshowerError, KeyboardInterrupt) as error:
        said = escape(str(error) or type(error).__name__)
        console.print("[red]The benchmark is broken off:[/]", said, soft_wrap=True)
        if not series:
            return 1
        broken_off, whole = True, False
    found = report(place, series, ratios, TARGETS)
    console.print(tables(found))
    path = write(found, RESULTS / ("latest.json" if whole else "partial.json"))
    console.print(f"Written to benchmarks/results/{path.name}")
    return int(broken_off)


def write(found: dict[str, Any], path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.exit(main())
