"""Tests of the lines about waiting components, errors and dead letters."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from sunshower.cli.cluster_options import node_news
from sunshower.cli.display import Display, RunResult, Screen, summary
from sunshower.cli.formatting import Terminal
from sunshower.cli.health import (
    SubmittedStart,
    WaitNews,
    current_problems,
    dead_letter_lines,
    elapsed,
    expired_lines,
    problems,
    start_problems,
    task_error_text,
    unreached,
    wait_lines,
)
from sunshower.cli.session import TopologySession
from sunshower.cli.statistics import status_fields
from sunshower.failures import Cause, Failure, FailureGroup
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.events.health import WELL, Health, Standing, TaskError, Wait, WaitKind
from sunshower.runtime.events.metrics import (
    Counts,
    Snapshot,
    StuckCall,
    TaskStats,
    Unchanged,
    WorkerStats,
)
from sunshower.runtime.plan import make_plan
from sunshower.state import MemoryState
from sunshower.topologies.graph import Graph
from sunshower.topologies.retry import Retry
from sunshower.topologies.sources import Counter, Number
from sunshower.topologies.topology import Topology
from sunshower.trident import FixedBatchSpout, InMemory, Skip, batches, count
from tests.cli.test_display import printed

if TYPE_CHECKING:
    from sunshower.actors.run import RayRun

REFUSED = "ConnectionRefusedError: no database answers at db:5432"
TRACEBACK = """Traceback (most recent call last):
  File "words.py", line 7, in store
    raise ValueError("odd")
ValueError: odd"""


def store(number: Number) -> None: ...


def graph(retry: Retry | None = None) -> Graph:
    topology = Topology("outages")
    topology.spout("numbers", Counter(3), retry=retry).shuffle().bolt("store", store, 3)
    return topology.graph()


def error(index: int = 0, text: str = REFUSED, traceback: str = "") -> TaskError:
    line = f"store[{index}] raised {text}"
    return TaskError("store", index, 0, line, text.partition(":")[0], traceback)


def wait(
    index: int = 0,
    for_s: float = 130.0,
    tries: int = 14,
    *,
    kind: WaitKind = WaitKind.UNAVAILABLE,
    text: str = REFUSED,
    reached: bool = True,
    traceback: str = "",
) -> TaskStats:
    reported = Wait(kind, for_s, tries, error(index, text, traceback), reached)
    health = Health(Standing.WAITING, tries, (reported.error,), reported)
    return TaskStats(10 + index, "store", Counts(), health=health)


def well(index: int = 0, health: Health = WELL) -> TaskStats:
    return TaskStats(10 + index, "store", Counts(), health=health)


def snapshot(*tasks: TaskStats) -> Snapshot:
    return Snapshot("outages", {0: WorkerStats(0, 1, tasks)})


# ---- lines --------------------------------------------------------------------------------------


def filling(index: int) -> TaskStats:
    return wait(index, kind=WaitKind.FILLING, text="the table is read again")


WAITING = {
    "a task": [wait(1)],
    "tasks with the same error": [wait(0, 8, 1), wait(1, 130, 14), wait(2, text="OSError: full")],
    "a dependency that was never reached": [wait(0, 1, 1, reached=False)],
    "a doubt": [wait(kind=WaitKind.DOUBT, text="ValueError: odd")],
    "doubts": [wait(index, kind=WaitKind.DOUBT, text="ValueError: odd") for index in (0, 1)],
    "a table": [filling(0)],
    "tables": [filling(0), filling(1)],
}


@pytest.mark.parametrize("tasks", WAITING.values(), ids=WAITING)
def test_a_line_says_who_waits_for_what(
    tasks: list[TaskStats], approved: SnapshotAssertion
) -> None:
    assert list(wait_lines(tasks)) == approved


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("prepare of store[0] raised OSError: full\nof lines", "OSError: full"),
        ("store[0] raised ValueError: odd", "ValueError: odd"),
        ("store[0]: a second ack", "a second ack"),
        ("no broker answers at kafka:9092", "no broker answers at kafka:9092"),
        ("open of other[0] raised OSError: x", "open of other[0] raised OSError: x"),
    ],
)
def test_the_text_of_an_error_is_its_first_line_without_the_place(text: str, shown: str) -> None:
    assert task_error_text(TaskError("store", 0, 0, text)) == shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (42, "42 s"), (59.7, "1 min"), (130, "2 min 10 s"), (3_600, "1 h"),
     (18_181, "5 h 3 min"), (90_000, "1 d 1 h")],
)  # fmt: skip
def test_elapsed_time_has_two_units(seconds: float, text: str) -> None:
    assert elapsed(seconds) == text


def test_each_problem_is_a_line(approved: SnapshotAssertion) -> None:
    why = "OSError: [Errno 28] No space left on device"
    workers = {n: WorkerStats(n, 1, crash_reports=why) for n in range(2)}
    workers |= {2: WorkerStats(2, 1, (wait(), wait(1)), links={0: 12.0})}
    stuck = StuckCall("numbers", 0, 2, 12.0, "words.py:7 in records: queue.get()")
    assert (
        list(
            problems(
                Snapshot(
                    "outages",
                    workers,
                    degraded={11: error(1)},  # is on probation, and not reported twice
                    stuck={1: stuck},
                    silent={3: 30.0, 4: 40.0},
                    unplaced=("worker 3 waits",),
                    without_room=(3,),
                )
            )
        )
        == approved
    )


def test_an_upgrade_that_did_not_happen_is_a_problem_with_its_time() -> None:
    changed = Snapshot("words", unchanged=Unchanged("upgrade", "the code does not fit\nmore", 0.0))
    assert [*current_problems(changed)] == [
        "the upgrade at 00:00:00Z did not happen: the code does not fit"
    ]


def test_the_display_on_a_terminal_shows_waiting_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    console = Console(force_terminal=True, width=120, record=True, quiet=True)
    with Screen(console=console) as screen:
        drawn: list[object] = []
        monkeypatch.setattr(screen, "_draw", drawn.append)
        screen.show(Display(graph()), snapshot(wait(1)), "outages")
    assert "store[1] waits for a dependency: 2 min 10 s, 14 tries" in printed(drawn[0], width=120)


def test_json_has_each_waiting_task_and_expired_inputs(approved: SnapshotAssertion) -> None:
    task = replace(wait(1, reached=False), counts=Counts(expired=7))
    fields = status_fields(Overview(PLAN, snapshot(task), None, 0.0, {}), 1.0)
    assert json.loads(json.dumps(fields))["waiting"] == approved
    assert fields["components"]["store"]["expired"] == 7


# ---- news ---------------------------------------------------------------------------------------


def test_a_wait_is_reported_when_it_begins_and_when_it_ends() -> None:
    news = WaitNews()
    assert list(news.see(snapshot(well()), 0.0)) == []
    (line,) = news.see(snapshot(wait(0, 0.5, 3)), 10.0)
    assert line == f"store[0] waits for a dependency: 0 s, 3 tries, last error: {REFUSED}"
    assert list(news.see(snapshot(wait(0, 60, 9)), 69.5)) == []
    assert list(news.see(snapshot(well()), 139.5)) == ["store continues, after 2 min 10 s"]
    assert list(news.see(snapshot(well()), 140.0)) == []


def test_only_waits_of_the_given_components_are_reported() -> None:
    assert list(WaitNews({"parse"}).see(snapshot(wait()), 0.0)) == []
    assert len(list(WaitNews({"store"}).see(snapshot(wait()), 0.0))) == 1


def test_a_component_continues_when_its_last_task_does() -> None:
    news = WaitNews()
    assert len(list(news.see(snapshot(wait(0, 1), wait(1, 1)), 1.0))) == 1
    assert list(news.see(snapshot(well(0), wait(1, 5)), 5.0)) == []
    assert list(news.see(snapshot(well(0), well(1)), 6.0)) == ["store continues, after 6 s"]


def test_a_worker_that_dies_during_a_wait_does_not_end_it() -> None:
    news = WaitNews()
    assert len(list(news.see(snapshot(wait(0, 1)), 1.0))) == 1
    assert list(news.see(snapshot(), 2.0)) == []
    assert list(news.see(snapshot(well(health=Health(Standing.WAITING))), 3.0)) == []
    assert list(news.see(snapshot(wait(0, 1)), 4.0)) == []
    assert list(news.see(snapshot(well()), 5.0)) == ["store continues, after 5 s"]


def test_a_dependency_that_comes_and_goes_is_reported_once_in_ten_seconds() -> None:
    news = WaitNews()
    lines: list[str] = []
    for tenth in range(200):
        now = tenth / 10
        lines += news.see(snapshot(wait(0, 0.1) if tenth % 2 else well()), now)
    assert [line.partition(",")[0] for line in lines] == [
        "store[0] waits for a dependency: 0 s",
        "store continues",
    ] * 2


def test_a_quarantined_task_does_not_end_the_wait() -> None:
    news = WaitNews()
    assert len(list(news.see(snapshot(wait()), 1.0))) == 1
    quarantined = well(health=Health(Standing.QUARANTINED, 5, (error(),)))
    given_up = replace(snapshot(quarantined), degraded={10: error()})
    assert list(news.see(given_up, 2.0)) == []


def test_doubt_is_reported_at_once_with_the_frames_of_user_code() -> None:
    news = WaitNews()
    doubt = wait(0, 0, 1, kind=WaitKind.DOUBT, text="ValueError: odd", traceback=TRACEBACK)
    line, *frames = news.see(snapshot(doubt), 1.0)
    assert line.startswith("store[0] keeps failing after it had succeeded")
    assert frames == ['  File "words.py", line 7, in store', '    raise ValueError("odd")']


# ---- the first start ----------------------------------------------------------------------------


def test_a_dependency_that_was_never_reached_ends_a_run_after_thirty_seconds() -> None:
    assert unreached(snapshot(wait(0, 29.9, reached=False))) is None
    why = unreached(snapshot(wait(0, 30.0, 12, reached=False, traceback=TRACEBACK))) or ""
    assert why.startswith(
        "store has never reached a dependency that it needs, in 30 s and 12 tries. Start the "
        "dependency, or correct its address"
    )
    assert why.endswith(f"The last error: store[0] raised {REFUSED}\n{TRACEBACK}")


@pytest.mark.parametrize("task", [wait(0, 86_400), wait(0, 60, kind=WaitKind.DOUBT, reached=False)])
def test_neither_an_outage_after_a_success_nor_doubt_ends_a_run(task: TaskStats) -> None:
    assert unreached(snapshot(task)) is None


PLAN = make_plan(graph())
IDS = {(task.component, task.index): task.id for task in PLAN.tasks}


def begun(
    *stores: Health | None, emitted: int = 0, acked: int = 0, failed: int = 0, done: bool = False,
    degraded: bool = False,
) -> Snapshot:  # fmt: skip
    """A topology of one spout task and three of `store`; None: nothing is known of that one."""
    failure = Failure(Cause.EXCEPTION, "store", 1, "ValueError: odd")
    failures = (FailureGroup(failure, failed, 0.0, 0.0, 0.0),) if failed else ()
    counts = Counts(emitted=emitted, acked=acked, failed=failed)
    tasks = [TaskStats(IDS["numbers", 0], "numbers", counts, done=done, failures=failures)]
    for index, health in enumerate([*stores, *[WELL] * 3][:3]):
        if health is not None:
            tasks.append(TaskStats(IDS["store", index], "store", Counts(), health=health))
    quarantined = {IDS["store", 0]: error(text="ValueError: odd")} if degraded else {}
    return replace(snapshot(*tasks), degraded=quarantined)


CLOSED = Health(Standing.WAITING)
RETRIED = Health(Standing.WAITING, 2, (error(2, "ValueError: no such table"),))
AWAY = replace(wait(0, 3, 4, reached=False).health)
QUARANTINED = Health(Standing.QUARANTINED, 5, (error(),))


@pytest.mark.parametrize("store", [None, CLOSED, RETRIED, AWAY])
def test_submit_waits_for_tasks_that_are_not_open(store: Health | None) -> None:
    start = SubmittedStart(PLAN, active=False)
    assert not start.is_decided(begun(store, emitted=3, acked=3), 0.0)
    assert start.is_decided(begun(), 0.1)


def test_submit_waits_until_a_tuple_of_each_spout_is_processed() -> None:
    start = SubmittedStart(PLAN)
    assert not start.is_decided(begun(emitted=3), 0.0)
    assert not start.is_decided(begun(emitted=3, failed=2), 9.0)
    assert start.is_decided(begun(emitted=3, acked=1, failed=2), 9.1)


def test_submit_does_not_wait_for_spouts_that_have_no_records() -> None:
    start = SubmittedStart(PLAN)
    assert not start.is_decided(begun(), 0.0)
    assert not start.is_decided(begun(), 0.9)
    assert start.is_decided(begun(), 1.0)
    assert SubmittedStart(PLAN).is_decided(begun(done=True), 0.0)


def test_the_second_in_which_a_spout_may_emit_begins_when_all_tasks_are_open() -> None:
    start = SubmittedStart(PLAN)
    assert not start.is_decided(begun(), 0.0)
    assert not start.is_decided(begun(AWAY), 5.0)
    assert not start.is_decided(begun(), 6.0)
    assert start.is_decided(begun(), 7.0)


def test_submit_does_not_wait_for_a_quarantined_task_but_for_the_others() -> None:
    assert SubmittedStart(PLAN).is_decided(
        begun(QUARANTINED, emitted=1, failed=1, degraded=True), 0.0
    )
    assert not SubmittedStart(PLAN).is_decided(begun(QUARANTINED, CLOSED, degraded=True), 0.0)


def test_a_topology_that_works_has_no_problems_at_its_start() -> None:
    assert start_problems(begun(emitted=3), PLAN) == [], "its bolts are slow"
    assert start_problems(begun(emitted=3, acked=1, failed=2), PLAN) == []
    replaced = replace(WELL, errors=2, last=(error(),))
    assert start_problems(begun(replaced, emitted=3, acked=3), PLAN) == [], "opened the third time"


STARTS = {
    "a dependency is away": begun(AWAY, emitted=3, failed=1),
    "a task cannot be opened": begun(WELL, WELL, RETRIED),
    "a task is quarantined": begun(QUARANTINED, failed=1, degraded=True),
    "user code does not return": begun(CLOSED, None),
    "all tuples fail": begun(emitted=3, failed=7),
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_the_problems_at_a_start_are_those_that_keep_it_from_its_work(
    start: Snapshot, approved: SnapshotAssertion
) -> None:
    assert start_problems(start, PLAN) == approved


# ---- a run that drains ---------------------------------------------------------------------------


def blocked(component: str, for_s: float = 12.0) -> Snapshot:
    call = StuckCall(component, 0, 0, for_s, "words.py:7 in records: queue.get()")
    return replace(begun(), stuck={IDS[component, 0]: call})


class Said(Screen):
    """Collects what is said."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def say(self, text: object) -> None:
        self.lines.append(str(text))


@pytest.mark.parametrize(
    ("component", "for_s", "ends"),
    [("numbers", 9.9, False), ("numbers", 10.0, True), ("store", 60.0, False)],
)
def test_a_run_that_drains_waits_ten_seconds_for_a_blocked_spout_and_reports_it_once(
    component: str, for_s: float, ends: bool
) -> None:
    screen, run, reported = Said(), cast("RayRun", SimpleNamespace(plan=PLAN)), set[int]()
    session = TopologySession(screen)
    session._check_blocked(run, begun(), reported, for_s)
    session._check_blocked(run, blocked(component), reported, 0.0)
    with pytest.raises(KeyboardInterrupt) if ends else nullcontext():
        session._check_blocked(run, blocked(component, 14.0), reported, for_s)
    assert screen.lines == [
        (
            f"{component}[0] has been in one call for 12 s, at words.py:7 in records: queue.get(). "
            "Interrupt again to stop at once."
        )
    ]


# ---- dead letters and expired inputs ------------------------------------------------------------


def aside(retry: Retry) -> str:
    declared = graph(retry)
    counted = snapshot(TaskStats(1, "numbers", Counts(emitted=9, acked=9, dead=2)))
    return printed(summary(declared, RunResult(counted, 1.0, drained=False)), width=300)


def test_the_summary_says_how_many_dead_letters_there_are_and_in_which_file(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    assert f"\n  2 dead letters of numbers, in {path}\n" in aside(Retry(dead_letters=path))


def test_the_summary_names_the_stream_of_dead_letters() -> None:
    topology = Topology("outages")
    numbers = topology.spout("numbers", Counter(3), retry=Retry(dead_letters=True))
    numbers.stream("dead_letters").shuffle().bolt("letters", print, fields=())
    counted = snapshot(TaskStats(1, "numbers", Counts(dead=1)))
    assert list(dead_letter_lines(topology.graph(), counted)) == [
        '1 dead letter of numbers, on its stream "dead_letters"'
    ]


def test_the_summary_counts_expired_inputs() -> None:
    counted = snapshot(TaskStats(10, "store", Counts(expired=1_200)))
    assert list(expired_lines(graph(), counted)) == [
        "store: 1,200 expired inputs dropped, whose trees had failed already"
    ]
    assert list(expired_lines(graph(), snapshot(well()))) == []


@pytest.mark.parametrize(
    ("skipped", "rows", "line"),
    [
        (0, 0, ""),
        (1, 20_000, "1 batch of words skipped, all attempts failed; 20,000 rows in "),
        (2, 1, "2 batches of words skipped, all attempts failed; 1 row in "),
    ],
)
def test_the_summary_counts_skipped_batches_and_says_where_their_rows_are(
    skipped: int, rows: int, line: str, tmp_path: Path
) -> None:
    topology, path = Topology("outages"), tmp_path / "rows.jsonl"
    spout = FixedBatchSpout([("a",)], 1, fields=("word",))
    skip = Skip(dead_letters=path)
    state = MemoryState()
    words = batches(topology, "words", spout, store=InMemory(), skip=skip).group_by("word")
    words.aggregate(count(), state=state)
    tasks = (
        TaskStats(1, "$mastercoord-words", Counts(), figures={"batches skipped": float(skipped)}),
        TaskStats(2, "words-dead-letters", Counts(executed=rows, acked=rows)),
    )
    wanted = [f"{line}{path}"] if line else []
    assert list(dead_letter_lines(topology.graph(), snapshot(*tasks))) == wanted


def test_workers_without_a_node_are_a_problem_that_is_printed_whenever_it_changes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = (Snapshot("t", unplaced=(f"worker {number} waits",)) for number in (1, 2))
    assert list(current_problems(first)) == ["worker 1 waits"]
    look = node_news(Terminal())
    for snapshot in (Snapshot("t"), first, first, second, Snapshot("t")):
        look(snapshot)
    assert capsys.readouterr().out == "worker 1 waits\nworker 2 waits\n"
