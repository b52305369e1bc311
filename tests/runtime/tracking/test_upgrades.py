"""The plan of an upgrade: which tasks keep their ids, and which changes are refused."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

import pytest

from sunshower import (
    Bolt,
    Collector,
    Counter,
    DirectStream,
    KeyState,
    KeyValueState,
    Number,
    Records,
    Spout,
    SpoutCollector,
    Topology,
    Tuple,
    between,
    count,
    max_,
    tumbling,
)
from sunshower.errors import LifecycleError
from sunshower.kafka import KafkaOptions, KafkaSpout, Partition, StartPosition
from sunshower.kafka.zookeeper.options import StormOffsets, ZooKeeperBrokers
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.placement import placed, replan, with_counts
from sunshower.runtime.control.plan_changes import (
    as_changed,
    changes,
    ends_anew,
    preview,
    upgraded,
    with_given,
)
from sunshower.runtime.control.savepoint import Savepoint
from sunshower.runtime.control.scaling import bounds_of
from sunshower.runtime.plan import ACKER, Layout, Plan, make_plan
from sunshower.state import MemoryState, SqliteState
from sunshower.topologies.graph import Graph
from sunshower.topologies.logs import LogSpout
from sunshower.topologies.operators.states import MapState, StateKind
from sunshower.trident import FixedBatchSpout, InSqlite, PlainSpout, batches

Declare = Callable[[Any], Any]


class Click(NamedTuple):
    user: str
    at: int


class Total(NamedTuple):
    clicks: int


class Elsewhere:
    """Namespace of a record type with the same name as `Total` and another field."""

    class Total(NamedTuple):
        clicks: int
        at: int


def counted(click: Click, state: KeyState[Total]) -> list[Click]:
    state.value = Total((state.value or Total(0)).clicks + 1)
    return [click]


def counted_differently(click: Click, state: KeyState[Total]) -> list[Click]:
    return counted(click, state)


def counted_with_time(click: Click, state: KeyState[Elsewhere.Total]) -> list[Click]:
    state.value = Elsewhere.Total(1, click.at)
    return [click]


def passes(click: Click) -> Iterator[Click]:
    yield click


class Held(Bolt[Any, None]):
    def process(self, record: Any) -> None: ...


class Portable(Held):
    def snapshot(self) -> None: ...

    def restore(self, state: None) -> None: ...


class Manual(Spout[Number]):
    def next_tuple(self, out: SpoutCollector[Number]) -> None: ...


class Stored(Bolt[Click, None]):
    """Chooses the keys of its state."""

    state: KeyValueState[str, int]

    def process(self, click: Click) -> None: ...


class PortableManual(Manual):
    def snapshot(self) -> None: ...

    def restore(self, state: None) -> None: ...


class Chooser(Bolt[Click, Click]):
    def execute(self, tuple: Tuple[Click], out: Collector[Click]) -> None: ...

    def snapshot(self) -> None: ...

    def restore(self, state: None) -> None: ...


def direct(tasks: int) -> Declare:
    def declare(clicks: Any) -> None:
        chosen = clicks.shuffle().bolt("chooser", Chooser, fields=DirectStream(Click))
        if tasks:
            chosen.direct().bolt("chosen", passes, tasks)

    return declare


def plan(declare: Declare, spout: Any = None, tasks: int = 1, **settings: Any) -> Plan:
    topology = Topology("clicks", workers=2, **settings)
    declare(topology.spout("clicks", spout or Records([Click("a", 1)], type=Click), tasks))
    return make_plan(topology.graph())


def process(function: Any = counted, by: str = "user", **settings: Any) -> Declare:
    settings = {"state": MemoryState(), "name": "totals"} | settings
    return lambda clicks: clicks.group_by(by).process(function, **settings)


def aggregate(*aggregators: Any, **settings: Any) -> Declare:
    settings = {"state": MemoryState(), "name": "totals"} | settings
    return lambda clicks: clicks.group_by("user").aggregate(*aggregators, **settings)


def windowed(seconds: int) -> Declare:
    window = tumbling(seconds=seconds, field="at")
    return lambda clicks: clicks.group_by("user").window(
        window, count(), state=MemoryState(), name="totals"
    )


def bolt(code: Any) -> Declare:
    return lambda clicks: clicks.shuffle().bolt("bolt", code)


def stored(tasks: int) -> Declare:
    return lambda clicks: clicks.fields("user").bolt("bolt", Stored, tasks, state=MemoryState())


def nothing(clicks: Any) -> None: ...


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (process(), process(counted_differently)),
        (process(), process(parallelism=3)),
        (process(), lambda clicks: process()(clicks.filter(lambda click: click.at > 1))),
        (aggregate(count()), aggregate(count())),
        (windowed(10), windowed(10)),
        (bolt(passes), nothing),
        (bolt(passes), bolt(Held)),
        (bolt(Portable), bolt(Held)),
        (bolt(Portable), nothing),
        (direct(2), direct(3)),
        (stored(2), stored(2)),
        (nothing, process()),
    ],
)
def test_tasks_that_fit_keep_their_ids_on_new_workers(before: Declare, after: Declare) -> None:
    now, code = plan(before), plan(after)
    then = upgraded(now, code, [2], last_id=90)
    assert not {*then.workers} & {*now.workers, 2}
    ids = {(task.component, task.index): task.id for task in now.tasks}
    for task in then.tasks:
        assert task.id == ids.get((task.component, task.index), task.id)
    new = {task.id for task in then.tasks if (task.component, task.index) not in ids}
    assert sorted(new) == [*range(91, 91 + len(new))]


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (process(), nothing, "the state 'totals' of 'totals' would be left without its component"),
        (process(), process(name="sums"), "'totals' would be left without its component"),
        (process(), process(by="at"), "differ in its key"),
        (process(), process(state=SqliteState("a.db")), "differ in its store"),
        (
            process(state=SqliteState("a.db")),
            process(state=SqliteState("b.db")),
            "differ in its store",
        ),
        (process(), process(counted_with_time), "differ in its records"),
        (process(), process(version=2, migrate=lambda _, value: value), "differ in its version"),
        (process(), aggregate(count()), "store and operator"),
        (aggregate(count()), aggregate(max_("at")), "differ in its operator"),
        (windowed(10), windowed(20), "differ in its operator"),
        (process(state=None), nothing, "the state 'totals' of 'totals' is in memory, which does"),
        (process(state=None), process(state=None), "the state 'totals' of 'totals' is in memory"),
        (
            bolt(Held),
            bolt(Held),
            "the object of 'bolt' may keep something in memory,.* write",
        ),
        (stored(2), stored(3), "'bolt' cannot have 3 tasks: its class may choose other keys"),
        (direct(3), direct(2), "'chosen' cannot have 2 tasks: 'chooser' sends to chosen tasks"),
        (direct(3), direct(0), "'chosen' cannot have 0 tasks: 'chooser' sends to chosen tasks"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(before: Declare, after: Declare, why: str) -> None:
    with pytest.raises(LifecycleError, match=f"'clicks' cannot be upgraded: .*{why}.*Nothing has"):
        upgraded(plan(before), plan(after), [])


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ({"tasks": 2}, {"tasks": 3}, "has 2 tasks with a position each, and would have 3"),
        ({}, {"spout": PortableManual()}, "another kind of source"),
        ({"spout": Manual()}, {"spout": Manual()}, "'clicks' may keep its position in memory"),
        ({}, {"ackers": 0}, "ackers=0 cannot begin or end"),
        ({}, {"worker_timeout_s": 60.0}, "worker_timeout_s cannot change while it runs"),
    ],
)
def test_a_position_or_a_setting_that_does_not_fit_is_refused(
    before: dict[str, Any], after: dict[str, Any], why: str
) -> None:
    with pytest.raises(LifecycleError, match=why):
        upgraded(plan(nothing, **before), plan(nothing, **after), [])


def test_another_topology_and_a_spout_that_is_gone_are_refused() -> None:
    others, gone = Topology("others"), Topology("clicks")
    others.spout("clicks", Counter(3))
    gone.spout("numbers", Counter(3))
    with pytest.raises(LifecycleError, match="declares the topology 'others'"):
        upgraded(plan(nothing), make_plan(others.graph()), [])
    with pytest.raises(LifecycleError, match="position of the spout 'clicks' would be left"):
        upgraded(plan(nothing), make_plan(gone.graph()), [])


def test_a_kafka_spout_continues_as_the_same_deployment_whatever_its_first_position_is() -> None:
    def spout() -> KafkaSpout[Any]:
        latest = KafkaOptions(first=StartPosition.LATEST)
        return KafkaSpout(
            {"bootstrap.servers": "k:1", "group.id": "g"}, topics=["clicks"], options=latest
        )

    now, code = plan(nothing, spout()), plan(nothing, spout())
    then = upgraded(now, code, [])
    codes = [version.graph.components["clicks"].implementation for version in (now, code, then)]
    assert codes[0].deployment == codes[2].deployment != codes[1].deployment


def kafka(
    group: str = "g", servers: str = "k:1,l:1", options: Any = None, **reads: Any
) -> KafkaSpout[Any]:
    reads = reads or {"topics": ["clicks"]}
    settings = {"bootstrap.servers": servers, "group.id": group}
    return KafkaSpout(settings, options=options, **reads)


def stored_at(path: str) -> KafkaOptions:
    return KafkaOptions(store=StormOffsets("zk:1", root=path, id="clicks"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (kafka(), kafka(servers="l:1, k:1", topics=["clicks", "views"])),
        (kafka(), kafka(pattern="click.*")),
        (kafka(pattern="click.*"), kafka(pattern="click.*")),
        (kafka(partitions=[Partition("a", 0)]), kafka(topics=["a"])),
        (kafka(options=stored_at("/a")), kafka(options=stored_at("/a"))),
    ],
)
def test_a_kafka_spout_may_read_more(before: Any, after: Any) -> None:
    upgraded(plan(nothing, before), plan(nothing, after), [])


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (kafka(), kafka("h"), "another group.id, and would not continue"),
        (kafka(), kafka(servers="m:1"), "another bootstrap.servers"),
        (kafka(), kafka(options=stored_at("/a")), "another store"),
        (kafka(options=stored_at("/a")), kafka(options=stored_at("/b")), "another store"),
        (kafka(), kafka(options=KafkaOptions(directory=ZooKeeperBrokers("zk:1"))), "directory"),
        (kafka(), kafka(topics=["views"]), "another subscription, without all of: clicks"),
        (kafka(), kafka(partitions=[Partition("clicks", 0)]), "without all of: clicks"),
        (kafka(pattern="a.*"), kafka(pattern="a.b.*"), "without all of: topics that fit"),
        (kafka(pattern="a"), kafka(topics=["a"]), "without all of: topics that fit"),
    ],
)
def test_a_kafka_spout_that_would_not_continue_at_all_offsets_is_refused(
    before: Any, after: Any, why: str
) -> None:
    with pytest.raises(LifecycleError, match=f"{why}.*Nothing has"):
        upgraded(plan(nothing, before), plan(nothing, after), [])


class Log(LogSpout[Click]):
    def poll(self, limit: int) -> None: ...


class OtherLog(Log): ...


def test_a_log_of_another_class_is_refused() -> None:
    upgraded(plan(nothing, Log()), plan(nothing, Log()), [])
    with pytest.raises(LifecycleError, match="'clicks' is a OtherLog instead of a Log"):
        upgraded(plan(nothing, Log()), plan(nothing, OtherLog()), [])


def batch_plan(
    spout: Any = None,
    state: Any = None,
    *,
    tasks: int = 1,
    keepers: int = 2,
    id: str = "clicks",
    name: str = "clicked",
    by: str = "user",
    store: Any = None,
) -> Plan:
    topology = Topology("clicks")
    source = FixedBatchSpout([Click("a", 1)], 1, type=Click) if spout is None else spout
    rows = batches(topology, id, source, store=store or STORE)
    batch_state = MemoryState() if state is None else state
    rows.group_by(by).aggregate(count(), state=batch_state, name=name, parallelism=tasks)
    rows.partition_by("user", parallelism=keepers).partition_persist(
        MemoryState(), keep, name="kept"
    )
    return make_plan(topology.graph())


STORE = InSqlite("clicks.db")


def keep(state: MapState, rows: Sequence[Click]) -> None: ...


def test_an_exactly_once_program_gets_new_code_and_other_numbers_of_tasks() -> None:
    now = batch_plan()
    then = upgraded(now, batch_plan(tasks=3), [])
    assert [len(then.tasks_of(id)) for id in ("clicked", "$mastercoord-clicks")] == [3, 1]
    assert len(with_counts(now, {"clicked": 3}).tasks_of("clicked")) == 3
    ids = {task.component for task in ends_anew(now, with_counts(now, {"clicked": 3}))}
    assert ids == {"$mastercoord-clicks", "clicks", "clicked", "clicks-3"}, "all know the others"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"id": "other"}, "position of the spout '[$]mastercoord-clicks' would be left"),
        (
            {"spout": PlainSpout(Records([Click("a", 1)], type=Click), repeats=True)},
            "read by PlainSpout .* instead of Fixed",
        ),
        ({"store": InSqlite("other.db")}, "the store of the batches of 'clicks' differs"),
        ({"name": "others"}, "the state 'clicked' of 'clicked' would be left"),
        ({"by": "at"}, "the state 'clicked' of 'clicked' would differ in its key"),
        ({"state": MemoryState(StateKind.TRANSACTIONAL)}, "would differ in its store"),
    ],
)
def test_new_code_that_cannot_continue_with_the_batches_is_refused(changed: Any, why: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = batch_plan(**changed)
    with pytest.raises(LifecycleError, match=why):
        upgraded(batch_plan(), code, [])


@pytest.mark.parametrize(
    ("component", "why"),
    [
        ("clicks", "its tasks are those of the source 'clicks'"),
        ("clicks-3", "the function of its state 'kept' chooses the keys itself"),
        ("$mastercoord-clicks", "one task coordinates the batches"),
    ],
)
def test_a_component_of_batches_that_has_to_keep_its_number_of_tasks_says_why(
    component: str, why: str
) -> None:
    with pytest.raises(LifecycleError, match=re.escape(why)):
        with_counts(batch_plan(), {component: 3})


def test_a_savepoint_continues_with_other_numbers_of_tasks_of_batches() -> None:
    """But not with those of a state whose keys a function chooses."""
    savepoint = Savepoint.of(batch_plan(), MasterState())
    assert len(savepoint.resumed(batch_plan(tasks=3)).tasks_of("clicked")) == 3
    with pytest.raises(LifecycleError, match="'clicks-3' has 2 tasks in it, and 3 in the code"):
        savepoint.resumed(batch_plan(keepers=3))


def test_the_changes_are_a_line_each() -> None:
    now = plan(bolt(passes))
    then = upgraded(now, plan(process(parallelism=3), ackers=3), [])
    assert changes(now, then) == [
        "bolt ends",
        "totals is new: 3 tasks",
        "acker shards: 1 → 3 tasks",
        "workers: 1 → 2",
    ]


def test_a_preview_names_what_becomes_of_each_component_and_state() -> None:
    running, ended = plan(process()), plan(process())
    assert preview(running, with_counts(running, {"totals": 3})) == [
        "totals: 1 → 3 tasks",
        "continue with the new code: clicks, totals",
        "state 'totals' of totals is kept, and moves from 1 task to 3 tasks when these open it",
    ]
    assert preview(ended, plan(process(name="sums", parallelism=2))) == [
        "totals ends",
        "sums is new: 2 tasks",
        "workers: 1 → 2",
        "continue with the new code: clicks",
        "state 'sums' of sums is new: it begins with what its store has under this name",
        "state 'totals' of totals is dropped: it stays in its store, and nobody reads it",
    ]
    assert preview(batch_plan(), batch_plan(tasks=3))[-1].startswith("state ")


# ---- what a rebalance has changed ----------------------------------------------------------------


def rebalanced(plan: Plan, workers: int | None = None, **tasks: int) -> Plan:
    then = with_counts(plan, tasks)
    return placed(then, replan(then, workers))


def numbers(plan: Plan) -> dict[str, int]:
    return {name: len(plan.tasks_of(name)) for name in [*plan.graph.components, ACKER]}


def test_numbers_that_a_rebalance_has_changed_are_kept() -> None:
    submitted, code = plan(process(), ackers=1), plan(process(counted_differently), ackers=1)
    now = rebalanced(submitted, workers=3, totals=3, **{ACKER: 2})
    then, lines = as_changed(now, submitted.graph, code)
    assert numbers(then) == {"clicks": 1, "totals": 3, ACKER: 2}
    assert len(then.workers) == 3
    assert lines == [
        "totals: keeps the 3 tasks that a rebalance has made",
        "acker shards: keeps the 2 tasks that a rebalance has made",
        "workers: the 3 that it has are kept",
    ]


def test_numbers_that_the_file_changes_win() -> None:
    submitted = plan(process(), ackers=1)
    now = rebalanced(submitted, workers=3, totals=3, **{ACKER: 2})
    topology = Topology("clicks", workers=4, ackers=3)
    process(parallelism=2)(topology.spout("clicks", Records([Click("a", 1)], type=Click)))
    then, lines = as_changed(now, submitted.graph, make_plan(topology.graph()))
    assert numbers(then) == {"clicks": 1, "totals": 2, ACKER: 3}
    assert len(then.workers) == 2, "as in a submission: no worker without a task"
    assert not lines


def in_command(graph: Graph, **settings: Any) -> Graph:
    """A graph whose settings are given in a command."""
    chosen = {name: getattr(graph.config, name) for name in settings}
    return replace(graph, config=replace(graph.config, **settings), given=chosen)


def test_settings_of_a_command_are_kept_and_those_of_the_next_command_win() -> None:
    declared = plan(process(parallelism=3)).graph
    submitted = make_plan(in_command(declared, workers=3, message_timeout_s=5.0))
    graph, lines = with_given(submitted, declared)
    assert graph.config.message_timeout_s == 5.0
    assert lines == ["message_timeout_s keeps its value of --set: 5.0"]
    assert with_given(make_plan(graph), declared)[0].config == graph.config, (
        "also in the next upgrade"
    )
    then, lines = as_changed(submitted, submitted.graph, make_plan(graph))
    assert len(then.workers) == 3
    assert lines == ["workers: the 3 that it has are kept"]
    again, _ = as_changed(then, graph, make_plan(graph))
    assert len(again.workers) == 3
    now = rebalanced(make_plan(declared), workers=3)
    then, lines = as_changed(now, declared, make_plan(in_command(declared, workers=2)))
    assert len(then.workers) == 2, "as given, though the file says so too"
    other = replace(declared, config=replace(declared.config, message_timeout_s=9.0))
    assert with_given(submitted, other) == (other, []), "the file has changed"


def test_what_no_rebalance_has_changed_follows_the_file() -> None:
    submitted = plan(process(parallelism=2))
    topology = Topology("clicks", workers=5)
    process(parallelism=2)(topology.spout("clicks", Records([Click("a", 1)], type=Click)))
    then, lines = as_changed(submitted, submitted.graph, make_plan(topology.graph()))
    assert then.tasks == make_plan(topology.graph()).tasks
    assert not lines


def test_a_worker_for_each_task_is_kept_and_new_components_get_their_own() -> None:
    submitted = plan(process(parallelism=3))
    now = placed(submitted, replan(submitted, layout=Layout.ISOLATE))

    def more(clicks: Any) -> None:
        process(parallelism=3)(clicks)
        clicks.shuffle().bolt("bolt", passes, 2)

    then, lines = as_changed(now, submitted.graph, plan(more))
    assert then.layout is Layout.ISOLATE
    assert len(then.workers) == len(then.tasks) == len(now.tasks) + 2
    assert not lines


def test_new_code_that_cannot_have_the_number_of_tasks_gets_that_of_the_file_and_says_so() -> None:
    submitted = plan(process())
    now = rebalanced(submitted, totals=3)
    then, lines = as_changed(now, submitted.graph, plan(process(state=None)))
    assert numbers(then)["totals"] == 1
    (line,) = lines
    assert line.startswith("totals: cannot keep the 3 tasks that a rebalance has made: the state")


def test_numbers_of_exactly_once_programs_are_kept_too() -> None:
    submitted = batch_plan()
    now = rebalanced(submitted, clicked=3)
    then, lines = as_changed(now, submitted.graph, batch_plan())
    assert numbers(then)["clicked"] == 3
    assert lines == ["clicked: keeps the 3 tasks that a rebalance has made"]


def declared_with(parallelism: int = 3, **settings: Any) -> Graph:
    """The graph of a program with these numbers, each of its own process."""
    topology = Topology("clicks", **settings)
    process(parallelism=parallelism)(topology.spout("clicks", Records([Click("a", 1)], type=Click)))
    return topology.graph()


def upgraded_twice(before: Plan, declared: Graph, graph: Graph) -> Plan:
    """The plan after two upgrades to the same file."""
    for _ in range(2):
        graph_now, _ = with_given(before, graph)
        code = make_plan(graph_now)
        then, _ = as_changed(before, declared, code)
        before = upgraded(before, then, [])
        declared = before.with_tasks(code.tasks).graph
    return before


def test_workers_that_a_rebalance_has_spread_further_are_all_kept() -> None:
    """A submission puts the first task of each component on the same worker."""
    graph = declared_with(1, workers=2)
    now = rebalanced(make_plan(graph), workers=2)
    assert len(now.workers) == 2
    then, lines = as_changed(now, graph, make_plan(graph))
    assert len(then.workers) == 2
    assert lines == ["workers: the 2 that it has are kept"]


def test_fewer_workers_are_kept_also_if_other_tasks_were_added() -> None:
    graph = declared_with(1, workers=4)
    now = rebalanced(make_plan(graph), workers=1, totals=4)
    assert len(upgraded_twice(now, graph, graph).workers) == 1


def test_acker_shards_of_a_command_are_kept_unless_the_file_or_a_command_says_otherwise() -> None:
    graph = declared_with(workers=3)
    submitted = make_plan(in_command(graph, ackers=3))
    assert numbers(upgraded_twice(submitted, submitted.graph, graph))[ACKER] == 3
    _, lines = as_changed(submitted, submitted.graph, make_plan(graph))
    assert lines == ["acker shards: keeps the 3 tasks of --set"]
    for other in (declared_with(workers=3, ackers=2), in_command(graph, ackers=2)):
        assert numbers(upgraded_twice(submitted, submitted.graph, other))[ACKER] == 2


def test_a_file_that_says_a_number_instead_of_between_wins() -> None:
    graph = declared_with(workers=between(1, 4))
    now = rebalanced(make_plan(graph), workers=3)
    assert len(upgraded_twice(now, graph, declared_with(workers=1)).workers) == 1
    back = upgraded_twice(now, graph, declared_with(workers=between(2, 4)))
    assert len(back.workers) == 3


def test_a_number_of_a_command_instead_of_between_stays_fixed() -> None:
    graph = declared_with(workers=between(1, 4))
    submitted = make_plan(in_command(graph, workers=2))
    then = upgraded_twice(submitted, submitted.graph, graph)
    assert not bounds_of(then)
    assert len(then.workers) == 2
    now = rebalanced(submitted, workers=3)
    assert len(upgraded_twice(now, submitted.graph, graph).workers) == 3
    other = upgraded_twice(now, submitted.graph, declared_with(workers=between(1, 2)))
    assert len(other.workers) == 2
    assert bounds_of(other)


@pytest.mark.parametrize("workers", [1, 4])
def test_a_worker_for_each_task_is_kept_whatever_number_of_workers_is_declared(
    workers: int,
) -> None:
    graph = declared_with(2, workers=workers)
    submitted = make_plan(graph)
    now = placed(submitted, replan(submitted, layout=Layout.ISOLATE))
    assert len(now.tasks) == 4
    assert upgraded_twice(now, graph, graph).layout is Layout.ISOLATE


@pytest.mark.parametrize("seed", range(40))
def test_the_same_file_changes_no_number(seed: int) -> None:
    draw = Random(seed)
    workers = draw.choice([1, 2, 3, between(1, 4)])
    graph = declared_with(draw.choice([1, 2, 5, between(1, 8)]), workers=workers)
    plan = make_plan(graph)
    for _ in range(3):
        count = draw.randint(1, 8)
        plan = rebalanced(plan, draw.choice([None, 1, 2, 4]), totals=count)
        plan = with_counts(plan, {ACKER: draw.randint(1, 3)})
        then = upgraded_twice(plan, graph, graph)
        assert numbers(then) == numbers(plan)
        assert len(then.workers) == len(plan.workers)
