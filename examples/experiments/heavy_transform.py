"""Heavy transform: actors are killed during Spark jobs, and the table has each sale once.

    sunshower experiment run examples/experiments/heavy_transform.py --cluster ray

It needs `make setup EXTRAS=spark`. The topology is that of `examples/heavy_transform.py`: Spark
joins and ranks sales from files, batch by batch, and writes them to a table. Meanwhile three actors
get a SIGKILL: the actor with Spark, whose Java dies with it, a random actor, and the actor with
Spark again. At the end the rows of the table are compared with those that a plain program computes
from the files. Look for: some batches are repeated, and no sale is missing or duplicated.
"""

from __future__ import annotations

import runpy
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import pyarrow.dataset

from sunshower import Topology
from sunshower.experiments import (
    CheckResult,
    Ending,
    Experiment,
    Facts,
    History,
    NoPrematureAck,
    Step,
    anybody,
    every,
    kill,
    task,
    until,
)

EXAMPLE = Path(__file__).resolve().parents[1] / "heavy_transform.py"
FOLDER = TemporaryDirectory(prefix="heavy-transform-", ignore_cleanup_errors=True)  # of all runs
CATEGORIES: dict[str, str] = {}  # of the example's pages
COLUMNS = ("id", "hour", "page", "price", "category")


class SameRows:
    """The table has each sale of the files, complete, joined and ranked."""

    name = "same-rows"

    def check(self, history: History, facts: Facts) -> CheckResult:
        if (heavy := written()) is None:
            return CheckResult("there is a table", unknown=["it did not begin its table"])
        wanted = Counter(plain(heavy / "input"))
        table = pyarrow.dataset.dataset(heavy / "sales", partitioning="hive").to_table()
        rows = table.to_pylist()
        in_table = Counter(map(itemgetter(*COLUMNS), rows))
        wrong = Counter(row["id"] for row, rank in ranked(rows) if row["rank"] != rank)
        said = [
            f"{sales.total()} sales are {how}, such as {sorted(sales)[:3]}"
            for how, sales in (
                ("missing", wanted - in_table),
                ("duplicated, or not in the files", in_table - wanted),
                ("ranked wrongly", wrong),
            )
            if sales
        ]
        holds = f"the table has {wanted.total():,} sales, each once"
        if facts.ending is Ending.FINISHED:
            return CheckResult(holds, broken=said)
        return CheckResult(holds, unknown=[*said, "it did not finish"])


def plain(files: Path) -> Iterator[tuple[Any, ...]]:
    """The rows that the table must have."""
    for file in files.glob("*.txt"):
        for line in file.read_text().splitlines():
            if not line.startswith("?"):
                id, hour, page, price = line.split()
                yield int(id), int(hour), page, float(price), CATEGORIES[page]


def ranked(rows: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], int]]:
    """Each row, and its rank by category and hour in its batch."""
    window = itemgetter("txid", "category", "hour")
    ordered = sorted(rows, key=lambda row: (*window(row), -row["price"], row["id"]))
    for _, group in groupby(ordered, window):
        yield from ((row, rank) for rank, row in enumerate(group, start=1))


def written() -> Path | None:
    """The folder of the run that began its table last; each repetition has its own."""
    begun = Path(FOLDER.name).glob("*/heavy/sales/_sunshower/table.json")
    newest = max(begun, key=lambda item: item.stat().st_mtime, default=None)
    return None if newest is None else newest.parents[2]


def topology() -> Topology:
    # The example writes all files to the working directory.
    with chdir(mkdtemp(dir=FOLDER.name)):
        example = runpy.run_path(str(EXAMPLE))
    CATEGORIES.update((row["page"], row["category"]) for row in example["PAGES"].to_pylist())
    declared: Topology = example["topology"]
    return declared


def plan(kills: int, every_s: float) -> Iterator[Step]:
    kills_of_all = every(every_s, kill(task("ranked", 0)), kill(anybody()))
    return until(every_s * (kills + 0.5), kills_of_all)


experiment = Experiment(
    name="heavy-transform",
    about="Actors are killed while Spark writes batches into a table.",
    topology=topology,
    plan=plan,
    checkers=[SameRows(), NoPrematureAck()],
    parameters={"kills": 3, "every_s": 8.0},
    seconds_max=600,
    simulated=False,
)
