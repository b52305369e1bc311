"""Heavy transform: workers are killed while Spark works, and its table has each sale once.

    sunshower experiment run examples/experiments/heavy_transform.py --cluster ray

It needs `make setup EXTRAS=spark`. The topology is that of `examples/heavy_transform.py`: sales out
of files are joined and ranked by Spark, batch by batch, and written to a table. Meanwhile three
actors get a SIGKILL: that of Spark, whose Java dies with it, a random one, and Spark's once more.
At the end the rows of the table are compared with the lines of the files.
Look for: the batches that were begun again, and that no sale is there twice or not at all.
"""

from __future__ import annotations

import runpy
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pyarrow.dataset

from sunshower import Topology
from sunshower.faults import (
    Experiment,
    History,
    NoPrematureAck,
    Step,
    Weighed,
    anybody,
    every,
    kill,
    task,
    until,
)
from sunshower.faults.facts import Ending, Facts

EXAMPLE = Path(__file__).resolve().parents[1] / "heavy_transform.py"
FOLDER = Path(tempfile.mkdtemp(prefix="heavy-transform-"))


class SameRows:
    """The table has the sales that are in the files."""

    name = "same-rows"

    def check(self, history: History, facts: Facts) -> Weighed:
        if (heavy := written()) is None:
            return Weighed("there is a table", unknown=["it did not begin its table"])
        files = heavy.glob("input/*.txt")
        lines = [line for file in files for line in file.read_text().splitlines()]
        wanted = Counter(int(line.split()[0]) for line in lines if not line.startswith("?"))
        table = pyarrow.dataset.dataset(heavy / "sales").to_table()
        found = Counter(table["id"].to_pylist())
        said = [
            f"{len(sales)} sales are {how}, such as {sorted(sales)[:3]}"
            for how, sales in (("missing", wanted - found), ("there twice", found - wanted))
            if sales
        ]
        holds = f"{wanted.total():,} sales are there, each once"
        if facts.ending is Ending.FINISHED:
            return Weighed(holds, broken=said)
        return Weighed(holds, unknown=[*said, "it did not come to its end"])


def written() -> Path | None:
    """The folder of the run that has begun its table last; each repeat has one of its own."""
    begun = FOLDER.glob("*/heavy/sales/_sunshower/table.json")
    newest = max(begun, key=lambda one: one.stat().st_mtime, default=None)
    return None if newest is None else newest.parents[2]


def topology() -> Topology:
    # The example keeps everything in the folder that it is started in.
    with chdir(tempfile.mkdtemp(dir=FOLDER)):
        declared: Topology = runpy.run_path(str(EXAMPLE))["topology"]
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
