"""Prepared topologies for tests of the page: overviews whose counters grow with time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from sunshower import Bolt, Counter, Number, Topology
from sunshower.cli.dead.letters import Ask, StoredLetter
from sunshower.cli.profiles import profile_facts
from sunshower.cli.ui.source import Facts, TopologySource
from sunshower.errors import ClusterError, RequestFailed
from sunshower.failures import Cause, Failure, FailureGroup
from sunshower.runtime.control.limits import ProgressWatch
from sunshower.runtime.control.overview import Overview, edges_of, without_code
from sunshower.runtime.events.health import Health, Standing, TaskError, Wait, WaitKind
from sunshower.runtime.events.log_lines import LogLine
from sunshower.runtime.events.metrics import (
    WINDOWS_S,
    Activity,
    Counts,
    FailurePlace,
    InputStream,
    Latencies,
    LatencyKind,
    Snapshot,
    StuckCall,
    TaskStats,
    Unchanged,
    WorkerStats,
)
from sunshower.runtime.events.trace_recorder import NO_TRACES, Traces, root_number
from sunshower.runtime.plan import Plan, Task, make_plan
from sunshower.runtime.profiles import LOOP, Profile
from sunshower.topologies.describe import CodePart
from sunshower.topologies.retry import ACKED, DEAD_AGAIN, LetterStore
from sunshower.trident import FixedBatchSpout, InMemory, batches, count
from tests.web.prepared_trees import shop_trees

TRACE = """Traceback (most recent call last):
  File "shop.py", line 41, in price
    return PRICES[order.article] * order.count
           ~~~~~~^^^^^^^^^^^^^^^
KeyError: 'A-1047'"""


_LATENCIES = Latencies()
_LATENCIES.add(np.random.default_rng(7).lognormal(-3.4, 0.7, 500))


class Pass(Bolt[Number, Number]):
    """Is never called, because the counters of its tasks are prepared."""

    def process(self, record: Number) -> Number:
        return record


@dataclass(frozen=True)
class Load:
    """The growth of a component's counters per second, for all its tasks together."""

    rate: float  # spouts: trees; bolts: inputs
    busy: float = 0.1  # the share of each task's time
    hottest: float | None = None  # of the first task's, if it differs
    failed: float = 0.0
    out: float = 1.0  # emitted for each input
    queued: int = 0
    dead: int = 0  # spouts: dead letters, from the start
    entries: int | None = None  # of the state of each task
    figures: Mapping[str, float] = field(default_factory=dict)
    growing: float = 0.0  # by how much a second the lag, or the number of emitted rows, grows


@dataclass(frozen=True)
class Prepared:
    """A topology whose snapshot at any time follows from its loads and its problems."""

    topology: Topology
    loads: Mapping[str, Load]
    state: str = "active"
    waits: Mapping[str, Wait] = field(default_factory=dict)  # component → wait of each task
    failures: tuple[Failure, ...] = ()  # of the spouts that fail
    quarantined: Mapping[str, TaskError] = field(default_factory=dict)
    stuck: Mapping[str, StuckCall] = field(default_factory=dict)
    traces: Traces = NO_TRACES
    letters: Mapping[str, LetterStore | None] = field(default_factory=dict)
    restarts: int = 0
    unchanged: Unchanged | None = None

    @cached_property
    def plan(self) -> Plan:
        return make_plan(self.topology.graph())

    @cached_property
    def _watch(self) -> ProgressWatch:
        return ProgressWatch(lambda: 0.0)

    def overview(self, now_s: float) -> Overview:
        """Return the overview `now_s` seconds after the submission, which was at 0. The first call
        prepares the hour before, so the later ones must be later."""
        plan, graph, is_first = self.plan, self.plan.graph, "_watch" not in vars(self)
        step_s = 32.0 * max(1, len(plan.tasks) // 100)
        times = np.arange(max(now_s - 3_600, 1.0), now_s - 40.0, step_s) if is_first else ()
        for at_s in (*times, *((now_s - 20.0, now_s - 10.0) if is_first else ()), now_s):
            workers = self._snapshot(at_s).workers
            self._watch.see(workers, {}, next(iter(workers)), at_s)
        snapshot = replace(self._snapshot(now_s), windows=self._windows(now_s))
        return Overview(
            without_code(plan),
            self._watch.added(plan, snapshot, now_s),
            None,
            0.0,
            {worker: ("4f2a91c07b", 21_400 + 13 * worker) for worker in plan.workers},
            edges_of(graph),
            self.letters,
        )

    def _windows(self, now_s: float) -> dict[str, dict[str, Activity]]:
        """Return the activity of each component in each window of time."""
        now, windows = self._snapshot(now_s), dict[str, dict[str, Activity]]()
        for name, for_s in WINDOWS_S.items():
            before = self._snapshot(now_s - for_s)
            windows[name] = {}
            for id in self.plan.graph.components:
                whole = now.activity(id, for_s)
                counts = whole.counts.since(before.component(id))
                windows[name][id] = Activity(for_s, counts, whole.latencies)
        return windows

    def _snapshot(self, now_s: float) -> Snapshot:
        plan = self.plan
        tasks: dict[int, list[TaskStats]] = {worker: [] for worker in plan.workers}
        for task in plan.tasks:
            tasks[task.worker].append(self._task(task, now_s))
        workers = {id: WorkerStats(id, 1, tuple(stats)) for id, stats in tasks.items()}
        first = {t.component: t.id for t in reversed(plan.tasks)}
        return Snapshot(
            plan.graph.id,
            workers,
            self.restarts,
            state=self.state,
            degraded={first[id]: error for id, error in self.quarantined.items()},
            stuck={first[id]: call for id, call in self.stuck.items()},
            unchanged=self.unchanged,
        )

    def _task(self, task: Task, now_s: float) -> TaskStats:
        load = self.loads.get(task.component, Load(0.0, 0.0))
        component = self.plan.graph.components.get(task.component)
        tasks = component.parallelism if component else 1
        # The charts are not flat.
        wave = float(now_s + 1.5 * np.sin(now_s / 5.0) + 0.5 * np.sin(now_s / 1.7))
        done, failed = int(load.rate * wave / tasks), int(load.failed * wave / tasks)
        grown = {"rows emitted", "lag"} & load.figures.keys()
        figures = dict(load.figures) | {
            name: load.figures[name] + load.growing * now_s / tasks for name in grown
        }
        wait = self.waits.get(task.component)
        if wait is not None:
            text = wait.error.text.replace("[0]", f"[{task.index}]")
            error = replace(wait.error, index=task.index, worker=task.worker, text=text)
            wait = replace(wait, error=error)
        errors = (wait.error,) if wait else ()
        health = Health(Standing.RUNNING, len(errors), errors, wait)
        quarantine_error = self.quarantined.get(task.component)
        if quarantine_error is not None and quarantine_error.index == task.index:
            health = Health(Standing.QUARANTINED, 5, (quarantine_error,))
        if component is None or not component.level.is_spout:
            inputs = component.inputs[:1] if component else ()
            out = int(done * load.out)
            hottest = load.hottest if task.index == 0 else None
            counts = Counts(
                emitted=out, transferred=out, executed=done, acked=done - failed, failed=failed,
                busy_s=load.busy * wave if hottest is None else hottest * now_s,
                emitted_to={"default": out},
                transferred_to={"default": out}, bytes_to={"default": 24 * out},
                executed_from={InputStream(i.source, i.stream): done for i in inputs},
            )  # fmt: skip
            return TaskStats(
                task.id, task.component, counts, health=health, queued=load.queued // tasks,
                queue_s=load.queued / load.rate if load.rate else 0.0, figures=figures,
                latencies={LatencyKind.EXECUTE: _LATENCIES, LatencyKind.QUEUE: _LATENCIES},
                entries=load.entries,
            )  # fmt: skip
        failures = self.failures if load.failed else ()
        groups = tuple(
            FailureGroup(failure, failed // len(failures), 1_000.0, 1_000.0 + now_s, load.failed,
                         "4711", "{'order': 4711, 'article': 'A-1047'}")
            for failure in failures
        )  # fmt: skip
        places = {
            FailurePlace(f.cause.value, f.component, f.task, f.worker): failed // len(failures)
            for f in failures
        }
        out = done + failed
        counts = Counts(
            emitted=out, transferred=out, acked=done, failed=failed, replayed=failed,
            dead=load.dead // tasks,
            pending=420 // tasks, causes={place.cause: count for place, count in places.items()},
            places=places, busy_s=0.2 * wave, emitted_to={"default": out},
            transferred_to={"default": out},
        )  # fmt: skip
        return TaskStats(
            task.id, task.component, counts, {LatencyKind.COMPLETE: _LATENCIES}, health=health,
            figures=figures, failures=groups,
        )  # fmt: skip


@dataclass(frozen=True)
class PreparedRun:
    """What a run answers: lines of its log, code, and the values of a state."""

    plan: Plan
    text: str = "no price for A-1047"

    def log_lines(self, after: int) -> list[LogLine]:
        kinds = [
            LogLine(0.0, "info", "started", "", worker=1),
            LogLine(0.0, "info", "output", "", "price", 2, 1, "stdout"),
            LogLine(0.0, "warning", "failed", "", "price", 2, 1),
            LogLine(0.0, "error", "log", "", "store", 0, 1, "shop"),
        ]
        return [
            replace(kinds[n % 4], time=1_000.0 + n, text=f"{self.text} {n}", number=n + 1)
            for n in range(after, 160)
        ]

    def code_parts(self, component: str) -> list[CodePart]:
        return [
            CodePart(component, "shop.py:41", f"def {component}(order):\n    '''{self.text}'''")
        ]

    def entries(self, component: str, limit: int) -> list[tuple[Any, Any]]:
        return [(f"user-{n}", {"visits": n, "last": self.text}) for n in range(min(limit, 30))]

    def query(self, component: str, key: Any) -> Any:
        return dict(self.entries(component, 30)).get(key)


class PreparedSource(TopologySource):
    """Serves prepared topologies, each time a second later, and records the actions."""

    def __init__(self, *topologies: Prepared) -> None:
        self.prepared = {prepared.topology.graph().id: prepared for prepared in topologies}
        self.now_s = 7_440.0
        self.acted: list[tuple[str, str, int | None]] = []
        self.replayed: list[str] = []  # message ids
        super().__init__(lambda: self.prepared, self._overview, lambda: self.now_s)

    def look_ahead(self) -> None:
        """Not: a second would pass at a time that a test does not know."""

    def _overview(self, name: str) -> Overview:
        if name not in self.prepared:
            raise ClusterError(f"there is no topology {name!r}")
        self.now_s += 1.0
        return self.prepared[name].overview(self.now_s)

    def _recorded(self, name: str, root: str | None) -> Traces:
        traces = self.prepared[name].traces
        if root is None:
            return traces
        trees = [tree for tree in traces.trees if int(tree.root, 16) == root_number(root)]
        return Traces(tuple(trees), traces.silent)

    def _run(self, name: str) -> Any:
        return PreparedRun(self.prepared[name].plan)

    def profile(self, name: str, component: str | None, seconds: float) -> str:
        stacks = {f"{LOOP};shop.py:12 price;shop.py:{30 + n} step_{n}": 10 + n for n in range(9)}
        recorded = Profile(stacks, {0: "py-spy"}, missing={1: "it was restarted"})
        facts, graph = profile_facts(recorded, name, component)
        self._profiles[name] = {**facts, "at_s": self._clock()}, graph
        return str(facts["title"])

    def _ask(self, name: str) -> Ask:
        def ask(stored: StoredLetter) -> str:
            """Message ids that end in 3 are dead again, those that end in 5 are not settled."""
            self.replayed.append(str(stored.letter.message_id))
            if self.replayed[-1].endswith("5"):
                raise RequestFailed(f"{stored.letter.message_id}: not settled within 60 s")
            return DEAD_AGAIN if self.replayed[-1].endswith("3") else ACKED

        return ask

    def actions(self) -> list[str]:
        return ["activate", "deactivate", "rebalance", "kill"]

    def act(self, name: str, action: str, workers: int | None) -> str:
        self.acted.append((name, action, workers))
        if action == "kill":
            del self.prepared[name]
        elif action == "deactivate":
            self.prepared[name] = replace(self.prepared[name], state="inactive")
        return f"{name}: {action}"


def shop() -> Prepared:
    """A topology with a bottleneck, a component that fails, and another that waits."""
    topology = Topology("web-shop", workers=4)
    orders = topology.spout("orders", Counter(1), 4)
    visits = topology.spout("visits", Counter(1), 2)
    parsed = orders.shuffle().bolt("parse", Pass, 4)
    priced = parsed.shuffle().bolt("price", Pass, 6)
    sessions = visits.shuffle().bolt("sessions", Pass, 4)
    joined = topology.bolt("recommend", Pass, [priced.shuffle(), sessions.shuffle()], 8)
    joined.shuffle().bolt("store", Pass, 2)
    priced.shuffle().bolt("audit", Pass, 1)
    partitions = {
        f"orders[{n}]/{name}": float(value)
        for n in range(4)
        for name, value in (("committed", 81_000 + 37 * n), ("end", 81_900 + 51 * n),
                            ("lag", 900 + 14 * n), ("waiting", n))
    }  # fmt: skip
    refused = TaskError(
        "store", 0, 1, "process of store[0] raised OperationalError: connection refused",
        "OperationalError", TRACE.replace("KeyError: 'A-1047'", "OperationalError: refused"),
    )  # fmt: skip
    return Prepared(
        topology,
        {
            "orders": Load(5_200, figures={"lag": 921.0, **partitions}, failed=14, dead=40),
            "visits": Load(9_100),
            "parse": Load(5_200, 0.22),
            "price": Load(5_200, 0.31, failed=14),
            "sessions": Load(9_100, 0.18, out=0.3, entries=12_050),
            "recommend": Load(7_930, 0.93, queued=18_400),
            "store": Load(0, 0.01, queued=96_000),
            "audit": Load(5_186, 0.41),
        },
        waits={"store": Wait(WaitKind.UNAVAILABLE, 130.0, 14, refused, True)},
        failures=(
            Failure(Cause.EXCEPTION, "price", 2, "KeyError: 'A-1047'", "KeyError", TRACE, 1),
            Failure(Cause.TIMEOUT, reason="not complete after 30 s"),
        ),
        restarts=1,
        traces=shop_trees(),
    )


def quiet() -> Prepared:
    """A small topology without problems."""
    topology = Topology("quiet")
    topology.spout("numbers", Counter(1)).shuffle().bolt("drop", Pass, 2)
    return Prepared(topology, {"numbers": Load(50), "drop": Load(50, 0.05)})


HOSTILE = "<script>window.broken = 1</script><img src=x onerror='window.broken = 1'>"


class HostileSource:
    """A source whose ids, errors and figures are HOSTILE. A declaration would refuse such ids."""

    def __init__(self, letters: Mapping[str, LetterStore | None] | None = None) -> None:
        error = TaskError("bolt", 0, 0, f"process raised {HOSTILE}", HOSTILE, HOSTILE)
        topology = Topology("name")
        topology.spout("spout", Counter(1)).shuffle().bolt("bolt", Pass, 2)
        self._source = PreparedSource(
            Prepared(
                topology,
                {
                    "spout": Load(90, figures={HOSTILE: 1.0, f"{HOSTILE}/lag": 2.0}, failed=5),
                    "bolt": Load(90, 0.2, failed=5),
                },
                failures=(Failure(Cause.EXCEPTION, "bolt", 0, HOSTILE, HOSTILE, HOSTILE),),
                quarantined={"bolt": error},
                stuck={"bolt": StuckCall("bolt", 1, 0, 40.0, HOSTILE)},
                traces=_hostile_trees(),
                letters=letters or {},
            )
        )

        self._inside = PreparedRun(self._source.prepared["name"].plan, HOSTILE)

    def look_ahead(self) -> None:
        self._source.look_ahead()

    def topologies(self) -> list[Facts]:
        return _renamed(self._source.topologies())

    def topology(self, name: str, window: str | None) -> Facts:
        return _renamed(self._source.topology("name", window))

    def component(self, name: str, component: str) -> Facts:
        return _renamed(self._source.component("name", component.partition(" ")[0]))

    def traces(self, name: str) -> Facts:
        return self._source.traces("name")

    def trace(self, name: str, root: str) -> Facts:
        return self._source.trace("name", root)

    def letters(self, name: str, chosen: Mapping[str, str]) -> Facts:
        return self._source.letters("name", chosen)

    def letter(self, name: str, letter: str) -> Facts:
        return self._source.letter("name", letter)

    def replay(self, name: str, chosen: Mapping[str, str]) -> str:
        return HOSTILE

    def replay_progress(self, name: str) -> Facts:
        return {**self._source.replay_progress("name"), "total": 1, "acked": 0, "dead_again": 0,
                "not_settled": 1, "errors": [HOSTILE]}  # fmt: skip

    def logs(self, name: str, component: str = "", after: str = "0") -> Facts:
        return {"lines": [asdict(line) for line in self._inside.log_lines(0)], "last": 1}

    def code(self, name: str, component: str) -> Facts:
        return {"parts": [asdict(part) for part in self._inside.code_parts("bolt")]}

    def state(self, name: str, component: str, key: str = "") -> Facts:
        return {"entries": [{"key": HOSTILE, "value": HOSTILE}]}

    def what_happens(self, name: str, action: str, workers: str = "") -> Facts:
        return {"lines": [HOSTILE]}

    def profiled(self, name: str) -> Facts:
        raise ClusterError(HOSTILE)

    def flame_graph(self, name: str) -> str:
        raise ClusterError(HOSTILE)

    def profile(self, name: str, component: str | None, seconds: float) -> str:
        raise ClusterError(HOSTILE)

    def actions(self) -> list[str]:
        return ["activate"]

    def act(self, name: str, action: str, workers: int | None) -> str:
        return HOSTILE


def _hostile_trees() -> Traces:
    traces = shop_trees(HOSTILE)
    failed = replace(traces.failed[0], message_id=HOSTILE, cause=HOSTILE, reason=HOSTILE)
    return Traces((failed,), (0,))


def _renamed(facts: Any) -> Any:
    """Return the facts with HOSTILE instead of each id, or after it."""
    text = json.dumps(facts)
    for id, other in (
        ("name", HOSTILE),
        ("bolt", f"bolt {HOSTILE}"),
        ("spout", f"spout {HOSTILE}"),
    ):
        text = text.replace(f'"{id}"', json.dumps(other))
    return json.loads(
        text.replace(json.dumps({"kind": f"spout {HOSTILE}"})[1:-1], '"kind": "spout"')
    )


def batches_of_words() -> Prepared:
    """A topology of exactly-once batches, two of which are open; its source has a lag."""
    topology = Topology("batches")
    words = FixedBatchSpout([("a",)], 1, fields=("word",))
    stream = batches(topology, "words", words, store=InMemory()).shuffle(parallelism=2)
    stream.peek(print).named("clean").group_by("word").aggregate(count()).named("counts")
    figures = {
        "txid": 17.0, "batches active": 2.0, "batches committed": 16.0, "attempts failed": 1.0,
        "batches skipped": 0.0, "process seconds": 0.35, "commit seconds": 0.05,
        "mean seconds": 0.4, "batch 17/attempt": 2.0, "batch 17/phase": 2.0,
        "batch 17/age seconds": 0.4, "batch 18/attempt": 1.0, "batch 18/phase": 0.0,
        "batch 18/age seconds": 0.1,
    }  # fmt: skip
    for txid in range(9, 17):
        figures |= {f"ended {txid}/age seconds": 0.4 * (18 - txid)}
        figures |= {f"ended {txid}/process seconds": 0.35, f"ended {txid}/commit seconds": 0.05}
    partitions = {f"lines[{n}]/{name}": 70.0 * n for n in range(2) for name in ("end", "lag")}
    loads = {id: Load(9, 0.1) for id in topology.graph().components}
    loads["$mastercoord-words"] = Load(3, figures=figures)
    loads["words"] = Load(
        9, 0.12, figures={"rows emitted": 0.0, "lag": 4_000.0, **partitions}, growing=1_200.0
    )
    return Prepared(topology, loads)


def late() -> Prepared:
    """A topology that falls behind, because a component is full."""
    topology = Topology("late", workers=2)
    clicks = topology.spout("clicks", Counter(1), 2)
    clicks.shuffle().bolt("sessions", Pass, 2).shuffle().bolt("geo-lookup-of-visitors", Pass, 4)
    return Prepared(
        topology,
        {
            "clicks": Load(900, figures={"lag": 20_000.0}, growing=340.0),
            "sessions": Load(900, 0.2),
            "geo-lookup-of-visitors": Load(900, 0.97, queued=4_000),
        },
    )


def skewed() -> Prepared:
    """A topology with a component of which one task is full, and whose upgrade was refused."""
    topology = Topology("skewed", workers=2)
    topology.spout("orders", Counter(1)).fields("value").bolt("score", Pass, 4)
    loads = {"orders": Load(90), "score": Load(90, 0.1, hottest=0.99, queued=400)}
    why = "topology 'skewed' cannot be upgraded: the class of score has another state in memory"
    return Prepared(topology, loads, unchanged=Unchanged("upgrade", why, 7_000.0))


def huge(components: int = 50, tasks: int = 100) -> Prepared:
    """Layers of five components, each of which reads two components of the layer before.

    One component in ten fails records, and one is the bottleneck.
    """
    topology = Topology("huge", workers=100)
    layers = [
        [topology.spout(f"source-{n}", Counter(1), tasks) for n in range(5)],
    ]
    for layer in range(1, components // 5):
        inputs = layers[-1]
        layers.append(
            [
                topology.bolt(
                    f"stage-{layer}-{n}", Pass,
                    [inputs[n].shuffle(), inputs[(n + 1) % 5].shuffle()], tasks,
                )
                for n in range(5)
            ]
        )  # fmt: skip
    ids = list(topology.graph().components)
    loads = {
        id: Load(20_000, 0.05 + 0.012 * n, failed=40.0 * (n % 10 == 7)) for n, id in enumerate(ids)
    }
    loads["stage-4-2"] = Load(20_000, 0.97, queued=70_000)
    failure = Failure(Cause.EXCEPTION, "stage-1-2", 2, "KeyError: 'A-1047'", "KeyError", TRACE, 1)
    return Prepared(topology, loads, failures=(failure,))
