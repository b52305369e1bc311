"""Says why a topology is not faster; separate because it only reads what the master has."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite, nan

from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.control.loads import (
    BLOCKED,
    BUSY,
    LoadAnalysis,
    Loads,
    Reading,
    loads_of,
    rows_of,
    threads_of,
)
from sunshower.runtime.events.health import Standing
from sunshower.runtime.events.metrics import Snapshot, TaskStats, Totals, WorkerStats
from sunshower.runtime.events.progress import (
    FIELDS,
    HistoryRecorder,
    Limit,
    LimitKind,
    Rows,
    TaskLoads,
    TopologyProgress,
)
from sunshower.runtime.plan import Plan
from sunshower.topologies.graph import is_internal
from sunshower.topologies.groupings import LocalOrShuffle, NoneGrouping, Shuffle

_FULL = 0.9  # the share of its time in which the processors of a machine are full
_OTHERS = 0.5  # the share of that which is mostly of other programs
_WAITS = 0.5  # the share of the time of code that has a processor; with less it mostly waits
_DELAYED = 0.1  # the share of what a thread has to do in which it waits for a processor
_READ_S = 10.0  # how often the counters are read …
_WINDOW_S = 20.0  # … and for how long at least they are compared
_NEWS_S = 1.0  # how often they are read while tasks, or their lags, are new
_LEAST_S = 2.0  # shorter times say little
_EVEN = (Shuffle, LocalOrShuffle, NoneGrouping)  # groupings that choose any task
_UNEVEN = 0.1  # a task that is busier than all of them by more is named
_NAMED_MAX = 3  # tasks of a worker


def progress_of(
    plan: Plan,
    snapshot: Snapshot,
    readings: Sequence[Reading],
    wall_s: float | None,
    late_s: Mapping[int, float],
) -> TopologyProgress:
    """Whether a topology keeps up. `readings`: the earlier ones of the last half minute, and that
    of the snapshot; `wall_s`: Unix time; `late_s`: worker → how old its statistics are."""
    first, last = readings[0], readings[-1]
    for_s = last.at_s - first.at_s
    is_known = for_s >= _LEAST_S
    loads = loads_of(readings) if is_known else {}
    analysis = LoadAnalysis(plan, loads, threads_of(first, last) if is_known else {})
    steps = {task.component for task in snapshot.tasks() if rows_of(task) is not None}
    figures = {task.component for task in snapshot.tasks() if "lag" in task.figures}
    sources = [
        load.backlog(id)
        for id, load in analysis.loads.items()
        if load.lag is not None or id in figures
    ]
    limit = _LimitFinder(plan, snapshot, analysis, _processors(first, last)).find()
    is_busy = limit.kind in (LimitKind.COMPONENT, LimitKind.SKEW)
    return TopologyProgress(
        limit,
        analysis.bottleneck() or (limit.component if is_busy else ""),
        tuple(sources),
        dict(_oldest(snapshot, late_s)),
        {id: load.settled for id, load in analysis.loads.items() if id in steps},
        _event_age(snapshot, wall_s),
        {
            id: TaskLoads(load.mean, load.top, bool(load.top - load.mean > _UNEVEN))
            for id, load in analysis.loads.items()
        },
    )


def _oldest(snapshot: Snapshot, late_s: Mapping[int, float]) -> Iterator[tuple[str, float]]:
    """The age of the oldest open tree of each spout, or of its oldest open batch."""
    ages: dict[str, float] = {}
    for worker in snapshot.workers.values():
        for task in worker.tasks:
            opened = [age for name, age in task.figures.items() if _is_age(name)]
            age_s = task.oldest_s if task.oldest_s is not None else max(opened, default=None)
            if age_s is not None:
                age_s += late_s.get(worker.worker, 0.0)
                ages[task.component] = max(age_s, ages.get(task.component, 0.0))
    yield from ages.items()


def _is_age(figure: str) -> bool:
    return figure.startswith("batch ") and figure.endswith("/age seconds")


def _event_age(snapshot: Snapshot, wall_s: float | None) -> float | None:
    times = [task.event_time for task in snapshot.tasks() if task.event_time is not None]
    reached = min((time.watermark for time in times), default=inf)
    if wall_s is None or (per_s := snapshot.per_s) is None or not isfinite(reached):
        return None
    return wall_s - reached / per_s


def _processors(first: Reading, last: Reading) -> dict[str, float]:
    """The share of the time in which the processors of each machine were busy."""
    shares = {}
    for name, (busy_s, count) in last.machines.items():
        before_s, _ = first.machines.get(name, (busy_s, count))
        shares[name] = (busy_s - before_s) / max((last.at_s - first.at_s) * count, 1e-9)
    return shares


class _LimitFinder:
    """Tries one explanation after the other: what stops all of it comes first."""

    def __init__(
        self, plan: Plan, snapshot: Snapshot, analysis: LoadAnalysis, machines: Mapping[str, float]
    ) -> None:
        self._plan, self._snapshot, self._analysis = plan, snapshot, analysis
        self._loads: Loads = analysis.loads
        self._machines = machines

    def find(self) -> Limit:
        """What limits the topology."""
        if limit := self._stopped() or self._problem():
            return limit
        if not self._loads:
            return Limit(LimitKind.UNKNOWN, "It is measured for some seconds first.")
        return self._busy() or self._spouts() or self._batches() or self._source()

    # ---- what stops it --------------------------------------------------------------------------

    def _stopped(self) -> Limit | None:
        state = self._snapshot.state
        if state in (State.ACTIVE, State.DRAINING):
            return None
        remedy = ""
        if state == State.INACTIVE:
            remedy = f": `sunshower activate {self._plan.graph.id}` lets them continue"
        if state == State.FAILED:
            why = next((f": {error.line}" for error in self._snapshot.degraded.values()), "")
            spouts = (spout.id for spout in self._plan.graph.spouts)
            where = next(filter(None, (self._newest_failure(id)[0] for id in spouts)), "")
            why = why or (f": its tuples failed{where}." if where else ".")
            return Limit(LimitKind.STOPPED, f"It has failed, so its spouts emit nothing{why}")
        return Limit(LimitKind.STOPPED, f"It is {state}, so its spouts emit nothing{remedy}.")

    def _problem(self) -> Limit | None:
        for stuck in self._snapshot.stuck.values():
            text = f"A call of {stuck.component} has not returned for {stuck.for_s:.0f} s."
            return Limit(LimitKind.PROBLEM, text, stuck.component)
        degraded = self._snapshot.degraded
        for call in (call for id, call in self._snapshot.ended.items() if id not in degraded):
            text = f"A call of {call.component} has ended its process: {call.reason}"
            return Limit(LimitKind.PROBLEM, text, call.component)
        for error in degraded.values():
            text = f"A task of {error.component} is quarantined, so its tuples fail: {error.line}"
            return Limit(LimitKind.PROBLEM, text, error.component)
        for task in self._snapshot.waiting():
            wait = task.health.wait
            assert wait is not None
            what = {"doubt": "fails every input", "filling": "fills its table again"}
            does = what.get(wait.kind.value, "waits for a dependency")
            text = f"{task.component} {does}, so the tuples for it wait too: {wait.error.line}"
            return Limit(LimitKind.PROBLEM, text, task.component)
        for task in self._snapshot.tasks():
            if task.health.standing is Standing.WAITING and task.health.last:
                last = task.health.last[-1]
                text = f"{task.component} cannot be opened, so the tuples for it wait: {last.line}"
                return Limit(LimitKind.PROBLEM, text, task.component)
        return self._failing()

    def _failing(self) -> Limit | None:
        """Every tuple of a spout fails."""
        for spout in self._plan.graph.spouts:
            load = self._loads.get(spout.id)
            if load is None or not load.failed or load.settled:
                continue
            what = "batch" if is_internal(spout.id) else f"tuple of {spout.id}"
            why, where = self._newest_failure(spout.id)
            text = f"No {what} completes: {load.failed:,.1f} a second fail{why}."
            return Limit(LimitKind.PROBLEM, text, where)
        return None

    def _newest_failure(self, spout: str) -> tuple[str, str]:
        """It in words, and where it was; empty if it is not known."""
        groups = [group for task in self._snapshot.tasks_of(spout) for group in task.failures]
        if not groups:
            return "", ""
        failure = max(groups, key=lambda group: group.last_s).failure
        place = f" in {failure.component}" if failure.component else ""
        return f"{place} ({failure.exception or failure.cause})", failure.component

    # ---- what is full ---------------------------------------------------------------------------

    def _busy(self) -> Limit | None:
        id, crowded = self._analysis.bottleneck(), self._analysis.crowded_worker()
        alone, slowest = self._analysis.full_task(), self._analysis.slowest()
        if (id, crowded, alone, slowest) == (None, None, None, None):
            return None
        if limit := self._full_machine():
            return limit
        if id is not None:
            return self._full_component(id)
        if crowded is None and alone is None:
            return self._full_component(slowest or "")
        if crowded is None:
            text = (
                f"{alone} is full: its code and the transport of its records fill the thread of a "
                "worker. Give it more tasks, or make its code faster."
            )
            return Limit(LimitKind.COMPONENT, text, alone or "")
        worker, share = crowded
        loads = self._loads
        tasks = [task for task in self._plan.tasks_on(worker) if task.component in loads]
        tasks.sort(key=lambda task: -loads[task.component].busy.get(task.id, 0.0))
        names = [task.name for task in tasks]
        shown = ", ".join(names[:_NAMED_MAX])
        others = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
        text = (
            f"Worker {worker} is full ({share:.0%}): its tasks {shown}{others} share one thread. "
            "More workers would help."
        )
        return Limit(LimitKind.WORKER, text)

    def _full_machine(self) -> Limit | None:
        """A machine whose processors are full, if that delays this topology."""
        full = {name: share for name, share in self._machines.items() if share >= _FULL}
        for machine, share in sorted(full.items(), key=lambda entry: -entry[1]):
            workers = self._snapshot.workers.values()
            here = [each for each in workers if each.machine and each.machine[0] == machine]
            threads = [self._analysis.threads.get(worker.worker) for worker in here]
            known = [thread for thread in threads if thread is not None]
            count = next(each.machine[2] for each in here if each.machine)
            ours, others = sum(thread.ran for thread in known) / count, ""
            if known and ours < _OTHERS * share:
                if not any(t.wanted > BUSY and t.waited > _DELAYED for t in known):
                    continue  # its tasks wait for something else
                others = f", mostly by other programs (this topology uses {ours:.0%})"
            busiest = max(self._loads, key=lambda name: self._loads[name].demand)
            text = (
                f"The processors of {machine} are full ({share:.0%}{others}): it needs more "
                f"machines, or faster code, of {busiest} first."
            )
            return Limit(LimitKind.PROCESSOR, text)
        return None

    def _full_component(self, id: str) -> Limit:
        load, tasks = self._loads[id], len(self._loads[id].busy)
        what = "full" if load.top > BUSY else "the slowest"
        if load.mean <= BUSY and tasks > 1 and not self._is_even(id):
            text = (
                f"One of the {tasks} tasks of {id} is {what} ({load.top:.0%}), all of them "
                f"{load.mean:.0%}: a few keys have most of the load, so more tasks would not help."
            )
            return Limit(LimitKind.SKEW, text, id)
        who = "its task runs" if tasks == 1 else f"its {tasks} tasks run"
        often = f"{load.mean:.0%} of the time"
        if load.top - load.mean > _UNEVEN:
            often = f"{load.mean:.0%} of the time, one of them {load.top:.0%}"
        text = f"{id} is {what}: {who} its code {often}"
        mean_s = self._seconds_per_input(id)
        each = f" (each input takes {mean_s * 1e3:,.1f} ms)" if mean_s >= 1e-3 else ""
        if self._mostly_waits(id):
            text += (
                f", and mostly {'waits' if tasks == 1 else 'wait'} there for something else, such "
                f"as a store{each}. An async function, larger batches or more tasks would help."
            )
        else:
            text += f". Give it more tasks, or make its code faster{each}."
        return Limit(LimitKind.COMPONENT, text, id)

    def _mostly_waits(self, id: str) -> bool:
        """Whether the code of a busy component does not use the processor."""
        workers = {task.worker for task in self._plan.tasks_of(id)}
        threads = [self._analysis.threads.get(worker) for worker in workers]
        wanted = [thread.wanted for thread in threads if thread is not None]
        return bool(wanted) and max(wanted) < _WAITS * self._loads[id].top

    def _seconds_per_input(self, id: str) -> float:
        counts = self._snapshot.component(id)
        return counts.busy_s / counts.executed if counts.executed else 0.0

    def _is_even(self, id: str) -> bool:
        # clients have no groupings: the master has
        reads = self._plan.graph.components[id].inputs
        return all(isinstance(read.grouping, _EVEN) for read in reads)

    # ---- sources --------------------------------------------------------------------------------

    def _spouts(self) -> Limit | None:
        """Spouts that have work and cannot emit, or emit all the time."""
        for spout in self._plan.graph.spouts:
            load = self._loads.get(spout.id)
            if load is None or is_internal(spout.id):
                continue
            if load.blocked >= BLOCKED:
                tasks = self._snapshot.tasks_of(spout.id)
                return self._pending(spout.id, tasks) or self._credit(spout.id, load.blocked)
            if load.top > BUSY:
                text = f"{spout.id} is full: it reads and emits {load.top:.0%} of the time. "
                more = "Give it more tasks, or make it faster."
                return Limit(LimitKind.COMPONENT, text + more, spout.id)
        return None

    def _pending(self, id: str, tasks: Sequence[TaskStats]) -> Limit | None:
        room = [task for task in tasks if task.limit and task.counts.pending >= task.limit]
        if not room:
            return None
        limit = sum(task.limit or 0 for task in room)
        setting = self._plan.graph.config.spout_pending
        p50 = self._snapshot.latencies(id).percentile(50) or 0.0
        how = (
            "spout_pending=auto found no gain in more"
            if setting == "auto"
            else (f"spout_pending={setting} allows no more")
        )
        text = (
            f"{id} waits for open trees to complete: {limit:,} are open, and {how}. One takes "
            f"{p50:.2g} s, mostly outside of the tasks' code."
        )
        return Limit(LimitKind.PENDING, text, id)

    def _credit(self, id: str, share: float) -> Limit:
        reached = self._plan.graph.downstream(id)
        slowest = max(
            (task for task in self._snapshot.tasks() if task.component in reached),
            key=lambda task: task.queue_s,
            default=None,
        )
        where = f", longest before {slowest.component}" if slowest is not None else ""
        text = f"{id} waits for credit of its receivers {share:.0%} of the time{where}."
        return Limit(LimitKind.CREDIT, text, slowest.component if slowest is not None else id)

    def _batches(self) -> Limit | None:
        """Exactly-once batches whose source has more, while nothing is busy."""
        if not any(load.lag and load.has_backlog for load in self._loads.values()):
            return None
        for task in self._snapshot.tasks():
            figures = task.figures
            if "batches committed" not in figures or not figures["batches committed"]:
                continue
            process_s, commit_s = figures["process seconds"], figures["commit seconds"]
            text = (
                f"Batches follow one another: the last took {process_s:.2g} s, and "
                f"{commit_s:.2g} s to commit. Larger batches, or more at a time, would help."
            )
            return Limit(LimitKind.BATCHES, text)
        return None

    def _source(self) -> Limit:
        """Nothing is full."""
        late = self._analysis.late
        if late:
            growth, failed = self._loads[late[0]].growth, self._loads[late[0]].failed
            if failed >= growth / 2:
                why, where = self._newest_failure(late[0])
                text = (
                    f"{late[0]} falls behind by {growth:,.0f} records/s, because {failed:,.0f} "
                    f"tuples/s fail{why} and are emitted again."
                )
                return Limit(LimitKind.PROBLEM, text, where)
            text = (
                f"Nothing is full, and {late[0]} falls behind by {growth:,.0f} records/s: what it "
                "reads from may deliver no more."
            )
            return Limit(LimitKind.UNKNOWN, text, late[0])
        behind = [id for id, load in self._loads.items() if load.lag and load.has_backlog]
        if behind:
            text = (
                f"Nothing is full, and {behind[0]} catches up as fast as its source delivers."
                if isfinite(self._loads[behind[0]].catch_up_s)
                else f"Nothing is full, and the lag of {behind[0]} does not fall: what it reads "
                "from may deliver no more."
            )
            return Limit(LimitKind.UNKNOWN, text, behind[0])
        emitting = {t.component for t in self._snapshot.tasks() if "rows emitted" in t.figures}
        spouts = {spout.id for spout in self._plan.graph.spouts if not is_internal(spout.id)}
        names = sorted(spouts | emitting)
        who = f"its source {names[0]} has" if len(names) == 1 else "its sources have"
        return Limit(LimitKind.IDLE, f"It keeps up: {who} nothing more to emit.")


class ProgressWatch:
    """What the master remembers to say whether a topology keeps up."""

    def __init__(self, wall: Callable[[], float]) -> None:
        """`wall`: Unix time in seconds; 0: not known."""
        self._wall = wall
        self._readings: deque[Reading] = deque()
        self._history = HistoryRecorder()
        self._heard_s: dict[int, float] = {}  # worker → when its statistics came

    def see(
        self,
        workers: Mapping[int, WorkerStats],
        retired: Mapping[str, Totals],
        sender: int,
        now: float,
    ) -> None:
        """The statistics of `sender` came, among those of all `workers`."""
        self._heard_s[sender] = now
        self._history.note(now, lambda: _rows(workers.values(), retired))
        readings = self._readings
        wait_s = _READ_S if readings and not _has_news(readings[-1], workers[sender]) else _NEWS_S
        if not readings or now - readings[-1].at_s >= wait_s:
            readings.append(Reading.of(Snapshot("", workers), now))
            while len(readings) > 1 and readings[1].at_s <= now - _WINDOW_S:
                readings.popleft()

    def added(self, plan: Plan, snapshot: Snapshot, now: float) -> Snapshot:
        """The snapshot of now, with its progress and its history."""
        readings = [*self._readings, Reading.of(snapshot, now)]
        ages = {worker: now - self._heard_s.get(worker, now) for worker in snapshot.workers}
        progress = progress_of(plan, snapshot, readings, self._wall() or None, ages)
        return replace(snapshot, progress=progress, history=self._history.at(now))


def _has_news(reading: Reading, worker: WorkerStats) -> bool:
    """Whether a task of the worker is not in this reading, or its lag is not."""
    before = reading.tasks
    return any(
        task.task not in before
        or (before[task.task].lag is None and isfinite(task.figures.get("lag", nan)))
        for task in worker.tasks
    )


def _rows(workers: Iterable[WorkerStats], retired: Mapping[str, Totals]) -> Rows:
    """The values of FIELDS by component, over all its tasks, with those of former lives."""
    sums: dict[str, list[float]] = {}
    for id, totals in retired.items():
        sums[id] = [getattr(totals.counts, name) for name in FIELDS[:-1]] + [nan]
    for worker in workers:
        for task in worker.tasks:
            row = sums.setdefault(task.component, [0.0] * len(FIELDS[:-1]) + [nan])
            for place, name in enumerate(FIELDS[:-1]):
                row[place] += getattr(task.counts, name)
            if (lag := task.figures.get("lag")) is not None:
                row[-1] = lag + (0.0 if row[-1] != row[-1] else row[-1])
    return sums
