"""The definition of an experiment (topology, faults, checkers) and its check before a run."""

from __future__ import annotations

import inspect
import math
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from sunshower.arguments import (
    COUNT,
    FUNCTION,
    NONE,
    SECONDS,
    AnyOf,
    Each,
    Instance,
    Rule,
    Values,
    check_all,
    checked,
)
from sunshower.errors import ClusterError, ExperimentError, SunshowerError, TopologyFailed
from sunshower.experiments.checkers import (
    Checker,
    Liveness,
    Recovers,
    duplicates,
    excused,
    judge,
    recoveries,
)
from sunshower.experiments.event_history import F64, History, lookup
from sunshower.experiments.fault_kinds import ProcessFault, harmless
from sunshower.experiments.fault_plan import Drain, Nemesis, Step, settle
from sunshower.experiments.outcome import Ending, Facts, Model, Outcome, batch_figures, facts_of
from sunshower.runtime.cluster import Cluster, Run
from sunshower.runtime.events.event_log import Entry, What
from sunshower.runtime.plan import Layout, Plan, make_plan
from sunshower.secret import protected
from sunshower.texts import describe_error
from sunshower.topologies.components import Bolt, Context, Spout
from sunshower.topologies.graph import Graph
from sunshower.topologies.topology import Topology

_CHECKERS = Each(Instance((object,), "a checker"), "a list of checkers")
_RULES: dict[str, Rule] = {
    "checkers": AnyOf((FUNCTION, _CHECKERS)),
    "seconds_max": SECONDS,
    "sample": COUNT,
    "hurt_s": SECONDS.or_else("none", None),
    "messages_max": COUNT.or_else("none", None),
}


# ---- figures -------------------------------------------------------------------------------------


def figures_of(history: History) -> dict[str, float]:
    """Return counts and times by name; causes and times that do not occur are left out.

    emitted, replays           all emits, and the repeated ones
    messages, completed        all messages, and the completed ones
    failed, failed: timeout …  failed attempts, in total and by cause
    dead, written, duplicates
    throughput                 messages completed a second, from the first emit to the last
    latency_p50_s, …_p99_s     of an attempt, from its emit to its completion
    batches committed, …       of Trident programs, see `batch_figures`
    """
    emitted, failed = history.rows(What.EMITTED), history.rows(What.FAILED)
    accounts = history.accounts
    done = accounts.completed_s[np.isfinite(accounts.completed_s)]
    figures: dict[str, float] = {
        "emitted": len(emitted),
        "messages": len(accounts.messages),
        "completed": len(done),
        "replays": len(emitted) - len(accounts.messages),
        "failed": len(failed),
        "dead": len(history.rows(What.DEAD)),
        "written": len(history.rows(What.WROTE)),
        "duplicates": duplicates(history),
    }
    for cause, count in sorted(Counter(map(str, failed.details)).items()):
        figures[f"failed: {cause}"] = count
    if len(done):
        took_s = float(done.max() - emitted.at_s[0])
        figures["throughput"] = round(len(done) / took_s, 3) if took_s else 0.0
    latencies_s = latencies(history)
    if len(latencies_s):
        median, tail = np.percentile(latencies_s, (50, 99)).tolist()
        figures |= {"latency_p50_s": round(median, 6), "latency_p99_s": round(tail, 6)}
    return figures | batch_figures(history)


def latencies(history: History) -> F64:
    """Return the latency in seconds of each completion, in their order: shape (n,)."""
    emitted, completed = history.rows(What.EMITTED), history.rows(What.COMPLETED)
    seconds = completed.at_s - lookup(emitted.roots, emitted.at_s, completed.roots, np.nan)
    return seconds[np.isfinite(seconds)]


# ---- workload ------------------------------------------------------------------------------------

# A workload of numbered items from a source to a sink, in which each lost item is known.
#
# topology.spout("numbers", numbers(10_000, rate=2_000))  …  .bolt("sink", Sink())

_GRAIN_S = 0.02  # items become due in batches; one by one, each would be a packet
KEYS = 16


class Item(NamedTuple):
    """An item of the source."""

    number: int  # 0 … total - 1
    key: int  # number % keys


class Numbers(Spout[Item]):
    """The spout of `numbers`."""

    def __init__(self, total: int, rate: float | None, keys: int) -> None:
        self.total = total
        self._rate = rate
        self._keys = keys

    def open(self, context: Context) -> None:
        self._context = context

    def records(self) -> Iterator[Item | None]:
        context = self._context
        mine = range(context.index, self.total, context.parallelism)
        begun_s = context.clock.now()
        due = len(mine) if self._rate is None else 0
        for position, number in enumerate(mine):
            while due <= position and (due := self._due(begun_s)) <= position:
                yield None
            yield Item(number, number % self._keys)

    def _due(self, begun_s: float) -> int:
        """Return how many of this task's items are due by now, including the settled ones."""
        assert self._rate is not None
        context = self._context
        grains = (context.clock.now() - begun_s) // _GRAIN_S + 1
        return context.committed + int(grains * _GRAIN_S * self._rate / context.parallelism)


_ABOVE_0 = Values(float, least=0, above=True)


@checked(ExperimentError, total=COUNT, rate=AnyOf((_ABOVE_0, NONE)), keys=COUNT)
def numbers(total: int, rate: float | None = None, keys: int = KEYS) -> Numbers:
    """Return a source of `total` items, `rate` of them a second (None: as fast as possible).

    Task i of n emits i, i + n, i + 2n … Raises ExperimentError for numbers that are not above 0.
    """
    return Numbers(total, rate, keys)


def relay(item: Item) -> Iterator[Item]:
    """A bolt that emits what it receives."""
    yield item


class _RecordingBolt(Bolt[Item, None]):
    """A bolt without state, which can move to another worker."""

    def prepare(self, context: Context) -> None:
        self._context = context

    def snapshot(self) -> None:
        """Return no state."""

    def restore(self, state: None) -> None:
        """Restore nothing."""


class Sink(_RecordingBolt):
    """A sink that records the number of each item."""

    def process(self, record: Item) -> None:
        self._context.wrote(record.number)


class PerKey(_RecordingBolt):
    """A sink that records the number of each item under its key, for PerKeyOrder."""

    def process(self, record: Item) -> None:
        self._context.wrote(record.key, record.number)


def relayed(
    total: int = 200,
    rate: float | None = None,
    parallelism: int = 1,
    name: str = "relayed",
    **settings: Any,
) -> Topology:
    """Declare numbers ──shuffle──▶ relay ──by key──▶ sink, `parallelism` tasks each."""
    topology = Topology(name, **settings)
    items = topology.spout("numbers", numbers(total, rate), parallelism)
    relays = items.shuffle().bolt("relay", relay, parallelism)
    relays.fields("key").bolt("sink", Sink(), parallelism)
    return topology


def model_of(graph: Graph) -> Model | None:
    """Return the model of a topology whose only source is `numbers`; else None."""
    sources = [spout for spout in graph.spouts if isinstance(spout.implementation, Numbers)]
    if len(sources) != 1:
        return None
    (source,) = sources
    codes = (bolt.implementation for bolt in graph.bolts)
    kinds = (code if isinstance(code, type) else type(code) for code in codes)
    written = any(issubclass(kind, Sink) for kind in kinds)
    return Model(source.implementation.total, source.parallelism, written)


# ---- experiment ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that a run needs except its cluster and its seed.

    `topology`, `plan`, and also `checkers` and `messages` if they are functions, are called with
    the parameters that they name as arguments; `plan` may also name `generator`, the random
    generator of the run's seed.
    """

    name: str
    topology: Callable[..., Topology]
    plan: Callable[..., Iterable[Step]]
    checkers: Sequence[Checker] | Callable[..., Sequence[Checker]]
    parameters: Mapping[str, Any] = field(default_factory=dict)  #: name → default
    sweep: Mapping[str, Sequence[Any]] = field(default_factory=dict)  #: name → values to run with
    about: str = ""  #: one sentence
    layout: Layout = Layout.ISOLATE
    hurt_s: float | None = None  #: no fault begins after this time, and all faults end
    seconds_max: float = 120.0  #: a run that takes longer is stuck
    sample: int = 1  #: the edges of every n-th tree are kept; 1: of all trees
    messages: int | Callable[..., int] | None = None  #: in the source; None: as `numbers` says
    messages_max: int | None = None  #: drain the source after so many, if it is endless
    simulated: bool = True  #: False: it needs something real, such as a broker

    def __post_init__(self) -> None:
        check_all(self, _RULES, f"{self}: ", ExperimentError)
        if self.hurt_s is not None and not self.hurt_s < self.seconds_max:
            raise ExperimentError(
                f"{self}: hurt_s is {self.hurt_s:g}; it must be above 0, and below seconds_max, "
                f"which is {self.seconds_max:g}: the topology needs time to recover"
            )
        for name in self.sweep:
            self.settle({name: None})

    def __str__(self) -> str:
        return f"experiment {self.name!r}"

    @property
    def faults_end_s(self) -> float:
        """When all faults end: `hurt_s`, or infinite."""
        return math.inf if self.hurt_s is None else self.hurt_s

    def settle(self, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the defaults with `parameters` over them. Raises ExperimentError for others."""
        for name in parameters or {}:
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise ExperimentError(f"{self} has no parameter {name!r}; there are: {known}")
        return {**self.parameters, **(parameters or {})}


@dataclass(frozen=True)
class Prepared:
    """One run of an experiment, checked and ready to start."""

    experiment: Experiment
    seed: int
    parameters: Mapping[str, Any]  # as they are shown, without secrets
    plan: Plan
    steps: tuple[Step, ...]
    checkers: tuple[Checker, ...]
    facts: Facts

    def shortened(self, steps: Sequence[Step], messages_max: int | None) -> Prepared:
        """Return the same run with other steps, and a source drained after `messages_max`."""
        experiment = replace(self.experiment, messages_max=messages_max)
        return replace(self, experiment=experiment, steps=tuple(steps))


def combinations(sweep: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield every combination of the values of a sweep; one empty one without values."""
    for values in product(*sweep.values()):
        yield dict(zip(sweep, values, strict=True))


def prepare(
    experiment: Experiment, seed: int = 0, parameters: Mapping[str, Any] | None = None
) -> Prepared:
    """Check everything, and draw what is random.

    Raises ExperimentError for a wrong experiment, and what the topology's declaration raises.
    """
    chosen = experiment.settle(parameters)
    _check_used(experiment, chosen)
    topology = _call(experiment, "topology", experiment.topology, chosen)
    if not isinstance(topology, Topology):
        raise ExperimentError(
            f"{experiment}: its topology gives {topology!r}; it must return a Topology"
        )
    plan = make_plan(topology.graph(), experiment.layout)
    random = {"generator": np.random.default_rng(seed)}
    timetable = _call(experiment, "plan", experiment.plan, chosen, random)
    with _user_code(experiment, "plan"):  # it may be a generator
        try:
            steps = settle(timetable, experiment.seconds_max, experiment.hurt_s)
            for step in steps:
                step.fault.check(plan)
        except ExperimentError as error:
            raise ExperimentError(f"{experiment}: {error}") from None
    checkers = _checkers(experiment, chosen)
    for checker in checkers:
        if isinstance(checker, Liveness | Recovers):
            _check_time(experiment, checker, steps)
    total = experiment.messages
    if callable(total):
        total = _call(experiment, "messages", total, chosen)
    model = model_of(plan.graph)
    if total is None and model is not None and len(plan.graph.spouts) == 1:
        total = model.total
    facts = replace(facts_of(plan, sample=experiment.sample), total=total, model=model)
    return Prepared(
        experiment=experiment,
        seed=seed,
        parameters=protected(chosen),
        plan=plan,
        steps=tuple(steps),
        checkers=checkers,
        facts=facts,
    )


def _checkers(experiment: Experiment, parameters: Mapping[str, Any]) -> tuple[Checker, ...]:
    declared = experiment.checkers
    if callable(declared):
        declared = _call(experiment, "checkers", declared, parameters)
        _CHECKERS.check(f"{experiment}: what its checkers return", declared, ExperimentError)
    for checker in declared:
        if isinstance(checker, type) or not hasattr(checker, "check"):
            raise ExperimentError(
                f"{experiment}: {checker!r} is not a valid checker; give an instance, such as "
                "AtLeastOnce()"
            )
    return tuple(declared)


def _check_time(
    experiment: Experiment, checker: Liveness | Recovers, steps: Sequence[Step]
) -> None:
    """Raise ExperimentError if a run would be stuck before a time limit of a checker."""
    ends_s = (min(step.at_s + step.fault.for_s, experiment.faults_end_s) for step in steps)
    healed_s = max(ends_s, default=0.0)
    needed_s = healed_s + checker.within_s
    if needed_s > experiment.seconds_max:
        raise ExperimentError(
            f"{experiment}: {checker.name} within {checker.within_s:g} s of the last fault, which "
            f"is over at {healed_s:g} s, cannot be distinguished from a stuck run: it is given up "
            f"after {experiment.seconds_max:g} s. Set seconds_max to {math.ceil(needed_s)} or more"
        )


def _call(
    experiment: Experiment,
    role: str,
    function: Callable[..., Any],
    parameters: Mapping[str, Any],
    others: Mapping[str, Any] | None = None,
) -> Any:
    """Call a function with the parameters that it names. Raises ExperimentError if it raises."""
    arguments = {**parameters, **(others or {})}
    wanted = _arguments(function)
    if not _takes_all(wanted):
        for argument in wanted:
            if argument.name not in arguments and argument.default is argument.empty:
                raise ExperimentError(
                    f"{experiment}: its {role} wants {argument.name!r}, which is not one of its "
                    f"parameters: {', '.join(arguments) or 'none'}"
                )
        arguments = {each.name: arguments[each.name] for each in wanted if each.name in arguments}
    with _user_code(experiment, role):
        return function(**arguments)


def _check_used(experiment: Experiment, parameters: Mapping[str, Any]) -> None:
    """Raise ExperimentError for a parameter that is not at its default, and that no function of
    the experiment takes: the run would not be the one that was asked for."""
    roles = ("topology", "plan", "checkers", "messages")
    functions = {role: code for role in roles if callable(code := getattr(experiment, role))}
    wanted = [argument for function in functions.values() for argument in _arguments(function)]
    if _takes_all(wanted):
        return
    unused = parameters.keys() - {argument.name for argument in wanted}
    for name in sorted(unused):
        default = experiment.parameters[name]
        if parameters[name] is not default and parameters[name] != default:
            raise ExperimentError(
                f"{experiment}: parameter {name!r} is set, but changes nothing: none of its "
                f"functions ({', '.join(functions)}) has an argument of this name. Add the "
                "argument, or leave the parameter out"
            )


def _arguments(function: Callable[..., Any]) -> Collection[inspect.Parameter]:
    return inspect.signature(function).parameters.values()


def _takes_all(arguments: Iterable[inspect.Parameter]) -> bool:
    """Whether there is a `**` argument among them."""
    return any(argument.kind is argument.VAR_KEYWORD for argument in arguments)


@contextmanager
def _user_code(experiment: Experiment, role: str) -> Iterator[None]:
    try:
        yield
    except SunshowerError:
        raise
    except Exception as error:
        raise ExperimentError(
            f"{experiment}: its {role} raised {describe_error(error)}\n{traceback.format_exc()}"
        ) from error


# ---- experiment run ------------------------------------------------------------------------------


def run_experiment(
    experiment: Experiment,
    cluster: Cluster,
    seed: int = 0,
    parameters: Mapping[str, Any] | None = None,
) -> tuple[Outcome, History]:
    """Prepare and carry out one run. Raises as `prepare`, and ClusterError if it cannot start."""
    return carry_out(prepare(experiment, seed, parameters), cluster)


def carry_out(
    prepared: Prepared,
    cluster: Cluster,
    *,
    look: Callable[[Run, float], None] | None = None,
    keep: Callable[[History], None] = lambda _: None,
) -> tuple[Outcome, History]:
    """Make one run. The outcome of a run that does not finish has an `error`.

    Time 0 is the activation of the spouts. `look` is called with the run and its time every tenth
    of a second. `keep` is called with the history; if the run is interrupted, with what there is.
    """
    experiment = prepared.experiment
    layout, sample = experiment.layout, experiment.sample
    run = cluster.submit(prepared.plan.graph, layout, active=False, sample=sample)
    try:
        watch = look and partial(look, run)
        nemesis = Nemesis(run, prepared.seed, emits_max=experiment.messages_max, look=watch)
        try:
            ending, error = _inject_faults(run, nemesis, prepared)
        except BaseException:
            keep(_history(run, nemesis, prepared, "interrupted"))
            raise
        seconds = run.now() - nemesis.begun_s
        history = _history(run, nemesis, prepared)
        keep(history)
    finally:
        run.stop()
    facts = replace(
        prepared.facts,
        pending_max=nemesis.plan.graph.config.spout_slots,  # a cluster may have made it smaller
        ending=ending,
        error=error,
        harmless=frozenset(str(step.fault) for step in nemesis.done if harmless(step.fault)),
        drained=nemesis.drained or any(isinstance(step.fault, Drain) for step in nemesis.done),
    )
    process_faults = (each.fault for each in nemesis.done if isinstance(each.fault, ProcessFault))
    kills = sum(fault.verb == "kill" for fault in process_faults)
    counts = {"faults": len(nemesis.done), "kills": kills}
    outcome = Outcome(
        experiment=experiment.name,
        cluster=cluster.name,
        seed=prepared.seed,
        parameters=prepared.parameters,
        findings=judge(prepared.checkers, history, facts),
        recoveries=recoveries(history, excused(history, facts)),
        figures={**figures_of(history), **counts},
        seconds=seconds,
        error=error,
        undone=tuple(nemesis.undone),
    )
    return outcome, history


def _inject_faults(run: Run, nemesis: Nemesis, prepared: Prepared) -> tuple[Ending, str | None]:
    """Carry out the plan, until the run is finished or its time is over."""
    experiment = prepared.experiment
    try:
        steps = nemesis.begin_ahead(prepared.steps)
        run.activate()
        is_finished = nemesis.carry_out(steps, experiment.faults_end_s)
        if is_finished or nemesis.wait(experiment.seconds_max):
            return Ending.FINISHED, None
        return Ending.STUCK, _stuck(run, prepared)
    except TopologyFailed as error:
        return Ending.HALTED, str(error)
    except ClusterError as error:
        return Ending.GONE, str(error)


def _stuck(run: Run, prepared: Prepared) -> str:
    tasks = list(run.snapshot().tasks())
    unsettled = sum(task.unsettled for task in tasks)
    spouts = {task.id for task in prepared.plan.spouts}
    endless = [task for task in tasks if task.task in spouts and not task.done]
    reason = f"it is not finished after {prepared.experiment.seconds_max:g} s"
    if endless and not unsettled:
        return f"{reason}: nothing is pending, but the source has not ended; give messages_max"
    return f"{reason}: {unsettled} messages are not settled"


def _history(run: Run, nemesis: Nemesis, prepared: Prepared, cut: str | None = None) -> History:
    entries: list[Entry] = []
    try:
        entries = run.history()
    except ClusterError as error:
        cut = f"the history is lost: {error}"
    return History([*entries, *nemesis.entries], prepared.facts.tasks, nemesis.begun_s, cut)
