"""Valid calls of runs, and of tests of topologies."""

from __future__ import annotations

from typing import Any

from sunshower import run_inline
from sunshower.experiments import expire
from sunshower.testing import Feeder, run, simulate
from tests.arguments.helpers import (
    Calls,
    Store,
    asked,
    first,
    functions,
    keyed,
    like,
    simulated,
    small,
    valid,
)
from tests.topologies.examples import Word


def fed(**named: Any) -> Any:
    with simulate(small(), {"lines": Feeder(Word("a"))}) as started:
        return started.failed(**named)


def started(**named: Any) -> None:
    simulate(**named).close()


RUNS: Calls = {
    **functions(run_inline, graph=small().graph(), steps_max=500),
    "testing.run": valid(run, topology=small(), steps_max=500),
    "testing.simulate": valid(like(simulate, started), topology=small()),
    "replaced spout": (lambda source: run(small(), {"lines": source}), {"source": [Word("a")]}),
    "replaced bolt": (lambda bolt: run(small(), {"store": bolt}), {"bolt": Store()}),
    **functions(Feeder, type=Word),
    "simulated.crash": (simulated(small, "crash"), {"component": "store", "after": 1}),
    "simulated.inject": (first(simulated(small, "inject"), "fault"), {"fault": expire()}),
    "simulated.advance": (simulated(small, "advance"), {"seconds": 0.1}),
    "simulated.finish": (simulated(small, "finish"), {"within_s": 100.0}),
    "simulated.results": (simulated(small, "results"), {"component": "store"}),
    "simulated.emitted": (simulated(small, "emitted"), {"component": "lines", "stream": None}),
    "simulated.counts": (simulated(small, "counts"), {"component": "lines"}),
    "simulated.failed": (fed, {"spout": "lines"}),
    "simulated.ask": (simulated(asked, "ask"), {"requests": "q", "value": "a", "timeout_s": 10.0}),
    **{
        f"run.{word}": (simulated(make, word, of_run=True), arguments)
        for word, make, arguments in (
            ("wait", small, {"timeout_s": 0.1}),
            ("rebalance", small, {"workers": None, "layout": None, "wait_s": 0.1}),
            ("kill", small, {"wait_s": 0.1}),
            ("traces", small, {"root": None}),
            ("log_lines", small, {"after": 0}),
            ("kill_worker", small, {"worker": 0}),
            ("query", keyed, {"component": "p", "key": "a"}),
            ("entries", keyed, {"component": "p", "limit": 1}),
        )
    },
}
