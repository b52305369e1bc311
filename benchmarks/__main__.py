"""`python -m benchmarks`: measure, show, and write the results down."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.clusters import Arena
    from benchmarks.measure import Match, Tell

RESULTS = Path(__file__).parent / "results"
NAMES = (
    "ledger",
    "simulation",
    "word-count",
    "word-count-classes",
    "constants",
    "history",
    "idle",
    "kafka",
    "kafka-words",
    "trident",
    "trident-kafka",
    "spark",  # whose sessions stay
    "spark-kafka",
)


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
    from benchmarks.measure import BenchmarkError, play
    from benchmarks.tables import tables
    from benchmarks.targets import TARGETS
    from sunshower.errors import SunshowerError

    console = Console(width=None if sys.stdout.isatty() else 132, highlight=False)
    begun_s = time.monotonic()

    def tell(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - begun_s:5.0f} s[/]  {text}", soft_wrap=True)

    series, ratios = [], []
    settings = {"words": options.words, "rounds": options.repeat, "seconds": options.seconds}
    place = {**machine.describe(), "settings": settings}
    try:
        with ExitStack() as stack:
            for match in matches(options, stack, tell):
                series += play(match, options.repeat, options.patience, tell)
                ratios += match.ratios
    except (BenchmarkError, SunshowerError) as error:
        console.print("[red]The benchmark is broken off:[/]", escape(str(error)), soft_wrap=True)
        return 1
    found = report(place, series, ratios, TARGETS)
    console.print(tables(found))
    whole = set(options.only) == set(NAMES) and not options.quick
    path = write(found, RESULTS / ("latest.json" if whole else "partial.json"))
    console.print(f"Written to benchmarks/results/{path.name}")
    return 0


def matches(options: argparse.Namespace, stack: ExitStack, tell: Tell) -> Iterator[Match]:
    """The matches that were asked for, one after the other; Ray is started when one needs it."""
    from benchmarks import constants, history, idle, kafka, ledger, simulation, trident, word_count
    from benchmarks.clusters import Arena
    from benchmarks.corpus import write_lines
    from benchmarks.spark_kafka import makers as sparks
    from sunshower.dev.kafka import Kafka
    from sunshower.dev.servers import Upkeep
    from sunshower.spark_integration.environment import java_for_executors

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sunshower-")))

    @cache
    def arena() -> Arena:
        tell("starting Ray")
        java_for_executors()  # Ray starts those of Spark
        return stack.enter_context(Arena(folder))

    @cache
    def lines() -> Path:
        tell(f"drawing {options.words:,} words")
        return write_lines(folder, options.words)

    @cache
    def server() -> Kafka:
        tell("starting a Kafka")
        return stack.enter_context(Kafka(1, Upkeep(short_lived=False)))

    @cache
    def topic(name: str = "lines", share: int = 1) -> kafka.Topic:
        messages = options.messages // share
        tell(f"filling a topic of Kafka with {messages:,} messages")
        return kafka.Topic(server(), lines(), messages, name)

    makers: dict[str, Callable[[], Match]] = {
        "ledger": lambda: ledger.match(options.windows),
        "simulation": lambda: simulation.match(options.simulated),
        "word-count": lambda: word_count.rows_and_columns(arena(), lines(), options.words, tell),
        "word-count-classes": lambda: word_count.classes(arena(), lines(), options.words, tell),
        "constants": lambda: constants.match(arena(), options.seconds),
        "history": lambda: history.match(arena(), options.seconds),
        "idle": lambda: idle.match(arena(), options.idle_seconds),
        "kafka": lambda: kafka.reading(arena(), topic()),
        "kafka-words": lambda: kafka.words(arena(), topic(), tell),
        "trident": lambda: trident.words(arena(), lines(), options.words, options.seconds, tell),
        "trident-kafka": lambda: trident.kafka_words(
            arena(), topic(), topic("few", trident.SHARE), tell
        ),
        **sparks(arena, topic, options.batches // options.repeat, stack),
    }
    for name in NAMES:
        if name in options.only:
            yield makers[name]()


def write(found: dict[str, Any], path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.exit(main())
