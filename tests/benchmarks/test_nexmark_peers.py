"""Nexmark from files: its files, answers, the choice of a number of events, and Bytewax's flows."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bytewax.testing import run_main

from benchmarks import nexmark_bytewax, nexmark_files
from benchmarks.bytewax_flows import Setup, Tally
from benchmarks.figures import Key
from benchmarks.measure import BenchmarkError, Entry, Outcome
from benchmarks.nexmark import JOINS, LOOPS, RATE, bids_of
from benchmarks.nexmark_files import AUCTIONS, BIDS, all_of, answers
from benchmarks.nexmark_peers import SQL, Input, Inputs, Run, System, _chosen
from benchmarks.peers import python_peers
from benchmarks.targets import CURRENT
from examples.nexmark.events import DISORDER, arrivals, events
from sunshower import run_inline

EVENTS = 20_000


class Started:
    """A start signal that was sent before."""

    signal: Any
    has_started = True
    start_s = 0.0

    def __init__(self) -> None:
        self.signal = self

    def ready(self) -> None:
        """Nobody waits for it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nexmark") / "files"
    nexmark_files.write(path, EVENTS)
    return path


def expected(query: str) -> tuple[int, int]:
    """The answers of the loop over events in memory, with windows of event time."""
    all_events = events(EVENTS, 1, RATE)
    if query == "q12":
        return (sum(1 for _ in bids_of(all_events)),) * 2
    return answers(query, LOOPS[query](all_events if query in JOINS else [*bids_of(all_events)]))


def test_events_come_in_the_order_of_their_delayed_times() -> None:
    times = [event.at for event in arrivals(5_000, 1, RATE)]
    assert len(times) == 5_000
    latest = 0
    for at in times:
        assert at >= latest - DISORDER
        latest = max(latest, at)


def test_the_files_have_all_bids_and_auctions(folder: Path) -> None:
    all_events = events(EVENTS, 1, RATE)
    assert [*all_of(folder, BIDS)] == [*bids_of(all_events)]
    assert [*all_of(folder, AUCTIONS)] == [event.auction for event in all_events if event.auction]


@pytest.mark.parametrize("query", LOOPS)
def test_the_loop_over_files_has_the_answers_of_that_in_memory(query: str, folder: Path) -> None:
    class Begun:
        def wait(self) -> float:
            return 0.0

    outcome = nexmark_files.run_loop(query, folder, Begun())  # type: ignore[arg-type]
    assert (outcome.done, outcome.more[nexmark_files.OF_FIRST]) == expected(query)


@pytest.mark.parametrize("query", LOOPS)
def test_our_topology_has_the_answers_of_the_loop(query: str, folder: Path) -> None:
    topology = nexmark_files.declared(query, folder, Started())  # type: ignore[arg-type]
    results = run_inline(topology.graph()).results["sink"]
    assert sum(total for total, _ in results) == expected(query)[0]


@pytest.mark.parametrize("query", LOOPS)
def test_the_flows_of_bytewax_have_the_answers_of_the_loop(query: str, folder: Path) -> None:
    tally = Tally()
    started: Any = Started()
    flow = nexmark_bytewax.declare(query, folder, Setup(query, 1, 1, 1_000), started, tally)
    run_main(flow)
    assert tally.counted == expected(query)[0]


def test_of_equal_rows_of_a_window_one_counts_for_systems_without_ties() -> None:
    rows = [(7, 10, 3), (8, 10, 3), (9, 12, 2)]
    assert answers("q5", rows) == (8, 5)
    assert answers("q2", [(1, 2), (1, 2)]) == (4, 4)


class NoFiles(Inputs):
    """Inputs that are not written: each event is a bid, and the answer is their number."""

    def _written(self, size: int) -> Input:
        return Input(Path(str(size)), size)

    def _answers(self, query: str, size: int) -> tuple[int, int]:
        return size, size // 2


def run_at(rate: float, share: int, folder: Path) -> Outcome:
    """A run of so many events a second, whose answer is a share of their number."""
    size = int(folder.name)
    return Outcome(0.0, size / rate, size // share)


def choose(setups: Mapping[str, Run], folder: Path, has_ties: bool = True) -> Entry:
    key = Key("nexmark_files", "peer", "q5", "M bids/s")
    files = NoFiles(folder, 1_000_000, print)
    return _chosen(key, System(lambda _: setups, has_ties), files, 10.0, print)


@pytest.mark.parametrize(
    ("rate", "size"), [(10_000, "0.25"), (60_000, "1"), (150_000, "2"), (9e6, "8")]
)
def test_a_run_has_the_smallest_number_of_events_that_takes_ten_seconds(
    rate: float, size: str, tmp_path: Path
) -> None:
    entry = choose({"": partial(run_at, rate, 1)}, tmp_path)
    assert entry.setup == f"{size} M events"
    assert entry.run().value == pytest.approx(rate / 1e6)


def test_the_fastest_set_up_with_the_right_answer_is_chosen(tmp_path: Path) -> None:
    slow, fast, wrong = (
        partial(run_at, rate, share) for rate, share in ((1e4, 2), (2e4, 2), (9e4, 1))
    )
    setups = {"slow": slow, "fast": fast, "wrong": wrong}
    assert choose(setups, tmp_path, has_ties=False).setup.startswith("fast, ")
    with pytest.raises(BenchmarkError, match="were done, not"):
        choose({"wrong": wrong}, tmp_path, has_ties=False)


def test_each_query_has_its_text_in_sql_its_job_in_pyflink_and_its_targets() -> None:
    assert [*SQL] == [*LOOPS] == [*nexmark_bytewax.FLOWS]
    source = (Path(python_peers.__file__).parent / "pyflink_jobs.py").read_text()
    (jobs,) = [
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "QUERIES"
    ]
    assert isinstance(jobs, ast.Dict)
    assert [ast.literal_eval(key) for key in jobs.keys if key is not None] == [*LOOPS]
    figures = {target.figure: target.at_least for target in CURRENT}
    for query in LOOPS:
        assert figures[f"nexmark_files/{query}/flink-sql"] == 1.5
        assert figures[f"nexmark_files/{query}/pyflink"] in {3, 10}
