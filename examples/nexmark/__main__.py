"""Runs a query of Nexmark in this process, and prints its rows: `python -m examples.nexmark q5`."""

from __future__ import annotations

import argparse
from typing import Any

from examples.nexmark.events import Nexmark
from examples.nexmark.inputs import declare
from examples.nexmark.queries import QUERIES
from sunshower import MemoryState, Stdout, Topology, run_inline
from sunshower.trident import InMemory, PlainSpout, batches


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.nexmark", description=__doc__)
    parser.add_argument("query", choices=QUERIES)
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=100, help="events a second of event time")
    parser.add_argument("--tasks", type=int, default=1, help="of each keyed operator")
    parser.add_argument("--batches", action="store_true", help="exactly once, in batches")
    options = parser.parse_args()
    if min(options.events, options.rate, options.tasks) < 1:
        parser.error("--events, --rate and --tasks are at least 1")
    topology = Topology(options.query)
    spout = Nexmark(options.events, rate=options.rate)
    if options.batches:
        events: Any = batches(topology, "events", PlainSpout(spout, repeats=True), store=InMemory())
    else:
        events = topology.spout("events", spout)
    state = MemoryState() if options.batches else None
    rows: Any = QUERIES[options.query](declare(topology, events, options.tasks, state))
    (rows.records("rows") if options.batches else rows).shuffle().bolt("print", Stdout())
    run_inline(topology.graph())


if __name__ == "__main__":
    main()
