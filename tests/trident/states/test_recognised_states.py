"""A state that was rolled back, replaced or emptied is refused, and no other state is."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sunshower import Topology, run_inline
from sunshower.clock import ManualClock
from sunshower.errors import ClusterError, ConfigError, StateMismatch, TopologyFailed
from sunshower.kafka import SqliteOffsets
from sunshower.state import MemoryState, SqliteState, sqlite
from sunshower.state.backing import Home, MemoryShelf
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import Key, Place, Update
from sunshower.trident import FixedBatchSpout, InMemory, InSqlite, StateKind, batches, count
from sunshower.trident.stages.persisting import BatchSlot
from sunshower.trident.states.stored_map import CountedIn, LastWrite, order_of
from tests.seeds import seeds
from tests.trident.rigs import recognised
from tests.trident.rigs.additions import plus
from tests.trident.rigs.recognised import COUNTS, Program, judge

BEHIND = "state 'count', task 0 (was last written by batch|is empty).* but it had batch"


# ---- valid states are not refused ---------------------------------------------------------------


@seeds(200)
def test_restarts_moves_repeats_and_crashes_around_a_note_are_never_refused(seed: int) -> None:
    assert not judge(seed)


def test_processes_die_before_and_after_they_write_a_note() -> None:
    deaths = 0
    for seed in range(12):
        program = Program(seed)
        program.disturb(program.submit(), 6)
        deaths += program.store.deaths
    assert deaths > 1


def test_a_check_that_is_too_strict_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def strict(self: LastWrite, attempt: Attempt | None, state: str) -> None:
        if attempt != self.attempt:
            raise StateMismatch(f"{state} is not as noted")

    monkeypatch.setattr(LastWrite, "check", strict)
    monkeypatch.setattr(recognised.SimRun, "wait", _short(recognised.SimRun.wait))
    assert any(judge(seed) for seed in range(8))


def _short(wait: Callable[..., bool]) -> Callable[..., bool]:
    return lambda run, timeout_s=None: wait(run, min(timeout_s or 5.0, 5.0))


# ---- all others are refused ---------------------------------------------------------------------


def shelf_of(program: Program) -> MemoryShelf:
    shelf: MemoryShelf = program.state.inner.shelf  # type: ignore[attr-defined]
    return shelf


def behind(program: Program) -> list[int]:
    """The tasks whose state is older than its note."""
    counted = CountedIn(program.store, ("/transactional/numbers/coordinator",))
    tasks_behind = []
    for task in range(program.tasks):
        mark = shelf_of(program).marks.get(Home("counts", task))
        last = mark and json.loads(mark.word)
        noted = counted.last_write("counts", task).attempt
        attempt = last and Attempt(last["txid"], last["attempt"], last["epoch"])
        if noted and (not attempt or order_of(attempt) < order_of(noted)):
            tasks_behind.append(task)
    return tasks_behind


@pytest.mark.parametrize(
    "running",
    [False, pytest.param(True, marks=pytest.mark.long)],
    ids=["between two runs", "while it runs"],
)
def test_a_state_that_is_rolled_back_at_any_time_is_never_written_again(running: bool) -> None:
    """If only a batch without a note is lost, it is repeated, and nothing is refused."""
    times: Counter[str] = Counter()
    for seed in range(12):
        program, draw = Program(seed), Random(seed)
        program.size, shelf = 1, shelf_of(program)
        run = program.submit()
        run.wait(draw.random())
        former = {**shelf.marks}, deepcopy(shelf.values)
        run.wait(draw.random() / 2)
        if not running:
            with suppress(ClusterError):  # it has finished
                run.kill(0.0)
        program.state.troubles.calm()
        shelf.marks.clear()
        shelf.marks.update(former[0])
        shelf.values.clear()
        shelf.values.update(former[1])
        refused = behind(program)
        if not running:
            run = program.submit()
        has_ended = run.wait(4.0)
        if refused and not (running and has_ended):
            assert {*refused} <= {*behind(program)}, f"seed {seed}: task {refused} was written on"
            assert not has_ended
            assert Counter(program.counts) <= COUNTS
        elif has_ended and not refused:
            assert program.counts == COUNTS, f"seed {seed}"
        times["refused" if refused else "exact"] += 1
    assert times["refused"] > 2
    assert times["exact"] > 2


def numbers(folder: Path, total: int, name: str | None = None) -> dict[object, object]:
    """Count rows of one key, two in a batch, up to `total` rows in all runs together."""
    topology = Topology("rolled-back")
    spout = FixedBatchSpout([("k",)] * total, 2, fields=("key",))
    rows = batches(topology, "rows", spout, store=InSqlite(folder / "batches.db"))
    state = SqliteState(folder / "counts.db", name=name)
    rows.group_by("key").aggregate(count(), state=state)
    run_inline(topology.graph(), clock=ManualClock(), steps_max=10_000)
    return dict(state.items(name or "count"))


def files(folder: Path, name: str) -> list[Path]:
    return [*folder.glob(f"{name}.db*")]


def copied(files: list[Path], to: Path) -> None:
    to.mkdir(exist_ok=True)
    for file in files:
        shutil.copy(file, to)


def removed(files: list[Path]) -> None:
    for file in files:
        file.unlink()


def test_a_restored_backup_is_refused_and_the_remedies_work(tmp_path: Path) -> None:
    backup, now = tmp_path / "backup", tmp_path / "now"
    assert numbers(tmp_path, 4) == {"k": 4}
    copied(files(tmp_path, "counts"), backup)
    assert numbers(tmp_path, 8) == {"k": 8}
    copied(files(tmp_path, "counts"), now)
    removed(files(tmp_path, "counts"))
    copied(files(backup, "counts"), tmp_path)
    for _ in range(2):
        with pytest.raises(TopologyFailed, match=f"{BEHIND} 4, attempt 0"):
            numbers(tmp_path, 12)
    assert dict(SqliteState(tmp_path / "counts.db").items("count")) == {"k": 4}
    removed(files(tmp_path, "counts"))
    copied(files(now, "counts"), tmp_path)
    assert numbers(tmp_path, 12) == {"k": 12}


def test_a_removed_state_is_refused_and_the_remedies_work(tmp_path: Path) -> None:
    assert numbers(tmp_path, 8) == {"k": 8}
    removed(files(tmp_path, "counts"))
    with pytest.raises(TopologyFailed, match=r"task 0 is empty, but it had batch 4"):
        numbers(tmp_path, 12)
    assert numbers(tmp_path, 12, name="anew") == {"k": 4}
    removed(files(tmp_path, "counts") + files(tmp_path, "batches"))
    assert numbers(tmp_path, 12) == {"k": 12}


def test_a_state_in_memory_is_refused_by_a_store_that_outlives_it(tmp_path: Path) -> None:
    def run(total: int) -> None:
        topology = Topology("t")
        spout = FixedBatchSpout([("k",)] * total, 2, fields=("key",))
        rows = batches(topology, "rows", spout, store=InSqlite(tmp_path / "batches.db"))
        rows.group_by("key").aggregate(count(), state=MemoryState())
        run_inline(topology.graph(), clock=ManualClock(), steps_max=10_000)

    run(4)
    with pytest.raises(TopologyFailed, match=r"task 0 is empty, but it had batch 2"):
        run(8)


# ---- single cases -------------------------------------------------------------------------------

CONTEXT = Context("words", "counts", 0, 0, 1, clock=ManualClock())
STORE = "/transactional/lines/coordinator"


def slot(factory: Any, store: InMemory) -> BatchSlot:
    batch_slot = BatchSlot(factory, "count")
    batch_slot.counted = CountedIn(store, (STORE, "/transactional/others/coordinator"))
    batch_slot.open(CONTEXT)
    return batch_slot


def write(slot: BatchSlot, attempt: Attempt, **counts: int) -> None:
    slot.begin_commit(attempt)
    slot.state.multi_update([*counts], [plus(number) for number in counts.values()])
    slot.commit(attempt)


@pytest.mark.parametrize("kind", StateKind)
def test_a_running_task_refuses_a_state_that_was_rolled_back(kind: StateKind) -> None:
    factory, store = MemoryState(kind), InMemory()
    task = slot(factory, store)
    write(task, Attempt(1, 0, 1), storm=1)
    former = dict(factory.shelf.marks)
    write(task, Attempt(2, 0, 1), storm=1)
    factory.shelf.marks.update(former)
    with pytest.raises(Exception, match="was written meanwhile by batch 1"):
        write(task, Attempt(3, 0, 1), storm=1)
    for number in (1, 2):
        with pytest.raises(StateMismatch, match=f"{BEHIND} 2, attempt 0"):
            write(task, Attempt(3, number, 1), storm=1)
    with pytest.raises(StateMismatch, match=f"{BEHIND} 2, attempt 0"):
        slot(factory, store)


def test_a_rollback_to_an_earlier_attempt_of_the_same_batch_is_refused() -> None:
    factory, store = MemoryState(), InMemory()
    task = slot(factory, store)
    write(task, Attempt(1, 0, 1), storm=1)
    former = dict(factory.shelf.marks)
    write(task, Attempt(1, 1, 1), storm=2)
    factory.shelf.marks.update(former)
    with pytest.raises(StateMismatch, match=r"batch 1, attempt 0 .* had batch 1, attempt 1"):
        slot(factory, store)


def test_a_state_without_notes_is_adopted_as_it_is() -> None:
    """Such as a state of an earlier version, or one that is newer than its note after a crash."""
    factory, store = MemoryState(), InMemory()
    write(slot(factory, InMemory()), Attempt(1, 0, 1), storm=1)
    # In another store the incarnation differs, so only the note is checked.
    batches_of = store().get
    assert batches_of(f"{STORE}/states/count/0") is None
    batch_slot = BatchSlot(factory, "count")
    batch_slot._noted = CountedIn(store, (STORE,)).last_write("count", 0)
    batch_slot._noted.check(Attempt(1, 0, 1), "state 'count', task 0")
    batch_slot._noted.note(Attempt(1, 0, 1))
    with pytest.raises(StateMismatch):
        batch_slot._noted.check(None, "state 'count', task 0")


def test_a_former_life_cannot_overwrite_the_note_of_a_later_one() -> None:
    store = InMemory()
    counted = CountedIn(store, (STORE,))
    former, later = counted.last_write("count", 0), counted.last_write("count", 0)
    later.note(Attempt(5, 1, 2))
    former.note(Attempt(5, 0, 2))
    former.note(Attempt(9, 9, 1))
    assert counted.last_write("count", 0).attempt == Attempt(5, 1, 2)


@pytest.mark.parametrize("bad", [b"7", b"{}", b'{"txid": "7", "attempt": 0, "epoch": 1}', b"x"])
def test_the_error_names_a_corrupt_note(bad: bytes) -> None:
    store = InMemory()
    store().create(f"{STORE}/states/count/0", bad)
    with pytest.raises(StateMismatch, match=r"states/count/0 holds"):
        slot(MemoryState(), store)


class OwnState:
    """A state that a user has written, with the attempt that wrote it last."""

    kind = StateKind.OPAQUE

    def __init__(self) -> None:
        self.values: dict[Any, Any] = {}
        self.last_attempt: Attempt | None = None

    def make(self, place: Place) -> OwnState:
        return self

    def begin_commit(self, attempt: Attempt) -> None: ...

    def commit(self, attempt: Attempt) -> None:
        self.last_attempt = attempt

    def abort(self) -> None: ...

    def close(self) -> None: ...

    def multi_get(self, keys: Sequence[Key]) -> list[Any]:
        return [self.values.get(key) for key in keys]

    def multi_update(self, keys: Sequence[Key], updates: Sequence[Update]) -> list[Any]:
        self.values |= {k: u(self.values.get(k)) for k, u in zip(keys, updates, strict=True)}
        return self.multi_get(keys)

    def multi_put(self, keys: Sequence[Key], values: Sequence[Any]) -> None: ...

    def multi_remove(self, keys: Sequence[Key]) -> None: ...

    def items(self) -> Iterator[tuple[Key, Any]]:
        return iter(self.values.items())


def test_a_state_of_a_user_is_recognised_if_it_has_last_attempt() -> None:
    store = InMemory()
    write(slot(OwnState(), store), Attempt(1, 0, 1), storm=1)
    with pytest.raises(StateMismatch, match="is empty, but it had batch 1"):
        slot(OwnState(), store)


def test_a_state_that_was_accepted_as_not_exact_is_not_checked() -> None:
    store, factory = InMemory(), MemoryState()
    batch_slot = BatchSlot(factory, "count", exactly_once=False)
    batch_slot.counted = CountedIn(store, (STORE,))
    batch_slot.open(CONTEXT)
    write(batch_slot, Attempt(1, 0, 1), storm=1)
    assert store().children(f"{STORE}/states") == []


# ---- SQLite on another machine ------------------------------------------------------------------


@pytest.mark.parametrize("factory", [InSqlite, SqliteState])
def test_a_file_of_another_machine_is_refused_where_it_is_opened(
    factory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = factory(tmp_path / "x.db")
    monkeypatch.setattr("platform.node", lambda: "worker-7")
    monkeypatch.setattr(sqlite, "machine", lambda: "another boot")
    for call in (place,) if factory is InSqlite else (place.homes, lambda: [*place.items("count")]):
        with pytest.raises(ConfigError, match=r"x\.db is a file of the machine .* worker-7"):
            call()
    assert not [*tmp_path.iterdir()]
    assert factory(tmp_path / "x.db") == place


@pytest.mark.parametrize(
    ("factory", "instead"),
    [
        (InSqlite, "InZooKeeper"),
        (SqliteState, "PostgresState, RedisState or ZooKeeperState"),
        (partial(SqliteOffsets, id="words"), "StormOffsets"),
    ],
)
def test_a_file_is_the_declared_one_in_every_process_and_refused_on_other_machines(
    factory: Any, instead: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = factory("x.db")
    (tmp_path / "worker").mkdir()
    monkeypatch.chdir("worker")
    assert place.path == tmp_path / "x.db"
    monkeypatch.setattr(sqlite, "machine", lambda: "another boot")
    with pytest.raises(ConfigError, match=rf"x\.db is a file of the machine .* {instead}; or run"):
        _ = place.path


def test_the_machine_is_known_without_its_kernel_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _: (_ for _ in ()).throw(OSError))
    monkeypatch.setattr("platform.node", lambda: "worker-7")
    assert sqlite.machine() == "worker-7"
