"""Record types in states change: fields are added, renamed and dropped, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import KeyState, Spout, Topology
from sunshower.connectors.state_files import content_of, read_into
from sunshower.errors import (
    ConfigError,
    LifecycleError,
    StateMismatch,
    TopologyError,
    TopologyFailed,
)
from sunshower.runtime.control.lifecycle import State
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from sunshower.topologies.components import Context
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.states import ABOUT
from sunshower.trident import FixedBatchSpout, InMemory, batches
from sunshower.trident.states.stored_states import StateImport, states_of_program


def visit(*required: str, **defaults: int) -> Any:
    """A class with the name Visit and these fields."""
    fields: list[Any] = [(name, int) for name in required]
    fields += [(name, int, field(default=value)) for name, value in defaults.items()]
    return make_dataclass("Visit", fields)


class Life:
    """A program that opens a state in one task."""

    def __init__(
        self, state: MemoryState, kind: Any, index: int = 0, tasks: int = 1, **settings: Any
    ):
        self.kind = kind
        settings = {"renamed": {}, **settings}
        self.store = KeyedStore(state, "visits", "state 'visits'", [kind], **settings)
        self.store.values.check_renamed()
        self.store.open(Context("clicks", "visits", index, index, tasks))

    def put(self, key: str, *values: int) -> None:
        self.store.put(key, self.kind(*values))
        self.store.commit()

    def about(self) -> Any:
        return self.store.slot.state.multi_get([ABOUT])[0]


FORMER = visit("seen", "pages")


@pytest.mark.parametrize(
    ("kind", "renamed", "value"),
    [
        (visit("seen", "pages", clicks=7), {}, (1, 2, 7)),
        (visit("pages"), {}, (2,)),
        (visit("last", "pages"), {"seen": "last"}, (1, 2)),
        (visit("pages", "last", clicks=7), {"seen": "last"}, (2, 1, 7)),
        (visit("pages", last=7), {"seen": None}, (2, 7)),
        (visit("pages", "last"), {"seen": "former", "former": "last"}, (2, 1)),
    ],
)
def test_fields_are_added_renamed_and_dropped(kind: Any, renamed: Any, value: Any) -> None:
    state = MemoryState(name="visits")
    Life(state, FORMER).put("a", 1, 2)
    life = Life(state, kind, renamed=renamed)
    assert life.store.get("a") == kind(*value)
    life.put("b", *value)
    assert Life(state, kind, renamed=renamed).store.get("a") == kind(*value)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (visit("last", "pages"), '\'last\' has no default, or say renamed={"seen": "last"}'),
        (visit("pages", last=0), 'say what became of \'seen\', as in renamed={"seen": "last"}'),
        (visit("seen", "pages", "clicks"), "'clicks' has no default"),
    ],
)
def test_a_change_that_may_lose_a_field_is_refused_and_nothing_is_written(
    kind: Any, says: str
) -> None:
    state = MemoryState(name="visits")
    Life(state, FORMER).put("a", 1, 2)
    with pytest.raises(StateMismatch) as raised:
        Life(state, kind)
    assert says in str(raised.value)
    assert Life(state, FORMER).store.get("a") == FORMER(1, 2)


def test_the_store_knows_the_former_names_when_the_program_does_not_any_more() -> None:
    state = MemoryState(name="visits")
    Life(state, FORMER).put("a", 1, 2)
    now, then = visit("last", "pages"), visit("last", clicks=5)
    Life(state, now, renamed={"seen": "last"}).put("b", 3, 4)
    assert Life(state, now).store.get("a") == now(1, 2)
    Life(state, then, renamed={"pages": None}).put("c", 5)
    life = Life(state, then)
    assert [life.store.get(key) for key in "abc"] == [then(1), then(3), then(5)]
    with pytest.raises(StateMismatch, match="stored values may have another 'pages'"):
        Life(state, visit("last", clicks=5, pages=0))


def test_until_the_first_write_the_former_program_can_open_the_state_again() -> None:
    """The new code of an upgrade may be rolled back, also with other numbers of tasks."""
    state, now = MemoryState(name="visits"), visit("last", "pages", clicks=0)
    Life(state, FORMER).put("a", 1, 2)
    for tasks in (1, 2):
        lives = [Life(state, now, i, tasks, renamed={"seen": "last"}) for i in range(tasks)]
        assert [now(1, 2)] == [value for life in lives if (value := life.store.get("a"))]
        assert Life(state, FORMER).store.get("a") == FORMER(1, 2)
    life = Life(state, now, renamed={"seen": "last"})
    life.put("a", 3, 4, 5)
    assert life.about()["records"] == {"Visit": ["last", "pages", "clicks"]}
    assert life.about()["renamed"] == {"Visit": {"seen": "last"}}


def test_parts_of_two_shapes_are_joined() -> None:
    state, now = MemoryState(name="visits"), visit("last", "pages")
    keys = [[key for key in "abcdef" if _task(key) == index] for index in range(2)]
    for index, task_keys in enumerate(keys):
        Life(state, FORMER, index, 2).put(task_keys[0], 1, 2)
    Life(state, now, 0, 2, renamed={"seen": "last"}).put(keys[0][1], 3, 4)
    life = Life(state, now, renamed={"seen": "last"})
    values = {key: life.store.get(key) for task_keys in keys for key in task_keys}
    assert {key: value for key, value in values.items() if value} == {
        keys[0][0]: now(1, 2),
        keys[0][1]: now(3, 4),
        keys[1][0]: now(1, 2),
    }


def _task(key: str) -> int:
    from sunshower.runtime.transport.routing import task_index

    return task_index(key, 2)


# ---- programs ------------------------------------------------------------------------------------


class Click(NamedTuple):
    user: str
    at: int


CLICKS = [Click("abc"[n % 3], n) for n in range(60)]


class Clicks(Spout[Click]):
    """The clicks, over three seconds."""

    def open(self, context: Context) -> None:
        self.clock = context.clock

    def records(self) -> Iterator[Click | None]:
        begun_s = self.clock.now()
        for click in CLICKS:
            while self.clock.now() < begun_s + click.at / 20:
                yield None
            yield click


def counting(kind: Any) -> Any:
    """A function that counts in the first field of a record of this class."""

    def counted(click: Click, state: Any) -> Iterator[Click]:
        values = [0] * len(kind.__dataclass_fields__)
        if state.value is not None:
            values = [getattr(state.value, name) for name in kind.__dataclass_fields__]
        state.value = kind(values[0] + 1, *values[1:])
        yield click

    counted.__annotations__ = {
        "click": Click,
        "state": KeyState[kind],
        "return": Iterator[Click],
    }
    return counted


def program(kind: Any, state: MemoryState, store: InMemory | None, **settings: Any) -> Topology:
    """Counts clicks of users: in batches, if it has a `store` for them."""
    topology = Topology("clicks", workers=2)
    if store is None:
        clicks: Any = topology.spout("clicks", Clicks())
    else:
        spout = FixedBatchSpout(CLICKS, 2, type=Click)
        clicks = batches(topology, "clicks", spout, store=store, interval_s=0.05)
    clicks.group_by("user").process(counting(kind), state=state, name="visits", **settings)
    return topology


@pytest.mark.parametrize("store", [None, InMemory()])
def test_a_running_program_is_upgraded_to_renamed_fields(store: InMemory | None) -> None:
    state = MemoryState(name="visits")
    now = visit("clicks", "pages", more=3)
    with SimCluster(1, latency_s=0.05) as cluster:
        run = cluster.submit(program(visit("seen", pages=8), state, store).graph())
        run.wait(0.2)
        with pytest.raises(LifecycleError, match="'clicks' has no default") as raised:
            run.upgrade(program(now, state, store).graph(), dry_run=True)
        assert "continue with the new code: " in str(raised.value)
        settings: Any = {"renamed": {"seen": "clicks"}, "parallelism": 2}
        code = program(now, state, store, **settings).graph()
        lines = run.upgrade(code, dry_run=True)
        assert (
            "state 'visits' of visits is migrated when it is read: Visit: 'seen' becomes 'clicks', "
            "'more' is new, with its default"
        ) in [line.replace(" clicks-", " visits-") for line in lines], lines
        run.upgrade(code)
        assert run.snapshot().state in (State.ACTIVE, State.FINISHED)
        assert run.wait(60.0), run._describe()
    (visits,) = [stored for stored in states_of_program(code) if stored.component]
    assert {key: value.clicks for key, value in visits.items()} == dict.fromkeys("abc", 20)


def test_a_batch_that_cannot_read_a_state_says_how_and_the_way_out_works() -> None:
    state, store = MemoryState(name="visits"), InMemory()
    now = visit("clicks")
    with SimCluster(1) as cluster:
        run = cluster.submit(program(visit("seen"), state, store).graph())
        run.wait(0.5)
        run.kill()
        run = cluster.submit(program(now, state, store).graph())
        with pytest.raises(TopologyFailed, match=r"say renamed=.*seen.*clicks"):
            run.wait(60.0)
        run.kill()
        code = program(now, state, store, renamed={"seen": "clicks"}).graph()
        assert cluster.submit(code).wait(60.0)
    (visits,) = [stored for stored in states_of_program(code) if stored.component]
    assert dict(visits.items()) == dict.fromkeys("abc", now(20))


@pytest.mark.parametrize("store", [None, InMemory()])
def test_a_file_from_before_is_imported_under_the_new_names(store: InMemory | None) -> None:
    state = MemoryState(name="visits")
    code = program(visit("clicks"), state, store, renamed={"seen": "clicks"}).graph()
    (visits,) = [stored for stored in states_of_program(code) if stored.component]
    target = StateImport("clicks", visits, "f.jsonl", 1)
    target.add("a", target.read({"<Visit>": {"seen": 4}}))
    target.write()
    assert visits.get("a").clicks == 4


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_columns_and_plain_objects_from_before_have_their_former_names(
    suffix: str, tmp_path: Path
) -> None:
    then = program(FORMER, MemoryState(name="before"), None).graph()
    (former,) = [stored for stored in states_of_program(then) if stored.component]
    file = tmp_path / f"visits.{suffix}"
    file.write_bytes(b'{"key":"a","value":{"seen":4,"pages":2}}')
    if suffix == "parquet":
        file.write_bytes(content_of(former, [("a", FORMER(4, 2))], parquet=True))
    renamed = {"seen": "clicks", "pages": None}
    code = program(visit("clicks"), MemoryState(name="visits"), None, renamed=renamed).graph()
    (visits,) = [stored for stored in states_of_program(code) if stored.component]
    target = StateImport("clicks", visits, file.name, 1)
    read_into(target, visits, file, file.read_bytes())
    target.write()
    assert visits.get("a").clicks == 4


def test_a_field_that_a_file_has_under_both_names_is_refused(tmp_path: Path) -> None:
    state, file = MemoryState(name="visits"), tmp_path / "visits.jsonl"
    code = program(visit("clicks"), state, None, renamed={"seen": "clicks"}).graph()
    (visits,) = [stored for stored in states_of_program(code) if stored.component]
    data = b'{"key":"a","value":{"seen":4,"clicks":2}}'
    with pytest.raises(ConfigError, match="line 1: two of its fields are called 'clicks' now"):
        read_into(StateImport("clicks", visits, file.name, 1), visits, file, data)


@pytest.mark.parametrize(
    ("renamed", "says"),
    [
        ({"former": "clicks"}, "no record type of the state has a field 'clicks'"),
        ({"seen": 3}, "renamed is {'seen': 3}; it has the names of fields"),
        ({"pages": "seen"}, "Visit has a field 'pages' now"),
    ],
)
@pytest.mark.parametrize("store", [None, InMemory()])
def test_wrong_declarations(store: InMemory | None, renamed: Any, says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        program(FORMER, MemoryState(), store, renamed=renamed)
