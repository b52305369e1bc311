"""Facts for checkers besides the event log: about the plan, and the end of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sunshower.runtime.plan import Plan
from sunshower.topologies.graph import Level


class Ending(StrEnum):
    """How a run ended."""

    FINISHED = "finished"  #: the spouts are exhausted, and everything is settled
    HALTED = "halted"  #: the topology failed, with a reason
    STUCK = "stuck"  #: it was not finished in time
    GONE = "gone"  #: the cluster failed


@dataclass(frozen=True)
class Model:
    """A numbered source: 0 … total - 1 distributed over `tasks`, as in `experiments.workload`."""

    total: int
    tasks: int
    written: bool = False  # the sink records the number of each item

    def number(self, index: int, message: int) -> int:
        """Return the item of message `message` of the source's task `index`."""
        return index + message * self.tasks


@dataclass(frozen=True)
class Facts:
    """The facts about one run, as plain values."""

    tasks: Mapping[int, str]  #: task id → name
    spouts: tuple[int, ...]  #: task ids; incarnation i belongs to spouts[i % len(spouts)]
    counted: frozenset[int] = frozenset()  #: spouts whose messages are 0, 1, 2 … in all lives
    logs: frozenset[int] = frozenset()  #: spouts that read a log: any task may read any message
    self_replaying: frozenset[int] = (
        frozenset()
    )  #: spouts that get failures and replay by themselves
    places: Mapping[int, tuple[int, int]] = field(default_factory=dict)  #: task → index, worker
    tracked: bool = True
    pending_max: int = 32_768  #: roots in flight, per spout task
    timeouts_s: Mapping[int, float] = field(default_factory=dict)  #: spout task → of its trees
    sample: int = 1  #: the history has the edges of every n-th tree
    total: int | None = None  #: messages in the source, if known
    model: Model | None = None
    ending: Ending = Ending.FINISHED
    error: str | None = None  #: why it did not finish
    drained: bool = False  #: the source was stopped, and had more
    harmless: frozenset[str] = frozenset()  #: descriptions of steps that are no faults


UNTRACKED = "nothing is tracked (ackers=0): no tree was ever followed"


def facts_of(plan: Plan, *, sample: int = 1) -> Facts:
    """Return the facts of a plan; add the others with `replace` after the run."""
    spouts = [(task.id, plan.component(task)) for task in plan.spouts]
    timeout_s = plan.graph.config.message_timeout_s
    return Facts(
        tasks=plan.task_names,
        spouts=tuple(task.id for task in plan.spouts),
        counted=frozenset(id for id, spout in spouts if spout.level.counts_records),
        logs=frozenset(id for id, spout in spouts if spout.level is Level.LOG),
        self_replaying=frozenset(id for id, spout in spouts if not spout.implementation.replay),
        places={task.id: (task.index, task.worker) for task in plan.tasks},
        tracked=plan.graph.config.tracked,
        pending_max=plan.graph.config.spout_slots,
        timeouts_s={id: spout.message_timeout_s or timeout_s for id, spout in spouts},
        sample=sample,
    )
