"""Says which components can have another number of tasks while they run, and why others cannot.

Only what keeps nothing in the memory of its tasks can have another number of them: functions, whose
records any task can process, states of operators in a store, which move to the new tasks when these
open them (sunshower/trident/states/factories.py), and objects whose `snapshot` returns None. A
class with `state=` chooses the keys itself, so no task is known to own one: it keeps its number.
"""

from __future__ import annotations

from collections.abc import Iterator

from sunshower.config import Between
from sunshower.errors import TopologyError
from sunshower.topologies.graph import Component, Graph, Level, Subscription, can_move
from sunshower.topologies.groupings import All, Fields

_KILL = "kill the topology and submit it with another parallelism"
_AGAIN = _KILL.capitalize()
_WAY_OUT = (
    "Give it a state= in a store; if it keeps nothing, write a snapshot() that returns None and a "
    f"restore(state); or {_KILL}"
)


def check_bounds(graph: Graph) -> None:
    """Raise TopologyError for a `between` of what a running topology cannot change."""
    for id, component in graph.components.items():
        if not isinstance(number := component.parallelism, Between):
            continue
        whys = (why_fixed(graph, id, count) for count in (number.least, number.most))
        if why := next(filter(None, whys), None):
            what = "spout" if component.level.is_spout else "bolt"
            raise TopologyError(
                f"topology {graph.id!r}, {what} {id!r}: parallelism is {number!r}, but its number "
                f"of tasks cannot follow the load; give a number: {why}"
            )
    fixed = [id for id, component in graph.components.items() if not can_move(component)]
    if fixed and isinstance(graph.config.workers, Between):
        raise TopologyError(
            f"topology {graph.id!r}: workers is {graph.config.workers!r}, but the tasks of "
            f"{fixed[0]!r} cannot move to other workers: their state is in memory. Write "
            "snapshot() and restore(state) for it, or give a number of workers"
        )


def why_fixed(graph: Graph, name: str, count: int) -> str | None:
    """Why a component cannot have so many tasks while it runs; None: it can."""
    component = graph.components[name]
    if component.level is Level.ANSWERS:
        return "it answers the requests of one task, beside it"
    if component.is_of_batches:
        refuses = getattr(component.implementation, "refuses", None)
        why: str | None = None if refuses is None else refuses(count)
        return why
    if component.level.is_spout:
        return (
            "each task of a spout has its own part of the source, and the position in it. Kill the "
            "topology, and submit it with another parallelism: it continues where its source has "
            "stored a position, as Kafka does, and else starts over"
        )
    if in_memory := kept_in_memory(component):
        return f"{in_memory}, where no other task finds it. {_WAY_OUT}"
    if component.store is not None:
        return (
            "its class may choose other keys for its state than those of the grouping, and then "
            f"another task would not find them. If it uses those of the grouping: {_KILL}"
        )
    keeps_state = any(hasattr(operator, "snapshot") for operator in component.operators)
    if keeps_state and not all(map(_is_spread, component.inputs)):
        return "its state has no key by which records find their task"
    return _direct_refusal(graph, name, count)


def kept_in_memory(component: Component) -> str | None:
    """A clause that says what a bolt keeps in memory, or may keep; None: nothing, or the result of
    `snapshot` says what."""
    code = component.implementation
    if component.level in (Level.FUNCTION, Level.ANSWERS) or hasattr(code, "__sunshower_batch__"):
        return None
    if component.store is not None:
        names = [] if component.store.is_stored else [f"the state {component.store.name!r}"]
    elif component.level is Level.OPERATORS:
        names = [*code.in_memory()]
    elif can_move(component):
        names = []
    else:
        return f"the object of {component.id!r} may keep something in memory"
    return f"{names[0]} of {component.id!r} is in memory" if names else None


def _is_spread(read: Subscription) -> bool:
    """Whether the fields of a record choose its task, or all tasks get it."""
    return isinstance(read.grouping, Fields | All)


def _direct_refusal(graph: Graph, name: str, count: int) -> str | None:
    senders = list(direct_senders(graph, name))
    if senders and count < _highest(graph.components[name].parallelism):
        return (
            f"{senders[0]!r} sends to chosen tasks of it, and may have stored the id of a task "
            f"that would end. {_AGAIN}"
        )
    held = [sender for sender in senders if not can_move(graph.components[sender])]
    if held:
        return (
            f"{held[0]!r} sends to chosen tasks of it, and has to be opened again, but its state "
            "is in memory: write snapshot() and restore(state) for it"
        )
    return None


def direct_senders(graph: Graph, name: str) -> Iterator[str]:
    """The components that choose tasks of a component by their ids."""
    for read in graph.components[name].inputs if name in graph.components else ():
        if graph.components[read.source].streams[read.stream].direct:
            yield read.source


def _highest(parallelism: int) -> int:
    return parallelism.most if isinstance(parallelism, Between) else parallelism
