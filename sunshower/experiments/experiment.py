"""The definition of an experiment (topology, faults, checkers) and its check before a run."""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from sunshower.arguments import COUNT, FUNCTION, SECONDS, AnyOf, Each, Instance, Rule, check_all
from sunshower.errors import ExperimentError, SunshowerError
from sunshower.experiments.checkers.checker import Checker
from sunshower.experiments.checkers.recovery import Liveness, Recovers
from sunshower.experiments.evidence.facts import Facts, facts_of
from sunshower.experiments.faults.fault_plan import Step, settle
from sunshower.experiments.workload import model_of
from sunshower.runtime.plan import Layout, Plan, make_plan
from sunshower.secret import protected
from sunshower.texts import describe_error
from sunshower.topologies.topology import Topology

_CHECKERS = Each(Instance((object,), "a checker"), "a list of checkers")
_RULES: dict[str, Rule] = {
    "checkers": AnyOf((FUNCTION, _CHECKERS)),
    "seconds_max": SECONDS,
    "sample": COUNT,
    "hurt_s": SECONDS.or_else("none", None),
    "messages_max": COUNT.or_else("none", None),
}


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
                there = ", ".join(self.parameters) or "none"
                raise ExperimentError(f"{self} has no parameter {name!r}; there are: {there}")
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
    found = experiment.checkers
    if callable(found):
        found = _call(experiment, "checkers", found, parameters)
        _CHECKERS.check(f"{experiment}: what its checkers return", found, ExperimentError)
    for one in found:
        if isinstance(one, type) or not hasattr(one, "check"):
            raise ExperimentError(
                f"{experiment}: {one!r} is no checker; give an instance, such as AtLeastOnce()"
            )
    return tuple(found)


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
    given = {**parameters, **(others or {})}
    wanted = _arguments(function)
    if not _takes_all(wanted):
        for one in wanted:
            if one.name not in given and one.default is one.empty:
                raise ExperimentError(
                    f"{experiment}: its {role} wants {one.name!r}, which is no parameter; there "
                    f"are: {', '.join(given) or 'none'}"
                )
        given = {one.name: given[one.name] for one in wanted if one.name in given}
    with _user_code(experiment, role):
        return function(**given)


def _check_used(experiment: Experiment, parameters: Mapping[str, Any]) -> None:
    """Raise ExperimentError for a parameter that is not at its default, and that no function of
    the experiment takes: the run would not be the one that was asked for."""
    roles = ("topology", "plan", "checkers", "messages")
    functions = {role: one for role in roles if callable(one := getattr(experiment, role))}
    wanted = [argument for one in functions.values() for argument in _arguments(one)]
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
    return any(one.kind is one.VAR_KEYWORD for one in arguments)


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
